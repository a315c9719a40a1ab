//! From repositories and stored objects to a control plane.
//!
//! A folder is fetched when its commit or its address has changed. A repository that cannot be read keeps its last files, so that
//! nothing is deleted while a Git server is away.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_controller::{blocking::on_own_thread, object::Kind};
use stoa_fleet::{ControlPlane, Files, Sources, schedule::Decision};
use stoa_machinery::ApiError;
use stoa_types::{
    names, reason,
    scheduler::{
        BaseRepo, ClusterType, ConfigSchema, DeploymentTarget, Environment, GitOpsRepo, Repository, SchedulingDecision,
        SchedulingPolicy, Template, Workload, WorkloadRegistration,
    },
};

use super::{
    FleetService,
    repositories::{self, Refusal, Remote, is_owned_by_git},
};

/// The most repositories of an environment. A base repository may name others, which may name others without end.
const MOST: usize = 5_000;

/// The source of an environment's branch, as `stoa_fleet` names it.
pub(super) const ENVIRONMENT: &str = "environment";

/// A repository of an environment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceKey {
    Environment,
    Base(String),
    Registration(String),
}

impl SourceKey {
    /// The source as `stoa_fleet` names it.
    fn of_origin(source: &str) -> Option<Self> {
        let (kind, name) = source.split_once(' ')?;
        match kind {
            ENVIRONMENT => Some(Self::Environment),
            "BaseRepo" => Some(Self::Base(name.to_owned())),
            "WorkloadRegistration" => Some(Self::Registration(name.to_owned())),
            _ => None,
        }
    }

    /// The repository of this source in an environment, with the credentials for it.
    pub(super) async fn remote(
        &self,
        service: &FleetService,
        (namespace, environment): (&str, Option<&Environment>),
        repo: &str,
        is_owned_by_git: bool,
    ) -> Result<Remote, Refusal> {
        let services = &service.services;
        match (self, environment) {
            // Its own credentials are in its own namespace.
            (Self::Environment, Some(own)) => {
                let place = own.namespace().unwrap_or_default();
                let remote = repositories::remote(services, &place, None, repo, false).await?;
                let source = stoa_proto::Source { organization: namespace.to_owned(), ..remote.source };
                Ok(Remote { source, ..remote })
            }
            _ => repositories::remote(services, namespace, environment, repo, is_owned_by_git).await,
        }
    }

    /// Whether a problem is of this source.
    pub(crate) fn has(&self, problem: &stoa_fleet::Problem) -> bool {
        Self::of_origin(&problem.origin.source).as_ref() == Some(self)
    }
}

/// A folder that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) of: Repository,
    pub(crate) commit: String,
}

/// Why a repository cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl From<Refusal> for Failed {
    fn from((reason, message): Refusal) -> Self {
        Self { reason, message }
    }
}

/// The control plane of an environment, and what it was read from.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// The Environment with the name of the namespace, if there is one.
    pub(crate) environment: Option<Environment>,
    pub(crate) plane: Arc<ControlPlane>,
    pub(super) sources: Arc<Sources>,
    /// The folders, with their commits.
    pub(crate) folders: BTreeMap<SourceKey, Stored>,
    /// The repositories that cannot be read now. Those in `folders` keep their last files.
    pub(crate) failed: BTreeMap<SourceKey, Failed>,
}

impl Reading {
    /// Whether the branch of the environment was never read, so that nothing is known of its objects.
    pub(crate) fn is_unread(&self) -> bool {
        self.environment.is_some() && !self.folders.contains_key(&SourceKey::Environment)
    }

