//! Tests of imports, which change nothing before the next apply.

use std::sync::Arc;

use serde_json::{Value, json};
use stoa_apply::{Outcome, PlanError, Planned, Planning};
use stoa_engine::{
    Action, Problem, Spec,
    import::{ForeignRecord, Selected, Selection},
    problem::reason,
};
use stoa_runtime::{
    Runtime as _,
    fake::{FakeRuntime, Operation},
};

use crate::fixtures::{Stack, config_map, id, maps, spec, unplaced};

pub(crate) fn named(names: &[&str]) -> Selection {
    let selected = |name: &&str| Selected { id: id(name).as_str().into(), infrastructure_id: None };
    Selection { resources: names.iter().map(selected).collect(), ..Selection::default() }
}

fn all() -> Selection {
    Selection { all: true, ..Selection::default() }
}

pub(crate) async fn planned(stack: &Stack, spec: &Spec, selection: &Selection) -> Result<Planned, Vec<Problem>> {
    planned_by(stack.runtime(), stack, spec, selection).await
}

async fn planned_by(
    runtime: FakeRuntime,
    stack: &Stack,
    spec: &Spec,
    selection: &Selection,
) -> Result<Planned, Vec<Problem>> {
    let (state, spec_digest) = (stack.observer.state(), spec.digest());
    let planning = Planning {
        spec,
        spec_digest: &spec_digest,
        state: &state,
        destroy: false,
        refresh: false,
        keys: &stack.keys.0,
        forget_clusters: &[],
        hooks: None,
    };
    match stoa_apply::import(Arc::new(runtime), &planning, selection).await {
        Ok(planned) => Ok(planned),
        Err(PlanError::Problems(problems)) => Err(problems),
        Err(PlanError::Runtime(error)) => panic!("{error}"),
    }
}

async fn import(stack: &Stack, spec: &Spec, selection: &Selection) -> Outcome {
    let planned = planned(stack, spec, selection).await.unwrap();
    stack.execute(spec, &planned, &[]).await.unwrap()
}

/// A stack with unmanaged ConfigMaps on its infrastructure, each with the value 1.
fn with(names: &[&str]) -> Stack {
    let stack = Stack::default();
    for name in names {
        let mut object = config_map(name, &[], json!({"a": "1"}))["attributes"].clone();
        object["metadata"]["uid"] = json!(format!("uid-of-{name}"));
        stack.cloud.put(&id(name), object);
    }
    stack
}

fn changed(stack: &Stack) -> bool {
    [Operation::Apply, Operation::Delete].into_iter().any(|operation| !stack.cloud.called(operation).is_empty())
}

#[tokio::test]
async fn imported_resource_is_unchanged_until_apply() {
    let stack = with(&["a", "b"]);
    let wanted = spec(vec![config_map("a", &[], json!({"a": "2"})), config_map("b", &["a"], json!({"a": "1"}))]);
    let before = (stack.cloud.live(&id("a")), stack.cloud.live(&id("b")));
    let planned = planned(&stack, &wanted, &all()).await.unwrap();
    assert_eq!((planned.summary.import, planned.plan.actions.len()), (2, 2), "{}", planned.table);
    assert!(planned.table.contains(&format!("= import   {}", id("a"))), "{}", planned.table);
    assert!(stack.execute(&wanted, &planned, &[]).await.unwrap().succeeded);
    assert_eq!((stack.cloud.live(&id("a")), stack.cloud.live(&id("b"))), before, "not even a mark");
    assert!(!changed(&stack) && stack.observer.healths().is_empty());
    assert_eq!(stack.observer.record(&id("b")).depends_on, [id("a").as_str().into()]);
    assert!(stack.observer.record(&id("a")).is_only_found() && stack.observer.record(&id("a")).uid().is_some());

    // Once more there is nothing to do.
    assert!(planned_nothing(&stack, &wanted, &all()).await && planned_nothing(&stack, &wanted, &named(&["a"])).await);

    // Nobody calls it drift that an object is not yet as it is wanted, and what is alike gets its mark.
    let next = stack.plan(&wanted).await.unwrap();
    let told: Vec<_> =
        next.plan.actions.iter().map(|it| (it.action, it.drift, it.changes.len(), it.imported)).collect();
    assert_eq!(told, [(Action::Update, false, 1, true), (Action::Update, false, 0, true)], "{}", next.table);
    assert!(next.table.contains("it was imported; this is its first apply"), "{}", next.table);
    stack.bring(&wanted).await;
    for name in ["a", "b"] {
        assert!(stack.runtime().owner().has(&stack.cloud.live(&id(name)).unwrap()), "{name} bears the mark");
    }
    assert!(stack.plan(&wanted).await.unwrap().plan.is_unchanged());
    assert!(stack.destroy().await.succeeded);
    assert!(stack.cloud.ids().is_empty());
}

