//! Tests of sensitive values in plans.

use stoa_engine::conflict::masked;
use stoa_engine::path::FieldPath;
use stoa_engine::plan::FieldChange;
use stoa_engine::sensitive::Sensitive;

use super::*;

#[test]
fn secrets_never_show() {
    let mut scenario = Scenario::default();
    let (secret, password) = secret();
    let user = |prefix: &str| config_map("user", &[], json!({"url": format!("{prefix}{password}")}));
    let first = spec(json!([secret, user("a:")]));
    let plan = scenario.plan(&first);
    scenario.carry_out(&first, &plan);
    let second = scenario.plan(&spec(json!([secret, user("b:")])));
    assert_snapshot!(table(&second), @r"
    ~ update   v1:ConfigMap:shop:user
        data.url: (sensitive) → (sensitive)

    Plan: 1 to update; 1 unchanged.
    ");
    let state = serde_json::to_string(&scenario.state).unwrap();
    assert!(!state.contains("hunter2") && !serde_json::to_string(&second).unwrap().contains("hunter2"), "{state}");
    assert!(scenario.plan(&first).is_unchanged());
}

#[test]
fn declared_fields_never_show() {
    let map = |password: &str| {
        let mut map = config_map("app", &[], json!({"url": format!("db://{password}"), "plain": "x"}));
        map["extensions"] = json!({"stoa.dev/sensitive": ["data.url"]});
        spec(json!([map]))
    };
    let mut scenario = Scenario::default();
    let plan = scenario.plan(&map("hunter2"));
    assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"), "{plan:?}");
    scenario.carry_out(&map("hunter2"), &plan);
    let second = scenario.plan(&map("hunter3"));
    assert_snapshot!(table(&second), @r"
    ~ update   v1:ConfigMap:shop:app
        data.url: (sensitive) → (sensitive)

    Plan: 1 to update.
    ");
    let state = serde_json::to_string(&scenario.state).unwrap();
    assert!(!state.contains("hunter2") && !serde_json::to_string(&second).unwrap().contains("hunter2"), "{state}");
    assert!(scenario.plan(&map("hunter2")).is_unchanged());
}

#[test]
fn secret_without_reference_stays_masked() {
    let (secret, password) = secret();
    let user = |data: Value| config_map("user", &[], data);
    let mut scenario = Scenario::applied(json!([secret, user(json!({"pw": password, "plain": "x"}))]));
    let masked = Some(json!(MASK));
    for (data, after) in [(json!({"plain": "x"}), None), (json!({"pw": "y", "plain": "x"}), masked.clone())] {
        let plan = scenario.plan(&spec(json!([secret, user(data)])));
        let changes = &plan.actions.iter().find(|it| it.id == id("user")).unwrap().changes;
        let change =
            FieldChange { path: "data.pw".to_owned(), before: masked.clone(), after, ..FieldChange::default() };
        assert_eq!(*changes, [change]);
    }
    // Nor where somebody copied it to, as the server says that it would be gone, nor once the object was made anew by others.
    let Some(Live::Present(live)) = scenario.live.get_mut(&id("user")) else { unreachable!() };
    live["metadata"]["labels"] = json!({"copy": "hunter2"});
    live["metadata"]["uid"] = json!("another");
    let wanted = user(json!({"plain": "x"}));
    let made = wanted["attributes"].as_object().cloned().unwrap();
    for preview in [None, Some(Preview::Changed(made))] {
        scenario.previews = preview.into_iter().map(|preview| (id("user"), preview)).collect();
        let plan = scenario.plan(&spec(json!([secret, wanted])));
        assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"), "{plan:?}");
    }
    scenario.state.resources.iter_mut().find(|it| it.id == id("user")).unwrap().live["metadata"]["uid"] =
        json!("first");
    let plan = scenario.plan(&spec(json!([secret, wanted])));
    let action = plan.actions.iter().find(|it| it.id == id("user")).unwrap();
    assert!(action.recreated && action.changes.iter().any(|change| change.path == "data.pw"), "{action:?}");
    assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"), "{plan:?}");
}

#[test]
fn creation_shows_known_insensitive_values() {
    let (secret, password) = secret();
    let mut user = config_map(
        "user",
        &["a"],
        json!({"password": password, "uid": format!("$kusion_path.{}.metadata.uid", id("a"))}),
    );
    user["attributes"]["metadata"]["labels"] = json!({"app": "web"});
    user["attributes"]["spec"] = json!({"rules": [{"host": password, "uid": format!("$kusion_path.{}.metadata.uid", id("a"))},
        {"host": "b.example.org", "paths": ["/first", "/second"]}], "text": "one\ntwo\n", "after": null});
    let plan = Scenario::default().plan(&spec(json!([secret, config_map("a", &[], json!({})), user])));
    assert_snapshot!(table(&plan), @r#"
    + create   v1:ConfigMap:shop:a
        + data: {}
    + create   v1:Secret:shop:db
        + data: {"password":"(sensitive)"}
    + create   v1:ConfigMap:shop:user
        + data: {"password":"(sensitive)","uid":"(known after apply)"}
        + metadata.labels: {"app":"web"}
        + spec:
            after: null
            rules:
              - {"host":"(sensitive)","uid":"(known after apply)"}
              - {"host":"b.example.org","paths":["/first","/second"]}
            text: |
              one
              two

    Plan: 3 to create.
    "#);
    assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"));
}

#[test]
fn items_with_sensitive_keys_are_not_named() {
    let (secret, host) = secret();
    let rules = |path: &str| {
        let id = "networking.k8s.io/v1:Ingress:shop:web";
        let rule = json!({"host": host, "http": {"paths": [{"path": path}]}});
        json!({"id": id, "type": "Kubernetes", "attributes": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "web", "namespace": "shop"}, "spec": {"rules": [rule]}}})
    };
    let mut scenario = Scenario::applied(json!([secret, rules("/a")]));
    let changed = spec(json!([secret, rules("/b")]));
    let fields = vec![".spec.rules[host=\"hunter2\"].http".to_owned()];
    let conflict = FieldConflict { manager: "hand".to_owned(), applies: false, fields };
    let live = scenario.full(&changed);
    let made = draft(&scenario.input(&changed, &live))
        .unwrap()
        .desired
        .into_values()
        .find(|it| it.attributes["kind"] == "Ingress");
    let preview = Preview::Contested(made.unwrap().attributes.into_owned(), vec![conflict.clone()]);
    scenario.previews.insert("networking.k8s.io/v1:Ingress:shop:web".into(), preview);
    let plan = scenario.plan(&changed);
    // Records have digests, by which nobody finds an item: then what goes may be what somebody added.
    assert_snapshot!(table(&plan), @r#"
    ~ update   networking.k8s.io/v1:Ingress:shop:web
        + spec.rules[host=(sensitive)].http.paths[path=/b]: {"path":"/b"}
        - spec.rules[host=(sensitive)].http.paths[path=/a]: {"path":"/a"}  (drift)
        ! taken from hand, which changes them: .spec.rules[host="(sensitive)"].http

    Plan: 1 to update; 1 unchanged.
    "#);
    let taken = &plan.actions.iter().find(|it| it.action == Action::Update).unwrap().taken;
    assert!(!serde_json::to_string(&plan).unwrap().contains("hunter2"), "{plan:?}");
    let sensitive = Sensitive::of(json!({"a": "hunter2"}).as_object().unwrap(), &[FieldPath::of_keys(["a"])].into());
    assert!(are_planned(taken, &masked(&[conflict], &sensitive)));
}

#[test]
fn sensitive_value_cannot_name_object() {
    for (field, value) in [("name", "$P"), ("name", "web-$P"), ("namespace", "$P")] {
        let (secret, password) = secret();
        let mut wanted = config_map("user", &[], json!({}));
        wanted["attributes"]["metadata"][field] = json!(value.replace("$P", password));
        assert_eq!(
            Scenario::default().problems(&spec(json!([secret, wanted]))),
            format!(
                "InvalidReference v1:ConfigMap:shop:user: attributes.metadata.{field}: a sensitive value cannot be \
                 part of apiVersion, kind, name or namespace\n"
            )
        );
    }
}

#[test]
fn sensitive_value_cannot_be_key() {
    let (secret, password) = secret();
    let problems =
        Scenario::default().problems(&spec(json!([secret, config_map("user", &[], json!({password: "x"})),])));
    assert!(problems.ends_with("a sensitive value cannot be a key\n") && !problems.contains("hunter2"), "{problems}");
}
