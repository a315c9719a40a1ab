//! Parts of an object that are written through subresources of their own.

use http::StatusCode;
use serde_json::{Value, json};

use super::support::Server;

const LETTERS: &str = "/apis/test.dev/v1/namespaces/shop/letters";
const SEAL: &str = "/apis/test.dev/v1/namespaces/shop/letters/a/seal";

async fn with_letter() -> Server {
    let server = Server::start().await;
    let letter =
        json!({"apiVersion": "test.dev/v1", "kind": "Letter", "metadata": {"name": "a"}, "spec": {"to": "bob"}});
    assert_eq!(server.post(LETTERS, &letter).await.code, StatusCode::CREATED);
    let status = json!({"status": {"phase": "Written"}});
    assert_eq!(server.merge(&format!("{LETTERS}/a/status"), &status).await.code, StatusCode::OK);
    server
}

/// Everything of the object that is not bookkeeping.
fn content(letter: &Value) -> Value {
    json!({"labels": letter["metadata"]["labels"], "spec": letter["spec"], "status": letter["status"]})
}

#[tokio::test]
async fn subresource_write_changes_only_its_part() {
    let server = with_letter().await;
    let mut letter = server.get(SEAL).await.json();
    assert_eq!(content(&letter)["status"], json!({"phase": "Written"}));
    let sent = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"to": "eve"}, "status": {"phase": "Burnt",
        "seal": {"wax": "red", "by": "eve"}}});
    let sealed = json!({"labels": null, "spec": {"to": "bob"}, "status": {"phase": "Written",
        "seal": {"wax": "red", "by": "ann"}}});
    let dry = server.merge(&format!("{SEAL}?dryRun=All"), &sent).await;
    assert_eq!((dry.code, content(&dry.json())), (StatusCode::OK, sealed.clone()));
    assert_eq!(content(&server.get(SEAL).await.json()), content(&letter), "a dry run writes nothing");
    let patched = server.merge(&format!("{SEAL}?fieldManager=notary"), &sent).await;
    assert_eq!((patched.code, content(&patched.json())), (StatusCode::OK, sealed));
    let entries = patched.json()["metadata"]["managedFields"].clone();
    let entry = entries.as_array().unwrap().iter().find(|entry| entry["manager"] == "notary").unwrap();
    assert_eq!(
        (&entry["subresource"], &entry["fieldsV1"]["f:status"]["f:seal"]["f:wax"]),
        (&json!("seal"), &json!({}))
    );
    assert_eq!(entry["fieldsV1"].as_object().unwrap().len(), 1, "{entry}");
    // Elsewhere the part is what it is.
    letter["status"]["seal"] = json!({"wax": "blue"});
    letter["metadata"]["resourceVersion"] = json!("");
    let main = server.put(&format!("{LETTERS}/a"), &letter).await.json();
    assert_eq!(main["status"]["seal"], json!({"wax": "red", "by": "ann"}));
}

#[tokio::test]
async fn a_part_is_replaced_and_applied_like_an_object() {
    let server = with_letter().await;
    let mut letter = server.get(SEAL).await.json();
    letter["status"]["seal"] = json!({"wax": "red"});
    assert_eq!(server.put(SEAL, &letter).await.json()["status"]["seal"], json!({"wax": "red", "by": "ann"}));
    letter["status"]["seal"] = json!({"wax": "green"});
    let stale = server.put(SEAL, &letter).await;
    assert_eq!((stale.code, &stale.json()["reason"]), (StatusCode::CONFLICT, &json!("Conflict")));
    let configuration = json!({"apiVersion": "test.dev/v1", "kind": "Letter", "metadata": {"name": "a"},
        "spec": {"to": "eve"}, "status": {"phase": "Burnt", "seal": {"wax": "green"}}});
    let conflict = server.apply(SEAL, "fieldManager=notary", &configuration).await;
    assert_eq!(conflict.json()["details"]["causes"][0]["field"], ".status.seal.wax", "{}", conflict.text());
    let applied = server.apply(SEAL, "fieldManager=notary&force=true", &configuration).await.json();
    assert_eq!((&applied["spec"]["to"], &applied["status"]["phase"]), (&json!("bob"), &json!("Written")));
    assert_eq!(applied["status"]["seal"]["wax"], "green");
    let entries = applied["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["operation"] == "Apply").unwrap();
    assert_eq!(entry["fieldsV1"], json!({"f:status": {"f:seal": {"f:wax": {}}}}), "nothing beside the part is owned");
}

#[tokio::test]
async fn subresource_error_names_its_field() {
    let server = with_letter().await;
    let wrong = server.merge(SEAL, &json!({"status": {"seal": {"by": "me"}}})).await;
    assert_eq!(wrong.code, StatusCode::UNPROCESSABLE_ENTITY, "{}", wrong.text());
    assert!(wrong.text().contains("status.seal.wax"), "{}", wrong.text());
    let unknown = json!({"status": {"seal": {"wax": "red", "sand": true}}});
    let strict = server.merge(&format!("{SEAL}?fieldValidation=Strict"), &unknown).await;
    assert!(strict.text().contains("unknown field \\\"status.seal.sand\\\""), "{}", strict.text());
    let warned = server.merge(SEAL, &unknown).await;
    assert_eq!(warned.warnings(), ["299 - \"unknown field \\\"status.seal.sand\\\"\""]);
    let absent = server.merge(&SEAL.replace("/a/", "/nobody/"), &json!({"status": {"seal": {"wax": "red"}}})).await;
    absent.assert_status(404, "NotFound", "letters.test.dev \"nobody\" not found");
    for method in ["POST", "DELETE"] {
        assert_eq!(server.send(method, SEAL, &[], "{}").await.code, StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
}