async fn planned_nothing(stack: &Stack, spec: &Spec, selection: &Selection) -> bool {
    planned(stack, spec, selection).await.unwrap().plan.actions.is_empty()
}

#[tokio::test]
async fn rejected_import_records_nothing() {
    let first = with(&["a", "c"]);
    first.bring(&maps(&[("a", &[])])).await;
    let second = first.beside("second");
    let wanted = maps(&[("a", &[]), ("b", &[]), ("c", &[])]);
    let problems = planned(&second, &wanted, &named(&["a", "b", "c"])).await.unwrap_err();
    let told: Vec<_> = problems.iter().map(|it| (it.resource_id.as_ref().unwrap().0.clone(), &*it.reason)).collect();
    assert_eq!(told, [(id("a"), reason::OWNED_BY_ANOTHER), (id("b"), reason::NOT_THERE)]);
    assert!(second.observer.intents().is_empty() && second.observer.state().resources.is_empty());
    let problems = planned(&second, &maps(&[("a", &[])]), &named(&["c"])).await.unwrap_err();
    assert_eq!(problems[0].reason, reason::NOT_IN_SPEC);
    // With everything else, what is not to be had is passed over.
    assert!(import(&second, &wanted, &all()).await.succeeded);
    assert_eq!(second.observer.results(), [format!("Done {}", id("c"))]);
}

/// A stack with unmanaged ConfigMaps in files, each with the value 1.
fn in_files(names: &[&str]) -> Stack {
    let stack = Stack::default();
    for name in names {
        stack.cloud.put(&id(name), config_map(name, &[], json!({"a": "1"}))["attributes"].clone());
    }
    stack
}

#[tokio::test]
async fn object_in_file_is_imported_by_identity() {
    let stack = in_files(&["a", "b"]);
    let wanted = maps(&[("a", &[]), ("b", &[])]);
    let runtime = || stack.runtime().deferred();
    let planned = planned_by(runtime(), &stack, &wanted, &named(&["a", "b"])).await.unwrap();
    assert_eq!(planned.summary.import, 2, "{}", planned.table);
    let execute = async |spec: &Spec, planned: &Planned| {
        let outcome =
            stack.execute_with(Arc::new(runtime()), spec, planned, &[], &crate::fixtures::options()).await.unwrap();
        assert!(outcome.succeeded && outcome.commit.is_none(), "{outcome:?}");
    };
    execute(&wanted, &planned).await;
    assert!(!changed(&stack) && stack.cloud.called(Operation::Finish).is_empty());
    assert!(stack.observer.record(&id("a")).is_only_found());

    // What is alike stays, and an Apply records its fields.
    let next = stack.planned(Arc::new(runtime()), &wanted, false).await.unwrap();
    assert!(next.plan.is_unchanged(), "{}", next.table);
    let other = spec(vec![config_map("a", &[], json!({"a": "2"})), config_map("b", &[], json!({"a": "1"}))]);
    let next = stack.planned(Arc::new(runtime()), &other, false).await.unwrap();
    assert_eq!((next.summary.update, next.summary.unchanged), (1, 1), "{}", next.table);
    assert!(next.table.contains("it was imported; this is its first apply"), "{}", next.table);
}

