//! Which webhooks are asked about what.

use stoa_meta::request::RequestContext;
use stoa_registry::registry::UpdateSource;

use super::*;

#[tokio::test]
async fn dry_runs_reach_only_webhooks_without_side_effects() {
    let hooks = gate().await;
    let mut hook = hooks.hook("gate.test.dev", "validate");
    hook["sideEffects"] = json!("Some");
    let server = with_validating(hook).await;
    let outcome = server.gadgets.create(&server.dry(), "shop", gadget("a", 1)).await;
    let text = "admission webhook \"gate.test.dev\" does not support dry run";
    assert_eq!(refused(outcome), (400, "BadRequest".to_owned(), text.to_owned()));
    assert!(hooks.asked().is_empty());
    server.create("shop", "a", 1).await.unwrap();
}

/// How often a webhook is asked about the creation of `a` in `shop`, and a change of its status.
async fn times_asked(change: fn(&mut serde_json::Value)) -> (usize, usize) {
    let hooks = gate().await;
    let mut hook = hooks.hook("gate.test.dev", "validate");
    change(&mut hook);
    let server = with_validating(hook).await;
    server.create("shop", "a", 1).await.unwrap();
    let created = hooks.asked().len();
    let mut object = gadget("a", 1);
    object.0.insert("status".to_owned(), json!({"phase": "Ready"}));
    server.update(Target::Status, object).await.unwrap();
    (created, hooks.asked().len())
}

#[tokio::test]
async fn rules_and_selectors_decide_who_is_asked() {
    assert_eq!(times_asked(|_| {}).await, (1, 0));
    assert_eq!(times_asked(|hook| hook["rules"][0]["resources"] = json!(["*/*"])).await, (1, 1));
    assert_eq!(times_asked(|hook| hook["rules"][0]["resources"] = json!(["gadgets/status"])).await, (0, 1));
    assert_eq!(times_asked(|hook| hook["rules"][0]["operations"] = json!(["DELETE"])).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["rules"][0]["apiVersions"] = json!(["v2"])).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["rules"][0]["apiGroups"] = json!(["*"])).await, (1, 0));
    // There is no other version that would be equivalent to this one.
    let equivalent = |hook: &mut serde_json::Value| {
        hook["matchPolicy"] = json!("Equivalent");
        hook["rules"][0]["apiVersions"] = json!(["v2"]);
    };
    assert_eq!(times_asked(equivalent).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["rules"][0]["scope"] = json!("Cluster")).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["rules"][0]["scope"] = json!("Namespaced")).await, (1, 0));
    assert_eq!(times_asked(|hook| hook["namespaceSelector"] = json!({"matchLabels": {"env": "test"}})).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["namespaceSelector"] = json!({"matchLabels": {"env": "prod"}})).await, (1, 0));
    assert_eq!(times_asked(|hook| hook["objectSelector"] = json!({"matchLabels": {"kind": "b"}})).await, (0, 0));
    assert_eq!(times_asked(|hook| hook["objectSelector"] = json!({"matchLabels": {"kind": "a"}})).await, (1, 0));
    assert_eq!(
        times_asked(|hook| hook["matchConditions"] = json!([{"name": "c", "expression": "object.spec.size > 5"}]))
            .await,
        (0, 0)
    );
    assert_eq!(
        times_asked(|hook| hook["matchConditions"] = json!([{"name": "c", "expression": "request.name == 'a'"}])).await,
        (1, 0)
    );
}

#[tokio::test]
async fn each_object_of_a_collection_is_asked_about() {
    let hooks = gate().await;
    let mut hook = hooks.hook("gate.test.dev", "validate");
    hook["rules"][0]["operations"] = json!(["DELETE"]);
    let server = with_validating(hook).await;
    for (name, size) in [("a", 1), ("b", 13), ("c", 1)] {
        server.create("shop", name, size).await.unwrap();
    }
    let all = (ListOptions::default(), DeleteOptions::default());
    let outcome = server.gadgets.delete_collection(&server.context, Some("shop"), &all.0, &all.1).await;
    assert_eq!(refused(outcome).0, 403);
    let left = server.gadgets.list(Some("shop"), &ListOptions::default()).await.unwrap();
    assert!(left.items.iter().any(|item| item.name() == "b"));
    // As upstream, which asks by the name in the path.
    assert!(hooks.asked().iter().all(|request| request.get("name").is_none()), "{:?}", hooks.asked());
}

#[tokio::test]
async fn internal_update_in_removed_namespace_skips_webhooks() {
    let gate = gate().await;
    let on = |operation: &str, selector: serde_json::Value| {
        let mut hook = gate.hook("gate.test.dev", "validate");
        hook["rules"][0]["operations"] = json!([operation]);
        hook["namespaceSelector"] = selector;
        hook
    };
    // Whatever it selects, and whether or not its failures count.
    let other = json!({"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["test"]}]});
    let mut ignored = on("UPDATE", json!({"matchLabels": {"env": "prod"}}));
    ignored["failurePolicy"] = json!("Ignore");
    let rules = json!({"resourceRules": [{
        "apiGroups": ["test.dev"], "apiVersions": ["v1"], "resources": ["gadgets"], "operations": ["UPDATE"],
    }]});
    let policy = json!({
        "metadata": {"name": "spaced"},
        "spec": {"matchConstraints": rules, "validations": [{"expression": "namespaceObject == null"}]},
    });
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "spaced", "validationActions": ["Deny"]}});
    let mutation = json!({
        "metadata": {"name": "renaming"},
        "spec": {
            "matchConstraints": rules,
            "reinvocationPolicy": "Never",
            "mutations": [{
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/spec/tags', value: ['seen']}]"},
            }],
        },
    });
    let hooks =
        [Configured { validating: vec![("gates", vec![on("UPDATE", other), ignored])], ..Configured::default() }];
    let policies = [
        Configured { policies: vec![policy], bindings: vec![binding], ..Configured::default() },
        Configured {
            mutations: vec![mutation],
            mutation_bindings: vec![json!({"metadata": {"name": "b"}, "spec": {"policyName": "renaming"}})],
            ..Configured::default()
        },
    ];
    for configured in hooks.into_iter().chain(policies) {
        let server = Server::new(configured).await;
        server.create("gone", "a", 1).await.unwrap();
        let update = async |context: &RequestContext| {
            let change = UpdateSource::Object(gadget("a", 2));
            server.gadgets.update(context, "gone", "a", Target::Main, change).await
        };
        let (code, reason, _) = refused(update(&server.context).await);
        assert_eq!((code, &*reason), (404, "NotFound"));
        update(&RequestContext::internal("janitor")).await.unwrap();
    }
    assert_eq!(gate.asked().len(), 0);
}
