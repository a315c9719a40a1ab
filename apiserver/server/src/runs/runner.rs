//! The client of the function-runner.
//!
//! The connection is made when it is needed and made again when it breaks. What the runner says
//! is wrong becomes a [`Halt`]: the run fails, waits and tries again, or is done for.

use std::{fmt, time::Duration};

use stoa_proto::{Problem, function_runner_client::FunctionRunnerClient};
use stoa_types::reason;
use tonic::{
    Code, Status,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::Halt;

/// The largest message either side takes, in bytes: a Spec with everything in it.
const MAX_MESSAGE: usize = 256 << 20;

/// Where the function-runner is and how it is talked to.
#[derive(Clone)]
pub(crate) struct Runner {
    address: String,
    channel: Channel,
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").field("address", &self.address).finish_non_exhaustive()
    }
}

/// The certificates for the connection, as PEM.
#[derive(Clone)]
pub(crate) struct RunnerCredentials {
    /// Who may have signed the runner's certificate.
    pub(crate) ca: String,
    /// Our certificate.
    pub(crate) certificate: String,
    /// Its key.
    pub(crate) key: String,
}

impl Runner {
    /// A client of the runner at `address`, such as `https://localhost:7443`. Does not connect yet.
    ///
    /// # Errors
    ///
    /// When the address or the certificates cannot be used.
    pub(crate) fn new(address: &str, credentials: &RunnerCredentials) -> anyhow::Result<Self> {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&credentials.ca))
            .identity(Identity::from_pem(&credentials.certificate, &credentials.key));
        let channel = Endpoint::from_shared(address.to_owned())?
            .tls_config(tls)?
            .connect_timeout(Duration::from_secs(5))
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .connect_lazy();
        Ok(Self { address: address.to_owned(), channel })
    }

    /// Where the runner is.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// A client for calls.
    pub(crate) fn client(&self) -> FunctionRunnerClient<Channel> {
        FunctionRunnerClient::new(self.channel.clone())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
    }
}

/// The runner's word for a source that is out of reach.
const SOURCE_UNAVAILABLE: &str = "SourceUnavailable";

/// What a refused call means for a run. `otherwise` is the reason when the runner gives none.
pub(crate) fn halt(status: &Status, otherwise: &'static str) -> Halt {
    let problem = problem(status);
    let message = problem.as_ref().map_or_else(|| status.message().to_owned(), describe);
    match status.code() {
        Code::Unavailable if problem.is_some_and(|p| p.reason == SOURCE_UNAVAILABLE) => {
            Halt::SourceUnreachable(message)
        }
        Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            Halt::Retry(if message.is_empty() { status.code().description().to_owned() } else { message })
        }
        Code::NotFound => Halt::failed(reason::SOURCE_NOT_FOUND, message),
        Code::Aborted => Halt::failed(reason::PLAN_STALE, message),
        Code::FailedPrecondition => Halt::failed(reason::UNKNOWN_STATE, message),
        Code::InvalidArgument => Halt::failed(otherwise, message),
        code => {
            tracing::error!(%code, message = status.message(), "the function-runner failed");
            Halt::failed(otherwise, format!("the function-runner failed: {code:?}"))
        }
    }
}

/// Whether the runner itself said so, rather than whatever is between it and us.
pub(crate) fn is_of_runner(status: &Status) -> bool {
    problem(status).is_some()
}

/// The problem in the details of a status, if there is one.
fn problem(status: &Status) -> Option<Problem> {
    use prost::Message as _;
    let problem = Problem::decode(status.details()).ok()?;
    (!problem.message.is_empty()).then_some(problem)
}

/// A problem as one sentence that names the file, resource and field it is in.
pub(crate) fn describe(problem: &Problem) -> String {
    let mut parts = Vec::new();
    if !problem.file.is_empty() {
        let line = if problem.line > 0 { format!(":{}", problem.line) } else { String::new() };
        parts.push(format!("{}{line}", problem.file));
    }
    if !problem.resource_id.is_empty() && !problem.message.contains(&problem.resource_id) {
        parts.push(format!("resource {:?}", problem.resource_id));
    }
    if !problem.field.is_empty() && !problem.message.contains(&problem.field) {
        parts.push(problem.field.clone());
    }
    parts.push(problem.message.clone());
    parts.join(": ")
}

/// A client of a runner that is not there, for tests of what happens without one.
#[cfg(test)]
pub(crate) fn unreachable() -> Runner {
    use stoa_pki::{CertificateAuthority, CertificateRequest};
    // Whichever test comes first installs it for all.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let directory = tempfile::TempDir::new().unwrap();
    let ca = CertificateAuthority::load_or_create(directory.path(), "ca", "test").unwrap();
    let client = ca.issue(&CertificateRequest::client("stoa-apiserver")).unwrap();
    let credentials = RunnerCredentials {
        ca: ca.certificate_pem().to_owned(),
        certificate: client.certificate_pem,
        key: client.key_pem,
    };
    Runner::new("https://localhost:1", &credentials).unwrap()
}

/// A client of a runner of a test's own, which asks nobody who they are.
#[cfg(test)]
pub(crate) fn at(address: std::net::SocketAddr) -> Runner {
    let address = format!("http://{address}");
    let channel = Endpoint::from_shared(address.clone()).unwrap().connect_lazy();
    Runner { address, channel }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_where_it_is() {
        let problem = Problem {
            reason: "MissingField".to_owned(),
            message: "kind is missing".to_owned(),
            file: "apps/web/dev/svc.yaml".to_owned(),
            resource_id: "v1:Service:shop:web".to_owned(),
            field: "attributes.kind".to_owned(),
            line: 3,
        };
        assert_eq!(
            describe(&problem),
            "apps/web/dev/svc.yaml:3: resource \"v1:Service:shop:web\": attributes.kind: kind is missing"
        );
    }

    #[test]
    fn a_runner_that_is_away_is_tried_again() {
        assert!(
            matches!(halt(&Status::unavailable("no route"), reason::PLAN_FAILED), Halt::Retry(m) if m == "no route")
        );
        assert!(matches!(
            halt(&Status::invalid_argument("a cycle"), reason::PLAN_FAILED),
            Halt::Failed { reason: reason::PLAN_FAILED, message } if message == "a cycle"
        ));
    }
}
