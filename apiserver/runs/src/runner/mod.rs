//! The client of the function-runners.
//!
//! Start at [`Runner`], which has the calls of the proto. Any runner does any of them: `pool` knows which there are and
//! which of them has the fewest calls, `addresses` where they are, and `verdict` what an error says of a runner and whether
//! another one is asked. What the runner says is wrong becomes a [`StepError`]: the run fails, waits and tries again, or is
//! done for.

mod addresses;
pub(crate) mod announced;
mod fleet;
mod metrics;
mod packages;
mod pool;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod verdict;
mod verified;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use rustls_pki_types::UnixTime;
use stoa_proto::{
    ApplyEvent, ApplyRequest, ApplyStart, AwaitedRequest, CompareRequest, CompareResponse, ContentRequest,
    ContentResponse, ContentsRequest, ContentsResponse, FindModuleRequest, FindModuleResponse, GenerateRequest,
    GenerateResponse, HealthRequest, HealthResponse, LookAtComplianceRequest, LookAtComplianceResponse,
    LookAtProposalRequest, LookRequest, LookResponse, PlanRequest, PlanResponse, Problem, Proposal, ReadFileRequest,
    ReadFileResponse, ResolveRequest, ResolveResponse, StateEntry, apply_event::Event, apply_request::Message,
};
use stoa_tls::{CaBundle, Reload, ReloadError, read};
use stoa_types::reason;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{
    Code, Response, Status, Streaming,
    transport::{ClientTlsConfig, Error, Identity},
};

use self::{
    addresses::Address,
    announced::Admit,
    metrics::Metrics,
    pool::{Pool, Search},
};
use super::StepError;

pub use self::packages::{Discovery, PackageFiles};
pub use self::verdict::{broken_calls, is_unheard, lacks_path, lacks_version};
pub(crate) use self::{
    pool::{BREAKS, Lent},
    verdict::{is_mistaken, is_of_runner},
};

/// Which runner gave an answer, as metrics have it: kept with the answer.
#[derive(Clone, Debug)]
struct Answerer(String);

/// Which runner gave an answer.
pub(crate) fn answerer<T>(answer: &Response<T>) -> Option<String> {
    answer.extensions().get::<Answerer>().map(|answerer| answerer.0.clone())
}

/// How long a runner may take to say what is awaited.
const AWAITED: Duration = Duration::from_secs(2);
/// A Spec and what is recorded of it weigh as another call for every so many bytes.
const WEIGHT: usize = 1 << 20;
/// How many messages to a runner may wait for it in an apply.
const AHEAD: usize = 256;

/// The function-runners, and how they are talked to. Clones share them.
#[derive(Clone, Debug)]
pub struct Runner {
    pool: Arc<Pool>,
    /// How many of them may go away in the middle of a call.
    breaks: usize,
    /// Looks where they are and how they are, until the last clone goes.
    _watching: Arc<AbortOnDropHandle<()>>,
}

/// Where the function-runners are, and what is shown to them.
#[derive(Clone, Debug)]
pub struct RunnerSettings {
    /// URLs such as `https://function-runner.stoa-system.svc:7443`. A name may stand for several runners.
    pub addresses: Vec<String>,
    /// The certificates that both sides show.
    pub certificates: RunnerCertificates,
}

/// The files with the certificates for the connections, PEM.
#[derive(Clone, Debug)]
pub struct RunnerCertificates {
    /// Who may have signed the runners' certificates.
    pub ca: PathBuf,
    /// Our certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// What was in the files, and how many of the authorities were in force.
#[derive(PartialEq, Eq, educe::Educe)]
#[educe(Debug)]
struct Loaded {
    #[educe(Debug(ignore))]
    ca: String,
    #[educe(Debug(ignore))]
    certificate: String,
    #[educe(Debug(ignore))]
    key: String,
    authorities: usize,
}

// What is reloaded is named in the log, which the key must not reach.
impl RunnerCertificates {
    /// The settings of a client with the contents of the files, for servers beside the runners.
    ///
    /// # Errors
    ///
    /// [`ReloadError`].
    pub fn tls(&self) -> Result<ClientTlsConfig, ReloadError> {
        Ok(self.load()?.1)
    }

