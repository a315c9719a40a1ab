//! The documents as clients get them.

use std::collections::BTreeSet;

use http::HeaderValue;

use super::*;
use crate::discovery::tests::definitions;

fn get_from(openapi: &OpenApi, target: &str, accept: &str, tag: &str) -> Response<Bytes> {
    let mut headers = HeaderMap::new();
    for (name, value) in [(header::ACCEPT, accept), (header::IF_NONE_MATCH, tag)] {
        if !value.is_empty() {
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    openapi.respond(&Method::GET, path, query, &headers).unwrap()
}

fn openapi() -> OpenApi {
    OpenApi::new(&definitions())
}

fn document(target: &str) -> Value {
    serde_json::from_slice(get_from(&openapi(), target, "", "").body()).unwrap()
}

#[test]
fn the_index_leads_to_documents_that_never_change() {
    let openapi = openapi();
    let index: Value = serde_json::from_slice(get_from(&openapi, "/openapi/v3", "", "").body()).unwrap();
    let names: Vec<&String> = index["paths"].as_object().unwrap().keys().collect();
    let expected =
        ["api", "api/v1", "apis", "apis/test.example", "apis/test.example/v1", "apis/test.example/v1beta1", "version"];
    assert_eq!(names, expected);
    let url = index["paths"]["apis/test.example/v1"]["serverRelativeURL"].as_str().unwrap();
    let response = get_from(&openapi, url, "application/json", "");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[header::CACHE_CONTROL], "public, immutable");
    assert!(response.headers()[header::EXPIRES].to_str().unwrap().ends_with(" GMT"));

    let stale = get_from(&openapi, "/openapi/v3/apis/test.example/v1?hash=0000", "", "");
    assert_eq!(
        (stale.status(), stale.headers()[header::LOCATION].to_str().unwrap()),
        (StatusCode::MOVED_PERMANENTLY, url)
    );
    let plain = get_from(&openapi, "/openapi/v3/apis/test.example/v1", "", "");
    assert!(plain.headers().get(header::CACHE_CONTROL).is_none());
    let tag = plain.headers()[header::ETAG].to_str().unwrap();
    assert_eq!(get_from(&openapi, "/openapi/v3/apis/test.example/v1", "", tag).status(), StatusCode::NOT_MODIFIED);
    assert_eq!(get_from(&openapi, "/openapi/v3/apis/other/v1", "", "").status(), StatusCode::NOT_FOUND);
}

#[test]
fn protobuf_is_spoken() {
    let openapi = openapi();
    let spoken = |path: &str, version: &str, magic: &[u8]| {
        let accept = format!("application/com.github.proto-openapi.spec.{version}@v1.0+protobuf");
        let response = get_from(&openapi, path, &accept, "");
        assert_eq!(response.status(), StatusCode::OK);
        let content_type = format!("application/com.github.proto-openapi.spec.{version}.v1.0+protobuf");
        assert_eq!(response.headers()[header::CONTENT_TYPE], content_type);
        assert!(response.body().starts_with(magic));
        let tag = response.headers()[header::ETAG].to_str().unwrap();
        assert_eq!(get_from(&openapi, path, &accept, tag).status(), StatusCode::NOT_MODIFIED);
        let json = get_from(&openapi, path, "application/json", "");
        assert_eq!(json.headers()[header::CONTENT_TYPE], "application/json");
        assert_eq!(json.headers()[header::ETAG], tag);
        assert_eq!(get_from(&openapi, path, "text/html", "").status(), StatusCode::NOT_ACCEPTABLE);
        accept
    };
    let v2 = spoken("/openapi/v2", "v2", b"\x0a\x032.0");
    let v3 = spoken("/openapi/v3/apis/test.example/v1", "v3", b"\x0a\x053.0.0");
    assert_eq!(get_from(&openapi, "/openapi/v2", &v3, "").status(), StatusCode::NOT_ACCEPTABLE);
    assert_eq!(get_from(&openapi, "/openapi/v3/api/v1", &v2, "").status(), StatusCode::NOT_ACCEPTABLE);
    assert!(openapi.respond(&Method::GET, "/openapi", "", &HeaderMap::new()).is_none());
}

#[test]
fn v2_is_compressed_for_those_who_take_it() {
    let openapi = openapi();
    let get = |path: &str, coding: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_str(coding).unwrap());
        openapi.respond(&Method::GET, path, "", &headers).unwrap()
    };
    let plain = get("/openapi/v2", "gzip;q=0, deflate");
    assert!(!plain.headers().contains_key(header::CONTENT_ENCODING));
    let vary: Vec<_> = plain.headers().get_all(header::VARY).iter().collect();
    assert_eq!(vary, ["Accept", "Accept-Encoding"]);
    for coding in ["gzip", "deflate, gzip;q=0.5"] {
        let packed = get("/openapi/v2", coding);
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        let mut text = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed.body()[..]), &mut text).unwrap();
        assert_eq!(text, &plain.body()[..]);
    }
    assert!(!get("/openapi/v3", "gzip").headers().contains_key(header::CONTENT_ENCODING));
}

