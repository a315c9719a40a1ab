//! The GitOps runtime: writes Kubernetes objects as files into a Git repository, from which Flux or Argo CD apply them
//! to clusters.
//!
//! Start at [`GitOpsRuntime`]. Changes are collected in memory; [`finish`](Runtime::finish) makes one commit of them.
//! The live object is the one at the head of the branch.
//!
//! Elsewhere: `manifest` has the path and content of an object's file, `index` finds its present file, `definitions` the
//! definitions of custom kinds. `file` edits a file, `branch` opens the repository, `bounded` reads it, `history`
//! compares its commits, `remote` talks to its server, `commit` writes, `premise` checks that a plan is not stale,
//! `proposal` opens pull requests, and `compliance` compares clusters with commits.
//!
//! **Invariant:** no secret enters the repository: a v1 Secret with values is rejected, and the runtime accepts no
//! sensitive values.
//!
//! **Invariant:** a commit changes no file that another deployment owns in its parent tree, and deletes no namespace or
//! definition with objects of another deployment (`index`).

mod branch;
mod commit;
mod compliance;
mod content;
mod definitions;
mod file;
mod history;
mod index;
mod manifest;
mod premise;
mod proposal;
mod remote;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Map, Value};
use stoa_engine::object::named;
use stoa_engine::owner::take_over_from;
use stoa_engine::validation::{KUBERNETES_VERSIONS, NEWEST_KUBERNETES};
use stoa_engine::{
    Clusters, Ignored, KindRules, Live, ObjectRef, Owner, Preview, Resource, ResourceType, StateResource,
};
use stoa_engine_git::bounded;
use stoa_git::Credentials;
use stoa_git::cache::Kept;
use stoa_kubernetes_model::kinds::is_built_in;
use stoa_kubernetes_model::normalize::remove_server_fields;
use stoa_kubernetes_model::{Cascade, KubernetesRules, no_clusters};
use stoa_runtime::{
    Applied, ApplyRequest, CallLimits, Caller, Deleted, DeletionReport, DeletionVerdict, Finished, Found, Grant,
    Health, HealthReport, KubernetesChecks, KubernetesObject, Lapsed, Level, ReadRequest, Runtime, RuntimeError, Turns,
    Validation,
};

use crate::branch::Branch;
use crate::commit::{Change, Gathered, Write, Written};
pub use crate::compliance::{Compliance, Deployment, Lineage, Progress, Reading};
use crate::content::Content;
pub use crate::definitions::DefinitionCache;
use crate::definitions::Definitions;
use crate::file::Document;
use crate::index::{Folder, Found as FoundObject, Index};
use crate::manifest::Manifest;
use crate::premise::Premise;
pub use crate::proposal::Proposing;
pub use crate::remote::{Reached, Request, Task, Unreached, reach};

/// The field of a Workspace about pull requests.
pub(crate) const FIELD: &str = "spec.gitops.pullRequest";

/// The destination, and the run.
#[derive(Clone, Debug)]
pub struct GitOpsConfig {
    /// An absolute path, a `file://` URL, or the URL of a remote repository. A local repository is used in place and
    /// must be bare, or have another branch checked out.
    pub repository: String,
    /// The branch. Empty means `main`.
    pub branch: String,
    /// The folder of the workspace in the repository; empty for its root.
    pub directory: String,
    /// Whether the first commit creates the branch. Otherwise a missing branch is an error.
    pub create_branch: bool,
    /// The validation of manifests.
    pub validation: Validated,
    /// Pull requests for people to merge; `None` to commit to the branch.
    pub proposing: Option<Proposing>,
    /// The cache of remote repositories between runs. Only runs with the same credentials may share it, since cached
    /// content needs no authentication.
    pub cache: Kept,
    /// The definitions of repositories, which all runs may share.
    pub definitions: Arc<DefinitionCache>,
    /// The run that writes.
    pub run: RunInfo,
}

/// The validation of manifests before they are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// The effect of an invalid manifest on a plan.
    pub level: Level,
    /// The version of Kubernetes, one of [`KUBERNETES_VERSIONS`].
    pub kubernetes: String,
}

impl Default for Validated {
    fn default() -> Self {
        Self { level: Level::default(), kubernetes: NEWEST_KUBERNETES.to_owned() }
    }
}

/// The run, for the commit message. Empty texts are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunInfo {
    /// The uid; a commit is recognised by it.
    pub uid: String,
    /// The name of the Run.
    pub name: String,
    /// The deployment that it works for.
    pub owner: Owner,
    /// The requester, who is the author of the commit.
    pub requester: String,
    /// The commit of the source.
    pub source_commit: String,
}