    /// Reads the files. An authority that has expired vouches for no runner.
    fn load(&self) -> Result<(Loaded, ClientTlsConfig), ReloadError> {
        let (ca, certificate, key) = (read(&self.ca)?, read(&self.certificate)?, read(&self.key)?);
        let failed = |source| ReloadError::Ca { path: self.ca.clone(), source };
        let in_force = CaBundle::parse(&ca).map_err(failed)?.in_force(UnixTime::now());
        let authorities = in_force.map(|store| store.roots).unwrap_or_default();
        let count = authorities.len();
        let identity = Identity::from_pem(&certificate, &key);
        let tls = ClientTlsConfig::new().trust_anchors(authorities).identity(identity);
        Ok((Loaded { ca, certificate, key, authorities: count }, tls))
    }
}

/// The certificates for the runners, read again when they change.
#[derive(Debug)]
struct Rotating {
    files: RunnerCertificates,
    current: Mutex<Loaded>,
    pool: Arc<Pool>,
}

impl Reload for Rotating {
    /// Calls that begin from now on go over new connections; those under way keep theirs.
    fn reload(&self) -> Result<bool, ReloadError> {
        let (loaded, tls) = self.files.load()?;
        let mut current = self.current.lock();
        if *current == loaded {
            return Ok(false);
        }
        let failed =
            |source| ReloadError::Unusable { path: self.files.certificate.clone(), source: Box::<Error>::new(source) };
        self.pool.set_tls(tls).map_err(failed)?;
        *current = loaded;
        Ok(true)
    }
}

/// An apply that a runner is ready to begin.
#[derive(Debug)]
pub(crate) struct Opened {
    /// What is sent to the runner.
    pub(crate) requests: mpsc::Sender<ApplyRequest>,
    /// The number of the event by which it asks to begin.
    pub(crate) sequence: u64,
    /// Which process it is.
    pub(crate) instance: String,
    /// What it tells after that.
    pub(crate) events: Streaming<ApplyEvent>,
    /// The runner, which counts this among its calls until it is dropped.
    pub(crate) lent: Lent,
}

/// Calls that change nothing and are small.
macro_rules! calls {
    ($($(#[$doc:meta])* $visibility:vis $name:ident = $call:ident $method:literal $request:ty => $answer:ty,)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// The error of the last function-runner that was asked.
        $visibility async fn $name(&self, request: $request) -> Result<Response<$answer>, Status> {
            let call = |lent: &Lent, request: $request| {
                let mut client = lent.client();
                async move { client.$call(request).await }
            };
            Self::ask(self.search($method, None), request, call).await
        }
    )*};
}

impl Runner {
    /// A client of the runners, and what reads its certificates again. Connects when there is something to ask.
    ///
    /// # Errors
    ///
    /// When the addresses or the certificates cannot be used.
    pub fn new(settings: &RunnerSettings, registry: &prometheus::Registry) -> anyhow::Result<(Self, Arc<dyn Reload>)> {
        let addresses: Vec<Address> =
            settings.addresses.iter().map(|address| address.parse()).collect::<anyhow::Result<_>>()?;
        let (loaded, tls) = settings.certificates.load()?;
        let pool = Pool::new(addresses, Some(tls), Metrics::new(registry)?)?;
        let files = settings.certificates.clone();
        let rotating = Rotating { files, current: Mutex::new(loaded), pool: pool.clone() };
        Ok((Self::of(pool), Arc::new(rotating)))
    }

    fn of(pool: Arc<Pool>) -> Self {
        let watching = tokio::spawn(pool::watch_over(pool.clone()));
        Self { pool, breaks: BREAKS, _watching: Arc::new(AbortOnDropHandle::new(watching)) }
    }

    /// The same for calls in whose middle so many runners may go away at most.
    pub(crate) fn ending(&self, breaks: usize) -> Self {
        Self { breaks, ..self.clone() }
    }

    calls! {
        /// The commit of a version of a source, verified or not.
        any_resolve = resolve "Resolve" ResolveRequest => ResolveResponse,
        /// The present commits of versions of a source.
        pub look = look "Look" LookRequest => LookResponse,
        /// The digest of a folder at a commit.
        pub content = content "Content" ContentRequest => ContentResponse,
        /// The digests of folders at a commit.
        pub contents = contents "Contents" ContentsRequest => ContentsResponse,
        /// The paths that a commit changes.
        pub compare = compare "Compare" CompareRequest => CompareResponse,
        /// One file of a commit, verified or not.
        any_read_file = read_file "ReadFile" ReadFileRequest => ReadFileResponse,
        /// The health of all that is recorded.
        pub health = health "Health" HealthRequest => HealthResponse,
        /// The state of a pull request.
        pub look_at_proposal = look_at_proposal "LookAtProposal" LookAtProposalRequest => Proposal,
        /// Whether clusters have what was committed for them.
        pub look_at_compliance = look_at_compliance "LookAtCompliance" LookAtComplianceRequest => LookAtComplianceResponse,
        /// A version of a module.
        pub find_module = find_module "FindModule" FindModuleRequest => FindModuleResponse,
        /// The Spec of a stack at a commit, verified or not.
        any_generate = generate "Generate" GenerateRequest => GenerateResponse,
    }

    /// The Spec of a stack at a commit, where `admit` lets it be taken: before that it hears how many bytes it has, or nothing where a runner of an
    /// earlier version does not tell. What `admit` says otherwise is the answer.
    pub async fn generate_admitted(
        &self,
        request: GenerateRequest,
        admit: &Admit<'_>,
    ) -> Result<Response<GenerateResponse>, Status> {
        let source = request.source.clone();
        let call = |lent: &Lent, request: GenerateRequest| announced::generate(lent.channel(), request, admit);
        let answer = Box::pin(Self::ask(self.search("Generate", None), request, call)).await?;
        verified::require(source.as_ref(), answer.get_ref().is_verified)?;
        Ok(answer)
    }

    /// Compares a Spec with what is recorded and what is there.
    pub(crate) async fn plan(&self, request: PlanRequest) -> Result<Response<PlanResponse>, Status> {
        let search = self.search("Plan", None).weighing(weight(&request.spec, &request.state));
        let call = |lent: &Lent, request: PlanRequest| {
            let mut client = lent.client();
            async move { client.plan(request).await }
        };
        Self::ask(search, request, call).await
    }

    /// Looks for a runner to make a call.
    fn search<'r>(&'r self, method: &'static str, last: Option<&'r str>) -> Search<'r> {
        self.pool.search(method, last).ending(self.breaks)
    }

