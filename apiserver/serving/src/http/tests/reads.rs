//! Get and list: forms, formats, selection.

use std::io::Read;

use http::StatusCode;
use serde_json::{Value, json};

use super::support::{Server, TABLE, gadget};

const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

#[tokio::test]
async fn created_object_is_got_as_it_was_answered() {
    let server = Server::start().await;
    let created = server.post("/apis/test.dev/v1/namespaces/shop/gadgets", &gadget("a", 1)).await;
    assert_eq!(created.code, StatusCode::CREATED);
    let created = created.json();
    assert_eq!(created["spec"], json!({"size": 1}));
    assert_eq!(created["metadata"]["namespace"], "shop");
    assert_eq!((&created["apiVersion"], &created["kind"]), (&json!("test.dev/v1"), &json!("Gadget")));

    let got = server.get("/apis/test.dev/v1/namespaces/shop/gadgets/a").await;
    assert_eq!((got.code, got.header("content-type")), (StatusCode::OK, "application/json"));
    assert!(got.body.ends_with(b"}\n"));
    assert_eq!(got.json(), created);
}

#[tokio::test]
async fn list_returns_kind_version_and_ordered_items() {
    let server = Server::start().await;
    let b = server.create("shop", gadget("b", 2)).await;
    let a = server.create("shop", gadget("a", 1)).await;
    let other = server.create("ann", gadget("c", 3)).await;

    let list = server.get("/apis/test.dev/v1/namespaces/shop/gadgets").await.json();
    let version = &list["metadata"]["resourceVersion"];
    // The list's own kind says what its items are.
    let [a, b, other] = [a, b, other].map(|mut item| {
        let fields = item.as_object_mut().unwrap();
        fields.remove("kind");
        fields.remove("apiVersion");
        item
    });
    assert_eq!(
        list,
        json!({"kind": "GadgetList", "apiVersion": "test.dev/v1", "metadata": {"resourceVersion": version}, "items": [a, b]})
    );
    let all = server.get("/apis/test.dev/v1/gadgets").await.json();
    assert_eq!(all["items"], json!([other, a, b]));
    let empty = server.get("/apis/test.dev/v1/namespaces/none/gadgets").await;
    assert!(empty.text().ends_with("\"items\":[]}\n"), "{}", empty.text());
}

#[tokio::test]
async fn pages_tell_how_to_go_on() {
    let server = Server::start().await;
    for name in ["a", "b", "c"] {
        server.create("shop", gadget(name, 1)).await;
    }
    let first = server.get("/apis/test.dev/v1/namespaces/shop/gadgets?limit=2").await.json();
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    server.create("shop", gadget("d", 1)).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second =
        server.get(&format!("/apis/test.dev/v1/namespaces/shop/gadgets?limit=2&continue={token}")).await.json();
    assert_eq!(second["metadata"], json!({"resourceVersion": first["metadata"]["resourceVersion"]}));
    let names: Vec<_> = second["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
    assert_eq!(names, ["c"]);
}

#[tokio::test]
async fn selectors_narrow_lists() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    let mut labelled = gadget("b", 2);
    labelled["metadata"]["labels"] = json!({"tier": "web"});
    server.create("shop", labelled).await;
    for query in ["labelSelector=tier%3Dweb", "fieldSelector=metadata.name%3Db", "fieldSelector=spec.size%3D2"] {
        let list = server.get(&format!("/apis/test.dev/v1/gadgets?{query}")).await.json();
        let names: Vec<_> = list["items"].as_array().unwrap().iter().map(|item| &item["metadata"]["name"]).collect();
        assert_eq!(names, ["b"], "{query}");
    }
    let refused = server.get("/apis/test.dev/v1/gadgets?fieldSelector=spec.colour%3Dred").await;
    refused.assert_status(400, "BadRequest", "field label not supported: spec.colour");
}

