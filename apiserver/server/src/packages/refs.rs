//! The addresses of repositories, and that of a package revision in Git.
//!
//! Elsewhere: `registries` has the addresses of revisions in registries.

use std::collections::HashMap;

use kube::ResourceExt as _;
use parking_lot::Mutex;
use stoa_controller::object::ObjectKey;
use stoa_kinds::{errors, validation::without_credentials};
use stoa_machinery::ApiError;
use stoa_packages::git_layout::{self, RefKind, RevisionRef};
use stoa_proto::{GitPerson, Source};
use stoa_runs::{Services, target};
use stoa_types::{
    SecretReference,
    porch::{NameReference, PackageRevision},
    porchconfig::{GitRepository, OciRepository, Repository, RepositoryType},
};

use super::registries;

/// The provider of sources in Git, as function-runners have it.
const GIT: &str = "Git";
/// The same of repositories of a registry.
const OCI: &str = "OCI";

/// The origin of the content of a Repository: a Git repository, or a name in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    provider: &'static str,
    remote: String,
    secret: Option<NameReference>,
}

impl Address {
    /// The address of a Repository; nothing for the functions of the function-runners.
    pub(crate) fn of(repository: &Repository) -> Option<Self> {
        if let Some(oci) = registry_of(repository) {
            return Some(Self { provider: OCI, remote: registries::remote(oci), secret: oci.secret_ref.clone() });
        }
        let git = repository.spec.git.as_ref()?;
        Some(Self { provider: GIT, remote: git.repo.clone(), secret: git.secret_ref.clone() })
    }

    /// The address of a repository in a registry, by its name there.
    pub(super) fn of_registry(oci: &OciRepository, path: &str) -> Self {
        Self { provider: OCI, remote: registries::beside(oci, path), secret: oci.secret_ref.clone() }
    }

    /// Whether it is a name in a registry.
    pub(crate) fn is_registry(&self) -> bool {
        self.provider == OCI
    }

    /// The address of the repository that a lock names, if this Repository has it.
    pub(super) fn of_lock(&self, repo: &str) -> Option<Self> {
        let has_it = match self.is_registry() {
            true => registries::contains(&self.remote, repo),
            false => without_credentials(&self.remote) == without_credentials(repo),
        };
        let remote = if self.is_registry() { repo.to_owned() } else { self.remote.clone() };
        has_it.then(|| Self { remote, ..self.clone() })
    }

    /// The source for function-runners, with the credentials.
    ///
    /// # Errors
    ///
    /// 409 where the Secret does not exist.
    pub(crate) async fn source(&self, services: &Services, namespace: &str) -> Result<Source, ApiError> {
        let source = source(services, namespace, &self.remote, self.secret.as_ref()).await?;
        Ok(Source { provider: self.provider.to_owned(), ..source })
    }
}

/// The registry of a Repository; nothing for one of Git.
pub(crate) fn registry_of(repository: &Repository) -> Option<&OciRepository> {
    repository.spec.oci.as_ref().filter(|_| repository.spec.kind == RepositoryType::Oci)
}

/// The source of the files of a revision, and their folder there.
///
/// # Errors
///
/// As [`source`], and 409 for a Repository without packages.
pub(super) async fn folder(
    services: &Services,
    repository: &Repository,
    revision: &PackageRevision,
) -> Result<(Source, String), ApiError> {
    let Some(oci) = registry_of(repository) else {
        let in_git = RevisionInGit::new(services, repository, revision).await?;
        return Ok((in_git.source, in_git.path));
    };
    let namespace = repository.namespace().unwrap_or_default();
    let stored = revision.status.as_ref().and_then(|status| status.git.as_ref());
    let remote = stored.and_then(|stored| registries::address(oci, &stored.reference)).map(|(remote, _)| remote);
    let remote = remote.ok_or_else(|| {
        let why = "its status.git.ref names no repository of the registry; wait for the next synchronization";
        errors::conflict::<PackageRevision>(&revision.name_any(), why)
    })?;
    let address = Address { provider: OCI, remote, secret: oci.secret_ref.clone() };
    Ok((address.source(services, &namespace).await?, String::new()))
}

