//! Released claims: a deletion precedes the creation that claims its port or address.
//!
//! A host is not exclusive: an Ingress is deleted after its successor, so that the host stays reachable.
//! `admission_dependencies` covers a webhook that rejects the successor.

use std::collections::{BTreeMap, HashMap};

use super::{Outline, PlanInput};
use crate::claims::{self, Claim};
use crate::plan::{Action, Live, PlannedAction};
use crate::spec::{ResourceId, ResourceType};

/// Pairs of a resource with a claim, and the resource that releases it and comes first.
pub(super) fn released_claims<'a>(
    input: &PlanInput<'_>,
    outline: &Outline<'a>,
    actions: &BTreeMap<ResourceId, PlannedAction>,
) -> Vec<(&'a ResourceId, &'a ResourceId)> {
    let clusters = input.clusters;
    let mut holders: HashMap<(&str, Claim), Vec<&'a ResourceId>> = HashMap::new();
    for (id, record) in outline.recorded.iter().filter(|(_, record)| record.kind == ResourceType::Kubernetes) {
        let Some(planned) = actions.get(*id) else { continue };
        let wanted = outline.by_id.get(id.0.as_str()).copied();
        let server = clusters.server(clusters.of_recorded(record));
        for claim in claims::freed(planned.action, record, wanted).into_iter().filter(Claim::is_exclusive) {
            holders.entry((server, claim)).or_default().push(id);
        }
    }
    if holders.is_empty() {
        return Vec::new();
    }
    let mut pairs = Vec::new();
    for wanted in outline.wanted.iter().filter(|wanted| wanted.kind == ResourceType::Kubernetes) {
        let is_applied = |it: &PlannedAction| it.action.is_call() && it.action.keeps();
        if !actions.get(&wanted.id).is_some_and(is_applied) {
            continue;
        }
        let has = match input.live.get(&wanted.id) {
            Some(Live::Present(live)) if actions[&wanted.id].action != Action::Replace => claims::of(live),
            Some(Live::Present(_) | Live::Absent | Live::Unverified(_)) | None => Default::default(),
        };
        let server = clusters.server(clusters.of_wanted(wanted));
        for claim in &claims::of(&wanted.attributes) - &has {
            let others = holders.get(&(server, claim)).into_iter().flatten().filter(|other| ***other != wanted.id);
            pairs.extend(others.map(|other| (&wanted.id, *other)));
        }
    }
    pairs
}
