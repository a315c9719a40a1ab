//! Create, update, patch, delete and deletecollection.

use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use stoa_log::{Change, Expect, Key, Log as _, MemoryLog, Write};
use stoa_meta::{
    definition::ResourceDefinition,
    testing::{protobuf_body, protobuf_field},
};
use stoa_registry::strategy::DefaultStrategy;

use super::support::{Answer, Server, TABLE, gadget};

const GADGETS: &str = "/apis/test.dev/v1/namespaces/shop/gadgets";
const A: &str = "/apis/test.dev/v1/namespaces/shop/gadgets/a";
const STALE: &str = "Operation cannot be fulfilled on gadgets.test.dev \"a\": the object has been modified; please apply your changes to the latest version and try again";

#[tokio::test]
async fn yaml_comes_in() {
    let server = Server::start().await;
    let body = "apiVersion: test.dev/v1\nkind: Gadget\nmetadata: {name: a}\nspec: {size: 7}\n";
    let answer = server.send("POST", GADGETS, &[("content-type", "application/yaml")], body).await;
    assert_eq!((answer.code, &answer.json()["spec"]), (StatusCode::CREATED, &json!({"size": 7})));
}

#[tokio::test]
async fn names_and_namespaces_must_agree_with_the_path() {
    let server = Server::start().await;
    let mut elsewhere = gadget("a", 1);
    elsewhere["metadata"]["namespace"] = json!("other");
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    server.post(GADGETS, &elsewhere).await.assert_status(400, "BadRequest", message);
    server.create("shop", gadget("a", 1)).await;
    server.put(A, &elsewhere).await.assert_status(400, "BadRequest", message);
    server.merge(A, &json!({"metadata": {"namespace": "other"}})).await.assert_status(400, "BadRequest", message);

    let message = "the name of the object (b) does not match the name on the URL (a)";
    server.put(A, &gadget("b", 1)).await.assert_status(400, "BadRequest", message);
    server.merge(A, &json!({"metadata": {"name": "b"}})).await.assert_status(400, "BadRequest", message);
    server.put(A, &json!({"spec": {"size": 1}})).await.assert_status(
        400,
        "BadRequest",
        "the name of the object (a based on URL) was undeterminable: name must be provided",
    );
}

#[tokio::test]
async fn taken_name_is_a_conflict() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    let answer = server.post(GADGETS, &gadget("a", 1)).await;
    answer.assert_failure(
        409,
        "AlreadyExists",
        "gadgets.test.dev \"a\" already exists",
        &json!({"name": "a", "group": "test.dev", "kind": "gadgets"}),
    );
}

#[tokio::test]
async fn stale_update_conflicts_and_fresh_update_succeeds() {
    let server = Server::start().await;
    let created = server.create("shop", gadget("a", 1)).await;
    let mut update = created.clone();
    update["spec"]["size"] = json!(2);
    let updated = server.put(A, &update).await;
    assert_eq!(updated.code, StatusCode::OK);
    assert_eq!((&updated.json()["spec"]["size"], &updated.json()["metadata"]["generation"]), (&json!(2), &json!(2)));
    update["spec"]["size"] = json!(3);
    server.put(A, &update).await.assert_status(409, "Conflict", STALE);
    assert_eq!(server.get(A).await.json(), updated.json());
}

/// An update tells first of what is not there and of another version, and then of its values.
#[tokio::test]
async fn values_are_looked_at_last() {
    let server = Server::start().await;
    let mut twice = gadget("a", 1);
    twice["spec"]["parts"] = json!([{"name": "x"}, {"name": "x"}]);
    server.put(A, &twice).await.assert_status(404, "NotFound", "gadgets.test.dev \"a\" not found");
    server.create("shop", gadget("a", 1)).await;
    assert_eq!(server.put(A, &twice).await.code, StatusCode::UNPROCESSABLE_ENTITY);
    twice["metadata"]["resourceVersion"] = json!("999");
    server.put(A, &twice).await.assert_status(409, "Conflict", STALE);
    server.merge(A, &twice).await.assert_status(409, "Conflict", STALE);
}

