//! The handler of an API: discovery, OpenAPI, and the objects of a registry.

use std::sync::Arc;

use async_trait::async_trait;
use http::{Request, Response, header};
use stoa_meta::{definition::ResourceDefinition, request::RequestContext};
use stoa_registry::registry::Registry;

use super::{Handler, pretty::Lines};
use crate::{
    discovery::Discovery,
    http::{ApiHandler, Body, RequestInfo, body, query::Query, response},
    openapi::OpenApi,
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
        let (path, query) = (info.path.as_str(), request.uri().query().unwrap_or(""));
        if let Some(response) = self.openapi.respond(request.method(), path, query, request.headers()) {
            return response.map(body::full);
        }
        let lines = Lines::wanted(&Query::parse(query), request.headers());
        let is_watch = info.verb == "watch";
        let response = match self.discovery.respond(request.method(), path, request.headers()) {
            Some(Ok(response)) => response.map(body::full),
            Some(Err(error)) => response::error(&error, request.headers()),
            None => {
                if lines.is_some() {
                    // What is put into lines is not compressed before.
                    request.headers_mut().remove(header::ACCEPT_ENCODING);
                }
                self.objects.handle(info, context, request).await
            }
        };
        // The frames of a watch have a line each.
        let framed = is_watch && !response.status().is_client_error() && !response.status().is_server_error();
        match lines.filter(|_| !framed) {
            Some(lines) => lines.set(response).await,
            None => response,
        }
    }

    fn paths(&self) -> Vec<String> {
        let documents = self.discovery.paths().map(str::to_owned);
        documents.chain(["/openapi/v2", "/openapi/v3", "/openapi/v3/"].map(str::to_owned)).collect()
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use stoa_log::MemoryLog;
    use stoa_meta::{authorizer::AllowAll, request::UserInfo, testing::Widget};
    use stoa_registry::strategy::DefaultStrategy;

    #[tokio::test]
    async fn documents_are_found_by_escaped_paths() {
        let registry = Registry::builder(Arc::new(MemoryLog::new()))
            .register(ResourceDefinition::of::<Widget>(), DefaultStrategy::<Widget>::default())
            .build()
            .await
            .unwrap();
        let api = Api::new(&registry);
        for (path, expected) in [
            ("/%61pis", StatusCode::OK),
            ("/apis/test%2Eexample", StatusCode::OK),
            ("/apis/test.example%2Fv%31", StatusCode::OK),
            ("/apis/test%2Eexample/v1/namespaces/shop/%77idgets", StatusCode::OK),
            ("/openapi%2Fv2", StatusCode::OK),
            ("/openapi/v%33", StatusCode::OK),
            ("/openapi/v3/apis/test%2Eexample/v1", StatusCode::OK),
            ("/apis/test%252Eexample", StatusCode::NOT_FOUND),
        ] {
            let request = Request::builder().uri(path).body(body::empty()).unwrap();
            let info = RequestInfo::new(request.method(), request.uri());
            let context = RequestContext::new(UserInfo::default(), Arc::new(AllowAll));
            assert_eq!(api.handle(info, context, request).await.status(), expected, "{path}");
        }
    }
}
