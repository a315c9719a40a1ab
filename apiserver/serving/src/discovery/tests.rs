//! The documents as clients get them.

use async_trait::async_trait;
use http::HeaderValue;
use kube::CustomResourceExt;
use serde_json::{Value, json};
use stoa_meta::{
    definition::{CreateHandler, Part, Scope, Subresource, SubresourceCall, SubresourceHandler, SubresourceResponse},
    object::Object,
    request::RequestContext,
    status::ApiError,
    testing::Widget,
};

use super::*;

const AS_AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[derive(Debug)]
struct NoHandler;

#[async_trait]
impl SubresourceHandler for NoHandler {
    async fn call(&self, _: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
        Err(ApiError::not_found("", "", ""))
    }
}

#[async_trait]
impl CreateHandler for NoHandler {
    async fn create(&self, _: &RequestContext, object: Object) -> Result<Object, ApiError> {
        Ok(object)
    }
}

/// Widgets with a subresource and a part that has one, an older version of them, and a core kind.
pub(crate) fn definitions() -> Vec<Arc<ResourceDefinition>> {
    let widgets = ResourceDefinition {
        short_names: vec!["wg".to_owned()],
        categories: vec!["things".to_owned()],
        ..ResourceDefinition::from_crd(&Widget::crd())
    };
    let widgets = widgets.part(Part { name: "quality", path: &["status", "quality"] }).subresource(Subresource {
        name: "press",
        verbs: &["create"],
        kind: ("test.example", "v1", "Widget"),
        description: "press the widget",
        produces: &[],
        handler: Arc::new(NoHandler),
    });
    let older = ResourceDefinition {
        version: "v1beta1".to_owned(),
        verbs: vec!["list", "get"],
        ..ResourceDefinition::from_crd(&Widget::crd())
    };
    let core = ResourceDefinition {
        group: String::new(),
        kind: "Namespace".to_owned(),
        plural: "namespaces".to_owned(),
        singular: "namespace".to_owned(),
        scope: Scope::Cluster,
        has_status: false,
        schema: Arc::new(schemars::schema_for!(k8s_openapi::api::core::v1::Namespace).to_value()),
        ..ResourceDefinition::from_crd(&Widget::crd())
    };
    [older, widgets, core].map(Arc::new).to_vec()
}

/// The answer with its failure as the server writes it.
fn answer(discovery: &Discovery, method: &Method, path: &str, headers: &HeaderMap) -> Response<Bytes> {
    discovery.respond(method, path, headers).unwrap().unwrap_or_else(|error| {
        let mut response = Response::new(serde_json::to_vec(&error.0).unwrap().into());
        *response.status_mut() = StatusCode::from_u16(error.code()).unwrap();
        response
    })
}

fn get_from(discovery: &Discovery, path: &str, accept: &str, tag: &str) -> Response<Bytes> {
    let mut headers = HeaderMap::new();
    for (name, value) in [(header::ACCEPT, accept), (header::IF_NONE_MATCH, tag)] {
        if !value.is_empty() {
            headers.insert(name, HeaderValue::from_str(value).unwrap());
        }
    }
    answer(discovery, &Method::GET, path, &headers)
}

fn get(path: &str, accept: &str) -> Response<Bytes> {
    get_from(&Discovery::new(&definitions()), path, accept, "")
}

fn json_of(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

#[test]
fn roots_name_groups_and_versions_the_stable_ones_first() {
    let version = |version: &str| json!({ "groupVersion": format!("test.example/{version}"), "version": version });
    let group = json!({
        "name": "test.example",
        "versions": [version("v1"), version("v1beta1")],
        "preferredVersion": version("v1"),
    });
    let root = json_of(&get("/apis", ""));
    assert_eq!(root, json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] }));
    let one = json_of(&get("/apis/test.example", "application/json"));
    assert_eq!(
        (&one["kind"], &one["name"], &one["versions"]),
        (&json!("APIGroup"), &group["name"], &group["versions"])
    );
    let core = json_of(&get("/api/", ""));
    assert_eq!((&core["kind"], &core["versions"]), (&json!("APIVersions"), &json!(["v1"])));
}

