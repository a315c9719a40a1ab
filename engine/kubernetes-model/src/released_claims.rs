//! Released claims: a deletion precedes the creation that claims its port or address.
//!
//! A host is not exclusive: an Ingress is deleted after its successor, so that the host stays reachable.
//! `admission_dependencies` covers a webhook that rejects the successor.

use std::collections::HashMap;

use stoa_engine::kind_rules::Decisions;
use stoa_engine::plan::{Action, Live, PlannedAction};
use stoa_engine::{Resource, ResourceId, ResourceType};

use crate::claims::{self, Claim};

/// Pairs of a resource with a claim, and the resource that releases it and comes first.
pub(crate) fn released_claims(decisions: &Decisions<'_, '_>) -> Vec<(ResourceId, ResourceId)> {
    let Decisions { input, wanted, recorded, actions, .. } = *decisions;
    let clusters = input.clusters;
    let wanted_of: HashMap<&ResourceId, &Resource> = wanted.iter().map(|wanted| (&wanted.id, *wanted)).collect();
    let mut holders: HashMap<(&str, Claim), Vec<&ResourceId>> = HashMap::new();
    for (id, record) in recorded.iter().filter(|(_, record)| record.kind == ResourceType::Kubernetes) {
        let Some(planned) = actions.get(*id) else { continue };
        let server = clusters.server(clusters.of_recorded(record));
        let freed = claims::freed(planned.action, record, wanted_of.get(*id).copied());
        for claim in freed.into_iter().filter(Claim::is_exclusive) {
            holders.entry((server, claim)).or_default().push(id);
        }
    }
    if holders.is_empty() {
        return Vec::new();
    }
    let mut pairs = Vec::new();
    for wanted in wanted.iter().filter(|wanted| wanted.kind == ResourceType::Kubernetes) {
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
            pairs.extend(others.map(|other| (wanted.id.clone(), (*other).clone())));
        }
    }
    pairs
}