#[tokio::test]
async fn file_import_reports_missing_and_encrypted_objects() {
    let stack = in_files(&["a", "b"]);
    let mut encrypted = config_map("b", &[], json!({"a": "ENC[AES256_GCM,data:x]"}))["attributes"].clone();
    encrypted["sops"] = json!({"mac": "ENC[AES256_GCM,data:x]", "version": "3.9.0"});
    stack.cloud.put(&id("b"), encrypted.clone());
    let wanted = maps(&[("a", &[]), ("b", &[]), ("c", &[])]);
    let plan = async |spec: &Spec, selection: &Selection| {
        planned_by(stack.runtime().deferred(), &stack, spec, selection).await
    };
    let problems = plan(&wanted, &named(&["a", "b", "c"])).await.unwrap_err();
    let told: Vec<String> = problems.iter().map(|it| format!("{} {}", it.reason, it.message)).collect();
    assert!(
        told[0].starts_with("InvalidResource its file is encrypted by SOPS, and the manifest in the source is not"),
        "{told:?}"
    );
    assert!(told[1].starts_with("NotThere no file in the folder of the Workspace has this object"), "{told:?}");
    assert_eq!(told.len(), 2);
    // The same encrypted manifest is the object.
    let mut same = config_map("b", &[], json!({}));
    same["attributes"] = encrypted;
    let wanted = spec(vec![config_map("a", &[], json!({"a": "1"})), same, config_map("c", &[], json!({"a": "1"}))]);
    assert_eq!(plan(&wanted, &all()).await.unwrap().summary.import, 2);
}

#[tokio::test]
async fn file_that_left_or_has_owner_is_not_imported() {
    let wanted = maps(&[("a", &[])]);
    let marked = |stack: &Stack| {
        let owner = stack.beside("second").runtime().owner().clone();
        stack.cloud.put(&id("a"), Value::Object(owner.marked(&stack.cloud.live(&id("a")).unwrap())));
    };
    let changes: [&dyn Fn(&Stack); 2] = [&marked, &|stack| stack.cloud.remove(&id("a"))];
    for change in changes {
        let stack = in_files(&["a"]);
        let planned = planned_by(stack.runtime().deferred(), &stack, &wanted, &named(&["a"])).await.unwrap();
        change(&stack);
        let runtime = Arc::new(stack.runtime().deferred());
        let outcome = stack.execute_with(runtime, &wanted, &planned, &[], &crate::fixtures::options()).await.unwrap();
        assert_eq!(outcome.problems[0].reason, reason::STALE_PLAN, "{outcome:?}");
        assert!(stack.observer.state().resources.is_empty() && stack.observer.state().open.is_empty());
    }
}

#[tokio::test]
async fn object_with_new_owner_is_not_imported() {
    let wanted = maps(&[("a", &[])]);
    let replaced = |stack: &Stack| {
        let mut live = stack.cloud.live(&id("a")).unwrap();
        live["metadata"]["uid"] = json!("another");
        stack.cloud.put(&id("a"), Value::Object(live));
    };
    let marked = |stack: &Stack| {
        let live = stack.cloud.live(&id("a")).unwrap();
        let second = stack.beside("second");
        stack.cloud.put(&id("a"), Value::Object(second.runtime().owner().marked(&live)));
    };
    let removed = |stack: &Stack| stack.cloud.remove(&id("a"));
    let changes: [&dyn Fn(&Stack); 3] = [&replaced, &marked, &removed];
    for change in changes {
        let stack = with(&["a"]);
        let planned = planned(&stack, &wanted, &named(&["a"])).await.unwrap();
        change(&stack);
        let outcome = stack.execute(&wanted, &planned, &[]).await.unwrap();
        assert_eq!(outcome.problems[0].reason, reason::STALE_PLAN, "{outcome:?}");
        assert!(
            stack.observer.state().resources.is_empty() && stack.observer.state().open.is_empty() && !changed(&stack)
        );
    }
}

#[tokio::test]
async fn interrupted_import_resumes() {
    let wanted = maps(&[("a", &[]), ("b", &[]), ("c", &[])]);
    for results in 0..3 {
        let stack = with(&["a", "b", "c"]);
        let planned = planned(&stack, &wanted, &all()).await.unwrap();
        stack.observer.leave_after(results);
        stack.execute(&wanted, &planned, &[]).await.unwrap_err();
        stack.observer.stay();
        // Its own next try, and that of another run that plans anew.
        let again = stack.execute(&wanted, &planned, &stack.observer.done()).await.unwrap();
        assert!(again.succeeded, "after {results}: {again:?}");
        assert_eq!(stack.observer.state().resources.len(), 3);
        assert!(stack.observer.state().open.is_empty() && !changed(&stack));
    }
    let stack = with(&["a", "b", "c"]);
    let planned = planned(&stack, &wanted, &all()).await.unwrap();
    stack.observer.leave_after(1);
    stack.execute(&wanted, &planned, &[]).await.unwrap_err();
    stack.observer.stay();
    assert!(import(&stack, &wanted, &all()).await.succeeded);
    assert_eq!(stack.observer.state().resources.len(), 3);
    assert!(!changed(&stack));
}

