//! Creates the runtime for the resources of a workspace.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use serde::Deserialize;
use stoa_engine::validation::NEWEST_KUBERNETES;
use stoa_engine::{Owner, ResourceId, ResourceType, Spec, State, Validation};
use stoa_git::cache::Folders;
use stoa_kubernetes_model::UnlistedContents;
use stoa_proto::{Problem, Proposal, Source, Target, Workspace};
use stoa_pulls::{Address, Credentials, Pauses, Provider, PullError, PullRequests as _, PullState, Server};
use stoa_runtime::{CallLimits, Caller, Runtime, RuntimeSet};
use stoa_runtime_gitops::{DefinitionCache, GitOpsConfig, GitOpsRuntime, Proposing, RunInfo, Validated};
use stoa_runtime_kubernetes::{Access, Capabilities, ClusterConfig, Connections, KindHealth, KubernetesRuntime};
use stoa_runtime_terraform::TerraformRuntime;
use stoa_types::platform::{
    self as api, Cluster, CommitMode, Compliance, GitOpsTarget, KubernetesTarget, PullRequestProvider, PullRequests,
};
use tonic::Code;

use crate::capabilities::ChartTarget;
use crate::convert;
use crate::failure::{Failure, problem, reason};
use crate::local::LocalRepositories;
use crate::secret_store;
use crate::source::{self, ReaderPool, WorkspaceRepository};
use crate::terraform::{self, Terraform};

/// The folder for copies of GitOps repositories.
pub(crate) const COPIES: &str = "gitops";

/// Creates the runtime of a run.
#[derive(Clone, Debug)]
pub(crate) struct Runtimes {
    /// The kubeconfig for clusters marked `inCluster`.
    kubeconfig: Option<PathBuf>,
    caches: Folders,
    /// The repositories that may be named by path.
    local: LocalRepositories,
    /// The limits on calls of all runs.
    limits: Arc<Limits>,
    connections: Connections,
    /// Servers of pull requests that asked for a pause.
    pauses: Pauses,
    /// The processes that reach repositories.
    readers: ReaderPool,
    /// The providers of all workspaces.
    terraform: Arc<Terraform>,
    /// The definitions in GitOps repositories.
    definitions: Arc<DefinitionCache>,
    /// The runtimes of runs that are planned or applied now, by the uid of the run.
    in_use: Arc<Mutex<InUse>>,
}

type InUse = HashMap<String, Vec<Weak<dyn Runtime>>>;

/// The limits on calls of all runs, by runtime.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Requests to clusters.
    pub(crate) kubernetes: CallLimits,
    /// Requests to GitOps repositories.
    pub(crate) gitops: CallLimits,
}

/// The part of a Workspace's spec that selects its runtime.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WorkspaceSpec {
    kubernetes: Option<KubernetesTarget>,
    gitops: Option<GitOpsTarget>,
    terraform: Option<terraform::Spec>,
    health_policies: Vec<KindHealth>,
}

/// The settings of pull requests, if changes are proposed.
fn pull_requests(gitops: &GitOpsTarget) -> Result<Option<&PullRequests>, Failure> {
    match (gitops.mode, &gitops.pull_request) {
        (CommitMode::Commit, _) => Ok(None),
        (CommitMode::PullRequest, Some(settings)) => Ok(Some(settings)),
        (CommitMode::PullRequest, None) => Err(unusable("is missing")),
    }
}

impl Runtimes {
    /// Clusters of the runner's own are reached by `kubeconfig`; copies of GitOps repositories are kept
    /// among `caches`.
    pub(crate) fn new(
        kubeconfig: Option<PathBuf>,
        caches: Folders,
        local: LocalRepositories,
        limits: Limits,
        readers: ReaderPool,
        terraform: Arc<Terraform>,
    ) -> Self {
        let (limits, connections, pauses) = (Arc::new(limits), Connections::default(), Pauses::default());
        let (definitions, in_use) = (Arc::default(), Arc::default());
        Self { kubeconfig, caches, local, limits, connections, pauses, readers, terraform, definitions, in_use }
    }

