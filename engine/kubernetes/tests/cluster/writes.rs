//! Tests of applies to a real server.

use super::*;

#[tokio::test]
async fn fields_of_others_are_taken_for_records_only() {
    let test = TestNamespace::new().await;
    let by_hand = ConfigMap {
        metadata: serde_json::from_value(json!({"name": "owned"})).unwrap(),
        data: Some(BTreeMap::from([("a".to_owned(), "theirs".to_owned())])),
        ..ConfigMap::default()
    };
    test.config_maps()
        .create(&PostParams { field_manager: Some("hand".to_owned()), ..PostParams::default() }, &by_hand)
        .await
        .unwrap();
    let desired = test.config_map("owned", &json!({"a": "ours"}));
    let adopt = ApplyRequest::adopting(&desired);
    let live = test.read(&desired).await.unwrap();
    let Live::Present(live) = live else { panic!("{live:?}") };
    let preview = test.runtime.preview(&adopt, Some(&live)).await.unwrap_err();
    assert!(
        matches!(&preview, RuntimeError::Conflict(text) if text.contains("hand") && text.contains(".data.a")),
        "{preview:?}"
    );
    assert!(matches!(test.runtime.apply(&adopt).await, Err(RuntimeError::Conflict(_))));
    assert_eq!(test.config_maps().get("owned").await.unwrap().data.unwrap()["a"], "theirs");

    let applied = test.apply(&desired, Some(&recorded(&desired, live))).await.unwrap();
    assert_eq!(applied.live["data"]["a"], "ours");
}

#[tokio::test]
async fn applied_fields_need_plan_and_edits_are_reverted() {
    let test = TestNamespace::new().await;
    let mut desired = test.config_map("claimed", &json!({"a": "ours", "b": "ours"}));
    let prior = recorded(&desired, test.apply(&desired, None).await.unwrap().live);
    let claim = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "claimed"}});
    test.config_maps().patch("claimed", &PatchParams::apply("flux").force(), &Patch::Apply(claim)).await.unwrap();
    let edit = Patch::Merge(json!({"data": {"b": "edited"}}));
    test.config_maps()
        .patch("claimed", &PatchParams { field_manager: Some("hand".to_owned()), ..PatchParams::default() }, &edit)
        .await
        .unwrap();

    let request = ApplyRequest::new(&desired, Some(&prior));
    for refusal in
        [test.runtime.preview(&request, None).await.unwrap_err(), test.runtime.apply(&request).await.unwrap_err()]
    {
        let RuntimeError::Conflict(text) = &refusal else { panic!("{refusal:?}") };
        assert!(["flux", ".data.a", FORCE].iter().all(|part| text.contains(part)), "{text}");
    }
    desired.extensions.insert(FORCE.to_owned(), json!("true"));
    let request = ApplyRequest::new(&desired, Some(&prior));
    let preview = test.runtime.preview(&request, None).await.unwrap();
    let Preview::Contested(object, taken) = preview else { panic!("{preview:?}") };
    assert_eq!(object["data"], json!({"a": "ours", "b": "ours"}));
    let conflict = |manager: &str, applies, field: &str| FieldConflict {
        manager: manager.to_owned(),
        applies,
        fields: vec![field.to_owned()],
    };
    assert_eq!(taken, [conflict("flux", true, ".data.a"), conflict("hand", false, ".data.b")]);
    let less = ApplyRequest { taken: Some(&taken[..1]), ..request.clone() };
    let unplanned = test.runtime.apply(&less).await.unwrap_err();
    assert!(matches!(&unplanned, RuntimeError::Conflict(_)), "{unplanned:?}");
    assert_eq!(test.config_maps().get("claimed").await.unwrap().data.unwrap()["a"], "claimed");
    let applied = test.runtime.apply(&ApplyRequest { taken: Some(&taken), ..request }).await.unwrap();
    assert_eq!(applied.live["data"], json!({"a": "ours", "b": "ours"}));

    test.config_maps()
        .patch("claimed", &PatchParams { field_manager: Some("hand".to_owned()), ..PatchParams::default() }, &edit)
        .await
        .unwrap();
    desired.extensions.clear();
    let request = ApplyRequest::new(&desired, Some(&prior));
    let preview = test.runtime.preview(&request, None).await.unwrap();
    let Preview::Contested(_, taken) = preview else { panic!("{preview:?}") };
    assert_eq!(taken, [conflict("hand", false, ".data.b")]);
    let applied = test.runtime.apply(&ApplyRequest { taken: Some(&taken), ..request }).await.unwrap();
    assert_eq!(applied.live["data"]["b"], "ours");
}

