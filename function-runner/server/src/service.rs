//! The calls of the proto.
//!
//! Start at [`Service`]. It limits how many calls, and how many bytes of large ones, are under way at once.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prost::bytes::Bytes;
use stoa_apply::Planning;
use stoa_engine::Spec;
use stoa_fairness::{FairSemaphore, MaxShare, Permit};
use stoa_proto::function_runner_server::FunctionRunner;
use stoa_proto::{
    ApplyEvent, ApplyRequest, AwaitedRequest, AwaitedResponse, CompareRequest, CompareResponse, ContentRequest,
    ContentResponse, ContentsRequest, ContentsResponse, FindModuleRequest, FindModuleResponse, GenerateRequest,
    GenerateResponse, HealthRequest, HealthResponse, LookAtComplianceRequest, LookAtComplianceResponse,
    LookAtProposalRequest, LookRequest, LookResponse, PlanRequest, PlanResponse, Proposal, ReadFileRequest,
    ReadFileResponse, ResolveRequest, ResolveResponse, Source, StateEntry, Unhealthy, apply_request,
};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::Instrument as _;

use crate::apply::{self, ActiveRuns, Conversation};
use crate::blocking::run_blocking;
use crate::capabilities::{KnownCapabilities, TargetCapabilities};
use crate::compliance;
use crate::convert;
use crate::failure::{Failure, reason};
use crate::generate::{self, Generators, Provenance, Rendered, SecretValues, Values};
use crate::metrics::Metrics;
use crate::runtimes::Runtimes;
use crate::secret_store;
use crate::source::{Looked, Resolved, Sources, StackPaths};

/// The number of events that may wait for a slow caller.
const EVENTS_AHEAD: usize = 64;

/// A call that carries less needs no memory permit, in bytes.
const LARGE: usize = 1 << 20;

/// How long a large call waits for memory before it is rejected.
const TURN: Duration = Duration::from_secs(15);

/// The metadata with the size of a Spec in bytes.
const SPEC_BYTES: &str = "stoa-spec-bytes";

/// The number of unhealthy resources that an answer names.
const EXAMPLES: usize = 20;

/// The limits on calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Resources of one run at once, unless the caller sets it.
    pub(crate) parallelism: u32,
    /// Calls at once.
    pub(crate) calls: u32,
    /// Memory for the documents of large plans, applies and health checks, in MiB.
    pub(crate) calls_mib: u32,
    pub(crate) resource_timeout: Duration,
    /// The timeout for all resources of a run to become healthy at its end.
    pub(crate) health_timeout: Duration,
    /// How long calls in flight for a resource may go on once its apply is stopped.
    pub(crate) grace: Duration,
}

/// A call that asks for a slot.
pub(crate) struct Call {
    pub(crate) method: &'static str,
    /// The organization that pays for it; empty for callers of earlier versions.
    pub(crate) organization: String,
    pub(crate) span: tracing::Span,
}

impl Call {
    /// A call about a source.
    pub(crate) fn of_source(method: &'static str, source: Option<&Source>, span: tracing::Span) -> Self {
        let organization = source.map(|source| source.organization.clone()).unwrap_or_default();
        Self { method, organization, span }
    }
}

