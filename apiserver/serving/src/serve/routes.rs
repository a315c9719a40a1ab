//! The paths of the server itself: metrics, `/statusz`, `/version`, the index, profiles, health. All others are the API's.
//!
//! Start at [`Chain::dispatch`]. Follows `k8s.io/apiserver/pkg/server/routes`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use stoa_meta::{request::RequestContext, status::ApiError};

use super::{chain::Chain, debug, statusz::Statusz};
use crate::{
    audit::Trail,
    http::{Body, RequestInfo, body, negotiate, response},
};

impl Chain {
    pub(super) async fn dispatch(
        &self,
        info: RequestInfo,
        mut context: RequestContext,
        request: Request<Body>,
        trail: Option<&Arc<Trail>>,
    ) -> Response<Body> {
        if !info.is_resource_request {
            match info.path.as_str() {
                "/metrics" | "/metrics/slis" => return self.metrics(&info.path, &request),
                "/statusz" => {
                    let status =
                        Statusz { version: &self.version, started: self.metrics.started_at(), paths: self.paths() };
                    return or_failure(status.respond(request.headers()), request.headers());
                }
                "/" | "/index.html" => return self.index(StatusCode::OK),
                path => {
                    if let Some(below) = path.strip_prefix("/version")
                        && (below.is_empty() || below.starts_with('/'))
                    {
                        return or_failure(self.version(below, &request), request.headers());
                    }
                    if self.profiling
                        && let Some(answer) = debug::serve(path, request.uri().query(), &self.outlasting.end).await
                    {
                        return answer;
                    }
                    if let Some(answer) = self.health.serve(path, request.uri().query()).await {
                        return answer;
                    }
                }
            }
        }
        if let Some(trail) = trail {
            trail.dispatched(&context);
            context.set_recorder(trail);
        }
        self.handler.handle(info, context, request).await
    }

    /// What was counted; counting begins anew when that is deleted, which is there for who may take profiles.
    fn metrics(&self, path: &str, request: &Request<Body>) -> Response<Body> {
        let of_health = self.health.slis().families();
        let families = if path == "/metrics/slis" { of_health } else { &self.metrics.families };
        if self.profiling && request.method() == Method::DELETE {
            families.reset();
            return response::text(StatusCode::OK, "metrics reset\n");
        }
        self.metrics.written(&families.gather(), request.headers())
    }

    /// The paths that the server has but for `/statusz`, which is the last to be added.
    fn paths(&self) -> Vec<String> {
        let mut paths = self.handler.paths();
        paths.extend(self.health.paths());
        paths.extend(["/metrics", "/metrics/slis", "/version"].map(str::to_owned));
        paths
    }

    /// What the server has at its root: the paths that it serves.
    pub(super) fn index(&self, code: StatusCode) -> Response<Body> {
        let mut paths = self.paths();
        paths.push("/statusz".to_owned());
        paths.sort();
        let text = serde_json::to_vec_pretty(&serde_json::json!({ "paths": paths })).expect("texts serialize");
        let mut response = Response::new(body::full(Bytes::from(text)));
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    /// `/version`, a route of go-restful upstream, to which all that is `below` it leads too.
    fn version(&self, below: &str, request: &Request<Body>) -> Result<Response<Body>, ApiError> {
        const JSON: &str = "application/json";
        if !below.bytes().all(|byte| byte == b'/') {
            return Err(ApiError::generic(404));
        }
        if request.method() != Method::GET {
            return Err(ApiError::generic(405));
        }
        negotiate::check_route(request.headers(), &[JSON], &[JSON])?;
        let text = serde_json::to_vec_pretty(&self.version).expect("strings serialize");
        let mut response = Response::new(body::full(Bytes::from(text)));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        Ok(response)
    }
}

fn or_failure(answer: Result<Response<Body>, ApiError>, request: &HeaderMap) -> Response<Body> {
    answer.unwrap_or_else(|error| response::error(&error, request))
}