#[tokio::test]
async fn role_names_may_have_special_characters() {
    let test = TestNamespace::new().await;
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let named = |name: &str| {
        let metadata = json!({"name": name, "namespace": test.namespace});
        resource(
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata, "rules": rules}),
        )
    };
    // One is another's name up to what a URL would take for its end.
    test.apply(&named("its \"own\", ü"), None).await.unwrap();
    let role = named("its \"own\", ü?b#c");
    assert_eq!(test.read(&role).await.unwrap(), Live::Absent);
    let live = test.apply(&role, None).await.unwrap().live;
    assert_eq!(test.read(&role).await.unwrap(), Live::Present(live.clone()));
    assert_eq!(test.runtime.wait_healthy(&role, &ignore).await.unwrap(), Health::Current);
    let prior = recorded(&role, live);
    assert_eq!(test.delete(&prior).await.unwrap(), Deleted::Gone);
    assert_eq!(test.read(&role).await.unwrap(), Live::Absent);
}

#[tokio::test]
async fn dropped_field_is_removed() {
    let test = TestNamespace::new().await;
    let both = test.config_map("fields", &json!({"a": "1", "b": "2"}));
    let live = test.apply(&both, None).await.unwrap().live;
    let one = test.config_map("fields", &json!({"a": "1"}));
    let applied = test.apply(&one, Some(&recorded(&both, live))).await.unwrap();
    assert_eq!(applied.live["data"], json!({"a": "1"}));
}

#[tokio::test]
async fn dropped_field_without_manager_is_removed() {
    let test = TestNamespace::new().await;
    let both = test.config_map("bare", &json!({"a": "1", "b": "2"}));
    let prior = recorded(&both, test.apply(&both, None).await.unwrap().live);
    // As upstream says that one clears them.
    let clear = Patch::Merge(json!({"metadata": {"managedFields": [{}]}, "data": {"c": "theirs"}}));
    test.config_maps().patch("bare", &PatchParams::default(), &clear).await.unwrap();
    let again = Patch::Merge(json!({"metadata": {"managedFields": [{}]}}));
    let bare = test.config_maps().patch("bare", &PatchParams::default(), &again).await.unwrap();
    assert!(bare.managed_fields().is_empty(), "{bare:?}");
    let one = test.config_map("bare", &json!({"a": "1"}));
    let request = ApplyRequest::new(&one, Some(&prior));
    let preview = test.runtime.preview(&request, None).await.unwrap();
    let Preview::Changed(planned) = preview else { panic!("{preview:?}") };
    assert_eq!(planned["data"], json!({"a": "1", "c": "theirs"}));
    let applied = test.runtime.apply(&request).await.unwrap();
    assert_eq!(applied.live["data"], planned["data"]);
}

/// A Secret that is called `key`, with these strings.
fn secret_of(test: &TestNamespace, strings: &Value) -> Resource {
    resource(json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "key", "namespace": test.namespace}, "stringData": strings}))
}

