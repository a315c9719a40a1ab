use std::sync::Arc;

use futures_util::{poll, stream};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::runtime::{WatchStreamExt as _, reflector, watcher::Event};
use serde_json::{Value, json};
use stoa_meta::{definition::Target, request::RequestContext};
use stoa_registry::registry::DeleteOptions;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::support::{Configured, FakeNamespaces, FakeParams, Server, gadget, refused};
use crate::{
    cluster::Watched,
    policy::{Binding, Policy, ValidatingPolicies},
};

/// A policy `sizes` about all writes of gadgets, to be changed.
fn policy(validations: Value) -> Value {
    json!({
        "metadata": {"name": "sizes"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["test.dev"], "apiVersions": ["v1"], "resources": ["gadgets"], "operations": ["CREATE", "UPDATE"],
            }]},
            "validations": validations,
        },
    })
}

fn binding(actions: Value) -> Value {
    json!({"metadata": {"name": "everywhere"}, "spec": {"policyName": "sizes", "validationActions": actions}})
}

async fn server(policy: Value, binding: Value) -> Server {
    Server::new(Configured { policies: vec![policy], bindings: vec![binding], ..Configured::default() }).await
}

fn annotations(context: &RequestContext) -> Value {
    json!(context.annotations().always)
}

#[tokio::test]
async fn violation_rejects_write_with_message_and_reason() {
    let message = async |validation: Value| {
        let server = server(policy(json!([validation])), binding(json!(["Deny"]))).await;
        server.create("shop", "ok", 1).await.unwrap();
        refused(server.create("shop", "a", 9).await)
    };
    let denied = |text: &str| {
        format!(
            "gadgets.test.dev \"a\" is forbidden: ValidatingAdmissionPolicy 'sizes' with binding 'everywhere' denied \
             request: {text}"
        )
    };
    let expression = "object.spec.size < 5";
    assert_eq!(
        message(json!({"expression": expression})).await,
        (422, "Invalid".to_owned(), denied("failed expression: object.spec.size < 5"))
    );
    assert_eq!(
        message(json!({"expression": expression, "message": " too big ", "reason": "Forbidden"})).await,
        (403, "Forbidden".to_owned(), denied("too big"))
    );
    let said = json!({
        "expression": expression, "message": "too big",
        "messageExpression": "string(object.spec.size) + ' is too big for ' + namespaceObject.metadata.name",
    });
    assert_eq!(message(said).await.2, denied("9 is too big for shop"));
    let wrong = json!({"expression": expression, "message": "too big", "messageExpression": "object.missing"});
    assert_eq!(message(wrong).await.2, denied("too big"));
}

#[tokio::test]
async fn binding_turns_violation_into_warning_or_annotation() {
    let server = server(
        policy(json!([{"expression": "object.spec.size < 5", "message": "size >= 5 & <too> big"}])),
        binding(json!(["Warn", "Audit"])),
    )
    .await;
    server.create("shop", "a", 9).await.unwrap();
    assert_eq!(
        server.context.take_warnings(),
        ["Validation failed for ValidatingAdmissionPolicy 'sizes' with binding 'everywhere': size >= 5 & <too> big"]
    );
    // As Go writes it.
    let message = r"size \u003e= 5 \u0026 \u003ctoo\u003e big";
    let failure = format!(
        r#"[{{"message":"{message}","policy":"sizes","binding":"everywhere","expressionIndex":0,"validationActions":["Warn","Audit"]}}]"#
    );
    assert_eq!(annotations(&server.context), json!({"validation.policy.admission.k8s.io/validation_failure": failure}));
}

#[tokio::test]
async fn old_objects_variables_and_the_requester_are_seen() {
    let mut policy = policy(json!([
        {"expression": "oldObject == null || variables.growth >= 0", "message": "gadgets do not shrink"},
        {"expression": "request.userInfo.username == 'ann' && 'dev' in request.userInfo.groups"},
        {"expression": "authorizer.requestResource.check('resize').allowed()"},
    ]));
    policy["spec"]["variables"] = json!([{"name": "growth", "expression": "object.spec.size - oldObject.spec.size"}]);
    let server = server(policy, binding(json!(["Deny"]))).await;
    server.create("shop", "a", 3).await.unwrap();
    server.update(Target::Main, gadget("a", 4)).await.unwrap();
    let (_, _, text) = refused(server.update(Target::Main, gadget("a", 2)).await);
    assert!(text.ends_with("denied request: gadgets do not shrink"), "{text}");
    server.gadgets.delete(&server.context, "shop", "a", &DeleteOptions::default()).await.unwrap();
}