    /// Whether another reading has the same files of the same repositories.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.folders == other.folders && self.sources == other.sources
    }

    /// Whether the namespace has no environment and no object of a fleet.
    pub(crate) fn is_empty(&self) -> bool {
        self.environment.is_none() && self.sources.stored.is_empty()
    }

    /// A file as people find it.
    pub(crate) fn file(&self, origin: &stoa_fleet::Origin) -> Option<String> {
        let Written { folder: Stored { of, .. }, path, .. } = self.written(origin)?;
        Some(format!("{path} in branch {} of {}", of.branch, of.repo))
    }

    /// Where an object of Git is written.
    pub(super) fn written(&self, origin: &stoa_fleet::Origin) -> Option<Written<'_>> {
        let key = SourceKey::of_origin(&origin.source)?;
        let folder = self.folders.get(&key)?;
        Some(Written { path: path_of(folder, origin), key, folder })
    }

    /// The files of a source.
    pub(super) fn files(&self, key: &SourceKey) -> Option<&Files> {
        match key {
            SourceKey::Environment => Some(&self.sources.branch),
            SourceKey::Base(name) => self.sources.bases.get(name),
            SourceKey::Registration(name) => self.sources.workloads.get(name),
        }
    }

    /// Whether Git owns the object that names a source.
    pub(super) fn is_owned_by_git(&self, key: &SourceKey, namespace: &str) -> bool {
        let origin = match key {
            SourceKey::Environment => None,
            SourceKey::Base(name) => self.plane.base_repos.get(name).map(|it| &it.origin),
            SourceKey::Registration(name) => self.plane.registrations.get(name).map(|it| &it.origin),
        };
        origin.is_some_and(|origin| origin.source != stored_source(namespace))
    }
}

/// Where an object of Git is written.
pub(super) struct Written<'r> {
    /// The source that has it.
    pub(super) key: SourceKey,
    /// The folder of that source.
    pub(super) folder: &'r Stored,
    /// The path of the file in the repository.
    pub(super) path: String,
}

/// The path of a file in the repository of a folder.
pub(super) fn path_of(folder: &Stored, origin: &stoa_fleet::Origin) -> String {
    let root = stoa_fleet::folder(&folder.of.path).unwrap_or_default();
    if root.is_empty() { origin.file.clone() } else { format!("{root}/{}", origin.file) }
}

impl fmt::Display for SourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => f.write_str("Environment"),
            Self::Base(name) => write!(f, "BaseRepo {name}"),
            Self::Registration(name) => write!(f, "WorkloadRegistration {name}"),
        }
    }
}

/// Commits of a control plane that somebody asks about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct At<'a> {
    /// A branch or a commit of the environment.
    pub(crate) revision: Option<&'a str>,
    /// A BaseRepo, with its commit.
    pub(crate) base: Option<(&'a str, &'a str)>,
}

impl At<'_> {
    pub(super) fn is_now(self) -> bool {
        self.revision.is_none() && self.base.is_none()
    }
}

