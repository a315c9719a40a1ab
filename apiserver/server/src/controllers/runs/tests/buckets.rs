//! Runs whose documents are in a bucket of a real S3 server, which loses, refuses and goes away.

use std::collections::BTreeSet;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use stoa_runs::testing::runner_at;
use stoa_storage::documents::Digest;
use stoa_test_s3::{Fault, Faults, REGION, S3Server};
use stoa_types::Release;
use tokio::sync::mpsc::UnboundedReceiver;

use super::fenced_runners::{Conversation, Scripted};
use super::*;

const ID: &str = "v1:ConfigMap:shop:a";

struct Bucket {
    world: TestServer,
    server: S3Server,
    faults: Faults,
    conversations: UnboundedReceiver<Conversation>,
}

impl Bucket {
    /// A workspace `far` whose Backend is a bucket.
    async fn new() -> Option<Self> {
        if S3Server::program().is_none() {
            eprintln!("skipped: STOA_TEST_S3 names no S3 server");
            return None;
        }
        let server = S3Server::start("documents");
        let faults = Faults::before(server.port());
        let (address, conversations) = Scripted::start(&[ID]).await;
        let world = TestServer::with(runner_at(address), stoa_kinds::core_v1::register).await;
        let credentials = json!({"namespace": "platform", "name": "s3"});
        let s3 = json!({"bucket": "documents", "prefix": "team", "region": REGION, "endpoint": faults.url(),
            "credentialsSecretRef": credentials});
        world.create("Backend", "far", json!({"type": "S3", "s3": s3})).await;
        let gitops = json!({"backend": {"name": "far"}, "gitops": {"repository": "file:///deploy.git"}});
        world.create("Workspace", "far", gitops).await;
        Some(Self { world: world.controlled(), server, faults, conversations })
    }

    /// Puts the server's key into the Secret.
    async fn tell_key(&self) {
        let secrets = self.world.registry.api::<Secret>();
        let data = [("accessKey", &self.server.access_key), ("secretKey", &self.server.secret_key)];
        let data = data.map(|(name, text)| (name.to_owned(), ByteString(text.clone().into_bytes())));
        let mut secret = Secret { data: Some(data.into()), ..Secret::default() };
        secret.metadata.namespace = Some("platform".to_owned());
        secret.metadata.name = Some("s3".to_owned());
        if secrets.get_opt("platform", "s3").await.unwrap().is_none() {
            secrets.create(&secret).await.unwrap();
        } else {
            secrets.update_with("platform", "s3", |there| there.data.clone_from(&secret.data)).await.unwrap();
        }
    }

    async fn destroy(&self, name: &str) {
        self.world.create("Run", name, json!({"stack": "web", "workspace": "far", "operation": "Destroy"})).await;
    }

    async fn conversation(&mut self) -> Conversation {
        let mut begun = tokio::time::timeout(PATIENCE, self.conversations.recv()).await.unwrap().unwrap();
        begun.begin("only").await;
        begun
    }

    /// Waits until a run says that it waits for something of this kind.
    async fn waits(&self, name: &str, what: &str) -> String {
        let says = |status: &RunStatus| {
            let waiting = condition(&status.conditions, reason::WAITING).filter(|waiting| waiting.status == "True");
            waiting.is_some_and(|waiting| waiting.message.contains(what))
        };
        let status = self.world.until(name, says).await;
        condition(&status.conditions, reason::WAITING).unwrap().message.clone()
    }

