//! Which release a Resource is in.

use stoa_proto::{FinishedEvent, apply_event::Event};
use stoa_types::Resource;

use super::fenced_runners::{A, Conversation};
use super::*;

const B: &str = "v1:ConfigMap:shop:b";
const C: &str = "v1:ConfigMap:shop:c";

impl Conversation {
    /// Creates a resource, and ends, well or not.
    async fn create(mut self, id: &str, succeeded: bool) {
        self.begin("it").await;
        self.makes(id, id).await;
        match succeeded {
            true => self.tell(Event::Finished(FinishedEvent { succeeded, ..FinishedEvent::default() })).await,
            false => self.fails().await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn next_release_includes_resources_of_failed_run() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    let releases = async || {
        let all = world.registry.api::<Resource>().list(Some("shop"), "").await.unwrap();
        let mut told: Vec<_> = all.into_iter().map(|resource| (resource.spec.id, resource.spec.release)).collect();
        told.sort();
        told
    };
    let of = |id: &str, release: Option<i64>| (id.to_owned(), release);
    world.destroy("one").await;
    conversations.recv().await.unwrap().create(A, false).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Failed);
    assert_eq!(releases().await, [of(A, None)]);

    world.destroy("two").await;
    conversations.recv().await.unwrap().create(B, true).await;
    assert_eq!(world.ended("two").await.release, Some(1));
    assert_eq!(releases().await, [of(A, Some(1)), of(B, Some(1))]);

    world.destroy("three").await;
    conversations.recv().await.unwrap().create(C, true).await;
    assert_eq!(world.ended("three").await.release, Some(2));
    assert_eq!(releases().await, [of(A, Some(1)), of(B, Some(1)), of(C, Some(2))]);
}
