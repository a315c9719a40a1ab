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
