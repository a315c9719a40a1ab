//! Calls to the hub: the Reconcilers of this host, and reports.
//!
//! A call is never repeated here. [`Later`] says when the caller may repeat it.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::header::RETRY_AFTER;
use hyper::{Request, StatusCode};
use kube::api::{ListParams, PostParams};
use kube::client::Body;
use kube::core::Request as ApiRequest;
use kube::{Client, Resource as _};
use serde::Deserialize;
use serde_json::Value;
use stoa_types::hub::{
    DeploymentReport, DeploymentReportSpec, DeploymentReportStatus, Reconciler, ReportWarning, ReportedDeployment,
};

/// The timeout of a call.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest time that the hub can ask the agent to wait.
const LONGEST_WAIT: Duration = Duration::from_secs(60 * 60);
/// The largest answer, in bytes.
const LARGEST_ANSWER: usize = 32 << 20;
/// The maximum length of an error of the hub, in characters.
const MESSAGE: usize = 300;

/// A call that may succeed later.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Later {
    /// The problem, for people.
    pub(super) why: String,
    /// The time that the hub asks to wait, if it does.
    pub(super) after: Option<Duration>,
}

/// The answer to a report.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// The hub has the report. These are its warnings.
    Recorded(Vec<ReportWarning>),
    /// The report is wrong, for this reason.
    Rejected(String),
}

/// The hub, for one host.
pub(super) struct HubClient {
    client: Client,
    namespace: String,
    host: String,
}

#[derive(Deserialize)]
struct Reconcilers {
    items: Vec<Reconciler>,
}

impl HubClient {
    pub(super) fn new(client: Client, namespace: String, host: String) -> Self {
        Self { client, namespace, host }
    }

    /// The Reconcilers of this host.
    ///
    /// # Errors
    ///
    /// The hub does not answer with a list.
    pub(super) async fn reconcilers(&self) -> Result<Vec<Reconciler>, Later> {
        let of_host = ListParams::default().fields(&format!("spec.hostName={}", self.host));
        let request = ApiRequest::new(Reconciler::url_path(&(), Some(&self.namespace))).list(&of_host);
        let (code, body, after) = self.call(request).await?;
        if !code.is_success() {
            return Err(Later { why: refusal("the Reconcilers cannot be listed", code, &body), after });
        }
        let list = serde_json::from_slice::<Reconcilers>(&body);
        let list =
            list.map_err(|error| Later { why: format!("the list of Reconcilers is unreadable: {error}"), after })?;
        // Another hub may know no field selector.
        Ok(list.items.into_iter().filter(|reconciler| reconciler.spec.host_name == self.host).collect())
    }

    /// Sends a report. The hub records a repeated report once.
    ///
    /// # Errors
    ///
    /// The hub did not record it, or did not say so.
    pub(super) async fn report(&self, deployments: Vec<ReportedDeployment>) -> Result<Answer, Later> {
        let mut report = DeploymentReport::new("", DeploymentReportSpec { deployments });
        report.metadata.name = None;
        report.metadata.namespace = Some(self.namespace.clone());
        let body = serde_json::to_vec(&report);
        let body =
            body.map_err(|error| Later { why: format!("the report cannot be written: {error}"), after: None })?;
        let path = DeploymentReport::url_path(&(), Some(&self.namespace));
        let request = ApiRequest::new(path).create(&PostParams::default(), body);
        let (code, body, after) = self.call(request).await?;
        if code.is_success() {
            let report = serde_json::from_slice::<DeploymentReport>(&body);
            let status: DeploymentReportStatus = report.ok().and_then(|report| report.status).unwrap_or_default();
            return Ok(Answer::Recorded(status.warnings));
        }
        let why = refusal("the report is not recorded", code, &body);
        match code {
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY => {
                Ok(Answer::Rejected(why))
            }
            _ => Err(Later { why, after }),
        }
    }

    /// The code and the body of an answer, and the time after which the call may be repeated.
    async fn call(
        &self,
        request: Result<Request<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<(StatusCode, Bytes, Option<Duration>), Later> {
        let later = |why: String| Later { why, after: None };
        let request = request.map_err(|error| later(format!("no request to the hub can be made: {error}")))?;
        let answer = async {
            let response = self.client.send(request.map(Body::from)).await;
            let response = response.map_err(|error| later(format!("the hub does not answer: {error}")))?;
            let code = response.status();
            let after =
                response.headers().get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse::<u64>().ok());
            let after = after.map(|seconds| Duration::from_secs(seconds).min(LONGEST_WAIT));
            let body = Limited::new(response.into_body(), LARGEST_ANSWER).collect().await;
            let body = body.map_err(|error| later(format!("the answer of the hub broke off: {error}")))?;
            Ok::<_, Later>((code, body.to_bytes(), after))
        };
        let answer = tokio::time::timeout(PATIENCE, answer).await;
        answer.unwrap_or_else(|_| Err(later(format!("the hub does not answer within {} s", PATIENCE.as_secs()))))
    }
}

/// An answer that is no success, for people.
fn refusal(what: &str, code: StatusCode, body: &[u8]) -> String {
    let status: Value = serde_json::from_slice(body).unwrap_or_default();
    let message: String = status["message"].as_str().unwrap_or_default().chars().take(MESSAGE).collect();
    let advice = match code {
        StatusCode::UNAUTHORIZED => "; renew the credentials of --hub-kubeconfig",
        StatusCode::FORBIDDEN => "; give the account of --hub-kubeconfig the role stoa-agent",
        _ => "",
    };
    format!("{what}: {code}: {message}{advice}")
}
