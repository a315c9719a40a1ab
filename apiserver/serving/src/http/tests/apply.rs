//! Server-side apply, strategic merge patch, and who owns which field after any write.

use http::StatusCode;
use serde_json::{Value, json};

use super::support::{Server, gadget};

const GADGETS: &str = "/apis/test.dev/v1/namespaces/shop/gadgets";
const A: &str = "/apis/test.dev/v1/namespaces/shop/gadgets/a";
const STATUS: &str = "/apis/test.dev/v1/namespaces/shop/gadgets/a/status";

fn configuration(spec: Value) -> Value {
    let mut gadget = gadget("a", 0);
    gadget["spec"] = spec;
    gadget
}

/// Who owns what: manager, operation, subresource and fields, without times.
fn owners(object: &Value) -> Vec<(String, String, String, Value)> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or("").to_owned();
    let mut owners: Vec<_> = object["metadata"]["managedFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|entry| {
            assert_eq!((&entry["apiVersion"], &entry["fieldsType"]), (&json!("test.dev/v1"), &json!("FieldsV1")));
            let names = ["manager", "operation", "subresource"].map(|field| text(entry, field));
            let [manager, operation, subresource] = names;
            (manager, operation, subresource, entry["fieldsV1"].clone())
        })
        .collect();
    owners.sort_by(|a, b| (&a.0, &a.1, &a.2).cmp(&(&b.0, &b.1, &b.2)));
    owners
}

fn owner(manager: &str, operation: &str, subresource: &str, fields: Value) -> (String, String, String, Value) {
    (manager.to_owned(), operation.to_owned(), subresource.to_owned(), fields)
}

#[tokio::test]
async fn apply_creates_once_and_then_changes_nothing() {
    let server = Server::start().await;
    let created = server.apply(A, "fieldManager=me", &configuration(json!({"size": 1}))).await;
    assert_eq!(created.code, StatusCode::CREATED);
    let object = created.json();
    assert_eq!(owners(&object), [owner("me", "Apply", "", json!({"f:spec": {"f:size": {}}}))]);
    assert_eq!(object["metadata"]["generation"], 1);

    let again = server.apply(A, "fieldManager=me", &configuration(json!({"size": 1}))).await;
    assert_eq!((again.code, again.json()), (StatusCode::OK, object.clone()));

    let yaml = "apiVersion: test.dev/v1\nkind: Gadget\nmetadata: {name: a, labels: {x: z}}\nspec: {size: 1}\n";
    let headers = [("content-type", "application/apply-patch+yaml")];
    let changed = server.send("PATCH", &format!("{A}?fieldManager=me"), &headers, yaml).await.json();
    assert_ne!(changed["metadata"]["resourceVersion"], object["metadata"]["resourceVersion"]);
    assert_eq!(changed["metadata"]["labels"], json!({"x": "z"}));
}

#[tokio::test]
async fn conflicts_name_every_field_and_its_owner() {
    let server = Server::start().await;
    server.apply(A, "fieldManager=me", &configuration(json!({"size": 1, "owner": "me"}))).await;
    let answer = server.apply(A, "fieldManager=you", &configuration(json!({"size": 2}))).await;
    answer.assert_failure(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"me\": .spec.size",
        &json!({
            "causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"me\"", "field": ".spec.size"}],
        }),
    );
    server.merge(&format!("{A}?fieldManager=patcher"), &json!({"spec": {"size": 3}})).await;
    server.apply(A, "fieldManager=you", &configuration(json!({"size": 2, "owner": "you"}))).await.assert_status(
        409,
        "Conflict",
        "Apply failed with 2 conflicts: conflicts with \"me\":\n- .spec.owner\nconflicts with \"patcher\" using \
         test.dev/v1:\n- .spec.size",
    );

    let forced =
        server.apply(A, "fieldManager=you&force=true", &configuration(json!({"size": 2, "owner": "you"}))).await;
    assert_eq!(owners(&forced.json()), [owner("you", "Apply", "", json!({"f:spec": {"f:size": {}, "f:owner": {}}}))]);
}

