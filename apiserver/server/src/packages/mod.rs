//! Packages: the content of package revisions as documents, their refs in Git, and their artifacts in registries.
//!
//! Start at [`PackageService`], which strategies reach as [`PackageRepositories`]. A save writes a document and names its digest in
//! the object, so it is durable in the log before Git has it. A change of a published revision answers when Git has it.
//!
//! - `tasks`: the content of a new revision; `render`: the functions of a package, and single ones, which `functions` converts;
//! - `derived`: fields that follow from the Kptfile;
//! - `contents`: the documents; `refs` and `registries`: the addresses of revisions in Git and in registries; `commits` and
//!   `artifacts`: the pushes to them;
//! - `claims`: one writer per revision, and one publication per package, at a time;
//! - `agent`, `revise`, `objects`: writes of controllers, the files for their upgrades, and objects for their injections;
//! - `upstreams`: the published revisions by which downstream packages name them.
//!
//! Elsewhere: the controllers `package_repositories`, `package_pushes` and `package_documents`.

mod agent;
mod artifacts;
mod claims;
mod commits;
mod contents;
mod derived;
mod functions;
mod objects;
mod refs;
mod registries;
mod render;
mod revise;
mod tasks;
mod upstreams;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kube::ResourceExt as _;
use stoa_controller::{object::ObjectKey, queue};
use stoa_kinds::{
    cluster::is_emptied,
    errors,
    package_repositories::{Content, PackageRepositories},
};
use stoa_machinery::{ApiError, RequestContext, status::FieldError};
use stoa_runs::{Services, StepError, runner};
use stoa_types::{
    porch::{
        EvalTask, LATEST_REVISION, Lifecycle, PackageContent, PackageRevision, PackageRevisionResources,
        PackageRevisionSpec,
    },
    porchconfig::Repository,
};

pub(crate) use self::{
    agent::{Agent, owner_reference},
    claims::Claims,
    commits::{Pushed, lock_of},
    derived::{of_kptfile, set_condition},
    functions::function,
    objects::objects,
    refs::{Address, Branches, RevisionInGit, registry_of},
    registries::{lock_in_registry, path as path_in_registry},
    revise::{UpstreamState, upstream_state},
    upstreams::{Upstreams, upstream_lock},
};
use self::{
    artifacts::RevisionInRegistry,
    commits::Publication,
    contents::{Contents, Document},
    render::{Renders, RepositoryFunctions, Unevaluated},
    tasks::Made,
};

/// How many numbers a publication tries that other revisions have in Git.
const NUMBERS: i64 = 8;

/// Stores the content of package revisions and pushes them to Git. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct PackageService {
    services: Services,
    contents: Arc<Contents>,
    claims: Arc<Claims>,
    branches: Arc<Branches>,
    renders: Arc<Renders>,
    /// How long a save waits for its functions.
    patience: Duration,
}

impl PackageService {
    pub(crate) fn new(services: Services) -> Self {
        let contents = Arc::new(Contents::new(services.backends.clone(), services.runner.clone()));
        Self {
            services,
            contents,
            claims: Arc::default(),
            branches: Arc::default(),
            renders: Arc::default(),
            patience: render::PATIENCE,
        }
    }

    /// The services of the server.
    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    /// The writers of revisions.
    pub(crate) fn claims(&self) -> &Arc<Claims> {
        &self.claims
    }

    /// The repository of a revision.
    ///
    /// # Errors
    ///
    /// 404 when it is not registered.
    async fn repository(&self, revision: &PackageRevision) -> Result<Repository, ApiError> {
        let namespace = revision.namespace().unwrap_or_default();
        self.services.lookup.api::<Repository>()?.get(&namespace, &revision.spec.repository_name).await
    }

    /// A revision and its address in Git.
    ///
    /// # Errors
    ///
    /// As [`refs::source`].
    pub(crate) async fn in_git(&self, revision: &PackageRevision) -> Result<RevisionInGit, ApiError> {
        let repository = self.repository(revision).await?;
        self.in_git_of(&repository, revision).await
    }

    async fn in_git_of(&self, repository: &Repository, revision: &PackageRevision) -> Result<RevisionInGit, ApiError> {
        let mut in_git = RevisionInGit::new(&self.services, repository, revision).await?;
        self.branches.correct(&queue::key_of(repository), &mut in_git);
        Ok(in_git)
    }

