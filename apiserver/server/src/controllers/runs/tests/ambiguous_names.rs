//! Names that two deployments share: `web` in `eu.prod` and `web.eu` in `prod`, from before workspaces had names without dots.

use sha2::{Digest as _, Sha256};
use stoa_proto::{FinishedEvent, apply_event::Event};
use stoa_types::{Release, Resource, delivery::ResourcePhase};

use super::fenced_runners::A;
use super::*;

impl TestServer {
    /// The Resource of each of the two deployments: the one that was there before, and the other's.
    async fn both(&self) -> (Resource, Resource) {
        let all = self.registry.api::<Resource>().list(Some("shop"), "").await.unwrap();
        let (mut theirs, mut ours): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.spec.workspace == "eu.prod");
        assert_eq!((theirs.len(), ours.len()), (1, 1), "{theirs:?} {ours:?}");
        (theirs.remove(0), ours.remove(0))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_of_other_deployment_stays_unchanged() {
    let (world, mut conversations) = TestServer::scripted(&[A]).await;
    let workspace = json!({"backend": {"name": "default"}, "gitops": {"repository": "file:///deploy.git"}});
    world.create("Workspace", "prod", workspace).await;
    world.create("Stack", "web.eu", json!({"project": "web"})).await;
    let hex: String = Sha256::digest(A).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let resource = json!({"stack": "web", "workspace": "eu.prod", "id": A, "type": "Kubernetes"});
    world.create("Resource", &format!("web.eu.prod.{hex}"), resource).await;
    for revision in 1..=2 {
        let release = json!({"stack": "web", "stackUID": "u", "workspace": "eu.prod", "revision": revision, "run": "r",
            "planDigest": "p", "specDigest": "s", "stateDigest": "t"});
        world.create("Release", &format!("web.eu.prod.{revision}"), release).await;
    }
    let before = world.registry.api::<Resource>().get("shop", &format!("web.eu.prod.{hex}")).await.unwrap();

    let spec = json!({"stack": "web.eu", "workspace": "prod", "operation": "Destroy"});
    world.create("Run", "one", spec.clone()).await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    talk.makes(A, "u1").await;
    talk.tell(Event::Finished(FinishedEvent::default())).await;
    assert_eq!(world.ended("one").await.phase, RunPhase::Failed);
    let (theirs, ours) = world.both().await;
    assert_eq!(theirs, before);
    assert_eq!((ours.spec.stack.as_str(), ours.spec.id.as_str()), ("web.eu", A));
    assert_eq!(ours.status.as_ref().unwrap().phase, ResourcePhase::Applied);

    world.create("Run", "two", spec).await;
    let mut talk = conversations.recv().await.unwrap();
    talk.begin("it").await;
    talk.carry_out(&[A]).await;
    let ended = world.ended("two").await;
    assert_eq!((ended.phase, ended.release), (RunPhase::Succeeded, Some(3)), "1 and 2 are the other's");
    let release = world.registry.api::<Release>().get("shop", "web.eu.prod.3").await.unwrap();
    assert_eq!((release.spec.stack.as_str(), release.spec.workspace.as_str()), ("web.eu", "prod"));
    let (theirs, gone) = world.both().await;
    assert_eq!(theirs, before);
    assert_eq!((gone.name_any(), gone.status.unwrap().phase), (ours.name_any(), ResourcePhase::Destroyed));
}
