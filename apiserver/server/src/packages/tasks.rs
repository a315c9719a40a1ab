//! The content of a new revision, by its task: init, clone, edit or upgrade.

use kube::ResourceExt as _;
use stoa_kinds::{errors, lookup::require_secret, package_revision::is_same_package, validation::without_credentials};
use stoa_machinery::{ApiError, RequestContext, status::FieldError};
use stoa_packages::{
    Tree,
    clone::{self, CloneRequest, Init},
    git_layout,
    kptfile::{GitLock, UpdateStrategy, UpstreamLock},
    rebase::{self, Rebase},
    update::{self, Update},
};
use stoa_proto::ResolveRequest;
use stoa_types::{
    porch::{CloneTask, GitPackage, InitTask, NameReference, PackageRevision, Task, UpgradeTask},
    porchconfig::Repository,
};

use super::{
    PackageService, artifacts,
    contents::{Document, Folder},
    invalid, refs, unanswered,
};

/// The content of a new revision.
pub(super) struct Made {
    pub(super) document: Document,
    /// The conflicts of an upgrade, as sentences.
    pub(super) conflicts: Vec<String>,
}

impl From<Document> for Made {
    fn from(document: Document) -> Self {
        Self { document, conflicts: Vec::new() }
    }
}

/// Makes the content of a new revision by its task. Without a task it is an empty package.
///
/// # Errors
///
/// 422 where the task cannot be done, 503 where a repository is out of reach.
pub(super) async fn make(
    service: &PackageService,
    context: &RequestContext,
    repository: &Repository,
    revision: &PackageRevision,
) -> Result<Made, ApiError> {
    let fallback = Task { kind: "init".to_owned(), ..Task::default() };
    let task = revision.spec.tasks.first().unwrap_or(&fallback);
    match task.kind.as_str() {
        "clone" => {
            let task = task.clone.clone().unwrap_or_default();
            cloned(service, context, (repository, revision), &task).await.map(Made::from)
        }
        "edit" => {
            let source = task.edit.as_ref().and_then(|edit| edit.source.clone()).unwrap_or_default();
            edited(service, revision, &source).await.map(Made::from)
        }
        "upgrade" => upgraded(service, revision, &task.upgrade.clone().unwrap_or_default()).await,
        _ => initialized(revision, &task.init.clone().unwrap_or_default()).map(Made::from),
    }
}

/// The last part of a package's path.
fn short_name(revision: &PackageRevision) -> &str {
    let path = revision.spec.package_name.as_str();
    path.rsplit('/').next().unwrap_or(path)
}

fn initialized(revision: &PackageRevision, task: &InitTask) -> Result<Document, ApiError> {
    let InitTask { subpackage, description, keywords, site } = task;
    let name = if subpackage.is_empty() { short_name(revision) } else { subpackage };
    let init = Init { name, description, site, keywords };
    let refused = |error| invalid(revision, "spec.tasks[0].init", error);
    let made = clone::init(&Tree::default(), &init).map_err(refused)?;
    if subpackage.is_empty() {
        return Ok(Document::of(&made));
    }
    let root = Init { name: short_name(revision), ..Init::default() };
    let mut tree = clone::init(&Tree::default(), &root).map_err(refused)?;
    for (path, file) in made.iter() {
        tree.write(&format!("{subpackage}/{path}"), file.content.clone()).map_err(refused)?;
    }
    Ok(Document::of(&tree))
}

/// Another revision of the namespace.
async fn named(
    service: &PackageService,
    revision: &PackageRevision,
    (field, reference): (&str, &NameReference),
) -> Result<PackageRevision, ApiError> {
    let namespace = revision.namespace().unwrap_or_default();
    let found = service.services.lookup.api::<PackageRevision>()?.get_opt(&namespace, &reference.name).await?;
    found.ok_or_else(|| {
        let error = FieldError::not_found(field, &reference.name);
        errors::invalid::<PackageRevision>(&revision.name_any(), &[error])
    })
}

/// The lock of a revision that others have as upstream.
///
/// # Errors
///
/// 409 as long as Git does not have the revision, or where the manifest in its registry cannot be read.
pub(super) fn upstream_lock(upstream: &PackageRevision) -> Result<UpstreamLock, ApiError> {
    let lock = upstream.status.as_ref().and_then(|status| status.self_lock.as_ref()?.git.clone());
    let lock = lock.ok_or_else(|| {
        let why = "its repository does not have it yet, so that no other package can refer to it; retry later, or publish it first \
                   if the repository is a registry";
        errors::conflict::<PackageRevision>(&upstream.name_any(), why)
    })?;
    Ok(UpstreamLock {
        kind: "git".to_owned(),
        git: Some(GitLock {
            // Older locks have the address with its user.
            repo: without_credentials(&lock.repo),
            directory: format!("/{}", lock.directory.trim_start_matches('/')),
            reference: lock.reference,
            commit: lock.commit,
        }),
    })
}

fn strategy(revision: &PackageRevision, name: &str) -> Result<Option<UpdateStrategy>, ApiError> {
    if name.is_empty() {
        return Ok(None);
    }
    UpdateStrategy::parse(name).map(Some).map_err(|error| invalid(revision, "spec.tasks[0]", error))
}

