//! Fleets: Kalypso's control planes, from Git and from stored objects to the files of GitOps repositories.
//!
//! Start at [`FleetService`], which has the fleet of each environment in memory. Everything in it can be had again: objects are in
//! the log, files in Git. Function-runners read Git, execute templates and commit; the rest follows from `stoa_fleet`.
//!
//! - `repositories`: the folders of control planes, with credentials; `reading`: from folders and stored objects to a fleet;
//! - `serving`: the objects of Git as stored objects, which clients read;
//! - `rendering`: templates on a function-runner; `proposals`: the branch and the pull request of an environment;
//!   `promotions`: the commit of a base repository; `waves`: the folders that stay as they are meanwhile;
//!   `edits`: writes of clients to objects of Git;
//! - `bundles`: a folder of a GitOps branch for clusters without a network;
//!   `schedulers`: calls of external schedulers, which decide about policies.
//!
//! Elsewhere: the controller `fleets` decides when; `stoa_kinds::scheduler` has the kinds.

mod bundles;
mod edits;
mod promotions;
mod proposals;
mod reading;
mod rendering;
mod repositories;
mod schedulers;
mod serving;
mod waves;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use parking_lot::Mutex;
use stoa_controller::blocking::on_own_thread;
use stoa_fleet::{
    Fleet,
    config::Replaced,
    render::{self, File, Tree},
    results::InvalidResults,
};
use stoa_kinds::scheduler::fleets::{ControlFleets, Edit};
use stoa_machinery::ApiError;
use stoa_pulls::{Pauses, Server};
use stoa_runs::Services;
use stoa_types::scheduler::{AssignmentPackageSpec, Environment, GitOpsRepo};
use tokio::{runtime::Handle, sync::Semaphore};

#[cfg(test)]
pub(crate) use self::schedulers::testing::{FakeScheduler, decisions};
use self::{edits::Edits, rendering::OnRunner};
pub(crate) use self::{
    proposals::{Proposal, ProposalState, digest},
    reading::{At, Failed, Reading, SourceKey},
    repositories::{FRESH, Looks, Refusal},
    schedulers::{Answer, Conversation, Question, Schedulers},
    serving::{Served, serve},
    waves::{Frozen, name_of},
};

/// The fleets of all environments. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct FleetService {
    services: Services,
    /// The fleets, by their namespaces.
    known: Arc<Mutex<HashMap<String, Arc<Known>>>>,
    looks: Looks,
    pauses: Pauses,
    edits: Edits,
    /// The permits of bundles.
    bundles: Arc<Semaphore>,
}

/// An environment in memory.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) reading: Reading,
    pub(crate) fleet: Fleet,
    /// The files, once they are rendered.
    pub(crate) tree: Option<Arc<Tree>>,
    /// The files that the projects which read them would reject, once they are rendered.
    pub(crate) invalid: Arc<InvalidResults>,
    /// The first assignments with values of specific ConfigMaps that more general ones replace, once they are rendered.
    pub(crate) replaced: Arc<[Replaced]>,
}

impl FleetService {
    pub(crate) fn new(services: Services) -> Self {
        let (looks, pauses, edits) = (Looks::default(), Pauses::default(), Edits::default());
        let bundles = Arc::new(Semaphore::new(bundles::BUNDLES));
        Self { services, known: Arc::default(), looks, pauses, edits, bundles }
    }

    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    /// Whether anything is known of a namespace.
    pub(crate) fn known(&self, namespace: &str) -> Option<Arc<Known>> {
        self.known.lock().get(namespace).cloned()
    }

    /// Has the next reading ask for the commits of all branches.
    pub(crate) fn expire_looks(&self) {
        self.looks.expire();
    }

    /// The Environment of a namespace: the first with its name that was created.
    pub(crate) async fn environment(&self, namespace: &str) -> Result<Option<Environment>, ApiError> {
        reading::environment(self, namespace).await
    }

