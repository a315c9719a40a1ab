//! Describes the API to programs: OpenAPI v3, one document per group and version, and v2
//! (Swagger), one for everything.
//!
//! Start at [`OpenApi`], which is made once from all definitions. `kubectl explain` and server-side
//! field validation read v3; the aggregation layer merges v2 and proxies v3; kubectl up to 1.28
//! reads v2, in protobuf.
//!
//! Follows `k8s.io/kube-openapi/pkg/handler3` and `pkg/handler`. v3 is not served in protobuf: a
//! client that takes nothing else gets 406. `schemas` makes the components, `paths` the operations,
//! `parameters` their query parameters, `v2` turns the result into Swagger
//! and `protobuf` encodes that.

mod parameters;
mod paths;
mod protobuf;
mod schemas;
#[cfg(test)]
mod tests;
mod v2;

pub(crate) use self::schemas::object_meta;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::{
    definition::ResourceDefinition,
    document::{self, Document},
    http::negotiate,
};

const ROOT: &str = "/openapi/v3";
/// What v2 is called in protobuf, and what it was called by mistake before.
const PROTOBUF: [&str; 2] =
    ["com.github.proto-openapi.spec.v2.v1.0+protobuf", "com.github.proto-openapi.spec.v2@v1.0+protobuf"];
const YEAR: jiff::SignedDuration = jiff::SignedDuration::from_hours(365 * 24);

/// The OpenAPI documents of a server.
#[derive(Debug)]
pub struct OpenApi {
    index: Document,
    /// By `apis/<group>/<version>` or `api/v1`.
    versions: BTreeMap<String, Document>,
    v2: Document,
    v2_protobuf: Document,
    /// When they were made, as HTTP dates are written.
    made: String,
}

/// What a document is encoded in.
#[derive(Clone, Copy, Debug)]
enum Form {
    Json,
    Protobuf,
}

impl OpenApi {
    /// The documents of these resources.
    pub fn new(definitions: &[Arc<ResourceDefinition>]) -> Self {
        let schemas = schemas::components(definitions);
        let mut groups: BTreeMap<String, Vec<&ResourceDefinition>> = BTreeMap::new();
        for definition in definitions {
            groups.entry(paths::root(definition)).or_default().push(definition);
        }
        let mut all_paths = Map::new();
        let mut versions = BTreeMap::new();
        for (root, definitions) in groups {
            let paths = paths::paths(&definitions, &schemas);
            all_paths.extend(paths.clone());
            versions.insert(root.trim_start_matches('/').to_owned(), Document::new(&v3(paths, &schemas)));
        }
        let urls: Map<String, Value> = versions
            .iter()
            .map(|(name, document)| (name.clone(), json!({ "serverRelativeURL": url(name, &document.hash) })))
            .collect();
        let index = Document::new(&json!({ "paths": urls }));
        let swagger = v2::swagger(&v3(all_paths, &schemas));
        let v2 = Document::new(&swagger);
        let v2_protobuf = v2.in_another_form(protobuf::encode(&swagger));
        let made = http_date(jiff::Timestamp::now());
        Self { index, versions, v2, v2_protobuf, made }
    }

    /// Answers a request for an OpenAPI document; `None` when the path is none of its.
    ///
    /// A version that is not served is 404, an `Accept`
    /// without a form that there is 406. A URL with an old hash is redirected to the current one by 301; one
    /// with the current hash may be cached for ever.
    pub fn respond(&self, path: &str, query: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
        if !(path.starts_with("/openapi/v3/") || matches!(path, ROOT | "/openapi/v2")) {
            return None;
        }
        let json = (header::CONTENT_TYPE, "application/json");
        let modified = (header::LAST_MODIFIED, self.made.as_str());
        if path == ROOT {
            let mut response = self.index.respond(headers, &[json, modified]);
            // There is only one form of it.
            response.headers_mut().remove(header::VARY);
            return Some(response);
        }
        let version = path.strip_prefix("/openapi/v3/");
        let form = negotiate::clauses(document::accept(headers)).iter().find_map(|clause| {
            let protobuf = version.is_none() && PROTOBUF.iter().any(|subtype| clause.names("application", subtype));
            let json = clause.covers(negotiate::MediaType::Json);
            (json || protobuf).then_some(if json { Form::Json } else { Form::Protobuf })
        });
        Some(match (form, version) {
            (None, _) => {
                let mut response = document::plain(StatusCode::NOT_ACCEPTABLE, "");
                document::set(&mut response, header::VARY, "Accept");
                response
            }
            (Some(_), Some(name)) => self.respond_version(name, query, headers),
            (Some(Form::Json), None) => self.v2.respond(headers, &[json, modified]),
            (Some(Form::Protobuf), None) => {
                let content_type = format!("application/{}", PROTOBUF[0]);
                self.v2_protobuf.respond(headers, &[(header::CONTENT_TYPE, &content_type), modified])
            }
        })
    }

    fn respond_version(&self, name: &str, query: &str, headers: &HeaderMap) -> Response<Bytes> {
        let Some(document) = self.versions.get(name) else { return document::not_found() };
        let json = (header::CONTENT_TYPE, "application/json");
        let modified = (header::LAST_MODIFIED, self.made.as_str());
        match query.split('&').find_map(|pair| pair.strip_prefix("hash=")).filter(|hash| !hash.is_empty()) {
            None => document.respond(headers, &[json, modified]),
            Some(hash) if hash == document.hash => {
                let expires = expires();
                let cache = [(header::CACHE_CONTROL, "public, immutable"), (header::EXPIRES, expires.as_str())];
                document.respond(headers, &[[json, modified].as_slice(), &cache].concat())
            }
            Some(_) => {
                let mut response = document::plain(StatusCode::MOVED_PERMANENTLY, "");
                document::set(&mut response, header::LOCATION, &url(name, &document.hash));
                document::set(&mut response, header::VARY, "Accept");
                document::set(&mut response, header::ETAG, &format!("{:?}", document.hash));
                document::set(&mut response, header::CONTENT_TYPE, "application/json");
                response
            }
        }
    }
}

/// The components of one resource's document, for tests that ask others about them.
#[cfg(test)]
pub(crate) fn components(definition: &Arc<ResourceDefinition>) -> Map<String, Value> {
    let schemas = schemas::components(std::slice::from_ref(definition));
    schemas.referred_to(&paths::paths(&[definition], &schemas))
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

fn v3(paths: Map<String, Value>, schemas: &schemas::Components) -> Value {
    let components = schemas.referred_to(&paths);
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": "unversioned" },
        "paths": paths,
        "components": { "schemas": components },
    })
}
