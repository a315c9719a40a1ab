//! The user that a request acts as.
//!
//! Follows `WithImpersonation` in `k8s.io/apiserver/pkg/endpoints/filters/impersonation`.

use std::ops::ControlFlow;

use tracing::Span;

use super::{Filtered, Passing, refuse};

pub(in crate::serve) async fn impersonate(passing: &mut Passing<'_>) -> Filtered {
    let chain = passing.chain;
    let attributes = passing.info.attributes();
    let headers = passing.request.headers_mut();
    match chain.impersonation.decide(headers, &passing.user, &attributes, &*chain.authorizer).await {
        Ok(None) => {}
        Ok(Some(impersonated)) => {
            tracing::info!(user = passing.user.name, impersonated = impersonated.user.name, "impersonation");
            if let Some(trail) = &passing.trail {
                trail.impersonates(&impersonated);
            }
            passing.user = impersonated.user;
        }
        Err(error) => return refuse(passing.head, passing.forbidden(&error)).await,
    }
    chain.metrics.impersonated(passing.audited.elapsed());
    if let Some(trail) = &passing.trail {
        trail.waited("authentication", passing.authenticated.duration_since(passing.record.received()));
    }
    Span::current().record("user", &passing.user.name);
    ControlFlow::Continue(())
}