/// Connects to the servers of remote repositories: shows credentials and checks who the server is. [`reach`] is what does so.
pub trait Connect: fmt::Debug + Send + Sync + 'static {
    /// The callbacks for one connection.
    fn callbacks(&self) -> git2::RemoteCallbacks<'_>;

    /// The credentials, which are removed from the server's messages.
    fn credentials(&self) -> Credentials;

    /// Reports the URL of the next server, as Git's settings have it.
    fn before(&self, _: &[u8]) {}

    /// Whether a fetch may start, asked right after the connection.
    fn may_fetch(&self) -> Result<(), Unreached> {
        Ok(())
    }

    /// Whether a push may start, asked right after the connection. A subprocess that works for another process, which
    /// renews the lease, is told here of the renewal.
    fn may_push(&self, grant: &Grant) -> Result<(), Lapsed> {
        grant.check()
    }

    /// Reports the progress of a push. A push without objects reports nothing.
    fn pushing(&self, _: Pushing) {}
}

/// The progress of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pushing {
    /// Objects are being collected; nothing is sent yet.
    Prepares,
    /// It may be sent from now on.
    Sends,
}

/// Access to remote repositories and their copies, in this process or in another one.
pub trait Remotes: fmt::Debug + Send + Sync + 'static {
    /// The credentials, which are removed from messages of servers.
    fn shown(&self) -> Credentials;

    /// Performs a request to a remote repository from its bare copy. Called on threads that may block.
    fn reach(&self, copy: &git2::Repository, request: &Request, grant: &Grant) -> Result<Reached, Unreached>;

    /// Runs some work with the copy, once. The implementation makes sure that no other process replaces the copy's
    /// content meanwhile. Called on threads that may block.
    ///
    /// # Errors
    ///
    /// There is no thread or process for it. Nothing was done then.
    fn apart(&self, work: &mut (dyn FnMut() + Send)) -> io::Result<()> {
        work();
        Ok(())
    }
}

impl<C: Connect> Remotes for C {
    fn shown(&self) -> Credentials {
        self.credentials()
    }

    fn reach(&self, copy: &git2::Repository, request: &Request, grant: &Grant) -> Result<Reached, Unreached> {
        reach(self, copy, request, grant)
    }
}

/// Access to repositories without authentication, such as local ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Anonymous;

impl Connect for Anonymous {
    fn callbacks(&self) -> git2::RemoteCallbacks<'_> {
        git2::RemoteCallbacks::new()
    }

    fn credentials(&self) -> Credentials {
        Credentials::default()
    }
}

/// Writes the objects of one run into a repository.
#[derive(Clone, Debug)]
pub struct GitOpsRuntime {
    place: Arc<Branch>,
    /// The pull request settings, and the branch of the deployment.
    proposing: Option<(Proposing, Arc<Branch>)>,
    folder: Arc<Folder>,
    run: Arc<RunInfo>,
    validation: Validated,
    /// By the path of the file that an object has of its own.
    gathered: Arc<Mutex<BTreeMap<String, Change>>>,
    /// The limit of parallel accesses to the repository.
    turns: Turns,
}

impl GitOpsRuntime {
    /// Prepares a run. Reaches nothing yet.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Invalid`] when the settings make no sense, named as fields of the Workspace.
    pub fn new(config: GitOpsConfig, remotes: Arc<dyn Remotes>) -> Result<Self, RuntimeError> {
        let directory = config.directory.trim_matches('/').to_owned();
        let is_bad = |part: &str| {
            let is_none = matches!(part, "" | "." | "..") || part.eq_ignore_ascii_case(".git");
            is_none || part.contains(char::is_control)
        };
        if !directory.is_empty() && directory.split('/').any(is_bad) {
            let message = format!("`{directory}` is not the path of a folder in a repository");
            return Err(invalid(&message, "spec.gitops.directory"));
        }
        let branch = if config.branch.is_empty() { "main" } else { &config.branch };
        let reference = format!("refs/heads/{branch}");
        if !git2::Reference::is_valid_name(&reference) {
            return Err(invalid(&format!("`{branch}` is not a branch name"), "spec.gitops.branch"));
        }
        if config.repository.is_empty() {
            return Err(invalid("the repository is missing", "spec.gitops.repository"));
        }
        let kubernetes = &config.validation.kubernetes;
        if !KUBERNETES_VERSIONS.contains(&kubernetes.as_str()) {
            let message = format!("Kubernetes {kubernetes:?} is not one of {}", KUBERNETES_VERSIONS.join(", "));
            return Err(invalid(&message, "spec.gitops.kubernetesVersion"));
        }
        let at = |reference: String, create: bool| {
            let (cache, remotes) = (config.cache.clone(), Arc::clone(&remotes));
            Arc::new(Branch::new(&config.repository, reference, create, cache, remotes))
        };
        let proposing = match config.proposing {
            None => None,
            Some(proposing) => {
                let own = proposing.branch(&config.run.owner)?;
                if own == branch {
                    let message = format!("`{own}` must not be the branch that pull requests go to");
                    return Err(invalid(&message, "spec.gitops.pullRequest.branchPrefix"));
                }
                Some((proposing, at(format!("refs/heads/{own}"), true)))
            }
        };
        let place = at(reference, config.create_branch);
        let run = Arc::new(config.run);
        let folder = Arc::new(Folder::new(directory, run.owner.clone(), config.definitions));
        let (validation, gathered, turns) = (config.validation, Arc::default(), Turns::unlimited());
        Ok(Self { place, proposing, folder, run, validation, gathered, turns })
    }

