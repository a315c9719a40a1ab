//! Namespaces that are not there and that the Spec does not make: what goes to them can only be applied once something else has
//! made them.

use std::collections::{BTreeMap, HashSet};

use stoa_engine::{Clusters, ObjectRef, Plan, Preview, ResourceId};
use stoa_runtime::Runtime;

use crate::planning::Desired;

/// So many ids are in a warning.
const NAMED: usize = 5;

/// The namespaces that are wanted, so that they are made before what is in them, and their servers.
pub(crate) fn wanted_namespaces<'a>(desired: &'a Desired<'_>, clusters: &'a Clusters) -> HashSet<(&'a str, String)> {
    let namespaces = desired.values().filter_map(|wanted| {
        let object = ObjectRef::of(&wanted.attributes).filter(ObjectRef::is_namespace)?;
        Some((clusters.server(clusters.of_wanted(wanted)), object.name))
    });
    namespaces.collect()
}

/// Has a plan say so of each resource that goes to such a namespace, and returns what people should know.
pub(crate) fn tell(
    plan: &mut Plan,
    runtime: &dyn Runtime,
    desired: &Desired<'_>,
    previews: &BTreeMap<ResourceId, Preview>,
) -> Vec<String> {
    let (clusters, missing) = (runtime.clusters(), runtime.missing_namespaces());
    if missing.is_empty() {
        return Vec::new();
    }
    let made = wanted_namespaces(desired, clusters);
    let unmade: Vec<&(String, String)> =
        missing.iter().filter(|(cluster, name)| !made.contains(&(clusters.server(cluster), name.clone()))).collect();
    let mut held: BTreeMap<&(String, String), Vec<&str>> = BTreeMap::new();
    for planned in &mut plan.actions {
        let Some(why) = &mut planned.unverified else { continue };
        let Some(wanted) = desired.get_key_value(&planned.id) else { continue };
        let Some(object) = clusters.wanted_object(wanted.1) else { continue };
        let server = clusters.server(clusters.of_wanted(wanted.1));
        let is_its =
            |(cluster, name): &&&(String, String)| clusters.server(cluster) == server && *name == object.namespace;
        // What is unverified for another reason may be of a kind that is in no namespace.
        if !matches!(previews.get(&planned.id), Some(Preview::MissingNamespace(told)) if *told == *why) {
            continue;
        }
        if let Some(namespace) = unmade.iter().find(is_its) {
            why.push_str(", and the Spec does not make it");
            held.entry(*namespace).or_default().push(&wanted.0.0);
        }
    }
    let told = |((cluster, name), ids): (&(String, String), Vec<&str>)| {
        let rest = ids.len().saturating_sub(NAMED);
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let named = ids[..ids.len() - rest].join(", ");
        let place = if cluster.is_empty() { "there".to_owned() } else { format!("in cluster {cluster}") };
        format!(
            "namespace {name} is not {place}, and the Spec does not make it: unless something else does first, to apply \
             {named}{more} fails"
        )
    };
    held.into_iter().map(told).collect()
}
