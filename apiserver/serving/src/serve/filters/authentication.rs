//! The user of a request.
//!
//! Follows `WithAuthentication` in `k8s.io/apiserver/pkg/endpoints/filters`.

use std::{ops::ControlFlow, time::Instant};

use http::{HeaderValue, Response, Version, header};
use stoa_meta::{errors, status::ApiError};

use super::{Filtered, Passing, refuse};
use crate::{
    auth::{ANONYMOUS, Credentials, clear_standard_headers, has_blank_before_token},
    http::Body,
    serve::record::Record,
};

const BLANK_TOKEN: &str =
    r#"299 - "the provided Authorization header contains extra space before the bearer token, and is ignored""#;

/// Finds the user, and takes the credentials out of the request. Nobody is 401.
pub(in crate::serve) async fn authenticate(passing: &mut Passing<'_>) -> Filtered {
    let began = Instant::now();
    let (chain, connection) = (passing.chain, passing.connection);
    let credentials = Credentials { headers: passing.headers(), certificates: connection.certificates.as_ref() };
    let found = chain.authenticator.authenticate(credentials).await;
    let outcome = match &found {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(false),
        Err(_) => Err(true),
    };
    chain.metrics.authenticated(outcome, began.elapsed());
    // Unknown users may not keep an HTTP/2 connection, which is cheap to keep and expensive to serve.
    let known = outcome.is_ok_and(|user| user.name != ANONYMOUS);
    passing.record.blank_token = !known && has_blank_before_token(passing.request.headers());
    if !known && passing.request.version() == Version::HTTP_2 {
        connection.close.cancel();
    }
    match found {
        Ok(Some(user)) => passing.user = user,
        Ok(None) => return refuse(passing.head, passing.unauthenticated(&ApiError::unauthorized())).await,
        Err(error) => {
            tracing::warn!(error = errors::chain(&error), "unable to authenticate the request");
            return refuse(passing.head, passing.unauthenticated(&ApiError::unauthorized())).await;
        }
    }
    let headers = passing.request.headers_mut();
    chain.authenticator.clear(headers);
    headers.remove(header::AUTHORIZATION);
    clear_standard_headers(headers);
    passing.authenticated = Instant::now();
    ControlFlow::Continue(())
}

pub(in crate::serve) fn warn(answer: &mut Response<Body>, record: &Record) {
    if record.blank_token {
        answer.headers_mut().append(header::WARNING, HeaderValue::from_static(BLANK_TOKEN));
    }
}