    async fn document(&self, revision: &PackageRevision) -> Result<Arc<Document>, ApiError> {
        let digest = digest(revision);
        if !digest.is_empty() {
            return self.contents.get(&scope(revision), digest).await;
        }
        let Some(commit) = commit(revision) else { return Ok(Arc::default()) };
        let repository = self.repository(revision).await?;
        let (source, path) = refs::folder(&self.services, &repository, revision).await?;
        self.contents.of_commit(&source, commit, &path).await
    }

    /// Renders a document, stores it as the content of a revision, and sets the fields that follow from it. A render that takes
    /// too long continues in the background.
    async fn render_and_store(
        &self,
        repository: &Repository,
        revision: &mut PackageRevision,
        document: Document,
    ) -> Result<(), ApiError> {
        let functions = RepositoryFunctions::of(repository);
        let (services, unrendered) = (self.services.clone(), document.clone());
        let mut rendering = tokio::spawn(async move { render::render(&services, &functions, document).await });
        let rendered = tokio::time::timeout(self.patience, &mut rendering).await;
        let is_rendering = rendered.is_err();
        let document = match rendered {
            Ok(rendered) => rendered.map_err(|error| ApiError::internal(format_args!("the render failed: {error}")))?,
            Err(_) => unrendered,
        };
        let (content, document) = self.put(revision, document).await?;
        if is_rendering {
            self.renders.keep(format!("{}/{}", scope(revision), content.digest), rendering);
        }
        derived::set(revision, &document, is_rendering);
        revision.status.get_or_insert_default().content = Some(content);
        Ok(())
    }

    /// Stores a document; returns its name.
    async fn put(
        &self,
        revision: &PackageRevision,
        document: Document,
    ) -> Result<(PackageContent, Arc<Document>), ApiError> {
        let files = i64::try_from(document.resources.len() + document.binary.len()).unwrap_or(i64::MAX);
        let (digest, document) = self.contents.put(&scope(revision), document).await?;
        Ok((PackageContent { digest, files: Some(files) }, document))
    }

    /// Waits for the end of a render that lasts longer than its request, and writes the outcome. After a restart, the render
    /// begins anew.
    ///
    /// # Errors
    ///
    /// 503 where documents or the repository are out of reach.
    pub(crate) async fn finish_render(&self, revision: &PackageRevision) -> Result<(), ApiError> {
        let before = digest(revision);
        let running = self.renders.take(&format!("{}/{before}", scope(revision)));
        let finished = match running {
            Some(rendering) => rendering.await.ok(),
            None => None,
        };
        let document = match finished {
            Some(document) => document,
            None => {
                let functions = RepositoryFunctions::of(&self.repository(revision).await?);
                let document = (*self.document(revision).await?).clone();
                render::render(&self.services, &functions, document).await
            }
        };
        let (content, document) = self.put(revision, document).await?;
        let (namespace, name) = queue::key_of(revision);
        let context = RequestContext::internal("package-renders").with_status();
        let revisions = self.services.lookup.api::<PackageRevision>()?.with_context(context);
        let written = revisions.update_with(&namespace, &name, |object: &mut PackageRevision| {
            // A later save has a render of its own.
            let is_same = object.metadata.uid == revision.metadata.uid && digest(object) == before;
            if is_same && !object.spec.lifecycle.is_published() {
                derived::set(object, &document, false);
                object.status.get_or_insert_default().content = Some(content.clone());
            }
        });
        queue::unless_gone(written.await).map(drop)
    }

    /// Removes the documents of a revision that was deleted.
    pub(crate) async fn forget(&self, namespace: &str, uid: &str) {
        self.contents.forget(&scope_of(namespace, uid)).await;
    }

    /// Removes one document of a scope.
    pub(crate) async fn forget_document(&self, scope: &str, digest: &str) {
        self.contents.forget_document(scope, digest).await;
    }

    /// The folder of the documents.
    pub(crate) fn documents(&self) -> std::path::PathBuf {
        self.services.backends.own_folder(contents::FOLDER)
    }