    /// The runtime for everything that is wanted or recorded of a stack, for a run that may be asked [what it waits
    /// for](Self::awaited) while it has it.
    pub(crate) async fn of_run(
        &self,
        target: &Target,
        spec: &Spec,
        state: &State,
    ) -> Result<Arc<dyn Runtime>, Failure> {
        let runtime = self.of(target, spec, state).await?;
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|_, runtimes| {
            runtimes.retain(|runtime| runtime.strong_count() > 0);
            !runtimes.is_empty()
        });
        in_use.entry(target.run_uid.clone()).or_default().push(Arc::downgrade(&runtime));
        Ok(runtime)
    }

    /// What a run waits for that is planned or applied here; nothing where none is.
    pub(crate) fn awaited(&self, run: &str) -> Option<Vec<String>> {
        let in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let runtimes: Vec<Arc<dyn Runtime>> = in_use.get(run)?.iter().filter_map(Weak::upgrade).collect();
        (!runtimes.is_empty()).then(|| runtimes.iter().flat_map(|runtime| runtime.awaited()).collect())
    }

    /// The runtime for everything that is wanted or recorded of a stack.
    pub(crate) async fn of(&self, target: &Target, spec: &Spec, state: &State) -> Result<Arc<dyn Runtime>, Failure> {
        let workspace = target.workspace.clone().unwrap_or_default();
        let parsed = parse(&workspace)?;
        let mut runtimes = RuntimeSet::new(owner(target));
        if has(spec, state, ResourceType::Terraform) {
            let Some(terraform) = parsed.terraform else {
                return Err(Failure::invalid(no_providers(&workspace.name, spec, state)));
            };
            runtimes = runtimes.with(ResourceType::Terraform, self.terraform(terraform, target, &workspace).await?);
        }
        let kubernetes: Arc<dyn Runtime> =
            match (parsed.kubernetes.filter(|kubernetes| !kubernetes.clusters.is_empty()), parsed.gitops) {
                (Some(kubernetes), _) => {
                    let clusters = self.clusters(kubernetes, target, &workspace, &parsed.health_policies);
                    Arc::new(clusters.await?)
                }
                (None, Some(gitops)) => self.gitops(gitops, target, &workspace)?,
                // Terraform alone needs neither.
                (None, None)
                    if has(spec, state, ResourceType::Terraform) && !has(spec, state, ResourceType::Kubernetes) =>
                {
                    return Ok(Arc::new(runtimes));
                }
                (None, None) => return Err(no_runtime(&workspace.name, spec, state)),
            };
        Ok(Arc::new(runtimes.with(ResourceType::Kubernetes, kubernetes)))
    }

    async fn clusters(
        &self,
        kubernetes: KubernetesTarget,
        target: &Target,
        workspace: &Workspace,
        health_policies: &[KindHealth],
    ) -> Result<KubernetesRuntime, Failure> {
        let unlisted = unlisted_contents(&kubernetes);
        let configs: Result<Vec<_>, _> = kubernetes
            .clusters
            .into_iter()
            .map(|cluster| self.cluster(cluster, &workspace.name, &workspace.kubeconfigs))
            .collect();
        let runtime = KubernetesRuntime::over(&self.connections, &configs?, owner(target)).await;
        let runtime = runtime.and_then(|runtime| runtime.with_health_policies(health_policies));
        let runtime = runtime.map_err(|err| Failure::runtime(&err))?;
        let runtime = runtime.with_unlisted_contents(unlisted);
        Ok(runtime.limited(&self.limits.kubernetes, &target.run_uid))
    }

    /// What charts of a workspace are rendered for; `None` where it names neither a cluster nor a version.
    pub(crate) fn chart_target(workspace: &Workspace) -> Result<Option<ChartTarget>, Failure> {
        if workspace.spec.is_empty() {
            return Ok(None);
        }
        let parsed = parse(workspace)?;
        let first = parsed.kubernetes.and_then(|target| target.clusters.into_iter().next());
        let version = || parsed.gitops.and_then(|gitops| gitops.kubernetes_version);
        Ok(first.map(|first| ChartTarget::Cluster(Box::new(first))).or_else(|| version().map(ChartTarget::Version)))
    }

    /// The capabilities of a cluster of a workspace.
    pub(crate) async fn capabilities(
        &self,
        workspace: &Workspace,
        cluster: Cluster,
    ) -> Result<Option<Capabilities>, Failure> {
        let config = self.cluster(cluster, &workspace.name, &workspace.kubeconfigs)?;
        let runtime = KubernetesRuntime::over(&self.connections, &[config], Owner::default()).await;
        let runtime = runtime.map_err(|err| Failure::runtime(&err))?.limited(&self.limits.kubernetes, "");
        runtime.capabilities().await.map_err(|err| Failure::runtime(&err))
    }

    async fn terraform(
        &self,
        spec: terraform::Spec,
        target: &Target,
        workspace: &Workspace,
    ) -> Result<Arc<dyn Runtime>, Failure> {
        let caller = Caller { organization: target.organization.as_str().into(), run: target.run_uid.as_str().into() };
        let providers = self.terraform.of_workspace(spec, workspace, secret_store::variables(target).await?, caller)?;
        Ok(Arc::new(TerraformRuntime::new(owner(target), Arc::new(providers))))
    }

    fn gitops(
        &self,
        gitops: GitOpsTarget,
        target: &Target,
        workspace: &Workspace,
    ) -> Result<Arc<dyn Runtime>, Failure> {
        let proposing = match pull_requests(&gitops)? {
            None => None,
            Some(spec) => Some(Proposing {
                pulls: Arc::new(self.server(&gitops.repository, spec, workspace)?),
                branch_prefix: spec.branch_prefix.clone(),
                earlier: Some(target.pull_request).filter(|number| *number > 0),
            }),
        };
        let run = RunInfo {
            uid: target.run_uid.clone(),
            name: target.run_name.clone(),
            owner: owner(target),
            requester: target.requester.clone(),
            source_commit: target.commit.clone(),
        };
        Ok(Arc::new(self.gitops_runtime(gitops, workspace, proposing, run)?))
    }

    fn gitops_runtime(
        &self,
        gitops: GitOpsTarget,
        workspace: &Workspace,
        proposing: Option<Proposing>,
        run: RunInfo,
    ) -> Result<GitOpsRuntime, Failure> {
        self.local.check(&gitops.repository).map_err(|told| {
            let field = "spec.gitops.repository".to_owned();
            Failure::invalid(vec![Problem { field, ..problem(reason::SOURCE_UNAUTHORIZED, told) }])
        })?;
        let repository = Source {
            provider: "Git".to_owned(),
            remote: gitops.repository.clone(),
            credentials: workspace.credentials.clone(),
            organization: run.owner.organization.clone(),
            ..Source::default()
        };
        let (name, organization) = (source::cache_name(&repository), &repository.organization);
        let (cache, removed) = self.caches.take_up_to(COPIES, &name, organization, source::MOST_OF_A_CACHE);
        if let Err(error) = removed {
            tracing::warn!(%error, "the copy of a repository that has grown too large cannot be removed");
        }
        let level = match gitops.validation {
            Some(api::Validation::Strict) => Validation::Strict,
            Some(api::Validation::Warn) => Validation::Warn,
            Some(api::Validation::Off) => Validation::Off,
            None => Validation::default(),
        };
        let kubernetes = gitops.kubernetes_version.unwrap_or_else(|| NEWEST_KUBERNETES.to_owned());
        let config = GitOpsConfig {
            repository: gitops.repository,
            branch: gitops.branch,
            create_branch: gitops.create_branch,
            validation: Validated { level, kubernetes },
            directory: gitops.directory,
            proposing,
            cache: cache.clone(),
            definitions: Arc::clone(&self.definitions),
            run,
        };
        let remotes = Arc::new(WorkspaceRepository::new(repository, cache, self.caches.clone(), self.readers.clone()));
        let runtime = GitOpsRuntime::new(config, remotes).map_err(|err| Failure::runtime(&err))?;
        Ok(runtime.limited(&self.limits.gitops))
    }

    /// The GitOps repository of a workspace, if it has one, for reading; and the settings for compliance.
    pub(crate) fn repository(
        &self,
        workspace: &Workspace,
        who: &Caller,
    ) -> Result<Option<(GitOpsRuntime, Option<Compliance>)>, Failure> {
        let Some(mut gitops) = parse(workspace)?.gitops else { return Ok(None) };
        let compliance = gitops.compliance.take();
        // Compliance can be read for a branch that does not exist any more.
        gitops.create_branch = true;
        let owner = Owner { organization: who.organization.to_string(), ..Owner::default() };
        let run = RunInfo { uid: who.run.to_string(), owner, ..RunInfo::default() };
        Ok(Some((self.gitops_runtime(gitops, workspace, None, run)?, compliance)))
    }

    pub(crate) fn kubeconfig(&self) -> Option<&PathBuf> {
        self.kubeconfig.as_ref()
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    pub(crate) fn kubernetes_limits(&self) -> &CallLimits {
        &self.limits.kubernetes
    }

    /// The server of a repository's pull requests.
    fn server(&self, repository: &str, spec: &PullRequests, workspace: &Workspace) -> Result<Server, Failure> {
        let provider = match spec.provider {
            PullRequestProvider::Gitea => Provider::Gitea,
            PullRequestProvider::GitHub => Provider::GitHub,
            PullRequestProvider::GitLab => Provider::GitLab,
        };
        let address = Address::new(provider, repository, Some(&spec.url)).map_err(|err| unusable(&err.to_string()))?;
        let shown = &workspace.pull_request_credentials;
        let credentials = Credentials::of_keys(|key| shown.get(key).map(|value| &value[..]));
        Server::new(address, &credentials, self.pauses.clone()).map_err(|err| unusable(&format!("ca.crt: {err}")))
    }

    /// The state of a pull request of a workspace's repository.
    pub(crate) async fn look_at_proposal(&self, workspace: &Workspace, number: u64) -> Result<Proposal, Failure> {
        let gitops = parse(workspace)?.gitops;
        let gitops =
            gitops.ok_or_else(|| Failure::request("the workspace has no GitOps repository; set spec.gitops"))?;
        let spec = pull_requests(&gitops)?.ok_or_else(|| unusable("is not in use any more"))?;
        let pull = self.server(&gitops.repository, spec, workspace)?.get(number).await;
        let pull = pull.map_err(|err: PullError| {
            let (code, reason) = match err.is_retryable() {
                true => (Code::Unavailable, reason::UNAVAILABLE),
                false => (Code::InvalidArgument, reason::REJECTED),
            };
            Failure::new(code, reason, format!("pull requests: {err}"))
        })?;
        let state = match pull.state {
            PullState::Open => "Open",
            PullState::Merged(_) => "Merged",
            PullState::Closed => "Closed",
        };
        Ok(Proposal {
            number: pull.number,
            url: pull.url,
            branch: pull.head,
            commit: pull.head_commit.unwrap_or_default(),
            state: state.to_owned(),
            in_conflict: pull.is_mergeable == Some(false),
            base_commit: pull.base_commit.unwrap_or_default(),
            ..Proposal::default()
        })
    }

    fn cluster(
        &self,
        cluster: Cluster,
        workspace: &str,
        kubeconfigs: &HashMap<String, Bytes>,
    ) -> Result<ClusterConfig, Failure> {
        let access = if cluster.in_cluster {
            Access::Own { kubeconfig: self.kubeconfig.clone(), context: cluster.context }
        } else {
            let bytes = kubeconfigs.get(&cluster.name).ok_or_else(|| {
                let message = format!("workspace {workspace} has no kubeconfig for cluster {}", cluster.name);
                let field = format!("spec.kubernetes.clusters[name={}].kubeconfigSecretRef", cluster.name);
                Failure::invalid(vec![Problem { field, ..problem(reason::NO_RUNTIME, message) }])
            })?;
            Access::Kubeconfig { bytes: bytes.to_vec(), context: cluster.context }
        };
        Ok(ClusterConfig { name: cluster.name, access })
    }
}

