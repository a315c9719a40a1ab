//! Destinations of a plan: digests of the clusters, or of the repository and branch, that it changes.
//!
//! An approval covers the destinations. A Run does not continue in another destination than it started in.

use std::collections::{BTreeMap, BTreeSet};

use stoa_engine::{Plan, Resource, ResourceType, StateResource, digest::digest_bytes};
use stoa_runtime::Runtime;

/// The digests of the destinations of these resources, by name.
pub(crate) fn of<'r>(
    runtime: &dyn Runtime,
    wanted: impl IntoIterator<Item = &'r Resource>,
    recorded: impl IntoIterator<Item = &'r StateResource>,
) -> BTreeMap<String, String> {
    let clusters = runtime.kubernetes().clusters();
    // Resources of other types have a destination of the name of the type.
    let name = |kind: ResourceType, cluster: &str| match kind {
        ResourceType::Kubernetes => cluster.to_owned(),
        ResourceType::Terraform => kind.to_string(),
    };
    let wanted = wanted.into_iter().map(|resource| name(resource.kind, clusters.of_wanted(resource)));
    let recorded = recorded.into_iter().map(|record| name(record.kind, clusters.of_recorded(record)));
    let named: BTreeSet<String> = wanted.chain(recorded).collect();
    let mut digests = digests(runtime);
    digests.retain(|name, _| named.contains(name));
    digests
}

/// The destination that differs from that of the plan, if any. The runtime reports missing clusters.
pub fn leads_elsewhere(plan: &Plan, runtime: &dyn Runtime) -> Option<String> {
    let now = digests(runtime);
    let is_moved = |(name, then): &(&String, &String)| now.get(*name).is_some_and(|now| now != *then);
    let (name, _) = plan.destinations.iter().find(is_moved)?;
    let what = match name.as_str() {
        "" => "the workspace".to_owned(),
        name if name == ResourceType::Terraform.to_string() => format!("the workspace for resources of type {name}"),
        name => format!("cluster {name}"),
    };
    Some(format!("{what} has another destination than when the plan was made; start another run"))
}

fn digests(runtime: &dyn Runtime) -> BTreeMap<String, String> {
    runtime.destinations().into_iter().map(|(name, place)| (name, digest_bytes(&[place.as_bytes()]))).collect()
}
