//! Describes the API to programs: OpenAPI v3, one document per group and version, and v2
//! (Swagger), one for everything.
//!
//! Start at [`OpenApi`], which is made once from all definitions. `kubectl explain` and server-side
//! field validation read v3; the aggregation layer merges v2 and proxies v3.
//!
//! Follows `k8s.io/kube-openapi/pkg/handler3` and `pkg/handler`. Protobuf is not spoken: a client
//! that takes nothing else gets 406. `schemas` makes the components, `paths` the operations,
//! `parameters` their query parameters, `v2` turns the result into Swagger.

mod parameters;
mod paths;
mod schemas;
#[cfg(test)]
mod tests;
mod v2;

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::{
    definition::ResourceDefinition,
    document::{self, Document},
    http::negotiate,
};

const ROOT: &str = "/openapi/v3";
const YEAR: jiff::SignedDuration = jiff::SignedDuration::from_hours(365 * 24);

/// The OpenAPI documents of a server.
#[derive(Debug)]
pub struct OpenApi {
    index: Document,
    /// By `apis/<group>/<version>` or `api/v1`.
    versions: BTreeMap<String, Document>,
    v2: Document,
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
        let v2 = Document::new(&v2::swagger(&v3(all_paths, &schemas)));
        Self { index, versions, v2 }
    }

    /// Answers a request for an OpenAPI document; `None` when the path is none of its.
    ///
    /// A version that is not served is 404, a method other than GET and HEAD 405, an `Accept`
    /// without JSON 406. A URL with an old hash is redirected to the current one by 301; one
    /// with the current hash may be cached for ever.
    pub fn respond(&self, method: &Method, path: &str, query: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
        if !(path.starts_with("/openapi/v3/") || matches!(path, ROOT | "/openapi/v2")) {
            return None;
        }
        if method != Method::GET && method != Method::HEAD {
            return Some(document::method_not_allowed());
        }
        let json = (header::CONTENT_TYPE, "application/json");
        if path == ROOT {
            return Some(self.index.respond(headers, &[json]));
        }
        let takes_json = negotiate::clauses(document::accept(headers))
            .iter()
            .any(|clause| clause.covers(negotiate::MediaType::Json));
        if !takes_json {
            return Some(document::plain(StatusCode::NOT_ACCEPTABLE, ""));
        }
        Some(match path.strip_prefix("/openapi/v3/") {
            None => self.v2.respond(headers, &[json]),
            Some(name) => self.respond_version(name, query, headers),
        })
    }

    fn respond_version(&self, name: &str, query: &str, headers: &HeaderMap) -> Response<Bytes> {
        let Some(document) = self.versions.get(name) else { return document::not_found() };
        let json = (header::CONTENT_TYPE, "application/json");
        match query.split('&').find_map(|pair| pair.strip_prefix("hash=")).filter(|hash| !hash.is_empty()) {
            None => document.respond(headers, &[json]),
            Some(hash) if hash == document.hash => {
                let expires = expires();
                let cache = [(header::CACHE_CONTROL, "public, immutable"), (header::EXPIRES, expires.as_str())];
                document.respond(headers, &[[json].as_slice(), &cache].concat())
            }
            Some(_) => {
                let mut response = document::plain(StatusCode::MOVED_PERMANENTLY, "");
                document::set(&mut response, header::LOCATION, &url(name, &document.hash));
                document::set(&mut response, header::VARY, "Accept");
                response
            }
        }
    }
}

fn url(name: &str, hash: &str) -> String {
    format!("{ROOT}/{name}?hash={hash}")
}

/// A year from now, as HTTP dates are written.
fn expires() -> String {
    let now = jiff::Timestamp::now();
    let then = now.checked_add(YEAR).unwrap_or(now);
    then.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
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