    /// The server of a GitOps repository, for its issues.
    pub(crate) async fn issues(
        &self,
        namespace: &str,
        environment: Option<&Environment>,
        repo: &GitOpsRepo,
    ) -> Result<Server, Refusal> {
        let is_owned = repositories::is_owned_by_git(repo);
        let url = &repo.spec.repo;
        let remote = repositories::remote(&self.services, namespace, environment, url, is_owned).await?;
        proposals::server(&self.pauses, url, &remote.keys)
    }

    /// Keeps a fleet that was read, and is not rendered.
    pub(crate) fn keep(&self, namespace: &str, known: Arc<Known>) {
        self.known.lock().insert(namespace.to_owned(), known);
    }

    /// Removes all fleets from memory: another replica leads now, and knows newer ones.
    pub(crate) fn forget_all(&self) {
        self.known.lock().clear();
    }

    /// Removes a fleet from memory.
    pub(crate) fn forget(&self, namespace: &str) {
        self.known.lock().remove(namespace);
    }

    /// Reads the sources of an environment that changed, and schedules it anew.
    ///
    /// # Errors
    ///
    /// Those of the stored objects. A repository that cannot be read is in [`Reading::failed`].
    pub(crate) async fn read(&self, namespace: &str) -> Result<Arc<Known>, ApiError> {
        let before = self.known(namespace);
        let reading =
            reading::read(self, namespace, before.as_ref().map(|known| &known.reading), At::default()).await?;
        let known = on_own_thread(move || {
            let fleet = match &before {
                Some(before) => before.fleet.next(reading.plane.inputs.clone()),
                None => Fleet::new(reading.plane.inputs.clone()),
            };
            // The files are those of the fleet before, until it is rendered.
            Known { reading, fleet, tree: None, invalid: Arc::default(), replaced: Arc::default() }
        });
        Ok(Arc::new(known.await))
    }

    /// Renders the files of a fleet that was read: those that changed since the last rendering, or all.
    ///
    /// # Errors
    ///
    /// 503 where no function-runner executes templates. The fleet of before stays.
    pub(crate) async fn render(&self, namespace: &str, read: &Known) -> Result<Arc<Known>, ApiError> {
        let (before, read) = (self.known(namespace), read.clone());
        let renderer = self.renderer(namespace);
        let rendered = on_own_thread(move || rendering::render(before.as_deref(), read, &renderer)).await;
        let known = Arc::new(rendered.map_err(|error| ApiError::service_unavailable(error.to_string()))?);
        self.known.lock().insert(namespace.to_owned(), known.clone());
        Ok(known)
    }

    /// The fleet of an environment, for somebody who asks: as this replica knows it, or as it is at other commits.
    ///
    /// # Errors
    ///
    /// 503 where a repository is out of reach.
    pub(crate) async fn of(&self, namespace: &str, at: At<'_>) -> Result<Arc<Known>, ApiError> {
        let known = match (self.known(namespace), at.is_now()) {
            (Some(known), true) => known,
            // This replica does not lead, or it has just started.
            (None, true) => self.read(namespace).await?,
            (known, false) => {
                let before = known.as_ref().map(|known| &known.reading);
                let reading = reading::read(self, namespace, before, at).await?;
                let fleet = on_own_thread({
                    let inputs = reading.plane.inputs.clone();
                    move || match &known {
                        Some(known) => known.fleet.next(inputs),
                        None => Fleet::new(inputs),
                    }
                });
                Arc::new(Known {
                    fleet: fleet.await,
                    reading,
                    tree: None,
                    invalid: Arc::default(),
                    replaced: Arc::default(),
                })
            }
        };
        match known.reading.failed.values().next() {
            Some(failed) => Err(ApiError::service_unavailable(failed.message.clone())),
            None => Ok(known),
        }
    }

