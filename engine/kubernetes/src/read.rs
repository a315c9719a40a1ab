//! Reads of many objects with few calls.
//!
//! Start at [`group`], which decides which collections are read, and how.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Map, Value};
use stoa_engine::object::without_bookkeeping;
use stoa_engine::{Resource, ResourceId, Schemas, Sensitive, StateResource};
use stoa_runtime::{Found, Live, ReadRequest, RuntimeError};

use crate::KubernetesRuntime;
use crate::cluster::Cluster;
use crate::discovery::Discovered;
use crate::error::{CallError, Failure};
use crate::kinds::{self, Known};
use crate::target::{Api, Gvk, Target, collection_path, named_path};
use crate::write::{applied, uid};

/// The pauses between reads of a cluster that does not answer while another one does.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];
/// Calls in flight at once.
const PARALLEL: usize = 16;
/// Up to this many objects of a collection, a GET of each is cheaper than a LIST.
const FEW: usize = 2;

/// The objects wanted of one collection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) cluster: usize,
    pub(crate) gvk: Gvk,
    pub(crate) api: Api,
    pub(crate) namespace: Option<String>,
    /// Positions in the requests, and names.
    pub(crate) wanted: Vec<(usize, String)>,
}

/// An object with a known kind.
pub(crate) struct Placed<'a> {
    pub(crate) position: usize,
    pub(crate) cluster: usize,
    pub(crate) default_namespace: &'a str,
    pub(crate) target: Target,
    pub(crate) api: Api,
}

/// Gathers objects by the collection they are in.
pub(crate) fn group<'a>(placed: impl IntoIterator<Item = Placed<'a>>) -> Vec<Group> {
    let mut groups: BTreeMap<(usize, Gvk, Option<String>), Group> = BTreeMap::new();
    for Placed { position, cluster, default_namespace, target, api } in placed {
        let namespace = target.namespace_in(&api, default_namespace).map(str::to_owned);
        let Target { gvk, name, .. } = target;
        let key = (cluster, gvk.clone(), namespace.clone());
        let group = groups.entry(key).or_insert_with(|| Group { cluster, gvk, api, namespace, wanted: Vec::new() });
        group.wanted.push((position, name));
    }
    groups.into_values().collect()
}

type Read = Result<Live, RuntimeError>;