    /// Pushes a draft or proposal.
    ///
    /// # Errors
    ///
    /// 409 where Git has another commit, 503 where it is out of reach.
    pub(crate) async fn push_draft(&self, revision: &PackageRevision) -> Result<Pushed, ApiError> {
        let in_git = self.in_git(revision).await?;
        let document = self.document(revision).await?;
        commits::push_draft(&self.services.runner, &in_git, revision, &document).await
    }

    /// Removes a draft or proposal from Git whose object was deleted during its push. The next synchronization would create the
    /// object again. Drafts of a Repository that was unregistered stay, and so do those of a namespace that is deleted.
    ///
    /// # Errors
    ///
    /// As [`push_draft`](Self::push_draft).
    pub(crate) async fn withdraw(&self, revision: &PackageRevision, pushed: &Pushed) -> Result<(), ApiError> {
        let namespace = revision.namespace().unwrap_or_default();
        let repositories = self.services.lookup.api::<Repository>()?;
        let Some(repository) = repositories.get_opt(&namespace, &revision.spec.repository_name).await? else {
            return Ok(());
        };
        if repository.metadata.deletion_timestamp.is_some() || is_emptied(&*self.services.cluster, &namespace).await? {
            return Ok(());
        }
        let in_git = RevisionInGit::new(&self.services, &repository, revision).await?;
        let mut deleted = revision.clone();
        pushed.record(&in_git, &mut deleted);
        commits::remove(&self.services.runner, &in_git, &deleted).await
    }
}

/// The digest of a revision's content; empty where only Git has it.
pub(crate) fn digest(revision: &PackageRevision) -> &str {
    let content = revision.status.as_ref().and_then(|status| status.content.as_ref());
    content.map_or("", |content| content.digest.as_str())
}

/// The commit that Git has of a revision.
fn commit(revision: &PackageRevision) -> Option<&str> {
    let git = revision.status.as_ref()?.git.as_ref()?;
    Some(git.commit.as_str()).filter(|commit| !commit.is_empty())
}

/// The key of the claim for the numbers of a package. No object has a name with a slash.
fn package_key(revision: &PackageRevision) -> ObjectKey {
    let PackageRevisionSpec { repository_name, package_name, .. } = &revision.spec;
    (revision.namespace().unwrap_or_default(), format!("{repository_name}/{package_name}"))
}

/// The scope of the documents of a revision.
fn scope(revision: &PackageRevision) -> String {
    scope_of(&revision.namespace().unwrap_or_default(), &revision.uid().unwrap_or_default())
}

fn scope_of(namespace: &str, uid: &str) -> String {
    format!("{namespace}/{uid}")
}

/// 422 for files that are no package.
fn invalid(revision: &PackageRevision, field: &str, why: impl std::fmt::Display) -> ApiError {
    errors::invalid::<PackageRevision>(&revision.name_any(), &[FieldError::forbidden(field, why)])
}

/// 422 for a save of files that are no package.
fn invalid_files(revision: &PackageRevision, why: impl std::fmt::Display) -> ApiError {
    let error = FieldError::forbidden("spec.resources", why);
    errors::invalid::<PackageRevisionResources>(&revision.name_any(), &[error])
}

/// The answer of the server for a call of a function-runner that failed.
pub(crate) fn unanswered(status: &tonic::Status) -> ApiError {
    match runner::halt(status, stoa_types::reason::SOURCE_UNREACHABLE) {
        StepError::Failed { message, .. } | StepError::Refused { message, .. } => {
            ApiError::new(422, "Invalid", message)
        }
        StepError::SourceUnreachable(message) | StepError::Retry(message) => {
            ApiError::service_unavailable(message).with_retry_after(2)
        }
        other => ApiError::internal(other.into_reason(stoa_types::reason::SOURCE_UNREACHABLE).1),
    }
}

#[async_trait]
impl PackageRepositories for PackageService {
    async fn create(&self, context: &RequestContext, revision: &mut PackageRevision) -> Result<(), ApiError> {
        let repository = self.repository(revision).await?;
        if let Some(oci) = registry_of(&repository) {
            artifacts::path(&self.services, (&repository, oci), revision).await?;
        }
        revision.status = Some(stoa_types::porch::PackageRevisionStatus {
            deployment: repository.spec.deployment,
            ..Default::default()
        });
        let Made { document, conflicts } = tasks::make(self, context, &repository, revision).await?;
        for conflict in conflicts {
            context.warn(conflict);
        }
        self.render_and_store(&repository, revision, document).await
    }

