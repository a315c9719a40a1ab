//! Everything that a registry's resources come to on the wire: documents about them, and the objects.

use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderMap, Request, Response, header};
use http_body_util::BodyExt as _;

use super::Handler;
use crate::{
    definition::ResourceDefinition,
    discovery::Discovery,
    http::{ApiHandler, Body, RequestInfo, body, query::Query, response},
    openapi::OpenApi,
    registry::Registry,
    request::RequestContext,
};

/// The [`Handler`] of a [`Registry`]: discovery, OpenAPI and the objects.
#[derive(Debug)]
pub struct Api {
    discovery: Discovery,
    openapi: OpenApi,
    objects: ApiHandler,
}

impl Api {
    /// Serves all resources of a registry.
    pub fn new(registry: &Registry) -> Self {
        let definitions: Vec<Arc<ResourceDefinition>> =
            registry.stores().map(|store| store.definition().clone()).collect();
        Self {
            discovery: Discovery::new(&definitions),
            openapi: OpenApi::new(&definitions),
            objects: ApiHandler::new(registry),
        }
    }
}

#[async_trait]
impl Handler for Api {
    async fn handle(&self, info: RequestInfo, context: RequestContext, mut request: Request<Body>) -> Response<Body> {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or(""));
        if let Some(response) = self.openapi.respond(request.method(), path, query, request.headers()) {
            return response.map(body::full);
        }
        let pretty = wants_pretty(query, request.headers());
        let is_watch = info.verb == "watch";
        let response = match self.discovery.respond(request.method(), path, request.headers()) {
            Some(Ok(response)) => response.map(body::full),
            Some(Err(error)) => response::error(&error, request.headers()),
            None => {
                if pretty {
                    // What is put into lines is not compressed before.
                    request.headers_mut().remove(header::ACCEPT_ENCODING);
                }
                self.objects.handle(info, context, request).await
            }
        };
        // The frames of a watch have a line each.
        let framed = is_watch && !response.status().is_client_error() && !response.status().is_server_error();
        if pretty && !framed { in_lines(response).await } else { response }
    }

    fn paths(&self) -> Vec<String> {
        let documents = self.discovery.paths().map(str::to_owned);
        documents.chain(["/openapi/v2", "/openapi/v3", "/openapi/v3/"].map(str::to_owned)).collect()
    }
}

/// Whether JSON is to be read by a person: the query says so, or the client is one that people use by hand.
///
/// Follows `isPrettyPrint` in `k8s.io/apiserver/pkg/endpoints/handlers/negotiation`.
fn wants_pretty(query: &str, headers: &HeaderMap) -> bool {
    if let Some(value) = Query::parse(query).first("pretty").filter(|value| !value.is_empty()) {
        return matches!(value, "1" | "t" | "T" | "TRUE" | "true" | "True");
    }
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"].into_iter().any(|beginning| agent.starts_with(beginning))
}

/// The same answer with its JSON indented; what is no JSON stays as it is.
async fn in_lines(response: Response<Body>) -> Response<Body> {
    let is_json = |value: &http::HeaderValue| value.as_bytes().starts_with(b"application/json");
    if !response.headers().get(header::CONTENT_TYPE).is_some_and(is_json) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let bytes = match body.collect().await {
        Ok(collected) => collected.to_bytes(),
        // An answer that broke off breaks off here too.
        Err(error) => return Response::from_parts(parts, body::failed(error)),
    };
    let text = serde_json::from_slice::<serde_json::Value>(&bytes)
        .and_then(|value| serde_json::to_vec_pretty(&value))
        .map_or(bytes, Into::into);
    Response::from_parts(parts, body::full(text))
}