/// Plans and applies a Secret of which `a` is left, and `b` was applied before.
async fn b_goes(test: &TestNamespace, one: &Resource, prior: &StateResource) {
    let request = ApplyRequest::new(one, Some(prior));
    let preview = test.runtime.preview(&request, None).await.unwrap();
    let Preview::Changed(planned) = preview else { panic!("{preview:?}") };
    assert_eq!(planned["data"], json!({"a": "aHVudGVyMg=="}));
    let applied = test.runtime.apply(&request).await.unwrap();
    assert_eq!(applied.live["data"], planned["data"]);
    let Live::Present(live) = test.read(one).await.unwrap() else { panic!("it is there") };
    assert_eq!(live["data"], planned["data"]);
    assert_eq!(test.runtime.apply(&request).await.unwrap().live, applied.live, "a second call changes nothing");
}

#[tokio::test]
async fn dropped_secret_key_is_removed() {
    let test = TestNamespace::new().await;
    let both = secret_of(&test, &json!({"a": "hunter2", "b": "hunter3"}));
    let prior = recorded(&both, test.apply(&both, None).await.unwrap().live);
    b_goes(&test, &secret_of(&test, &json!({"a": "hunter2"})), &prior).await;
}

#[tokio::test]
async fn unmanaged_string_key_of_secret_is_removed() {
    let test = TestNamespace::new().await;
    let both = secret_of(&test, &json!({"a": "hunter2", "b": "hunter3"}));
    // As it was applied before strings were sent as the data that they become.
    let secrets = Api::<Secret>::namespaced(test.client.clone(), &test.namespace);
    let before = Patch::Apply(Value::Object(both.attributes.clone()));
    secrets.patch("key", &PatchParams::apply("stoa"), &before).await.unwrap();
    let Live::Present(live) = test.read(&both).await.unwrap() else { panic!("it is there") };
    b_goes(&test, &secret_of(&test, &json!({"a": "hunter2"})), &recorded(&both, live)).await;
}

#[tokio::test]
async fn secret_key_of_others_is_not_overwritten() {
    let test = TestNamespace::new().await;
    let secrets = Api::<Secret>::namespaced(test.client.clone(), &test.namespace);
    let metadata = json!({"name": "key"});
    let claim = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"a": "dGhlaXJz"}});
    secrets.patch("key", &PatchParams::apply("flux"), &Patch::Apply(claim)).await.unwrap();
    let desired = secret_of(&test, &json!({"a": "hunter2"}));
    let adopt = ApplyRequest::adopting(&desired);
    for refused in
        [test.runtime.preview(&adopt, None).await.unwrap_err(), test.runtime.apply(&adopt).await.unwrap_err()]
    {
        let RuntimeError::Conflict(text) = &refused else { panic!("{refused:?}") };
        assert!(text.contains("flux") && text.contains(".data.a") && !text.contains("hunter2"), "{text}");
    }
    assert_eq!(secrets.get("key").await.unwrap().data.unwrap()["a"].0, b"theirs");
}

#[tokio::test]
async fn dropped_secret_key_of_others_is_removed() {
    let test = TestNamespace::new().await;
    let secrets = Api::<Secret>::namespaced(test.client.clone(), &test.namespace);
    let values = json!({"a": "hunter2", "b": "hunter3"});
    let by_hand = serde_json::from_value(json!({"metadata": {"name": "key"}, "stringData": values})).unwrap();
    let by = PostParams { field_manager: Some("kubectl-create".to_owned()), ..PostParams::default() };
    secrets.create(&by, &by_hand).await.unwrap();
    let (both, one) = (secret_of(&test, &values), secret_of(&test, &json!({"a": "hunter2"})));
    let live = test.runtime.apply(&ApplyRequest::adopting(&both)).await.unwrap().live;
    let keys = DigestKeys::new(&[7; 32], &[]);
    let mut prior = recorded(&both, live);
    for value in prior.attributes["stringData"].as_object_mut().unwrap().values_mut() {
        *value = keys.mask(&both.id, value);
    }
    let mut request = ApplyRequest { keys: Some(&keys), ..ApplyRequest::new(&one, Some(&prior)) };
    // What it leaves to others besides makes no difference.
    let mut ignoring = one.clone();
    ignoring.extensions.insert(IGNORE_FIELDS.to_owned(), json!(["type"]));
    request.desired = &ignoring;
    test.runtime.apply(&request).await.unwrap();
    let left: Vec<String> = secrets.get("key").await.unwrap().data.unwrap().into_keys().collect();
    assert_eq!(left, ["a"]);
}

