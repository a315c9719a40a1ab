//! Describes the API to programs: OpenAPI v3, one document per group and version, and v2
//! (Swagger), one for everything.
//!
//! Start at [`OpenApi`], which is made once from all definitions. `kubectl explain` and server-side
//! field validation read v3; the aggregation layer merges v2 and proxies v3; kubectl up to 1.28
//! reads v2, in protobuf.
//!
//! Follows `k8s.io/kube-openapi/pkg/handler3` and `pkg/handler`, with documents as `pkg/builder3` and `pkg/builder` make
//! them of a server of Go types. The components are made by
//! [`stoa_meta::openapi`]; `paths` and `roots` make the operations, `parameters` their query parameters; `v2` turns the result
//! into Swagger, `protobuf` encodes the documents, and `content` serves them.

mod content;
mod names;
mod parameters;
mod paths;
mod protobuf;
mod roots;
mod shared;
#[cfg(test)]
mod tests;
mod v2;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Map, Value, json};
use stoa_meta::{
    definition::ResourceDefinition,
    openapi::{meta, schemas},
};

use crate::{
    document::{self, Document},
    http::{encoding, negotiate},
};

const ROOT: &str = "/openapi/v3";
/// What v2 is called in protobuf, and what it was called by mistake before.
const PROTOBUF_V2: [&str; 2] =
    ["com.github.proto-openapi.spec.v2.v1.0+protobuf", "com.github.proto-openapi.spec.v2@v1.0+protobuf"];
/// The same of v3.
const PROTOBUF_V3: [&str; 2] =
    ["com.github.proto-openapi.spec.v3.v1.0+protobuf", "com.github.proto-openapi.spec.v3@v1.0+protobuf"];
/// Shorter answers of v2 are not compressed.
const GZIP_FROM_BYTES: usize = 1400;
const YEAR: jiff::SignedDuration = jiff::SignedDuration::from_hours(365 * 24);

/// The OpenAPI documents of a server.
#[derive(Debug)]
pub struct OpenApi {
    index: Document,
    /// By `apis/<group>/<version>` or `api/v1`, and what is above these: `apis/<group>`, `apis`, `api`, `version`.
    versions: BTreeMap<String, InBothForms>,
    v2: InBothForms,
    /// When they were made, as HTTP dates are written.
    made: String,
}

/// What a document is encoded in.
#[derive(Clone, Copy, Debug)]
enum Form {
    Json,
    Protobuf,
}

/// A document with its two encodings.
#[derive(Debug)]
struct InBothForms {
    json: Document,
    protobuf: Document,
    /// What protobuf is called.
    protobuf_type: String,
}

impl InBothForms {
    fn new(value: &Value, encode: fn(&Value) -> Vec<u8>, subtype: &str) -> Self {
        let json = Document::new(value);
        let protobuf = json.in_another_form(encode(value));
        Self { json, protobuf, protobuf_type: format!("application/{subtype}") }
    }

    fn hash(&self) -> &str {
        &self.json.hash
    }

    fn whole(&self, form: Form, headers: &[(HeaderName, &str)]) -> Response<Bytes> {
        let (document, content_type) = match form {
            Form::Json => (&self.json, "application/json"),
            Form::Protobuf => (&self.protobuf, self.protobuf_type.as_str()),
        };
        document.whole(&[&[(header::CONTENT_TYPE, content_type)], headers].concat())
    }
}

impl OpenApi {
    /// The documents of these resources.
    pub fn new(definitions: &[Arc<ResourceDefinition>]) -> Self {
        let schemas = schemas::components(definitions);
        let mut groups: BTreeMap<String, Vec<&ResourceDefinition>> = BTreeMap::new();
        for definition in definitions {
            groups.entry(paths::root(definition)).or_default().push(definition);
        }
        let mut documents = roots::roots(definitions.iter().map(Arc::as_ref));
        for (root, definitions) in groups {
            documents.insert(root.trim_start_matches('/').to_owned(), paths::paths(&definitions, &schemas));
        }
        let all_paths: Map<String, Value> = documents.values().flat_map(Map::clone).collect();
        let versions: BTreeMap<_, _> = documents
            .into_iter()
            .map(|(name, paths)| {
                let mut components = schemas.referred_to(&paths);
                if let Some((group, version)) = group_version(&name) {
                    meta::scope(&mut components, group, version);
                }
                let document = InBothForms::new(&v3(paths, components), protobuf::v3, PROTOBUF_V3[0]);
                (name, document)
            })
            .collect();
        let urls: Map<String, Value> = versions
            .iter()
            .map(|(name, document)| (name.clone(), json!({ "serverRelativeURL": url(name, document.hash()) })))
            .collect();
        let index = Document::new(&json!({ "paths": urls }));
        let components = schemas.referred_to(&all_paths);
        let swagger = v2::swagger(&v3(all_paths, components));
        let v2 = InBothForms::new(&swagger, protobuf::v2, PROTOBUF_V2[0]);
        let made = http_date(jiff::Timestamp::now());
        Self { index, versions, v2, made }
    }