/// The outcome of creating a gadget of size 4 in `shop` under a policy with a limit in a ConfigMap.
async fn with_params(reference: Value) -> Result<(), (u16, String, String)> {
    let limit =
        |name: &str, max: &str| json!({"metadata": {"name": name, "labels": {"team": name}}, "data": {"max": max}});
    let mut params = FakeParams::default();
    for (namespace, name, max) in [("shop", "strict", "3"), ("shop", "loose", "9"), ("lab", "far", "2")] {
        params.0.insert((namespace.to_owned(), name.to_owned()), limit(name, max));
    }
    let mut policy = policy(json!([{
        "expression": "params == null || object.spec.size <= int(params.data.max)",
        "messageExpression": "'at most ' + params.data.max",
    }]));
    policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let mut binding = binding(json!(["Deny"]));
    binding["spec"]["paramRef"] = reference;
    let configured = Configured { policies: vec![policy], bindings: vec![binding], params, ..Configured::default() };
    let outcome = Server::new(configured).await.create("shop", "a", 4).await;
    outcome.map(|_| ()).map_err(|error| (error.code(), error.reason().to_owned(), error.message().to_owned()))
}

#[tokio::test]
async fn parameters_are_found_by_name_label_and_namespace() {
    let ends = |outcome: Result<(), (u16, String, String)>, text: &str| {
        let (_, _, message) = outcome.expect_err("it is refused");
        assert!(message.ends_with(text), "{message}");
    };
    ends(with_params(json!({"name": "strict"})).await, "denied request: at most 3");
    assert_eq!(with_params(json!({"name": "loose"})).await, Ok(()));
    ends(with_params(json!({"name": "far", "namespace": "lab"})).await, "denied request: at most 2");
    ends(with_params(json!({"selector": {}})).await, "denied request: at most 3");
    assert_eq!(with_params(json!({"selector": {"matchLabels": {"team": "loose"}}})).await, Ok(()));
    assert_eq!(with_params(json!({"name": "none", "parameterNotFoundAction": "Allow"})).await, Ok(()));
    ends(
        with_params(json!({"name": "none", "parameterNotFoundAction": "Deny"})).await,
        "with binding 'everywhere' denied request: failed to configure binding: no params found for policy binding \
         with `Deny` parameterNotFoundAction",
    );
}

#[tokio::test]
async fn unknown_param_kind_counts_as_policy_failure() {
    let outcome = async |failure_policy: &str, change: fn(&mut Value)| {
        let (mut policy, mut binding) = (policy(json!([{"expression": "true"}])), binding(json!(["Deny"])));
        policy["spec"]["paramKind"] = json!({"apiVersion": "example.com/v1", "kind": "Foo"});
        policy["spec"]["failurePolicy"] = failure_policy.into();
        change(&mut binding);
        server(policy, binding).await.create("shop", "a", 1).await
    };
    let unchanged: fn(&mut Value) = |_| {};
    let refers: fn(&mut Value) = |binding| binding["spec"]["paramRef"] = json!({"name": "none"});
    let is_elsewhere: fn(&mut Value) =
        |binding| binding["spec"]["matchResources"] = json!({"objectSelector": {"matchLabels": {"kind": "b"}}});
    let text = "gadgets.test.dev \"a\" is forbidden: ValidatingAdmissionPolicy 'sizes' denied request: failed to \
                configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Foo'";
    for change in [unchanged, refers, is_elsewhere] {
        assert_eq!(refused(outcome("Fail", change).await), (422, "Invalid".to_owned(), text.to_owned()));
        outcome("Ignore", change).await.unwrap();
    }
    // Nobody asks for it.
    outcome("Fail", |binding| binding["spec"]["policyName"] = json!("another")).await.unwrap();
}

#[tokio::test]
async fn what_goes_wrong_counts_as_the_failure_policy_says() {
    let outcome = async |validation: &str, failure_policy: &str| {
        let mut policy = policy(json!([{"expression": validation}]));
        policy["spec"]["failurePolicy"] = failure_policy.into();
        server(policy, binding(json!(["Deny"]))).await.create("shop", "a", 1).await
    };
    let (code, _, text) = refused(outcome("object.spec.missing > 1", "Fail").await);
    assert_eq!(code, 422);
    let expected = "expression 'object.spec.missing > 1' resulted in error: no such key: missing";
    assert!(text.ends_with(expected), "{text}");
    outcome("object.spec.missing > 1", "Ignore").await.unwrap();
    // A function that there is not is named.
    let (_, _, text) = refused(outcome("object.spec.frobnicate()", "Fail").await);
    assert!(text.contains("undeclared reference to 'frobnicate'"), "{text}");
    outcome("object.spec.frobnicate()", "Ignore").await.unwrap();
}

