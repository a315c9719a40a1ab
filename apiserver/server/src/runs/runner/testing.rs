//! Function-runners of tests, which say what they answer to; all else is not answered.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use stoa_proto::{
    ApplyEvent, ApplyRequest, AwaitedRequest, AwaitedResponse, CompareRequest, CompareResponse, ContentRequest,
    ContentResponse, GenerateRequest, GenerateResponse, HealthRequest, HealthResponse, LookAtComplianceRequest,
    LookAtComplianceResponse, LookAtProposalRequest, LookRequest, LookResponse, PlanRequest, PlanResponse, Proposal,
    ReadFileRequest, ReadFileResponse, ResolveRequest, ResolveResponse,
    function_runner_server::{FunctionRunner, FunctionRunnerServer},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Server, server::TcpIncoming},
};

/// A free port on loopback.
pub(crate) const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What a call is answered with.
pub(crate) type Answer<T> = Result<Response<T>, Status>;
/// What an apply tells.
pub(crate) type Events = ReceiverStream<Result<ApplyEvent, Status>>;

/// What a runner of a test answers to.
#[tonic::async_trait]
pub(crate) trait FakeRunner: Sized + Send + Sync + 'static {
    async fn resolve(&self, _: Request<ResolveRequest>) -> Answer<ResolveResponse> {
        nobody()
    }

    async fn look(&self, _: Request<LookRequest>) -> Answer<LookResponse> {
        nobody()
    }

    async fn content(&self, _: Request<ContentRequest>) -> Answer<ContentResponse> {
        nobody()
    }

    async fn compare(&self, _: Request<CompareRequest>) -> Answer<CompareResponse> {
        nobody()
    }

    async fn read_file(&self, _: Request<ReadFileRequest>) -> Answer<ReadFileResponse> {
        nobody()
    }

    async fn generate(&self, _: Request<GenerateRequest>) -> Answer<GenerateResponse> {
        nobody()
    }

    async fn plan(&self, _: Request<PlanRequest>) -> Answer<PlanResponse> {
        nobody()
    }

    async fn health(&self, _: Request<HealthRequest>) -> Answer<HealthResponse> {
        nobody()
    }

    async fn look_at_proposal(&self, _: Request<LookAtProposalRequest>) -> Answer<Proposal> {
        nobody()
    }

    async fn look_at_compliance(&self, _: Request<LookAtComplianceRequest>) -> Answer<LookAtComplianceResponse> {
        nobody()
    }

    async fn awaited(&self, _: Request<AwaitedRequest>) -> Answer<AwaitedResponse> {
        nobody()
    }

    async fn apply(&self, _: Request<Streaming<ApplyRequest>>) -> Answer<Events> {
        nobody()
    }

    /// Serves it on any port of loopback.
    fn serve(self) -> SocketAddr {
        self.serve_at(ANYWHERE)
    }

    /// Serves it at an address that is free.
    fn serve_at(self, address: SocketAddr) -> SocketAddr {
        let incoming = TcpIncoming::bind(address).unwrap();
        let address = incoming.local_addr().unwrap();
        tokio::spawn(Server::builder().add_service(service(self)).serve_with_incoming(incoming));
        address
    }
}

/// As a runner is that has no room: runs wait for it.
fn nobody<T>() -> Answer<T> {
    Err(Status::unavailable("nothing is run"))
}

/// The service of a runner of a test.
pub(crate) fn service<T: FakeRunner>(answers: T) -> FunctionRunnerServer<Runner<T>> {
    FunctionRunnerServer::new(Runner(answers))
}

/// A runner that answers as a test says.
pub(crate) struct Runner<T>(T);

#[tonic::async_trait]
impl<T: FakeRunner> FunctionRunner for Runner<T> {
    async fn resolve(&self, request: Request<ResolveRequest>) -> Answer<ResolveResponse> {
        self.0.resolve(request).await
    }

    async fn look(&self, request: Request<LookRequest>) -> Answer<LookResponse> {
        self.0.look(request).await
    }

    async fn content(&self, request: Request<ContentRequest>) -> Answer<ContentResponse> {
        self.0.content(request).await
    }

    async fn compare(&self, request: Request<CompareRequest>) -> Answer<CompareResponse> {
        self.0.compare(request).await
    }

    async fn read_file(&self, request: Request<ReadFileRequest>) -> Answer<ReadFileResponse> {
        self.0.read_file(request).await
    }

    async fn generate(&self, request: Request<GenerateRequest>) -> Answer<GenerateResponse> {
        self.0.generate(request).await
    }

    async fn plan(&self, request: Request<PlanRequest>) -> Answer<PlanResponse> {
        self.0.plan(request).await
    }

    async fn health(&self, request: Request<HealthRequest>) -> Answer<HealthResponse> {
        self.0.health(request).await
    }

    async fn look_at_proposal(&self, request: Request<LookAtProposalRequest>) -> Answer<Proposal> {
        self.0.look_at_proposal(request).await
    }

    async fn look_at_compliance(&self, request: Request<LookAtComplianceRequest>) -> Answer<LookAtComplianceResponse> {
        self.0.look_at_compliance(request).await
    }

    async fn awaited(&self, request: Request<AwaitedRequest>) -> Answer<AwaitedResponse> {
        self.0.awaited(request).await
    }

    type ApplyStream = Events;

    async fn apply(&self, request: Request<Streaming<ApplyRequest>>) -> Answer<Events> {
        self.0.apply(request).await
    }
}
