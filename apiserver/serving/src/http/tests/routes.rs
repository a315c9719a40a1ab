//! Paths and methods that lead nowhere, and subresources.

use http::StatusCode;
use serde_json::json;

use super::support::{Server, gadget};

const NOT_FOUND: &str = "the server could not find the requested resource";
const NOT_ALLOWED: &str = "the server does not allow this method on the requested resource";

#[tokio::test]
async fn unknown_paths_are_plain_not_found() {
    let server = Server::start().await;
    for path in ["/nothing", "/apis/other.dev/v1/gadgets", "/api/v1/pods"] {
        let answer = server.get(path).await;
        assert_eq!((answer.code, answer.text()), (StatusCode::NOT_FOUND, "404 page not found\n"), "{path}");
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
    }
}

#[tokio::test]
async fn unknown_resources_of_a_known_version_are_a_status() {
    let server = Server::start().await;
    for path in [
        "/apis/test.dev/v9/gadgets",
        "/apis/test.dev/v1/gizmos",
        "/apis/test.dev/v1/gadgets/a",
        "/apis/test.dev/v1/namespaces/shop/shelves",
        "/apis/test.dev/v1/namespaces/shop/gadgets/a/nothing",
        "/apis/test.dev/v1/namespaces/shop/gadgets/a/status/more",
    ] {
        let answer = server.get(path).await;
        assert_eq!(
            answer.json(),
            json!({
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": NOT_FOUND,
                "reason": "NotFound",
                "details": {},
                "code": 404,
            }),
            "{path}"
        );
    }
}

#[tokio::test]
async fn verbs_that_there_are_not_are_not_allowed() {
    let server = Server::start().await;
    let collection = "/apis/test.dev/v1/namespaces/shop/gadgets";
    for (method, path) in [
        ("PUT", collection.to_owned()),
        ("OPTIONS", collection.to_owned()),
        ("HEAD", collection.to_owned()),
        ("POST", format!("{collection}/a")),
        ("DELETE", format!("{collection}/a/status")),
        ("POST", "/apis/test.dev/v1/gadgets".to_owned()),
        ("DELETE", "/apis/test.dev/v1/gadgets".to_owned()),
        ("PUT", format!("{collection}/a/spin")),
        // Shelves are written by the server alone.
        ("POST", "/apis/test.dev/v1/shelves".to_owned()),
        ("DELETE", "/apis/test.dev/v1/shelves/a".to_owned()),
    ] {
        let answer = server.send(method, &path, &[], "").await;
        answer.assert_status(405, "MethodNotAllowed", NOT_ALLOWED);
    }
    let watch = server.get("/apis/test.dev/v1/shelves?watch=true").await;
    watch.assert_status(405, "MethodNotAllowed", "watch is not supported on resources of kind \"shelves.test.dev\"");
}

