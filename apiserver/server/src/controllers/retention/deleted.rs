//! The records of deleted stacks: Runs, Releases and Resources go after 90 days, and beyond the newest 100 of each kind a stack.
//!
//! A Workspace sets other numbers, and `0` turns each off. Its own `runs` and `releases` win: where one is set, the records of
//! that kind go by it alone, and the newest 100 are counted without them. A stack is deleted when no Stack has its uid, or its
//! name where a record has no uid. The records of a Stack that exists stay, and so does a Run that has not ended.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::{
    object::{Kind, ObjectKey},
    queue::{self, FirstError},
};
use stoa_kinds::run_status::status;
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_runs::Services;
use stoa_types::{Release, Resource, Run, Stack, Workspace, labels, platform::Retention};
use tokio_util::sync::CancellationToken;

use super::{Read, remove_releases, remove_resource, remove_runs};
use crate::controllers::references;

/// How often to look. Each time all records are read.
const EVERY: Duration = Duration::from_hours(1);
/// How long after a start to look first: others come first then.
const FIRST: Duration = Duration::from_mins(10);
/// How many days records are kept where the Workspace does not say.
const DAYS: i64 = 90;
/// The longest retention in days; a longer one counts as this one.
const MOST_DAYS: i64 = 100_000;
/// How many records of each kind a stack has where the Workspace does not say.
const NEWEST: i64 = 100;

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let mut wait = FIRST;
    while end.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
        if let Err(error) = look(&services).await {
            tracing::warn!(%error, "records of deleted stacks cannot be removed");
        }
        wait = EVERY;
    }
}

#[derive(Debug)]
struct Record {
    read: Read,
    stack: String,
    /// Absent where the record does not say.
    stack_uid: Option<String>,
    workspace: String,
    /// When it was last written, as far as that is known.
    at: Option<Timestamp>,
}

/// The stacks that there are, by namespace and name, with their uids as far as they decode.
type Stacks = HashMap<ObjectKey, Option<String>>;

impl Record {
    fn is_deleted(&self, stacks: &Stacks) -> bool {
        match stacks.get(&(self.read.key.0.clone(), self.stack.clone())) {
            None => true,
            Some(there) => there.as_ref().zip(self.stack_uid.as_ref()).is_some_and(|(there, own)| there != own),
        }
    }
}

/// The limits of one kind of record in a workspace.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// None: however old.
    days: Option<i64>,
    /// None: any number.
    newest: Option<usize>,
}

impl Limits {
    /// Those of the records for which a Workspace sets `kept` itself, or does not.
    fn of(retention: &Retention, kept: Option<i64>) -> Self {
        if kept.is_some() {
            return Self { days: None, newest: None };
        }
        let days = retention.deleted_stack_days.unwrap_or(DAYS);
        let newest = retention.deleted_stack_records.unwrap_or(NEWEST);
        Self {
            days: (days > 0).then_some(days.min(MOST_DAYS)),
            newest: usize::try_from(newest).ok().filter(|newest| *newest > 0),
        }
    }
}

/// Those of the records of deleted stacks that go.
fn excess<'a>(
    records: &'a [Record],
    stacks: &Stacks,
    limits: impl Fn(&str) -> Limits,
    now: Timestamp,
) -> Vec<&'a Read> {
    let mut by_stack: HashMap<(&str, &str, Option<&str>), Vec<&Record>> = HashMap::new();
    for record in records.iter().filter(|record| record.is_deleted(stacks)) {
        let of = (record.read.key.0.as_str(), record.stack.as_str(), record.stack_uid.as_deref());
        by_stack.entry(of).or_default().push(record);
    }
    let mut excess = Vec::new();
    for mut records in by_stack.into_values() {
        records.sort_by(|a, b| (b.at, &b.read.key).cmp(&(a.at, &a.read.key)));
        let mut counted = 0;
        for record in records {
            let Limits { days, newest } = limits(&record.workspace);
            let is_old = days
                .zip(record.at)
                .is_some_and(|(days, at)| now.duration_since(at) > SignedDuration::from_hours(days * 24));
            if is_old || newest.is_some_and(|newest| counted >= newest) {
                excess.push(&record.read);
            }
            counted += usize::from(newest.is_some());
        }
    }
    excess.retain(|read| !read.is_going);
    excess.sort_by(|a, b| a.key.cmp(&b.key));
    excess
}

fn written<K: Kind>(object: &K) -> Option<Timestamp> {
    let metadata = object.meta();
    let entries = metadata.managed_fields.iter().flatten().filter_map(|entry| entry.time.as_ref());
    entries.chain(&metadata.creation_timestamp).map(|Time(at)| *at).max()
}