    /// Answers a request for an OpenAPI document; `None` when the path is none of its.
    ///
    /// A version that is not served is 404, an `Accept`
    /// without a form that there is 406. A URL with an old hash is redirected to the current one by 301; one
    /// with the current hash may be cached for ever. Conditions and ranges are read as `content` says.
    pub fn respond(&self, method: &Method, path: &str, query: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
        if !(path.starts_with("/openapi/v3/") || matches!(path, ROOT | "/openapi/v2")) {
            return None;
        }
        let modified = (header::LAST_MODIFIED, self.made.as_str());
        if path == ROOT {
            let mut index = self.index.whole(&[(header::CONTENT_TYPE, "application/json"), modified]);
            // There is only one form of it.
            index.headers_mut().remove(header::VARY);
            return Some(content::serve(method, headers, index));
        }
        let version = path.strip_prefix("/openapi/v3/");
        let protobuf = if version.is_some() { PROTOBUF_V3 } else { PROTOBUF_V2 };
        let form = negotiate::clauses(document::accept(headers)).iter().find_map(|clause| {
            let protobuf = protobuf.iter().any(|subtype| clause.names("application", subtype));
            let json = clause.covers(negotiate::MediaType::Json);
            (json || protobuf).then_some(if json { Form::Json } else { Form::Protobuf })
        });
        let response = match (form, version) {
            (None, _) => {
                let mut response = document::plain(StatusCode::NOT_ACCEPTABLE, "");
                document::set(&mut response, header::VARY, "Accept");
                response
            }
            (Some(form), Some(name)) => {
                let serve = |whole| content::serve(method, headers, whole);
                self.respond_version(name, form, query, serve)
            }
            (Some(form), None) => content::serve(method, headers, self.v2.whole(form, &[modified])),
        };
        // Upstream compresses v2 alone.
        Some(if version.is_some() { response } else { compressed(response, headers) })
    }

    /// Has the document of a version served, if it is here.
    fn respond_version(
        &self,
        name: &str,
        form: Form,
        query: &str,
        serve: impl Fn(Response<Bytes>) -> Response<Bytes>,
    ) -> Response<Bytes> {
        let Some(document) = self.versions.get(name) else { return document::not_found() };
        let modified = (header::LAST_MODIFIED, self.made.as_str());
        match query.split('&').find_map(|pair| pair.strip_prefix("hash=")).filter(|hash| !hash.is_empty()) {
            None => serve(document.whole(form, &[modified])),
            Some(hash) if hash == document.hash() => {
                let expires = expires();
                let cache = [(header::CACHE_CONTROL, "public, immutable"), (header::EXPIRES, expires.as_str())];
                serve(document.whole(form, &[[modified].as_slice(), &cache].concat()))
            }
            Some(_) => {
                let mut response = document::plain(StatusCode::MOVED_PERMANENTLY, "");
                document::set(&mut response, header::LOCATION, &url(name, document.hash()));
                document::set(&mut response, header::VARY, "Accept");
                document::set(&mut response, header::ETAG, &format!("{:?}", document.hash()));
                let content_type = match form {
                    Form::Json => "application/json",
                    Form::Protobuf => &document.protobuf_type,
                };
                document::set(&mut response, header::CONTENT_TYPE, content_type);
                response
            }
        }
    }
}

/// The same answer, compressed when the client takes gzip and there is enough of it.
///
/// Follows `GzipHandler` of `github.com/NYTimes/gziphandler`.
fn compressed(mut response: Response<Bytes>, request: &HeaderMap) -> Response<Bytes> {
    response.headers_mut().append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if !encoding::takes_gzip(request) || response.body().len() < GZIP_FROM_BYTES {
        return response;
    }
    *response.body_mut() = encoding::gzip(response.body());
    response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response
}

fn url(name: &str, hash: &str) -> String {
    format!("{ROOT}/{name}?hash={hash}")
}

/// A year from now, as HTTP dates are written.
fn expires() -> String {
    let now = jiff::Timestamp::now();
    http_date(now.checked_add(YEAR).unwrap_or(now))
}

fn http_date(time: jiff::Timestamp) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// The group and version that a document is of, if it is of one.
fn group_version(name: &str) -> Option<(&str, &str)> {
    match name.split('/').collect::<Vec<_>>()[..] {
        ["api", version] => Some(("", version)),
        ["apis", group, version] => Some((group, version)),
        _ => None,
    }
}

fn v3(paths: Map<String, Value>, components: Map<String, Value>) -> Value {
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": "unversioned" },
        "paths": paths,
        "components": { "schemas": components },
    })
}
