//! The address of a package revision in Git.

use std::collections::HashMap;

use kube::ResourceExt as _;
use stoa_kinds::errors;
use stoa_machinery::ApiError;
use stoa_packages::git_layout::{self, RefKind, RevisionRef};
use stoa_proto::{GitPerson, Source};
use stoa_runs::{Services, target};
use stoa_types::{
    SecretReference,
    porch::{NameReference, PackageRevision},
    porchconfig::{GitRepository, Repository},
};

/// A package revision in Git: its repository with credentials, and its path and names there.
#[derive(Clone, Debug)]
pub(crate) struct RevisionInGit {
    /// The repository with its credentials.
    pub(crate) source: Source,
    /// The address of the repository, as registered.
    pub(crate) repo: String,
    /// The full name of the deployed branch.
    pub(crate) branch: String,
    /// The commit of the branch at the last synchronization; empty if it did not exist.
    pub(crate) branch_commit: String,
    /// The path of the package from the root of the repository.
    pub(crate) path: String,
    /// The workspace.
    pub(crate) workspace: String,
    /// The author of commits, if the repository names one.
    pub(crate) author: Option<(String, String)>,
}

impl RevisionInGit {
    /// The address of a revision.
    ///
    /// # Errors
    ///
    /// As [`source`].
    pub(crate) async fn new(
        services: &Services,
        repository: &Repository,
        revision: &PackageRevision,
    ) -> Result<Self, ApiError> {
        let git = git_of(repository)?;
        let branch_commit = repository.status.as_ref().map_or("", |status| status.git_commit_hash.as_str());
        Ok(Self {
            source: source(services, &repository.namespace().unwrap_or_default(), &git.repo, git.secret_ref.as_ref())
                .await?,
            repo: git.repo.clone(),
            branch: git_layout::branch_ref(&git.branch),
            branch_commit: branch_commit.to_owned(),
            path: git_layout::path_in(&revision.spec.package_name, &git.directory),
            workspace: revision.spec.workspace_name.clone(),
            author: (!git.author.is_empty()).then(|| (git.author.clone(), git.email.clone())),
        })
    }

    /// The branch of the draft, or of the proposal.
    pub(crate) fn draft(&self, kind: RefKind) -> String {
        RevisionRef::draft(kind, &self.path, &self.workspace).to_string()
    }

    /// The tag of a number, or the branch that proposes the deletion of that revision.
    pub(crate) fn published(&self, kind: RefKind, revision: i64) -> String {
        let number = i32::try_from(revision).unwrap_or(git_layout::BRANCH_REVISION);
        RevisionRef::published(kind, &self.path, number, &self.workspace).to_string()
    }

    /// The author of a commit at a time: that of the repository, or else a user.
    pub(crate) fn person(&self, user: &str, seconds: i64) -> GitPerson {
        let (name, email) = match &self.author {
            Some((name, email)) => (name.clone(), email.clone()),
            None if user.is_empty() => (git_layout::COMMITTER.0.to_owned(), git_layout::COMMITTER.1.to_owned()),
            None if user.contains('@') => (user.to_owned(), user.to_owned()),
            None => {
                (user.to_owned(), format!("{}@stoa.invalid", user.replace(|c: char| !c.is_ascii_alphanumeric(), "-")))
            }
        };
        GitPerson { name, email, seconds }
    }
}

/// The name of a ref without `refs/heads/` and `refs/tags/`, as Porch shows it.
pub(crate) fn short(reference: &str) -> &str {
    let short = reference.strip_prefix("refs/heads/").or_else(|| reference.strip_prefix("refs/tags/"));
    short.unwrap_or(reference)
}

fn git_of(repository: &Repository) -> Result<&GitRepository, ApiError> {
    repository.spec.git.as_ref().ok_or_else(|| {
        errors::conflict::<Repository>(&repository.name_any(), "spec.git is not set, so it has no packages")
    })
}

/// The key of an authority's certificate in Secrets.
const CA: &str = "ca.crt";

/// A Git repository with its credentials. As in Porch, the Secret `<namespace>-ca-bundle` has the private authority of those
/// that name none.
///
/// # Errors
///
/// 409 where the Secret does not exist.
pub(crate) async fn source(
    services: &Services,
    namespace: &str,
    repo: &str,
    secret: Option<&NameReference>,
) -> Result<Source, ApiError> {
    let mut credentials = match secret.filter(|secret| !secret.name.is_empty()) {
        None => HashMap::new(),
        Some(secret) => {
            let reference = SecretReference { namespace: None, name: secret.name.clone() };
            target::referenced_secret(services, namespace, &reference).await.map_err(|error| {
                let (_, message) = error.into_reason(stoa_types::reason::SOURCE_UNREACHABLE);
                ApiError::conflict("config.porch.kpt.dev", "repositories", repo, message)
            })?
        }
    };
    if repo.starts_with("https://")
        && !credentials.contains_key(CA)
        && let Some(mut bundle) = services.cluster.secret(namespace, &format!("{namespace}-ca-bundle")).await?
        && let Some(certificate) = bundle.remove(CA)
    {
        credentials.insert(CA.to_owned(), certificate.into());
    }
    Ok(Source {
        provider: "Git".to_owned(),
        remote: repo.to_owned(),
        credentials,
        organization: namespace.to_owned(),
        chart: String::new(),
        verify: None,
    })
}
