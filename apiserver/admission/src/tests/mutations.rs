use serde_json::{Value, json};
use stoa_meta::{definition::Target, object::Object};
use stoa_registry::registry::DeleteOptions;

use super::support::{Configured, FakeParams, HookServer, Server, patched, refused};

/// A policy `defaults` about new gadgets and changes of them, to be changed.
fn policy(mutations: Value) -> Value {
    json!({
        "metadata": {"name": "defaults"},
        "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["test.dev"], "apiVersions": ["v1"], "resources": ["gadgets"], "operations": ["CREATE", "UPDATE"],
            }]},
            "mutations": mutations,
        },
    })
}

fn configuration(expression: &str) -> Value {
    json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}})
}

fn operations(expression: &str) -> Value {
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

fn configured(policy: Value) -> Configured {
    let binding = json!({"metadata": {"name": "everywhere"}, "spec": {"policyName": "defaults"}});
    Configured { mutations: vec![policy], mutation_bindings: vec![binding], ..Configured::default() }
}

/// What comes of a gadget of size 1 under a policy: its spec and labels.
async fn outcome(policy: Value) -> Result<(Value, Value), (u16, String, String)> {
    let server = Server::new(configured(policy)).await;
    match server.create("shop", "a", 1).await {
        Ok(stored) => {
            let Object(mut object) = stored.object();
            Ok((object["spec"].take(), object["metadata"]["labels"].take()))
        }
        outcome => Err(refused(outcome)),
    }
}

async fn spec(mutation: Value) -> Value {
    outcome(policy(json!([mutation]))).await.expect("it is created").0
}

/// What is said of a gadget under a policy that cannot be evaluated.
async fn said(mutation: Value) -> String {
    let (code, reason, text) = outcome(policy(json!([mutation]))).await.expect_err("it is refused");
    assert_eq!((code, reason.as_str()), (403, "Invalid"), "{text}");
    let beginning = "policy 'defaults' with binding 'everywhere' denied request: ";
    text.strip_prefix(beginning).unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[tokio::test]
async fn a_configuration_is_merged_into_the_object() {
    let size = "Object{spec: Object.spec{size: object.spec.size + 1}}";
    assert_eq!(spec(configuration(size)).await["size"], 2);
    let labels = "Object{metadata: Object.metadata{labels: {'team': request.userInfo.username}}}";
    let (_, labels) = outcome(policy(json!([configuration(labels)]))).await.unwrap();
    assert_eq!(labels, json!({"kind": "a", "team": "ann"}));
    // An optional field that is not there is left out.
    let none = "Object{spec: Object.spec{?size: object.spec.?other}}";
    assert_eq!(spec(configuration(none)).await["size"], 1);
}

#[tokio::test]
async fn a_patch_is_applied_to_the_object() {
    let add = r#"[
        JSONPatch{op: "test", path: "/spec/size", value: 1},
        JSONPatch{op: "replace", path: "/spec/size", value: 7},
        JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("a.dev/b"), value: "d"},
        JSONPatch{op: "add", path: "/spec/tags", value: ["x", "y"].filter(t, t != "y")},
    ]"#;
    let (spec, labels) = outcome(policy(json!([operations(add)]))).await.unwrap();
    assert_eq!((&spec["size"], &spec["tags"]), (&json!(7), &json!(["x"])));
    assert_eq!(labels, json!({"kind": "a", "a.dev/b": "d"}));
    // A test that fails says that there is nothing to do.
    let tested =
        r#"[JSONPatch{op: "test", path: "/spec/size", value: 2}, JSONPatch{op: "remove", path: "/spec/size"}]"#;
    assert_eq!(outcome(policy(json!([operations(tested)]))).await.unwrap().0["size"], 1);
    let objects = r#"[JSONPatch{op: "replace", path: "/spec", value: Object.spec{size: 3}}]"#;
    assert_eq!(outcome(policy(json!([operations(objects)]))).await.unwrap().0["size"], 3);
    assert_eq!(outcome(policy(json!([operations("[]")]))).await.unwrap().0["size"], 1);
}

