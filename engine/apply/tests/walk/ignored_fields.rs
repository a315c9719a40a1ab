//! Tests of ignored fields.

use serde_json::{Value, json};
use stoa_engine::{Spec, ignore::IGNORE_FIELDS, problem::reason};
use stoa_runtime::fake::Operation;

use crate::fixtures::{Stack, config_map, id, names, secret, spec};

/// A ConfigMap that leaves `data.theirs` to others, and one with what it is.
fn wanted(ours: &str, theirs: &str) -> Spec {
    let mut map = config_map("a", &[], json!({"ours": ours, "theirs": theirs}));
    map["extensions"] = json!({IGNORE_FIELDS: ["data.theirs"]});
    let reference = format!("$kusion_path.{}.data.theirs", id("a"));
    spec(vec![map, config_map("b", &[], json!({"copy": reference}))])
}

fn set(stack: &Stack, value: &str) {
    let mut live = Value::Object(stack.cloud.live(&id("a")).unwrap());
    live["data"]["theirs"] = json!(value);
    stack.cloud.put(&id("a"), live);
}

fn data(stack: &Stack, name: &str) -> Value {
    stack.cloud.live(&id(name)).unwrap()["data"].clone()
}

#[tokio::test]
async fn ignored_field_is_written_on_creation_only() {
    let stack = Stack::default();
    stack.bring(&wanted("1", "at first")).await;
    assert_eq!(data(&stack, "a"), json!({"ours": "1", "theirs": "at first"}));
    set(&stack, "moved");
    let planned = stack.plan(&wanted("1", "at first")).await.unwrap();
    assert_eq!(
        planned.table,
        "~ update   v1:ConfigMap:shop:b\n    data.copy: \"at first\" → \"moved\"\n\nPlan: 1 to update; 1 unchanged.\n"
    );
    assert_eq!(names(&stack.cloud.called(Operation::Preview)), ["b"], "no drift, nothing to ask");
    stack.bring(&wanted("2", "written anew")).await;
    assert_eq!(data(&stack, "a"), json!({"ours": "2", "theirs": "moved"}));
    assert_eq!(data(&stack, "b"), json!({"copy": "moved"}), "what is referred to is what is there");
    assert!(stack.plan(&wanted("2", "and again")).await.unwrap().plan.is_unchanged());

    stack.cloud.remove(&id("a"));
    stack.bring(&wanted("2", "again")).await;
    assert_eq!(data(&stack, "a"), json!({"ours": "2", "theirs": "again"}), "what is made anew has all that is written");
}

#[tokio::test]
async fn ignored_sensitive_field_is_neither_recorded_nor_shown() {
    let stack = Stack::default();
    let wanted = |data: Value, ignored: Value| {
        let mut map = config_map("a", &[], data);
        map["extensions"] = json!({ IGNORE_FIELDS: ignored });
        spec(vec![secret("db", json!({"password": "hunter2"})), map])
    };
    let password = "$kusion_path.v1:Secret:shop:db.stringData.password";
    stack.bring(&wanted(json!({"x": "1", "pw": password}), json!([]))).await;
    for x in ["2", "3"] {
        stack.bring(&wanted(json!({ "x": x }), json!(["data.pw"]))).await;
        assert_eq!(data(&stack, "a"), json!({"x": x, "pw": "hunter2"}));
        let record = format!("{:?}", stack.observer.record(&id("a")));
        assert!(!record.contains("hunter2"), "{record}");
    }
    let table = stack.plan(&wanted(json!({"x": "4", "pw": "y"}), json!([]))).await.unwrap().table;
    assert!(table.contains("(sensitive)") && !table.contains("hunter2"), "{table}");
}

#[tokio::test]
async fn ignored_field_does_not_make_plan_stale() {
    let stack = Stack::default();
    let wanted = |value: &str| {
        let mut map = config_map("a", &[], json!({"ours": value, "theirs": "x"}));
        map["extensions"] = json!({IGNORE_FIELDS: "data.theirs"});
        spec(vec![map])
    };
    stack.bring(&wanted("1")).await;
    let planned = stack.plan(&wanted("2")).await.unwrap();
    set(&stack, "moved");
    assert_eq!(stack.plan(&wanted("2")).await.unwrap().digest, planned.digest);
    stack.execute(&wanted("2"), &planned, &[]).await.unwrap();
    assert_eq!(data(&stack, "a"), json!({"ours": "2", "theirs": "moved"}));
}

#[tokio::test]
async fn invalid_ignored_field_is_reported_with_resource() {
    let stack = Stack::default();
    let mut map = config_map("a", &[], json!({}));
    map["extensions"] = json!({IGNORE_FIELDS: ["metadata.name"]});
    let problems = stack.refusal(stack.runtime(), &spec(vec![map])).await;
    let told: Vec<_> = problems.iter().map(|it| (it.reason.as_str(), it.to_string())).collect();
    let message = format!(
        "{}: extensions[\"{IGNORE_FIELDS}\"]: `metadata.name` identifies the object and cannot be ignored",
        id("a")
    );
    assert_eq!(told, [(reason::INVALID_RESOURCE, message)]);
}
