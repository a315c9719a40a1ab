use stoa_meta::authorizer::{Attributes, Authorizer, Decision};

use super::*;

#[tokio::test]
async fn generation_counts_changes_of_the_spec() {
    let fixture = Fixture::new().await;
    let created = fixture.gadget("a", 1).await;
    assert_eq!(fixture.resize("a", 2).await.generation(), 2);
    let mut labelled = gadget("a", 2);
    labelled["metadata"]["labels"] = json!({"k": "v"});
    labelled["metadata"]["generation"] = json!(99);
    labelled["metadata"]["creationTimestamp"] = json!("2000-01-01T00:00:00Z");
    let labelled = fixture.put(labelled).await.expect("updated");
    assert_eq!((labelled.generation(), labelled.label("k"), labelled.version), (2, Some("v"), Version(3)));
    assert_eq!(labelled.uid(), created.uid());
    assert_eq!(labelled.object().meta_str("creationTimestamp"), created.object().meta_str("creationTimestamp"));
}

#[tokio::test]
async fn change_of_nothing_keeps_the_version() {
    let fixture = Fixture::new().await;
    let created = fixture.gadget("a", 1).await;
    let same = fixture.put(value(&created)).await.expect("updated");
    assert_eq!(same.json(), created.json());
    assert_eq!(fixture.resize("a", 1).await.json(), created.json());
    assert_eq!(fixture.head().await, created.version);
}

#[tokio::test]
async fn stale_update_conflicts() {
    let fixture = Fixture::new().await;
    let created = fixture.gadget("a", 1).await;
    let mut stale = value(&created);
    fixture.resize("a", 2).await;
    stale["spec"]["size"] = json!(3);
    let message = "Operation cannot be fulfilled on gadgets.test.dev \"a\": the object has been modified; please apply \
                   your changes to the latest version and try again";
    assert_eq!(failure(fixture.put(stale.clone()).await), (409, "Conflict".into(), message.into()));
    assert_eq!(failure(fixture.put_to(Target::Status, stale).await).0, 409);
}

#[tokio::test]
async fn status_and_the_rest_are_written_apart() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    let mut sent = gadget("a", 5);
    sent["status"] = json!({"phase": "Ready"});
    sent["metadata"]["labels"] = json!({"k": "v"});
    let status = fixture.put_to(Target::Status, sent.clone()).await.expect("updated");
    assert_eq!(value(&status)["status"]["phase"], "Ready");
    assert_eq!((value(&status)["spec"]["size"].clone(), status.generation(), status.label("k")), (json!(1), 1, None));
    sent["status"] = json!({"phase": "Mine"});
    let main = fixture.put(sent).await.expect("updated");
    assert_eq!(value(&main)["status"]["phase"], "Ready");
    assert_eq!((value(&main)["spec"]["size"].clone(), main.generation()), (json!(5), 2));
    let gone = fixture.put_to(Target::Status, gadget("a", 9)).await.expect("updated");
    assert_eq!(value(&gone).get("status"), None);
}