    /// Reaches the repository within these limits, for the run and the organization of its owner.
    #[must_use]
    pub fn limited(mut self, limits: &CallLimits) -> Self {
        let organization = self.run.owner.organization.as_str().into();
        let caller = Caller { organization, run: self.run.uid.as_str().into() };
        self.turns = limits.turns(self.place.repository(), caller);
        self
    }

    fn gather(&self, path: String, change: Change) {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner).insert(path, change);
    }

    /// The wanted object with the ignored fields of its file, if there is one.
    async fn with_ignored(&self, desired: &Resource, ignored: &Ignored) -> Result<Resource, RuntimeError> {
        if ignored.is_empty() {
            return Ok(desired.clone());
        }
        let attributes = desired.attributes.clone();
        let found = self.read(&[ReadRequest { desired: Some(desired), prior: None }]).await?.into_iter().next();
        let attributes = match found.transpose()? {
            Some(Live::Present(live)) => ignored.as_live(attributes, &live),
            Some(Live::Absent | Live::Unverified(_)) | None => attributes,
        };
        Ok(Resource { attributes, ..desired.clone() })
    }

    /// What the definitions of the repository say about some kinds. Without kinds, the repository is not read.
    async fn defined<T: Send + 'static>(
        &self,
        kinds: BTreeSet<(String, String)>,
        look: impl FnOnce(&Definitions, &git2::Repository, &BTreeSet<(String, String)>) -> Result<Vec<T>, git2::Error>
        + Send
        + 'static,
    ) -> Result<Vec<T>, RuntimeError> {
        if kinds.is_empty() {
            return Ok(Vec::new());
        }
        let folder = Arc::clone(&self.folder);
        let found = self.blocking(move |place| {
            place.at_head(|repository, tree| match tree {
                Some(tree) => look(&folder.definitions(repository, tree)?, repository, &kinds),
                None => Ok(Vec::new()),
            })
        });
        found.await
    }

    fn path(&self, object: &ObjectRef) -> String {
        manifest::path(&self.folder.directory, object)
    }

    /// Runs what waits for disks and networks on a thread that may.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Branch) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let place = Arc::clone(&self.place);
        let turn = self.turns.next().await;
        let work = move || {
            // Until the thread has ended, even after a dropped wait.
            let _turn = turn;
            place.apart(|| work(&place))
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(err) => std::panic::resume_unwind(err.into_panic()),
        }
    }
}

/// An object without what a server wrote, such as the uid in the file of an exported object.
fn without_server_fields(mut live: Live) -> Live {
    if let Live::Present(object) = &mut live {
        remove_server_fields(object);
    }
    live
}

/// The groups and kinds that are not Kubernetes' own.
fn custom_kinds(desired: &[&Resource]) -> BTreeSet<(String, String)> {
    let objects = desired.iter().filter_map(|resource| ObjectRef::of(&resource.attributes));
    objects.filter(|object| !is_built_in(&object.group)).map(|object| (object.group, object.kind)).collect()
}

fn invalid(message: &str, field: &str) -> RuntimeError {
    RuntimeError::Invalid { message: message.to_owned(), field: Some(field.to_owned()) }
}

/// A query about one object.
enum Query {
    /// The object in the repository.
    Object {
        object: ObjectRef,
        /// The file that it has of its own.
        own: String,
        /// The record, if the object's own file has no object any more.
        recorded: Option<Map<String, Value>>,
    },
    /// None, since its name is unknown.
    Unnamed,
}

