use super::*;

#[tokio::test]
async fn create_sets_what_the_system_sets() {
    let fixture = Fixture::new().await;
    let sent = json!({
        "metadata": {
            "name": "a", "uid": "mine", "creationTimestamp": "2000-01-01T00:00:00Z", "generation": 7, "selfLink": "x",
            "deletionTimestamp": "2000-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3, "managedFields": [],
            "labels": {"k": "v"}, "finalizers": ["test.dev/f"],
        },
        "spec": {"project": "p"}, "status": {"phase": "Mine"},
    });
    let created = value(&fixture.create(sent).await.expect("created"));
    let metadata = &created["metadata"];
    assert_eq!(created["apiVersion"], "test.dev/v1");
    assert_eq!(created["kind"], "Gadget");
    assert_eq!(created["spec"], json!({"project": "p", "size": 1}));
    // Whoever creates it owns the strategy's defaults, too.
    assert_eq!(metadata["managedFields"][0]["fieldsV1"]["f:spec"], json!({"f:project": {}, "f:size": {}}));
    assert_eq!(created.get("status"), None);
    assert_eq!(metadata["namespace"], "shop");
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["resourceVersion"], "1");
    assert_eq!(metadata["labels"], json!({"k": "v"}));
    assert_eq!(uuid::Uuid::parse_str(metadata["uid"].as_str().expect("uid")).expect("uuid").get_version_num(), 4);
    assert_ne!(metadata["creationTimestamp"], "2000-01-01T00:00:00Z");
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        assert_eq!(metadata.get(field), None, "{field}");
    }
    let read = fixture.gadgets.get("shop", "a", None).await.expect("there");
    assert_eq!(value(&read), created);
}

#[tokio::test]
async fn log_keeps_no_version_and_says_who() {
    let fixture = Fixture::new().await;
    let created = fixture.gadget("a", 1).await;
    let mut records = fixture.registry.log().follow(Version(0)).await.expect("follow");
    let record = records.next().await.expect("record").expect("record");
    assert_eq!(record.key.as_str(), "/registry/test.dev/gadgets/shop/a");
    assert_eq!((record.origin.user.as_str(), record.origin.verb.as_str()), ("ann", "create"));
    let Change::Put(bytes) = record.change else { panic!("a put") };
    let mut expected = created.object();
    expected.metadata_mut().remove("resourceVersion");
    assert_eq!(Object(serde_json::from_slice(&bytes).expect("JSON")), expected);
}

#[tokio::test]
async fn log_says_what_the_call_wants_said() {
    let mut fixture = Fixture::new().await;
    fixture.context.origin_message = "commit 1f2e3d".to_owned();
    fixture.gadget("a", 1).await;
    fixture.delete("a", &DeleteOptions::default()).await.expect("deleted");
    let mut records = fixture.registry.log().follow(Version(0)).await.expect("follow");
    for verb in ["create", "delete"] {
        let origin = records.next().await.expect("record").expect("record").origin;
        assert_eq!((origin.verb.as_str(), origin.message.as_str()), (verb, "commit 1f2e3d"));
    }
}

#[tokio::test]
async fn lost_lease_prevents_writes() {
    let mut fixture = Fixture::new().await;
    let ttl = std::time::Duration::from_secs(10);
    let lease = fixture.registry.log().acquire("controllers", "one", ttl).await.expect("free");
    fixture.context.fence = Some(lease.fence());
    fixture.gadget("a", 1).await;
    fixture.registry.log().release(&lease).await.expect("released");
    let head = fixture.registry.log().head().await.expect("head");
    assert_eq!(failure(fixture.create(gadget("b", 1)).await).0, 500);
    assert_eq!(failure(fixture.delete("a", &DeleteOptions::default()).await).0, 500);
    assert_eq!(fixture.registry.log().head().await.expect("head"), head);
}

#[tokio::test]
async fn name_is_taken_once() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 1).await;
    let message = "gadgets.test.dev \"a\" already exists".to_owned();
    assert_eq!(failure(fixture.create(gadget("a", 2)).await), (409, "AlreadyExists".into(), message));
}

