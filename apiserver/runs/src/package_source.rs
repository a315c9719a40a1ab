//! Sources of provider Package: the Git repository, and the commits of revisions.
//!
//! A version is `latest`, the number of a published revision such as `v3`, the workspace of a revision, or a commit. Its
//! commit is in the PackageRevisions of the server, so that no question goes to Git.

use kube::ResourceExt as _;
use stoa_kinds::package_source::folder;
use stoa_machinery::registry::ListOptions;
use stoa_types::{
    SecretReference, Source,
    config::SourcePackage,
    delivery::Operation,
    porch::PackageRevision,
    porchconfig::{GitRepository, Repository},
    reason,
};

use crate::{Services, StepError, target};

/// A revision of the package of a Source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The name of the PackageRevision.
    pub name: String,
    /// The number of a published revision; 0 for a draft or proposal.
    pub number: i64,
    /// The workspace.
    pub workspace: String,
    /// Whether it is published.
    pub is_published: bool,
    /// The commit in Git; empty before the first push.
    pub commit: String,
}

impl Found {
    fn of(revision: &PackageRevision) -> Self {
        let commit = revision.status.as_ref().and_then(|status| Some(status.git.as_ref()?.commit.clone()));
        Self {
            name: revision.name_any(),
            number: revision.spec.revision,
            workspace: revision.spec.workspace_name.clone(),
            is_published: revision.spec.lifecycle.is_published(),
            commit: commit.unwrap_or_default(),
        }
    }
}

/// The revisions of a package. Without a Repository there are none.
///
/// # Errors
///
/// When they cannot be read.
pub async fn revisions(services: &Services, source: &Source, package: &SourcePackage) -> Result<Vec<Found>, StepError> {
    let selector = format!("spec.repository={},spec.packageName={}", package.repository, package.name);
    let options = ListOptions { field_selector: Some(selector), ..ListOptions::default() };
    let namespace = source.namespace().unwrap_or_default();
    let all = services.lookup.api::<PackageRevision>()?;
    Ok(all.list_of(Some(&namespace), &options, |revision| Some(Found::of(&revision))).await?)
}

/// The revision that a version stands for. `latest` is that of `reference`, and the newest published one without it.
pub fn find<'f>(found: &'f [Found], version: &str, reference: &str) -> Option<&'f Found> {
    let is_latest = |version: &str| version.is_empty() || version == "latest";
    match (is_latest(version), is_latest(reference)) {
        (true, false) => return find(found, reference, ""),
        (true, true) => {
            let published = found.iter().filter(|revision| revision.is_published && revision.number > 0);
            return published.max_by_key(|revision| revision.number);
        }
        (false, _) => {}
    }
    let number = version.strip_prefix('v').and_then(|number| number.parse::<i64>().ok()).filter(|number| *number > 0);
    let numbered = found.iter().find(|revision| revision.is_published && Some(revision.number) == number);
    // The package on the branch has the commit of a published revision, too.
    let by_commit =
        || found.iter().filter(|revision| revision.commit == version).max_by_key(|revision| revision.number);
    numbered.or_else(|| found.iter().find(|revision| revision.workspace == version)).or_else(by_commit)
}

/// The commit of a version.
///
/// # Errors
///
/// Failed with `VersionNotFound` where the package has no such revision, or Git does not have it yet.
pub async fn commit(
    services: &Services,
    source: &Source,
    package: &SourcePackage,
    version: &str,
) -> Result<String, StepError> {
    let found = revisions(services, source, package).await?;
    let reference = &source.spec.reference;
    let missing = |message| StepError::failed(reason::VERSION_NOT_FOUND, message);
    let revision = find(&found, version, reference).ok_or_else(|| missing(no_revision(package, version, reference)))?;
    if revision.commit.is_empty() {
        return Err(missing(format!("package revision {} is not in Git yet; retry later", revision.name)));
    }
    Ok(revision.commit.clone())
}

/// A sentence about a revision that a package does not have.
pub fn no_revision(package: &SourcePackage, version: &str, reference: &str) -> String {
    let SourcePackage { repository, name } = package;
    let wanted = if matches!(version, "" | "latest") { reference } else { version };
    match wanted {
        "" | "latest" => {
            format!("package {name:?} of repository {repository:?} has no published revision; publish one")
        }
        wanted => format!(
            "package {name:?} of repository {repository:?} has no revision {wanted:?}; use latest, a number such as v3, or the \
             workspace of a revision"
        ),
    }
}

