//! The service `FunctionRunner`: sources, Specs, plans and applies.
//!
//! Start at [`RunnerService`], which has one method for each call.

use std::pin::Pin;
use std::sync::Arc;

use prost::bytes::Bytes;
use stoa_apply::Planning;
use stoa_engine::Spec;
use stoa_fairness::Permit;
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
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument as _;

use crate::apply::{self, ActiveRuns, Conversation};
use crate::blocking::run_blocking;
use crate::capabilities::{KnownCapabilities, TargetCapabilities};
use crate::compliance;
use crate::convert;
use crate::failure::Failure;
use crate::generate::{self, Generators, Provenance, Rendered, SecretValues, Values};
use crate::runtimes::Runtimes;
use crate::secret_store;
use crate::source::{Looked, Resolved, Sources, StackPaths};

use super::calls::{Call, Calls};
use super::required;

#[cfg(test)]
mod tests;

/// The number of events that may wait for a slow caller.
const EVENTS_AHEAD: usize = 64;

/// The metadata with the size of a Spec in bytes.
const SPEC_BYTES: &str = "stoa-spec-bytes";

/// The number of unhealthy resources that an answer names.
const EXAMPLES: usize = 20;

/// Answers the calls. It keeps nothing of a run after its call.
#[derive(Debug)]
pub(crate) struct RunnerService {
    calls: Arc<Calls>,
    sources: Sources,
    generators: Generators,
    runtimes: Runtimes,
    capabilities: KnownCapabilities,
    /// A random id of this process.
    instance: Arc<str>,
    active: Arc<ActiveRuns>,
}

impl RunnerService {
    pub(crate) fn new(calls: Arc<Calls>, sources: Sources, generators: Generators, runtimes: Runtimes) -> Self {
        let instance = uuid::Uuid::new_v4().to_string().into();
        let capabilities = KnownCapabilities::default();
        Self { calls, sources, generators, runtimes, capabilities, instance, active: Arc::default() }
    }

    /// Makes a plan, which needs CPU time in proportion to its documents.
    async fn make_plan(&self, request: PlanRequest, slot: Permit) -> Result<PlanResponse, Failure> {
        let runtimes = self.runtimes.clone();
        let organization = request.target.as_ref().map(|target| target.organization.clone()).unwrap_or_default();
        let memory = self.calls.memory(&organization, size(&[&request.spec], &request.state)).await?;
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
    async fn read_health(&self, request: HealthRequest, slot: Permit) -> Result<HealthResponse, Failure> {
        let runtimes = self.runtimes.clone();
        let target = required(request.target, "target")?;
        let memory = self.calls.memory(&target.organization, size(&[], &request.state)).await?;
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
impl FunctionRunner for RunnerService {
    async fn resolve(&self, request: Request<ResolveRequest>) -> Result<Response<ResolveResponse>, Status> {
        let request = request.into_inner();
        let span = tracing::info_span!("Resolve", version = request.version);
        self.calls
            .call(Call::of_source("Resolve", request.source.as_ref(), span), async {
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
        self.calls
            .call(Call::of_source("Look", source.as_ref(), span), async {
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
        self.calls
            .call(Call::of_source("Content", source.as_ref(), span), async {
                let digest = self.sources.content(&required(source, "source")?, &commit, &path, values_files).await?;
                Ok(ContentResponse { digest })
            })
            .await
    }

    async fn contents(&self, request: Request<ContentsRequest>) -> Result<Response<ContentsResponse>, Status> {
        let ContentsRequest { source, commit, paths, values_files } = request.into_inner();
        let span = tracing::info_span!("Contents", commit, paths = paths.len());
        self.calls
            .call(Call::of_source("Contents", source.as_ref(), span), async {
                let of = StackPaths { paths, values_files };
                let digests = self.sources.contents(&required(source, "source")?, &commit, of).await?;
                Ok(ContentsResponse { digests })
            })
            .await
    }

    async fn compare(&self, request: Request<CompareRequest>) -> Result<Response<CompareResponse>, Status> {
        let CompareRequest { source, base, commit, paths, values_files } = request.into_inner();
        let span = tracing::info_span!("Compare", base, commit, paths = paths.len());
        self.calls
            .call(Call::of_source("Compare", source.as_ref(), span), async {
                let of = StackPaths { paths, values_files };
                let changed = self.sources.changed(&required(source, "source")?, &base, &commit, of).await?;
                Ok(CompareResponse { is_in_base: changed.is_none(), changed: changed.unwrap_or_default() })
            })
            .await
    }

    async fn read_file(&self, request: Request<ReadFileRequest>) -> Result<Response<ReadFileResponse>, Status> {
        let ReadFileRequest { source, commit, path, max_bytes } = request.into_inner();
        let span = tracing::info_span!("ReadFile", commit, path);
        self.calls
            .call(Call::of_source("ReadFile", source.as_ref(), span), async {
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
        self.calls.call_with_slot(call, |slot| self.read_health(request, slot)).await
    }

    async fn generate(&self, request: Request<GenerateRequest>) -> Result<Response<GenerateResponse>, Status> {
        let request = request.into_inner();
        let GenerateRequest { organization, project, stack, commit, .. } = &request;
        let span = tracing::info_span!("Generate", organization, project, stack, commit);
        let call = Call { method: "Generate", organization: organization.clone(), span };
        let generated = self.calls.call(call, async {
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
        self.calls
            .call(Call { method: "LookAtProposal", organization, span }, async {
                self.runtimes.look_at_proposal(&required(workspace, "workspace")?, number).await
            })
            .await
    }

    async fn find_module(&self, request: Request<FindModuleRequest>) -> Result<Response<FindModuleResponse>, Status> {
        let request = request.into_inner();
        let span = tracing::info_span!("FindModule", path = request.path, version = request.version);
        let call = Call { method: "FindModule", organization: String::new(), span };
        Box::pin(self.calls.call(call, self.generators.modules().find(&self.sources, request))).await
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
        self.calls.call(call, self.runtimes.look_at_compliance(request)).await
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
        self.calls.call_with_slot(call, |slot| self.make_plan(request, slot)).await
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
        let slot = self.calls.slot(&target.organization)?;
        let memory = self.calls.memory(&target.organization, size(&[&start.spec, &start.plan], &start.state)).await?;
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
            metrics: self.calls.metrics.clone(),
            limits: self.calls.limits,
            instance: Arc::clone(&self.instance),
            shutdown: self.calls.shutdown.clone(),
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
