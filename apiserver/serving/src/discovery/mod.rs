//! Discovery: the groups, versions and resources of a server.
//!
//! Start at [`Discovery`], which is made once from all definitions: every document is encoded
//! then, and a request costs a look-up. Two forms are served, chosen by `Accept`: the legacy one
//! document per group and version, and the aggregated `APIGroupDiscoveryList` of
//! `apidiscovery.k8s.io/v2`, which is what clients since 1.27 ask for.
//!
//! Follows `k8s.io/apiserver/pkg/endpoints/discovery`. What the documents say is in `documents`.

mod documents;
#[cfg(test)]
pub(crate) mod tests;
mod types;

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, header};
use stoa_meta::{definition::ResourceDefinition, status::ApiError};

use crate::{
    document::{self, Document},
    http::{
        negotiate::{self, Clause, MediaType},
        response,
    },
};

const PRODUCED: [&str; 2] = [MediaType::Json.as_str(), MediaType::Yaml.as_str()];
/// What a request may say that it sends, though nothing reads it.
const CONSUMED: [&str; 3] = [PRODUCED[0], PRODUCED[1], "application/vnd.kubernetes.protobuf"];
/// What aggregated documents add to their media type.
const AGGREGATED: &str = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The discovery documents of a server.
#[derive(Debug)]
pub struct Discovery {
    /// Legacy documents by path: `/api`, `/apis`, `/apis/<group>`, `/apis/<group>/<version>`, `/api/v1`.
    legacy: HashMap<String, Document>,
    /// Aggregated documents by path: `/api` and `/apis`.
    aggregated: HashMap<&'static str, Document>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Legacy(MediaType),
    Aggregated(MediaType),
}

impl Discovery {
    /// The documents of these resources. Groups keep the order of their first definition;
    /// versions are ordered by stability, as `kubectl` prefers them.
    pub fn new(definitions: &[Arc<ResourceDefinition>]) -> Self {
        Self { legacy: documents::legacy(definitions), aggregated: documents::aggregated(definitions) }
    }

    /// Answers a request for a discovery document; `None` when the path is none of its.
    ///
    /// # Errors
    ///
    /// 404 for a version that is not served of a group that is, 405 for a method other than GET, 415 for a
    /// `Content-Type` that upstream's routes do not take, and 406 for an `Accept` that asks only for what there is not.
    pub fn respond(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Option<Result<Response<Bytes>, ApiError>> {
        // Groups and versions are found however many slashes come after them, as by go-restful; the lists of these after
        // one at most.
        let path = match path.trim_end_matches('/') {
            "/api" | "/apis" => path.strip_suffix('/').unwrap_or(path),
            trimmed => trimmed,
        };
        let depth = match path.strip_prefix('/')?.split('/').collect::<Vec<_>>().as_slice() {
            ["api"] | ["apis"] => 0,
            ["api", _] | ["apis", _] => 1,
            ["apis", _, _] => 2,
            _ => return None,
        };
        Some(match self.legacy.get(path) {
            None if depth == 2 && self.has_group_of(path) => Err(ApiError::generic(404)),
            None => {
                let mut unknown = document::not_found();
                unknown.extensions_mut().insert(response::UnknownPath);
                Ok(unknown)
            }
            Some(_) if method != Method::GET => Err(ApiError::generic(405)),
            Some(legacy) => self.respond_found(path, legacy, depth == 0, headers),
        })
    }

    fn respond_found(
        &self,
        path: &str,
        legacy: &Document,
        aggregates: bool,
        headers: &HeaderMap,
    ) -> Result<Response<Bytes>, ApiError> {
        negotiate::check_route(headers, &CONSUMED, &PRODUCED)?;
        match form(document::accept(headers), aggregates) {
            Some(Form::Legacy(media)) => Ok(respond_legacy(legacy, media)),
            Some(Form::Aggregated(media)) => Ok(self.respond_aggregated(path, media, headers)),
            None => Err(negotiate::none_accepted(headers)),
        }
    }

    /// The paths that it answers.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.legacy.keys().map(String::as_str)
    }

    /// Whether `/apis/<group>/<version>` is of a group that is served.
    fn has_group_of(&self, path: &str) -> bool {
        path.rsplit_once('/').is_some_and(|(group, _)| self.legacy.contains_key(group))
    }

    fn respond_aggregated(&self, path: &str, media: MediaType, headers: &HeaderMap) -> Response<Bytes> {
        match self.aggregated.get(path) {
            Some(document) => {
                let content_type = format!("{}{AGGREGATED}", media.as_str());
                let extra = [(header::CONTENT_TYPE, content_type.as_str()), (header::CACHE_CONTROL, "public")];
                let response = document.respond(headers, &extra);
                match media {
                    MediaType::Yaml if response.status() == StatusCode::OK => response.map(|json| yaml(&json)),
                    _ => response,
                }
            }
            None => document::not_found(),
        }
    }
}

fn respond_legacy(legacy: &Document, media: MediaType) -> Response<Bytes> {
    let body = match media {
        MediaType::Json => legacy.body.clone(),
        MediaType::Yaml => yaml(&legacy.body),
    };
    let mut response = Response::new(body);
    document::set(&mut response, header::CONTENT_TYPE, media.as_str());
    response
}

/// The same document in YAML; asked for by people only, so it isn't kept.
fn yaml(json: &[u8]) -> Bytes {
    let value: serde_json::Value = serde_json::from_slice(json).expect("the document was encoded here");
    serde_saphyr::to_string(&value).expect("what is JSON can be YAML").into()
}

fn form(accept: &str, aggregates: bool) -> Option<Form> {
    let clauses = negotiate::clauses(accept);
    let mut forms = clauses.iter().filter_map(|clause| clause_form(clause, aggregates));
    let first = forms.next()?;
    // However much another is preferred, as upstream asks for it before it looks at those.
    Some(std::iter::once(first).chain(forms).find(|form| matches!(form, Form::Aggregated(_))).unwrap_or(first))
}

fn clause_form(clause: &Clause<'_>, aggregates: bool) -> Option<Form> {
    let media = [MediaType::Json, MediaType::Yaml].into_iter().find(|media| clause.covers(*media))?;
    match (clause.param("g"), clause.param("v"), clause.param("as")) {
        (None, None, None) => Some(Form::Legacy(media)),
        (Some("apidiscovery.k8s.io"), Some("v2"), Some("APIGroupDiscoveryList")) if aggregates => {
            Some(Form::Aggregated(media))
        }
        _ => None,
    }
}
