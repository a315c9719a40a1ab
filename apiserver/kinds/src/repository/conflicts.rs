//! Registrations of the same packages.
//!
//! Two servers' worth of objects for one package would race for its refs and numbers. So packages have one Repository in a
//! namespace, and one that writes among all namespaces. Repositories with `spec.readOnly` share packages across namespaces.

use kube::ResourceExt as _;
use stoa_machinery::{ApiError, registry::ListOptions, status::FieldError};
use stoa_types::porchconfig::{GitRepository, OciRepository, Repository};

use crate::{errors, lookup::Lookup};

/// The address without `/` and `.git` at its end, which make no difference.
fn canonical(git: &GitRepository) -> (&str, &str, &str) {
    let repo = git.repo.trim_end_matches('/');
    let repo = repo.strip_suffix(".git").unwrap_or(repo).trim_end_matches('/');
    (repo, &git.branch, git.directory.trim_matches('/'))
}

/// The registry with the name, without the scheme.
fn name(oci: &OciRepository) -> &str {
    oci.registry.strip_prefix("oci://").unwrap_or(&oci.registry).trim_end_matches('/')
}

/// Whether one folder contains the other, or is it.
fn overlap(one: &str, other: &str) -> bool {
    let contains = |outer: &str, inner: &str| {
        outer.is_empty() || inner == outer || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'))
    };
    contains(one, other) || contains(other, one)
}

/// Whether two registrations may not exist at the same time.
fn conflict(one: &Repository, other: &Repository) -> bool {
    // The server writes to no repository of functions.
    let is_read = |repository: &Repository| repository.spec.read_only || repository.spec.content == super::FUNCTIONS;
    let is_shared = one.namespace() != other.namespace() && (is_read(one) || is_read(other));
    let is_of_packages = |repository: &Repository| repository.spec.content != super::FUNCTIONS;
    if let (Some(oci), Some(other_oci)) = (&one.spec.oci, &other.spec.oci) {
        return !is_shared && is_of_packages(one) && is_of_packages(other) && overlap(name(oci), name(other_oci));
    }
    let (Some(git), Some(other_git)) = (&one.spec.git, &other.spec.git) else { return false };
    let ((repo, branch, directory), (other_repo, other_branch, other_directory)) =
        (canonical(git), canonical(other_git));
    !is_shared
        && one.spec.content == other.spec.content
        && (repo, branch) == (other_repo, other_branch)
        && overlap(directory, other_directory)
}

/// Rejects a second registration of packages that another Repository has.
///
/// # Errors
///
/// 422 that names the other Repository of the namespace. Those of other namespaces have no name in it.
pub(super) async fn refuse(lookup: &Lookup, repository: &Repository) -> Result<(), ApiError> {
    let (namespace, name) = (repository.namespace(), repository.name_any());
    let key = (namespace.clone(), name.clone());
    let conflicts = |other: Repository| {
        let is_other = (other.namespace(), other.name_any()) != key;
        (is_other && conflict(repository, &other)).then(|| (other.namespace(), other.name_any()))
    };
    let mut found = lookup.api::<Repository>()?.list_of(None, &ListOptions::default(), conflicts).await?;
    found.sort();
    let own = found.iter().find(|(other, _)| *other == namespace);
    let field = if repository.spec.oci.is_some() { "spec.oci.registry" } else { "spec.git" };
    let detail = match (own, found.is_empty()) {
        (_, true) => return Ok(()),
        (Some((_, first)), _) if repository.spec.oci.is_some() => {
            format!("repository {first:?} has the same or a nested name of the registry; use that one")
        }
        (Some((_, first)), _) => {
            format!("repository {first:?} has the same branch and the same or a nested directory; use that one")
        }
        (None, false) if repository.spec.oci.is_some() => {
            "a repository of another namespace has the same or a nested name of the registry; set spec.readOnly to register \
             it for reading and cloning"
                .to_owned()
        }
        (None, false) => {
            "a repository of another namespace has the same branch and the same or a nested directory; set \
                          spec.readOnly to register it for reading and cloning"
                .to_owned()
        }
    };
    Err(errors::invalid::<Repository>(&name, &[FieldError::forbidden(field, detail)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_directories_overlap() {
        for (one, other, expected) in [
            ("", "a", true),
            ("a", "a/b", true),
            ("a/b", "a", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a/b", "a/c", false),
        ] {
            assert_eq!(overlap(one, other), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn packages_have_one_writer() {
        let repository = |namespace: &str, repo: &str, read_only: bool| -> Repository {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "blueprints", "namespace": namespace},
                "spec": {"git": {"repo": repo, "branch": "main"}, "readOnly": read_only},
            }))
            .unwrap()
        };
        let one = repository("shop", "https://git.example.com/r.git", false);
        for (other, expected) in [
            (repository("bank", "https://git.example.com/r", false), true),
            (repository("bank", "https://git.example.com/r/", true), false),
            (repository("shop", "https://git.example.com/r", true), true),
            (repository("bank", "https://git.example.com/other", false), false),
        ] {
            assert_eq!(conflict(&one, &other), expected, "{other:?}");
        }
    }

    #[test]
    fn registries_have_one_writer() {
        let repository = |namespace: &str, content: &str, registry: &str| -> Repository {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "blueprints", "namespace": namespace},
                "spec": {"type": "oci", "content": content, "oci": {"registry": registry}},
            }))
            .unwrap()
        };
        let one = repository("shop", "Package", "registry.example.com/packages");
        for (other, expected) in [
            (repository("shop", "Package", "oci://registry.example.com/packages/web"), true),
            (repository("shop", "Package", "registry.example.com/packages2"), false),
            (repository("shop", "Function", "registry.example.com/packages"), false),
            (repository("bank", "Package", "registry.example.com/packages"), true),
            (repository("bank", "Package", "registry.example.com/other"), false),
        ] {
            assert_eq!(conflict(&one, &other), expected, "{other:?}");
        }
        let mut read = repository("bank", "Package", "registry.example.com/packages");
        read.spec.read_only = true;
        assert!(!conflict(&one, &read) && !conflict(&read, &one));
    }
}
