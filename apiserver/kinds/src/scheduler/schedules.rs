//! The schedules of environments, from the stored objects: which Assignments exist.
//!
//! A schedule is computed when somebody asks, and used again while no cluster type, target or policy of its namespace changes, by
//! all pages of a list and by all kinds. It has the position of each assignment in the order of names, eight bytes each, and no
//! object of its own.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use stoa_controller::{blocking::on_own_thread, object::Kind};
use stoa_fleet::{
    Inputs, Origin,
    objects::{AnyObject, ClusterType, DeploymentTarget},
    schedule::{Schedule, stored_decisions},
};
use stoa_machinery::{
    ApiError, Key, Version,
    registry::{ListOptions, Stored},
};
use stoa_types::{
    names,
    scheduler::{ClusterType as ServedClusterType, DeploymentTarget as ServedTarget, SchedulingPolicy},
};

use crate::lookup::Lookup;

/// The most namespaces whose schedules stay in memory.
const MOST: usize = 64;

/// The bases of assignments: group, version and plural noun.
pub(super) fn bases() -> Vec<(&'static str, &'static str, &'static str)> {
    vec![
        (
            names::group::<ServedClusterType>(),
            names::version::<ServedClusterType>(),
            names::plural::<ServedClusterType>(),
        ),
        (names::group::<ServedTarget>(), names::version::<ServedTarget>(), names::plural::<ServedTarget>()),
        (names::group::<SchedulingPolicy>(), names::version::<SchedulingPolicy>(), names::plural::<SchedulingPolicy>()),
    ]
}

/// The assignments of a namespace, in the order of their names.
#[derive(Debug)]
pub(super) struct NamedSchedule {
    cluster_types: Vec<Arc<ClusterType>>,
    targets: Vec<Arc<DeploymentTarget>>,
    /// The names of a target's assignments up to that of the cluster type, by the position of the target.
    prefixes: Vec<String>,
    schedule: Schedule,
    /// The positions of cluster types and targets, by the names of their assignments.
    by_name: Vec<(u32, u32)>,
    /// When cluster types and targets were created, by name.
    created: Created,
}

/// An assignment of a [`NamedSchedule`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Scheduled<'s> {
    pub(super) cluster_type: &'s ClusterType,
    pub(super) target: &'s DeploymentTarget,
    prefix: &'s str,
    of: &'s NamedSchedule,
}

impl Scheduled<'_> {
    pub(super) fn name(&self) -> String {
        format!("{}{}", self.prefix, self.cluster_type.name)
    }

    /// The policies that make it, sorted.
    pub(super) fn policies(&self) -> Vec<String> {
        let found = self.of.schedule.assignment(&self.cluster_type.name, &self.target.name);
        found.map(|assignment| assignment.policies()).unwrap_or_default()
    }

    /// The time from which both objects exist.
    pub(super) fn created(&self) -> Option<&String> {
        let of = |kind: &'static str, name: &String| self.of.created.get(&(kind, name.clone()));
        of(CLUSTER_TYPE, &self.cluster_type.name).max(of(TARGET, &self.target.name))
    }
}

const CLUSTER_TYPE: &str = "ClusterType";
const TARGET: &str = "DeploymentTarget";

impl NamedSchedule {
    fn new(inputs: &Inputs, created: Created) -> Self {
        let schedule = Schedule::new(inputs);
        let cluster_types: Vec<_> = inputs.cluster_types.values().cloned().collect();
        let targets: Vec<_> = inputs.targets.values().cloned().collect();
        let at = |names: Vec<&String>| -> HashMap<String, u32> {
            names.into_iter().zip(0..).map(|(name, at)| (name.clone(), at)).collect()
        };
        let cluster_type_at = at(inputs.cluster_types.keys().collect());
        let target_at = at(inputs.targets.keys().collect());
        let prefix = |target: &Arc<DeploymentTarget>| format!("{}-{}-", target.workload(), target.name);
        let prefixes: Vec<String> = targets.iter().map(prefix).collect();
        let mut by_prefix: Vec<&Arc<DeploymentTarget>> = targets.iter().collect();
        by_prefix.sort_by_key(|target| &prefixes[target_at[&target.name] as usize]);
        // This is the order of the names unless one prefix begins with another. The sort then finds little to do. There may be a
        // million names, so that the comparison builds none of them.
        let mut by_name: Vec<(u32, u32)> = Vec::new();
        for target in by_prefix {
            let target_at = target_at[&target.name];
            let assignments = schedule.of_target(&target.name);
            by_name.extend(assignments.map(|it| (cluster_type_at[&it.cluster_type.name], target_at)));
        }
        let name = |(cluster_type, target): (u32, u32)| {
            prefixes[target as usize].bytes().chain(cluster_types[cluster_type as usize].name.bytes())
        };
        by_name.sort_by(|one, other| name(*one).cmp(name(*other)));
        Self { cluster_types, targets, prefixes, schedule, by_name, created }
    }

