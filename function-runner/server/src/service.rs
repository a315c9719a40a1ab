//! The calls of the proto.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use stoa_apply::Planning;
use stoa_engine::Spec;
use stoa_proto::function_runner_server::FunctionRunner;
use stoa_proto::{
    ApplyEvent, ApplyRequest, AwaitedRequest, AwaitedResponse, CompareRequest, CompareResponse, ContentRequest,
    ContentResponse, GenerateRequest, GenerateResponse, HealthRequest, HealthResponse, LookAtComplianceRequest,
    LookAtComplianceResponse, LookAtProposalRequest, LookRequest, LookResponse, PlanRequest, PlanResponse, Proposal,
    ReadFileRequest, ReadFileResponse, ResolveRequest, ResolveResponse, Source, StateEntry, Unhealthy, apply_request,
};
use stoa_shares::{Most, Room, Taken};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::Instrument as _;

use crate::apply::{self, ActiveRuns, Conversation};
use crate::aside::aside;
use crate::compliance;
use crate::convert;
use crate::failure::{Failure, reason};
use crate::generate::{Generators, Rendered};
use crate::metrics::Metrics;
use crate::runtimes::Runtimes;
use crate::source::Sources;

/// How many events may wait for a caller that reads slowly.
const EVENTS_AHEAD: usize = 64;

/// A call that is given less takes no room among large ones, in bytes.
const LARGE: usize = 1 << 20;

/// How long a large one waits for its turn before it is busy here.
const TURN: Duration = Duration::from_secs(15);

/// The metadata in which it is said how many bytes a Spec has.
const SPEC_BYTES: &str = "stoa-spec-bytes";

/// How many resources are named that are not healthy.
const EXAMPLES: usize = 20;

/// How much is done at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Resources of one run, when the caller does not say.
    pub(crate) parallelism: u32,
    /// Calls.
    pub(crate) calls: u32,
    /// What large plans, applies and looks at health are given, all together, in MiB.
    pub(crate) calls_mib: u32,
    /// How long one resource may take.
    pub(crate) resource_timeout: Duration,
    /// How long the resources of a run may take, all together, to become healthy at the end.
    pub(crate) health_timeout: Duration,
    /// How long what is under way for a resource may go on once its apply is stopped.
    pub(crate) grace: Duration,
}

/// A call that is to be let in.
struct Call {
    method: &'static str,
    /// Whose it is: empty when of none, and of earlier versions.
    organization: String,
    span: tracing::Span,
}

impl Call {
    /// One about a source.
    fn of_source(method: &'static str, source: Option<&Source>, span: tracing::Span) -> Self {
        let organization = source.map(|source| source.organization.clone()).unwrap_or_default();
        Self { method, organization, span }
    }
}

/// Answers the calls. Holds nothing of a run but while its call lasts.
pub(crate) struct Service {
    sources: Sources,
    generators: Generators,
    runtimes: Runtimes,
    metrics: Metrics,
    limits: Limits,
    /// A place for each call that may be worked on, for minutes as a rule.
    places: Room,
    /// Room for what large calls are given, in MiB. One may need half of it by default.
    room: Room,
    /// As much again for what waits for it, since that is in memory, too; one that is large may have half as much beside.
    waiting: Room,
    /// Which process this is: drawn when it starts.
    instance: Arc<str>,
    shutdown: CancellationToken,
    active: Arc<ActiveRuns>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("sources", &self.sources).finish_non_exhaustive()
    }
}

impl Service {
    pub(crate) fn new(
        sources: Sources,
        generators: Generators,
        runtimes: Runtimes,
        metrics: Metrics,
        limits: Limits,
        shutdown: CancellationToken,
    ) -> Self {
        let instance = uuid::Uuid::new_v4().to_string().into();
        let places = Room::new(limits.calls as usize, Most::ThreeQuarters);
        let calls_mib = limits.calls_mib as usize;
        Self {
            sources,
            generators,
            runtimes,
            metrics,
            limits,
            places,
            room: Room::new(calls_mib, Most::Half),
            waiting: Room::new(calls_mib, Most::Half),
            instance,
            shutdown,
            active: Arc::default(),
        }
    }

