//! Who is let in, and how the process ends.

use std::time::Duration;

use stoa_pki::CertificateAuthority;
use stoa_proto::ResolveRequest;
use stoa_proto::function_runner_client::FunctionRunnerClient;
use tonic::Code;

use crate::bed::Bed;

#[tokio::test]
async fn only_clients_with_a_certificate_of_the_authority_are_let_in() {
    let bed = Bed::start();
    let status = bed.client().await.resolve(ResolveRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "the call arrives: {status:?}");

    // With TLS 1.3 a client learns of its refusal with the first answer at the latest.
    let anonymous = match bed.endpoint(bed.tls()).connect().await {
        Ok(channel) => FunctionRunnerClient::new(channel)
            .resolve(ResolveRequest::default())
            .await
            .is_err_and(|s| s.code() != Code::InvalidArgument),
        Err(_) => true,
    };
    assert!(anonymous, "a client without a certificate is refused");
    let stranger = match bed.client_of(&CertificateAuthority::new("stranger").unwrap()).await {
        Ok(mut client) => {
            client.resolve(ResolveRequest::default()).await.is_err_and(|s| s.code() != Code::InvalidArgument)
        }
        Err(_) => true,
    };
    assert!(stranger, "a client of another authority is refused");
}

#[tokio::test]
async fn it_ends_when_standard_input_closes() {
    let mut bed = Bed::start();
    bed.close_stdin();
    let ended = tokio::time::timeout(Duration::from_secs(30), bed.ended()).await.unwrap();
    assert!(ended.success(), "{ended:?}");
}

#[tokio::test]
async fn it_ends_in_order_when_told_to() {
    let bed = Bed::start();
    let mut client = bed.client().await;
    client.resolve(ResolveRequest::default()).await.unwrap_err();
    bed.terminate();
    let ended = tokio::time::timeout(Duration::from_secs(30), bed.ended()).await.unwrap();
    assert!(ended.success(), "{ended:?}");
}