    fn at(&self, (cluster_type, target): (u32, u32)) -> Scheduled<'_> {
        let (cluster_type, prefix) = (&self.cluster_types[cluster_type as usize], &self.prefixes[target as usize]);
        Scheduled { cluster_type, target: &self.targets[target as usize], prefix, of: self }
    }

    /// A limited number of assignments after a name.
    pub(super) fn after(&self, after: Option<&str>, most: usize) -> impl Iterator<Item = Scheduled<'_>> {
        let start = after.map_or(0, |after| self.by_name.partition_point(|at| self.at(*at).name().as_str() <= after));
        self.by_name[start..].iter().take(most).map(|at| self.at(*at))
    }

    /// The assignment of a name.
    pub(super) fn get(&self, name: &str) -> Option<Scheduled<'_>> {
        let found = self.by_name.binary_search_by(|at| self.at(*at).name().as_str().cmp(name)).ok()?;
        Some(self.at(self.by_name[found]))
    }
}

/// The last changes of cluster types, targets and policies in any namespace.
type LastChanges = [Version; 3];

/// A schedule, and the objects that it was computed from.
#[derive(Clone, Debug)]
struct Known {
    /// Nothing has changed while these are the same.
    last_changes: LastChanges,
    /// The digest of the scheduled part of the objects of the namespace. Its schedule is the same while this is.
    digest: u64,
    /// The schedule has been the same since this version.
    since: Version,
    schedule: Arc<NamedSchedule>,
}

/// The schedules that somebody asked for, by namespace.
#[derive(Debug, Default)]
pub(super) struct KnownSchedules(Mutex<BTreeMap<String, Known>>);

impl KnownSchedules {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, namespace: &str, schedule: Known) {
        let mut known = self.lock();
        if known.len() >= MOST && !known.contains_key(namespace) {
            known.pop_first();
        }
        known.insert(namespace.to_owned(), schedule);
    }
}

/// The schedules of all namespaces. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Schedules {
    lookup: Lookup,
    known: Arc<KnownSchedules>,
}

impl Schedules {
    pub(super) fn new(lookup: Lookup, known: Arc<KnownSchedules>) -> Self {
        Self { lookup, known }
    }

    /// The namespaces that may have assignments: those with policies.
    pub(super) fn namespaces(&self) -> Result<Vec<String>, ApiError> {
        Ok(self.lookup.api::<SchedulingPolicy>()?.store().namespaces())
    }

    fn last_changes(&self) -> Result<LastChanges, ApiError> {
        Ok([
            self.lookup.api::<ServedClusterType>()?.store().last_change(),
            self.lookup.api::<ServedTarget>()?.store().last_change(),
            self.lookup.api::<SchedulingPolicy>()?.store().last_change(),
        ])
    }

    /// Whether the schedules of a namespace, or of all, at a version are those of now.
    pub(super) async fn are_same_since(&self, namespace: Option<&str>, version: Version) -> bool {
        match namespace.filter(|namespace| !namespace.is_empty()) {
            Some(namespace) => self.known(namespace).await.is_ok_and(|known| known.since <= version),
            // A namespace whose last policy was deleted is not known any more.
            None => self.last_changes().is_ok_and(|changes| changes.iter().all(|change| *change <= version)),
        }
    }

    /// The schedule of a namespace.
    pub(super) async fn of(&self, namespace: &str) -> Result<Arc<NamedSchedule>, ApiError> {
        Ok(self.known(namespace).await?.schedule)
    }