/// Rejects a Run that deploys a commit of a draft or proposal.
///
/// # Errors
///
/// Refused where no published revision has the commit.
pub(crate) async fn require_published(
    services: &Services,
    source: &Source,
    operation: Operation,
    commit: &str,
) -> Result<(), StepError> {
    let Some(package) = source.spec.package.as_ref().filter(|_| deploys(operation)) else { return Ok(()) };
    let found = revisions(services, source, package).await?;
    if found.iter().any(|revision| revision.is_published && revision.commit == commit) {
        return Ok(());
    }
    let of_draft = found.iter().find(|revision| revision.commit == commit);
    let which = of_draft.map_or_else(|| format!("commit {commit}"), |draft| format!("package revision {}", draft.name));
    let message = format!("{which} is not published; approve it, or start a Preview");
    Err(StepError::refused(reason::NOT_PUBLISHED, message))
}

fn deploys(operation: Operation) -> bool {
    match operation {
        Operation::Apply | Operation::Import => true,
        // The others have the commit of a release, or none.
        Operation::Preview | Operation::Rollback | Operation::Destroy | Operation::Refresh => false,
    }
}

/// The Repository of a package.
///
/// # Errors
///
/// Failed with its name when it is not registered, or is none of Git.
async fn git_of(
    services: &Services,
    source: &Source,
    package: &SourcePackage,
) -> Result<(Repository, GitRepository), StepError> {
    let namespace = source.namespace().unwrap_or_default();
    let name = &package.repository;
    let missing = |why: &str| StepError::failed(reason::REFERENCE_NOT_FOUND, format!("repository {name:?} {why}"));
    let repository = services.lookup.api::<Repository>()?.get_opt(&namespace, name).await?;
    let repository = repository.ok_or_else(|| missing("does not exist; register it, or change spec.package"))?;
    let other = "is no Git repository; use one, or a Source of provider OCI";
    let git = repository.spec.git.clone().ok_or_else(|| missing(other))?;
    Ok((repository, git))
}

/// The Git repository of a package, with its credentials.
///
/// # Errors
///
/// A failure names the object that does not exist.
pub(crate) async fn repository(
    services: &Services,
    source: &Source,
    package: &SourcePackage,
) -> Result<stoa_proto::Source, StepError> {
    let (_, git) = git_of(services, source, package).await?;
    let namespace = source.namespace().unwrap_or_default();
    let credentials = match git.secret_ref.filter(|secret| !secret.name.is_empty()) {
        None => Default::default(),
        Some(secret) => {
            let reference = SecretReference { namespace: None, name: secret.name };
            target::referenced_secret(services, &namespace, &reference).await?
        }
    };
    Ok(stoa_proto::Source {
        provider: "Git".to_owned(),
        remote: git.repo,
        credentials,
        organization: namespace,
        ..stoa_proto::Source::default()
    })
}

/// The folder of the package that a Source is, from the root of its Git repository; nothing for another provider. Without its
/// Repository, it is the name of the package: a Destroy needs no files.
///
/// # Errors
///
/// When the Repository cannot be read.
pub(crate) async fn folder_of(services: &Services, source: &Source) -> Result<Option<String>, StepError> {
    let Some(package) = &source.spec.package else { return Ok(None) };
    let namespace = source.namespace().unwrap_or_default();
    let repository = services.lookup.api::<Repository>()?.get_opt(&namespace, &package.repository).await?;
    Ok(Some(folder(package, &repository.map(|repository| repository.spec).unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(number: i64, workspace: &str, is_published: bool, commit: &str) -> Found {
        Found {
            name: format!("blueprints.basens.{workspace}"),
            number,
            workspace: workspace.to_owned(),
            is_published,
            commit: commit.to_owned(),
        }
    }

    #[test]
    fn version_is_latest_a_number_a_workspace_or_a_commit() {
        let found = [
            revision(-1, "main", true, "bbb"),
            revision(1, "first", true, "aaa"),
            revision(2, "v1", true, "bbb"),
            revision(0, "next", false, "ccc"),
        ];
        for (version, reference, expected) in [
            ("latest", "", Some("v1")),
            ("", "v1", Some("first")),
            ("latest", "next", Some("next")),
            // A number comes before a workspace of the same text.
            ("v1", "", Some("first")),
            ("v2", "", Some("v1")),
            ("next", "", Some("next")),
            ("main", "", Some("main")),
            ("bbb", "", Some("v1")),
            ("ccc", "", Some("next")),
            ("v3", "", None),
            ("latest", "v9", None),
        ] {
            let workspace = find(&found, version, reference).map(|found| found.workspace.as_str());
            assert_eq!(workspace, expected, "{version:?} {reference:?}");
        }
        assert_eq!(find(&found[3..], "latest", ""), None, "a draft is no latest revision");
    }

    #[test]
    fn missing_revision_is_named() {
        let package = SourcePackage { repository: "blueprints".to_owned(), name: "basens".to_owned() };
        assert!(no_revision(&package, "latest", "").contains("no published revision"));
        assert!(no_revision(&package, "latest", "v4").contains("no revision \"v4\""));
        assert!(no_revision(&package, "v5", "v4").contains("no revision \"v5\""));
    }
}