    /// All files of a fleet that [`of`](Self::of) gave.
    ///
    /// # Errors
    ///
    /// 503 where no function-runner executes templates.
    pub(crate) async fn tree(&self, namespace: &str, known: &Known) -> Result<Arc<Tree>, ApiError> {
        if let Some(tree) = &known.tree {
            return Ok(tree.clone());
        }
        let (before, read, renderer) = (self.known(namespace), known.clone(), self.renderer(namespace));
        let rendered = on_own_thread(move || rendering::render(before.as_deref(), read, &renderer)).await;
        let rendered = rendered.map_err(|error| ApiError::service_unavailable(error.to_string()))?;
        rendered.tree.ok_or_else(|| ApiError::internal("a fleet that was rendered has files"))
    }

    fn renderer(&self, namespace: &str) -> OnRunner {
        OnRunner {
            runner: self.services.runner.clone(),
            runtime: Handle::current(),
            organization: namespace.to_owned(),
        }
    }

    /// Renders some assignments of a fleet.
    pub(crate) async fn render_some(
        &self,
        namespace: &str,
        fleet: &Fleet,
        assignments: Vec<(String, String)>,
    ) -> Result<Vec<render::Rendered>, ApiError> {
        let (fleet, renderer) = (fleet.clone(), self.renderer(namespace));
        let rendered = on_own_thread(move || render::render_some(&fleet, &assignments, &renderer)).await;
        rendered.map_err(|error| ApiError::service_unavailable(error.to_string()))
    }
}

/// The package of an assignment, from its files.
fn package(files: &BTreeMap<String, File>) -> AssignmentPackageSpec {
    let mut package = AssignmentPackageSpec::default();
    for (path, file) in files {
        let name = path.rsplit('/').next().unwrap_or(path);
        match name {
            "reconciler.yaml" => package.reconciler_manifests = documents(&file.content),
            "namespace.yaml" => package.namespace_manifests = documents(&file.content),
            "platform-config.sh" => {
                package.config_manifests = vec![file.content.clone()];
                "sh".clone_into(&mut package.config_manifests_content_type);
            }
            _ => package.config_manifests = documents(&file.content),
        }
    }
    package
}

/// The documents of a file, which lines `---` separate.
fn documents(content: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in content.split_inclusive('\n') {
        match documents.last_mut() {
            Some(last) if line.trim_end() != "---" => last.push_str(line),
            _ => documents.push(String::new()),
        }
    }
    documents.retain(|document| !document.trim().is_empty());
    documents
}

#[async_trait]
impl ControlFleets for FleetService {
    async fn packages(
        &self,
        namespace: &str,
        assignments: &[(String, String)],
    ) -> Result<Vec<Option<AssignmentPackageSpec>>, ApiError> {
        let known = self.of(namespace, At::default()).await?;
        let rendered = self.render_some(namespace, &known.fleet, assignments.to_vec()).await?;
        Ok(rendered.into_iter().map(|it| it?.ok().map(|files| package(&files))).collect())
    }

    async fn propose(&self, edit: Edit) -> Result<String, String> {
        self.propose_edit(&edit).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_has_one_manifest_for_each_document() {
        assert_eq!(documents("---\na: 1\n---\nb: 2\n"), ["a: 1\n", "b: 2\n"]);
        assert_eq!(documents("a: '---'\n"), ["a: '---'\n"]);
        assert_eq!(documents(""), [] as [&str; 0]);
        let file = |content: &str| File { content: content.to_owned(), provenance: render::Provenance::default() };
        let files = [
            ("drone/web/reconciler.yaml".to_owned(), file("a: 1\n---\nb: 2\n")),
            ("drone/web/platform-config.sh".to_owned(), file("export A=1\n---\n")),
        ];
        let package = package(&files.into());
        assert_eq!(package.reconciler_manifests.len(), 2);
        assert_eq!(package.config_manifests, ["export A=1\n---\n"]);
        assert_eq!(package.config_manifests_content_type, "sh");
    }
}