    async fn known(&self, namespace: &str) -> Result<Known, ApiError> {
        // Before the lists: what changes meanwhile is compared the next time.
        let last_changes = self.last_changes()?;
        let known = self.known.lock().get(namespace).cloned();
        if let Some(known) = known.as_ref().filter(|known| known.last_changes == last_changes) {
            return Ok(known.clone());
        }
        let lists = scheduled(&self.lookup, namespace).await?;
        // After the lists: they have no later change.
        let since = self.last_changes()?.into_iter().max().unwrap_or_default();
        let of = namespace.to_owned();
        let known = on_own_thread(move || {
            let objects = values(lists);
            let digest = digest(&objects);
            match known.filter(|known| known.digest == digest) {
                Some(known) => Known { last_changes, ..known },
                None => Known { last_changes, digest, since, schedule: Arc::new(read(&of, &objects)) },
            }
        })
        .await;
        self.known.put(namespace, known.clone());
        Ok(known)
    }
}

/// A stored object with its key.
type Keyed = (Key, Value);

fn values(lists: [Vec<Arc<Stored>>; 3]) -> Vec<Keyed> {
    let value = |stored: Arc<Stored>| (stored.key.clone(), Value::Object(stored.object().0));
    lists.into_iter().flatten().map(value).collect()
}

/// A digest of the part of objects that makes a schedule. Their statuses change more often.
fn digest(objects: &[Keyed]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (key, object) in objects {
        let metadata = &object["metadata"];
        key.hash(&mut hasher);
        (&metadata["uid"], &metadata["labels"], &metadata["creationTimestamp"]).hash(&mut hasher);
        (&object["spec"], &object["status"]["decisions"]).hash(&mut hasher);
    }
    hasher.finish()
}

/// The stored cluster types, targets and policies of a namespace.
async fn scheduled(lookup: &Lookup, namespace: &str) -> Result<[Vec<Arc<Stored>>; 3], ApiError> {
    Ok([
        stored::<ServedClusterType>(lookup, Some(namespace)).await?,
        stored::<ServedTarget>(lookup, Some(namespace)).await?,
        stored::<SchedulingPolicy>(lookup, Some(namespace)).await?,
    ])
}

async fn stored<K: Kind>(lookup: &Lookup, namespace: Option<&str>) -> Result<Vec<Arc<Stored>>, ApiError> {
    let options = ListOptions { resource_version: Some("0".to_owned()), ..ListOptions::default() };
    Ok(lookup.api::<K>()?.store().list(namespace, &options).await?.items)
}

/// The stored objects of a namespace that are scheduled, with the last decisions of external schedulers.
///
/// # Errors
///
/// Those of the stored objects.
pub async fn scheduled_inputs(lookup: &Lookup, namespace: &str) -> Result<Inputs, ApiError> {
    let objects = values(scheduled(lookup, namespace).await?);
    Ok(inputs(namespace, &objects).0)
}

/// Schedules stored objects. An object that has been invalid since before its schema takes no part.
fn read(namespace: &str, objects: &[Keyed]) -> NamedSchedule {
    let (inputs, created) = inputs(namespace, objects);
    NamedSchedule::new(&inputs, created)
}