    async fn content(&self, revision: &PackageRevision) -> Result<Content, ApiError> {
        let document = self.document(revision).await?;
        let Document { resources, render_status, annotations, managed_fields, .. } = &*document;
        Ok(Content {
            resources: resources.clone(),
            render_status: render_status.clone(),
            annotations: annotations.clone(),
            managed_fields: managed_fields.clone(),
        })
    }

    async fn save(&self, _: &RequestContext, content: Content, revision: &mut PackageRevision) -> Result<(), ApiError> {
        let before = self.document(revision).await?;
        let document = before.with(content);
        if let Err(error) = document.tree().and_then(|tree| tree.check(&stoa_packages::Limits::default())) {
            return Err(invalid_files(revision, error));
        }
        if !document.resources.contains_key(stoa_packages::KPTFILE) {
            return Err(invalid_files(revision, "the package has no Kptfile; send all files of the package"));
        }
        let repository = self.repository(revision).await?;
        self.render_and_store(&repository, revision, document).await
    }

    async fn evaluate(
        &self,
        _: &RequestContext,
        task: &EvalTask,
        revision: &mut PackageRevision,
    ) -> Result<(), ApiError> {
        let repository = self.repository(revision).await?;
        let mut document = (*self.document(revision).await?).clone();
        let organization = revision.namespace().unwrap_or_default();
        let evaluated = render::evaluate(&self.services, &organization, &document, functions::of_task(task));
        // The render of the result takes time, too.
        let patience = self.patience / 2;
        let tree = match tokio::time::timeout(patience, evaluated).await {
            Ok(Ok(tree)) => tree,
            Ok(Err(Unevaluated::Failed(why))) => return Err(invalid(revision, "spec.tasks", why)),
            Ok(Err(Unevaluated::Unavailable(why))) => {
                return Err(ApiError::service_unavailable(why).with_retry_after(2));
            }
            Err(_) => {
                let seconds = patience.as_secs();
                let why = format!(
                    "function {} took longer than {seconds} s; retry, or add it to the pipeline of the Kptfile, which has more time",
                    task.image
                );
                return Err(ApiError::timeout(why, 10));
            }
        };
        document.set(&tree);
        document.render_status = serde_json::Value::Null;
        self.render_and_store(&repository, revision, document).await
    }

    async fn change_lifecycle(
        &self,
        context: &RequestContext,
        new: &mut PackageRevision,
        old: &PackageRevision,
    ) -> Result<(), ApiError> {
        let claim = self.claims.wait(&queue::key_of(old)).await?;
        let key = queue::key_of(old);
        let now = self.services.lookup.api::<PackageRevision>()?.get(&key.0, &key.1).await?;
        if now.metadata.resource_version != old.metadata.resource_version {
            return Err(errors::conflict::<PackageRevision>(
                &old.name_any(),
                "the object has been modified; please apply your changes to the latest version and try again",
            ));
        }
        let destination = self.destination(old).await?;
        let pushed = match (old.spec.lifecycle.is_published(), new.spec.lifecycle) {
            (false, _) => {
                self.check_guardrails(old).await?;
                let _numbering = self.claims.wait(&package_key(old)).await?;
                // Another publication of the repository may have moved the branch meanwhile.
                let destination = self.destination(old).await?;
                let (number, pushed) = self.publish(&destination, old, &context.user.name).await?;
                if let Destination::Git(in_git) = &destination {
                    let repository = (key.0.clone(), old.spec.repository_name.clone());
                    self.branches.moved(repository, in_git, &pushed.git.commit);
                }
                new.spec.revision = number;
                let status = new.status.get_or_insert_default();
                status.published_by.clone_from(&context.user.name);
                let now = jiff::Timestamp::from_second(self.services.now().as_second()).unwrap_or_default();
                status.published_at = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
                new.labels_mut().insert(LATEST_REVISION.to_owned(), "true".to_owned());
                pushed
            }
            (true, lifecycle) => {
                self.mark_deletion(&destination, old, lifecycle == Lifecycle::DeletionProposed).await?
            }
        };
        match &destination {
            Destination::Git(in_git) => pushed.record(in_git, new),
            Destination::Registry(in_registry) => pushed.record_with(in_registry.lock(&pushed.git), new),
        }
        claim.linger();
        Ok(())
    }

