//! Function-runners of tests. A fake answers the calls that it implements, and has no room for all others.
#![allow(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use stoa_proto::{
    ApplyEvent, ApplyRequest, AwaitedRequest, AwaitedResponse, CompareRequest, CompareResponse, ContentRequest,
    ContentResponse, ContentsRequest, ContentsResponse, FindModuleRequest, FindModuleResponse, GenerateRequest,
    GenerateResponse, HealthRequest, HealthResponse, LookAtComplianceRequest, LookAtComplianceResponse,
    LookAtProposalRequest, LookRequest, LookResponse, PlanRequest, PlanResponse, Proposal, ReadFileRequest,
    ReadFileResponse, ResolveRequest, ResolveResponse,
    function_runner_server::{FunctionRunner, FunctionRunnerServer},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Server, server::TcpIncoming},
};

use super::{Address, Metrics, Pool, Runner};

/// A client of no function-runner.
pub fn unreachable_runner() -> Runner {
    runner_at(SocketAddr::new(ANYWHERE.ip(), 1))
}

/// A client of one function-runner, without TLS.
pub fn runner_at(address: SocketAddr) -> Runner {
    runner_at_each(&[address])
}

/// A client of several function-runners, without TLS.
pub fn runner_at_each(addresses: &[SocketAddr]) -> Runner {
    let addresses = addresses.iter().map(|address| Address::in_clear(*address)).collect();
    Runner::of(Pool::new(addresses, None, Metrics::new(&prometheus::Registry::new()).unwrap()).unwrap())
}

/// A free port on loopback.
pub const ANYWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The answer to a call.
pub type Answer<T> = Result<Response<T>, Status>;
/// The events of an apply.
pub type Events = ReceiverStream<Result<ApplyEvent, Status>>;

/// A fake: the calls that a test answers.
#[expect(missing_docs, reason = "each answers the call of its name; the default says that nothing answers it")]
#[tonic::async_trait]
pub trait FakeRunner: Sized + Send + Sync + 'static {
    async fn resolve(&self, _: Request<ResolveRequest>) -> Answer<ResolveResponse> {
        nobody()
    }

    async fn look(&self, _: Request<LookRequest>) -> Answer<LookResponse> {
        nobody()
    }

    async fn content(&self, _: Request<ContentRequest>) -> Answer<ContentResponse> {
        nobody()
    }

    /// A fake is of an earlier version, which answers for one folder at a time, unless it says otherwise.
    async fn contents(&self, _: Request<ContentsRequest>) -> Answer<ContentsResponse> {
        Err(Status::unimplemented("an earlier version"))
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

    async fn find_module(&self, _: Request<FindModuleRequest>) -> Answer<FindModuleResponse> {
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

    /// Serves on any port of loopback.
    fn serve(self) -> SocketAddr {
        self.serve_at(ANYWHERE)
    }

    /// Serves at a free address.
    fn serve_at(self, address: SocketAddr) -> SocketAddr {
        let incoming = TcpIncoming::bind(address).unwrap();
        let address = incoming.local_addr().unwrap();
        tokio::spawn(Server::builder().add_service(service(self)).serve_with_incoming(incoming));
        address
    }
}

/// The answer of a runner without room: Runs wait for it.
fn nobody<T>() -> Answer<T> {
    Err(Status::unavailable("nothing is run"))
}

/// A fake as a gRPC service.
pub fn service<T: FakeRunner>(answers: T) -> FunctionRunnerServer<Service<T>> {
    FunctionRunnerServer::new(Service(answers))
}

/// The calls of a fake as the trait of the proto.
#[derive(Debug)]
pub struct Service<T>(T);

#[tonic::async_trait]
impl<T: FakeRunner> FunctionRunner for Service<T> {
    async fn resolve(&self, request: Request<ResolveRequest>) -> Answer<ResolveResponse> {
        self.0.resolve(request).await
    }

    async fn look(&self, request: Request<LookRequest>) -> Answer<LookResponse> {
        self.0.look(request).await
    }

    async fn content(&self, request: Request<ContentRequest>) -> Answer<ContentResponse> {
        self.0.content(request).await
    }

    async fn contents(&self, request: Request<ContentsRequest>) -> Answer<ContentsResponse> {
        self.0.contents(request).await
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

    async fn find_module(&self, request: Request<FindModuleRequest>) -> Answer<FindModuleResponse> {
        self.0.find_module(request).await
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
