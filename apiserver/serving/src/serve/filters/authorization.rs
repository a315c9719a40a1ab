//! The permission of a request.
//!
//! Follows `WithAuthorization` in `k8s.io/apiserver/pkg/endpoints/filters`.

use std::{ops::ControlFlow, time::Instant};

use stoa_meta::authorizer::{Decision, forbidden};

use super::{Filtered, Passing, internal_error, refuse};

pub(in crate::serve) async fn authorize(passing: &mut Passing<'_>) -> Filtered {
    let chain = passing.chain;
    let began = Instant::now();
    let attributes = passing.info.attributes();
    let decision = chain.authorizer.authorize(&passing.user, &attributes).await;
    let result = match &decision {
        Ok(Decision::Allow(_)) => "allowed",
        Ok(Decision::Deny(_)) => "denied",
        Err(_) => "error",
    };
    chain.metrics.authorized(result, began.elapsed());
    if let Some(trail) = &passing.trail {
        trail.authorized(&decision);
        trail.waited("authorization", began.elapsed());
    }
    match decision {
        Ok(Decision::Allow(_)) => ControlFlow::Continue(()),
        Ok(Decision::Deny(reason)) => {
            let error = forbidden(&passing.user, &attributes, &reason);
            refuse(passing.head, passing.forbidden(&error)).await
        }
        Err(error) => ControlFlow::Break(internal_error(passing.request.uri(), error.message())),
    }
}
