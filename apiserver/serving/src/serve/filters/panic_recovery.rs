//! Panics of filters and handlers: the client gets a 500 that says nothing, the log gets the message.
//!
//! Follows `WithPanicRecovery` in `k8s.io/apiserver/pkg/server/filters`.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use http::{Response, StatusCode};

use crate::{
    audit::Begun,
    http::{Body, response},
};

const PANICKED: &str = "This request caused apiserver to panic. Look in the logs for details.\n";

pub(in crate::serve) async fn recover(filters: impl Future<Output = Response<Body>>, trail: &Begun) -> Response<Body> {
    AssertUnwindSafe(filters).catch_unwind().await.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        tracing::error!(panic = message, "a request caused a panic");
        if let Some(trail) = trail.held() {
            trail.panicked(message);
        }
        response::text(StatusCode::INTERNAL_SERVER_ERROR, PANICKED)
    })
}
