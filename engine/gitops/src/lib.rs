//! The GitOps runtime: writes Kubernetes objects as files into a Git repository, from which Flux or
//! Argo CD bring them to clusters.
//!
//! Start at [`GitOpsRuntime`]. Changes are gathered in memory; [`finish`](Runtime::finish) makes one
//! commit of them. What is live is what stands at the head of the branch. `manifest` says which file
//! an object gets and what is in it, `index` which file has it already, `file` edits that, `place` has the repository, `bounded` reads it,
//! `history` tells which of its commits lead to which, `remote` talks to its server, `commit` writes, `premise` says whether what
//! was planned on is still there, `proposal` asks people to, and `compliance` compares what clusters have with what is committed.
//!
//! **Invariant:** no secret enters the repository: a v1 Secret with values is refused, and the
//! runtime says that it takes no sensitive values.
//!
//! **Invariant:** a commit changes no file that bears the mark of another deployment in the tree that it is made on, nor takes
//! a namespace or definition from under one (`index`).

mod bounded;
mod commit;
mod compliance;
mod content;
mod file;
mod history;
mod index;
mod manifest;
mod place;
mod premise;
mod proposal;
mod remote;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Map, Value};
use stoa_engine::object::named;
use stoa_engine::owner::taken_from;
use stoa_engine::validation::{KUBERNETES_VERSIONS, NEWEST_KUBERNETES};
use stoa_engine::{Contents, Held, Ignored, Live, ObjectRef, Owner, Preview, Resource, StateResource};
use stoa_git::Credentials;
use stoa_git::cache::Kept;
use stoa_runtime::{
    Applied, ApplyRequest, CallLimits, Caller, Deleted, Finished, Found, Grant, Health, HealthReport, HeldReport,
    KubernetesObject, Lapsed, Level, LostCall, ReadRequest, Runtime, RuntimeError, Turns, Validation,
};

use crate::commit::{Change, Gathered, Write, Written};
pub use crate::compliance::{Compliance, Lineage, Reading};
use crate::content::Content;
use crate::file::Document;
use crate::index::{Folder, Found as FoundObject, Index};
use crate::manifest::Manifest;
use crate::place::Place;
use crate::premise::Premise;
pub use crate::proposal::Proposing;
pub use crate::remote::{Reached, Request, Task, Unreached, reach};

/// The field of a Workspace that says how changes are proposed.
pub(crate) const FIELD: &str = "spec.gitops.pullRequest";

/// Where to write, and for whom.
#[derive(Clone, Debug)]
pub struct GitOpsConfig {
    /// An absolute path, a `file://` URL, or the URL of a remote repository. A local repository is
    /// used in place and must be bare, or have another branch checked out.
    pub repository: String,
    /// The branch. Empty means `main`.
    pub branch: String,
    /// The folder of the workspace in the repository; empty for its root.
    pub directory: String,
    /// Whether the first commit makes the branch. Otherwise a branch that does not exist is refused.
    pub create_branch: bool,
    /// How manifests are validated.
    pub validation: Validated,
    /// How changes are proposed, where people are to merge them; none: they are committed to the branch.
    pub proposing: Option<Proposing>,
    /// Where copies of remote repositories are kept between runs: for those alone who show the same credentials, since what
    /// is there is told without asking anybody.
    pub cache: Kept,
    /// The run that writes.
    pub run: RunInfo,
}

/// How manifests are validated before they are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// What an invalid manifest does to a plan.
    pub level: Level,
    /// The version of Kubernetes, one of [`KUBERNETES_VERSIONS`].
    pub kubernetes: String,
}

impl Default for Validated {
    fn default() -> Self {
        Self { level: Level::default(), kubernetes: NEWEST_KUBERNETES.to_owned() }
    }
}

/// What the commit says about the run. Empty texts are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunInfo {
    /// The uid; a commit is recognised by it.
    pub uid: String,
    /// The name of the Run.
    pub name: String,
    /// The deployment that it works for.
    pub owner: Owner,
    /// Who asked for it; the author of the commit.
    pub requester: String,
    /// The commit of the source.
    pub source_commit: String,
}

