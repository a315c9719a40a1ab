//! Validation without a cluster, for runtimes that commit to Git: built-in kinds by the schemas of a Kubernetes
//! version, custom resources by the definitions in the source or the repository.
//!
//! Start at [`Unasked::check`].
//!
//! Elsewhere: `custom` validates custom resources whose definition is in the same Spec.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use stoa_engine::encrypted::{SOPS, ciphertexts, is_encrypted};
use stoa_engine::problem::reason;
use stoa_engine::{FieldPath, ObjectRef, Problem, Resource, ResourceType};
use stoa_kubernetes_model::definitions::{Definition, served_version};
use stoa_kubernetes_model::kinds::is_built_in;
use stoa_runtime::{Level, Validation};
use stoa_schemas::{Catalogue, Fault, Finding};

use crate::custom::Checked;
use crate::structural::{self, Instance, Validator};

/// The schemas and definitions to validate by.
#[derive(Debug)]
pub(crate) struct Unasked<'v> {
    validation: &'v Validation,
    catalogue: Option<Arc<Catalogue>>,
    deployed: Vec<(Definition<'v>, &'v Map<String, Value>)>,
    /// Kinds without a schema: an object of each, and how many there are.
    undefined: BTreeMap<(String, String), (String, usize)>,
}

impl<'v> Unasked<'v> {
    pub(crate) fn new(validation: &'v Validation) -> Self {
        let catalogue = Catalogue::of(&validation.kubernetes).filter(|_| validation.level != Level::Off);
        let deployed = validation.definitions.iter();
        let deployed = deployed.filter_map(|object| Some((Definition::of(object)?, object))).collect();
        Self { validation, catalogue, deployed, undefined: BTreeMap::new() }
    }

    /// Validates one resource that is to be applied. `is_defined`: its definition is wanted with it, and `custom` compares it
    /// with that.
    pub(crate) async fn check(
        &mut self,
        validator: &mut Validator<'v>,
        resource: &Resource,
        unknown: &BTreeSet<FieldPath>,
        is_defined: bool,
        checked: &mut Checked,
    ) {
        let Some(catalogue) = self.catalogue.clone() else { return };
        let Some(object) = ObjectRef::of(&resource.attributes).filter(|_| resource.kind == ResourceType::Kubernetes)
        else {
            return;
        };
        let manifest = Manifest::of(&resource.attributes, unknown);
        for finding in catalogue.check(&manifest.attributes, &manifest.unknown) {
            self.report(problem(finding).of(&resource.id), checked);
        }
        if is_defined || is_built_in(&object.group) {
            return;
        }
        let definitions = self.deployed.iter().filter(|(it, _)| it.defines(&object));
        let definitions: Vec<&'v Map<String, Value>> = definitions.map(|(_, definition)| *definition).collect();
        if definitions.is_empty() {
            let kind = (object.api_version(), object.kind.clone());
            let (_, count) = self.undefined.entry(kind).or_insert_with(|| (resource.id.0.clone(), 0));
            *count += 1;
            return;
        }
        let versions = definitions.into_iter().filter_map(|definition| served_version(definition, &object.version));
        let versions: Vec<&'v Value> = versions.collect();
        if versions.is_empty() {
            let message = format!(
                "the CustomResourceDefinition of {} in the repository does not serve version {:?}",
                object.kind, object.version
            );
            let problem = Problem::new(reason::UNKNOWN_KIND, message).of(&resource.id).at("attributes.apiVersion");
            return self.report(problem, checked);
        }
        let Manifest { attributes, unknown } = &manifest;
        // The one with the fewest findings decides.
        let mut fewest = None;
        for version in versions {
            let found = validator.check(version, Instance { attributes, live: None, unknown }).await;
            if fewest.as_ref().is_none_or(|fewest: &Vec<structural::Finding>| found.len() < fewest.len()) {
                fewest = Some(found);
            }
        }
        for finding in fewest.into_iter().flatten() {
            let is_dropped = finding.fault == structural::Fault::Dropped;
            let problem = crate::custom::problem(finding).of(&resource.id);
            if is_dropped { checked.notes.push(problem.to_string()) } else { self.report(problem, checked) }
        }
    }

    /// Adds a problem as the level says.
    pub(crate) fn report(&self, problem: Problem, checked: &mut Checked) {
        match self.validation.level {
            Level::Strict => checked.problems.push(problem),
            Level::Warn => checked.notes.push(problem.to_string()),
            Level::Off => {}
        }
    }

    /// Which kinds have no schema.
    pub(crate) fn undefined(&self) -> impl Iterator<Item = String> {
        let kubernetes = &self.validation.kubernetes;
        self.undefined.iter().map(move |((api_version, kind), (first, count))| {
            let more = if *count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            format!(
                "{first}{more}: not validated: neither Kubernetes {kubernetes} nor a CustomResourceDefinition in the \
                 source or the repository defines {kind} of {api_version}"
            )
        })
    }
}

/// An object as a cluster will see it.
#[derive(Debug)]
pub(crate) struct Manifest<'r> {
    /// Without what SOPS adds.
    pub(crate) attributes: Cow<'r, Map<String, Value>>,
    /// The paths of unknown or encrypted values.
    pub(crate) unknown: Cow<'r, BTreeSet<FieldPath>>,
}

impl<'r> Manifest<'r> {
    pub(crate) fn of(attributes: &'r Map<String, Value>, unknown: &'r BTreeSet<FieldPath>) -> Self {
        if !is_encrypted(attributes) {
            return Self { attributes: Cow::Borrowed(attributes), unknown: Cow::Borrowed(unknown) };
        }
        let all = unknown.iter().cloned().chain(ciphertexts(attributes)).collect();
        let mut attributes = attributes.clone();
        attributes.remove(SOPS);
        Self { attributes: Cow::Owned(attributes), unknown: Cow::Owned(all) }
    }
}

fn problem(finding: Finding) -> Problem {
    let Finding { fault, field, message } = finding;
    let reason = match fault {
        Fault::Kind => reason::UNKNOWN_KIND,
        Fault::Missing => reason::MISSING_FIELD,
        Fault::Invalid => reason::INVALID_RESOURCE,
    };
    let field = if field.0.is_empty() { "attributes".to_owned() } else { format!("attributes.{field}") };
    Problem::new(reason, message).at(field)
}