    async fn remove(&self, _: &RequestContext, revision: &PackageRevision) -> Result<(), ApiError> {
        let claim = self.claims.wait(&queue::key_of(revision)).await?;
        let is_elsewhere = revision.status.as_ref().is_some_and(|status| status.git.is_some());
        if is_elsewhere {
            let runner = &self.services.runner;
            match self.destination(revision).await {
                Ok(Destination::Git(in_git)) => commits::remove(runner, &in_git, revision).await?,
                Ok(Destination::Registry(in_registry)) => artifacts::remove(runner, &in_registry, revision).await?,
                // The repository is unregistered, which removes nothing from Git or a registry.
                Err(error) if error.code() == 404 => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        claim.linger();
        Ok(())
    }
}

/// The repository of published revisions.
#[derive(Debug)]
enum Destination {
    Git(RevisionInGit),
    Registry(RevisionInRegistry),
}

impl PackageService {
    /// The repository of a published revision.
    async fn destination(&self, revision: &PackageRevision) -> Result<Destination, ApiError> {
        let repository = self.repository(revision).await?;
        match registry_of(&repository) {
            Some(oci) => {
                let found = RevisionInRegistry::new(&self.services, (&repository, oci), revision).await;
                found.map(Destination::Registry)
            }
            None => self.in_git_of(&repository, revision).await.map(Destination::Git),
        }
    }

    /// Proposes the deletion of a published revision, or withdraws the proposal. A registry has no mark of it.
    async fn mark_deletion(
        &self,
        destination: &Destination,
        revision: &PackageRevision,
        is_proposed: bool,
    ) -> Result<Pushed, ApiError> {
        match destination {
            Destination::Git(in_git) => {
                commits::mark_deletion(&self.services.runner, in_git, revision, is_proposed).await
            }
            Destination::Registry(_) => {
                let git = revision.status.as_ref().and_then(|status| status.git.clone()).unwrap_or_default();
                Ok(Pushed { git })
            }
        }
    }

    /// Checks a revision by the functions of its repository.
    async fn check_guardrails(&self, revision: &PackageRevision) -> Result<(), ApiError> {
        let functions = RepositoryFunctions::of(&self.repository(revision).await?);
        let checked = render::check(&self.services, &functions, &*self.document(revision).await?).await;
        checked.map_err(|why| invalid(revision, "spec.lifecycle", why))
    }

    /// Publishes a revision under the next number that no other revision has there; returns the number.
    async fn publish(
        &self,
        destination: &Destination,
        revision: &PackageRevision,
        author: &str,
    ) -> Result<(i64, Pushed), ApiError> {
        let document = self.document(revision).await?;
        let next = self.next_revision(revision).await?;
        for number in next..next.saturating_add(NUMBERS) {
            let (runner, content) = (&self.services.runner, (&*document, number, author));
            let publication = match destination {
                Destination::Git(in_git) => commits::publish(runner, in_git, revision, content).await?,
                Destination::Registry(in_registry) => {
                    artifacts::publish(runner, in_registry, revision, content).await?
                }
            };
            match publication {
                Publication::Done(pushed) => return Ok((number, pushed)),
                Publication::Taken => {}
            }
        }
        let why = format!(
            "the repository has {NUMBERS} newer revisions of the package; retry after the next synchronization"
        );
        Err(errors::conflict::<PackageRevision>(&revision.name_any(), why))
    }

    /// The number after those of all published revisions of the package.
    async fn next_revision(&self, revision: &PackageRevision) -> Result<i64, ApiError> {
        let selector = format!(
            "spec.repository={},spec.packageName={}",
            revision.spec.repository_name, revision.spec.package_name
        );
        let options = stoa_machinery::registry::ListOptions { field_selector: Some(selector), ..Default::default() };
        let namespace = revision.namespace().unwrap_or_default();
        let all = self.services.lookup.api::<PackageRevision>()?;
        let numbers = all.list_of(Some(&namespace), &options, |other| Some(other.spec.revision)).await?;
        Ok(numbers.into_iter().max().unwrap_or(0).max(0) + 1)
    }
}

#[cfg(test)]
mod tests;