/// Connects to the servers of remote repositories: shows credentials and checks who the server is. [`reach`] is what does so.
pub trait Connect: fmt::Debug + Send + Sync + 'static {
    /// The callbacks for one connection.
    fn callbacks(&self) -> git2::RemoteCallbacks<'_>;

    /// What is shown, which nothing that a server says may bring before people.
    fn credentials(&self) -> Credentials;

    /// Told which server is connected to next, by its URL as Git's settings have it.
    fn before(&self, _: &[u8]) {}

    /// Asked when a server was reached, right before something is fetched: whether it may be.
    ///
    /// # Errors
    ///
    /// Why it may not.
    fn may_fetch(&self) -> Result<(), Unreached> {
        Ok(())
    }

    /// Asked when a server was reached, right before something is pushed: whether it may be. Whoever works on behalf of
    /// somebody else, who has the grant extended, hears here that it was.
    ///
    /// # Errors
    ///
    /// [`Lapsed`] when it may not.
    fn may_push(&self, grant: &Grant) -> Result<(), Lapsed> {
        grant.check()
    }

    /// Told how far a push is that may be. Of one that sends no objects nothing is told.
    fn pushing(&self, _: Pushing) {}
}

/// How far a push is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pushing {
    /// What is to be sent is gathered, and nothing of it has been sent.
    Prepares,
    /// It may be sent from now on.
    Sends,
}

/// What a runtime has done at remote repositories, and with the copies of them that are here: by whoever connects to their servers
/// itself, or has that done elsewhere.
pub trait Remotes: fmt::Debug + Send + Sync + 'static {
    /// What is shown to servers, which nothing that one says may bring before people.
    fn shown(&self) -> Credentials;

    /// Has something done at a remote repository, from the bare copy of it that is here. It is called on threads that may wait.
    ///
    /// # Errors
    ///
    /// Those of [`reach`]; whoever has it done elsewhere may have others.
    fn reach(&self, copy: &git2::Repository, request: &Request, grant: &Grant) -> Result<Reached, Unreached>;

    /// Does some work with the copy, once. Whoever has others write to it sees to it that what they leave there leads to nothing
    /// else while that lasts. It is called on threads that may wait.
    ///
    /// # Errors
    ///
    /// When there is nobody who does it, such as a thread. Nothing was done then.
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

/// Reaches repositories that ask nobody who they are, such as local ones.
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
    place: Arc<Place>,
    /// How changes are proposed, and the branch that they are proposed by.
    proposing: Option<(Proposing, Arc<Place>)>,
    folder: Arc<Folder>,
    run: Arc<RunInfo>,
    validation: Validated,
    /// By the path of the file that an object has of its own.
    gathered: Arc<Mutex<BTreeMap<String, Change>>>,
    /// What lets the repository be reached.
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
            let message = format!("`{directory}` is no folder of a repository");
            return Err(invalid(&message, "spec.gitops.directory"));
        }
        let branch = if config.branch.is_empty() { "main" } else { &config.branch };
        let reference = format!("refs/heads/{branch}");
        if !git2::Reference::is_valid_name(&reference) {
            return Err(invalid(&format!("`{branch}` is no name of a branch"), "spec.gitops.branch"));
        }
        if config.repository.is_empty() {
            return Err(invalid("the repository is not named", "spec.gitops.repository"));
        }
        let kubernetes = &config.validation.kubernetes;
        if !KUBERNETES_VERSIONS.contains(&kubernetes.as_str()) {
            let message = format!("Kubernetes {kubernetes:?} is not one of {}", KUBERNETES_VERSIONS.join(", "));
            return Err(invalid(&message, "spec.gitops.kubernetesVersion"));
        }
        let at = |reference: String, create: bool| {
            let (cache, remotes) = (config.cache.clone(), Arc::clone(&remotes));
            Arc::new(Place::new(&config.repository, reference, create, cache, remotes))
        };
        let proposing = match config.proposing {
            None => None,
            Some(proposing) => {
                let own = proposing.branch(&config.run.owner)?;
                if own == branch {
                    let message = format!("`{own}` is the branch that changes are proposed to");
                    return Err(invalid(&message, "spec.gitops.pullRequest.branchPrefix"));
                }
                Some((proposing, at(format!("refs/heads/{own}"), true)))
            }
        };
        let place = at(reference, config.create_branch);
        let run = Arc::new(config.run);
        let folder = Arc::new(Folder::new(directory, run.owner.clone()));
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

    /// What is wanted, with those fields as the file has them that are left to others, if there is a file.
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

    fn path(&self, object: &ObjectRef) -> String {
        manifest::path(&self.folder.directory, object)
    }

    fn former_path(&self, object: &ObjectRef) -> Option<String> {
        manifest::former_path(&self.folder.directory, object)
    }

    /// Runs what waits for disks and networks on a thread that may.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Place) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let place = Arc::clone(&self.place);
        let turn = self.turns.next().await;
        let work = move || {
            // Until the thread has ended, though nobody may wait for it any more.
            let _turn = turn;
            place.apart(|| work(&place))
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(err) => std::panic::resume_unwind(err.into_panic()),
        }
    }
}