#[tokio::test]
async fn what_does_not_fit_is_told() {
    let wrong = "Object{spec: Object.status{size: 1}}";
    assert_eq!(
        said(configuration(wrong)).await,
        "type mismatch: unexpected type name \"Object.status\", expected \"Object.spec\", which matches field name path \
         from root Object type"
    );
    let unknown = said(configuration("Object{spec: Object.spec{colour: 'red'}}")).await;
    assert_eq!(
        unknown,
        "error applying patch: failed to convert patch object to typed object: .spec.colour: field not declared in schema"
    );
    assert_eq!(
        said(configuration("Object{spec: Object.spec{tags: ['x']}}")).await,
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.tags"
    );
    assert_eq!(said(configuration("{'spec': 1}")).await, "must evaluate to Object but got map");
    assert_eq!(said(operations("Object{}")).await, "must evaluate to list(JSONPatch) but got Object");
    let missing = said(operations(r#"[JSONPatch{op: "remove", path: "/spec/nothing"}]"#)).await;
    assert!(missing.starts_with("JSON Patch: remove operation does not apply: doc is missing path"), "{missing}");
    let field = said(operations(r#"[JSONPatch{op: 1, path: "/spec"}]"#)).await;
    assert!(field.ends_with("resulted in error: unexpected type int for JSONPatchType 'op' field"), "{field}");
    let undeclared = said(configuration("Thing{}")).await;
    assert!(undeclared.starts_with("compilation failed") && undeclared.contains("'Thing'"), "{undeclared}");
    // What a patch leaves is decoded strictly.
    let strict = operations(r#"[JSONPatch{op: "add", path: "/spec/colour", value: "red"}]"#);
    let internal = |problem: &str| (500, "InternalError".to_owned(), format!("Internal error occurred: {problem}"));
    assert_eq!(
        outcome(policy(json!([strict]))).await.unwrap_err(),
        internal("strict decoding error: unknown field \"spec.colour\"")
    );
    let wrong = operations(r#"[JSONPatch{op: "replace", path: "/spec/size", value: "many"}]"#);
    assert_eq!(
        outcome(policy(json!([wrong]))).await.unwrap_err(),
        internal("json: cannot unmarshal string into Go struct field GadgetSpec.spec.size of type int64")
    );
}

#[tokio::test]
async fn mutations_see_what_came_before_and_stop_at_conditions() {
    let twice = json!([
        configuration("Object{spec: Object.spec{size: object.spec.size * 2}}"),
        configuration("Object{spec: Object.spec{size: variables.more}}"),
    ]);
    let mut doubled = policy(twice);
    doubled["spec"]["variables"] = json!([{"name": "more", "expression": "object.spec.size + 10"}]);
    assert_eq!(outcome(doubled.clone()).await.unwrap().0["size"], 12);
    doubled["spec"]["matchConditions"] = json!([{"name": "none", "expression": "namespaceObject == null"}]);
    assert_eq!(outcome(doubled.clone()).await.unwrap().0["size"], 12);
    doubled["spec"]["matchConditions"] = json!([{"name": "large", "expression": "object.spec.size > 5"}]);
    assert_eq!(outcome(doubled).await.unwrap().0["size"], 1);
}

#[tokio::test]
async fn next_mutation_sees_defaulted_values() {
    let grow = [
        configuration("Object{spec: Object.spec{size: 1000}}"),
        operations(r#"[JSONPatch{op: "replace", path: "/spec/size", value: 1000}]"#),
    ];
    let label = "Object{metadata: Object.metadata{labels: {'tag': object.spec.tags[0]}}}";
    for grow in grow {
        let (_, labels) = outcome(policy(json!([grow, configuration(label)]))).await.expect("it is created");
        assert_eq!(labels["tag"], "large");
    }
}

#[tokio::test]
async fn failures_count_as_the_policy_says() {
    let mut failing = policy(json!([
        configuration("Object{spec: Object.spec{size: object.spec.missing}}"),
        configuration("Object{spec: Object.spec{size: 5}}"),
    ]));
    let (_, _, text) = outcome(failing.clone()).await.unwrap_err();
    assert!(text.ends_with("resulted in error: no such key: missing"), "{text}");
    failing["spec"]["failurePolicy"] = json!("Ignore");
    assert_eq!(outcome(failing).await.unwrap().0["size"], 5);
}

#[tokio::test]
async fn evaluation_and_what_comes_of_it_are_bounded() {
    let ten = |inner: &str| format!("[{}]", [inner; 10].join(","));
    let mut nested =
        policy(json!([operations(r#"[JSONPatch{op: "add", path: "/metadata/annotations", value: variables.v8}]"#)]));
    let mut variables = vec![json!({"name": "v0", "expression": ten("'x'")})];
    variables
        .extend((1..9).map(|n| json!({"name": format!("v{n}"), "expression": ten(&format!("variables.v{}", n - 1))})));
    nested["spec"]["variables"] = variables.into();
    let (_, _, text) = outcome(nested).await.unwrap_err();
    assert!(text.ends_with("resulted in error: the value is too large"), "{text}");
    // Nor may it take long.
    let mut slow = policy(json!([configuration("Object{spec: Object.spec{size: size(variables.all)}}")]));
    let lists = ["[1,1,1,1,1,1,1,1,1,1]"; 8];
    let loops: Vec<_> = lists.iter().enumerate().map(|(n, list)| format!("{list}.all(v{n}, ")).collect();
    let expression = format!("[{}true{}]", loops.concat(), ")".repeat(loops.len()));
    slow["spec"]["variables"] = json!([{"name": "all", "expression": expression}]);
    let (_, _, text) = outcome(slow).await.unwrap_err();
    let told = "composited variable \"all\" fails to evaluate: operation cancelled: actual cost limit exceeded";
    assert!(text.ends_with(told), "{text}");
}

#[tokio::test]
async fn a_policy_with_parameters_is_evaluated_for_each() {
    let mut params = FakeParams::default();
    for (name, more) in [("few", "2"), ("many", "40")] {
        let object = json!({"metadata": {"name": name, "namespace": "shop"}, "data": {"more": more}});
        params.0.insert(("shop".to_owned(), name.to_owned()), object);
    }
    let mut policy =
        policy(json!([configuration("Object{spec: Object.spec{size: object.spec.size + int(params.data.more)}}")]));
    policy["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let mut configured = Configured { params, ..configured(policy) };
    configured.mutation_bindings[0]["spec"]["paramRef"] = json!({"selector": {}, "parameterNotFoundAction": "Deny"});
    let server = Server::new(configured).await;
    assert_eq!(server.create("shop", "a", 1).await.unwrap().object().0["spec"]["size"], 43);
    let (code, reason, text) = refused(server.create("lab", "a", 1).await);
    assert_eq!((code, reason.as_str()), (403, "Forbidden"));
    assert_eq!(
        text,
        "policy 'defaults' with binding 'everywhere' denied request: failed to configure binding: no params found for \
         policy binding with `Deny` parameterNotFoundAction"
    );
}

#[tokio::test]
async fn unknown_param_kind_counts_as_policy_failure() {
    let mut policy = policy(json!([configuration("Object{spec: Object.spec{size: 5}}")]));
    policy["spec"]["paramKind"] = json!({"apiVersion": "example.com/v1", "kind": "Foo"});
    let text = "policy \"defaults\" denied request: failed to configure policy: failed to find resource referenced by \
                paramKind: 'example.com/v1, Kind=Foo'";
    assert_eq!(outcome(policy.clone()).await.unwrap_err(), (403, "Forbidden".to_owned(), text.to_owned()));
    policy["spec"]["failurePolicy"] = json!("Ignore");
    assert_eq!(outcome(policy).await.unwrap().0["size"], 1);
}

#[tokio::test]
async fn reinvocation_policy_reevaluates_mutations_after_webhook() {
    let size = async |reinvocation: &str| {
        let hooks = HookServer::start(|request| match request["object"]["spec"]["size"].as_i64() {
            Some(2) => patched(json!([{"op": "replace", "path": "/spec/size", "value": 10}])),
            _ => json!({"allowed": true}),
        })
        .await;
        let mut policy = policy(json!([configuration("Object{spec: Object.spec{size: object.spec.size + 1}}")]));
        policy["spec"]["reinvocationPolicy"] = reinvocation.into();
        let mutating = vec![("m", vec![hooks.hook("m.test.dev", "m")])];
        let server = Server::new(Configured { mutating, ..configured(policy) }).await;
        server.create("shop", "a", 1).await.unwrap().object().0["spec"]["size"].clone()
    };
    assert_eq!(size("Never").await, 10);
    assert_eq!(size("IfNeeded").await, 11);
}

#[tokio::test]
async fn policies_select_and_are_counted() {
    let mut narrow = policy(json!([configuration("Object{spec: Object.spec{size: 5}}")]));
    narrow["spec"]["matchConstraints"]["namespaceSelector"] = json!({"matchLabels": {"env": "test"}});
    let server = Server::new(configured(narrow)).await;
    assert_eq!(server.create("shop", "a", 1).await.unwrap().object().0["spec"]["size"], 1);
    assert_eq!(server.create("lab", "a", 1).await.unwrap().object().0["spec"]["size"], 5);
    server.update(Target::Main, super::support::gadget("a", 2)).await.unwrap();
    assert_eq!(
        server.metrics("apiserver_mutating_admission_policy_check_total"),
        [
            "apiserver_mutating_admission_policy_check_total{error_type=\"no_error\",policy=\"defaults\",policy_binding=\"everywhere\"} 1"
        ]
    );
}

#[tokio::test]
async fn what_is_deleted_is_not_evaluated() {
    let mut failing = policy(json!([configuration("Object{spec: Object.spec{size: 5}}")]));
    failing["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = json!(["*"]);
    // There is no object when one is deleted, so that the condition cannot be evaluated.
    failing["spec"]["matchConditions"] = json!([{"name": "small", "expression": "object.spec.size < 9"}]);
    let server = Server::new(configured(failing)).await;
    assert_eq!(server.create("shop", "a", 1).await.unwrap().object().0["spec"]["size"], 5);
    server.gadgets.delete(&server.context, "shop", "a", &DeleteOptions::default()).await.unwrap();
}