#[tokio::test]
async fn name_of_an_object_that_goes_is_taken() {
    let fixture = Fixture::new().await;
    fixture
        .create(json!({"metadata": {"name": "a", "finalizers": ["test.dev/f"]}, "spec": {}}))
        .await
        .expect("created");
    fixture.delete("a", &DeleteOptions::default()).await.expect("deleted");
    let message = "object is being deleted: gadgets.test.dev \"a\" already exists".to_owned();
    assert_eq!(failure(fixture.create(gadget("a", 2)).await), (409, "AlreadyExists".into(), message));
}

#[tokio::test]
async fn name_is_generated() {
    let fixture = Fixture::new().await;
    let sent = json!({"metadata": {"generateName": "web-"}, "spec": {}});
    let first = fixture.create(sent.clone()).await.expect("created");
    let second = fixture.create(sent).await.expect("created");
    assert!(first.name().starts_with("web-") && first.name().len() == 9, "{}", first.name());
    assert_ne!(first.name(), second.name());
    let named = json!({"metadata": {"generateName": "web-", "name": "mine"}, "spec": {}});
    assert_eq!(fixture.create(named.clone()).await.expect("created").name(), "mine");
    // That there was a name is not looked at.
    let error = fixture.create(named).await.expect_err("the name is taken");
    assert_eq!(error.0.details.as_ref().and_then(|details| details.retry_after_seconds), Some(1));
    let message =
        "gadgets.test.dev \"mine\" already exists, the server was not able to generate a unique name for the object";
    assert_eq!(failure::<()>(Err(error)), (409, "AlreadyExists".into(), message.to_owned()));
}

#[tokio::test]
async fn bad_objects_are_refused() {
    let fixture = Fixture::new().await;
    for (sent, code, reason, message) in [
        (
            json!({"metadata": {"name": "a", "resourceVersion": "5"}, "spec": {}}),
            500,
            "",
            "resourceVersion should not be set on objects to be created",
        ),
        (
            json!({"metadata": {"name": "a", "namespace": "other"}, "spec": {}}),
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            json!({"metadata": {}, "spec": {}}),
            422,
            "Invalid",
            "Gadget.test.dev \"\" is invalid: metadata.name: Required value: name or generateName is required",
        ),
        (
            json!({"metadata": {"name": "a"}, "spec": {"size": 1_000_001}}),
            422,
            "Invalid",
            "Gadget.test.dev \"a\" is invalid: spec.size: Invalid value: 1000001: too big",
        ),
        (
            json!({"metadata": {"name": "a"}, "spec": {"project": "secret"}}),
            403,
            "Forbidden",
            "gadgets.test.dev is forbidden: the project is secret",
        ),
    ] {
        assert_eq!(failure(fixture.create(sent).await), (code, reason.into(), message.into()));
    }
    let (code, _, message) = failure(fixture.create(json!({"metadata": {"name": "a"}, "spec": {"size": "x"}})).await);
    assert_eq!(code, 400);
    assert!(message.starts_with("Gadget in version \"v1\" cannot be handled as a Gadget: "), "{message}");
    assert_eq!(fixture.head().await, Version(0));
}

/// Or else no update of it would be valid.
#[tokio::test]
async fn owners_that_a_new_object_comes_with_are_validated() {
    let fixture = Fixture::new().await;
    let owned_by = |manager: String| {
        let mut sent = gadget("a", 1);
        // What it does not have nobody takes from its owner.
        sent["metadata"]["managedFields"] = json!([{
            "manager": manager, "operation": "Update", "apiVersion": "test.dev/v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:none": {}}}},
        }]);
        sent
    };
    let (code, reason, message) = failure(fixture.create(owned_by("x".repeat(129))).await);
    assert_eq!((code, &*reason), (422, "Invalid"));
    assert!(message.ends_with(".manager: Too long: may not be more than 128 bytes"), "{message}");
    fixture.create(owned_by("x".repeat(128))).await.expect("created");
    fixture.resize("a", 2).await;
}