fn invalid(message: &str, field: &str) -> RuntimeError {
    RuntimeError::Invalid { message: message.to_owned(), field: Some(field.to_owned()) }
}

/// What is asked about one object.
enum Asked {
    /// What the repository has of it, or else what of this deployment's is where it was formerly.
    Object {
        object: ObjectRef,
        /// The file that it has of its own.
        own: String,
        former: Option<String>,
        /// What is known of it when it is recorded and its own file has no object any more.
        recorded: Option<Map<String, Value>>,
    },
    /// Nothing, since nobody knows its name yet.
    Unnamed,
}

impl Asked {
    /// The document that is the object.
    fn find<'i>(&self, index: &'i Index) -> Result<Option<&'i FoundObject>, RuntimeError> {
        let Self::Object { object, own, former, .. } = self else { return Ok(None) };
        index.find(object, own, former.as_deref())
    }

    /// The files to read where no document is the object.
    fn files(&self, index: &Index) -> [Option<&str>; 2] {
        match self {
            Self::Object { own, former, .. } if matches!(self.find(index), Ok(None)) => [Some(own), former.as_deref()],
            Self::Object { .. } | Self::Unnamed => [None; 2],
        }
    }

    /// What the repository has of it, whose files these are.
    fn read(
        &self,
        index: &Index,
        files: &BTreeMap<String, Option<Vec<u8>>>,
        owner: &Owner,
    ) -> Result<Live, RuntimeError> {
        let Self::Object { own, former, recorded, .. } = self else {
            return Ok(Live::Unverified("its name is not known yet".to_owned()));
        };
        if let Some(found) = self.find(index)? {
            return Ok(Live::Present(found.object.clone()));
        }
        let former = || {
            let former = former.as_ref()?;
            let found = manifest::parse(former, files.get(former)?.as_deref()?).ok();
            found.filter(|live| owner.has(live))
        };
        // What is recorded and was spoilt by hand has lost all that it said; it can be written anew, or removed.
        let spoilt = |error| recorded.clone().map(Live::Present).ok_or(error);
        match files.get(own) {
            None => Ok(former().map_or(Live::Absent, Live::Present)),
            Some(None) => spoilt(manifest::too_large(own)),
            Some(Some(content)) => match file::own(own, content) {
                Document::Object(_, live) => Ok(Live::Present(live)),
                Document::Others => Ok(former().map_or(Live::Absent, Live::Present)),
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

    fn places(&self) -> BTreeMap<String, String> {
        let how = if self.proposing.is_some() { "by pull request" } else { "by commit" };
        let place = format!("{how} {} {} {}", self.place.repository(), self.place.branch(), self.folder.directory);
        [(String::new(), place)].into()
    }

    fn is_deferred(&self) -> bool {
        true
    }

    fn accepts_sensitive(&self) -> bool {
        false
    }

    fn validates(&self) -> bool {
        false
    }

    async fn validation(&self) -> Result<Validation, RuntimeError> {
        let Validated { level, kubernetes } = self.validation.clone();
        let folder = Arc::clone(&self.folder);
        let index = self.blocking(move |place| {
            place.at_head(|repository, tree| tree.map_or(Ok(Arc::default()), |tree| folder.index(repository, tree)))
        });
        let definitions = if level == Level::Off { Vec::new() } else { index.await?.definitions.clone() };
        Ok(Validation { level, kubernetes, definitions })
    }

    async fn read(&self, requests: &[ReadRequest<'_>]) -> Result<Vec<Result<Live, RuntimeError>>, RuntimeError> {
        let asked: Vec<Asked> = requests
            .iter()
            .map(|request| {
                let attributes = match (request.desired, request.prior) {
                    (Some(desired), _) => &desired.attributes,
                    (None, Some(prior)) => &prior.attributes,
                    (None, None) => return Asked::Unnamed,
                };
                ObjectRef::of(attributes).map_or(Asked::Unnamed, |object| {
                    let own = self.path(&object);
                    let prior = request
                        .prior
                        .filter(|prior| ObjectRef::of(&prior.attributes).is_some_and(|prior| self.path(&prior) == own));
                    let recorded = prior.map(|prior| named(&prior.attributes));
                    Asked::Object { former: self.former_path(&object), object, own, recorded }
                })
            })
            .collect();
        let (run, folder) = (Arc::clone(&self.run), Arc::clone(&self.folder));
        self.blocking(move |place| {
            let (index, files) = place.at_head(|repository, tree| {
                let Some(tree) = tree else { return Ok((Arc::default(), BTreeMap::new())) };
                let index = folder.index(repository, tree)?;
                let paths = asked.iter().flat_map(|asked| asked.files(&index));
                let files = place::files(repository, tree, paths.flatten())?;
                Ok((index, files))
            })?;
            Ok(asked.iter().map(|asked| asked.read(&index, &files, &run.owner)).collect())
        })
        .await
    }

    /// A manifest says whose it is. One without a mark was written before there were marks, and then the commit of the run
    /// tells: all of a run's changes are one.
    async fn look_for(&self, calls: &[LostCall<'_>]) -> Result<Vec<Result<Found, RuntimeError>>, RuntimeError> {
        let runs: BTreeSet<String> = calls.iter().map(|call| call.run.to_owned()).collect();
        let written = self.blocking(move |place| commit::written_by(place, runs)).await?;
        let requests: Vec<ReadRequest<'_>> =
            calls.iter().map(|call| ReadRequest { desired: None, prior: Some(call.resource) }).collect();
        let found = calls.iter().zip(self.read(&requests).await?).map(|(call, live)| {
            Ok(match live? {
                Live::Absent | Live::Unverified(_) => Found::Absent,
                Live::Present(live) => {
                    let is_ours = match self.run.owner.other(&live) {
                        Some(_) => false,
                        None => self.run.owner.has(&live) || written.contains(call.run),
                    };
                    if is_ours { Found::Ours(Applied { live, kubernetes: None }) } else { Found::Foreign }
                }
            })
        });
        Ok(found.collect())
    }

    /// As far as the files of the workspace's folder say: nobody asks the clusters.
    async fn held(&self, _: &StateResource, contents: &Contents) -> Result<Held, RuntimeError> {
        let (run, contents, folder) = (Arc::clone(&self.run), contents.clone(), Arc::clone(&self.folder));
        self.blocking(move |place| {
            place.at_head(|repository, tree| {
                let index = tree.map_or(Ok(Arc::default()), |tree| folder.index(repository, tree))?;
                Ok(index.held(&run.owner, &contents))
            })
        })
        .await
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
        let former = self.former_path(&reference);
        let content = Content::of(&desired, &object, ignored)?;
        let from = taken_from(request.desired).map(str::to_owned);
        let premise = Premise::of(request);
        let write = Write { object: reference.clone(), content, former: former.clone(), from, premise };
        self.gather(self.path(&reference), Change::Write(Box::new(write)));
        if let Some(former) = former {
            self.gather(former, Change::Leave);
        }
        let ObjectRef { group, version, kind, namespace, name } = reference;
        let kubernetes = KubernetesObject { group, version, kind, namespace, name, ..KubernetesObject::default() };
        Ok(Applied { live: object, kubernetes: Some(kubernetes) })
    }

    /// Whose the file is by then is seen by [`finish`](Runtime::finish).
    async fn delete(&self, prior: &StateResource) -> Result<Deleted, RuntimeError> {
        if let Some(object) = ObjectRef::of(&prior.attributes) {
            self.gather(self.path(&object), Change::Remove(Box::new(prior.clone())));
            if let Some(former) = self.former_path(&object) {
                self.gather(former, Change::Leave);
            }
        }
        Ok(Deleted::Gone)
    }

    /// Nothing lingers here: a file is gone with the commit.
    async fn wait_gone(&self, _: &KubernetesObject, _: &HeldReport<'_>) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// Whoever reconciles the repository knows how the object fares; here nobody does.
    async fn wait_healthy(&self, _: &Resource, report: &HealthReport<'_>) -> Result<Health, RuntimeError> {
        report(Health::Unknown, "written to Git; what reconciles the repository brings it about");
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

#[cfg(test)]
mod tests;