async fn cloned(
    service: &PackageService,
    context: &RequestContext,
    (repository, revision): (&Repository, &PackageRevision),
    task: &CloneTask,
) -> Result<Document, ApiError> {
    let (upstream, lock) = match (&task.upstream.upstream_ref, &task.upstream.git) {
        (Some(reference), _) => {
            let field = "spec.tasks[0].clone.upstreamRef.upstreamRef.name";
            let upstream = named(service, revision, (field, reference)).await?;
            let lock = upstream_lock(&upstream)?;
            (service.document(&upstream).await?, lock)
        }
        (None, Some(git)) => from_git(service, context, revision, git).await?,
        (None, None) => return Err(invalid(revision, "spec.tasks[0].clone.upstreamRef", "names no upstream")),
    };
    let directory = repository.spec.git.as_ref().map_or("", |git| git.directory.as_str());
    let path = git_layout::path_in(&revision.spec.package_name, directory);
    let values = [("package-path", path.as_str())];
    let tree = upstream.tree().map_err(|error| invalid(revision, "spec.tasks[0].clone", error))?;
    let request = CloneRequest {
        upstream: &tree,
        name: short_name(revision),
        revision: &lock,
        strategy: strategy(revision, &task.strategy)?.unwrap_or(UpdateStrategy::ResourceMerge),
        context: repository.spec.deployment.then_some(&values[..]),
    };
    let made = clone::clone_package(&request);
    made.map(|tree| Document::of(&tree)).map_err(|error| invalid(revision, "spec.tasks[0].clone", in_full(&error)))
}

/// The files of a package in a repository that is not registered, and its lock.
async fn from_git(
    service: &PackageService,
    context: &RequestContext,
    revision: &PackageRevision,
    git: &GitPackage,
) -> Result<(std::sync::Arc<Document>, UpstreamLock), ApiError> {
    let namespace = revision.namespace().unwrap_or_default();
    if let Some(secret) = git.secret_ref.as_ref().filter(|secret| !secret.name.is_empty()) {
        require_secret(context, &namespace, &secret.name).await?;
    }
    let source = refs::source(&service.services, &namespace, &git.repo, git.secret_ref.as_ref()).await?;
    let request =
        ResolveRequest { source: Some(source.clone()), version: git.reference.clone(), r#ref: git.reference.clone() };
    let resolved = service.services.runner.resolve(request).await.map_err(|status| unanswered(&status))?;
    let commit = resolved.into_inner().commit;
    let directory = git.directory.trim_matches('/');
    let document = service.contents.of_commit(&source, &commit, directory).await?;
    let lock = UpstreamLock {
        kind: "git".to_owned(),
        git: Some(GitLock {
            repo: without_credentials(&git.repo),
            directory: format!("/{directory}"),
            reference: git.reference.clone(),
            commit,
        }),
    };
    Ok((document, lock))
}

/// The content of another revision of the package, without its results and owners.
async fn edited(
    service: &PackageService,
    revision: &PackageRevision,
    reference: &NameReference,
) -> Result<Document, ApiError> {
    let source = named(service, revision, ("spec.tasks[0].edit.sourceRef.name", reference)).await?;
    if !is_same_package(&source, revision) {
        let why = "must be a revision of the same package; use a task of type clone for another one";
        return Err(invalid(revision, "spec.tasks[0].edit.sourceRef.name", why));
    }
    let document = service.document(&source).await?;
    let base = base(service, &source, &document).await?;
    let Document { resources, binary, executable, .. } = (*document).clone();
    Ok(Document { resources, binary, executable, base, ..Document::default() })
}

/// The folder in Git of a revision of the same repository. A new artifact in a registry has no files of another one.
async fn base(
    service: &PackageService,
    source: &PackageRevision,
    document: &Document,
) -> Result<Option<Folder>, ApiError> {
    let repository = service.repository(source).await?;
    if refs::registry_of(&repository).is_some() {
        artifacts::require_whole(source, document)?;
        return Ok(None);
    }
    let Some(commit) = super::commit(source) else { return Ok(document.base.clone()) };
    let path = refs::RevisionInGit::new(&service.services, &repository, source).await?.path;
    Ok(Some(Folder { commit: commit.to_owned(), path }))
}

async fn upgraded(service: &PackageService, revision: &PackageRevision, task: &UpgradeTask) -> Result<Made, ApiError> {
    let field = |name: &str| format!("spec.tasks[0].upgrade.{name}.name");
    let mut document = edited(service, revision, &task.local).await?;
    let new = named(service, revision, (&field("newUpstreamRef"), &task.new_upstream)).await?;
    let lock = upstream_lock(&new)?;
    let refused = |error: &dyn std::error::Error| invalid(revision, "spec.tasks[0].upgrade", in_full(error));
    let tree_of = |document: &Document| document.tree().map_err(|error| refused(&error));
    let upstream = tree_of(&*service.document(&new).await?)?;
    let origin = if task.old_upstream.name.is_empty() {
        Tree::default()
    } else {
        let old = named(service, revision, (&field("oldUpstreamRef"), &task.old_upstream)).await?;
        tree_of(&*service.document(&old).await?)?
    };
    let local = tree_of(&document)?;
    let strategy = strategy(revision, &task.strategy)?;
    let updated = match is_same_package(&new, revision) {
        // A newer revision of the package itself does not become its upstream.
        true if strategy.is_none_or(|strategy| strategy == UpdateStrategy::ResourceMerge) => {
            rebase::rebase(&Rebase { old: &origin, new: &upstream, local: &local, revision: None })
        }
        true => {
            let why = "must be resource-merge for a newer revision of the same package";
            return Err(invalid(revision, "spec.tasks[0].upgrade.strategy", why));
        }
        false => {
            let revision = Some(&lock);
            update::update(&Update { origin: &origin, upstream: &upstream, local: &local, strategy, revision })
        }
    };
    let updated = updated.map_err(|error| refused(&error))?;
    document.set(&updated.tree);
    Ok(Made { document, conflicts: updated.conflicts.iter().map(ToString::to_string).collect() })
}

/// An error with its causes.
pub(super) fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
