//! The files of revisions and of the upstream that they have, for upgrades of drafts.

use std::sync::Arc;

use kube::ResourceExt as _;
use serde_json::Value;
use stoa_kinds::{errors, package_revision::refers_to};
use stoa_machinery::{ApiError, registry::ListOptions};
use stoa_packages::{
    Tree,
    kptfile::UpdateStrategy,
    update::{self, Update, Updated},
};
use stoa_types::{porch::PackageRevision, porchconfig::Repository};

use super::{Address, PackageService, contents::Document, registries, render, tasks};

/// The upstream that a revision has, compared with the one that it is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamState {
    /// It has no upstream.
    None,
    /// It has this revision of it, as it is now.
    Current,
    /// It has another revision, or this one as it was earlier.
    Other,
}

/// Compares the upstream of a revision.
pub(crate) fn upstream_state(revision: &PackageRevision, upstream: &PackageRevision) -> UpstreamState {
    let lock = revision.status.as_ref().and_then(|status| status.upstream_lock.as_ref()?.git.as_ref());
    let Some(lock) = lock.filter(|lock| !lock.reference.is_empty()) else { return UpstreamState::None };
    let now = upstream.status.as_ref().and_then(|status| status.self_lock.as_ref()?.git.as_ref());
    // The commit of a tag in Git never changes, and that of a branch does with other packages. Tags of registries may move.
    let may_move = !upstream.spec.lifecycle.is_published() || lock.repo.starts_with(registries::SCHEME);
    let is_moved = may_move && now.is_some_and(|now| now.commit != lock.commit);
    if refers_to(revision, upstream) && !is_moved { UpstreamState::Current } else { UpstreamState::Other }
}

impl PackageService {
    /// The files of a revision.
    ///
    /// # Errors
    ///
    /// 503 where they are out of reach.
    pub(crate) async fn tree(&self, revision: &PackageRevision) -> Result<Tree, ApiError> {
        tree(&self.document(revision).await?)
    }

    /// The files of a revision's upstream, as the revision has it.
    ///
    /// # Errors
    ///
    /// 409 where the revision has no upstream in a registered repository, 503 where Git is out of reach.
    pub(crate) async fn origin(&self, revision: &PackageRevision) -> Result<Tree, ApiError> {
        let conflict = |why: String| errors::conflict::<PackageRevision>(&revision.name_any(), why);
        let lock = revision.status.as_ref().and_then(|status| status.upstream_lock.as_ref()?.git.as_ref());
        let Some(lock) = lock.filter(|lock| !lock.commit.is_empty()) else {
            let why = "it has no upstream, so that nothing can be merged; clone a package instead";
            return Err(conflict(why.to_owned()));
        };
        let namespace = revision.namespace().unwrap_or_default();
        let address_of = |repository: Repository| Address::of(&repository)?.of_lock(&lock.repo);
        let all = self.services.lookup.api::<Repository>()?;
        let found = all.list_of(Some(&namespace), &ListOptions::default(), address_of).await?;
        let address = found.into_iter().next().ok_or_else(|| {
            conflict(format!("its upstream is in {}, which is not registered; register that repository", lock.repo))
        })?;
        let source = address.source(&self.services, &namespace).await?;
        let path = lock.directory.trim_matches('/');
        tree(&self.contents.of_commit(&source, &lock.commit, path).await?)
    }

    /// The files of a draft after an upgrade: `origin` is the upstream that it has, `files` those of the new upstream. An empty
    /// strategy is that of the Kptfile.
    ///
    /// # Errors
    ///
    /// 409 as long as Git does not have upstream, 422 where the files cannot be merged.
    pub(crate) fn merged(
        local: &Tree,
        (origin, files): (&Tree, &Tree),
        (upstream, strategy): (&PackageRevision, &str),
    ) -> Result<Updated, ApiError> {
        let invalid = |error: &dyn std::error::Error| ApiError::new(422, "Invalid", tasks::in_full(error));
        let lock = tasks::upstream_lock(upstream)?;
        let strategy = match strategy {
            "" => None,
            name => Some(UpdateStrategy::parse(name).map_err(|error| invalid(&error))?),
        };
        let request = Update { origin, upstream: files, local, strategy, revision: Some(&lock) };
        update::update(&request).map_err(|error| invalid(&error))
    }

    /// The error of the functions of a package and its repository; nothing where they succeed. Nothing is written.
    ///
    /// # Errors
    ///
    /// 404 when the repository is not registered.
    pub(crate) async fn render_error(
        &self,
        revision: &PackageRevision,
        files: &Tree,
    ) -> Result<Option<String>, ApiError> {
        let functions = render::RepositoryFunctions::of(&self.repository(revision).await?);
        let document = render::render(&self.services, &functions, Document::of(files)).await;
        let error = document.render_status.get("error").and_then(Value::as_str).filter(|error| !error.is_empty());
        Ok(error.map(str::to_owned))
    }
}

fn tree(document: &Arc<Document>) -> Result<Tree, ApiError> {
    document.tree().map_err(|error| ApiError::new(422, "Invalid", error.to_string()))
}
