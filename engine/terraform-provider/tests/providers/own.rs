//! Our own providers, which fail on request: `frame` with the current library, and `legacy` with the older one.

use std::time::Duration;

use stoa_terraform_provider::change::{Applied, ChangeError, Object, Step, apply, plan};
use stoa_terraform_provider::checks::Action;
use stoa_terraform_provider::process::DirectLauncher;
use stoa_terraform_provider::proposed::ignore::IgnoreChanges;
use stoa_terraform_provider::protocol::{
    Call, CallError, ImportRequest, Limits, MoveRequest, Protocol, Provider, RawState,
};
use stoa_terraform_provider::value::{Json, Path, Value};

use crate::support::{self, changed, config, refreshed, text};

/// Both providers with their resources, each with a folder for its objects.
const BOTH: [(&str, &str); 2] = [("frame", "frame_thing"), ("legacy", "legacy_thing")];

async fn start(provider: &str, folder: &tempfile::TempDir) -> Option<Provider> {
    support::configured(provider, &format!(r#"{{"folder":{:?}}}"#, folder.path())).await
}

/// One step of a change.
async fn step(provider: &Provider, resource: &str, prior: Option<Object>, config: &Value) -> Applied {
    let plan = plan(provider, resource, prior, config, None).await.unwrap();
    apply(provider, &plan, plan.steps()[0], config).await.unwrap()
}

#[tokio::test]
async fn objects_with_everything_live_their_whole_life() {
    let folder = tempfile::tempdir().unwrap();
    let Some(provider) = start("frame", &folder).await else { return };
    assert_eq!(provider.protocol(), Protocol::V6);
    let resource = "frame_thing";
    let everything = |extra: &str| {
        let text = format!(
            r#"{{"name":"n","size":123456789012345678901234567890.5,"any":{{"k":[1,null]}},"tags":["b","a"],
                "labels":{{"x":1}},"secret":"s","write_only":"w","single":{{"a":"1"}},"list":[{{"a":"1"}},{{"c":"2"}}],
                "set":[{{"a":"1"}},{{"a":"2"}}],"map":{{"k":{{"a":"1"}}}},"single_block":{{"a":"1"}},
                "list_block":[{{"a":"1"}}],"set_block":[{{"a":"1"}},{{"c":"3"}}]{extra}}}"#
        );
        config(&provider, resource, &text)
    };
    let (action, created) = changed(&provider, resource, None, &everything("")).await;
    assert_eq!(action, Action::Create);
    let object = created.as_ref().unwrap();
    assert_eq!(object.state.get("write_only"), Some(&Value::Null));
    assert_eq!(std::fs::read_to_string(folder.path().join("id-n")).unwrap(), "w");
    assert_eq!(object.state.at(&Path::attribute("list").index(0).name("b")), Some(&Value::string("computed b")));

    let read = refreshed(&provider, resource, object).await;
    let (action, same) = changed(&provider, resource, read, &everything("")).await;
    assert_eq!(action, Action::NoOp, "{same:?}");
    let (action, updated) = changed(&provider, resource, same, &everything(r#","both":"new""#)).await;
    assert_eq!((action, text(&updated, "both")), (Action::Update, "new"));
    // Removal of an optional and computed value is invisible, while the provider plans others anew.
    let (_, object) = changed(&provider, resource, updated, &everything("")).await;
    assert_eq!(text(&object, "both"), "new");
    let (action, deleted) = changed(&provider, resource, object, &Value::Null).await;
    assert_eq!((action, deleted), (Action::Delete, None));
    assert!(!folder.path().join("id-n").exists());
    assert!(provider.process().output().last_lines().contains(&"configured".to_owned()));
}

#[tokio::test]
async fn a_changed_name_replaces_the_object() {
    for (name, resource) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let Some(provider) = start(name, &folder).await else { return };
        let (_, one) = changed(&provider, resource, None, &config(&provider, resource, r#"{"name":"one"}"#)).await;
        let two = config(&provider, resource, r#"{"name":"two"}"#);
        let planned = plan(&provider, resource, one.clone(), &two, None).await.unwrap();
        assert_eq!(planned.action, Action::Replace);
        assert!(planned.planned.get("id").unwrap().is_unknown());
        let (_, object) = changed(&provider, resource, one, &two).await;
        assert_eq!(text(&object, "id"), "id-two");
        let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(files, ["id-two"]);
    }
}

#[tokio::test]
async fn failed_creates_leave_nothing_or_a_tainted_object() {
    for (name, resource) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let Some(provider) = start(name, &folder).await else { return };
        let failing = |fault: &str| config(&provider, resource, &format!(r#"{{"name":"n","fail":"create:{fault}"}}"#));
        let applied = step(&provider, resource, None, &failing("error")).await;
        assert!(applied.diagnostics.has_errors() && applied.object.is_none());
        let applied = step(&provider, resource, None, &failing("half")).await;
        assert!(applied.diagnostics.has_errors() && applied.object.as_ref().unwrap().tainted);
        assert_eq!(text(&applied.object, "id"), "id-n");
        let good = config(&provider, resource, r#"{"name":"n"}"#);
        let (action, object) = changed(&provider, resource, applied.object, &good).await;
        assert_eq!(action, Action::Replace);
        assert!(!object.unwrap().tainted);
    }
}

#[tokio::test]
async fn failed_updates_of_older_libraries_are_read_before_they_count() {
    for (name, resource) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let Some(provider) = start(name, &folder).await else { return };
        let (_, object) = changed(&provider, resource, None, &config(&provider, resource, r#"{"name":"n"}"#)).await;
        let failing = config(&provider, resource, r#"{"name":"n","both":"x","fail":"update:error"}"#);
        let applied = step(&provider, resource, object.clone(), &failing).await;
        assert!(applied.diagnostics.has_errors());
        assert_eq!(applied.read_first, name == "legacy");
        let after = applied.object.unwrap();
        assert!(!after.tainted);
        // The older library answers as if the update had succeeded.
        let both = after.state.get("both").unwrap() == &Value::string("x");
        assert_eq!(both, name == "legacy");
    }
}

#[tokio::test]
async fn failed_deletes_leave_the_object() {
    for (name, resource) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let Some(provider) = start(name, &folder).await else { return };
        let failing = config(&provider, resource, r#"{"name":"n","fail":"delete:error"}"#);
        let (_, object) = changed(&provider, resource, None, &failing).await;
        let applied = step(&provider, resource, object.clone(), &Value::Null).await;
        assert!(applied.diagnostics.has_errors());
        assert_eq!(applied.object, object);
    }
}

#[tokio::test]
async fn a_provider_that_panics_is_a_crash_of_all_calls() {
    for (name, resource) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let Some(provider) = start(name, &folder).await else { return };
        let failing = config(&provider, resource, r#"{"name":"n","fail":"create:panic"}"#);
        let hanging = config(&provider, resource, r#"{"name":"m","fail":"create:hang"}"#);
        let hanging_plan = plan(&provider, resource, None, &hanging, None).await.unwrap();
        let failing_plan = plan(&provider, resource, None, &failing, None).await.unwrap();
        let (panics, hangs) = tokio::join!(
            apply(&provider, &failing_plan, Step::Create, &failing),
            apply(&provider, &hanging_plan, Step::Create, &hanging),
        );
        for error in [panics.unwrap_err(), hangs.unwrap_err()] {
            let ChangeError::Call(CallError::Crashed { exit, last_lines, .. }) = &error else { panic!("{error}") };
            assert_eq!(exit, "exit status: 2");
            assert!(!error.to_string().contains("asks for it"), "{error}");
            assert!(last_lines.iter().any(|line| line.contains("the configuration asks for it")), "{last_lines:?}");
        }
    }
}

#[tokio::test]
async fn a_stop_ends_calls_that_hang() {
    for (name, resource) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let Some(provider) = start(name, &folder).await else { return };
        let hanging = config(&provider, resource, r#"{"name":"n","fail":"create:hang"}"#);
        let planned = plan(&provider, resource, None, &hanging, None).await.unwrap();
        let hang = apply(&provider, &planned, Step::Create, &hanging);
        let stop = async {
            // The stop may be earlier than the call, which then hangs until the next one.
            let mut interval = tokio::time::interval(Duration::from_millis(50));
            loop {
                interval.tick().await;
                provider.stop().await.unwrap();
            }
        };
        let applied = tokio::select! { applied = hang => applied.unwrap(), () = stop => unreachable!() };
        assert!(applied.diagnostics.has_errors() && applied.object.is_none());
    }
}

#[tokio::test]
async fn rejected_plans_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let Some(provider) = start("frame", &folder).await else { return };
    let failing = config(&provider, "frame_thing", r#"{"name":"n","fail":"plan:error"}"#);
    let error = plan(&provider, "frame_thing", None, &failing, None).await.unwrap_err();
    assert_eq!(error.to_string(), "the provider rejected frame_thing: fail: Failed: The configuration asks for it.");
}

#[tokio::test]
async fn private_data_reach_the_update() {
    let folder = tempfile::tempdir().unwrap();
    let Some(provider) = start("frame", &folder).await else { return };
    let resource = "frame_thing";
    let (_, object) = changed(&provider, resource, None, &config(&provider, resource, r#"{"name":"n"}"#)).await;
    let changed = config(&provider, resource, r#"{"name":"n","secret":"x"}"#);
    let applied = step(&provider, resource, object.clone(), &changed).await;
    assert!(applied.diagnostics.0.is_empty(), "{:?}", applied.diagnostics);
    let forgotten = object.map(|it| Object { private: Vec::new().into(), ..it });
    let applied = step(&provider, resource, forgotten, &changed).await;
    assert_eq!(applied.diagnostics.0[0].summary, "No private data");
}

#[tokio::test]
async fn older_states_are_upgraded_and_newer_ones_rejected() {
    for (name, resource) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let Some(provider) = start(name, &folder).await else { return };
        let old = Json::parse(br#"{"id":"id-n","title":"n"}"#).unwrap();
        let upgraded = provider.upgrade_state(resource, RawState { version: 0, json: &old }).await.unwrap();
        support::succeeded(&upgraded.diagnostics);
        assert_eq!(upgraded.state.get("name"), Some(&Value::string("n")));
        let error = provider.upgrade_state(resource, RawState { version: 2, json: &old }).await.unwrap_err();
        assert!(matches!(error, CallError::NewerState { stored: 2, known: 1, .. }), "{error}");
        let null = provider.upgrade_state(resource, RawState { version: 1, json: &Json::Null }).await.unwrap();
        assert!(null.state.is_null());
    }
}

#[tokio::test]
async fn imported_objects_exist_only_if_a_read_finds_them() {
    for (name, resource) in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let Some(provider) = start(name, &folder).await else { return };
        let imported = provider.import(resource, ImportRequest::Id("id-n")).await.unwrap();
        let object = Object { state: imported.state, private: imported.private, identity: None, tainted: false };
        assert_eq!(refreshed(&provider, resource, &object).await, None);
        std::fs::write(folder.path().join("id-n"), "").unwrap();
        let object = refreshed(&provider, resource, &object).await;
        assert_eq!(text(&object, "name"), "n");
    }
}

#[tokio::test]
async fn states_of_other_types_move() {
    let Some(provider) = support::start("frame").await else { return };
    let state = Json::parse(br#"{"id":"id-n","name":"n"}"#).unwrap();
    let request = |source_type| MoveRequest {
        source_provider: "registry.terraform.io/stoa/other",
        source_type,
        source: RawState { version: 0, json: &state },
        source_private: &[],
        source_identity: None,
    };
    let moved = provider.move_state("frame_thing", request("other_thing")).await.unwrap();
    support::succeeded(&moved.diagnostics);
    assert_eq!(moved.state.get("name"), Some(&Value::string("n")));
    let rejected = provider.move_state("frame_thing", request("unrelated")).await.unwrap();
    assert!(rejected.diagnostics.to_string().contains("Unable to Move Resource State"), "{:?}", rejected.diagnostics);
}

#[tokio::test]
async fn identities_are_sent_back() {
    let Some(provider) = support::start("frame").await else { return };
    let resource = "frame_named";
    let (_, object) = changed(&provider, resource, None, &config(&provider, resource, r#"{"name":"n"}"#)).await;
    let identity = Value::object([("name", Value::string("n"))]);
    assert_eq!(object.as_ref().unwrap().identity.as_ref(), Some(&identity));
    let read = refreshed(&provider, resource, object.as_ref().unwrap()).await;
    assert_eq!(read, object);
    let (_, updated) =
        changed(&provider, resource, read, &config(&provider, resource, r#"{"name":"n","note":"x"}"#)).await;
    assert_eq!(updated.unwrap().identity, Some(identity.clone()));

    let imported = provider.import(resource, ImportRequest::Identity(&identity)).await.unwrap();
    assert_eq!(imported.identity.as_ref(), Some(&identity));
    let stored = Json::parse(br#"{"name":"n"}"#).unwrap();
    let (same, _) = provider.upgrade_identity(resource, 1, &stored).await.unwrap();
    assert_eq!(same.as_ref(), Some(&identity));
    let old = Json::parse(br#"{"title":"n"}"#).unwrap();
    let (upgraded, _) = provider.upgrade_identity(resource, 0, &old).await.unwrap();
    assert_eq!(upgraded, Some(identity));
    let error = provider.upgrade_identity(resource, 2, &old).await.unwrap_err();
    assert!(matches!(error, CallError::NewerState { .. }), "{error}");
}

#[tokio::test]
async fn older_libraries_plan_nothing_for_suppressed_differences() {
    let folder = tempfile::tempdir().unwrap();
    let Some(provider) = start("legacy", &folder).await else { return };
    assert_eq!(provider.protocol(), Protocol::V5);
    assert!(!provider.schemas().capabilities.plan_destroy);
    let resource = "legacy_thing";
    let with = |extra: &str| config(&provider, resource, &format!(r#"{{"name":"n"{extra}}}"#));
    let all = with(
        r#","anycase":"Text","digest":"input","tags":["a"],"write_only":"w","size":1.5,
                    "list_block":[{"a":"1"}],"set_block":{"a":"1"},"timeouts":{"create":"10s"}"#,
    );
    let (_, object) = changed(&provider, resource, None, &all).await;
    // The state has the digest of the input, and both collections of blocks are there.
    assert_eq!(text(&object, "digest").len(), 8);
    assert_eq!(text(&object, "both"), "computed both");
    let read = refreshed(&provider, resource, object.as_ref().unwrap()).await;
    let same = with(
        r#","anycase":"TEXT","digest":"input","tags":["a"],"size":1.5,
                    "list_block":[{"a":"1"}],"set_block":[{"a":"1"}],"timeouts":{"create":"20s"}"#,
    );
    let (action, _) = changed(&provider, resource, read.clone(), &same).await;
    assert_eq!(action, Action::NoOp);
    let (action, _) = changed(&provider, resource, read, &Value::Null).await;
    assert_eq!(action, Action::Delete);
}

#[tokio::test]
async fn data_sources_have_values_of_any_type() {
    let Some(provider) = support::start("frame").await else { return };
    let schema = &provider.schemas().data_sources["frame_echo"];
    let config = schema.configuration(support::json(r#"{"value":{"k":[1,"x"]}}"#)).unwrap();
    support::succeeded(&provider.validate_data_source("frame_echo", &config).await.unwrap());
    let answer = provider.read_data_source("frame_echo", &config).await.unwrap();
    assert_eq!(answer.state.get("value"), config.get("value"));
    assert_eq!(answer.state.get("text"), Some(&Value::string(r#"{"k":[1,"x"]}"#)));
}

#[tokio::test]
async fn values_of_many_mebibytes_are_planned() {
    let Some(provider) = support::start("frame").await else { return };
    let secret = Value::string("x".repeat(6 << 20));
    let schema = &provider.schemas().resources["frame_thing"];
    let config = Value::object([("name", Value::string("n")), ("secret", secret.clone())]);
    let config = schema.configuration(config).unwrap();
    let (_, object) = changed(&provider, "frame_thing", None, &config).await;
    assert_eq!(object.unwrap().state.get("secret"), Some(&secret));
}

#[tokio::test]
async fn calls_have_limits() {
    let Some(options) = support::options("frame") else { return };
    let limits = Limits { read: Duration::from_secs(5), answer: 1000, ..Limits::default() };
    let provider = Provider::start(&DirectLauncher, &options, limits, None).await.unwrap();
    let hanging = config(&provider, "frame_thing", r#"{"name":"n","fail":"plan:hang"}"#);
    let error = plan(&provider, "frame_thing", None, &hanging, None).await.unwrap_err();
    let ChangeError::Call(CallError::TimedOut { call: Call::PlanResourceChange, .. }) = &error else {
        panic!("{error}")
    };
    let large = format!(r#"{{"name":"n","secret":{:?}}}"#, "x".repeat(2000));
    let large = config(&provider, "frame_thing", &large);
    let error = plan(&provider, "frame_thing", None, &large, None).await.unwrap_err();
    let ChangeError::Call(CallError::Failed { source, .. }) = &error else { panic!("{error}") };
    assert!(source.message().contains("too large"), "{source}");
    // Neither failure ends the process.
    assert!(provider.process().exit().is_none());
}

#[tokio::test]
async fn calls_share_a_process() {
    let Some(provider) = support::start("frame").await else { return };
    let configs: Vec<_> =
        (0..16).map(|it| config(&provider, "frame_thing", &format!(r#"{{"name":"n{it}"}}"#))).collect();
    let changes = configs.iter().map(|config| changed(&provider, "frame_thing", None, config));
    let objects = futures_util::future::join_all(changes).await;
    for (index, (_, object)) in objects.iter().enumerate() {
        assert_eq!(text(object, "id"), format!("id-n{index}"));
    }
}

#[tokio::test]
async fn an_update_to_the_same_values_is_no_call() {
    let folder = tempfile::tempdir().unwrap();
    let Some(provider) = start("frame", &folder).await else { return };
    let resource = "frame_thing";
    // Each update of this object fails.
    let known = config(&provider, resource, r#"{"name":"n","secret":"s","fail":"update:error"}"#);
    let (_, object) = changed(&provider, resource, None, &known).await;
    let unknown = Value::object([
        ("name", Value::string("n")),
        ("secret", Value::Unknown),
        ("fail", Value::string("update:error")),
    ]);
    let unknown = provider.schemas().resources[resource].configuration(unknown).unwrap();
    let planned = plan(&provider, resource, object.clone(), &unknown, None).await.unwrap();
    assert_eq!(planned.action, Action::Update);
    let applied = apply(&provider, &planned, Step::Update, &known).await.unwrap();
    support::succeeded(&applied.diagnostics);
    assert_eq!(applied.object, object);
}

#[tokio::test]
async fn ignored_changes_are_not_planned_but_created() {
    let folder = tempfile::tempdir().unwrap();
    let Some(provider) = start("frame", &folder).await else { return };
    let resource = "frame_thing";
    let one = config(&provider, resource, r#"{"name":"n","secret":"one"}"#);
    let ignored = IgnoreChanges::Paths(vec![Path::attribute("secret")]);
    let (_, object) = changed(&provider, resource, None, &one).await;
    let two = config(&provider, resource, r#"{"name":"n","secret":"two"}"#);
    let planned = plan(&provider, resource, object.clone(), &two, Some(&ignored)).await.unwrap();
    assert_eq!(planned.action, Action::NoOp);
    let updated = config(&provider, resource, r#"{"name":"n","secret":"two","both":"x"}"#);
    let planned = plan(&provider, resource, object.clone(), &updated, Some(&ignored)).await.unwrap();
    let applied = apply(&provider, &planned, Step::Update, &updated).await.unwrap();
    assert_eq!((text(&applied.object, "both"), text(&applied.object, "secret")), ("x", "one"));
    // The create of a replacement has the configuration as it is.
    let other = config(&provider, resource, r#"{"name":"m","secret":"two"}"#);
    let planned = plan(&provider, resource, applied.object, &other, Some(&ignored)).await.unwrap();
    assert_eq!(planned.planned.get("secret"), Some(&Value::string("two")));
    let applied = apply(&provider, &planned, Step::Create, &other).await.unwrap();
    assert_eq!(text(&applied.object, "secret"), "two");
}