/// Answers the calls. It keeps nothing of a run after its call.
#[derive(Debug)]
pub(crate) struct Service {
    sources: Sources,
    generators: Generators,
    runtimes: Runtimes,
    capabilities: KnownCapabilities,
    metrics: Metrics,
    limits: Limits,
    /// A slot for each call that is under way, for minutes as a rule.
    slots: FairSemaphore,
    /// Memory for the documents of large calls, in MiB. One call may need half of it by default.
    memory: FairSemaphore,
    /// As much again for calls that wait for it, whose documents are in memory too. A large call may use half as much beside.
    queued_memory: FairSemaphore,
    /// A random id of this process.
    instance: Arc<str>,
    shutdown: CancellationToken,
    active: Arc<ActiveRuns>,
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
        let semaphore = |permits: u32| FairSemaphore::new(permits as usize, MaxShare::ThreeQuarters);
        Self {
            sources,
            generators,
            runtimes,
            capabilities: KnownCapabilities::default(),
            metrics,
            limits,
            slots: semaphore(limits.calls),
            memory: semaphore(limits.calls_mib),
            queued_memory: semaphore(limits.calls_mib),
            instance,
            shutdown,
            active: Arc::default(),
        }
    }

    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    pub(crate) fn generators(&self) -> &Generators {
        &self.generators
    }

    /// Waits until no call is under way.
    pub(crate) fn idle(&self) -> impl Future<Output = ()> + use<> {
        let (slots, all) = (self.slots.clone(), self.limits.calls as usize);
        async move { drop(slots.acquire("", all).await) }
    }

    /// Takes a slot for a call of an organization.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED` if the organization has its share, or no slot is free: the caller hears of that at once, and no
    /// request waits in memory. `UNAVAILABLE` if the process is about to end.
    fn slot(&self, organization: &str) -> Result<Permit, Failure> {
        if self.shutdown.is_cancelled() {
            return Err(apply::draining());
        }
        self.slots.try_acquire(organization, 1).ok_or_else(|| {
            let message = match (self.slots.available(), self.slots.held_by(organization)) {
                (1.., own @ 1..) => {
                    format!(
                        "organization {organization:?} has reached its limit of {own} concurrent calls; retry later"
                    )
                }
                _ => format!(
                    "the function-runner has reached its limit of {} concurrent calls; retry later",
                    self.limits.calls
                ),
            };
            Failure::new(Code::ResourceExhausted, reason::BUSY, message)
        })
    }

    /// Takes memory for a call of an organization that carries so many bytes. A call that is larger than all of it takes all of it.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED` if none is free in time, or too much waits already. `UNAVAILABLE` if the process is about to end.
    pub(crate) async fn memory(&self, organization: &str, bytes: usize) -> Result<Option<Permit>, Failure> {
        if bytes < LARGE {
            return Ok(None);
        }
        let most = self.limits.calls_mib;
        let mib = bytes.div_ceil(LARGE).min(most as usize);
        let busy = || {
            let message = match self.memory.held_by(organization) {
                _ if organization.is_empty() => {
                    format!("{mib} of the {most} MiB for large calls are not free; retry later")
                }
                0 => format!("the call needs {mib} of the {most} MiB for large calls, which others use; retry later"),
                own => format!(
                    "organization {organization:?} uses {own} of the {most} MiB for large calls, and the call needs {mib} more; \
                     retry later"
                ),
            };
            Failure::new(Code::ResourceExhausted, reason::BUSY, message)
        };
        if let Some(memory) = self.memory.try_acquire(organization, mib) {
            return Ok(Some(memory));
        }
        // A call of nearly all the memory would never be queued where a little waits already. So an organization that has nothing queued
        // takes what is free, if that is half of what it needs: the queue uses half as much beside at most.
        let free = self.queued_memory.available();
        let queued =
            if self.queued_memory.held_by(organization) == 0 && free >= mib.div_ceil(2) { mib.min(free) } else { mib };
        let _queued = self.queued_memory.try_acquire(organization, queued).ok_or_else(busy)?;
        let turn = tokio::time::timeout(TURN, self.memory.acquire(organization, mib));
        match self.shutdown.run_until_cancelled(turn).await {
            Some(Ok(memory)) => Ok(Some(memory)),
            Some(Err(_)) => Err(busy()),
            None => Err(apply::draining()),
        }
    }

    /// Counts a call, logs its result, and converts its failure to a status.
    pub(crate) async fn call<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<Response<T>, Status> {
        let with_slot = |slot: Permit| async move {
            let _slot = slot;
            work.await
        };
        self.call_with_slot(call, with_slot).await
    }

    /// The same for work that holds its slot itself, since it may go on for a while when its caller leaves.
    pub(crate) async fn call_with_slot<T, W: Future<Output = Result<T, Failure>>>(
        &self,
        Call { method, organization, span }: Call,
        work: impl FnOnce(Permit) -> W,
    ) -> Result<Response<T>, Status> {
        let start = Instant::now();
        let with_slot = async { work(self.slot(&organization)?).await };
        let result = with_slot.instrument(span.clone()).await.map_err(Status::from);
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

    /// Makes a plan, which needs CPU time in proportion to its documents.
    async fn plan(&self, request: PlanRequest, slot: Permit) -> Result<PlanResponse, Failure> {
        let runtimes = self.runtimes.clone();
        let organization = request.target.as_ref().map(|target| target.organization.clone()).unwrap_or_default();
        let memory = self.memory(&organization, size(&[&request.spec], &request.state)).await?;
        let work = async move {
            let _held = (slot, memory);
            let target = required(request.target, "target")?;
            let spec = secret_store::resolve(convert::spec(&request.spec)?, &target).await?;
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
                hooks: convert::hook_operation(&request.hooks)?,
            };
            let import = convert::selection(&request.import)?;
            let planned = apply::plan(runtime, &planning, import.as_ref()).await?;
            Ok(convert::plan(planned))
        };
        run_blocking(work).await
    }

    /// Reads the health of a stack, whose state may be as large as the documents of a plan.
    async fn health(&self, request: HealthRequest, slot: Permit) -> Result<HealthResponse, Failure> {
        let runtimes = self.runtimes.clone();
        let target = required(request.target, "target")?;
        let memory = self.memory(&target.organization, size(&[], &request.state)).await?;
        let work = async move {
            let _held = (slot, memory);
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
        run_blocking(Box::pin(work)).await
    }
}