#[tokio::test]
async fn dropped_fields_go_unless_somebody_else_owns_them() {
    let server = Server::start().await;
    server.apply(A, "fieldManager=me", &configuration(json!({"size": 1, "owner": "both"}))).await;
    let shared = server.apply(A, "fieldManager=you", &configuration(json!({"owner": "both"}))).await.json();
    assert_eq!(shared["spec"], json!({"size": 1, "owner": "both"}));

    let rest = server.apply(A, "fieldManager=me", &configuration(json!({"size": 1}))).await.json();
    assert_eq!(rest["spec"], json!({"size": 1, "owner": "both"}));
    let rest = server.apply(A, "fieldManager=you", &configuration(json!({}))).await.json();
    assert_eq!(rest["spec"], json!({"size": 1}));
    assert_eq!(
        owners(&rest),
        [owner("me", "Apply", "", json!({"f:spec": {"f:size": {}}})), owner("you", "Apply", "", json!({"f:spec": {}})),]
    );
}

#[tokio::test]
async fn items_of_keyed_lists_have_owners_of_their_own() {
    let server = Server::start().await;
    let parts = |parts: Value| configuration(json!({ "parts": parts }));
    server.apply(A, "fieldManager=me", &parts(json!([{"name": "x", "weight": 1}, {"name": "y"}]))).await;
    let both =
        server.apply(A, "fieldManager=you", &parts(json!([{"name": "z"}, {"name": "y", "weight": 2}]))).await.json();
    assert_eq!(both["spec"]["parts"], json!([{"name": "x", "weight": 1}, {"name": "z"}, {"name": "y", "weight": 2}]));
    let rest = server.apply(A, "fieldManager=me", &parts(json!([{"name": "y"}]))).await.json();
    assert_eq!(rest["spec"]["parts"], json!([{"name": "z"}, {"name": "y", "weight": 2}]));
    assert_eq!(
        owners(&rest)[0],
        owner("me", "Apply", "", json!({"f:spec": {"f:parts": {r#"k:{"name":"y"}"#: {".": {}, "f:name": {}}}}}))
    );
    server.apply(A, "fieldManager=me", &parts(json!([{"name": "y"}, {"name": "y"}]))).await.assert_status_without_reason(
        500,
        "failed to create typed patch object (/a; test.dev/v1, Kind=Gadget): .spec.parts: duplicate entries for key \
         [name=\"y\"]",
    );
}

#[tokio::test]
async fn every_write_is_tracked() {
    let server = Server::start().await;
    let body = gadget("a", 1).to_string();
    let headers = [("content-type", "application/json"), ("user-agent", "kubectl/v1.36 (linux)")];
    let created = server.send("POST", GADGETS, &headers, body).await.json();
    assert_eq!(owners(&created), [owner("kubectl", "Update", "", json!({"f:spec": {"f:size": {}}}))]);

    let patched =
        server.merge(&format!("{A}?fieldManager=m"), &json!({"metadata": {"labels": {"x": "y"}}})).await.json();
    let labels = owner("m", "Update", "", json!({"f:metadata": {"f:labels": {".": {}, "f:x": {}}}}));
    assert_eq!(owners(&patched), [owner("kubectl", "Update", "", json!({"f:spec": {"f:size": {}}})), labels.clone()]);

    let mut replaced = patched.clone();
    replaced["spec"]["size"] = json!(2);
    let replaced = server.put(&format!("{A}?fieldManager=p"), &replaced).await.json();
    let size = owner("p", "Update", "", json!({"f:spec": {"f:size": {}}}));
    assert_eq!(owners(&replaced), [labels.clone(), size.clone()]);

    let status = json!({"status": {"phase": "up"}, "spec": {"size": 9}});
    let status = server.merge(&format!("{STATUS}?fieldManager=s"), &status).await.json();
    let phase = owner("s", "Update", "status", json!({"f:status": {"f:phase": {}}}));
    assert_eq!(owners(&status), [labels, size, phase]);
    assert_eq!(status["spec"]["size"], 2);
}

#[tokio::test]
async fn writes_that_change_nothing_change_no_owner() {
    let server = Server::start().await;
    let created = server.create("shop", gadget("a", 1)).await;
    let same = server.merge(&format!("{A}?fieldManager=other"), &json!({"spec": {"size": 1}})).await.json();
    assert_eq!(same, created);
    let sent_back = server.put(&format!("{A}?fieldManager=other"), &created).await.json();
    assert_eq!(sent_back, created);
}

#[tokio::test]
async fn what_cannot_be_applied_is_refused() {
    let server = Server::start().await;
    let message = "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    server.apply(A, "", &configuration(json!({}))).await.assert_status(422, "Invalid", message);

    let mut owned = configuration(json!({}));
    owned["metadata"]["managedFields"] = json!([]);
    let message = "metadata.managedFields must be nil";
    server.apply(A, "fieldManager=me", &owned).await.assert_status(400, "BadRequest", message);

    let mut other = configuration(json!({}));
    other["kind"] = json!("Shelf");
    let message = "invalid object type: test.dev/v1, Kind=Shelf";
    server.apply(A, "fieldManager=me", &other).await.assert_status(400, "BadRequest", message);
    let message = "invalid object type: /, Kind=";
    server.apply(A, "fieldManager=me", &json!({})).await.assert_status(400, "BadRequest", message);

    server.apply(A, "fieldManager=me", &configuration(json!({"hue": 1}))).await.assert_status_without_reason(
        500,
        "failed to create typed patch object (/a; test.dev/v1, Kind=Gadget): .spec.hue: field not declared in schema",
    );
    server.apply(STATUS, "fieldManager=me", &configuration(json!({}))).await.assert_status(
        404,
        "NotFound",
        "gadgets.test.dev \"a\" not found",
    );
    let mut named = configuration(json!({}));
    named["metadata"]["uid"] = json!("u");
    server.apply(A, "fieldManager=me", &named).await.assert_status(
        409,
        "Conflict",
        "Operation cannot be fulfilled on gadgets.test.dev \"a\": uid mismatch: the provided object specified uid u, and \
         no existing object was found",
    );
    server.create("shop", gadget("a", 1)).await;
    let mut stale = configuration(json!({}));
    stale["metadata"]["resourceVersion"] = json!("999");
    let answer = server.apply(A, "fieldManager=me", &stale).await;
    assert_eq!((answer.code, &answer.json()["reason"]), (StatusCode::CONFLICT, &json!("Conflict")));
}

#[tokio::test]
async fn malformed_configurations_are_bad_requests() {
    let server = Server::start().await;
    let target = format!("{A}?fieldManager=me&fieldValidation=Strict");
    let headers = [("content-type", "application/apply-patch+yaml")];
    let send = |body: &'static str| server.send("PATCH", &target, &headers, body);
    let message = "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go \
                   value of type map[string]interface {}";
    send("[]").await.assert_status(400, "BadRequest", message);
    let answer = send("a: [").await.json();
    assert!(
        answer["message"].as_str().unwrap().starts_with("error decoding YAML: error converting YAML to JSON: yaml: ")
    );
    let twice = "apiVersion: test.dev/v1\nkind: Gadget\nmetadata: {name: a}\nspec:\n  size: 1\n  size: 2\n";
    let message = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \
                   \"size\" already set in map";
    send(twice).await.assert_status(400, "BadRequest", message);
    let answer = server.send("PATCH", &format!("{A}?fieldManager=me"), &headers, twice).await;
    assert_eq!(answer.code, StatusCode::CREATED);
    assert_eq!(answer.warnings(), [r#"299 - "line 6: key \"size\" already set in map""#]);
}

#[tokio::test]
async fn dry_run_applies_nothing() {
    let server = Server::start().await;
    let tried = server.apply(A, "fieldManager=me&dryRun=All", &configuration(json!({"size": 1}))).await;
    assert_eq!((tried.code, &tried.json()["spec"]["size"]), (StatusCode::CREATED, &json!(1)));
    assert_eq!(server.get(A).await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn status_is_applied_by_itself() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    let mut status = configuration(json!({"size": 7}));
    status["status"] = json!({"phase": "up"});
    let answer = server.apply(STATUS, "fieldManager=me", &status).await.json();
    assert_eq!((&answer["spec"]["size"], &answer["status"]), (&json!(1), &json!({"phase": "up"})));
    assert_eq!(owners(&answer)[0], owner("me", "Apply", "status", json!({"f:status": {"f:phase": {}}})));
    let main = server.apply(A, "fieldManager=you&force=true", &status).await.json();
    assert_eq!(owners(&main)[1], owner("you", "Apply", "", json!({"f:spec": {"f:size": {}}})));
}

#[tokio::test]
async fn apply_restarts_ended_field_tracking() {
    let server = Server::start().await;
    let created = server.create("shop", gadget("a", 1)).await;
    for nobody in [json!([{}]), json!([])] {
        let mut object = created.clone();
        object["metadata"]["managedFields"] = nobody;
        object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        let answer = server.put(A, &object).await.json();
        assert_eq!(answer["metadata"].get("managedFields"), None);
    }
    let still = server.merge(A, &json!({"spec": {"size": 2}})).await.json();
    assert_eq!(still["metadata"].get("managedFields"), None);

    let applied = server.apply(A, "fieldManager=me", &configuration(json!({"owner": "me"}))).await.json();
    assert_eq!(
        owners(&applied),
        [
            owner("before-first-apply", "Update", "", json!({"f:spec": {"f:size": {}}})),
            owner("me", "Apply", "", json!({"f:spec": {"f:owner": {}}})),
        ]
    );
}

/// What kubectl does when client-side apply becomes server-side apply.
#[tokio::test]
async fn managers_can_be_rewritten_by_a_json_patch() {
    let server = Server::start().await;
    let created = server.create("shop", gadget("a", 1)).await;
    let mut entries = created["metadata"]["managedFields"].clone();
    entries[0]["manager"] = json!("kubectl");
    entries[0]["operation"] = json!("Apply");
    let patch = json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": created["metadata"]["resourceVersion"]},
    ]);
    let headers = [("content-type", "application/json-patch+json")];
    let answer = server.send("PATCH", A, &headers, patch.to_string()).await.json();
    assert_eq!(answer["metadata"]["managedFields"], entries);
    let pruned = server.apply(A, "fieldManager=kubectl", &configuration(json!({"owner": "me"}))).await.json();
    assert_eq!(owners(&pruned), [owner("kubectl", "Apply", "", json!({"f:spec": {"f:owner": {}}}))]);
}

#[tokio::test]
async fn kubectl_takes_over_what_client_side_apply_set() {
    let server = Server::start().await;
    let mut object = gadget("a", 1);
    let last = configuration(json!({"size": 1})).to_string();
    object["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": last});
    let target = format!("{GADGETS}?fieldManager=kubectl-client-side-apply");
    assert_eq!(server.post(&target, &object).await.code, StatusCode::CREATED);
    let changed = configuration(json!({"size": 2}));
    let refused = server.apply(A, "fieldManager=me", &changed).await;
    assert_eq!(refused.code, StatusCode::CONFLICT);
    let taken = server.apply(A, "fieldManager=kubectl", &changed).await;
    assert_eq!((taken.code, &taken.json()["spec"]["size"]), (StatusCode::OK, &json!(2)));
    let annotation = &taken.json()["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"];
    assert_eq!(
        annotation.as_str().unwrap(),
        "{\"apiVersion\":\"test.dev/v1\",\"kind\":\"Gadget\",\"metadata\":{\"name\":\"a\"},\"spec\":{\"size\":2}}\n"
    );
}

#[tokio::test]
async fn strategic_patches_merge_lists_by_key() {
    let server = Server::start().await;
    let headers = [("content-type", "application/strategic-merge-patch+json")];
    let patch = |body: Value| server.send("PATCH", A, &headers, body.to_string());
    patch(json!({})).await.assert_status(404, "NotFound", "gadgets.test.dev \"a\" not found");
    server.create("shop", configuration(json!({"parts": [{"name": "x", "weight": 1}, {"name": "y"}]}))).await;
    let answer =
        patch(json!({"spec": {"parts": [{"name": "y", "weight": 2}, {"name": "x", "$patch": "delete"}]}})).await;
    assert_eq!((answer.code, &answer.json()["spec"]["parts"]), (StatusCode::OK, &json!([{"name": "y", "weight": 2}])));
    let message = "invalid patch format of setElementOrder list";
    patch(json!({"spec": {"$setElementOrder": []}})).await.assert_status(400, "BadRequest", message);
    let unknown = patch(json!({"spec": {"hue": 1}})).await;
    assert_eq!(unknown.warnings(), [r#"299 - "unknown field \"spec.hue\"""#]);
    let message = "json: cannot unmarshal array into Go value of type map[string]interface {}";
    patch(json!([])).await.assert_status(400, "BadRequest", message);
}

#[tokio::test]
async fn owner_without_uid_counts_as_empty_uid() {
    let server = Server::start().await;
    let apply = async |owners: Value| {
        let mut gadget = gadget("a", 1);
        gadget["metadata"]["ownerReferences"] = owners;
        server.apply(A, "fieldManager=me", &gadget).await
    };
    let owner = json!({"apiVersion": "v1", "kind": "K", "name": "n"});
    apply(json!([owner])).await.assert_status(
        422,
        "Invalid",
        "Gadget.test.dev \"a\" is invalid: metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
    );
    apply(json!([owner, owner])).await.assert_status_without_reason(
        500,
        "failed to create typed patch object (/a; test.dev/v1, Kind=Gadget): .metadata.ownerReferences: duplicate \
         entries for key [uid=\"\"]",
    );
}

/// In the order in which they are found, and in the words of whoever finds them upstream.
#[tokio::test]
async fn apply_reports_invalid_metadata() {
    let server = Server::start().await;
    let apply = async |metadata: Value| {
        let configuration =
            json!({"apiVersion": "test.dev/v1", "kind": "Gadget", "metadata": metadata, "spec": {"size": 1}});
        server.apply(A, "fieldManager=me", &configuration).await
    };
    apply(json!({"name": "a", "creationTimestamp": "noon"})).await.assert_status_without_reason(
        500,
        "failed to convert new object (/a; test.dev/v1, Kind=Gadget) to proper version: unable to convert unstructured \
         object to test.dev/v1, Kind=Gadget: parsing time \"noon\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \
         \"noon\" as \"2006\"",
    );
    apply(json!({"name": "a", "generation": 1.5})).await.assert_status_without_reason(
        500,
        "failed to convert new object (/a; test.dev/v1, Kind=Gadget) to proper version: unable to convert unstructured \
         object to test.dev/v1, Kind=Gadget: cannot convert float64 to int64",
    );
    // Too large for any whole number, it is read as another.
    apply(json!({"name": "a", "generation": 1e30})).await.assert_status_without_reason(
        500,
        "failed to convert new object (/a; test.dev/v1, Kind=Gadget) to proper version: unable to convert unstructured \
         object to test.dev/v1, Kind=Gadget: cannot convert float64 to int64",
    );
    let nobody = "Operation cannot be fulfilled on gadgets.test.dev \"a\": uid mismatch: the provided object specified \
                  uid u, and no existing object was found";
    apply(json!({"uid": "u"})).await.assert_status(409, "Conflict", nobody);
    for version in ["abc", "-1", "18446744073709551616"] {
        let why = if version.len() > 3 { "value out of range" } else { "invalid syntax" };
        apply(json!({"name": "a", "resourceVersion": version}))
            .await
            .assert_status_without_reason(500, &format!("strconv.ParseUint: parsing \"{version}\": {why}"));
    }
    apply(json!({"name": "a", "managedFields": [{}]})).await.assert_status(
        400,
        "BadRequest",
        "metadata.managedFields must be nil",
    );
    apply(json!({"name": "a", "managedFields": "x"})).await.assert_status_without_reason(
        500,
        "failed to create typed patch object (/a; test.dev/v1, Kind=Gadget): .metadata.managedFields: expected list, \
         got &{x}",
    );
    // What is no entry is none, and read with the rest.
    let fields = async |entry: Value| apply(json!({"name": "a", "managedFields": [entry]})).await;
    let entry = json!({"time": "2020-01-02T03:04:05Z", "manager": "m", "operation": null, "fieldsV1": 1});
    fields(entry).await.assert_status(400, "BadRequest", "metadata.managedFields must be nil");
    fields(json!({"manager": 1})).await.assert_status_without_reason(
        500,
        "failed to create typed patch object (/a; test.dev/v1, Kind=Gadget): .metadata.managedFields[0].manager: \
         expected string, got &value.valueUnstructured{Value:1}",
    );
    for (time, why) in [
        (json!("noon"), "parsing time \"noon\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"noon\" as \"2006\""),
        (json!(5), "json: cannot unmarshal number into Go value of type string"),
    ] {
        fields(json!({"time": time})).await.assert_status_without_reason(
            500,
            &format!(
                "failed to convert new object (/a; test.dev/v1, Kind=Gadget) to proper version: unable to convert \
                 unstructured object to test.dev/v1, Kind=Gadget: {why}"
            ),
        );
    }
    let created = apply(json!({"name": "a", "managedFields": [null], "resourceVersion": "1"})).await;
    assert_eq!((created.code, owners(&created.json()).len()), (StatusCode::CREATED, 1), "{}", created.text());
    // The namespace is that of the configuration.
    apply(json!({"name": "a", "generation": 1.5})).await.assert_status_without_reason(
        500,
        "failed to convert new object (/a; test.dev/v1, Kind=Gadget) to proper version: unable to convert unstructured \
         object to test.dev/v1, Kind=Gadget: cannot convert float64 to int64",
    );
}

#[tokio::test]
async fn owners_that_are_written_by_hand_are_validated() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    let write = async |manager: &str, subresource: &str, fields: Value| {
        let entry = json!({
            "manager": manager, "operation": "Update", "apiVersion": "test.dev/v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields, "subresource": subresource,
        });
        server.merge(A, &json!({"metadata": {"managedFields": [entry]}})).await
    };
    let fields = json!({"f:spec": {"f:size": {}}});
    let invalid = |errors: &str| format!("Gadget.test.dev \"a\" is invalid: {errors}");
    let long = write(&"x".repeat(129), "", fields.clone()).await;
    let message = "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes";
    long.assert_status(422, "Invalid", &invalid(message));
    // Both as a part of the object and as one of the change.
    assert_eq!(long.json()["details"]["causes"].as_array().map(Vec::len), Some(2));
    let message =
        "metadata.managedFields[0].manager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)";
    write("a\nb", "", fields.clone()).await.assert_status(422, "Invalid", &invalid(message));
    let message = "metadata.managedFields[0].subresource: Too long: may not be more than 256 bytes";
    write("x", &"s".repeat(257), fields.clone()).await.assert_status(422, "Invalid", &invalid(message));
    // What cannot be read is what nobody has written.
    let kept = write(&"x".repeat(129), "", json!(1)).await;
    assert_eq!((kept.code, owners(&kept.json()).len()), (StatusCode::OK, 1), "{}", kept.text());
    let written = write(&"x".repeat(128), &"s".repeat(256), fields).await;
    assert_eq!(written.code, StatusCode::OK, "{}", written.text());
}

#[tokio::test]
async fn user_agent_of_any_characters_names_manager() {
    let server = Server::start().await;
    let headers = [("content-type", "application/json"), ("user-agent", "\u{e9}/1")];
    let created = server.send("POST", GADGETS, &headers, gadget("a", 1).to_string()).await.json();
    assert_eq!(owners(&created)[0].0, "\u{e9}");
}

#[tokio::test]
async fn deletion_timestamp_patch_changes_only_ownership() {
    let server = Server::start().await;
    let mut going = gadget("a", 1);
    going["metadata"]["finalizers"] = json!(["test.dev/wait"]);
    server.create("shop", going).await;
    let deleted = server.send("DELETE", A, &[], "").await.json();
    let patch = async |time: Value| {
        let patch = json!({"metadata": {"deletionTimestamp": time}});
        let answer = server.merge(&format!("{A}?fieldManager=me"), &patch).await.json();
        assert_eq!(answer["metadata"]["deletionTimestamp"], deleted["metadata"]["deletionTimestamp"]);
        owners(&answer).into_iter().find(|owner| owner.0 == "me")
    };
    let owned = owner("me", "Update", "", json!({"f:metadata": {"f:deletionTimestamp": {}}}));
    assert_eq!(patch(json!("2001-01-01T00:00:00Z")).await, Some(owned));
    assert_eq!(patch(Value::Null).await, None);
}

#[tokio::test]
async fn strategic_patch_reports_wrong_types_distinctly() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    for (patch, text) in [
        (json!({"spec": "x"}), "cannot restore struct from: string"),
        (json!({"metadata": 5}), "cannot restore struct from: int64"),
        (json!({"metadata": {"ownerReferences": ["x"]}}), "cannot restore struct from: string"),
        (json!({"metadata": {"labels": 5}}), "cannot restore map from int64"),
        (json!({"metadata": {"uid": []}}), "unrecognized type: string"),
        (json!({"metadata": {"creationTimestamp": 5}}), "json: cannot unmarshal number into Go value of type string"),
    ] {
        let headers = [("content-type", "application/strategic-merge-patch+json")];
        let answer = server.send("PATCH", A, &headers, patch.to_string()).await;
        assert_eq!(answer.code, StatusCode::UNPROCESSABLE_ENTITY);
        let message = answer.json()["message"].as_str().unwrap_or("").to_owned();
        assert!(message.ends_with(&format!(": {text}")), "{message}");
    }
}