/// Every operation: method, path, id, query parameters.
#[test]
fn every_path_has_its_operations() {
    let document = document("/openapi/v3/apis/test.example/v1");
    let mut lines = String::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let names: Vec<&str> = parameters.map(|p| p["name"].as_str().unwrap()).collect();
            let (id, action) = (&operation["operationId"], &operation["x-kubernetes-action"]);
            lines += &format!(
                "{method} {path}: {} {} {}\n",
                id.as_str().unwrap(),
                action.as_str().unwrap_or("-"),
                names.join(" ")
            );
        }
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn kinds_are_described_as_kubectl_explain_reads_them() {
    let document = document("/openapi/v3/apis/test.example/v1");
    let schemas = &document["components"]["schemas"];
    insta::assert_json_snapshot!(schemas["example.test.v1.Widget"]);
    insta::assert_json_snapshot!(schemas["example.test.v1.WidgetSpec"]);
    let list = &schemas["example.test.v1.WidgetList"];
    assert_eq!(list["properties"]["items"]["items"]["allOf"][0]["$ref"], "#/components/schemas/example.test.v1.Widget");
    assert_eq!(
        list["x-kubernetes-group-version-kind"],
        json!([{ "group": "test.example", "version": "v1", "kind": "WidgetList" }])
    );
    let meta = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"];
    assert_eq!(meta["ownerReferences"]["x-kubernetes-list-map-keys"], json!(["uid"]));
    assert_eq!(meta["finalizers"]["x-kubernetes-list-type"], "set");
}

/// What kubectl looks for before it leaves validation to the server.
#[test]
fn patches_take_field_validation() {
    let document = document("/openapi/v3/apis/test.example/v1");
    let patch = &document["paths"]["/apis/test.example/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({ "group": "test.example", "version": "v1", "kind": "Widget" })
    );
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
}

#[test]
fn references_lead_somewhere() {
    fn collect(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| collect(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
            _ => {}
        }
    }
    for target in [
        "/openapi/v2",
        "/openapi/v3/api",
        "/openapi/v3/api/v1",
        "/openapi/v3/apis",
        "/openapi/v3/apis/test.example",
        "/openapi/v3/apis/test.example/v1",
        "/openapi/v3/apis/test.example/v1beta1",
        "/openapi/v3/version",
    ] {
        let document = document(target);
        let mut found = BTreeSet::new();
        collect(&document, &mut found);
        assert!(!found.is_empty(), "{target}");
        for reference in found {
            assert!(document.pointer(&reference[1..]).is_some(), "{target}: {reference}");
        }
    }
}

/// Operations are known by their ids, in code that is generated from the document.
#[test]
fn operations_have_ids_of_their_own() {
    let document = document("/openapi/v2");
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in item.as_object().unwrap().values().filter(|value| value.is_object()) {
            assert!(
                ids.insert(operation["operationId"].as_str().unwrap().to_owned()),
                "{path}: {}",
                operation["operationId"]
            );
        }
    }
}

/// Core kinds come with references of their own and read the same.
#[test]
fn core_kinds_keep_their_names() {
    let document = document("/openapi/v3/api/v1");
    let namespace = &document["components"]["schemas"]["io.k8s.api.core.v1.Namespace"];
    assert_eq!(
        namespace["properties"]["spec"]["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.api.core.v1.NamespaceSpec"
    );
    assert_eq!(
        namespace["x-kubernetes-group-version-kind"],
        json!([{ "group": "", "version": "v1", "kind": "Namespace" }])
    );
}

/// Kinds that every group has are in a group's own document of this group and core alone, and in v2 of all.
#[test]
fn options_schema_lists_groups_of_its_document() {
    let groups = |schemas: &Value| -> Vec<String> {
        let kinds = &schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]["x-kubernetes-group-version-kind"];
        let kinds = kinds.as_array().unwrap().iter();
        kinds.map(|is| format!("{}/{}", is["group"].as_str().unwrap(), is["version"].as_str().unwrap())).collect()
    };
    let v3 = document("/openapi/v3/apis/test.example/v1");
    assert_eq!(groups(&v3["components"]["schemas"]), ["/v1", "test.example/v1"]);
    let v2 = document("/openapi/v2");
    assert_eq!(groups(&v2["definitions"]), ["/v1", "test.example/v1", "test.example/v1beta1"]);
}

#[test]
fn discovery_and_the_version_are_described() {
    let operation = |name: &str| {
        let document = document(&format!("/openapi/v3/{name}"));
        document["paths"][format!("/{name}/")]["get"].clone()
    };
    for (name, tag, id, answer) in [
        ("version", "version", "getCodeVersion", "io.k8s.apimachinery.pkg.version.Info"),
        ("apis", "apis", "getAPIVersions", "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList"),
        ("apis/test.example", "testExample", "getTestExampleAPIGroup", "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup"),
        ("api", "core", "getCoreAPIVersions", "io.k8s.apimachinery.pkg.apis.meta.v1.APIVersions"),
    ] {
        let operation = operation(name);
        assert_eq!((&operation["tags"], &operation["operationId"]), (&json!([tag]), &json!(id)));
        let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        assert_eq!(schema["$ref"], format!("#/components/schemas/{answer}"));
    }
}
