//! Publications in registries: each is one artifact under the tag of its number.
//!
//! Drafts, proposals and proposed deletions are in the log and the documents only. A registry has no compare-and-swap, so that a
//! function-runner reads the tag before and after its push. A tag of another workspace makes the publication continue with the next
//! number.

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::to_string;
use stoa_kinds::errors;
use stoa_machinery::{ApiError, registry::ListOptions, status::FieldError};
use stoa_packages::git_layout::RevisionRef;
use stoa_proto::{
    GitPerson, PushArtifactRequest, RemoveArtifactRequest, Source, push_artifact_response, remove_artifact_response,
};
use stoa_runs::{Services, runner::Runner};
use stoa_types::{
    porch::{Lifecycle, Locator, PackageRevision, StoredInGit},
    porchconfig::{OciRepository, Repository},
};

use super::{
    commits::{Publication, Pushed},
    contents::Document,
    digest, refs,
    registries::{self, lock_in_registry},
    unanswered,
};

/// A package revision in a registry: the repository of its package, with credentials.
#[derive(Clone, Debug)]
pub(crate) struct RevisionInRegistry {
    source: Source,
    oci: OciRepository,
    workspace: String,
}

impl RevisionInRegistry {
    /// The address of a revision.
    ///
    /// # Errors
    ///
    /// 409 where the Secret does not exist, and 422 for a package that the registered repository cannot have.
    pub(crate) async fn new(
        services: &Services,
        (repository, oci): (&Repository, &OciRepository),
        revision: &PackageRevision,
    ) -> Result<Self, ApiError> {
        let path = path(services, (repository, oci), revision).await?;
        let namespace = repository.namespace().unwrap_or_default();
        let source = refs::Address::of_registry(oci, &path).source(services, &namespace).await?;
        Ok(Self { source, oci: oci.clone(), workspace: revision.spec.workspace_name.clone() })
    }

    /// The lock of the revision.
    pub(super) fn lock(&self, stored: &StoredInGit) -> Option<Locator> {
        lock_in_registry(&self.oci, stored)
    }
}

/// The name of the repository that has a revision, or will have it: that of its ref or of the other revisions of its package, or else
/// the one below the registered name.
///
/// # Errors
///
/// 422 where the registered repository has tags and so is another package.
pub(super) async fn path(
    services: &Services,
    (repository, oci): (&Repository, &OciRepository),
    revision: &PackageRevision,
) -> Result<String, ApiError> {
    let own = registries::path(oci, revision);
    if revision.status.as_ref().is_some_and(|status| status.git.is_some()) {
        return Ok(own);
    }
    let root = registries::root(oci);
    let options = ListOptions {
        field_selector: Some(format!("spec.repository={}", repository.name_any())),
        ..ListOptions::default()
    };
    let namespace = repository.namespace().unwrap_or_default();
    let stored = |other: PackageRevision| {
        let reference = other.status.as_ref().and_then(|status| status.git.as_ref())?.reference.clone();
        Some((other.spec.package_name, RevisionRef::parse(&reference)?.path))
    };
    let all = services.lookup.api::<PackageRevision>()?;
    let all: Vec<(String, String)> = all.list_of(Some(&namespace), &options, stored).await?;
    let package = &revision.spec.package_name;
    if let Some((_, path)) = all.iter().find(|(other, _)| other == package) {
        return Ok(path.clone());
    }
    let Some((single, _)) = all.iter().find(|(_, path)| *path == root) else { return Ok(own) };
    let detail = format!(
        "repository {:?} is the package {single:?}, since {root} in its registry has tags; register a name above for several \
         packages",
        repository.name_any()
    );
    let error = FieldError::invalid("spec.packageName", package, detail);
    Err(errors::invalid::<PackageRevision>(&revision.name_any(), &[error]))
}

