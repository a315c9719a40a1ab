//! Calls to the kube-apiserver that decides for this server, with a timeout and retries.

use std::{error::Error as StdError, io, time::Duration};

use http_body_util::BodyExt;
use kube::{
    Client, Resource,
    api::PostParams,
    client::Body,
    core::{Request, Status},
};
use rand::RngExt;
use serde::{Serialize, de::DeserializeOwned};

use super::metrics::Calls;

const ATTEMPTS: u32 = 5;
/// The wait after the first failure; each further one is half as long again. As upstream's `DefaultRetryBackoff`.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// How long one call may take; `RequestTimeout` of upstream's delegating options.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the kube-apiserver gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum DelegateError {
    /// The call failed, and failed again where repeating helps.
    #[error("the kube-apiserver did not answer")]
    Call(#[source] Box<kube::Error>),
    /// The last call took too long.
    #[error("the kube-apiserver did not answer within {} s", CALL_TIMEOUT.as_secs())]
    Timeout,
}

/// Has something reviewed: the review as the kube-apiserver answers it. Each attempt is counted.
pub(super) async fn reviewed<K>(client: &Client, review: &K, calls: &Calls) -> Result<K, DelegateError>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned,
{
    let failed = |error: kube::Error| DelegateError::Call(Box::new(error));
    let body = serde_json::to_vec(review).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let requests = Request::new(K::url_path(&(), None));
    with_retries(|| async {
        let request = requests.create(&PostParams::default(), body.clone()).map_err(kube::Error::BuildRequest)?;
        let mut call = calls.begin();
        let answer = client.send(request.map(Body::from)).await?;
        let code = answer.status();
        call.answer = Some(code);
        let text = answer.into_body().collect().await?.to_bytes();
        if !code.is_client_error() && !code.is_server_error() {
            return serde_json::from_slice(&text).map_err(kube::Error::SerdeError);
        }
        let status = serde_json::from_slice(&text)
            .unwrap_or_else(|_| Status::failure(String::from_utf8_lossy(&text).trim(), "").with_code(code.as_u16()));
        Err(kube::Error::Api(status.boxed()))
    })
    .await
}

/// Makes a call, and makes it again after failures that pass: a lost connection, 429, 500 `InternalError`, 504, or
/// whatever comes with a time to come back.
pub(crate) async fn with_retries<T, F>(mut call: impl FnMut() -> F) -> Result<T, DelegateError>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut wait = FIRST_WAIT;
    for attempt in 1.. {
        let error = match tokio::time::timeout(CALL_TIMEOUT, call()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) if !passes(&error) => return Err(DelegateError::Call(Box::new(error))),
            Ok(Err(error)) => DelegateError::Call(Box::new(error)),
            Err(_) => DelegateError::Timeout,
        };
        // A caller who waited out one timeout has waited long enough.
        if attempt == ATTEMPTS || matches!(error, DelegateError::Timeout) {
            return Err(error);
        }
        let jitter = 1.0 + rand::rng().random_range(0.0..0.2);
        tokio::time::sleep(wait.mul_f64(jitter)).await;
        wait = wait.mul_f64(1.5);
    }
    Err(DelegateError::Timeout)
}

fn passes(error: &kube::Error) -> bool {
    if let kube::Error::Api(status) = error {
        let told_to_come_back = status.details.as_ref().is_some_and(|details| details.retry_after_seconds > 0);
        return told_to_come_back || matches!(status.reason.as_str(), "InternalError" | "Timeout" | "TooManyRequests");
    }
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
            return matches!(error.kind(), ConnectionReset | BrokenPipe | UnexpectedEof);
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>()
            && (error.is_incomplete_message() || error.is_canceled() || error.is_closed())
        {
            return true;
        }
        cause = error.source();
    }
    false
}