fn parse(workspace: &Workspace) -> Result<WorkspaceSpec, Failure> {
    if workspace.spec.is_empty() {
        return Ok(WorkspaceSpec::default());
    }
    serde_json::from_slice(&workspace.spec)
        .map_err(|err| Failure::request(format!("workspace.spec is not valid: {err}")))
}

fn unlisted_contents(kubernetes: &KubernetesTarget) -> UnlistedContents {
    match kubernetes.unlisted_contents {
        Some(api::UnlistedContents::Ignore) => UnlistedContents::Ignore,
        Some(api::UnlistedContents::Refuse) | None => UnlistedContents::Refuse,
    }
}

/// A problem of spec.gitops.pullRequests.
fn unusable(what: &str) -> Failure {
    let field = "spec.gitops.pullRequest".to_owned();
    Failure::invalid(vec![Problem { field, ..problem(reason::NO_RUNTIME, what) }])
}

/// The deployment of a run, which owns everything that the run applies.
fn owner(target: &Target) -> Owner {
    Owner {
        organization: target.organization.clone(),
        stack: target.stack.clone(),
        workspace: target.workspace.as_ref().map(|workspace| workspace.name.clone()).unwrap_or_default(),
        stack_uid: target.stack_uid.clone(),
    }
}

/// What is wanted or recorded, and calls without a known result.
fn resources<'a>(spec: &'a Spec, state: &'a State) -> impl Iterator<Item = (&'a ResourceId, ResourceType)> {
    let wanted = spec.resources.iter().map(|resource| (&resource.id, resource.kind));
    let recorded = state.resources.iter().map(|resource| (&resource.id, resource.kind));
    wanted.chain(recorded).chain(state.open.iter().map(|call| (&call.id, call.place.kind)))
}

