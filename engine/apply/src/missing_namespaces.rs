//! Missing namespaces: objects of a plan go to a namespace that does not exist and that the Spec does not create.
//!
//! Start at [`mark`]. Applying such an object fails until something else creates the namespace.

use std::collections::{BTreeMap, HashSet};

use stoa_engine::{Clusters, ObjectRef, Plan, Preview, ResourceId};
use stoa_runtime::Runtime;

use crate::planning::Desired;

/// How many ids a warning names.
const NAMED: usize = 5;

/// The namespaces of the Spec, each with its server. Their objects are created after them.
pub(crate) fn wanted_namespaces<'a>(desired: &'a Desired<'_>, clusters: &'a Clusters) -> HashSet<(&'a str, String)> {
    let namespaces = desired.values().filter_map(|wanted| {
        let object = ObjectRef::of(&wanted.attributes).filter(ObjectRef::is_namespace)?;
        Some((clusters.server(clusters.of_wanted(wanted)), object.name))
    });
    namespaces.collect()
}

/// Adds to the `unverified` reason of each resource in such a namespace, and returns the warnings of the plan.
pub(crate) fn mark(
    plan: &mut Plan,
    runtime: &dyn Runtime,
    desired: &Desired<'_>,
    previews: &BTreeMap<ResourceId, Preview>,
) -> Vec<String> {
    let (clusters, missing) = (runtime.kubernetes().clusters(), runtime.kubernetes().missing_namespaces());
    if missing.is_empty() {
        return Vec::new();
    }
    let created = wanted_namespaces(desired, clusters);
    let uncreated: Vec<&(String, String)> =
        missing.iter().filter(|(cluster, name)| !created.contains(&(clusters.server(cluster), name.clone()))).collect();
    let mut affected: BTreeMap<&(String, String), Vec<&str>> = BTreeMap::new();
    for planned in &mut plan.actions {
        let Some(why) = &mut planned.unverified else { continue };
        let Some(wanted) = desired.get_key_value(&planned.id) else { continue };
        let Some(object) = clusters.wanted_object(wanted.1) else { continue };
        let server = clusters.server(clusters.of_wanted(wanted.1));
        let is_its =
            |(cluster, name): &&&(String, String)| clusters.server(cluster) == server && *name == object.namespace;
        // Other unverified resources may be cluster-scoped.
        if !matches!(previews.get(&planned.id), Some(Preview::MissingNamespace(reason)) if *reason == *why) {
            continue;
        }
        if let Some(namespace) = uncreated.iter().find(is_its) {
            why.push_str(", and the Spec does not create it");
            affected.entry(*namespace).or_default().push(&wanted.0.0);
        }
    }
    let warning = |((cluster, name), ids): (&(String, String), Vec<&str>)| {
        let rest = ids.len().saturating_sub(NAMED);
        let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
        let named = ids[..ids.len() - rest].join(", ");
        let location = if cluster.is_empty() { String::new() } else { format!(" in cluster {cluster}") };
        format!(
            "namespace {name} does not exist{location}, and the Spec does not create it; applying {named}{more} fails \
             until something else does"
        )
    };
    affected.into_iter().map(warning).collect()
}
