//! The archive over a log in memory and documents in a folder.

use std::fs;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::json;
use stoa_hub::{segment::Filter, tables::Newest};
use stoa_kinds::hub::memory::Hub;
use stoa_types::hub::{DeploymentStatus, Reconciler, Transition};

use super::{HubService, index};
use crate::testing::TestServer;

struct World {
    server: TestServer,
    hub: HubService,
}

impl World {
    async fn new() -> Self {
        let server = TestServer::new().await;
        let hub = HubService::new(server.services.clone(), Hub::default(), None);
        let spec = json!({
            "hostName": "drone", "reconcilerName": "web", "reconcilerType": "flux",
            "manifestsEndpoint": "https://git.example.com/web/dev/test",
        });
        server.create("Reconciler", "web", spec).await;
        Self { server, hub }
    }

    /// Adds a transition of so many seconds ago to the status, as a report does.
    async fn transition(&self, commit: &str, seconds_ago: i64) {
        let time = Timestamp::now().checked_sub(SignedDuration::from_secs(seconds_ago)).unwrap();
        let transition = Transition {
            time: MicroTime(time),
            git_ops_commit_id: commit.to_owned(),
            status: DeploymentStatus::Success,
            status_message: String::new(),
        };
        let add = |reconciler: &mut Reconciler| {
            reconciler.status.get_or_insert_default().transitions.push(transition.clone());
        };
        self.server.registry.api::<Reconciler>().update_status_with("shop", "web", add).await.unwrap();
    }

    async fn waiting(&self) -> usize {
        let reconciler = self.server.registry.api::<Reconciler>().get("shop", "web").await.unwrap();
        reconciler.status.unwrap_or_default().transitions.len()
    }

    async fn segments(&self) -> Vec<index::Segment> {
        index::read(&*self.server.services.log, "shop").await.unwrap().segments
    }

    /// The commits of the history, the newest first, and the number of problems.
    async fn history(&self) -> (Vec<String>, usize) {
        let found = self.hub.collect("shop", Filter::all(), Newest::new(1000)).await.unwrap();
        let rows = found.collected.into_rows();
        (rows.iter().map(|row| row.commit.to_string()).collect(), found.problems.len())
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn transitions_move_to_a_segment_and_stay_in_the_history() {
    let world = World::new().await;
    world.transition("c1", 20).await;
    world.transition("c2", 10).await;
    assert_eq!(world.history().await, (names(&["c2", "c1"]), 0));
    world.hub.tend().await.unwrap();
    assert_eq!((world.waiting().await, world.segments().await.len()), (0, 1));
    assert_eq!(world.history().await, (names(&["c2", "c1"]), 0));
    world.transition("c3", 0).await;
    assert_eq!(world.history().await, (names(&["c3", "c2", "c1"]), 0));
    // Nothing new is nothing to do.
    world.hub.tend().await.unwrap();
    let segments = world.segments().await;
    world.hub.tend().await.unwrap();
    assert_eq!(world.segments().await, segments);
}

#[tokio::test]
async fn full_history_reads_the_newest_segments_alone() {
    let world = World::new().await;
    world.transition("c1", 200).await;
    world.hub.tend().await.unwrap();
    let old = world.segments().await[0].digest;
    world.transition("c2", 20).await;
    world.transition("c3", 10).await;
    world.hub.tend().await.unwrap();
    // A segment that is read would be a problem.
    let store = world.hub.store("").await.unwrap();
    store.delete("_hub/shop", &old).await.unwrap();
    let newest = |most| world.hub.collect("shop", Filter::all(), Newest::new(most));
    let found = newest(2).await.unwrap();
    let commits: Vec<String> = found.collected.into_rows().iter().map(|row| row.commit.to_string()).collect();
    assert_eq!((commits, found.problems.len()), (names(&["c3", "c2"]), 0));
    assert_eq!(newest(3).await.unwrap().problems.len(), 1);
}

#[tokio::test]
async fn only_changed_reconcilers_are_read_again() {
    let world = World::new().await;
    let waiting = async || world.hub.names_of_waiting().await.unwrap();
    assert!(waiting().await.is_empty());
    world.transition("c1", 10).await;
    let expected: super::waiting::Names = [("shop".to_owned(), ["web".to_owned()].into())].into();
    assert_eq!(waiting().await, expected);
    assert_eq!(waiting().await, expected, "it is known without a change");
    world.hub.tend().await.unwrap();
    assert!(waiting().await.is_empty());
    world.transition("c2", 5).await;
    assert_eq!(waiting().await, expected);
    world.server.lose("/registry/hub.kalypso.io/reconcilers/shop/web").await;
    assert!(waiting().await.is_empty(), "a Reconciler that is deleted has none");
}

#[tokio::test]
async fn small_segments_become_one() {
    let world = World::new().await;
    let mut expected = Vec::new();
    for at in 0..16_i64 {
        world.transition(&format!("c{at}"), 100 - at).await;
        expected.insert(0, format!("c{at}"));
        world.hub.tend().await.unwrap();
    }
    let segments = world.segments().await;
    assert_eq!(segments.iter().map(|segment| segment.rows).collect::<Vec<_>>(), [16]);
    assert_eq!(world.history().await, (expected, 0));
    let store = world.hub.store("").await.unwrap();
    assert_eq!(store.list("_hub/shop").await.unwrap(), [segments[0].digest], "replaced documents are removed");
}

#[tokio::test]
async fn segments_are_removed_after_the_retention() {
    let world = World::new().await;
    world.transition("c1", 91 * 24 * 3600).await;
    world.hub.tend().await.unwrap();
    assert!(world.segments().await.is_empty());
    world.transition("c2", 89 * 24 * 3600).await;
    world.hub.tend().await.unwrap();
    assert_eq!(world.history().await, (names(&["c2"]), 0));
}

#[tokio::test]
async fn damaged_segment_is_set_aside_and_others_are_read() {
    let world = World::new().await;
    world.transition("c1", 20).await;
    world.hub.tend().await.unwrap();
    let damaged = world.segments().await[0].digest;
    world.transition("c2", 10).await;
    world.hub.tend().await.unwrap();
    let mut folders = vec![world.server.services.backends.own_folder("_hub")];
    let mut is_found = false;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().contains(&damaged.hex()) {
                fs::remove_file(&path).unwrap();
                fs::write(&path, "PAR1").unwrap();
                is_found = true;
            }
        }
    }
    assert!(is_found, "the document is a file with its digest as its name");
    assert_eq!(world.history().await, (names(&["c2"]), 1));
    let segments = world.segments().await;
    assert_eq!(segments.iter().filter(|segment| !segment.set_aside.is_empty()).count(), 1);
    assert_eq!(world.history().await, (names(&["c2"]), 1), "it is not read again");
}

#[tokio::test]
async fn document_of_others_is_set_aside() {
    let world = World::new().await;
    world.transition("c1", 20).await;
    world.hub.tend().await.unwrap();
    let store = world.hub.store("").await.unwrap();
    let digest = store.put("_hub/shop", Bytes::from_static(b"kind: ConfigMap\n")).await.unwrap();
    index::update(&*world.server.services.log, "shop", |index| {
        let other = index::Segment { digest, ..index.segments[0].clone() };
        index.segments.push(other);
        true
    })
    .await
    .unwrap();
    assert_eq!(world.history().await, (names(&["c1"]), 1));
}