#[tokio::test]
async fn namespace_must_exist_and_stay() {
    let fixture = Fixture::new().await;
    let create = |namespace| fixture.gadgets.create(&fixture.context, namespace, object(gadget("a", 1)));
    assert_eq!(failure(create("none").await), (404, "NotFound".into(), "namespaces \"none\" not found".into()));
    let error = create("going").await.expect_err("terminating");
    assert_eq!(
        (error.code(), error.message()),
        (
            403,
            "gadgets.test.dev \"a\" is forbidden: unable to create new content in namespace going because it is being \
             terminated"
        )
    );
    let causes = error.0.details.expect("details").causes.expect("causes");
    assert_eq!(causes[0].reason.as_deref(), Some("NamespaceTerminating"));
    assert_eq!(causes[0].field.as_deref(), Some("metadata.namespace"));
    let own = RequestContext::internal("runs");
    fixture.gadgets.create(&own, "going", object(gadget("a", 1))).await.expect("the server's own work");
}

#[tokio::test]
async fn dry_run_checks_everything_and_stores_nothing() {
    let fixture = Fixture::new().await;
    fixture.gadget("there", 1).await;
    let head = fixture.head().await;
    let mut context = fixture.context.clone();
    context.dry_run = true;
    let create = |sent| fixture.gadgets.create(&context, "shop", object(sent));
    let created = create(gadget("a", 0)).await.expect("fine");
    assert_eq!(created.object().meta_str("resourceVersion"), "");
    assert_eq!(created.object().0["spec"]["size"], 1);
    assert_eq!(failure(create(gadget("there", 1)).await).0, 409);
    assert_eq!(failure(create(gadget("a", 2_000_000)).await).0, 422);
    assert_eq!(fixture.head().await, head);
    assert_eq!(failure(fixture.gadgets.get("shop", "a", None).await).0, 404);
}

#[tokio::test]
async fn warnings_reach_the_client() {
    let fixture = Fixture::new().await;
    fixture.gadget("a", 13).await;
    assert_eq!(fixture.context.take_warnings(), ["spec.size: 13 is unlucky"]);
}

#[tokio::test]
async fn a_resource_can_be_the_namespaces() {
    let registry = Registry::builder(Arc::new(MemoryLog::new()))
        .register(ResourceDefinition::from_crd(&Gadget::crd()), Gadgets)
        .register(ResourceDefinition::from_crd(&Widget::crd()), Widgets)
        .namespaces_in("test.dev", "v1", "widgets")
        .build()
        .await
        .expect("built");
    let context = RequestContext::internal("test");
    let gadgets = registry.store("test.dev", "v1", "gadgets").expect("registered");
    let widgets = registry.store("test.dev", "v1", "widgets").expect("registered");
    assert_eq!(failure(gadgets.create(&context, "shop", object(gadget("a", 1))).await).0, 404);
    widgets.create(&context, "", object(json!({"metadata": {"name": "shop"}, "spec": {}}))).await.expect("created");
    gadgets.create(&context, "shop", object(gadget("a", 1))).await.expect("the namespace is there");
}

#[tokio::test]
async fn store_of_namespaces_does_not_own_itself() {
    let built = |with_namespaces: bool| async move {
        let builder = Registry::builder(Arc::new(MemoryLog::new()))
            .register(ResourceDefinition::from_crd(&Widget::crd()), Widgets);
        let builder = if with_namespaces { builder.namespaces_in("test.dev", "v1", "widgets") } else { builder };
        let registry = builder.build().await.expect("built");
        Arc::strong_count(registry.store("test.dev", "v1", "widgets").expect("registered"))
    };
    assert_eq!(built(true).await, built(false).await);
}

#[tokio::test]
async fn builder_rejects_registry_with_unusable_schema() {
    let schema = Arc::new(json!({"properties": {"spec": {"$ref": "#/nowhere"}}}));
    let broken = ResourceDefinition { schema, ..ResourceDefinition::from_crd(&Gadget::crd()) };
    let built = Registry::builder(Arc::new(MemoryLog::new())).register(broken, Gadgets).build().await;
    let error = built.expect_err("the schema leads nowhere");
    assert!(matches!(&error, BuildError::Schema { kind, .. } if kind == "Gadget"), "{error:?}");
}