/// Reads all sources of an environment.
///
/// `at` has other commits than those that the objects name.
pub(super) async fn read(
    service: &FleetService,
    namespace: &str,
    before: Option<&Reading>,
    at: At<'_>,
) -> Result<Reading, ApiError> {
    let mut environment = environment(service, namespace).await?;
    let mut commit = "";
    match (at.revision, &mut environment) {
        (Some(revision), Some(_)) if is_commit(revision) => commit = revision,
        (Some(revision), Some(environment)) => revision.clone_into(&mut environment.spec.control_plane.branch),
        (_, _) => {}
    }
    let stored = stored(service, namespace).await?;
    let decisions = decisions(service, namespace).await?;
    let sources = Sources { environment: namespace.to_owned(), stored, decisions, ..Sources::default() };
    let mut reader =
        Reader { service, namespace, environment, before, sources, folders: BTreeMap::new(), failed: BTreeMap::new() };
    if let Some(environment) = reader.environment.clone() {
        let of = environment.spec.control_plane;
        if let Some(files) = reader.files(SourceKey::Environment, of, commit, false).await {
            reader.sources.branch = files;
        }
    }
    let mut tried = BTreeSet::new();
    loop {
        let plane = reader.plane().await;
        let mut wanted = Vec::new();
        for (name, base) in &plane.base_repos {
            let stoa_fleet::objects::Repository { repo, branch, path } = base.spec.repository.clone();
            let is_owned = base.origin.source != stored_source(namespace);
            let of = Repository { repo, branch, path };
            let commit = match at.base {
                Some((of, commit)) if of == name => commit.to_owned(),
                _ => base.spec.commit.clone(),
            };
            wanted.push((SourceKey::Base(name.clone()), of, commit, is_owned));
        }
        for (name, registration) in &plane.registrations {
            let stoa_fleet::objects::Repository { repo, branch, path } = registration.spec.workload.clone();
            let is_owned = registration.origin.source != stored_source(namespace);
            let of = Repository { repo, branch, path };
            wanted.push((SourceKey::Registration(name.clone()), of, String::new(), is_owned));
        }
        wanted.retain(|(key, ..)| !tried.contains(key));
        if wanted.is_empty() {
            let Reader { environment, sources, folders, failed, .. } = reader;
            return Ok(Reading { environment, plane, sources: Arc::new(sources), folders, failed });
        }
        for (key, of, commit, is_owned) in wanted {
            tried.insert(key.clone());
            if tried.len() > MOST {
                let message = format!(
                    "environment {namespace} names more than {MOST} repositories; remove BaseRepos from its files"
                );
                reader.failed.insert(key, Failed { reason: reason::INVALID_FILES, message });
                continue;
            }
            let Some(files) = reader.files(key.clone(), of, &commit, is_owned).await else { continue };
            match key {
                SourceKey::Base(name) => drop(reader.sources.bases.insert(name, files)),
                SourceKey::Registration(name) => drop(reader.sources.workloads.insert(name, files)),
                SourceKey::Environment => {}
            }
        }
    }
}

fn is_commit(revision: &str) -> bool {
    matches!(revision.len(), 40 | 64) && revision.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn stored_source(namespace: &str) -> String {
    format!("namespace {namespace}")
}

/// The Environment of a namespace: the first with its name that was created.
pub(super) async fn environment(service: &FleetService, namespace: &str) -> Result<Option<Environment>, ApiError> {
    let all = service.services.lookup.api::<Environment>()?;
    let options = stoa_machinery::registry::ListOptions {
        field_selector: Some(format!("metadata.name={namespace}")),
        ..Default::default()
    };
    let mut found = all.list_with(None, &options).await?;
    found.retain(|environment| environment.metadata.deletion_timestamp.is_none());
    found.sort_by_key(|it| (it.metadata.creation_timestamp.clone().map(|time| time.0), it.namespace()));
    Ok(found.into_iter().next())
}

/// The objects of a namespace that Git does not own, each as a file.
async fn stored(service: &FleetService, namespace: &str) -> Result<Files, ApiError> {
    let mut files = Files::new();
    add::<BaseRepo>(service, namespace, &mut files).await?;
    add::<WorkloadRegistration>(service, namespace, &mut files).await?;
    add::<Workload>(service, namespace, &mut files).await?;
    add::<DeploymentTarget>(service, namespace, &mut files).await?;
    add::<ClusterType>(service, namespace, &mut files).await?;
    add::<SchedulingPolicy>(service, namespace, &mut files).await?;
    add::<ConfigSchema>(service, namespace, &mut files).await?;
    add::<Template>(service, namespace, &mut files).await?;
    add::<GitOpsRepo>(service, namespace, &mut files).await?;
    Ok(files)
}

/// The last decisions of external schedulers, which are in the statuses of policies.
async fn decisions(service: &FleetService, namespace: &str) -> Result<BTreeMap<String, Arc<Vec<Decision>>>, ApiError> {
    let policies = service.services.lookup.api::<SchedulingPolicy>()?.list(Some(namespace), "").await?;
    let decided = policies.into_iter().filter_map(|policy| {
        let decisions = policy.status.as_ref()?.decisions.as_ref()?;
        let decision = |it: &SchedulingDecision| Decision {
            cluster_types: it.cluster_types.iter().cloned().collect(),
            deployment_targets: it.deployment_targets.as_ref().map(|names| names.iter().cloned().collect()),
        };
        Some((policy.name_any(), Arc::new(decisions.iter().map(decision).collect())))
    });
    Ok(decided.collect())
}

async fn add<K: Kind>(service: &FleetService, namespace: &str, files: &mut Files) -> Result<(), ApiError> {
    for object in service.services.lookup.api::<K>()?.list(Some(namespace), "").await? {
        if is_owned_by_git(&object) {
            continue;
        }
        let mut value = serde_json::to_value(&object)
            .map_err(|error| ApiError::internal(format_args!("the object does not encode: {error}")))?;
        let (kind, name) = (names::kind::<K>(), object.name_any());
        value["apiVersion"] = stoa_fleet::objects::API_VERSION.into();
        value["kind"] = kind.into();
        if let Some(value) = value.as_object_mut() {
            value.remove("status");
        }
        // JSON is YAML.
        files.insert(format!("{kind}/{name}.yaml"), Bytes::from(value.to_string()));
    }
    Ok(())
}

struct Reader<'r> {
    service: &'r FleetService,
    namespace: &'r str,
    environment: Option<Environment>,
    before: Option<&'r Reading>,
    sources: Sources,
    folders: BTreeMap<SourceKey, Stored>,
    failed: BTreeMap<SourceKey, Failed>,
}