#[tokio::test]
async fn server_rejection_names_field() {
    let test = TestNamespace::new().await;
    let service = |spec: Value| {
        resource(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": test.namespace}, "spec": spec}),
        )
    };
    for (spec, expected) in [
        (json!({"ports": [{"port": 70000}]}), "spec.ports[0].port"),
        (json!({"ports": [{"port": 80}], "replica": 3}), "spec.replica"),
        (json!({"ports": "many"}), "spec.ports"),
    ] {
        let desired = service(spec);
        let request = ApplyRequest::new(&desired, None);
        for err in
            [test.runtime.preview(&request, None).await.unwrap_err(), test.runtime.apply(&request).await.unwrap_err()]
        {
            assert!(matches!(&err, RuntimeError::Rejected { field: Some(field), .. } if field == expected), "{err:?}");
        }
    }
}

#[tokio::test]
async fn a_refused_secret_is_not_quoted() {
    let test = TestNamespace::new().await;
    for data in [
        json!({"data": {"a": "hunter2 is no base64"}}),
        json!({"stringData": {"a/key": "hunter2"}}),
        json!({"data": {"a": ["hunter2"]}}),
    ] {
        let mut object =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": test.namespace}});
        object.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        let err = test.apply(&resource(object), None).await.unwrap_err().to_string();
        assert!(!err.contains("hunter2"), "{err}");
    }
}

#[tokio::test]
async fn object_created_after_plan_is_not_overwritten() {
    let test = TestNamespace::new().await;
    let desired = test.config_map("late", &json!({"a": "1"}));
    let create = ApplyRequest { create: true, ..ApplyRequest::new(&desired, None) };
    let by_hand =
        ConfigMap { metadata: serde_json::from_value(json!({"name": "late"})).unwrap(), ..ConfigMap::default() };
    test.config_maps().create(&PostParams::default(), &by_hand).await.unwrap();
    let refused = test.runtime.apply(&create).await.unwrap_err();
    assert!(matches!(&refused, RuntimeError::Conflict(_)), "{refused:?}");
    let there = test.config_maps().get("late").await.unwrap();
    assert!(there.data.is_none() && there.metadata.annotations.is_none(), "{there:?}");
    test.config_maps().delete("late", &DeleteParams::default()).await.unwrap();

    // What an earlier try made is ours, be it that something takes marks off.
    test.runtime.apply(&create).await.unwrap();
    test.runtime.apply(&create).await.unwrap();
    let unmark = Patch::Merge(json!({"metadata": {"annotations": {MARK: null}}}));
    test.config_maps().patch("late", &PatchParams::default(), &unmark).await.unwrap();
    assert_eq!(test.runtime.apply(&create).await.unwrap().live["data"]["a"], "1");

    // What comes with the namespace may be there before.
    let account = resource(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default",
        "namespace": test.namespace}, "automountServiceAccountToken": false}));
    let accounts: Api<ServiceAccount> = Api::namespaced(test.client.clone(), &test.namespace);
    let is_there = |account: Option<&ServiceAccount>| account.is_some();
    kube::runtime::wait::await_condition(accounts, "default", is_there).await.unwrap();
    let applied =
        test.runtime.apply(&ApplyRequest { create: true, ..ApplyRequest::new(&account, None) }).await.unwrap();
    assert_eq!(applied.live["automountServiceAccountToken"], false);
}