#[tonic::async_trait]
impl FunctionRunner for Service {
    async fn resolve(&self, request: Request<ResolveRequest>) -> Result<Response<ResolveResponse>, Status> {
        let request = request.into_inner();
        let span = tracing::info_span!("Resolve", version = request.version);
        self.call(Call::of_source("Resolve", request.source.as_ref(), span), async {
            let source = required(request.source, "source")?;
            let Resolved { commit, subject, signed_by } =
                self.sources.resolve(&source, &request.version, &request.r#ref).await?;
            Ok(ResolveResponse { commit, subject, signed_by })
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
            let Looked { latest, commits, signed_by } = looked;
            Ok(LookResponse { latest, commits, signed_by })
        })
        .await
    }

    async fn content(&self, request: Request<ContentRequest>) -> Result<Response<ContentResponse>, Status> {
        let ContentRequest { source, commit, path, values_files } = request.into_inner();
        let span = tracing::info_span!("Content", commit, path);
        self.call(Call::of_source("Content", source.as_ref(), span), async {
            let digest = self.sources.content(&required(source, "source")?, &commit, &path, values_files).await?;
            Ok(ContentResponse { digest })
        })
        .await
    }

    async fn contents(&self, request: Request<ContentsRequest>) -> Result<Response<ContentsResponse>, Status> {
        let ContentsRequest { source, commit, paths, values_files } = request.into_inner();
        let span = tracing::info_span!("Contents", commit, paths = paths.len());
        self.call(Call::of_source("Contents", source.as_ref(), span), async {
            let of = StackPaths { paths, values_files };
            let digests = self.sources.contents(&required(source, "source")?, &commit, of).await?;
            Ok(ContentsResponse { digests })
        })
        .await
    }

    async fn compare(&self, request: Request<CompareRequest>) -> Result<Response<CompareResponse>, Status> {
        let CompareRequest { source, base, commit, paths, values_files } = request.into_inner();
        let span = tracing::info_span!("Compare", base, commit, paths = paths.len());
        self.call(Call::of_source("Compare", source.as_ref(), span), async {
            let of = StackPaths { paths, values_files };
            let changed = self.sources.changed(&required(source, "source")?, &base, &commit, of).await?;
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
            Ok(ReadFileResponse { text, path, is_verified: source.verify.is_some() })
        })
        .await
    }

    async fn health(&self, request: Request<HealthRequest>) -> Result<Response<HealthResponse>, Status> {
        let request = request.into_inner();
        let target = request.target.clone().unwrap_or_default();
        let span = tracing::info_span!("Health", organization = target.organization, stack = target.stack);
        let call = Call { method: "Health", organization: target.organization, span };
        self.call_with_slot(call, |slot| Service::health(self, request, slot)).await
    }

    async fn generate(&self, request: Request<GenerateRequest>) -> Result<Response<GenerateResponse>, Status> {
        let request = request.into_inner();
        let GenerateRequest { organization, project, stack, commit, .. } = &request;
        let span = tracing::info_span!("Generate", organization, project, stack, commit);
        let call = Call { method: "Generate", organization: organization.clone(), span };
        let generated = self.call(call, async {
            let copy = match request.archive.is_empty() {
                true => None,
                false => Some(self.sources.open(&request.organization, request.archive).await?),
            };
            let source: Source = match &copy {
                Some(copy) => copy.source().clone(),
                None => required(request.source, "source")?,
            };
            let revision = copy.as_ref().map_or(request.commit, |copy| copy.revision().to_owned());
            let helm = request.helm.unwrap_or_default();
            let workspace = request.workspace.unwrap_or_default();
            let modules = generate::modules::Settings::of_spec(&workspace.spec);
            let target = TargetCapabilities::of(&self.runtimes, &self.capabilities, &workspace);
            let values = Values {
                module_digests: self.generators.module_digests(&modules).await?,
                modules,
                organization: request.organization,
                project: request.project,
                stack: request.stack,
                workspace: workspace.name.clone(),
                parameters: request.parameters,
                platform: request.values,
                age_keys: workspace.age_keys.clone(),
                namespace: helm.namespace.clone(),
            };
            let (commit, path, generator) = (&revision, &request.path, &request.generator);
            let module_credentials = &workspace.module_credentials;
            let (values, helm, target) = (&values, &helm, &target);
            let request = generate::Request { commit, path, generator, values, helm, target, module_credentials };
            let secret = SecretValues::of(&values.platform);
            let rendered = self.generators.render(&self.sources, &source, &request).await;
            let Rendered { spec, warnings, provenance, .. } = secret.protect(rendered).await?;
            let Provenance { generator, version, files, origins, modules, kubernetes } = provenance;
            Ok(GenerateResponse {
                spec,
                warnings,
                generator,
                generator_version: version,
                files,
                origins,
                modules,
                kubernetes,
                is_verified: source.verify.is_some(),
            })
        });
        let mut answer = Box::pin(generated).await?;
        // The caller may have no memory for it.
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

    async fn find_module(&self, request: Request<FindModuleRequest>) -> Result<Response<FindModuleResponse>, Status> {
        let request = request.into_inner();
        let span = tracing::info_span!("FindModule", path = request.path, version = request.version);
        let call = Call { method: "FindModule", organization: String::new(), span };
        Box::pin(self.call(call, self.generators.modules().find(&self.sources, request))).await
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
        self.call_with_slot(call, |slot| Service::plan(self, request, slot)).await
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
            Some(Ok(_)) | None => {
                return Err(Failure::request("the first message of an apply must be its start").into());
            }
        };
        let target = start.target.clone().unwrap_or_default();
        let slot = self.slot(&target.organization)?;
        let memory = self.memory(&target.organization, size(&[&start.spec, &start.plan], &start.state)).await?;
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
        // A task of its own: calls in flight are finished when the caller leaves.
        let work = async move {
            apply.run(&active).await;
            drop((slot, memory));
        };
        tokio::spawn(work.instrument(span));
        Ok(Response::new(Box::pin(ReceiverStream::new(events))))
    }
}

/// The size of documents and of the recorded state, in bytes.
fn size(documents: &[&Bytes], state: &[StateEntry]) -> usize {
    let documents = documents.iter().map(|document| document.len());
    documents.chain(state.iter().map(|entry| entry.resource.len())).sum()
}

pub(crate) fn required<T>(value: Option<T>, field: &str) -> Result<T, Failure> {
    value.ok_or_else(|| Failure::request(format!("{field} is missing")))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use prost::Message as _;
    use stoa_git::cache::Folders;
    use stoa_proto::{Problem, Target};
    use stoa_workers::{Pool, SubprocessStarter};
    use tokio::time::timeout;

    use super::*;
    use crate::args::{KclArgs, LimitArgs, PoolArgs, TerraformArgs};
    use crate::local::LocalRepositories;
    use crate::source::ReaderPool;

    const MIB: usize = 1 << 20;

    /// A service in a folder, with these limits, until it is shut down.
    fn service(folder: &Path, limits: LimitArgs, shutdown: &CancellationToken) -> Service {
        let cache = Folders::new(folder.to_owned());
        let local = LocalRepositories::default();
        let sources = Sources::new(cache.clone(), local.clone(), ReaderPool::in_process());
        let metrics = Metrics::new().unwrap();
        let providers = metrics.providers.clone();
        let terraform = TerraformArgs::default().of_terraform(cache.clone(), folder.to_owned(), providers);
        let runtimes = Runtimes::new(
            None,
            cache.clone(),
            local,
            limits.of_runtimes(),
            ReaderPool::in_process(),
            Arc::new(terraform),
        );
        let pool = PoolArgs::default();
        let trees = SubprocessStarter::new(pool.of_trees()).unwrap();
        let renderer = pool.of_renderer(cache.clone(), folder.to_owned());
        let modules = KclArgs::default().of_modules(&pool, folder.to_owned());
        let workers = Pool::new(pool.of_pool(), metrics.workers.clone());
        let generators = Generators::new(workers, trees, 1, renderer, modules);
        let limits = limits.of_calls(Duration::ZERO);
        Service::new(sources, generators, runtimes, metrics, limits, shutdown.clone())
    }

    #[tokio::test(start_paused = true)]
    async fn large_plans_without_memory_are_rejected() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls_mib: 3, ..LimitArgs::default() };
        let service = service(folder.path(), limits, &CancellationToken::new());
        let code = async |bytes: usize| {
            let resource = vec![b' '; bytes].into();
            let state = vec![StateEntry { resource, ..StateEntry::default() }];
            let request = PlanRequest { state, ..PlanRequest::default() };
            FunctionRunner::plan(&service, Request::new(request)).await.unwrap_err()
        };
        let first = service.memory("a", 2 * MIB).await.unwrap();
        let busy = code(MIB + 1).await;
        assert_eq!(busy.code(), Code::ResourceExhausted);
        assert_eq!(Problem::decode(busy.details()).unwrap().reason, reason::BUSY);
        for fits in [MIB, MIB - 1, 0] {
            assert_eq!(code(fits).await.code(), Code::InvalidArgument, "{fits}: there is memory, and no target");
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
        assert_eq!(code(MIB + 1).await.code(), Code::InvalidArgument, "the memory returned");
        assert_eq!(health(MIB + 1).await, Code::InvalidArgument);
        let all = service.memory("a", 100 * MIB).await.unwrap();
        service.memory("b", MIB).await.unwrap_err();
        drop(all);
    }