    /// The state of a release, as it is read back.
    async fn state_of(&self, run: &RunStatus) -> Option<bytes::Bytes> {
        let releases = self.world.registry.api::<Release>().list(Some("shop"), "").await.unwrap();
        let release = releases.iter().find(|release| Some(release.spec.revision) == run.release).unwrap();
        let store = self.world.services.backends.store("far").await.unwrap();
        let digest: Digest = release.spec.state_digest.parse().unwrap();
        store.get(&format!("shop/{}", release.spec.stack_uid), &digest).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_ends_well_whatever_becomes_of_each_first_try() {
    let Some(mut bucket) = Bucket::new().await else { return };
    bucket.tell_key().await;
    let (mut met, mut kinds) = (BTreeSet::new(), 0);
    bucket.faults.rule(move |request| {
        let is_first = met.insert(format!("{} {}", request.method, request.uri));
        let fault = match kinds % 5 {
            0 => Fault::Lost,
            1 => Fault::Answer(500, "InternalError"),
            2 => Fault::Reset,
            3 => Fault::AnswerAfter(503, "SlowDown"),
            _ => Fault::Slow(Duration::from_millis(300)),
        };
        kinds += usize::from(is_first);
        is_first.then_some(fault)
    });
    for name in ["one", "two", "three"] {
        bucket.destroy(name).await;
        bucket.conversation().await.carry_out(&[ID]).await;
        let ended = bucket.world.ended(name).await;
        assert_eq!(ended.phase, RunPhase::Succeeded, "{ended:#?}");
        assert!(bucket.state_of(&ended).await.is_some());
    }
    assert!(bucket.faults.faults() >= 3, "{}", bucket.faults.faults());
    assert!(bucket.server.bucket("documents").join("team/shop").is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn run_waits_for_its_bucket_and_loses_nothing() {
    let Some(mut bucket) = Bucket::new().await else { return };
    // Nobody has said yet what opens it.
    bucket.destroy("one").await;
    let told = bucket.waits("one", "there are no credentials").await;
    assert!(told.contains("secret platform/s3 does not exist"), "{told}");
    bucket.tell_key().await;

    // It goes away while the runner works, and what that did is recorded all the same.
    let conversation = bucket.conversation().await;
    bucket.server.stop();
    conversation.carry_out(&[ID]).await;
    bucket.waits("one", "the backend cannot be written: the document store is unavailable").await;
    bucket.server.resume();
    // Whether the runner is asked once more, with what is done already, is the run's affair.
    let world = &bucket.world;
    let ended = tokio::select! {
        ended = world.ended("one") => ended,
        ended = async {
            loop {
                let mut again = bucket.conversations.recv().await.unwrap();
                again.begin("only").await;
                again.carry_out(&[]).await;
            }
        } => ended,
    };
    assert_eq!(ended.phase, RunPhase::Succeeded, "{ended:#?}");
    assert!(bucket.state_of(&ended).await.is_some());

    // Its key is exchanged.
    bucket.server.exchange_key("second-key", "second-secret-of-the-tests");
    bucket.destroy("two").await;
    let told = bucket.waits("two", "denies access").await;
    assert!(!told.contains("first-") && !told.contains("second-"), "{told}");
    bucket.tell_key().await;
    bucket.conversation().await.carry_out(&[ID]).await;
    let ended = bucket.world.ended("two").await;
    assert_eq!(ended.phase, RunPhase::Succeeded, "{ended:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn backend_says_what_is_amiss_with_its_bucket() {
    let Some(bucket) = Bucket::new().await else { return };
    let world = &bucket.world;
    tokio::spawn(crate::controllers::backends::run(world.services.clone(), world.end.clone()));
    let backends = world.registry.api::<stoa_types::Backend>();
    let ready = async |expected: &str| {
        let mut changes = backends.subscribe(None);
        // Something that people see makes it look at once.
        let touch = |backend: &mut stoa_types::Backend| backend.spec.description = Some(expected.to_owned());
        backends.update_with("", "far", touch).await.unwrap();
        let found = async {
            loop {
                let status = backends.get("", "far").await.unwrap().status.unwrap_or_default();
                let ready = condition(&status.conditions, reason::READY).filter(|ready| ready.reason == expected);
                if let Some(ready) = ready {
                    return ready.message.clone();
                }
                changes.next().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("it is never {expected}"))
    };
    ready(reason::REFERENCE_NOT_FOUND).await;
    bucket.tell_key().await;
    ready(reason::AVAILABLE).await;
    bucket.faults.rule(|_| Some(Fault::Answer(403, "AccessDenied")));
    assert_eq!(
        ready(reason::ACCESS_DENIED).await,
        "the document store denies access: it answered 403 Forbidden (AccessDenied)"
    );
    bucket.faults.rule(|_| Some(Fault::Answer(503, "SlowDown")));
    ready(reason::UNREACHABLE).await;
    bucket.faults.heal();
    let documents = bucket.server.bucket("documents");
    std::fs::rename(&documents, bucket.server.bucket("gone")).unwrap();
    ready(reason::BUCKET_NOT_FOUND).await;
    std::fs::rename(bucket.server.bucket("gone"), &documents).unwrap();
    ready(reason::AVAILABLE).await;
}