#[tokio::test]
async fn table_shows_columns_and_metadata() {
    let server = Server::start().await;
    let created = server.create("shop", gadget("a", 1)).await;
    let table = server.send("GET", "/apis/test.dev/v1/namespaces/shop/gadgets", &[("accept", TABLE)], "").await.json();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns: Vec<_> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (&c["name"], &c["format"], &c["priority"]))
        .collect();
    assert_eq!(
        columns,
        [
            (&json!("Name"), &json!("name"), &json!(0)),
            (&json!("Size"), &json!(""), &json!(0)),
            (&json!("Owner"), &json!(""), &json!(1)),
            (&json!("Age"), &json!(""), &json!(0)),
        ]
    );
    assert_eq!(
        table["rows"],
        json!([{
            "cells": ["a", 1, null, table["rows"][0]["cells"][3]],
            "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]},
        }])
    );
    let age = table["rows"][0]["cells"][3].as_str().unwrap();
    assert!(age.ends_with('s') && age.len() < 4, "{age}");
    assert!(table["metadata"]["resourceVersion"].is_string());
}

#[tokio::test]
async fn table_rows_carry_what_is_asked_for() {
    let server = Server::start().await;
    let created = server.create("shop", gadget("a", 1)).await;
    let path = "/apis/test.dev/v1/namespaces/shop/gadgets/a?includeObject=";
    let row = async |include: &str| {
        let table = server.send("GET", &format!("{path}{include}"), &[("accept", TABLE)], "").await.json();
        assert_eq!(table["metadata"], json!({"resourceVersion": created["metadata"]["resourceVersion"]}));
        table["rows"][0]["object"].clone()
    };
    assert_eq!(row("None").await, Value::Null);
    assert_eq!(row("Object").await, created);
    assert_eq!(row("Metadata").await["kind"], "PartialObjectMetadata");
    let refused = server.send("GET", &format!("{path}All"), &[("accept", TABLE)], "").await;
    refused.assert_status(
        400,
        "BadRequest",
        "Unable to convert to Table as requested: includeObject: Invalid value: \"All\": must be 'Metadata', 'Object', 'None', or empty",
    );
}

#[tokio::test]
async fn metadata_alone_is_what_informers_of_metadata_read() {
    let server = Server::start().await;
    let created = server.create("shop", gadget("a", 1)).await;
    let partial =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": created["metadata"]});
    let path = "/apis/test.dev/v1/namespaces/shop/gadgets";

    let one = server.send("GET", &format!("{path}/a"), &[("accept", PARTIAL)], "").await;
    assert_eq!(one.json(), partial);
    let list = server.send("GET", path, &[("accept", PARTIAL_LIST)], "").await.json();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1")));
    assert_eq!(list["items"], json!([partial]));

    server.send("GET", path, &[("accept", PARTIAL)], "").await.assert_status(
        406,
        "NotAcceptable",
        "you requested PartialObjectMetadata, but the requested object is a list (*test.GadgetList)",
    );
    server.send("GET", &format!("{path}/a"), &[("accept", PARTIAL_LIST)], "").await.assert_status(
        406,
        "NotAcceptable",
        "you requested PartialObjectMetadataList, but the requested object is not a list (*test.Gadget)",
    );
}

#[tokio::test]
async fn yaml_goes_out_for_objects_and_errors() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    let yaml = [("accept", "application/yaml")];
    let got = server.send("GET", "/apis/test.dev/v1/namespaces/shop/gadgets/a", &yaml, "").await;
    assert_eq!(got.header("content-type"), "application/yaml");
    assert!(got.text().contains("\nkind: Gadget\n"), "{}", got.text());
    let missing = server.send("GET", "/apis/test.dev/v1/namespaces/shop/gadgets/b", &yaml, "").await;
    assert_eq!(missing.code, StatusCode::NOT_FOUND);
    assert!(missing.text().contains("reason: NotFound\n"), "{}", missing.text());
}

#[tokio::test]
async fn missing_object_is_not_found() {
    let server = Server::start().await;
    let missing = server.get("/apis/test.dev/v1/namespaces/shop/gadgets/b").await;
    missing.assert_failure(
        404,
        "NotFound",
        "gadgets.test.dev \"b\" not found",
        &json!({"name": "b", "group": "test.dev", "kind": "gadgets"}),
    );
}

#[tokio::test]
async fn wrong_list_options_are_told() {
    let server = Server::start().await;
    let refused = server.get("/apis/test.dev/v1/gadgets?resourceVersionMatch=Newest&resourceVersion=1").await;
    refused.assert_failure(
        422,
        "Invalid",
        "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Unsupported value: \"Newest\": supported values: \
         \"Exact\", \"NotOlderThan\", \"\"",
        &json!({
            "group": "meta.k8s.io",
            "kind": "ListOptions",
            "causes": [{
                "reason": "FieldValueNotSupported",
                "message": "Unsupported value: \"Newest\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
                "field": "resourceVersionMatch",
            }],
        }),
    );
    let refused = server.get("/apis/test.dev/v1/gadgets?limit=many").await;
    refused.assert_status(400, "BadRequest", "strconv.ParseInt: parsing \"many\": invalid syntax");
}

