//! `assignments/provenance`: which policies make an assignment, which template makes each file, and which ConfigMaps have each
//! value.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use stoa_controller::blocking::on_own_thread;
use stoa_fleet::render::explain;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
};
use stoa_types::{names, scheduler::Assignment};

use super::format::Format;
use crate::fleet::{At, FleetService};

const FORMATS: &[Format<Provenance>] = &[Format::Json, Format::Yaml];

/// The objects and values that an assignment is made of.
#[derive(Debug, Serialize)]
struct Provenance {
    assignment: String,
    policies: Vec<String>,
    files: Vec<MadeFile>,
    /// The configuration, by key.
    values: BTreeMap<String, Explained>,
    /// The scalars of specific ConfigMaps that more general ones replace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<String>,
    /// The violations of schemas.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    violations: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MadeFile {
    name: String,
    /// Empty for a built-in file.
    template: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    value: Value,
    /// In the order in which they count.
    config_maps: Vec<String>,
}

pub(super) async fn provenance(fleets: FleetService, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
    let format = Format::choose(&call, FORMATS)?;
    let assignment = fleets.services().lookup.api::<Assignment>()?.get(&call.namespace, &call.name).await?;
    let known = fleets.of(&call.namespace, At::default()).await?;
    let (cluster_type, target) = (assignment.spec.cluster_type, assignment.spec.deployment_target);
    let fleet = known.fleet.clone();
    let explained = on_own_thread(move || explain(&fleet, &cluster_type, &target)).await;
    let explained = explained
        .ok_or_else(|| ApiError::not_found(names::group::<Assignment>(), names::plural::<Assignment>(), &call.name))?;
    let mut maps = explained.configuration.maps;
    let values = explained.configuration.values.into_iter().map(|(key, value)| {
        let config_maps = maps.remove(&key).unwrap_or_default();
        (key, Explained { value: Value::clone(&value), config_maps })
    });
    let provenance = Provenance {
        assignment: explained.assignment,
        policies: explained.policies,
        files: explained.files.into_iter().map(|(name, template)| MadeFile { name, template }).collect(),
        values: values.collect(),
        overrides: explained.configuration.overrides.iter().map(ToString::to_string).collect(),
        violations: explained.violations.iter().map(ToString::to_string).collect(),
    };
    format.write(&call, &provenance)
}