impl Reader<'_> {
    async fn plane(&self) -> Arc<ControlPlane> {
        let (sources, before) = (self.sources.clone(), self.before.map(|before| before.plane.clone()));
        on_own_thread(move || Arc::new(ControlPlane::read(&sources, before.as_deref()))).await
    }

    /// The files of a folder now, or else those of before.
    async fn files(&mut self, key: SourceKey, of: Repository, commit: &str, is_owned: bool) -> Option<Files> {
        match self.fetch(&key, &of, commit, is_owned).await {
            Ok((commit, files)) => {
                self.folders.insert(key, Stored { of, commit });
                Some(files)
            }
            Err(failed) => {
                let kept = self.kept(&key).map(|(stored, files)| (stored.clone(), files.clone()));
                self.failed.insert(key.clone(), failed.into());
                let (stored, files) = kept?;
                self.folders.insert(key, stored);
                Some(files)
            }
        }
    }

    /// The folder as it was read before.
    fn kept(&self, key: &SourceKey) -> Option<(&Stored, &Files)> {
        let before = self.before?;
        Some((before.folders.get(key)?, before.files(key)?))
    }

    async fn fetch(
        &self,
        key: &SourceKey,
        of: &Repository,
        commit: &str,
        is_owned: bool,
    ) -> Result<(String, Files), Refusal> {
        let FleetService { services, looks, .. } = self.service;
        let of_environment = (self.namespace, self.environment.as_ref());
        let remote = key.remote(self.service, of_environment, &of.repo, is_owned).await?;
        let commit = match commit {
            "" => repositories::look(services, looks, &remote.source, &of.branch).await?,
            commit => commit.to_owned(),
        };
        if let Some((stored, files)) = self.kept(key)
            && stored.of == *of
            && stored.commit == commit
        {
            return Ok((commit, files.clone()));
        }
        let files = repositories::files(services, &remote.source, &commit, of).await?;
        if matches!(key, SourceKey::Environment)
            && files.is_empty()
            && self.kept(key).is_some_and(|(_, it)| !it.is_empty())
        {
            // A folder that has become empty is a mistake more often than an end, and would delete everything.
            let message = format!(
                "the folder {:?} of branch {} has no objects any more; its last files stay",
                of.path, of.branch
            );
            return Err((reason::INVALID_FILES, message));
        }
        Ok((commit, files))
    }
}