    /// Waits until no call is under way.
    pub(crate) fn idle(&self) -> impl Future<Output = ()> + use<> {
        let (places, all) = (self.places.clone(), self.limits.calls as usize);
        async move { drop(places.take("", all).await) }
    }

    /// A place for a call of an organization, for as long as it is kept.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED` when all are taken, or the organization has its share: to be told so at once is better than to
    /// wait without knowing, and keeps what waits out of memory. `UNAVAILABLE` when the process is about to end.
    fn place(&self, organization: &str) -> Result<Taken, Failure> {
        if self.shutdown.is_cancelled() {
            return Err(apply::draining());
        }
        self.places.try_take(organization, 1).ok_or_else(|| {
            let message = match (self.places.free(), self.places.of(organization)) {
                (0, _) => format!("{} calls are worked on already; try again", self.limits.calls),
                (free, own) => {
                    format!("{own} calls of {organization} are worked on already, and {free} are for others; try again")
                }
            };
            Failure::new(Code::ResourceExhausted, reason::BUSY, message)
        })
    }

    /// Room for a call of an organization that is given so many bytes, for as long as it is kept. One that is larger
    /// than all of it has all of it. Organizations have their turns, those first that have least.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED` when there is none for so long, or too much waits already. `UNAVAILABLE` when the process is
    /// about to end.
    async fn room(&self, organization: &str, bytes: usize) -> Result<Option<Taken>, Failure> {
        if bytes < LARGE {
            return Ok(None);
        }
        let most = self.limits.calls_mib;
        let mib = bytes.div_ceil(LARGE).min(most as usize);
        let busy = || {
            let whom = if self.room.of(organization) > 0 { format!(" for {organization}") } else { String::new() };
            let message = format!("of {most} MiB for large calls there are not {mib} free{whom}; try again");
            Failure::new(Code::ResourceExhausted, reason::BUSY, message)
        };
        if let Some(room) = self.room.try_take(organization, mib) {
            return Ok(Some(room));
        }
        // One of nearly all the room would never be in line where a little waits already: who has nothing there has what is free,
        // if that is half of it, so that what waits has no more than half as much beside.
        let free = self.waiting.free();
        let waits = if self.waiting.of(organization) == 0 && free >= mib.div_ceil(2) { mib.min(free) } else { mib };
        let _waiting = self.waiting.try_take(organization, waits).ok_or_else(busy)?;
        let turn = tokio::time::timeout(TURN, self.room.take(organization, mib));
        match self.shutdown.run_until_cancelled(turn).await {
            Some(Ok(room)) => Ok(Some(room)),
            Some(Err(_)) => Err(busy()),
            None => Err(apply::draining()),
        }
    }

    /// Counts a call, logs how it ended, and makes a status of what is wrong.
    async fn call<T>(&self, call: Call, work: impl Future<Output = Result<T, Failure>>) -> Result<Response<T>, Status> {
        let placed = |place: Taken| async move {
            let _place = place;
            work.await
        };
        self.call_in_place(call, placed).await
    }

    /// The same for work that keeps its place itself, since it may go on for a while when its caller is gone.
    async fn call_in_place<T, W: Future<Output = Result<T, Failure>>>(
        &self,
        Call { method, organization, span }: Call,
        work: impl FnOnce(Taken) -> W,
    ) -> Result<Response<T>, Status> {
        let start = Instant::now();
        let placed = async { work(self.place(&organization)?).await };
        let result = placed.instrument(span.clone()).await.map_err(Status::from);
        self.metrics.called(method, start, &result);
        let _entered = span.enter();
        match &result {
            Ok(_) => tracing::info!(elapsed = ?start.elapsed(), "done"),
            Err(status) => {
                tracing::info!(elapsed = ?start.elapsed(), code = ?status.code(), error = status.message(), "failed")
            }
        }
        result.map(Response::new)
    }

