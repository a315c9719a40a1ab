//! Whole lives of resources of HashiCorp's providers, their data sources and their functions.

use stoa_terraform_provider::change::{Object, Step, apply, plan};
use stoa_terraform_provider::checks::Action;
use stoa_terraform_provider::protocol::{CallError, ImportRequest};
use stoa_terraform_provider::value::{Path, Value};

use crate::support::{self, changed, config, refreshed, text};

#[tokio::test]
async fn a_random_string_lives_its_whole_life() {
    let Some(provider) = support::start("random").await else { return };
    let resource = "random_string";
    let eight = config(&provider, resource, r#"{"length":8}"#);
    let (action, created) = changed(&provider, resource, None, &eight).await;
    assert_eq!((action, text(&created, "result").len()), (Action::Create, 8));

    let read = refreshed(&provider, resource, created.as_ref().unwrap()).await;
    assert_eq!(read, created);
    let (action, same) = changed(&provider, resource, read, &eight).await;
    assert_eq!((action, &same), (Action::NoOp, &created));

    let nine = config(&provider, resource, r#"{"length":9}"#);
    let replacement = plan(&provider, resource, same.clone(), &nine, None).await.unwrap();
    assert_eq!(replacement.action, Action::Replace);
    assert_eq!(replacement.steps(), [Step::Delete, Step::Create]);
    assert_eq!(replacement.replace_paths, [Path::attribute("length")]);
    // The plan has nothing of the object that is replaced.
    assert!(replacement.planned.get("result").unwrap().is_unknown());
    let (_, replaced) = changed(&provider, resource, same, &nine).await;
    assert_eq!(text(&replaced, "result").len(), 9);

    let (action, deleted) = changed(&provider, resource, replaced, &Value::Null).await;
    assert_eq!((action, deleted), (Action::Delete, None));
}

#[tokio::test]
async fn an_imported_object_is_read_before_it_is_planned() {
    let Some(provider) = support::start("random").await else { return };
    let resource = "random_string";
    let imported = provider.import(resource, ImportRequest::Id("fixed-value")).await.unwrap();
    let object = Object { state: imported.state, private: imported.private, identity: None, tainted: false };
    let object = refreshed(&provider, resource, &object).await;
    assert_eq!(text(&object, "result"), "fixed-value");
    let config = config(&provider, resource, r#"{"length":11}"#);
    let (action, _) = changed(&provider, resource, object, &config).await;
    assert_eq!(action, Action::NoOp);

    let error = provider.import("random_shuffle", ImportRequest::Id("x")).await.unwrap_err();
    let CallError::Reported { diagnostics, .. } = &error else { panic!("{error}") };
    assert!(diagnostics.to_string().contains("Import Not Implemented"), "{diagnostics}");
}

#[tokio::test]
async fn unknown_configuration_is_planned_and_applied_when_it_is_known() {
    let Some(provider) = support::start("random").await else { return };
    let resource = "random_pet";
    let schema = &provider.schemas().resources[resource];
    let unknown = schema.configuration(Value::object([("prefix", Value::Unknown)])).unwrap();
    let plan = plan(&provider, resource, None, &unknown, None).await.unwrap();
    assert!(plan.planned.get("prefix").unwrap().is_unknown());
    let known = config(&provider, resource, r#"{"prefix":"pre"}"#);
    let applied = apply(&provider, &plan, Step::Create, &known).await.unwrap();
    assert!(text(&applied.object, "id").starts_with("pre-"));
}

#[tokio::test]
async fn a_configuration_that_changed_since_its_plan_is_rejected() {
    let Some(provider) = support::start("random").await else { return };
    let resource = "random_pet";
    let planned = config(&provider, resource, r#"{"prefix":"one"}"#);
    let plan = plan(&provider, resource, None, &planned, None).await.unwrap();
    let other = config(&provider, resource, r#"{"prefix":"two"}"#);
    let error = apply(&provider, &plan, Step::Create, &other).await.unwrap_err().to_string();
    assert!(error.starts_with("the plan of random_pet changed before the apply: prefix: "), "{error}");
}

#[tokio::test]
async fn a_tainted_object_is_replaced() {
    let Some(provider) = support::start("random").await else { return };
    let config = config(&provider, "random_id", r#"{"byte_length":4}"#);
    let (_, object) = changed(&provider, "random_id", None, &config).await;
    let before = text(&object, "hex").to_owned();
    let tainted = object.map(|it| Object { tainted: true, ..it });
    let (action, after) = changed(&provider, "random_id", tainted, &config).await;
    assert_eq!(action, Action::Replace);
    assert_ne!(text(&after, "hex"), before);
    assert!(!after.unwrap().tainted);
}

#[tokio::test]
async fn local_files_are_created_read_and_deleted() {
    let Some(provider) = support::start("local").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let resource = "local_file";
    let file = format!(r#"{{"filename":{path:?},"content":"text"}}"#);
    let file = config(&provider, resource, &file);
    let (_, created) = changed(&provider, resource, None, &file).await;
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");

    let source = &provider.schemas().data_sources["local_file"];
    let query = |name: Value| source.configuration(Value::object([("filename", name)])).unwrap();
    let data = provider.read_data_source("local_file", &query(Value::string(path.to_str().unwrap()))).await.unwrap();
    assert_eq!(data.state.get("content"), Some(&Value::string("text")));
    let unknown = provider.read_data_source("local_file", &query(Value::Unknown)).await.unwrap_err();
    assert!(matches!(unknown, CallError::Invalid { .. }), "{unknown}");

    std::fs::remove_file(&path).unwrap();
    assert_eq!(refreshed(&provider, resource, created.as_ref().unwrap()).await, None);
    let (_, created) = changed(&provider, resource, None, &file).await;
    let (_, deleted) = changed(&provider, resource, created, &Value::Null).await;
    assert!(deleted.is_none() && !path.exists());
}

#[tokio::test]
async fn keys_of_tls_are_created_and_used() {
    let Some(provider) = support::start("tls").await else { return };
    let key = config(&provider, "tls_private_key", r#"{"algorithm":"ED25519"}"#);
    let (_, key) = changed(&provider, "tls_private_key", None, &key).await;
    let schema = &provider.schemas().resources["tls_private_key"];
    let secret: Vec<String> =
        schema.sensitive_paths(&key.as_ref().unwrap().state).iter().map(ToString::to_string).collect();
    assert!(secret.contains(&"private_key_pem".to_owned()), "{secret:?}");
    let pem = text(&key, "private_key_pem").to_owned();
    let request = Value::object([
        ("private_key_pem", Value::string(&pem)),
        ("subject", Value::Tuple(vec![Value::object([("common_name", Value::string("example.org"))])])),
    ]);
    let request = provider.schemas().resources["tls_cert_request"].configuration(request).unwrap();
    let (_, request) = changed(&provider, "tls_cert_request", None, &request).await;
    assert!(text(&request, "cert_request_pem").starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
}

#[tokio::test]
async fn ephemeral_resources_open_and_close() {
    let Some(provider) = support::start("local").await else { return };
    let schema = &provider.schemas().ephemeral_resources["local_command"];
    let config = schema.configuration(support::json(r#"{"command":"/bin/echo","arguments":["hello"]}"#)).unwrap();
    support::succeeded(&provider.validate_ephemeral("local_command", &config).await.unwrap());
    let open = provider.open_ephemeral("local_command", &config).await.unwrap();
    support::succeeded(&open.diagnostics);
    assert_eq!(open.result.get("stdout"), Some(&Value::string("hello\n")));
    assert!(open.renew_at.is_none());
    support::succeeded(&provider.close_ephemeral("local_command", open.private).await.unwrap());
}