impl Query {
    /// The document that is the object.
    fn find<'i>(&self, index: &'i Index) -> Result<Option<&'i FoundObject>, RuntimeError> {
        let Self::Object { object, own, .. } = self else { return Ok(None) };
        index.find(object, own)
    }

    /// The file to read where no document is the object.
    fn file(&self, index: &Index) -> Option<&str> {
        match self {
            Self::Object { own, .. } if matches!(self.find(index), Ok(None)) => Some(own),
            Self::Object { .. } | Self::Unnamed => None,
        }
    }

    /// The object in these files of the repository.
    fn read(&self, index: &Index, files: &BTreeMap<String, Option<Vec<u8>>>) -> Result<Live, RuntimeError> {
        let Self::Object { own, recorded, .. } = self else {
            return Ok(Live::Unverified("its name is not known yet".to_owned()));
        };
        if let Some(found) = self.find(index)? {
            return Ok(Live::Present(found.object.clone()));
        }
        // A recorded object whose file was broken by hand has lost its content; it can be written again, or deleted.
        let spoilt = |error| recorded.clone().map(Live::Present).ok_or(error);
        match files.get(own) {
            None => Ok(Live::Absent),
            Some(None) => spoilt(manifest::too_large(own)),
            Some(Some(content)) => match file::own(own, content) {
                Document::Object(_, live) => Ok(Live::Present(live)),
                Document::Others => Ok(Live::Absent),
                Document::Spoilt => match manifest::parse(own, content) {
                    Ok(live) => Ok(Live::Present(live)),
                    Err(error) => spoilt(error),
                },
            },
        }
    }
}

#[async_trait]
impl Runtime for GitOpsRuntime {
    fn owner(&self) -> &Owner {
        &self.run.owner
    }

    fn destinations(&self) -> BTreeMap<String, String> {
        let how = if self.proposing.is_some() { "by pull request" } else { "by commit" };
        let place = format!("{how} {} {} {}", self.place.repository(), self.place.branch(), self.folder.directory);
        [(String::new(), place)].into()
    }

    fn kubernetes(&self) -> &dyn KubernetesChecks {
        self
    }

    fn is_deferred(&self, _: ResourceType) -> bool {
        true
    }

    fn accepts_sensitive(&self, _: ResourceType) -> bool {
        false
    }

    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError> {
        let asked: Vec<Query> = requests
            .iter()
            .map(|request| {
                let attributes = match (request.desired, request.prior) {
                    (Some(desired), _) => &desired.attributes,
                    (None, Some(prior)) => &prior.attributes,
                    (None, None) => return Query::Unnamed,
                };
                ObjectRef::of(attributes).map_or(Query::Unnamed, |object| {
                    let own = self.path(&object);
                    let prior = request
                        .prior
                        .filter(|prior| ObjectRef::of(&prior.attributes).is_some_and(|prior| self.path(&prior) == own));
                    let recorded = prior.map(|prior| named(&prior.attributes));
                    Query::Object { object, own, recorded }
                })
            })
            .collect();
        let folder = Arc::clone(&self.folder);
        self.blocking(move |place| {
            let (index, files) = place.at_head(|repository, tree| {
                let Some(tree) = tree else { return Ok((Arc::default(), BTreeMap::new())) };
                let index = folder.index(repository, tree)?;
                let files = branch::files(repository, tree, asked.iter().filter_map(|asked| asked.file(&index)))?;
                Ok((index, files))
            })?;
            Ok(asked.iter().map(|asked| asked.read(&index, &files).map(without_server_fields)).collect())
        })
        .await
    }