    /// Makes a call that changes nothing: asks one runner after the other until one answers.
    async fn ask<Q: Clone, A, F: Future<Output = Result<Response<A>, Status>>>(
        mut search: Search<'_>,
        request: Q,
        call: impl Fn(&Lent, Q) -> F,
    ) -> Result<Response<A>, Status> {
        while let Some(mut lent) = search.next().await {
            // The futures of the client are large.
            match Box::pin(call(&lent, request.clone())).await {
                Ok(mut answer) => {
                    lent.answered();
                    answer.extensions_mut().insert(Answerer(lent.name().to_owned()));
                    return Ok(answer);
                }
                Err(status) => search.failed(lent, status)?,
            }
        }
        Err(search.verdict())
    }

    /// What those runners say that a run waits for which plan or apply it; nothing when none does, or tells.
    pub(crate) async fn awaited(&self, run_uid: &str) -> Option<Vec<String>> {
        let asked = self.pool.clients().into_iter().map(|mut client| async move {
            let request = AwaitedRequest { run_uid: run_uid.to_owned() };
            Some(tokio::time::timeout(AWAITED, client.awaited(request)).await.ok()?.ok()?.into_inner())
        });
        let answers = join_all(asked).await.into_iter().flatten().filter(|answer| answer.at_work);
        answers.map(|answer| answer.awaited).reduce(|all, more| [all, more].concat())
    }

