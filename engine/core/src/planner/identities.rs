//! Identities: the ids and records of one object. Ids and cluster names change, and a Run may stop between two steps.

use std::collections::{BTreeMap, HashMap};

use super::decision::moved_from;
use super::{Outline, PlanInput, live_uid};
use crate::cluster::{Clusters, Identity, id_in};
use crate::object::{ObjectRef, uid_of};
use crate::plan::{Action, Live, PlannedAction};
use crate::problem::{Problem, reason};
use crate::spec::{Resource, ResourceId, ResourceType};
use crate::state::StateResource;
use crate::validate::same_object;

/// Problems of objects that the Spec has under two ids: one names the cluster that is the default of the other, or two
/// cluster names lead to one server.
pub(super) fn duplicates(input: &PlanInput<'_>, outline: &Outline<'_>) -> Vec<Problem> {
    let clusters = input.clusters;
    let mut objects: HashMap<&Identity, &Resource> = HashMap::with_capacity(outline.wanted.len());
    let mut uids: HashMap<&str, &Resource> = HashMap::new();
    // In one cluster, the names suffice. A refresh reads an object at its recorded location, where another id may want
    // it.
    let are_several = clusters.names().len() > 1 && !input.refresh;
    let (mut problems, mut of_one_object) = (Vec::new(), Vec::new());
    let mut tell = |resource: &Resource, message: String, field: &str| {
        problems.push(Problem::new(reason::DUPLICATE_RESOURCE, message).of(&resource.id).at(field));
    };
    let is_in_namespace = |it: &Resource| {
        ObjectRef::of(&it.attributes).is_some_and(|it| !clusters.is_cluster_scoped(&it.group, &it.kind))
    };
    for resource in &outline.wanted {
        let Some(object) = outline.objects.get(&resource.id) else { continue };
        let named = objects.insert(object, resource);
        let uid = || are_several.then(|| live_uid(input, &resource.id)).flatten();
        let seen = || uid().and_then(|uid| uids.insert(uid, resource));
        let Some(first) = named.or_else(seen) else { continue };
        let (one, other) = (clusters.of_wanted(first), clusters.of_wanted(resource));
        if one != other {
            let same =
                format!("this is the same object as {}: clusters {one} and {other} are the same server", first.id);
            tell(resource, same, "extensions.cluster");
        } else if named.is_some() && !is_in_namespace(resource) {
            of_one_object.push(same_object(first, resource));
        } else if named.is_some() {
            let goes_to_default =
                |it: &Resource| ObjectRef::of(&it.attributes).is_some_and(|it| it.namespace.is_empty());
            let same = format!("this is the same object as {}", first.named());
            if goes_to_default(first) == goes_to_default(resource) {
                tell(resource, same, "attributes");
            } else {
                let default = clusters.default_namespace(one);
                let message = format!("{same}: an object without a namespace goes to {default} in cluster {one}");
                tell(resource, message, "attributes.metadata.namespace");
            }
        }
    }
    problems.extend(of_one_object);
    problems
}

/// Unwanted objects that are recorded under several ids, each with the id under which it is deleted: the one of the live
/// object. A Run that was stopped while it changed an id leaves such records.
pub(super) fn superseded<'a>(
    clusters: &Clusters,
    unwanted: &[&'a StateResource],
    live: &BTreeMap<ResourceId, Live>,
) -> HashMap<&'a ResourceId, &'a ResourceId> {
    let mut of_object: BTreeMap<Identity, Vec<&StateResource>> = BTreeMap::new();
    for prior in unwanted {
        if let Some(object) = clusters.recorded(prior) {
            of_object.entry(object).or_default().push(prior);
        }
    }
    let is_live = |prior: &&&StateResource| match live.get(&prior.id) {
        Some(Live::Present(live)) => prior.uid().is_some() && uid_of(live) == prior.uid(),
        Some(Live::Absent | Live::Unverified(_)) | None => false,
    };
    let several = of_object.values().filter(|records| records.len() > 1);
    several
        .flat_map(|records| {
            let last = records.iter().rfind(is_live).or(records.last()).map(|last| &last.id);
            records.iter().filter_map(move |prior| Some((&prior.id, last.filter(|last| **last != prior.id)?)))
        })
        .collect()
}

/// Problems of ids that move elsewhere while another id wants their recorded objects where these are.
pub(super) fn exchanged(input: &PlanInput<'_>, outline: &Outline<'_>, kept: &WantedObjects<'_>) -> Vec<Problem> {
    let problem = |prior: &&StateResource| {
        let resource = outline.by_id[prior.id.0.as_str()];
        moved_from(input, resource, prior)?;
        let wanted = kept.as_what(input, prior).filter(|wanted| **wanted != prior.id)?;
        let other = id_in(&prior.id, input.clusters.of_wanted(resource));
        let message = format!(
            "it moves, but the Spec has its present object as {wanted}; leave this id where it is, and give the new \
             object another id, such as {other}"
        );
        Some(Problem::new(reason::STILL_NEEDED, message).of(&prior.id))
    };
    outline.elsewhere.iter().filter(|_| !input.refresh).filter_map(problem).collect()
}

