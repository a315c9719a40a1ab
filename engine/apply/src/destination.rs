//! Where a plan goes: whoever approves it approves that, too, and what has begun in one place does not go on in another.

use std::collections::{BTreeMap, BTreeSet};

use stoa_engine::{Plan, Resource, StateResource, digest::digest_bytes};
use stoa_runtime::Runtime;

/// The digests of the places that these resources go to, or are in, by name.
pub(crate) fn of<'r>(
    runtime: &dyn Runtime,
    wanted: impl IntoIterator<Item = &'r Resource>,
    recorded: impl IntoIterator<Item = &'r StateResource>,
) -> BTreeMap<String, String> {
    let clusters = runtime.clusters();
    let wanted = wanted.into_iter().map(|resource| clusters.of_wanted(resource));
    let named: BTreeSet<&str> = wanted.chain(recorded.into_iter().map(|record| clusters.of_recorded(record))).collect();
    let mut digests = digests(runtime);
    digests.retain(|name, _| named.contains(name.as_str()));
    digests
}

/// Says what leads elsewhere by now than when a plan was made, if something does. What is not there any more at all is for
/// the runtime to tell.
pub fn leads_elsewhere(plan: &Plan, runtime: &dyn Runtime) -> Option<String> {
    let now = digests(runtime);
    let is_moved = |(name, then): &(&String, &String)| now.get(*name).is_some_and(|now| now != *then);
    let (name, _) = plan.destinations.iter().find(is_moved)?;
    let what = if name.is_empty() { "the workspace".to_owned() } else { format!("cluster {name}") };
    Some(format!("{what} leads elsewhere than when the plan was made; start another run"))
}

fn digests(runtime: &dyn Runtime) -> BTreeMap<String, String> {
    runtime.places().into_iter().map(|(name, place)| (name, digest_bytes(&[place.as_bytes()]))).collect()
}