#[tokio::test]
async fn collection_path_accepts_empty_namespace() {
    let server = Server::start().await;
    let gadgets = "/apis/test.dev/v1/namespaces//gadgets";
    server.create("shop", gadget("a", 1)).await;
    let refused = server.post(gadgets, &json!({})).await;
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(refused.code == 422 && message.contains("metadata.namespace: Required value"), "{message}");
    assert_eq!(server.send("POST", gadgets, &[("content-type", "text/plain")], "x").await.code, 415);
    assert_eq!(server.send("PUT", gadgets, &[], "").await.code, 405);
    let none = server.send("DELETE", &format!("{gadgets}?labelSelector=none"), &[], "").await;
    assert_eq!((none.code, &none.json()["items"]), (StatusCode::OK, &json!([])));
    assert_eq!(server.get(gadgets).await.json()["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn subresource_gets_the_call_as_it_came() {
    let server = Server::start().await;
    let path = "/apis/test.dev/v1/namespaces/shop/gadgets/a/spin?speed=9&dryRun=All&fieldManager=me";
    let answer = server.send("POST", path, &[], "body").await;
    assert_eq!(
        answer.json(),
        json!({
            "namespace": "shop",
            "name": "a",
            "method": "POST",
            "speed": "9",
            "dryRun": true,
            "fieldManager": "me",
            "body": "body",
        })
    );
    assert_eq!(answer.header("cache-control"), "no-cache, private");
    let refused = server.send("POST", "/apis/test.dev/v1/namespaces/shop/gadgets/a/spin?dryRun=Some", &[], "").await;
    assert_eq!(refused.code, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn creating_subresource_behaves_like_create() {
    let server = Server::start().await;
    let server = &server;
    let send = async |query: &str, headers: &[(&str, &str)], body: &'static str| {
        let path = format!("/apis/test.dev/v1/namespaces/shop/gadgets/a/copy?{query}");
        server.send("POST", &path, headers, body).await
    };
    let yaml = [("content-type", "application/yaml"), ("accept", "application/yaml")];
    let answer = send("", &yaml, "metadata: {name: b}\nspec: {size: 3}\n").await;
    assert_eq!((answer.code, answer.header("content-type")), (StatusCode::CREATED, "application/yaml"));
    let stored = server.get("/apis/test.dev/v1/namespaces/shop/gadgets/b").await.json();
    assert_eq!(stored["spec"], json!({ "owner": "a", "size": 3 }));

    let partial = [("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")];
    let answer = send("dryRun=All", &partial, r#"{"metadata":{"name":"c"}}"#).await;
    assert_eq!((answer.code, &answer.json()["kind"]), (StatusCode::CREATED, &json!("PartialObjectMetadata")));
    let unnamed = send("", &[], "").await;
    assert_eq!(unnamed.code, StatusCode::UNPROCESSABLE_ENTITY, "nothing is an object without a name");

    let unknown = r#"{"metadata":{"name":"c"},"spec":{"unknown":1}}"#;
    let answer = send("dryRun=All", &[], unknown).await;
    assert_eq!(answer.header("warning"), r#"299 - "unknown field \"spec.unknown\"""#);
    for (query, body, part) in [
        ("fieldValidation=Strict", unknown, "strict decoding error: unknown field \"spec.unknown\""),
        ("", r#"{"kind":"Shelf","apiVersion":"test.dev/v1"}"#, "Shelf"),
        ("", r#"{"metadata":{"name":"c","namespace":"other"}}"#, "does not match the namespace sent on the request"),
        ("", r#"{"metadata":5}"#, "cannot unmarshal number"),
    ] {
        let answer = send(query, &[], body).await;
        assert_eq!(answer.code, StatusCode::BAD_REQUEST, "{body}");
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(send("", &[("content-type", "text/plain")], "x").await.code, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let missing = server.get("/apis/test.dev/v1/namespaces/shop/gadgets/c").await;
    assert_eq!(missing.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn subresource_is_asked_for_what_it_produces() {
    let server = Server::start().await;
    let path = "/apis/test.dev/v1/namespaces/shop/gadgets/a/spin";
    for (accept, code) in [("text/plain", 200), ("application/json", 200), ("text/html", 406)] {
        let answer = server.send("GET", path, &[("accept", accept)], "").await;
        assert_eq!(answer.code, code, "{accept}");
    }
}

#[tokio::test]
async fn what_cannot_be_negotiated_is_refused() {
    let server = Server::start().await;
    let path = "/apis/test.dev/v1/namespaces/shop/gadgets";
    server.send("GET", path, &[("accept", "application/cbor")], "").await.assert_status(
        406,
        "NotAcceptable",
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/json;stream=watch",
    );
    let types = "the body of the request was in an unknown format - accepted media types include: ";
    let body = gadget("a", 1).to_string();
    let protobuf = [("content-type", "application/vnd.kubernetes.protobuf")];
    let answer = server.send("POST", path, &protobuf, body).await;
    answer.assert_status(415, "UnsupportedMediaType", &format!("{types}application/json, application/yaml"));
    for patch in ["application/apply-patch+cbor", "application/json"] {
        let answer = server.send("PATCH", &format!("{path}/a"), &[("content-type", patch)], "{}").await;
        answer.assert_status(415, "UnsupportedMediaType", "415: Unsupported Media Type");
    }
}