    /// Begins an apply, with the process `last` if that is there, since it alone need not be waited for. Nothing has been
    /// done when this returns, and nothing is until the event by which the runner asks is acknowledged.
    ///
    /// # Errors
    ///
    /// What the runner says that looked at it, or that there is none that can.
    pub(crate) async fn apply(&self, start: ApplyStart, last: Option<&str>) -> Result<Opened, Status> {
        let mut search = self.search("Apply", last).weighing(weight(&start.spec, &start.state));
        while let Some(lent) = search.next().await {
            match Box::pin(open(&lent, start.clone())).await {
                Ok((requests, events, sequence, instance)) => {
                    lent.is_process(&instance);
                    return Ok(Opened { requests, sequence, instance, events, lent });
                }
                Err(status) => search.failed(lent, status)?,
            }
        }
        Err(search.verdict())
    }
}

/// As how many calls one counts that is about a Spec and what is recorded of it.
fn weight(spec: &Bytes, state: &[StateEntry]) -> usize {
    let recorded: usize = state.iter().map(|entry| entry.resource.len()).sum();
    1 + (spec.len() + recorded) / WEIGHT
}

type Beginning = (mpsc::Sender<ApplyRequest>, Streaming<ApplyEvent>, u64, String);

async fn open(lent: &Lent, start: ApplyStart) -> Result<Beginning, Status> {
    let (requests, outbound) = mpsc::channel(AHEAD);
    let start = ApplyRequest { message: Some(Message::Start(start)) };
    requests.try_send(start).expect("a new channel has room");
    let mut events = lent.client().apply(ReceiverStream::new(outbound)).await?.into_inner();
    match events.message().await? {
        Some(ApplyEvent { sequence, event: Some(Event::Heartbeat(heartbeat)) }) => {
            Ok((requests, events, sequence, heartbeat.instance))
        }
        Some(_) => Err(Status::invalid_argument(
            "incompatible function-runner version: it did not identify itself; use the version of the API server",
        )),
        None => Err(Status::unavailable("the function-runner disconnected")),
    }
}

/// The runner's word for a source that is out of reach.
const SOURCE_UNAVAILABLE: &str = "SourceUnavailable";

/// What a refused call means for a run. `otherwise` is the reason when the runner gives none.
pub fn halt(status: &Status, otherwise: &'static str) -> StepError {
    let problem = verdict::problem(status);
    // The message tells everything that is wrong, and the details the first of it.
    let message = match &problem {
        Some(problem) if status.message().is_empty() => describe(problem),
        Some(_) => status.message().to_owned(),
        None => pool::why(status).to_owned(),
    };
    match status.code() {
        Code::Unavailable if problem.as_ref().is_some_and(|p| p.reason == SOURCE_UNAVAILABLE) => {
            StepError::SourceUnreachable(message)
        }
        Code::Unavailable | Code::ResourceExhausted | Code::DeadlineExceeded => StepError::Retry(message),
        _ if verdict::is_broken(status) => StepError::Retry(message),
        Code::NotFound => StepError::failed(reason::SOURCE_NOT_FOUND, message),
        Code::Aborted => StepError::failed(reason::PLAN_STALE, message),
        Code::FailedPrecondition => StepError::failed(reason::UNKNOWN_STATE, message),
        Code::InvalidArgument => {
            let of_signature = problem.and_then(|p| reason::OF_SIGNATURES.into_iter().find(|known| *known == p.reason));
            StepError::failed(of_signature.unwrap_or(otherwise), message)
        }
        code => {
            tracing::error!(%code, message = status.message(), "the function-runner failed");
            StepError::failed(otherwise, format!("the function-runner failed: {code:?}"))
        }
    }
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
