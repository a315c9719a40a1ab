//! Keys that come with a Backend are in a Secret, and nowhere else.

use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use stoa_machinery::{ApiError, Object, RequestContext, auth::AllowAll, request::UserInfo};

use super::{Arc, Target, UpdateSource, World, causes};

const PLATFORM: &str = "platform.stoa.dev/v1alpha1";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn ann() -> RequestContext {
    RequestContext::new(UserInfo { name: "ann".to_owned(), ..UserInfo::default() }, Arc::new(AllowAll))
}

fn bucket() -> Value {
    json!({"bucket": "documents", "endpoint": "http://127.0.0.1:7480", "region": "eu-test-1"})
}

fn with_keys(id: &str, key: &str) -> Value {
    json!({"type": "S3", "s3": bucket(), "accessKey": id, "secretKey": key})
}

impl World {
    async fn with_system() -> Self {
        let world = Self::new().await;
        world.make("v1", "Namespace", "", json!({"metadata": {"name": "stoa-system"}})).await.unwrap();
        world
    }

    async fn backend(&self, context: &RequestContext, spec: Value) -> Result<Object, ApiError> {
        let object = json!({"metadata": {"name": "team"}, "spec": spec});
        self.make_as(context, PLATFORM, "Backend", "", object).await
    }

    /// What the Secret of a Backend has.
    async fn keys(&self) -> Option<[String; 2]> {
        let secret = self.registry.api::<Secret>().get_opt("stoa-system", "backend-team").await.unwrap()?;
        let data = secret.data.unwrap();
        Some(["accessKey", "secretKey"].map(|key| String::from_utf8(data[key].0.clone()).unwrap()))
    }

    async fn update(&self, context: &RequestContext, spec: Value) -> Result<Object, ApiError> {
        let Value::Object(object) = json!({"apiVersion": PLATFORM, "kind": "Backend",
            "metadata": {"name": "team"}, "spec": spec})
        else {
            unreachable!("a map")
        };
        let store = self.registry.store("platform.stoa.dev", "v1alpha1", "backends").unwrap();
        let change = UpdateSource::Object(Object(object));
        store.update(context, "", "team", Target::Main, change).await.map(|(stored, _)| stored.object())
    }
}

#[tokio::test]
async fn keys_are_moved_to_a_secret_and_never_returned() {
    let world = World::with_system().await;
    let created = world.backend(&ann(), with_keys("AKIA1", "hunter2")).await.unwrap();
    let reference = json!({"namespace": "stoa-system", "name": "backend-team"});
    assert_eq!(created.0["spec"]["s3"]["credentialsSecretRef"], reference);
    assert_eq!(world.keys().await.unwrap(), ["AKIA1", "hunter2"]);
    let shown = |object: &Object| {
        let text = serde_json::to_string(&object.0).unwrap();
        assert!(!text.contains("hunter") && !text.contains("AKIA"), "{text}");
        assert_eq!(object.0["spec"].get("accessKey").or(object.0["spec"].get("secretKey")), None);
    };
    shown(&created);

    // New keys take the place of the first; what has none leaves them.
    shown(&world.update(&ann(), with_keys("AKIA2", "hunter3")).await.unwrap());
    assert_eq!(world.keys().await.unwrap(), ["AKIA2", "hunter3"]);
    let mut spec = json!({"type": "S3", "s3": bucket()});
    spec["s3"]["credentialsSecretRef"] = reference;
    shown(&world.update(&ann(), spec).await.unwrap());
    assert_eq!(world.keys().await.unwrap(), ["AKIA2", "hunter3"]);

    // Every record there ever was.
    let snapshot = world.registry.log().scan("/registry/platform.stoa.dev/", None).await.unwrap();
    assert_eq!(snapshot.entries.len(), 1);
    let kept = String::from_utf8(snapshot.entries[0].value.to_vec()).unwrap();
    assert!(!kept.contains("hunter") && !kept.contains("AKIA"), "{kept}");
}