async fn look(services: &Services) -> Result<(), ApiError> {
    let lookup = &services.lookup;
    let all = ListOptions::default();
    let of_release = |release: Release| {
        Some(Record {
            read: Read::of(&release),
            stack: release.spec.stack.clone(),
            stack_uid: Some(release.spec.stack_uid.clone()),
            workspace: release.spec.workspace.clone(),
            at: written(&release),
        })
    };
    let releases = lookup.api::<Release>()?.list_of(None, &all, of_release).await?;
    let of_resource = |resource: Resource| {
        let applied = resource.spec.last_applied_time.as_ref().map(|Time(at)| *at);
        Some(Record {
            read: Read::of(&resource),
            stack: resource.spec.stack.clone(),
            stack_uid: None,
            workspace: resource.spec.workspace.clone(),
            at: written(&resource).max(applied),
        })
    };
    let resources = lookup.api::<Resource>()?.list_of(None, &all, of_resource).await?;
    let of_run = |run: Run| {
        let status = status(&run);
        if !status.phase.is_terminal() {
            return None;
        }
        let workflow = run.labels().get(labels::WORKFLOW).cloned();
        let record = Record {
            read: Read::of(&run),
            stack: run.spec.stack.clone(),
            stack_uid: status.stack_uid,
            workspace: run.spec.workspace.clone(),
            at: status.completion_time.map(|Time(at)| at).or_else(|| written(&run)),
        };
        Some((record, workflow))
    };
    let runs = lookup.api::<Run>()?.list_of(None, &all, of_run).await?;
    // Stacks are read after the records: one that is made meanwhile is found.
    let stacks = stacks(services).await?;
    let workspaces: Vec<Workspace> = lookup.api::<Workspace>()?.list_with(None, &all).await?;
    let retention: HashMap<String, Retention> = workspaces
        .into_iter()
        .map(|workspace| (workspace.name_any(), workspace.spec.retention.unwrap_or_default()))
        .collect();
    let of = |workspace: &str| retention.get(workspace).cloned().unwrap_or_default();
    let under_way: HashSet<ObjectKey> =
        references::workflows_under_way(lookup, None).await?.iter().map(queue::key_of).collect();
    let is_needed = |record: &Record, workflow: Option<String>| {
        workflow.is_some_and(|workflow| under_way.contains(&(record.read.key.0.clone(), workflow)))
    };
    let runs: Vec<Record> = runs
        .into_iter()
        .filter(|(record, workflow)| !is_needed(record, workflow.clone()))
        .map(|(record, _)| record)
        .collect();

    let now = services.now();
    let of_runs = |workspace: &str| Limits::of(&of(workspace), of(workspace).runs);
    let of_releases = |workspace: &str| Limits::of(&of(workspace), of(workspace).releases);
    // One that cannot be deleted keeps no other.
    let mut failed = FirstError::default();
    remove_releases(services, &excess(&releases, &stacks, of_releases, now), &mut failed).await;
    for read in excess(&resources, &stacks, of_releases, now) {
        failed.note(remove_resource(services, read).await);
    }
    remove_runs(services, &excess(&runs, &stacks, of_runs, now), &mut failed).await;
    failed.told()
}