#[tokio::test]
async fn status_and_the_rest_are_written_apart() {
    let server = Server::start().await;
    let mut object = server.create("shop", gadget("a", 1)).await;
    object["spec"]["size"] = json!(5);
    object["status"] = json!({"phase": "Done"});
    let status = server.put(&format!("{A}/status"), &object).await.json();
    assert_eq!((&status["spec"]["size"], &status["status"]), (&json!(1), &json!({"phase": "Done"})));
    let patched = server.merge(A, &json!({"spec": {"size": 5}, "status": {"phase": "Lost"}})).await.json();
    assert_eq!((&patched["spec"]["size"], &patched["status"]), (&json!(5), &json!({"phase": "Done"})));
    let patched = server.merge(&format!("{A}/status"), &json!({"status": {"phase": "Over"}})).await.json();
    assert_eq!(patched["status"], json!({"phase": "Over"}));
    assert_eq!(server.get(&format!("{A}/status")).await.json(), patched);
}

#[tokio::test]
async fn json_patch_applies_or_is_invalid() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    let patch = async |operations: Value| {
        server.send("PATCH", A, &[("content-type", "application/json-patch+json")], operations.to_string()).await
    };
    let answer = patch(
        json!([{"op": "test", "path": "/spec/size", "value": 1}, {"op": "replace", "path": "/spec/size", "value": 2}]),
    )
    .await;
    assert_eq!((answer.code, &answer.json()["spec"]["size"]), (StatusCode::OK, &json!(2)));
    let failed = patch(json!([{"op": "test", "path": "/spec/size", "value": 1}])).await;
    failed.assert_failure(422, "Invalid", "the server rejected our request due to an error in our request", &json!({}));
    assert_eq!(patch(json!({"spec": {}})).await.code, StatusCode::BAD_REQUEST);
    assert_eq!(server.get(A).await.json(), answer.json());
}

#[tokio::test]
async fn patch_with_a_version_is_for_that_version_alone() {
    let server = Server::start().await;
    let created = server.create("shop", gadget("a", 1)).await;
    let version = &created["metadata"]["resourceVersion"];
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"size": 2}});
    assert_eq!(server.merge(A, &patch).await.code, StatusCode::OK);
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"size": 3}});
    server.merge(A, &patch).await.assert_status(409, "Conflict", STALE);
}

#[tokio::test]
async fn patch_that_changes_nothing_keeps_the_version() {
    let server = Server::start().await;
    let created = server.create("shop", gadget("a", 1)).await;
    assert_eq!(server.merge(A, &json!({"spec": {"size": 1}})).await.json(), created);
}

#[tokio::test]
async fn patch_of_what_is_not_there_is_not_found() {
    let server = Server::start().await;
    server.merge(A, &json!({})).await.assert_status(404, "NotFound", "gadgets.test.dev \"a\" not found");
}