    /// Makes a plan, which takes the processor for as long as specs are large.
    async fn plan(&self, request: PlanRequest, place: Taken) -> Result<PlanResponse, Failure> {
        let runtimes = self.runtimes.clone();
        let organization = request.target.as_ref().map(|target| target.organization.clone()).unwrap_or_default();
        let room = self.room(&organization, size(&[&request.spec], &request.state)).await?;
        let work = async move {
            let _taken = (place, room);
            let target = required(request.target, "target")?;
            let spec = convert::spec(&request.spec)?;
            let state = convert::state(&request.state)?;
            let runtime = runtimes.of_run(&target, &spec, &state).await?;
            let keys = convert::digest_keys(&target)?;
            let planning = Planning {
                spec: &spec,
                spec_digest: &target.spec_digest,
                state: &state,
                destroy: request.destroy,
                refresh: request.refresh,
                keys: &keys,
                forget_clusters: &request.forget_clusters,
            };
            let import = (!request.import.is_empty()).then(|| serde_json::from_slice(&request.import)).transpose();
            let import = import.map_err(|err| Failure::request(format!("import is no Selection: {err}")))?;
            let planned = apply::plan(runtime, &planning, import.as_ref()).await?;
            Ok(convert::plan(planned))
        };
        aside(work).await
    }

    /// Looks how a stack fares, of which there may be as much on record as a plan is given.
    async fn health(&self, request: HealthRequest, place: Taken) -> Result<HealthResponse, Failure> {
        let runtimes = self.runtimes.clone();
        let target = required(request.target, "target")?;
        let room = self.room(&target.organization, size(&[], &request.state)).await?;
        let work = async move {
            let _taken = (place, room);
            let state = convert::state(&request.state)?;
            if state.resources.is_empty() && state.open.is_empty() {
                return Ok(HealthResponse::default());
            }
            let runtime = runtimes.of(&target, &Spec::default(), &state).await?;
            let found = stoa_apply::unhealthy(&*runtime, &state).await.map_err(|err| Failure::runtime(&err))?;
            let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let (total, unhealthy) = (count(state.resources.len()), count(found.len()));
            let example = |of: stoa_apply::Unhealthy| Unhealthy { id: of.id.0, message: of.message };
            Ok(HealthResponse { total, unhealthy, examples: found.into_iter().take(EXAMPLES).map(example).collect() })
        };
        aside(Box::pin(work)).await
    }
}