    #[tokio::test(start_paused = true)]
    async fn large_plan_is_served_before_later_small_ones() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls_mib: 4, ..LimitArgs::default() };
        let shutdown = CancellationToken::new();
        let service = service(folder.path(), limits, &shutdown);
        let short = TURN / 5;
        let first = service.memory("a", 3 * MIB).await.unwrap();
        let mut large = Box::pin(service.memory("b", 3 * MIB));
        assert!(timeout(short, &mut large).await.is_err(), "it waits");
        let mut small = Box::pin(service.memory("c", MIB));
        assert!(timeout(short, &mut small).await.is_err(), "the free memory is for the large plan");
        let refused = timeout(short, service.memory("d", MIB)).await.expect("the queue is full");
        assert_eq!(Status::from(refused.unwrap_err()).code(), Code::ResourceExhausted);
        drop(first);
        let _taken = (large.await.unwrap(), small.await.unwrap());
        assert_eq!((service.memory.held_by("b"), service.memory.held_by("c")), (3, 1));

        let mut waiting = Box::pin(service.memory("d", 4 * MIB));
        assert!(timeout(short, &mut waiting).await.is_err(), "the queue is empty");
        shutdown.cancel();
        assert_eq!(Status::from(waiting.await.unwrap_err()).code(), Code::Unavailable);
    }

    #[tokio::test(start_paused = true)]
    async fn long_large_plans_leave_memory_to_other_organizations() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls_mib: 8, ..LimitArgs::default() };
        let service = service(folder.path(), limits, &CancellationToken::new());
        let short = TURN / 5;
        let _first = service.memory("a", 6 * MIB).await.unwrap();
        let mut waiting = Box::pin(service.memory("a", 4 * MIB));
        assert!(timeout(short, &mut waiting).await.is_err(), "it has its share");
        let refused = timeout(short, service.memory("a", 3 * MIB)).await.expect("its share of the queue is used, too");
        assert_eq!(Status::from(refused.unwrap_err()).code(), Code::ResourceExhausted);
        let _other = timeout(short, service.memory("b", 2 * MIB)).await.expect("nobody delays it").unwrap();
        let mut other = Box::pin(service.memory("c", 4 * MIB));
        assert!(timeout(short, &mut other).await.is_err(), "it may wait");
    }

    #[tokio::test(start_paused = true)]
    async fn plan_for_all_memory_is_queued_behind_others() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls_mib: 4, ..LimitArgs::default() };
        let service = service(folder.path(), limits, &CancellationToken::new());
        let short = TURN / 5;
        let first = service.memory("a", 4 * MIB).await.unwrap();
        let mut small = Box::pin(service.memory("b", MIB));
        assert!(timeout(short, &mut small).await.is_err(), "it waits");
        let mut large = Box::pin(service.memory("c", 4 * MIB));
        assert!(timeout(short, &mut large).await.is_err(), "it waits, too");
        drop(first);
        let small = small.await.unwrap();
        assert!(timeout(short, &mut large).await.is_err(), "not all is free");
        drop(small);
        let all = large.await.unwrap();
        assert_eq!(service.memory.held_by("c"), 4);

        // It is queued only if half of the queue is free.
        let mut waiting = Box::pin(service.memory("d", 3 * MIB));
        assert!(timeout(short, &mut waiting).await.is_err(), "it waits");
        let refused = timeout(short, service.memory("e", 4 * MIB)).await.expect("too much would be in memory");
        assert_eq!(Status::from(refused.unwrap_err()).code(), Code::ResourceExhausted);
        drop(all);
    }

    #[test]
    fn size_counts_documents_and_records() {
        let state = [StateEntry { resource: Bytes::from_static(b"{}"), ..StateEntry::default() }];
        assert_eq!(size(&[&Bytes::from_static(b"spec"), &Bytes::from_static(b"plan")], &state), 10);
    }

    #[tokio::test]
    async fn calls_above_the_limit_are_rejected_at_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls: 1, ..LimitArgs::default() };
        let shutdown = CancellationToken::new();
        let service = service(folder.path(), limits, &shutdown);
        let code = async || service.look(Request::new(LookRequest::default())).await.unwrap_err();
        let slot = service.slot("a").unwrap();
        let busy = code().await;
        assert_eq!(busy.code(), Code::ResourceExhausted);
        assert_eq!(Problem::decode(busy.details()).unwrap().reason, reason::BUSY);
        drop(slot);
        assert_eq!(code().await.code(), Code::InvalidArgument, "there is a slot, and no source");

        let slot = service.slot("a").unwrap();
        shutdown.cancel();
        let draining = code().await;
        assert_eq!(draining.code(), Code::Unavailable);
        assert_eq!(Problem::decode(draining.details()).unwrap().reason, reason::DRAINING);
        let mut idle = Box::pin(service.idle());
        assert!(timeout(Duration::from_millis(20), &mut idle).await.is_err(), "a call is under way");
        drop(slot);
        idle.await;
    }

    #[tokio::test]
    async fn long_calls_leave_slots_to_other_organizations() {
        let folder = tempfile::TempDir::new().unwrap();
        let limits = LimitArgs { max_calls: 4, ..LimitArgs::default() };
        let service = service(folder.path(), limits, &CancellationToken::new());
        let look = async |organization: &str| {
            let source = Some(Source { organization: organization.to_owned(), ..Source::default() });
            service.look(Request::new(LookRequest { source, ..LookRequest::default() })).await.unwrap_err()
        };
        let _hanging = ["a"; 3].map(|organization| service.slot(organization).unwrap());
        let busy = look("a").await;
        let message = "organization \"a\" has reached its limit of 3 concurrent calls; retry later";
        assert_eq!((busy.code(), busy.message()), (Code::ResourceExhausted, message));
        assert_ne!(look("b").await.code(), Code::ResourceExhausted);
    }
}