    async fn inspect(&self, resources: &[&StateResource]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError> {
        let requests: Vec<ReadRequest<'_>> =
            resources.iter().map(|resource| ReadRequest { desired: None, prior: Some(resource) }).collect();
        let found = self.read(&requests).await?.into_iter().map(|live| {
            Ok(match live? {
                Live::Absent | Live::Unverified(_) => Found::Absent,
                Live::Present(live) if self.run.owner.has(&live) => Found::Ours(Applied { live, ..Applied::default() }),
                Live::Present(_) => Found::Foreign,
            })
        });
        Ok(found.collect())
    }

    async fn preview(
        &self,
        request: &ApplyRequest<'_>,
        _: Option<&Map<String, Value>>,
    ) -> Result<Preview, RuntimeError> {
        let manifest = Manifest::of(request.desired, &self.run.owner)?;
        Ok(Preview::Changed(manifest.object))
    }

    async fn apply(&self, request: &ApplyRequest<'_>) -> Result<Applied, RuntimeError> {
        let ignored = Ignored::of(request.desired).map_err(|problem| invalid(&problem.to_string(), "attributes"))?;
        let desired = self.with_ignored(request.desired, &ignored).await?;
        let Manifest { object, reference } = Manifest::of(&desired, &self.run.owner)?;
        let content = Content::of(&desired, &object, ignored)?;
        let from = take_over_from(request.desired).map(str::to_owned);
        let premise = Premise::of(request);
        let write = Write { object: reference.clone(), content, from, premise };
        self.gather(self.path(&reference), Change::Write(Box::new(write)));
        let ObjectRef { group, version, kind, namespace, name } = reference;
        let kubernetes = KubernetesObject { group, version, kind, namespace, name, ..KubernetesObject::default() };
        Ok(Applied { live: object, kubernetes: Some(kubernetes), ..Applied::default() })
    }

    /// [`finish`](Runtime::finish) checks the owner of the file.
    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError> {
        if let Some(object) = ObjectRef::of(&prior.attributes) {
            self.gather(self.path(&object), Change::Remove(Box::new(prior.clone())));
        }
        Ok(Deleted::Gone)
    }

    /// A deletion is complete with its commit.
    async fn wait_deleted(&self, _: &KubernetesObject, _: &DeletionReport<'_>) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// Only the repository's GitOps tool knows the health of the object.
    async fn wait_healthy(&self, _: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        report(Health::Unknown, "written to Git; the repository's GitOps tool applies it");
        Ok(Health::Unknown)
    }

    async fn finish(&self, grant: &Grant) -> Result<Finished, RuntimeError> {
        let changes = self.gathered.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let changes = Gathered { folder: Arc::clone(&self.folder), changes };
        if let Some((proposing, branch)) = &self.proposing {
            return proposal::propose(self, proposing, Arc::clone(branch), changes, grant).await;
        }
        let run = Arc::clone(&self.run);
        let grant = grant.clone();
        let Written { commit, left } = self.blocking(move |place| commit::write(place, &run, &changes, &grant)).await?;
        Ok(Finished { commit: commit.map(|commit| commit.to_string()), left, proposal: None })
    }
}

#[async_trait]
impl KubernetesChecks for GitOpsRuntime {
    fn rules(&self) -> &'static dyn KindRules {
        &KubernetesRules
    }

    fn clusters(&self) -> &Clusters {
        no_clusters()
    }

    fn validates(&self) -> bool {
        false
    }

    async fn validation(&self, desired: &[&Resource]) -> Result<Validation, RuntimeError> {
        let Validated { level, kubernetes } = self.validation.clone();
        let kinds = if level == Level::Off { BTreeSet::new() } else { custom_kinds(desired) };
        let definitions = self.defined(kinds, |definitions, repository, kinds| definitions.read(repository, kinds));
        Ok(Validation { level, kubernetes, definitions: definitions.await? })
    }

    async fn cluster_scoped(&self, desired: &[&Resource]) -> Result<Vec<(String, String)>, RuntimeError> {
        let found = self.defined(custom_kinds(desired), |definitions, _, kinds| {
            Ok(definitions.cluster_scoped().filter(|kind| kinds.contains(kind)).collect())
        });
        found.await
    }

    async fn unreadable_files(&self) -> Result<Vec<String>, RuntimeError> {
        let folder = Arc::clone(&self.folder);
        let index = self.blocking(move |place| {
            place.at_head(|repository, tree| tree.map_or(Ok(Arc::default()), |tree| folder.index(repository, tree)))
        });
        Ok(index.await?.unreadable.values().cloned().collect())
    }

    /// By the files of the workspace's folder, without a request to clusters.
    async fn foreign_contents(
        &self,
        holder: &StateResource,
        live: Option<&Map<String, Value>>,
        own: &HashSet<&str>,
    ) -> Result<DeletionVerdict, RuntimeError> {
        let Some(contents) = Cascade::of(holder, live) else { return Ok(DeletionVerdict::default()) };
        let (run, folder) = (Arc::clone(&self.run), Arc::clone(&self.folder));
        let foreign = self.blocking(move |place| {
            place.at_head(|repository, tree| {
                let index = tree.map_or(Ok(Arc::default()), |tree| folder.index(repository, tree))?;
                Ok(index.foreign_contents(&run.owner, &contents))
            })
        });
        let (refusal, warnings) = foreign.await?.verdict(holder, own);
        Ok(DeletionVerdict { refusal, warnings })
    }
}

#[cfg(test)]
mod tests;