/// All stacks, also those that do not decode.
async fn stacks(services: &Services) -> Result<Stacks, ApiError> {
    let all = services.lookup.api::<Stack>()?.store().list(None, &ListOptions::default()).await?.items;
    let of = |stored: &std::sync::Arc<stoa_machinery::registry::Stored>| {
        let uid = Some(stored.uid().to_owned()).filter(|uid| !uid.is_empty());
        ((stored.namespace().to_owned(), stored.name().to_owned()), uid)
    };
    Ok(all.iter().map(of).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_machinery::registry::DeleteOptions;
    use stoa_runs::testing::unreachable_runner;
    use stoa_types::delivery::RunPhase;

    use super::*;
    use crate::testing::TestServer;

    const NOW: &str = "2026-06-01T00:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    /// A record of stack `web`, with its age in days.
    fn record(name: &str, uid: Option<&str>, workspace: &str, days: i64) -> Record {
        let key = ("shop".to_owned(), name.to_owned());
        Record {
            read: Read { key, version: None, is_going: false },
            stack: "web".to_owned(),
            stack_uid: uid.map(str::to_owned),
            workspace: workspace.to_owned(),
            at: Some(now() - SignedDuration::from_hours(24 * days)),
        }
    }

    fn names(records: &[Record], stacks: &Stacks, limits: impl Fn(&str) -> Limits) -> Vec<String> {
        excess(records, stacks, limits, now()).into_iter().map(|read| read.key.1.clone()).collect()
    }

    fn there(uid: &str) -> Stacks {
        HashMap::from([(("shop".to_owned(), "web".to_owned()), Some(uid.to_owned()))])
    }

    fn retention(days: Option<i64>, records: Option<i64>) -> Retention {
        Retention { deleted_stack_days: days, deleted_stack_records: records, ..Retention::default() }
    }

    #[test]
    fn old_records_and_those_beyond_the_newest_go() {
        let records =
            [record("a", Some("u"), "dev", 91), record("b", Some("u"), "dev", 89), record("c", Some("u"), "prod", 1)];
        let gone = |days: Option<i64>, newest: Option<i64>| {
            names(&records, &Stacks::new(), |_| Limits::of(&retention(days, newest), None))
        };
        assert_eq!(gone(None, None), ["a"]);
        assert_eq!(gone(Some(0), None), [""; 0]);
        assert_eq!(gone(Some(7), None), ["a", "b"]);
        assert_eq!(gone(Some(0), Some(1)), ["a", "b"], "of all workspaces of a stack");
        assert_eq!(gone(None, Some(2)), ["a"]);
        assert_eq!(gone(Some(0), Some(0)), [""; 0]);
        let own = |_: &str| Limits::of(&retention(Some(1), Some(1)), Some(20));
        assert_eq!(names(&records, &Stacks::new(), own), [""; 0], "the retention of the workspace wins");
        let many: Vec<Record> = (0..102).map(|n| record(&format!("r{n:03}"), None, "dev", n / 2)).collect();
        assert_eq!(names(&many, &Stacks::new(), |_| Limits::of(&Retention::default(), None)), ["r100", "r101"]);
    }

    #[test]
    fn records_with_limits_of_their_workspace_are_not_counted() {
        let records = [
            record("a", Some("u"), "prod", 1),
            record("b", Some("u"), "prod", 2),
            record("c", Some("u"), "dev", 3),
            record("d", Some("u"), "dev", 4),
            record("e", Some("u"), "dev", 5),
        ];
        let limits = |workspace: &str| Limits::of(&retention(None, Some(2)), (workspace == "prod").then_some(20));
        assert_eq!(names(&records, &Stacks::new(), limits), ["e"]);
    }

    #[test]
    fn records_of_stacks_that_exist_stay() {
        let records =
            [record("a", Some("u"), "dev", 91), record("b", None, "dev", 91), record("c", Some("v"), "dev", 91)];
        let limits = |_: &str| Limits::of(&Retention::default(), None);
        assert_eq!(names(&records, &there("u"), limits), ["c"], "it is of an earlier stack of the name");
        let undecodable = HashMap::from([(("shop".to_owned(), "web".to_owned()), None)]);
        assert_eq!(names(&records, &undecodable, limits), [""; 0]);
    }

    #[tokio::test]
    async fn retention_removes_records_of_deleted_stack_only() {
        let world = TestServer::with_runner(unreachable_runner()).await;
        world.create("Stack", "api", json!({"project": "web"})).await;
        let keep = |workspace: &mut Workspace| workspace.spec.retention = Some(retention(None, Some(1)));
        world.registry.api::<Workspace>().update_with("", "dev", keep).await.unwrap();
        let (stacks, runs) = (world.registry.api::<Stack>(), world.registry.api::<Run>());
        for stack in ["web", "api"] {
            let uid = stacks.get("shop", stack).await.unwrap().uid().unwrap();
            for revision in 1..=2 {
                let release = json!({"stack": stack, "stackUID": uid, "workspace": "dev", "revision": revision, "run": "r",
                    "planDigest": "p", "specDigest": "s", "stateDigest": "t"});
                world.create("Release", &format!("{stack}.dev.{revision}"), release).await;
                let id = format!("v1:Namespace:n{revision}");
                let resource = json!({"stack": stack, "workspace": "dev", "id": id, "type": "Kubernetes"});
                world.create("Resource", &format!("{stack}.dev.r{revision}"), resource).await;
                let name = format!("{stack}-{revision}");
                let spec = json!({"stack": stack, "workspace": "dev", "operation": "Preview"});
                world.create("Run", &name, spec).await;
                let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Succeeded;
                runs.update_status_with("shop", &name, end).await.unwrap();
            }
        }
        let left = async || {
            let there = |going: bool, name: String| (!going).then_some(name);
            let mut left: Vec<String> = Vec::new();
            for run in runs.list(Some("shop"), "").await.unwrap() {
                left.extend(there(run.metadata.deletion_timestamp.is_some(), run.name_any()));
            }
            for release in world.registry.api::<Release>().list(Some("shop"), "").await.unwrap() {
                left.push(release.name_any());
            }
            for resource in world.registry.api::<Resource>().list(Some("shop"), "").await.unwrap() {
                left.push(resource.name_any());
            }
            left.iter().filter(|name| name.starts_with("web")).count() * 100 + left.len()
        };
        look(&world.services).await.unwrap();
        assert_eq!(left().await, 612, "both stacks are there");
        stacks.delete("shop", "web", &DeleteOptions::default()).await.unwrap();
        world.lose("/registry/config.stoa.dev/stacks/shop/web").await;
        look(&world.services).await.unwrap();
        assert_eq!(left().await, 309, "one of each kind is left of the deleted stack");
    }
}
