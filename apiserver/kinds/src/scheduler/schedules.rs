//! The schedules of environments, from the stored objects: which Assignments exist.
//!
//! A schedule is computed when somebody asks, and used again while no cluster type, target or policy of its namespace changes.
//! It has the position of each assignment in the order of names, eight bytes each, and no object of its own.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;
use stoa_controller::object::Kind;
use stoa_fleet::{
    Inputs, Origin,
    objects::{AnyObject, ClusterType, DeploymentTarget},
    schedule::{Schedule, stored_decisions},
};
use stoa_machinery::{
    ApiError,
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
    of: &'s NamedSchedule,
}

impl Scheduled<'_> {
    pub(super) fn name(&self) -> String {
        name(self.target, self.cluster_type)
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

fn name(target: &DeploymentTarget, cluster_type: &ClusterType) -> String {
    format!("{}-{}-{}", target.workload(), target.name, cluster_type.name)
}

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
        let position = |assignment: stoa_fleet::schedule::Assignment<'_>| {
            (cluster_type_at[&assignment.cluster_type.name], target_at[&assignment.target.name])
        };
        let mut by_name: Vec<(u32, u32)> = schedule.assignments().map(position).collect();
        by_name.sort_by_cached_key(|(cluster_type, target)| {
            name(&targets[*target as usize], &cluster_types[*cluster_type as usize])
        });
        Self { cluster_types, targets, schedule, by_name, created }
    }

    fn at(&self, (cluster_type, target): (u32, u32)) -> Scheduled<'_> {
        let (cluster_type, target) = (&self.cluster_types[cluster_type as usize], &self.targets[target as usize]);
        Scheduled { cluster_type, target, of: self }
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

/// Schedules with the digest of their objects, by namespace.
type KnownSchedules = BTreeMap<String, (u64, Arc<NamedSchedule>)>;

/// The schedules of all namespaces. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Schedules {
    lookup: Lookup,
    known: Arc<Mutex<KnownSchedules>>,
}

impl Schedules {
    pub(super) fn new(lookup: Lookup) -> Self {
        Self { lookup, known: Arc::default() }
    }

    /// The namespaces that may have assignments: those with policies.
    pub(super) async fn namespaces(&self) -> Result<Vec<String>, ApiError> {
        let policies = stored::<SchedulingPolicy>(&self.lookup, None).await?;
        let mut namespaces: Vec<String> = policies.iter().map(|stored| stored.namespace().to_owned()).collect();
        namespaces.sort();
        namespaces.dedup();
        Ok(namespaces)
    }

    /// The schedule of a namespace.
    pub(super) async fn of(&self, namespace: &str) -> Result<Arc<NamedSchedule>, ApiError> {
        let lists = scheduled(&self.lookup, namespace).await?;
        let mut hasher = DefaultHasher::new();
        for stored in lists.iter().flatten() {
            (stored.uid(), stored.version.0).hash(&mut hasher);
        }
        let digest = hasher.finish();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(namespace).cloned();
        if let Some((_, schedule)) = known.filter(|(of, _)| *of == digest) {
            return Ok(schedule);
        }
        let namespace = namespace.to_owned();
        let (of, schedules) = (namespace.clone(), self.clone());
        let computed = tokio::task::spawn_blocking(move || Arc::new(read(&of, lists.into_iter().flatten())));
        let computed = computed.await.map_err(|error| ApiError::internal(format_args!("scheduling: {error}")))?;
        let mut known = schedules.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(&namespace) {
            known.pop_first();
        }
        known.insert(namespace, (digest, computed.clone()));
        Ok(computed)
    }
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
    let lists = scheduled(lookup, namespace).await?;
    Ok(inputs(namespace, lists.into_iter().flatten()).0)
}

/// Schedules stored objects. An object that has been invalid since before its schema takes no part.
fn read(namespace: &str, objects: impl Iterator<Item = Arc<Stored>>) -> NamedSchedule {
    let (inputs, created) = inputs(namespace, objects);
    NamedSchedule::new(&inputs, created)
}

/// When cluster types and targets were created, by kind and name.
type Created = HashMap<(&'static str, String), String>;

/// The objects that are scheduled, with the last decisions of external schedulers.
fn inputs(namespace: &str, objects: impl Iterator<Item = Arc<Stored>>) -> (Inputs, Created) {
    let mut inputs = Inputs { environment: namespace.to_owned(), ..Inputs::default() };
    let mut created = Created::new();
    for stored in objects {
        let value = Value::Object(stored.object().0);
        let time = value["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        match AnyObject::read(&value, Origin::default()) {
            Some(Ok(AnyObject::ClusterType(it))) => {
                created.insert((CLUSTER_TYPE, it.name.clone()), time);
                inputs.cluster_types.insert(it.name.clone(), it);
            }
            Some(Ok(AnyObject::DeploymentTarget(it))) if it.spec.environment == namespace => {
                created.insert((TARGET, it.name.clone()), time);
                inputs.targets.insert(it.name.clone(), it);
            }
            Some(Ok(AnyObject::SchedulingPolicy(it))) => {
                if let Some(decisions) = stored_decisions(&value) {
                    inputs.decisions.insert(it.name.clone(), Arc::new(decisions));
                }
                inputs.policies.insert(it.name.clone(), it);
            }
            Some(Err(error)) => tracing::warn!(key = %stored.key, %error, "an object is not scheduled"),
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
}