#[tonic::async_trait]
impl FunctionRunner for Service {
    async fn resolve(&self, request: Request<ResolveRequest>) -> Result<Response<ResolveResponse>, Status> {
        let request = request.into_inner();
        let span = tracing::info_span!("Resolve", version = request.version);
        self.call(Call::of_source("Resolve", request.source.as_ref(), span), async {
            let source = required(request.source, "source")?;
            let resolved = self.sources.resolve(&source, &request.version, &request.r#ref).await?;
            Ok(ResolveResponse { commit: resolved.commit, subject: resolved.subject })
        })
        .await
    }

    async fn look(&self, request: Request<LookRequest>) -> Result<Response<LookResponse>, Status> {
        let LookRequest { source, r#ref, versions, branch_only } = request.into_inner();
        let span = tracing::info_span!("Look", versions = versions.len());
        self.call(Call::of_source("Look", source.as_ref(), span), async {
            let source = required(source, "source")?;
            let looked = if branch_only {
                self.sources.branch(&source, &r#ref).await?
            } else {
                self.sources.look(&source, &r#ref, versions).await?
            };
            Ok(LookResponse { latest: looked.latest, commits: looked.commits })
        })
        .await
    }

    async fn content(&self, request: Request<ContentRequest>) -> Result<Response<ContentResponse>, Status> {
        let ContentRequest { source, commit, path } = request.into_inner();
        let span = tracing::info_span!("Content", commit, path);
        self.call(Call::of_source("Content", source.as_ref(), span), async {
            let digest = self.sources.content(&required(source, "source")?, &commit, &path).await?;
            Ok(ContentResponse { digest })
        })
        .await
    }

    async fn compare(&self, request: Request<CompareRequest>) -> Result<Response<CompareResponse>, Status> {
        let CompareRequest { source, base, commit, paths } = request.into_inner();
        let span = tracing::info_span!("Compare", base, commit, paths = paths.len());
        self.call(Call::of_source("Compare", source.as_ref(), span), async {
            let changed = self.sources.changed(&required(source, "source")?, &base, &commit, paths).await?;
            Ok(CompareResponse { is_in_base: changed.is_none(), changed: changed.unwrap_or_default() })
        })
        .await
    }

    async fn read_file(&self, request: Request<ReadFileRequest>) -> Result<Response<ReadFileResponse>, Status> {
        let ReadFileRequest { source, commit, path, max_bytes } = request.into_inner();
        let span = tracing::info_span!("ReadFile", commit, path);
        self.call(Call::of_source("ReadFile", source.as_ref(), span), async {
            let source = required(source, "source")?;
            let (path, text) = self.sources.file(&source, &commit, &path, max_bytes as usize).await?;
            Ok(ReadFileResponse { text, path })
        })
        .await
    }

    async fn health(&self, request: Request<HealthRequest>) -> Result<Response<HealthResponse>, Status> {
        let request = request.into_inner();
        let target = request.target.clone().unwrap_or_default();
        let span = tracing::info_span!("Health", organization = target.organization, stack = target.stack);
        let call = Call { method: "Health", organization: target.organization, span };
        self.call_in_place(call, |place| Service::health(self, request, place)).await
    }

    async fn generate(&self, request: Request<GenerateRequest>) -> Result<Response<GenerateResponse>, Status> {
        let request = request.into_inner();
        let GenerateRequest { organization, project, stack, commit, .. } = &request;
        let span = tracing::info_span!("Generate", organization, project, stack, commit);
        let call = Call { method: "Generate", organization: organization.clone(), span };
        let generated = self.call(call, async {
            let source: Source = required(request.source, "source")?;
            let content = self.sources.read_in_turn(&source, &request.commit, &request.path).await?;
            let mut generated = self.generators.run(&request.organization, &request.generator, content).await?;
            if !request.parameters.is_empty() {
                let mut names: Vec<_> = request.parameters.keys().map(String::as_str).collect();
                names.sort_unstable();
                let message = format!("generator {} takes no parameters: {}", generated.generator, names.join(", "));
                generated.warnings.push(message);
            }
            let Rendered { spec, warnings, generator } = generated;
            Ok(GenerateResponse { spec, warnings, generator })
        });
        let mut answer = generated.await?;
        // Whoever asked may have no room for it.
        let bytes = answer.get_ref().spec.len();
        answer.metadata_mut().insert(SPEC_BYTES, bytes.into());
        Ok(answer)
    }

    async fn look_at_proposal(&self, request: Request<LookAtProposalRequest>) -> Result<Response<Proposal>, Status> {
        let LookAtProposalRequest { workspace, number, organization } = request.into_inner();
        let span = tracing::info_span!("LookAtProposal", organization, number);
        self.call(Call { method: "LookAtProposal", organization, span }, async {
            self.runtimes.look_at_proposal(&required(workspace, "workspace")?, number).await
        })
        .await
    }

    async fn look_at_compliance(
        &self,
        request: Request<LookAtComplianceRequest>,
    ) -> Result<Response<LookAtComplianceResponse>, Status> {
        let request = request.into_inner();
        let workspace = request.workspace.as_ref().map(|workspace| workspace.name.clone()).unwrap_or_default();
        let span = tracing::info_span!("LookAtCompliance", workspace, commits = request.commits.len());
        let organization = compliance::organization(&request).to_owned();
        let call = Call { method: "LookAtCompliance", organization, span };
        self.call(call, self.runtimes.look_at_compliance(request)).await
    }

    async fn plan(&self, request: Request<PlanRequest>) -> Result<Response<PlanResponse>, Status> {
        let request = request.into_inner();
        let target = request.target.clone().unwrap_or_default();
        let span = tracing::info_span!(
            "Plan",
            organization = target.organization,
            stack = target.stack,
            run = target.run_name
        );
        let call = Call { method: "Plan", organization: target.organization, span };
        self.call_in_place(call, |place| Service::plan(self, request, place)).await
    }

    async fn awaited(&self, request: Request<AwaitedRequest>) -> Result<Response<AwaitedResponse>, Status> {
        let awaited = self.runtimes.awaited(&request.into_inner().run_uid);
        Ok(Response::new(AwaitedResponse { at_work: awaited.is_some(), awaited: awaited.unwrap_or_default() }))
    }

    type ApplyStream = Pin<Box<dyn Stream<Item = Result<ApplyEvent, Status>> + Send>>;

    async fn apply(&self, request: Request<Streaming<ApplyRequest>>) -> Result<Response<Self::ApplyStream>, Status> {
        let mut requests = request.into_inner();
        let start = match requests.next().await {
            Some(Ok(ApplyRequest { message: Some(apply_request::Message::Start(start)) })) => start,
            Some(Err(status)) => return Err(status),
            Some(Ok(_)) | None => return Err(Failure::request("the first message of an apply is its start").into()),
        };
        let target = start.target.clone().unwrap_or_default();
        let place = self.place(&target.organization)?;
        let room = self.room(&target.organization, size(&[&start.spec, &start.plan], &start.state)).await?;
        let span = tracing::info_span!(
            "Apply",
            organization = target.organization,
            stack = target.stack,
            run = target.run_name
        );
        let (out, events) = mpsc::channel(EVENTS_AHEAD);
        let conversation = Conversation::new(out);
        let listener = Arc::clone(&conversation);
        tokio::spawn(async move { listener.listen(requests).await });
        let apply = apply::Apply {
            start,
            conversation,
            runtimes: self.runtimes.clone(),
            metrics: self.metrics.clone(),
            limits: self.limits,
            instance: Arc::clone(&self.instance),
            shutdown: self.shutdown.clone(),
        };
        let active = Arc::clone(&self.active);
        // A task of its own: when the caller goes, what is in flight is still finished while it may be.
        let work = async move {
            apply.run(&active).await;
            drop((place, room));
        };
        tokio::spawn(work.instrument(span));
        Ok(Response::new(Box::pin(ReceiverStream::new(events))))
    }
}

/// How many bytes documents have, and what is recorded.
fn size(documents: &[&Bytes], state: &[StateEntry]) -> usize {
    let documents = documents.iter().map(|document| document.len());
    documents.chain(state.iter().map(|entry| entry.resource.len())).sum()
}

/// A message that a request cannot do without.
pub(crate) fn required<T>(value: Option<T>, field: &str) -> Result<T, Failure> {
    value.ok_or_else(|| Failure::request(format!("{field} is missing")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use prost::Message as _;
    use stoa_git::cache::Folders;
    use stoa_proto::{Problem, Target};
    use stoa_workers::Pool;
    use tokio::time::timeout;

    use super::*;
    use crate::args::{LimitArgs, PoolArgs};
    use crate::local::LocalRepositories;
    use crate::source::Readers;

    const MIB: usize = 1 << 20;

    /// A service in a folder, with these limits, until it is shut down.
    fn service(folder: &Path, limits: LimitArgs, shutdown: &CancellationToken) -> Service {
        let cache = Folders::new(folder.to_owned());
        let local = LocalRepositories::default();
        let sources = Sources::new(cache.clone(), local.clone(), Readers::here());
        let runtimes = Runtimes::new(None, cache, local, limits.of_runtimes(), Readers::here());
        let metrics = Metrics::new().unwrap();
        let generators = Generators::new(Pool::new(PoolArgs::default().of_pool(), metrics.workers.clone()));
        let limits = limits.of_calls(Duration::ZERO);
        Service::new(sources, generators, runtimes, metrics, limits, shutdown.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn large_plans_are_refused_while_there_is_no_room_for_them_and_small_ones_are_not() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls_mib: 3, ..LimitArgs::default() };
        let service = service(folder.path(), limits, &CancellationToken::new());
        let code = async |bytes: usize| {
            let resource = vec![b' '; bytes].into();
            let state = vec![StateEntry { resource, ..StateEntry::default() }];
            let request = PlanRequest { state, ..PlanRequest::default() };
            FunctionRunner::plan(&service, Request::new(request)).await.unwrap_err()
        };
        let first = service.room("a", 2 * MIB).await.unwrap();
        let busy = code(MIB + 1).await;
        assert_eq!(busy.code(), Code::ResourceExhausted);
        assert_eq!(Problem::decode(busy.details()).unwrap().reason, reason::BUSY);
        for fits in [MIB, MIB - 1, 0] {
            assert_eq!(code(fits).await.code(), Code::InvalidArgument, "{fits}: there is room, and no target");
        }
        let health = async |bytes: usize| {
            let resource = vec![b' '; bytes].into();
            let state = vec![StateEntry { resource, ..StateEntry::default() }];
            let request = HealthRequest { target: Some(Target::default()), state };
            FunctionRunner::health(&service, Request::new(request)).await.unwrap_err().code()
        };
        assert_eq!(health(MIB + 1).await, Code::ResourceExhausted);
        assert_eq!(health(MIB - 1).await, Code::InvalidArgument, "nothing of it is on record");
        drop(first);
        assert_eq!(code(MIB + 1).await.code(), Code::InvalidArgument, "it has been given back");
        assert_eq!(health(MIB + 1).await, Code::InvalidArgument);
        let all = service.room("a", 100 * MIB).await.unwrap();
        service.room("b", MIB).await.unwrap_err();
        drop(all);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_plan_has_its_turn_before_smaller_ones_that_come_later() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls_mib: 4, ..LimitArgs::default() };
        let shutdown = CancellationToken::new();
        let service = service(folder.path(), limits, &shutdown);
        let short = TURN / 5;
        let first = service.room("a", 3 * MIB).await.unwrap();
        let mut large = Box::pin(service.room("b", 3 * MIB));
        assert!(timeout(short, &mut large).await.is_err(), "it waits");
        let mut small = Box::pin(service.room("c", MIB));
        assert!(timeout(short, &mut small).await.is_err(), "so much is free, and another one waits for it");
        let refused = timeout(short, service.room("d", MIB)).await.expect("no more waits than there is room for");
        assert_eq!(Status::from(refused.unwrap_err()).code(), Code::ResourceExhausted);
        drop(first);
        let _taken = (large.await.unwrap(), small.await.unwrap());
        assert_eq!((service.room.of("b"), service.room.of("c")), (3, 1));

        let mut waiting = Box::pin(service.room("d", 4 * MIB));
        assert!(timeout(short, &mut waiting).await.is_err(), "nothing waits any more, so that this one may");
        shutdown.cancel();
        assert_eq!(Status::from(waiting.await.unwrap_err()).code(), Code::Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn large_plans_of_an_organization_that_last_leave_room_to_others() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls_mib: 8, ..LimitArgs::default() };
        let service = service(folder.path(), limits, &CancellationToken::new());
        let short = TURN / 5;
        let _first = service.room("a", 4 * MIB).await.unwrap();
        let mut waiting = Box::pin(service.room("a", 4 * MIB));
        assert!(timeout(short, &mut waiting).await.is_err(), "it has its share");
        let refused = timeout(short, service.room("a", MIB)).await.expect("it has its share of what waits, too");
        assert_eq!(Status::from(refused.unwrap_err()).code(), Code::ResourceExhausted);
        let _other = timeout(short, service.room("b", 4 * MIB)).await.expect("nobody is in its way").unwrap();
        let mut other = Box::pin(service.room("c", 4 * MIB));
        assert!(timeout(short, &mut other).await.is_err(), "it may wait");
    }

    #[tokio::test(start_paused = true)]
    async fn a_plan_as_large_as_all_the_room_gets_in_line_where_others_wait() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls_mib: 4, ..LimitArgs::default() };
        let service = service(folder.path(), limits, &CancellationToken::new());
        let short = TURN / 5;
        let first = service.room("a", 4 * MIB).await.unwrap();
        let mut small = Box::pin(service.room("b", MIB));
        assert!(timeout(short, &mut small).await.is_err(), "it waits");
        let mut large = Box::pin(service.room("c", 4 * MIB));
        assert!(timeout(short, &mut large).await.is_err(), "it waits, too");
        drop(first);
        let small = small.await.unwrap();
        assert!(timeout(short, &mut large).await.is_err(), "not all is free");
        drop(small);
        let all = large.await.unwrap();
        assert_eq!(service.room.of("c"), 4);

        // So it is only where half of what may wait is free.
        let mut waiting = Box::pin(service.room("d", 3 * MIB));
        assert!(timeout(short, &mut waiting).await.is_err(), "it waits");
        let refused = timeout(short, service.room("e", 4 * MIB)).await.expect("too much would be in memory");
        assert_eq!(Status::from(refused.unwrap_err()).code(), Code::ResourceExhausted);
        drop(all);
    }

    #[test]
    fn what_is_recorded_counts_as_documents_do() {
        let state = [StateEntry { resource: Bytes::from_static(b"{}"), ..StateEntry::default() }];
        assert_eq!(size(&[&Bytes::from_static(b"spec"), &Bytes::from_static(b"plan")], &state), 10);
    }

    #[tokio::test]
    async fn more_calls_than_may_be_are_refused_at_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls: 1, ..LimitArgs::default() };
        let shutdown = CancellationToken::new();
        let service = service(folder.path(), limits, &shutdown);
        let code = async || service.look(Request::new(LookRequest::default())).await.unwrap_err();
        let place = service.place("a").unwrap();
        let busy = code().await;
        assert_eq!(busy.code(), Code::ResourceExhausted);
        assert_eq!(Problem::decode(busy.details()).unwrap().reason, reason::BUSY);
        drop(place);
        assert_eq!(code().await.code(), Code::InvalidArgument, "there is a place, and no source");

        let place = service.place("a").unwrap();
        shutdown.cancel();
        let draining = code().await;
        assert_eq!(draining.code(), Code::Unavailable);
        assert_eq!(Problem::decode(draining.details()).unwrap().reason, reason::DRAINING);
        let mut idle = Box::pin(service.idle());
        assert!(timeout(Duration::from_millis(20), &mut idle).await.is_err(), "a call is under way");
        drop(place);
        idle.await;
    }

    #[tokio::test]
    async fn calls_of_an_organization_that_last_leave_places_to_others() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls: 4, ..LimitArgs::default() };
        let service = service(folder.path(), limits, &CancellationToken::new());
        let look = async |organization: &str| {
            let source = Some(Source { organization: organization.to_owned(), ..Source::default() });
            service.look(Request::new(LookRequest { source, ..LookRequest::default() })).await.unwrap_err()
        };
        let _hanging = [service.place("a").unwrap(), service.place("a").unwrap()];
        let busy = look("a").await;
        let told = "2 calls of a are worked on already, and 2 are for others; try again";
        assert_eq!((busy.code(), busy.message()), (Code::ResourceExhausted, told));
        assert_ne!(look("b").await.code(), Code::ResourceExhausted);
    }
}