fn has(spec: &Spec, state: &State, kind: ResourceType) -> bool {
    resources(spec, state).any(|(_, of)| of == kind)
}

/// A problem of each resource that needs a provider, in a workspace without.
fn no_providers(workspace: &str, spec: &Spec, state: &State) -> Vec<Problem> {
    let mut ids: Vec<&ResourceId> =
        resources(spec, state).filter(|(_, kind)| *kind == ResourceType::Terraform).map(|(id, _)| id).collect();
    ids.sort_unstable();
    ids.dedup();
    let message = format!(
        "workspace {workspace} has no spec.terraform; set it with a mirror and a lock to deploy resources of Terraform's providers"
    );
    ids.into_iter()
        .map(|id| {
            let problem = stoa_engine::Problem::new(reason::NO_RUNTIME, message.clone());
            convert::problem_in(spec, problem.of(id).at("type"))
        })
        .collect()
}

fn no_runtime(workspace: &str, spec: &Spec, state: &State) -> Failure {
    let message = format!(
        "workspace {workspace} has neither spec.kubernetes.clusters nor spec.gitops, set one of them to deploy Kubernetes objects"
    );
    let mut of_kubernetes = resources(spec, state).filter(|(_, kind)| *kind == ResourceType::Kubernetes);
    let first = of_kubernetes.next().map(|(id, _)| id.0.clone()).unwrap_or_default();
    Failure::invalid(vec![Problem {
        resource_id: first,
        field: "spec".to_owned(),
        ..problem(reason::NO_RUNTIME, message)
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlistable_kinds_are_refused_unless_allowed() {
        for (said, expected) in [
            ("", UnlistedContents::Refuse),
            (r#", "unlistedContents": "Refuse""#, UnlistedContents::Refuse),
            (r#", "unlistedContents": "Ignore""#, UnlistedContents::Ignore),
        ] {
            let spec = format!(r#"{{"kubernetes": {{"clusters": []{said}}}}}"#);
            let parsed = parse(&Workspace { spec: spec.into(), ..Workspace::default() }).unwrap();
            assert_eq!(unlisted_contents(&parsed.kubernetes.unwrap()), expected, "{said}");
        }
    }
}