/// When cluster types and targets were created, by kind and name.
type Created = HashMap<(&'static str, String), String>;

/// The objects that are scheduled, with the last decisions of external schedulers.
fn inputs(namespace: &str, objects: &[Keyed]) -> (Inputs, Created) {
    let mut inputs = Inputs { environment: namespace.to_owned(), ..Inputs::default() };
    let mut created = Created::new();
    for (key, value) in objects {
        let time = value["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        match AnyObject::read(value, Origin::default()) {
            Some(Ok(AnyObject::ClusterType(it))) => {
                created.insert((CLUSTER_TYPE, it.name.clone()), time);
                inputs.cluster_types.insert(it.name.clone(), it);
            }
            Some(Ok(AnyObject::DeploymentTarget(it))) if it.spec.environment == namespace => {
                created.insert((TARGET, it.name.clone()), time);
                inputs.targets.insert(it.name.clone(), it);
            }
            Some(Ok(AnyObject::SchedulingPolicy(it))) => {
                if let Some(decisions) = stored_decisions(value) {
                    inputs.decisions.insert(it.name.clone(), Arc::new(decisions));
                }
                inputs.policies.insert(it.name.clone(), it);
            }
            Some(Err(error)) => tracing::warn!(%key, %error, "an object is not scheduled"),
            Some(Ok(_)) | None => {}
        }
    }
    (inputs, created)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example() -> Inputs {
        let mut inputs = Inputs { environment: "dev".to_owned(), ..Inputs::default() };
        let object = |kind: &str, name: &str, labels: Value, spec: Value| json!({"apiVersion": stoa_fleet::objects::API_VERSION, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec});
        let any =
            json!({"deploymentTargetSelector": {"labelSelector": {}}, "clusterTypeSelector": {"labelSelector": {}}});
        for value in [
            object("ClusterType", "drone", json!({}), json!({"reconciler": "flux", "namespaceService": "ns"})),
            object("ClusterType", "b", json!({}), json!({"reconciler": "flux", "namespaceService": "ns"})),
            object(
                "DeploymentTarget",
                "web-ring",
                json!({"workload": "web"}),
                json!({"environment": "dev", "manifests": {}}),
            ),
            object("SchedulingPolicy", "one", json!({}), any.clone()),
            object("SchedulingPolicy", "two", json!({}), any.clone()),
        ] {
            match AnyObject::read(&value, Origin::default()).unwrap().unwrap() {
                AnyObject::ClusterType(it) => drop(inputs.cluster_types.insert(it.name.clone(), it)),
                AnyObject::DeploymentTarget(it) => drop(inputs.targets.insert(it.name.clone(), it)),
                AnyObject::SchedulingPolicy(it) => drop(inputs.policies.insert(it.name.clone(), it)),
                other => panic!("{other}"),
            }
        }
        inputs
    }

    #[test]
    fn assignments_have_the_order_of_their_names() {
        let schedule = NamedSchedule::new(&example(), Created::new());
        let names = |after: Option<&str>, most| schedule.after(after, most).map(|it| it.name()).collect::<Vec<_>>();
        assert_eq!(names(None, 10), ["web-web-ring-b", "web-web-ring-drone"]);
        assert_eq!(names(None, 1), ["web-web-ring-b"]);
        assert_eq!(names(Some("web-web-ring-b"), 10), ["web-web-ring-drone"]);
        assert_eq!(names(Some("web-web-ring-z"), 10), [] as [&str; 0]);
        assert_eq!(schedule.get("web-web-ring-drone").unwrap().policies(), ["one", "two"]);
        assert!(schedule.get("web").is_none());
    }

    #[test]
    fn digest_changes_with_the_scheduled_part_alone() {
        let object = json!({"metadata": {"uid": "1", "labels": {"a": "b"}, "resourceVersion": "1"}, "spec": {"x": 1}});
        let of = |change: fn(&mut Value)| {
            let mut object = object.clone();
            change(&mut object);
            digest(&[(Key::new("/registry/a"), object)])
        };
        let before = of(|_| {});
        assert_eq!(of(|it| it["metadata"]["resourceVersion"] = "2".into()), before);
        assert_eq!(of(|it| it["status"] = json!({"conditions": []})), before);
        for change in [
            |it: &mut Value| it["metadata"]["uid"] = "2".into(),
            |it: &mut Value| it["metadata"]["labels"]["a"] = "c".into(),
            |it: &mut Value| it["spec"]["x"] = 2.into(),
            |it: &mut Value| it["status"] = json!({"decisions": [{"clusterTypes": ["a"]}]}),
        ] {
            assert_ne!(of(change), before);
        }
    }

    #[test]
    fn order_is_that_of_whole_names() {
        let mut inputs = example();
        // Prefixes such as `web-web-` and `web-web-ring-` begin alike, and cluster types decide.
        let target = inputs.targets["web-ring"].clone();
        for name in ["web", "web-ring-a", "w"] {
            let named = DeploymentTarget { name: name.to_owned(), ..(*target).clone() };
            inputs.targets.insert(name.to_owned(), Arc::new(named));
        }
        let cluster_type = inputs.cluster_types["b"].clone();
        for name in ["ring-c", "a", "ring-a-b"] {
            let named = ClusterType { name: name.to_owned(), ..(*cluster_type).clone() };
            inputs.cluster_types.insert(name.to_owned(), Arc::new(named));
        }
        let schedule = NamedSchedule::new(&inputs, Created::new());
        let names: Vec<String> = schedule.after(None, 100).map(|it| it.name()).collect();
        assert!(names.len() == 20 && names.is_sorted(), "{names:?}");
        for name in &names {
            assert_eq!(schedule.get(name).unwrap().name(), *name);
        }
    }
}