#[tokio::test]
async fn constraints_and_conditions_narrow_a_policy_and_its_bindings() {
    let always = json!([{"expression": "false"}]);
    let outcome = async |change: fn(&mut Value, &mut Value)| {
        let (mut policy, mut binding) = (policy(always.clone()), binding(json!(["Deny"])));
        change(&mut policy, &mut binding);
        server(policy, binding).await.create("shop", "a", 1).await.is_ok()
    };
    assert!(!outcome(|_, _| {}).await);
    assert!(
        outcome(|policy, _| policy["spec"]["matchConditions"] =
            json!([{"name": "c", "expression": "object.spec.size > 5"}]))
        .await
    );
    // They see no namespace.
    assert!(
        !outcome(|policy, _| policy["spec"]["matchConditions"] =
            json!([{"name": "c", "expression": "namespaceObject == null"}]))
        .await
    );
    assert!(
        outcome(|policy, _| policy["spec"]["matchConstraints"]["namespaceSelector"] =
            json!({"matchLabels": {"env": "test"}}))
        .await
    );
    assert!(
        outcome(
            |_, binding| binding["spec"]["matchResources"] = json!({"objectSelector": {"matchLabels": {"kind": "b"}}})
        )
        .await
    );
    assert!(
        !outcome(|_, binding| binding["spec"]["matchResources"] =
            json!({"namespaceSelector": {"matchLabels": {"env": "prod"}}}))
        .await
    );
    assert!(
        outcome(|policy, _| {
            let excluded = policy["spec"]["matchConstraints"]["resourceRules"].clone();
            policy["spec"]["matchConstraints"]["excludeResourceRules"] = excluded;
        })
        .await
    );
    assert!(
        outcome(|policy, _| policy["spec"]["matchConstraints"]["resourceRules"][0]["resourceNames"] = json!(["b"]))
            .await
    );
    assert!(outcome(|_, binding| binding["spec"]["policyName"] = json!("another")).await);
}

#[tokio::test]
async fn a_policy_annotates_the_audit_event() {
    let mut policy = policy(json!([{"expression": "true"}]));
    policy["spec"]["auditAnnotations"] = json!([
        {"key": "size", "valueExpression": "'size ' + string(object.spec.size)"},
        {"key": "none", "valueExpression": "null"},
    ]);
    let server = server(policy, binding(json!(["Deny"]))).await;
    server.create("shop", "a", 4).await.unwrap();
    assert_eq!(annotations(&server.context), json!({"sizes/size": "size 4"}));
}

#[tokio::test]
async fn write_waits_for_a_policy_that_is_being_compiled() {
    let (store, writer) = reflector::store::<ValidatingAdmissionPolicy>();
    let (change, mut changes) = mpsc::unbounded_channel();
    let changes = stream::poll_fn(move |context| changes.poll_recv(context)).reflect(writer);
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let end = CancellationToken::new();
    let policies = Watched::of_changes(changes, store, end.clone(), move |found: Vec<Arc<_>>| {
        if !found.is_empty() {
            gate.recv().unwrap();
        }
        found.iter().map(|policy| Arc::new(Policy::compile(policy))).collect()
    });
    let everywhere = serde_json::from_value(binding(json!(["Deny"]))).unwrap();
    let bindings = Watched::fixed(vec![Arc::new(Binding::of_validating(&everywhere))]);
    let (params, namespaces) = (Arc::new(FakeParams::default()), Arc::new(FakeNamespaces));
    let plugin = ValidatingPolicies::new(policies.clone(), bindings, params, namespaces);
    let server = Server::new(Configured { plugins: vec![Arc::new(plugin)], ..Configured::default() }).await;
    change.send(Ok(Event::Init)).unwrap();
    change.send(Ok(Event::InitDone)).unwrap();
    server.create("shop", "before", 9).await.unwrap();

    let known = serde_json::from_value(policy(json!([{"expression": "object.spec.size < 5"}]))).unwrap();
    change.send(Ok(Event::Apply(known))).unwrap();
    while policies.is_ready() {
        tokio::task::yield_now().await;
    }
    let mut write = Box::pin(server.create("shop", "a", 9));
    for _ in 0..100 {
        assert!(poll!(&mut write).is_pending(), "it passed a policy that is known");
        tokio::task::yield_now().await;
    }
    open.send(()).unwrap();
    assert_eq!(refused(write.await).0, 422);
    server.create("shop", "b", 1).await.unwrap();
    end.cancel();
}