#[tokio::test]
async fn rejected_write_stores_no_backend_keys() {
    let world = World::with_system().await;
    let mut dry = ann();
    dry.dry_run = true;
    world.backend(&dry, with_keys("AKIA1", "hunter2")).await.unwrap();
    assert_eq!(world.keys().await, None);

    world.backend(&ann(), with_keys("AKIA1", "hunter2")).await.unwrap();
    let again = world.backend(&ann(), with_keys("AKIA2", "hunter3")).await.unwrap_err();
    assert_eq!(again.code(), 409);
    assert_eq!(world.keys().await.unwrap(), ["AKIA1", "hunter2"], "who may create may not exchange");

    let mut elsewhere = with_keys("AKIA2", "hunter3");
    elsewhere["s3"]["bucket"] = "elsewhere".into();
    let moved = world.update(&ann(), elsewhere).await.unwrap_err();
    assert_eq!(causes(&moved), ["spec.s3.bucket: Invalid value: \"elsewhere\": field is immutable"]);
    assert_eq!(world.keys().await.unwrap(), ["AKIA1", "hunter2"]);
}

#[tokio::test]
async fn a_secret_of_somebody_else_is_left_alone() {
    let world = World::with_system().await;
    let metadata = json!({"name": "backend-team", "namespace": "stoa-system"});
    let theirs = json!({"metadata": metadata, "stringData": {"accessKey": "theirs", "secretKey": "theirs"}});
    world.make("v1", "Secret", "stoa-system", theirs).await.unwrap();
    let error = world.backend(&ann(), with_keys("AKIA1", "hunter2")).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (409, "secrets \"backend-team\" already exists"));
    assert_eq!(world.keys().await.unwrap(), ["theirs", "theirs"]);
}

#[tokio::test]
async fn what_would_keep_keys_elsewhere_is_refused() {
    let world = World::with_system().await;
    let pusher = RequestContext::new(
        UserInfo { name: "stoa:git:control".to_owned(), ..UserInfo::default() },
        Arc::new(AllowAll),
    );
    let mut told = Vec::new();
    let mut refused = |error: ApiError| {
        assert_eq!(error.code(), 422, "{error}");
        assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
        told.extend(causes(&error));
    };
    refused(world.backend(&pusher, with_keys("AKIA1", "hunter2")).await.unwrap_err());
    let mut named = with_keys("AKIA1", "hunter2");
    named["s3"]["credentialsSecretRef"] = json!({"namespace": "platform", "name": "s3"});
    refused(world.backend(&ann(), named).await.unwrap_err());
    let mut half = with_keys("AKIA1", "hunter2");
    half.as_object_mut().unwrap().remove("accessKey");
    half["s3"]["credentialsSecretRef"] = json!({"namespace": "platform", "name": "s3"});
    refused(world.backend(&ann(), half).await.unwrap_err());
    refused(
        world
            .backend(&ann(), json!({"type": "Local", "accessKey": "AKIA1", "secretKey": "hunter2"}))
            .await
            .unwrap_err(),
    );
    let applied = json!({"spec": with_keys("AKIA1", "hunter2")}).to_string();
    let metadata = json!({"name": "team", "annotations": {LAST_APPLIED: applied}});
    let applied = json!({"metadata": metadata, "spec": with_keys("AKIA1", "hunter2")});
    refused(world.make_as(&ann(), PLATFORM, "Backend", "", applied).await.unwrap_err());
    assert_eq!(world.keys().await, None);
    insta::assert_snapshot!(told.join("\n"), @r"
    spec.accessKey: Forbidden: keys must not be in Git: rotate them, and name a Secret in spec.s3.credentialsSecretRef
    spec.s3.credentialsSecretRef: Required value
    spec.accessKey: Forbidden: may not be set together with spec.s3.credentialsSecretRef
    spec.accessKey: Required value: must be set together with secretKey
    spec.accessKey: Forbidden: may only be set when type is S3 or OSS
    metadata.annotations[kubectl.kubernetes.io/last-applied-configuration]: Forbidden: kubectl apply copies spec.accessKey and spec.secretKey to this annotation; name a Secret in spec.s3.credentialsSecretRef, or use kubectl apply --server-side or kubectl create
    ");
}