/// The commits to which this server moved branches since their last synchronizations. An expected commit that is older costs a
/// second push.
#[derive(Debug, Default)]
pub(crate) struct Branches(Mutex<HashMap<ObjectKey, MovedBranch>>);

#[derive(Debug)]
struct MovedBranch {
    /// The branch, and its commit at the synchronization before.
    before: (String, String),
    commit: String,
}

impl Branches {
    /// Corrects the commit of the branch, if no synchronization came since the last move.
    pub(crate) fn correct(&self, repository: &ObjectKey, in_git: &mut RevisionInGit) {
        let mut moved = self.0.lock();
        let Some(found) = moved.get(repository) else { return };
        if found.before == in_git.before() {
            in_git.branch_commit.clone_from(&found.commit);
        } else {
            moved.remove(repository);
        }
    }

    /// Remembers a move of the branch.
    pub(crate) fn moved(&self, repository: ObjectKey, in_git: &RevisionInGit, commit: &str) {
        self.0.lock().insert(repository, MovedBranch { before: in_git.before(), commit: commit.to_owned() });
    }
}

/// A package revision in Git: its repository with credentials, and its path and names there.
#[derive(Clone, Debug)]
pub(crate) struct RevisionInGit {
    /// The repository with its credentials.
    pub(crate) source: Source,
    /// The address of the repository, as registered.
    pub(crate) repo: String,
    /// The full name of the deployed branch.
    pub(crate) branch: String,
    /// The last known commit of the branch; empty if it did not exist.
    pub(crate) branch_commit: String,
    /// The commit of the branch at the last synchronization.
    synchronized_commit: String,
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
            synchronized_commit: branch_commit.to_owned(),
            path: git_layout::path_in(&revision.spec.package_name, &git.directory),
            workspace: revision.spec.workspace_name.clone(),
            author: (!git.author.is_empty()).then(|| (git.author.clone(), git.email.clone())),
        })
    }

    fn before(&self) -> (String, String) {
        (self.branch.clone(), self.synchronized_commit.clone())
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
        errors::conflict::<Repository>(&repository.name_any(), "spec.git is not set, so its packages never change")
    })
}

/// The key of an authority's certificate in Secrets.
const CA: &str = "ca.crt";

/// A Git repository with its credentials. As in Porch, the Secret `<namespace>-ca-bundle` has the private authority of those
/// that name none, and of registries.
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
    if (repo.starts_with("https://") || repo.starts_with(registries::SCHEME))
        && !credentials.contains_key(CA)
        && let Some(mut bundle) = services.cluster.secret(namespace, &format!("{namespace}-ca-bundle")).await?
        && let Some(certificate) = bundle.remove(CA)
    {
        credentials.insert(CA.to_owned(), certificate.into());
    }
    Ok(Source {
        provider: GIT.to_owned(),
        remote: repo.to_owned(),
        credentials,
        organization: namespace.to_owned(),
        chart: String::new(),
        verify: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(branch: &str, synchronized: &str) -> RevisionInGit {
        RevisionInGit {
            source: Source::default(),
            repo: "file:///r.git".to_owned(),
            branch: branch.to_owned(),
            branch_commit: synchronized.to_owned(),
            synchronized_commit: synchronized.to_owned(),
            path: "web".to_owned(),
            workspace: "v1".to_owned(),
            author: None,
        }
    }

    #[test]
    fn moved_branch_is_known_until_the_next_synchronization() {
        let (branches, key) = (Branches::default(), ("shop".to_owned(), "blueprints".to_owned()));
        let expected = |branch: &str, synchronized: &str| {
            let mut in_git = at(branch, synchronized);
            branches.correct(&key, &mut in_git);
            in_git.branch_commit
        };
        assert_eq!(expected("main", "a"), "a");
        branches.moved(key.clone(), &at("main", "a"), "b");
        assert_eq!(expected("main", "a"), "b");
        assert_eq!(expected("other", "a"), "a", "another branch is registered");
        branches.moved(key.clone(), &at("main", "a"), "b");
        assert_eq!(expected("main", "c"), "c", "a synchronization is newer");
        assert_eq!(expected("main", "a"), "a");
    }
}