#[test]
fn versions_list_resources_and_subresources() {
    let response = get("/apis/test.example/v1", "");
    insta::assert_json_snapshot!(json_of(&response));
    assert!(!response.headers().contains_key(header::VARY));
    // The fields are in the order of Go's types, which people see with `kubectl get --raw`.
    let beginning = r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"test.example/v1","resources":[{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","verbs":["#;
    assert!(response.body().starts_with(beginning.as_bytes()), "{:?}", response.body());
    assert_eq!(json_of(&get("/api/v1", ""))["resources"][0]["name"], "namespaces");
}

#[test]
fn aggregated_documents_say_everything_at_once() {
    let response = get(
        "/apis",
        &format!(
            "{AS_AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
        ),
    );
    assert_eq!(response.headers()[header::CONTENT_TYPE], AS_AGGREGATED);
    assert_eq!(response.headers()[header::VARY], "Accept");
    insta::assert_json_snapshot!(json_of(&response));
    let core = json_of(&get("/api", AS_AGGREGATED));
    assert_eq!(core["items"][0]["versions"][0]["resources"][0]["resource"], "namespaces");
    assert_eq!(core["items"][0]["metadata"], json!({}));
}

#[test]
fn aggregated_documents_are_had_as_yaml() {
    let accept = AS_AGGREGATED.replace("json", "yaml");
    let (yaml, json) = (get("/apis", &accept), get("/apis", AS_AGGREGATED));
    assert_eq!(yaml.headers()[header::CONTENT_TYPE], accept);
    assert_eq!(
        (&yaml.headers()[header::ETAG], &yaml.headers()[header::VARY]),
        (&json.headers()[header::ETAG], &json.headers()[header::VARY])
    );
    let read: Value = serde_saphyr::from_slice(yaml.body()).unwrap();
    assert_eq!(read, json_of(&json));
}

#[test]
fn what_is_not_kept_has_no_storage_version() {
    let kept = ResourceDefinition::from_crd(&Widget::crd());
    let answered = kept.clone().ephemeral(Arc::new(NoHandler));
    for (definition, has_hash) in [(kept, true), (answered, false)] {
        let response = get_from(&Discovery::new(&[Arc::new(definition)]), "/apis/test.example/v1", "", "");
        let row = &json_of(&response)["resources"][0];
        assert_eq!((&row["name"], row.get("storageVersionHash").is_some()), (&json!("widgets"), has_hash));
    }
}

#[test]
fn a_client_that_has_the_document_is_told_so() {
    let discovery = Discovery::new(&definitions());
    let tag = get_from(&discovery, "/apis", AS_AGGREGATED, "").headers()[header::ETAG].to_str().unwrap().to_owned();
    let again = get_from(&discovery, "/apis", AS_AGGREGATED, &tag);
    assert_eq!((again.status(), again.body().len()), (StatusCode::NOT_MODIFIED, 0));
    assert_eq!(again.headers()[header::ETAG], tag);
    assert_eq!(get_from(&discovery, "/apis", AS_AGGREGATED, "\"other\"").status(), StatusCode::OK);
    // The same definitions make the same documents, in every process.
    let other = Discovery::new(&definitions());
    assert_eq!(get_from(&other, "/apis", AS_AGGREGATED, &tag).status(), StatusCode::NOT_MODIFIED);
}

#[test]
fn unknown_forms_fall_back_or_are_refused() {
    let unknown = "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList";
    let response = get("/apis", &format!("{unknown},application/json"));
    assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
    assert_eq!(json_of(&response)["kind"], "APIGroupList");
    assert_eq!(get("/apis", unknown).status(), StatusCode::NOT_ACCEPTABLE);
    assert_eq!(get("/apis/test.example", AS_AGGREGATED).status(), StatusCode::NOT_ACCEPTABLE);
    let yaml = get("/apis/test.example", "application/yaml");
    assert!(std::str::from_utf8(yaml.body()).unwrap().contains("kind: APIGroup\n"));
}

#[test]
fn discovery_rejects_unknown_groups_and_paths() {
    for path in ["/apis/other", "/apis/other/v1"] {
        let response = get(path, "");
        assert_eq!(
            (response.status(), response.body().as_ref()),
            (StatusCode::NOT_FOUND, b"404 page not found\n".as_slice()),
            "{path}"
        );
    }
    // Slashes at the end lead nowhere else, but those after the list of groups.
    for path in ["/apis/", "/apis/test.example/", "/apis/test.example///", "/apis/test.example/v1//"] {
        assert_eq!(get(path, "").status(), StatusCode::OK, "{path}");
    }
    assert_eq!(get("/apis//", "").status(), StatusCode::NOT_FOUND);
    // A version that a group does not have is told as a Status.
    let response = get("/apis/test.example/v9", "");
    assert_eq!((response.status(), &json_of(&response)["reason"]), (StatusCode::NOT_FOUND, &json!("NotFound")));
    let discovery = Discovery::new(&definitions());
    for path in ["/", "/apis/test.example/v1/widgets", "/api/v1/namespaces", "/openapi/v3", "/healthz"] {
        assert!(discovery.respond(&Method::GET, path, &HeaderMap::new()).is_none(), "{path}");
    }
    let response = answer(&discovery, &Method::POST, "/apis", &HeaderMap::new());
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    let nothing = Discovery::new(&[]);
    assert_eq!(get_from(&nothing, "/api", "", "").status(), StatusCode::NOT_FOUND);
    assert_eq!(json_of(&get_from(&nothing, "/apis", "", ""))["groups"], json!([]));
}

#[test]
fn routes_are_go_restfuls() {
    let discovery = Discovery::new(&definitions());
    let code = |path: &str, name: header::HeaderName, value: &str| {
        let headers = HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())]);
        answer(&discovery, &Method::GET, path, &headers).status().as_u16()
    };
    for path in ["/api", "/api/v1", "/apis", "/apis/test.example", "/apis/test.example/v1"] {
        assert_eq!(code(path, header::CONTENT_TYPE, "text/plain"), 415, "{path}");
        assert_eq!(code(path, header::CONTENT_TYPE, "application/json; charset=utf-8"), 200, "{path}");
        assert_eq!(code(path, header::CONTENT_TYPE, "application/vnd.kubernetes.protobuf"), 200, "{path}");
        assert_eq!(code(path, header::ACCEPT, "application/*"), 406, "{path}");
        assert_eq!(code(path, header::ACCEPT, "text/html, */*"), 200, "{path}");
    }
}

#[test]
fn documents_end_with_a_line() {
    for (path, accept) in
        [("/apis", ""), ("/apis/test.example", ""), ("/apis/test.example/v1", ""), ("/apis", AS_AGGREGATED)]
    {
        assert!(get(path, accept).body().ends_with(b"}\n"), "{path}");
    }
}
