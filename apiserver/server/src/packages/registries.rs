//! Addresses and locks of package revisions in registries.
//!
//! A function-runner reports the ref `refs/tags/REPOSITORY/TAG`, so a ref names the repository of its registry. Kptfiles have no
//! upstreams but those in Git. So the lock of such a revision is one of Git, with `oci://REGISTRY/REPOSITORY` as address, no folder,
//! and the digest of the manifest as commit. kpt and Porch read these Kptfiles.

use stoa_packages::git_layout::RevisionRef;
use stoa_types::{
    porch::{GitLock, Locator, PackageRevision, StoredInGit},
    porchconfig::OciRepository,
};

/// The scheme of addresses in registries.
pub(super) const SCHEME: &str = "oci://";

/// The registry and the name there, with the scheme.
pub(super) fn remote(oci: &OciRepository) -> String {
    let plain = oci.registry.strip_prefix(SCHEME).unwrap_or(&oci.registry);
    format!("{SCHEME}{}", plain.trim_end_matches('/'))
}

/// The host of a registry, and the name there.
fn host_and_name(remote: &str) -> (&str, &str) {
    let plain = remote.strip_prefix(SCHEME).unwrap_or(remote);
    plain.split_once('/').unwrap_or((plain, ""))
}

/// The address of the repository with a name in the same registry.
pub(super) fn beside(oci: &OciRepository, path: &str) -> String {
    format!("{SCHEME}{}/{path}", host_and_name(&remote(oci)).0)
}

/// The registered name in its registry.
pub(super) fn root(oci: &OciRepository) -> String {
    host_and_name(&remote(oci)).1.to_owned()
}

/// The name of the repository that has a revision, or will have it: that of its ref, or else the one below the registered name.
pub(crate) fn path(oci: &OciRepository, revision: &PackageRevision) -> String {
    let stored = revision.status.as_ref().and_then(|status| status.git.as_ref());
    let stored = stored.and_then(|stored| RevisionRef::parse(&stored.reference));
    stored.map_or_else(|| format!("{}/{}", root(oci), revision.spec.package_name), |stored| stored.path)
}

/// Whether a repository is the registered one, or below it.
pub(super) fn contains(remote: &str, repo: &str) -> bool {
    repo.strip_prefix(remote).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The address of the repository that a ref names, and the tag.
pub(super) fn address(oci: &OciRepository, reference: &str) -> Option<(String, String)> {
    let RevisionRef { path, last, .. } = RevisionRef::parse(reference)?;
    Some((beside(oci, &path), last))
}

/// The lock of a revision in a registry; nothing where its manifest cannot be read.
pub(crate) fn lock_in_registry(oci: &OciRepository, stored: &StoredInGit) -> Option<Locator> {
    let (repo, reference) = address(oci, &stored.reference).filter(|_| !stored.commit.is_empty())?;
    let git = GitLock { repo, directory: String::new(), reference, commit: stored.commit.clone() };
    Some(Locator { kind: "git".to_owned(), git: Some(git) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oci(registry: &str) -> OciRepository {
        OciRepository { registry: registry.to_owned(), secret_ref: None }
    }

    #[test]
    fn refs_name_repositories_of_their_registry() {
        for registry in ["registry.example.com:5000/packages", "oci://registry.example.com:5000/packages/web/"] {
            let found = address(&oci(registry), "refs/tags/packages/web/v1");
            assert_eq!(found, Some(("oci://registry.example.com:5000/packages/web".to_owned(), "v1".to_owned())));
        }
        assert_eq!(address(&oci("registry.example.com/packages"), "refs/heads/main"), None);
    }

    #[test]
    fn revision_has_the_repository_of_its_ref() {
        let revision = |git: serde_json::Value| -> PackageRevision {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "catalog.net.web.v1"}, "spec": {"packageName": "net/web"}, "status": {"git": git},
            }))
            .unwrap()
        };
        let oci = oci("registry.example.com:5000/packages");
        assert_eq!(path(&oci, &revision(serde_json::Value::Null)), "packages/net/web", "a draft");
        let own = serde_json::json!({"ref": "refs/tags/packages/v1", "commit": "sha256:1", "lifecycle": "Published"});
        assert_eq!(path(&oci, &revision(own)), "packages", "the registered repository has tags");
        assert_eq!(beside(&oci, "packages/net/web"), "oci://registry.example.com:5000/packages/net/web");
    }

    #[test]
    fn registered_name_contains_the_repositories_below() {
        let remote = remote(&oci("registry.example.com/packages"));
        for (repo, expected) in [
            ("oci://registry.example.com/packages", true),
            ("oci://registry.example.com/packages/web", true),
            ("oci://registry.example.com/packages2", false),
            ("https://registry.example.com/packages", false),
        ] {
            assert_eq!(contains(&remote, repo), expected, "{repo}");
        }
    }

    #[test]
    fn lock_has_the_digest_of_the_manifest() {
        let stored = StoredInGit {
            reference: "refs/tags/packages/web/v1".to_owned(),
            commit: "sha256:1".to_owned(),
            ..StoredInGit::default()
        };
        let git = lock_in_registry(&oci("registry.example.com/packages"), &stored).unwrap().git.unwrap();
        let found = [git.repo.as_str(), git.directory.as_str(), git.reference.as_str(), git.commit.as_str()];
        assert_eq!(found, ["oci://registry.example.com/packages/web", "", "v1", "sha256:1"]);
        let unread = StoredInGit { commit: String::new(), ..stored };
        assert_eq!(lock_in_registry(&oci("registry.example.com/packages"), &unread), None);
    }
}