#[tokio::test]
async fn bad_updates_are_refused() {
    let fixture = Fixture::new().await;
    let created = fixture.create(json!({"metadata": {"name": "a"}, "spec": {"project": "p"}})).await.expect("created");
    let with = |patch: &dyn Fn(&mut Value)| {
        let mut sent = value(&created);
        patch(&mut sent);
        sent
    };
    let uid = created.uid().to_owned();
    for (sent, code, message) in [
        (
            with(&|sent| sent["metadata"]["uid"] = json!("other")),
            409,
            format!(
                "Operation cannot be fulfilled on gadgets.test.dev \"a\": StorageError: invalid object, Code: 4, Key: \
                 /registry/test.dev/gadgets/shop/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
                 precondition: other, UID in object meta: {uid}"
            ),
        ),
        (
            with(&|sent| sent["metadata"]["namespace"] = json!("other")),
            400,
            "the namespace of the object (other) does not match the namespace on the request (shop)".into(),
        ),
        (
            with(&|sent| sent["spec"]["project"] = json!("q")),
            422,
            "Gadget.test.dev \"a\" is invalid: spec.project: Invalid value: \"q\": field is immutable".into(),
        ),
        (
            with(&|sent| sent["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
            422,
            "Gadget.test.dev \"a\" is invalid: metadata.deletionTimestamp: Invalid value: \"2026-01-01T00:00:00Z\": \
             field is immutable"
                .into(),
        ),
        (
            with(&|sent| sent["metadata"]["labels"] = json!({"-": ""})),
            422,
            "Gadget.test.dev \"a\" is invalid: metadata.labels: Invalid value: \"-\": name part must consist of \
             alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
             'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                .into(),
        ),
        (
            with(&|sent| sent["metadata"]["resourceVersion"] = json!("x")),
            500,
            "strconv.ParseUint: parsing \"x\": invalid syntax".into(),
        ),
    ] {
        let (found, _, text) = failure(fixture.put(sent).await);
        assert_eq!((found, text), (code, message));
    }
    let put = |name, sent| {
        fixture.gadgets.update(&fixture.context, "shop", name, Target::Main, UpdateSource::Object(object(sent)))
    };
    assert_eq!(
        failure(put("b", value(&created)).await).2,
        "the name of the object (a) does not match the name on the URL (b)"
    );
    assert_eq!(
        failure(put("b", json!({"spec": {}})).await).2,
        "the name of the object (b based on URL) was undeterminable: name must be provided"
    );
    assert_eq!(
        failure(put("b", gadget("b", 1)).await),
        (404, "NotFound".into(), "gadgets.test.dev \"b\" not found".into())
    );
    assert_eq!(fixture.head().await, created.version);
}

#[tokio::test]
async fn transform_sees_the_current_object() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    let update = |source| fixture.gadgets.update(&fixture.context, "shop", "a", Target::Main, source);
    let (updated, created) = update(UpdateSource::transform(|current| {
        assert_eq!(current.meta_str("resourceVersion"), "1");
        let mut new = current.clone();
        new.0["spec"]["size"] = json!(2);
        Ok(new)
    }))
    .await
    .expect("updated");
    assert!(!created);
    assert_eq!((updated.version, updated.generation()), (Version(2), 2));
    let refused = update(UpdateSource::transform(|_| Err(ApiError::bad_request("no")))).await;
    assert_eq!(failure(refused), (400, "BadRequest".into(), "no".into()));
    let renamed = update(UpdateSource::transform(|current| {
        let mut new = current.clone();
        new.metadata_mut().insert("name".to_owned(), json!("b"));
        Ok(new)
    }))
    .await;
    assert_eq!(
        failure(renamed).2,
        "Gadget.test.dev \"b\" is invalid: metadata.name: Invalid value: \"b\": field is immutable"
    );
    let stale = update(UpdateSource::transform(|current| {
        let mut new = current.clone();
        new.metadata_mut().insert("resourceVersion".to_owned(), json!("1"));
        Ok(new)
    }))
    .await;
    assert_eq!(failure(stale).0, 409);
}

#[tokio::test]
async fn update_repeats_transform_after_concurrent_write() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    let mut seen = Vec::new();
    let log = fixture.registry.log().clone();
    let (updated, _) = fixture
        .gadgets
        .update(
            &fixture.context,
            "shop",
            "a",
            Target::Main,
            UpdateSource::transform(|current| {
                seen.push(current.meta_str("resourceVersion").to_owned());
                let mut new = current.clone();
                if seen.len() == 1 {
                    // Somebody else's write, of the same object with another label.
                    let mut other = current.clone();
                    other.metadata_mut().remove("resourceVersion");
                    other.metadata_mut().insert("labels".to_owned(), json!({"other": "yes"}));
                    let write = Write::new(
                        Key::new("/registry/test.dev/gadgets/shop/a"),
                        Expect::Any,
                        Change::Put(serde_json::to_vec(&other.0).expect("JSON").into()),
                    );
                    futures_util::FutureExt::now_or_never(log.append(write)).expect("never waits").expect("appended");
                }
                new.0["spec"]["size"] = json!(2);
                Ok(new)
            }),
        )
        .await
        .expect("updated");
    assert_eq!(seen, ["1", "2"]);
    assert_eq!((updated.version, updated.label("other")), (Version(3), Some("yes")));
}

#[tokio::test]
async fn strategy_requires_version_and_creates_on_update() {
    let fixture = Fixture::new().await;
    let put =
        |sent| fixture.widgets.update(&fixture.context, "", "w", Target::Main, UpdateSource::Object(object(sent)));
    let widget = |size| json!({"metadata": {"name": "w"}, "spec": {"size": size}});
    let (stored, created) = put(widget(1)).await.expect("created");
    assert!(created);
    assert_eq!((stored.namespace(), stored.generation()), ("", 1));
    assert_eq!(stored.key.as_str(), "/registry/test.dev/widgets/w");
    assert_eq!(
        failure(put(widget(2)).await).2,
        "widgets.test.dev \"w\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"
    );
    let mut based = widget(2);
    based["metadata"]["resourceVersion"] = json!(stored.version.to_string());
    let (stored, created) = put(based).await.expect("updated");
    assert!(!created);
    assert_eq!(stored.generation(), 2);
}

#[tokio::test]
async fn dry_run_of_an_update_stores_nothing() {
    let fixture = Fixture::new().await;
    let created = fixture.gadget("a", 1).await;
    let mut context = fixture.context.clone();
    context.dry_run = true;
    let source = UpdateSource::Object(object(gadget("a", 2)));
    let (updated, _) = fixture.gadgets.update(&context, "shop", "a", Target::Main, source).await.expect("fine");
    assert_eq!((updated.version, updated.generation()), (created.version, 2));
    assert_eq!(fixture.head().await, created.version);
}

/// Allows everything but creating.
#[derive(Debug)]
struct NoCreate;

#[async_trait]
impl Authorizer for NoCreate {
    async fn authorize(&self, _: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        Ok(if attributes.verb == "create" { Decision::Deny(String::new()) } else { Decision::Allow(String::new()) })
    }
}

#[tokio::test]
async fn creating_by_update_needs_the_permission_to_create() {
    let fixture = Fixture::new().await;
    let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
    let context = RequestContext::new(user, Arc::new(NoCreate));
    let sent = || UpdateSource::Object(object(json!({"metadata": {"name": "w"}, "spec": {"size": 1}})));
    let refused = fixture.widgets.update(&context, "", "w", Target::Main, sent()).await;
    let message = "widgets.test.dev \"w\" is forbidden: User \"ann\" cannot create resource \"widgets\" in API group \"test.dev\" at the cluster scope";
    assert_eq!(failure(refused), (403, "Forbidden".to_owned(), message.to_owned()));
    assert_eq!(failure(fixture.widgets.get("", "w", None).await).0, 404);
}
