//! Permissions on packages by their repository, and the separation of authors and approvers.
//!
//! Besides the right to the PackageRevision itself, a user needs a verb on the Repository: `edit` for drafts and proposals,
//! `approve` for decisions, and `clone` on the Repository of an upstream. RBAC grants them for single repositories by
//! `resourceNames`. Start at [`require`] and `require_other_approver`.

use kube::ResourceExt as _;
use stoa_machinery::{ApiError, RequestContext};
use stoa_types::{
    porch::{Lifecycle, PackageRevision},
    porchconfig::Repository,
};

use crate::{
    changes, errors,
    lookup::{self, Lookup},
    package_revision::APPROVAL,
};

/// A verb on a Repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepositoryVerb {
    /// Its packages become upstreams of others.
    Clone,
    /// Its packages get drafts and proposals, and lose revisions.
    Edit,
    /// Proposals become revisions or drafts again.
    Approve,
}

impl RepositoryVerb {
    fn name(self) -> &'static str {
        match self {
            Self::Clone => "clone",
            Self::Edit => "edit",
            Self::Approve => "approve",
        }
    }
}

/// Requires a verb on a repository. The server's own calls have all of them.
///
/// # Errors
///
/// 403 that names the verb and the repository.
pub async fn require(
    context: &RequestContext,
    verb: RepositoryVerb,
    (namespace, repository): (&str, &str),
) -> Result<(), ApiError> {
    if context.is_internal() {
        return Ok(());
    }
    lookup::require::<Repository>(context, verb.name(), "", namespace, repository).await
}

/// Requires a verb on the repository of a revision, which has to permit changes.
///
/// # Errors
///
/// As [`require`], and 403 for a repository that is only for reading.
pub(crate) async fn require_change(
    context: &RequestContext,
    lookup: &Lookup,
    verb: RepositoryVerb,
    revision: &PackageRevision,
) -> Result<(), ApiError> {
    let (namespace, repository) = (revision.namespace().unwrap_or_default(), &revision.spec.repository_name);
    require(context, verb, (&namespace, repository)).await?;
    require_writable(lookup, revision).await
}

/// Requires that the repository of a revision permits changes. One that is not registered has its own error.
///
/// # Errors
///
/// 403 for a repository that is only for reading.
pub(crate) async fn require_writable(lookup: &Lookup, revision: &PackageRevision) -> Result<(), ApiError> {
    let (namespace, repository) = (revision.namespace().unwrap_or_default(), &revision.spec.repository_name);
    let Some(found) = lookup.api::<Repository>()?.get_opt(&namespace, repository).await? else { return Ok(()) };
    if !found.spec.read_only {
        return Ok(());
    }
    let why = format!("repository {repository:?} is for reading only (spec.readOnly); use another repository");
    Err(errors::forbidden::<PackageRevision>(&revision.name_any(), why))
}

/// The verb that a change of the lifecycle needs on the repository.
pub(crate) fn verb_of(new: Lifecycle, old: Lifecycle, subresource: &str) -> Option<RepositoryVerb> {
    use Lifecycle::{DeletionProposed, Draft, Published};
    match (old, new) {
        (old, new) if old == new => None,
        (_, Published | Draft) if subresource == APPROVAL => Some(RepositoryVerb::Approve),
        // The author withdraws a proposal.
        (_, Published | Draft | Lifecycle::Proposed | DeletionProposed) => Some(RepositoryVerb::Edit),
    }
}

/// Records a user who changed a draft, or proposed something. A proposed deletion waits for an approval of its own.
pub(crate) fn note_author(context: &RequestContext, revision: &mut PackageRevision) {
    let lifecycle = revision.spec.lifecycle;
    let changed_by = &mut revision.status.get_or_insert_default().changed_by;
    if lifecycle == Lifecycle::DeletionProposed {
        changed_by.clear();
    }
    changes::note(context, &mut String::new(), changed_by);
}

/// Requires that a user who approves a change is none of its authors, or may approve changes of their own.
///
/// # Errors
///
/// 403 that names the verb.
pub(crate) async fn require_other_approver(
    context: &RequestContext,
    revision: &PackageRevision,
) -> Result<(), ApiError> {
    let authors = revision.status.as_ref().map_or(&[][..], |status| &status.changed_by);
    let (user, name) = (&context.user.name, revision.name_any());
    let is_author = authors.iter().any(|author| author.name == *user);
    if !is_author && !authors.iter().any(|author| author.name == changes::OTHERS) {
        return Ok(());
    }
    let why = if is_author {
        format!("{user} changed or proposed this package revision")
    } else {
        format!("the list of users who changed this package revision is incomplete and may include {user}")
    };
    let namespace = revision.namespace().unwrap_or_default();
    let allowed = lookup::require::<PackageRevision>(context, "approve-own", "", &namespace, &name).await;
    allowed.map_err(|error| match error.code() {
        403 => errors::forbidden::<PackageRevision>(
            &name,
            format!(
                "{why}, and an approval then needs the verb \"approve-own\" on packagerevisions; another user can approve"
            ),
        ),
        _ => error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_need_another_verb_than_proposals() {
        use Lifecycle::{DeletionProposed, Draft, Proposed, Published};
        for (old, new, subresource, expected) in [
            (Draft, Proposed, "", Some(RepositoryVerb::Edit)),
            (Proposed, Draft, "", Some(RepositoryVerb::Edit)),
            (Proposed, Draft, APPROVAL, Some(RepositoryVerb::Approve)),
            (Proposed, Published, APPROVAL, Some(RepositoryVerb::Approve)),
            (Published, DeletionProposed, APPROVAL, Some(RepositoryVerb::Edit)),
            (DeletionProposed, Published, APPROVAL, Some(RepositoryVerb::Approve)),
            (DeletionProposed, Published, "", Some(RepositoryVerb::Edit)),
            (Published, Published, "", None),
        ] {
            assert_eq!(verb_of(new, old, subresource), expected, "{old:?} {new:?} {subresource:?}");
        }
    }
}
