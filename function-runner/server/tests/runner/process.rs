//! Who is let in, and how the process ends.

use std::error::Error;
use std::time::Duration;

use stoa_pki::CertificateAuthority;
use stoa_proto::ResolveRequest;
use stoa_proto::function_runner_client::FunctionRunnerClient;
use tonic::Code;

use crate::bed::{Bed, Client};

/// An error and what is behind it.
fn chain(error: &(dyn Error + 'static)) -> String {
    std::iter::successors(Some(error), |&error| error.source()).map(|error| format!("{error}; ")).collect()
}

/// Makes sure that a client is refused by the runner: it does not doubt the runner itself, and finds somebody who listens.
async fn is_refused(connected: Result<Client, tonic::transport::Error>) {
    // With TLS 1.3 a client learns of its refusal with the first answer at the latest.
    let error: Box<dyn Error> = match connected {
        Ok(mut client) => {
            let status = client.resolve(ResolveRequest::default()).await.unwrap_err();
            assert_ne!(status.code(), Code::InvalidArgument, "the call arrives: {status:?}");
            Box::new(status)
        }
        Err(error) => Box::new(error),
    };
    let told = chain(&*error);
    for other in ["invalid peer certificate", "Connection refused"] {
        assert!(!told.contains(other), "{told}");
    }
}

/// Makes sure that whoever has a certificate of the authority is let in.
async fn lets_in(bed: &Bed) {
    let status = bed.client().await.resolve(ResolveRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "the call arrives: {status:?}");
}

#[tokio::test]
async fn only_clients_of_the_authority_are_accepted() {
    let bed = Bed::start();
    lets_in(&bed).await;
    // One without a certificate, and one of another authority.
    is_refused(bed.endpoint(bed.tls()).connect().await.map(FunctionRunnerClient::new)).await;
    is_refused(bed.client_of(&CertificateAuthority::new("stranger").unwrap()).await).await;
    lets_in(&bed).await;
}

#[tokio::test]
async fn it_ends_when_standard_input_closes() {
    let mut bed = Bed::start();
    bed.close_stdin();
    let ended = tokio::time::timeout(Duration::from_secs(30), bed.ended()).await.unwrap();
    assert!(ended.success(), "{ended:?}");
}

#[tokio::test]
async fn runner_shuts_down_in_order() {
    let bed = Bed::start();
    let mut client = bed.client().await;
    client.resolve(ResolveRequest::default()).await.unwrap_err();
    bed.terminate();
    let ended = tokio::time::timeout(Duration::from_secs(30), bed.ended()).await.unwrap();
    assert!(ended.success(), "{ended:?}");
}