/// Reads everything. Of a cluster that does not answer while another does, nothing is known but that.
pub(crate) async fn read(runtime: &KubernetesRuntime, requests: &[ReadRequest<'_>]) -> Result<Vec<Read>, RuntimeError> {
    let mut answers = read_once(runtime, requests).await?;
    let mut pauses = PAUSES.iter();
    loop {
        let is_away = |answer: &Read| answer.as_ref().is_err_and(RuntimeError::is_retryable);
        let away: Vec<usize> = (0..answers.len()).filter(|position| is_away(&answers[*position])).collect();
        let Some(first) = away.first() else { return Ok(answers) };
        if !is_any_there(runtime).await {
            return Err(answers.swap_remove(*first).expect_err("it is one of those without an answer"));
        }
        let Some(pause) = pauses.next() else {
            for position in away {
                let (cluster, _) = runtime.target_of(&requests[position])?;
                answers[position] = Ok(Live::Unverified(unreachable(runtime.cluster(cluster))));
            }
            return Ok(answers);
        };
        tokio::time::sleep(*pause).await;
        let again: Vec<ReadRequest<'_>> = away.iter().map(|position| requests[*position].clone()).collect();
        for (position, answer) in away.into_iter().zip(read_once(runtime, &again).await?) {
            answers[position] = answer;
        }
    }
}

/// The constant message about objects in an unreachable cluster.
pub(crate) fn unreachable(cluster: &Cluster) -> String {
    format!("cluster {} does not answer", cluster.name)
}

/// Whether any cluster of the workspace answers.
async fn is_any_there(runtime: &KubernetesRuntime) -> bool {
    for cluster in &runtime.clusters {
        if cluster.away().is_none() && cluster.answers().await {
            return true;
        }
    }
    false
}

/// Reads once. Objects of a cluster that does not answer are [unavailable](RuntimeError::Unavailable).
async fn read_once(runtime: &KubernetesRuntime, requests: &[ReadRequest<'_>]) -> Result<Vec<Read>, RuntimeError> {
    let renewed = AtomicBool::new(false);
    let answers = read_discovered(runtime, requests, &renewed).await?;
    // The discovery of an earlier run is outdated.
    if renewed.into_inner() { read_discovered(runtime, requests, &AtomicBool::default()).await } else { Ok(answers) }
}

/// Reads with the known discovery. `renewed` reports that an outdated part of it was dropped.
async fn read_discovered(
    runtime: &KubernetesRuntime,
    requests: &[ReadRequest<'_>],
    renewed: &AtomicBool,
) -> Result<Vec<Read>, RuntimeError> {
    let mut answers: Vec<Option<Read>> = requests.iter().map(|_| None).collect();
    let mut targets = Vec::new();
    for (position, request) in requests.iter().enumerate() {
        match runtime.target_of(request) {
            Ok((cluster, target)) => targets.push((position, cluster, target)),
            Err(err) => answers[position] = Some(Err(err)),
        }
    }

    // Whether the kind is wanted, or only recorded.
    let kind = |position: usize, cluster: usize, target: &Target| {
        (cluster, target.gvk.clone(), requests[position].desired.is_some())
    };
    let kinds: HashSet<(usize, Gvk, bool)> =
        targets.iter().map(|(position, cluster, target)| kind(*position, *cluster, target)).collect();
    let known: HashMap<(usize, Gvk, bool), Option<Known>> = stream::iter(kinds)
        .map(async |(index, gvk, is_wanted)| {
            let cluster = runtime.cluster(index);
            let found = if is_wanted {
                kinds::find(cluster, &gvk).await
            } else {
                kinds::find_in_any_version(cluster, &gvk).await
            };
            match found {
                Ok(found) => Ok(((index, gvk, is_wanted), Some(found))),
                Err(_) if cluster.away().is_some() => Ok(((index, gvk, is_wanted), None)),
                Err(err) => Err(err.into_runtime(&cluster.name, &Sensitive::default())),
            }
        })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await?;

    let mut placed = Vec::new();
    for (position, index, target) in targets {
        let cluster = runtime.cluster(index);
        match &known[&kind(position, index, &target)] {
            Some(Known::Served(gvk, api)) => placed.push(Placed {
                position,
                cluster: index,
                default_namespace: cluster.default_namespace(),
                target: Target { gvk: gvk.clone(), ..target },
                api: api.clone(),
            }),
            // A kind without any version has no objects.
            Some(Known::Coming | Known::Unknown) if requests[position].desired.is_none() => {
                answers[position] = Some(Ok(Live::Absent));
            }
            Some(Known::Coming) => {
                answers[position] = Some(Ok(Live::Unverified(kinds::not_yet(&target, &cluster.name))));
            }
            Some(Known::Unknown) => answers[position] = Some(Err(kinds::unknown(&target, &cluster.name))),
            None => answers[position] = Some(Err(unavailable(cluster))),
        }
    }

    let found: Vec<(usize, Read)> = stream::iter(group(placed))
        .map(async |group| {
            let cluster = runtime.cluster(group.cluster);
            let positions: Vec<usize> = group.wanted.iter().map(|(position, _)| *position).collect();
            match read_group(cluster, group, renewed).await {
                Err(_) if cluster.away().is_some() => {
                    Ok(positions.into_iter().map(|position| (position, Err(unavailable(cluster)))).collect())
                }
                answer => answer,
            }
        })
        .buffer_unordered(PARALLEL)
        .try_fold(Vec::new(), async |mut all, found: Vec<(usize, Read)>| {
            all.extend(found);
            Ok(all)
        })
        .await?;
    for (position, answer) in found {
        answers[position] = Some(answer);
    }
    Ok(answers.into_iter().map(|answer| answer.expect("every request was placed or answered")).collect())
}

fn unavailable(cluster: &Cluster) -> RuntimeError {
    CallError::Unreachable(cluster.away().unwrap_or_default()).into_runtime(&cluster.name, &Sensitive::default())
}

/// The merge schemas of these resources, each requested once.
pub(crate) async fn schemas(runtime: &KubernetesRuntime, desired: &[&Resource]) -> Result<Schemas, RuntimeError> {
    let mut kinds: BTreeMap<(usize, Gvk), Vec<ResourceId>> = BTreeMap::new();
    for resource in desired {
        let (cluster, target) = runtime.desired_target(resource)?;
        kinds.entry((cluster, target.gvk)).or_default().push(resource.id.clone());
    }
    let found: Vec<Schemas> = stream::iter(kinds)
        .map(async |((index, gvk), ids)| {
            let cluster = runtime.cluster(index);
            let schema = match cluster.schema(&gvk).await {
                Ok(schema) => schema.map(Arc::new),
                // An unavailable cluster has no discovery.
                Err(_) if cluster.away().is_some() && runtime.clusters.len() > 1 => None,
                Err(err) => return Err(err.into_runtime(&cluster.name, &Sensitive::default())),
            };
            Ok::<_, RuntimeError>(ids.into_iter().filter_map(|id| Some((id, schema.clone()?))).collect())
        })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await?;
    Ok(found.into_iter().flatten().collect())
}

/// The cluster-scoped kinds of these resources, each requested once.
pub(crate) async fn cluster_scoped(
    runtime: &KubernetesRuntime,
    desired: &[&Resource],
) -> Result<Vec<(String, String)>, RuntimeError> {
    let mut kinds: BTreeSet<(usize, Gvk)> = BTreeSet::new();
    for resource in desired {
        let (cluster, target) = runtime.desired_target(resource)?;
        kinds.insert((cluster, target.gvk));
    }
    let found: Vec<Option<(String, String)>> = stream::iter(kinds)
        .map(async |(index, gvk)| {
            let cluster = runtime.cluster(index);
            match cluster.discover(&gvk).await {
                Ok(Discovered::Served(api)) => Ok((!api.namespaced).then_some((gvk.group, gvk.kind))),
                Ok(Discovered::NoKind | Discovered::NoVersion) => Ok(None),
                // An unavailable cluster has no discovery.
                Err(_) if cluster.away().is_some() && runtime.clusters.len() > 1 => Ok(None),
                Err(err) => Err(err.into_runtime(&cluster.name, &Sensitive::default())),
            }
        })
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await?;
    Ok(found.into_iter().flatten().collect())
}

/// Looks for what lost calls may have made, each by its name.
pub(crate) async fn inspect(
    runtime: &KubernetesRuntime,
    resources: &[&StateResource],
) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError> {
    let looks: Vec<BoxFuture<'_, Result<Found, RuntimeError>>> =
        resources.iter().map(|resource| inspect_one(runtime, resource).boxed()).collect();
    Ok(stream::iter(looks).buffered(PARALLEL).collect().await)
}

async fn inspect_one(runtime: &KubernetesRuntime, resource: &StateResource) -> Result<Found, RuntimeError> {
    let (index, target) = runtime.prior_target(resource)?;
    let cluster = runtime.cluster(index);
    let explain = |err: CallError| err.into_runtime(&cluster.name, &Sensitive::default());
    let known = kinds::find_in_any_version(cluster, &target.gvk).await.map_err(explain)?;
    let Known::Served(gvk, api) = known else { return Ok(Found::Absent) };
    let target = Target { gvk, ..target };
    let object = match cluster.get(&cluster.path(&target, &api)).await {
        Err(CallError::Status(failure)) if failure.is_missing_kind() && cluster.forget_older(&target.gvk) => {
            return Box::pin(inspect_one(runtime, resource)).await;
        }
        found => found.map_err(explain)?,
    };
    let Some(object) = object else { return Ok(Found::Absent) };
    // An object without an owner annotation is identified by its uid.
    let is_recorded = resource.uid().is_some_and(|recorded| uid(&object) == Some(recorded));
    let is_ours = runtime.owner.has(&object) || (is_recorded && runtime.owner.other(&object).is_none());
    Ok(if is_ours { Found::Ours(applied(cluster, target, &api, object)) } else { Found::Foreign })
}

/// Reads the objects of one collection. An error that concerns only this collection is the answer
/// for its objects; a server that is out of reach ends the read.
async fn read_group(cluster: &Cluster, group: Group, renewed: &AtomicBool) -> Result<Vec<(usize, Read)>, RuntimeError> {
    let see = |failure: &Failure| {
        let is_outdated = failure.is_missing_kind() && cluster.forget_older(&group.gvk);
        renewed.fetch_or(is_outdated, Ordering::Relaxed);
    };
    let collection = collection_path(&group.gvk, &group.api, group.namespace.as_deref());
    if group.wanted.len() > FEW {
        let names: HashSet<&str> = group.wanted.iter().map(|(_, name)| name.as_str()).collect();
        match cluster.list(&group.gvk, &collection, &|name| names.contains(name)).await {
            Ok(found) => {
                return Ok(group
                    .wanted
                    .iter()
                    .map(|(position, name)| (*position, Ok(live(found.objects.get(name).cloned()))))
                    .collect());
            }
            // Whoever may get objects by name need not be allowed to list them.
            Err(CallError::Status(failure)) if failure.code == 403 => {}
            Err(err) => {
                return answer_all(&group, see_in(&see, err), cluster);
            }
        }
    }
    stream::iter(group.wanted)
        .map(|(position, name)| get_one(cluster, named_path(&collection, &name), position, &see))
        .buffer_unordered(PARALLEL)
        .try_collect()
        .await
}

async fn get_one(
    cluster: &Cluster,
    path: String,
    position: usize,
    see: &(dyn Fn(&Failure) + Sync),
) -> Result<(usize, Read), RuntimeError> {
    match cluster.get(&path).await {
        Ok(found) => Ok((position, Ok(live(found)))),
        Err(err) => match see_in(see, err).into_runtime(&cluster.name, &Sensitive::default()) {
            err if err.is_retryable() => Err(err),
            err => Ok((position, Err(err))),
        },
    }
}

fn see_in(see: &(dyn Fn(&Failure) + Sync), err: CallError) -> CallError {
    if let CallError::Status(failure) = &err {
        see(failure);
    }
    err
}

fn answer_all(group: &Group, err: CallError, cluster: &Cluster) -> Result<Vec<(usize, Read)>, RuntimeError> {
    let err = err.into_runtime(&cluster.name, &Sensitive::default());
    if err.is_retryable() {
        return Err(err);
    }
    let refused =
        |message: &str| RuntimeError::Rejected { message: message.to_owned(), field: None, by_definition: false };
    let message = err.to_string();
    Ok(group.wanted.iter().map(|(position, _)| (*position, Err(refused(&message)))).collect())
}

fn live(object: Option<Map<String, Value>>) -> Live {
    object.map_or(Live::Absent, |object| Live::Present(without_bookkeeping(object)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(kind: &str, namespace: Option<&str>, name: &str) -> Target {
        let gvk = Gvk { group: String::new(), version: "v1".to_owned(), kind: kind.to_owned() };
        Target { cluster: String::new(), gvk, namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }

    #[test]
    fn objects_are_grouped_by_kind_and_namespace() {
        let targets = [
            target("ConfigMap", Some("a"), "x"),
            target("ConfigMap", Some("b"), "x"),
            target("ConfigMap", Some("a"), "y"),
            target("ConfigMap", None, "z"),
            target("Node", Some("ignored"), "n"),
        ];
        let placed = targets.into_iter().enumerate().map(|(position, target)| {
            let namespaced = target.gvk.kind == "ConfigMap";
            let api = Api { plural: format!("{}s", target.gvk.kind.to_lowercase()), namespaced };
            Placed { position, cluster: 0, default_namespace: "a", target, api }
        });
        let groups: Vec<_> = group(placed)
            .into_iter()
            .map(|g| (g.gvk.kind, g.namespace, g.wanted.into_iter().map(|(p, _)| p).collect::<Vec<_>>()))
            .collect();
        assert_eq!(
            groups,
            [
                ("ConfigMap".to_owned(), Some("a".to_owned()), vec![0, 2, 3]),
                ("ConfigMap".to_owned(), Some("b".to_owned()), vec![1]),
                ("Node".to_owned(), None, vec![4]),
            ]
        );
    }
}