#[tokio::test]
async fn foreign_record_outside_spec_is_deleted_by_next_apply() {
    let stack = with(&["a", "old"]);
    let record = |name: &str| ForeignRecord {
        id: id(name).as_str().into(),
        depends_on: Vec::new(),
        extensions: serde_json::Map::new(),
        unplaced: false,
        ..ForeignRecord::default()
    };
    let records = ["a", "old", "gone"].map(record).to_vec();
    let wanted = maps(&[("a", &[])]);
    let selection = Selection { records, ..Selection::default() };
    let planned = planned(&stack, &wanted, &selection).await.unwrap();
    assert_eq!(planned.notes, [format!("{} no longer exists and is not recorded", id("gone"))]);
    assert!(stack.execute(&wanted, &planned, &[]).await.unwrap().succeeded);
    assert!(!changed(&stack));
    let next = stack.plan(&wanted).await.unwrap();
    let actions: Vec<_> = next.plan.actions.iter().map(|it| (it.id.0.clone(), it.action)).collect();
    assert_eq!(actions, [(id("a"), Action::Update), (id("old"), Action::Delete)]);
    stack.bring(&wanted).await;
    assert_eq!(stack.cloud.ids(), [id("a").as_str().into()]);
}

#[tokio::test]
async fn object_without_namespace_is_imported() {
    let a = "v1:ConfigMap:default:a";
    let with = || {
        let stack = Stack::default();
        let mut object = unplaced("a", json!({"a": "1"}))["attributes"].clone();
        object["metadata"]["uid"] = json!("u");
        stack.cloud.put(a, object);
        stack
    };
    let (stack, wanted) = (with(), spec(vec![unplaced("a", json!({"a": "1"}))]));
    let outcome = import(&stack, &wanted, &all()).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(stack.observer.record(a).uid(), Some("u"));
    assert!(stack.observer.record(a).is_only_found() && planned_nothing(&stack, &wanted, &all()).await);
    stack.bring(&wanted).await;
    assert!(stack.destroy().await.succeeded);
    assert!(stack.cloud.ids().is_empty());

    // Another system has it on record, and nobody wants it.
    let stack = with();
    let record = ForeignRecord {
        id: a.into(),
        depends_on: Vec::new(),
        extensions: serde_json::Map::new(),
        unplaced: true,
        ..ForeignRecord::default()
    };
    let selection = Selection { records: vec![record], ..Selection::default() };
    let outcome = import(&stack, &spec(Vec::new()), &selection).await;
    assert!(outcome.succeeded, "{outcome:?}");
    stack.bring(&spec(Vec::new())).await;
    assert!(stack.cloud.ids().is_empty());
}

#[tokio::test]
async fn imported_object_is_not_deleted() {
    let stack = with(&["a", "b"]);
    let imported = |names: &[&str]| {
        let of = |name: &&str| {
            let mut map = config_map(name, &[], json!({"a": "2"}));
            map["extensions"] = json!({"kusionstack.io/import-id": format!("shop/{name}")});
            map
        };
        spec(names.iter().map(of).collect())
    };
    assert!(import(&stack, &imported(&["a", "b"]), &all()).await.succeeded);
    stack.bring(&imported(&["a", "b"])).await;
    let planned = stack.plan(&imported(&["a"])).await.unwrap();
    assert!(planned.table.contains("it was imported and is not deleted"), "{}", planned.table);
    stack.bring(&imported(&["a"])).await;
    assert!(stack.destroy().await.succeeded);
    assert_eq!(stack.cloud.ids().len(), 2);
    assert!(stack.observer.state().resources.is_empty());
    assert_eq!(stack.observer.result(&id("a")).message, "it was imported and is not deleted");
}
