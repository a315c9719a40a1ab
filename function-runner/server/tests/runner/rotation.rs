//! Certificates and authorities are replaced while the runner serves.

use std::time::{Duration, Instant};

use stoa_pki::{CertificateAuthority, CertificateRequest, Validity};
use stoa_proto::ResolveRequest;
use stoa_proto::function_runner_client::FunctionRunnerClient;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::bed::{Bed, Client};

/// Longer than a runner takes to look into its files.
const PATIENCE: Duration = Duration::from_secs(30);

impl Bed {
    /// Whether a client with this certificate, which believes this authority, is let in and finds its runner.
    async fn admits(&self, client: &stoa_pki::IssuedCertificate, believes: &CertificateAuthority) -> Option<Client> {
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(believes.certificate_pem()))
            .domain_name("localhost")
            .identity(Identity::from_pem(&client.certificate_pem, &client.key_pem));
        let mut client = FunctionRunnerClient::new(self.endpoint(tls).connect().await.ok()?);
        // With TLS 1.3 a client learns of its refusal with the first answer.
        is_answered(&mut client).await.then_some(client)
    }

    fn trust(&self, authorities: &[&CertificateAuthority]) {
        let bundle: String = authorities.iter().map(|authority| authority.certificate_pem()).collect();
        std::fs::write(self.path("ca.crt"), bundle).unwrap();
    }
}

async fn is_answered(client: &mut Client) -> bool {
    client.resolve(ResolveRequest::default()).await.is_err_and(|status| status.code() == Code::InvalidArgument)
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_reload_without_a_restart() {
    let bed = Bed::start_with(&["--tls-reload-seconds=1"]);
    let (old, new) = (&bed.authority, CertificateAuthority::new("new").unwrap());
    let of_old = old.issue(&CertificateRequest::client("stoa-apiserver")).unwrap();
    let of_new = new.issue(&CertificateRequest::client("stoa-apiserver")).unwrap();
    let expired = CertificateRequest::client("stoa-apiserver").validity(Validity::from_now(Duration::ZERO));
    let expired = old.issue(&expired).unwrap();
    let mut first = bed.admits(&of_old, old).await.unwrap();
    assert!(bed.admits(&of_new, old).await.is_none());

    bed.trust(&[old, &new]);
    eventually(async || bed.admits(&of_new, old).await.is_some()).await;
    assert!(bed.admits(&of_old, old).await.is_some(), "the old authority is believed, too");
    assert!(bed.admits(&expired, old).await.is_none(), "it is not valid any more");

    let certificate = new.issue(&CertificateRequest::server("runner").loopback()).unwrap();
    certificate.write(bed.directory.path(), "runner").unwrap();
    eventually(async || bed.admits(&of_new, &new).await.is_some()).await;
    assert!(bed.admits(&of_new, old).await.is_none(), "the new certificate is shown to everybody");

    bed.trust(&[&new]);
    eventually(async || bed.admits(&of_old, &new).await.is_none()).await;
    assert!(bed.admits(&of_new, &new).await.is_some());
    assert!(is_answered(&mut first).await, "a connection that is open stays");

    // What cannot be used changes nothing.
    std::fs::write(bed.path("ca.crt"), "garbage").unwrap();
    std::fs::write(bed.path("runner.crt"), "garbage").unwrap();
    // A look that is being made may have seen only one of the two, and the next one has not.
    let before = bed.failed_reloads();
    eventually(async || bed.failed_reloads() > before + 2).await;
    assert!(bed.admits(&of_new, &new).await.is_some());
    // One is taken up though the other still cannot be used.
    let certificate = old.issue(&CertificateRequest::server("runner").loopback()).unwrap();
    certificate.write(bed.directory.path(), "runner").unwrap();
    eventually(async || bed.admits(&of_new, old).await.is_some()).await;
}

async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "it is not taken up");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