#[tokio::test]
async fn unknown_fields_are_warned_of_refused_or_ignored() {
    let server = Server::start().await;
    let mut object = gadget("a", 1);
    object["spec"]["colour"] = json!("red");
    let refused = server.post(&format!("{GADGETS}?fieldValidation=Strict"), &object).await;
    refused.assert_status(
        400,
        "BadRequest",
        "Gadget in version \"v1\" cannot be handled as a Gadget: strict decoding error: unknown field \"spec.colour\"",
    );
    let ignored = server.post(&format!("{GADGETS}?fieldValidation=Ignore&dryRun=All"), &object).await;
    assert_eq!((ignored.code, ignored.warnings()), (StatusCode::CREATED, vec![]));
    let warned = server.post(GADGETS, &object).await;
    assert_eq!(warned.warnings(), [r#"299 - "unknown field \"spec.colour\"""#]);
    assert_eq!(warned.json()["spec"], json!({"size": 1}));

    let patch = json!({"spec": {"colour": "red"}});
    assert_eq!(server.merge(A, &patch).await.warnings(), [r#"299 - "unknown field \"spec.colour\"""#]);
    let refused = server.merge(&format!("{A}?fieldValidation=Strict"), &patch).await;
    assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY);
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with(" \"\" is invalid: patch: Invalid value: \"{"), "{message}");
    assert!(message.ends_with(": strict decoding error: unknown field \"spec.colour\""), "{message}");
}

#[tokio::test]
async fn client_cannot_set_fields_of_later_version() {
    let log = Arc::new(MemoryLog::new());
    let mut later = gadget("a", 1);
    later["metadata"]["namespace"] = json!("shop");
    later["spec"]["colour"] = json!("red");
    let write = Write::new(
        Key::new("/registry/test.dev/gadgets/shop/a"),
        Expect::Absent,
        Change::Put(later.to_string().into()),
    );
    log.append(write).await.unwrap();
    let server = Server::over(log, jiff::Timestamp::now).await;
    for validation in ["Strict", "Warn"] {
        let patch =
            async |patch: Value| server.merge(&format!("{A}?dryRun=All&fieldValidation={validation}"), &patch).await;
        let label = patch(json!({"metadata": {"labels": {"a": "b"}}})).await;
        assert_eq!((label.code, label.warnings()), (StatusCode::OK, vec![]), "{}", label.text());
        assert_eq!(label.json()["spec"], json!({"size": 1}));
        for unknown in [json!({"colour": "blue"}), json!({"shape": "round"})] {
            let told = patch(json!({ "spec": unknown })).await;
            let field = unknown.as_object().unwrap().keys().next().unwrap();
            if validation == "Warn" {
                assert_eq!(told.warnings(), [format!(r#"299 - "unknown field \"spec.{field}\"""#)]);
            } else {
                let message = told.json()["message"].as_str().unwrap().to_owned();
                let expected = format!(": strict decoding error: unknown field \"spec.{field}\"");
                assert!(told.code == StatusCode::UNPROCESSABLE_ENTITY && message.ends_with(&expected), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn error_names_undecodable_object_until_deletion() {
    let log = Arc::new(MemoryLog::new());
    let write =
        Write::new(Key::new("/registry/test.dev/gadgets/shop/a"), Expect::Absent, Change::Put("not JSON".into()));
    log.append(write).await.unwrap();
    let server = Server::over(log, jiff::Timestamp::now).await;
    let deleted = server.send("DELETE", A, &[], "").await;
    for answer in [server.get(A).await, deleted, server.merge(A, &json!({})).await] {
        assert_eq!(answer.code, StatusCode::INTERNAL_SERVER_ERROR);
        let status = answer.json();
        assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("InternalError")));
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("object not decodable revision=1"), "{message}");
        assert!(!message.contains("not JSON"), "it says nothing of what is there: {message}");
    }
    assert_eq!(server.get(GADGETS).await.json()["items"], json!([]));
    let ignoring = format!("{A}?ignoreStoreReadErrorWithClusterBreakingPotential=true");
    let answer = server.send("DELETE", &ignoring, &[], "").await;
    assert_eq!(answer.code, StatusCode::OK, "{}", answer.text());
    let status = answer.json();
    assert_eq!(status["status"], "Success");
    assert_eq!(status["details"], json!({"group": "test.dev", "kind": "gadgets", "name": "a"}));
    assert_eq!(server.get(A).await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn strategies_warn_too() {
    let server = Server::start().await;
    let answer = server.post(GADGETS, &gadget("a", 13)).await;
    assert_eq!(answer.warnings(), [r#"299 - "spec.size: 13 is unlucky""#]);
}

#[tokio::test]
async fn dry_run_stores_nothing() {
    let server = Server::start().await;
    assert_eq!(server.post(&format!("{GADGETS}?dryRun=All"), &gadget("a", 1)).await.code, StatusCode::CREATED);
    assert_eq!(server.get(A).await.code, StatusCode::NOT_FOUND);
    let created = server.create("shop", gadget("a", 1)).await;
    let patched = server.merge(&format!("{A}?dryRun=All"), &json!({"spec": {"size": 2}})).await;
    assert_eq!(patched.json()["spec"]["size"], 2);
    assert_eq!(server.send("DELETE", &format!("{A}?dryRun=All"), &[], "").await.code, StatusCode::OK);
    assert_eq!(server.send("DELETE", A, &[], r#"{"dryRun":["All"]}"#).await.code, StatusCode::OK);
    assert_eq!(server.get(A).await.json(), created);
}

#[tokio::test]
async fn wrong_write_options_are_told() {
    let server = Server::start().await;
    let answer = server.post(&format!("{GADGETS}?dryRun=Some"), &gadget("a", 1)).await;
    answer.assert_failure(
        422,
        "Invalid",
        "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
        &json!({
            "group": "meta.k8s.io",
            "kind": "CreateOptions",
            "causes": [{
                "reason": "FieldValueNotSupported",
                "message": "Unsupported value: [\"Some\"]: supported values: \"All\"",
                "field": "dryRun",
            }],
        }),
    );
}

#[tokio::test]
async fn body_over_the_limit_is_too_large() {
    let server = Server::start().await;
    let body = format!("{{\"x\":\"{}\"}}", "x".repeat(3 * 1024 * 1024));
    let answer = server.send("POST", GADGETS, &[], body).await;
    answer.assert_status(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728");
}

#[tokio::test]
async fn writes_answer_in_the_form_asked_for() {
    let server = Server::start().await;
    let table = server.send("POST", GADGETS, &[("accept", TABLE)], gadget("a", 1).to_string()).await;
    assert_eq!((table.code, &table.json()["kind"]), (StatusCode::CREATED, &json!("Table")));
    let headers = [
        ("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
        ("content-type", "application/merge-patch+json"),
    ];
    let partial = server.send("PATCH", A, &headers, r#"{"metadata":{"labels":{"a":"b"}}}"#).await.json();
    assert_eq!(
        (&partial["kind"], &partial["metadata"]["labels"]),
        (&json!("PartialObjectMetadata"), &json!({"a": "b"}))
    );
    assert_eq!(partial.get("spec"), None);
}

#[tokio::test]
async fn dry_run_in_a_table_has_no_version() {
    let server = Server::start().await;
    let table =
        server.send("POST", &format!("{GADGETS}?dryRun=All"), &[("accept", TABLE)], gadget("a", 1).to_string()).await;
    assert_eq!(table.json()["metadata"], json!({}));
}

#[tokio::test]
async fn delete_tells_what_is_gone() {
    let server = Server::start().await;
    let created = server.create("shop", gadget("a", 1)).await;
    let answer = server.send("DELETE", A, &[], "").await;
    assert_eq!(answer.code, StatusCode::OK);
    assert_eq!(
        answer.json(),
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {"name": "a", "group": "test.dev", "kind": "gadgets", "uid": created["metadata"]["uid"]},
        })
    );
    server.send("DELETE", A, &[], "").await.assert_status(404, "NotFound", "gadgets.test.dev \"a\" not found");
}

#[tokio::test]
async fn delete_waits_for_finalizers() {
    let server = Server::start().await;
    let mut object = gadget("a", 1);
    object["metadata"]["finalizers"] = json!(["test.dev/wait"]);
    server.create("shop", object).await;
    let answer = server.send("DELETE", A, &[], "").await;
    assert_eq!(answer.code, StatusCode::OK);
    let metadata = &answer.json()["metadata"];
    assert!(metadata["deletionTimestamp"].is_string());
    assert_eq!(metadata["deletionGracePeriodSeconds"], 0);
    let again = server.send("DELETE", &format!("{A}?orphanDependents=false"), &[], "").await;
    assert_eq!(again.code, StatusCode::ACCEPTED);
    assert_eq!(server.merge(A, &json!({"metadata": {"finalizers": null}})).await.code, StatusCode::OK);
    assert_eq!(server.get(A).await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn delete_options_come_in_the_body() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    for version in ["v1", "meta.k8s.io/v1", "test.dev/v1"] {
        let body = json!({"kind": "DeleteOptions", "apiVersion": version, "preconditions": {"uid": "other"}});
        let answer = server.send("DELETE", A, &[("content-type", "application/json")], body.to_string()).await;
        assert_eq!(answer.code, StatusCode::CONFLICT, "{version}: {}", answer.text());
    }
    let wrong = server.send("DELETE", A, &[], r#"{"kind":"Gadget","apiVersion":"test.dev/v1"}"#).await;
    assert_eq!(wrong.code, StatusCode::BAD_REQUEST);
    let yaml = server.send("DELETE", A, &[("content-type", "application/yaml")], "propagationPolicy: Later").await;
    yaml.assert_status(
        422,
        "Invalid",
        "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Later\": supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"",
    );
    let foreground = server.send("DELETE", A, &[], r#"{"propagationPolicy":"Foreground"}"#).await.json();
    assert_eq!(foreground["metadata"]["finalizers"], json!(["foregroundDeletion"]));
}

#[tokio::test]
async fn delete_collection_deletes_what_is_selected() {
    let server = Server::start().await;
    for (name, size) in [("a", 1), ("b", 2), ("c", 1)] {
        server.create("shop", gadget(name, size)).await;
    }
    let list = server.send("DELETE", &format!("{GADGETS}?fieldSelector=spec.size%3D1"), &[], "").await.json();
    assert_eq!(list["kind"], "GadgetList");
    let names = |list: &Value| -> Vec<String> {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&list), ["a", "c"]);
    assert_eq!(names(&server.get(GADGETS).await.json()), ["b"]);
}

#[tokio::test]
async fn scale_write_answers_despite_unreadable_replicas() {
    let server = Server::start().await;
    let racks = "/apis/test.dev/v1/namespaces/shop/racks";
    let rack = json!({"apiVersion": "test.dev/v1", "kind": "Rack", "metadata": {"name": "a"}, "spec": {"shelves": 3}});
    assert_eq!(server.post(racks, &rack).await.code, StatusCode::CREATED);
    let path = format!("{racks}/a/scale");
    assert_eq!(server.get(&path).await.json()["spec"], json!({"replicas": 3}));
    // The type leaves out what is 0.
    let scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a", "namespace": "shop"},
        "spec": {"replicas": 0},
    });
    let answer = server.put(&path, &scale).await;
    assert_eq!(
        (answer.code, &answer.json()["kind"], &answer.json()["spec"]),
        (StatusCode::OK, &json!("Scale"), &json!({}))
    );
    let unread = "Internal error occurred: the spec replicas field \".spec.shelves\" does not exist";
    server.get(&path).await.assert_status(500, "InternalError", unread);
}

/// Which objects is told before how.
#[tokio::test]
async fn delete_collection_looks_at_the_selection_before_the_body() {
    let server = Server::start().await;
    let delete = async |query: &str, media: &str| {
        let headers = [("content-type", media)];
        server.send("DELETE", &format!("{GADGETS}?{query}"), &headers, r#"{"kind":1}"#).await
    };
    let forbidden = "ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list";
    delete("sendInitialEvents=true", "application/json").await.assert_status(422, "Invalid", forbidden);
    // What cannot go together is told before a field that there is not.
    let both = "sendInitialEvents=true&fieldSelector=spec.colour%3Dred";
    delete(both, "text/plain").await.assert_status(422, "Invalid", forbidden);
    server.get(&format!("{GADGETS}?{both}")).await.assert_status(422, "Invalid", forbidden);
    delete("fieldSelector=spec.colour%3Dred", "text/plain").await.assert_status(
        400,
        "BadRequest",
        "field label not supported: spec.colour",
    );
    delete("fieldSelector=metadata.name", "text/plain").await.assert_status(
        400,
        "BadRequest",
        "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
    );
    assert_eq!(delete("labelSelector=a", "text/plain").await.code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn last_duplicate_patch_field_wins() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    for media in ["application/merge-patch+json", "application/strategic-merge-patch+json"] {
        let patch = r#"{"metadata":{"labels":{"x":"1"},"labels":{"y":"2"}},"spec":{"size":9},"spec":{}}"#;
        let answer = server.send("PATCH", A, &[("content-type", media)], patch).await.json();
        assert_eq!(
            (&answer["metadata"]["labels"]["x"], &answer["metadata"]["labels"]["y"]),
            (&Value::Null, &json!("2"))
        );
        assert_eq!(answer["spec"]["size"], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn writes_of_an_object_take_34_seconds_at_most() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    let late = "Timeout: request did not complete within requested timeout - context deadline exceeded";
    let json = "application/json";
    for (method, target, kind) in [
        ("POST", GADGETS, json),
        ("PUT", A, json),
        ("PATCH", A, "application/merge-patch+json"),
        ("PATCH", A, "application/apply-patch+yaml"),
        ("DELETE", A, json),
    ] {
        // Its body never ends.
        let endless = http_body_util::StreamBody::new(futures_util::stream::pending::<Result<_, std::io::Error>>());
        let request = http::Request::builder().method(method).uri(format!("{target}?fieldManager=me"));
        let request = request.header("content-type", kind).body(crate::http::Body::new(endless)).unwrap();
        let began = tokio::time::Instant::now();
        let answer = Answer::read(server.handle(request).await).await;
        answer.assert_status(504, "Timeout", late);
        assert_eq!(began.elapsed().as_secs(), 34, "{method}");
    }
    assert_eq!(server.get(A).await.json()["spec"]["size"], 1);
}

#[tokio::test]
async fn what_is_refused_is_shown_as_it_was_sent() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    let kind = [("content-type", "application/merge-patch+json")];
    let patch = json!({"spec": {"unheard": 1}}).to_string();
    let refused = server.send("PATCH", &format!("{A}?fieldValidation=Strict"), &kind, patch).await;
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains(r#"\"unheard\":1"#) && message.ends_with("unknown field \"spec.unheard\""), "{message}");

    let refused = server.post(&format!("{GADGETS}?dryRun=%3Cx%3E"), &gadget("b", 1)).await;
    let shown = r#"dryRun: Unsupported value: ["\u003cx\u003e"]: "#;
    assert!(refused.json()["message"].as_str().unwrap().contains(shown), "{}", refused.text());
    let refused = server.post(&format!("{GADGETS}?fieldValidation=a%7F"), &gadget("b", 1)).await;
    let shown = r#"fieldValidation: Unsupported value: "a\x7f": "#;
    assert!(refused.json()["message"].as_str().unwrap().contains(shown), "{}", refused.text());
    let mut of_event = gadget("b", 1);
    let event = json!({"apiVersion": "/v1", "kind": "Event", "name": "e", "uid": "u", "controller": true});
    of_event["metadata"]["ownerReferences"] = json!([event]);
    let refused = server.post(GADGETS, &of_event).await;
    let shown =
        r#"Invalid value: {"apiVersion":"/v1","kind":"Event","name":"e","uid":"u","controller":true}: /v1, Kind=Event"#;
    assert!(refused.json()["message"].as_str().unwrap().contains(shown), "{}", refused.text());

    // A letter whose small form is two to Unicode, and one to Go.
    let mut dotted = gadget("b", 1);
    dotted["metadata"]["annotations"] = json!({"\u{130}": "x"});
    assert_eq!(server.post(GADGETS, &dotted).await.code, StatusCode::CREATED);
}

#[tokio::test]
async fn dry_run_create_returns_sent_resource_version() {
    let server = Server::start().await;
    let mut sent = gadget("a", 1);
    sent["metadata"]["resourceVersion"] = json!("5");
    let answer = server.post(&format!("{GADGETS}?dryRun=All"), &sent).await;
    assert_eq!((answer.code, &answer.json()["metadata"]["resourceVersion"]), (StatusCode::CREATED, &json!("5")));
    assert_eq!(server.post(GADGETS, &sent).await.code, StatusCode::INTERNAL_SERVER_ERROR);
}

#[tokio::test]
async fn delete_collection_validates_watch_options() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    let delete = async |query: &str| server.send("DELETE", &format!("{GADGETS}?{query}"), &[], "").await.code;
    let of_list = "resourceVersion=1&resourceVersionMatch=NotOlderThan";
    assert_eq!(delete(&format!("watch=true&{of_list}")).await, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(server.get(A).await.code, StatusCode::OK);
    assert_eq!(delete(&format!("{of_list}&dryRun=All")).await, StatusCode::OK);
    assert_eq!(delete("watch=true").await, StatusCode::OK);
    assert_eq!(server.get(A).await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn protobuf_creates_and_replaces_core_objects() {
    let definition = ResourceDefinition::built_in::<ConfigMap>().reads_protobuf::<ConfigMap>();
    let server = Server::of(definition, DefaultStrategy::<ConfigMap>::default()).await;
    let path = "/api/v1/namespaces/shop/configmaps";
    // What kubectl says that it takes.
    let headers = [
        ("content-type", "application/vnd.kubernetes.protobuf"),
        ("accept", "application/vnd.kubernetes.protobuf,application/json"),
    ];
    let body = |kind: &str, value: &str| {
        let metadata = protobuf_field(1, &protobuf_field(1, b"settings"));
        let color = [protobuf_field(1, b"color"), protobuf_field(2, value.as_bytes())].concat();
        protobuf_body("v1", kind, &[metadata, protobuf_field(2, &color)].concat())
    };
    let created = server.send("POST", path, &headers, body("ConfigMap", "blue")).await;
    assert_eq!((created.code, &created.json()["data"]), (StatusCode::CREATED, &json!({"color": "blue"})));
    assert_eq!(created.header("content-type"), "application/json");
    let replaced = server.send("PUT", &format!("{path}/settings"), &headers, body("ConfigMap", "red")).await;
    assert_eq!((replaced.code, &replaced.json()["data"]), (StatusCode::OK, &json!({"color": "red"})));
    let other = server.send("POST", path, &headers, body("Secret", "blue")).await;
    assert_eq!(other.code, StatusCode::BAD_REQUEST, "{}", other.json());
    let broken = server.send("POST", path, &headers, "k8s\0\u{7f}").await;
    broken.assert_status(400, "BadRequest", "the body is no ConfigMap in protobuf");
}