/// What upstream says first when more than one thing is wrong: of the options, then of the read, then of the form.
#[tokio::test]
async fn forms_are_refused_last() {
    let server = Server::start().await;
    server.create("shop", gadget("a", 1)).await;
    let gadgets = "/apis/test.dev/v1/namespaces/shop/gadgets";
    let [partial, partial_list, table] = [PARTIAL, PARTIAL_LIST, "application/json;as=Table;v=v1;g=meta.k8s.io"];
    for (query, accept, code, part) in [
        ("?limit=x", partial, 400, "strconv.ParseInt"),
        ("?labelSelector=%3D", partial, 400, "found '='"),
        ("?labelSelector=%3D&resourceVersionMatch=Exact", partial, 400, "found '='"),
        ("?fieldSelector=foo&resourceVersionMatch=Exact", partial, 400, "can't understand 'foo'"),
        ("?fieldSelector=foo%3D1&resourceVersionMatch=Exact", partial, 422, "resourceVersionMatch"),
        ("?fieldSelector=foo%3D1&resourceVersion=x", partial, 400, "field label not supported"),
        ("?resourceVersion=x", partial, 400, "invalid resource version"),
        ("", partial, 406, "you requested PartialObjectMetadata"),
        ("?includeObject=All&resourceVersion=x", table, 400, "invalid resource version"),
        ("?includeObject=All", table, 400, "includeObject"),
        ("/b", partial_list, 404, "not found"),
        ("/b?includeObject=All", table, 404, "not found"),
        ("/a?includeObject=All&resourceVersion=x", table, 500, "resourceVersion"),
        ("/a?includeObject=All", table, 400, "includeObject"),
        ("?watch=1&labelSelector=%3D&sendInitialEvents=true", table, 400, "found '='"),
        ("?watch=1&includeObject=All&resourceVersion=x", table, 500, "resourceVersion"),
        ("?watch=1&includeObject=All", table, 400, "includeObject"),
    ] {
        let answer = server.send("GET", &format!("{gadgets}{query}"), &[("accept", accept)], "").await;
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        assert!(answer.code == code && message.contains(part), "{query}: {} {message}", answer.code);
    }
    // A write whose answer cannot be had is not done.
    let body = gadget("c", 1).to_string();
    let headers = [("accept", partial_list), ("content-type", "application/json")];
    assert_eq!(server.send("POST", gadgets, &headers, body).await.code, StatusCode::NOT_ACCEPTABLE);
    assert_eq!(server.get(&format!("{gadgets}/c")).await.code, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn long_lists_are_compressed_for_those_who_ask() {
    let server = Server::start().await;
    let mut large = gadget("a", 1);
    large["metadata"]["annotations"] = json!({"note": "x".repeat(100 * 1024)});
    server.create("shop", large.clone()).await;
    let path = "/apis/test.dev/v1/gadgets";
    let gzip = [("accept-encoding", "deflate, gzip")];
    assert_eq!(server.send("GET", path, &gzip, "").await.header("content-encoding"), "");

    large["metadata"]["name"] = json!("b");
    server.create("shop", large).await;
    let plain = server.get(path).await;
    assert_eq!(plain.header("content-encoding"), "");
    let compressed = server.send("GET", path, &gzip, "").await;
    assert_eq!((compressed.header("content-encoding"), compressed.header("vary")), ("gzip", "Accept-Encoding"));
    let mut text = String::new();
    flate2::read::GzDecoder::new(&compressed.body[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, plain.text());
}

#[tokio::test]
async fn every_answer_says_who_and_forbids_caching() {
    let server = Server::start().await;
    let answer = server.send("GET", "/apis/test.dev/v1/gadgets", &[("audit-id", "here")], "").await;
    assert_eq!((answer.header("audit-id"), answer.header("cache-control")), ("here", "no-cache, private"));
    assert_eq!(server.get("/apis/test.dev/v1/gadgets").await.header("audit-id").len(), 36);
}