/// Wanted ids whose objects are recorded under another id: only the version in `apiVersion` changed, or two cluster names
/// lead to one server. The record under the other id wins if it is of the live object.
pub(super) fn renamed<'a>(input: &PlanInput<'_>, outline: &Outline<'a>) -> HashMap<&'a ResourceId, &'a ResourceId> {
    let Outline { wanted, objects: wanted_objects, recorded, unwanted, .. } = outline;
    if unwanted.is_empty() {
        return HashMap::new();
    }
    let left = || unwanted.iter().copied();
    let objects: HashMap<_, &StateResource> =
        left().filter_map(|prior| Some((input.clusters.recorded(prior)?, prior))).collect();
    let uids: HashMap<_, &StateResource> = left().filter_map(|prior| Some((prior.uid()?, prior))).collect();
    let is_live =
        |id: &ResourceId, record: &StateResource| record.uid().is_some() && live_uid(input, id) == record.uid();
    wanted
        .iter()
        .filter_map(|resource| {
            let id = &resource.id;
            let by_uid = || uids.get(live_uid(input, id)?);
            let other = *objects.get(wanted_objects.get(id)?).or_else(by_uid)?;
            let is_other = recorded.get(id).is_none_or(|own| is_live(id, other) && !is_live(id, own));
            is_other.then_some((id, &other.id))
        })
        .collect()
}

/// The objects of the Spec, under any id, which must not be deleted.
pub(super) struct WantedObjects<'a> {
    /// By where they are to be.
    objects: HashMap<&'a Identity, &'a ResourceId>,
    /// By their uids, as far as these are known: two names of clusters may lead to one server, and two groups to one object.
    uids: HashMap<&'a str, &'a ResourceId>,
    /// Objects that cannot be read, by identity: an object in another cluster may be the same one.
    unseen: BTreeMap<&'a [String; 4], Vec<&'a ResourceId>>,
}

impl<'a> WantedObjects<'a> {
    pub(super) fn of(input: &PlanInput<'a>, outline: &'a Outline<'_>) -> Self {
        let Outline { wanted, objects, recorded, unwanted, elsewhere, .. } = outline;
        let mut kept = Self { objects: HashMap::new(), uids: HashMap::new(), unseen: BTreeMap::new() };
        if unwanted.is_empty() && elsewhere.is_empty() {
            // Every record has its wanted id and location, so that nothing is deleted.
            return kept;
        }
        for resource in wanted.iter().filter(|resource| resource.kind == ResourceType::Kubernetes) {
            let id = &resource.id;
            let identity = objects.get(id);
            let prior = || recorded.get(id).and_then(|prior| prior.uid());
            match input.live.get(id) {
                Some(Live::Present(live)) => kept.uids.extend(uid_of(live).map(|uid| (uid, id))),
                Some(Live::Absent) => {}
                Some(Live::Unverified(_)) | None => match (prior(), identity) {
                    (Some(uid), _) => drop(kept.uids.insert(uid, id)),
                    (None, Some((_, object))) => kept.unseen.entry(object).or_default().push(id),
                    (None, None) => {}
                },
            }
            kept.objects.extend(identity.map(|object| (object, id)));
        }
        kept
    }

    /// Which of them a record is of, if it is of one.
    pub(super) fn as_what(&self, input: &PlanInput<'_>, prior: &StateResource) -> Option<&'a ResourceId> {
        let by_uid =
            || [prior.uid(), live_uid(input, &prior.id)].into_iter().flatten().find_map(|uid| self.uids.get(uid));
        input.clusters.recorded(prior).and_then(|object| self.objects.get(&object)).or_else(by_uid).copied()
    }

    /// Deletions that have to wait for another action, whose object may turn out to be the same one.
    pub(super) fn unclear(
        &self,
        input: &PlanInput<'_>,
        outline: &Outline<'a>,
        actions: &BTreeMap<ResourceId, PlannedAction>,
    ) -> Vec<(&'a ResourceId, &'a ResourceId)> {
        if self.unseen.is_empty() {
            return Vec::new();
        }
        let is_removed = |prior: &&StateResource| {
            actions.get(&prior.id).is_some_and(|it| matches!(it.action, Action::Delete | Action::Replace))
        };
        let removed = outline.unwanted.iter().chain(&outline.elsewhere).copied().filter(is_removed);
        removed
            .filter_map(|prior| Some((prior, self.unseen.get(&input.clusters.recorded(prior)?.1)?)))
            .flat_map(|(prior, unseen)| unseen.iter().map(|wanted| (&prior.id, *wanted)))
            .collect()
    }
}