/// Publishes a revision under a number.
///
/// # Errors
///
/// 409 where the registry has the number with other files of this workspace, 422 where it rejects the push, and 503 where it is out of
/// reach.
pub(super) async fn publish(
    runner: &Runner,
    in_registry: &RevisionInRegistry,
    revision: &PackageRevision,
    (document, number, author): (&Document, i64, &str),
) -> Result<Publication, ApiError> {
    use push_artifact_response::Outcome;

    require_whole(revision, document)?;
    let task = revision.spec.tasks.first().and_then(|task| to_string(task).ok());
    let request = PushArtifactRequest {
        source: Some(in_registry.source.clone()),
        revision: i32::try_from(number).unwrap_or(i32::MAX),
        workspace: in_registry.workspace.clone(),
        files: document.files(),
        author: Some(GitPerson {
            name: author.to_owned(),
            email: String::new(),
            seconds: Timestamp::now().as_second(),
        }),
        task: task.unwrap_or_default(),
    };
    let why = match runner.push_artifact(request).await.map_err(|status| unanswered(&status))?.outcome {
        Some(Outcome::Done(pushed)) => {
            let tag = pushed.r#ref.unwrap_or_default();
            let git = StoredInGit {
                reference: tag.name,
                commit: tag.commit,
                tree: pushed.tree,
                digest: digest(revision).to_owned(),
                lifecycle: Lifecycle::Published,
            };
            return Ok(Publication::Done(Pushed { git }));
        }
        Some(Outcome::Taken(taken)) if taken.workspace != in_registry.workspace => return Ok(Publication::Taken),
        Some(Outcome::Taken(taken)) => format!(
            "the tag v{number} of {} has other files of workspace {:?} ({}); remove the tag from the registry, or delete this \
             revision",
            in_registry.source.remote, taken.workspace, taken.digest
        ),
        None => "the function-runner gave no outcome of the push; upgrade the function-runner".to_owned(),
    };
    Err(errors::conflict::<PackageRevision>(&revision.name_any(), why))
}

/// Requires that a document has all files of a revision. Those that it lacks are links and large files, which a new artifact would lose.
///
/// # Errors
///
/// 422 where it does not.
pub(super) fn require_whole(revision: &PackageRevision, document: &Document) -> Result<(), ApiError> {
    match document.base {
        None => Ok(()),
        Some(_) => {
            let why = "the package has links or files above 8 MiB, which Stoa does not write to a registry; create it without them";
            Err(super::invalid(revision, "spec.repository", why))
        }
    }
}

/// Removes a published revision.
///
/// # Errors
///
/// 409 where its tag has another artifact, or the registry removes nothing; 503 where it is out of reach.
pub(super) async fn remove(
    runner: &Runner,
    in_registry: &RevisionInRegistry,
    revision: &PackageRevision,
) -> Result<(), ApiError> {
    use remove_artifact_response::Outcome;

    let stored = revision.status.as_ref().and_then(|status| status.git.as_ref());
    let Some((stored, tag)) = stored.and_then(|stored| Some((stored, RevisionRef::parse(&stored.reference)?.last)))
    else {
        return Ok(());
    };
    let remote = &in_registry.source.remote;
    let request = RemoveArtifactRequest {
        source: Some(in_registry.source.clone()),
        tag: tag.clone(),
        digest: stored.commit.clone(),
    };
    let why = match runner.remove_artifact(request).await.map_err(|status| unanswered(&status))?.outcome {
        Some(Outcome::Removed(_)) => return Ok(()),
        Some(Outcome::Moved(actual)) => format!(
            "somebody else changed the registry: the tag {tag} of {remote} is at {actual:?} instead of {:?}; retry after the next \
             synchronization",
            stored.commit
        ),
        Some(Outcome::Refused(words)) => format!(
            "the registry does not remove the tag {tag} of {remote} ({words}); permit deletions in the registry, or remove it there, \
             and the next synchronization removes this revision"
        ),
        None => "the function-runner gave no outcome of the deletion; upgrade the function-runner".to_owned(),
    };
    Err(errors::conflict::<PackageRevision>(&revision.name_any(), why))
}
