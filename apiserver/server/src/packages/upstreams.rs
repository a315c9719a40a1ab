//! The published revisions of a namespace by their addresses in Git, by which downstream packages name them.

use std::collections::HashMap;

use kube::ResourceExt as _;
use stoa_kinds::validation::without_credentials;
use stoa_types::porch::{GitLock, PackageRevision};

/// A published revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// The name of the PackageRevision.
    pub(crate) name: String,
    /// The name of the Repository.
    pub(crate) repository: String,
    /// The path of the package.
    pub(crate) package: String,
    /// The number.
    pub(crate) number: i64,
    reference: String,
}

/// The published revisions of packages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Upstreams(HashMap<(String, String), Vec<Published>>);

/// The address of a package: its repository, and its folder.
fn address(lock: &GitLock) -> (String, String) {
    let repo = without_credentials(&lock.repo);
    let repo = repo.trim_end_matches('/');
    (repo.strip_suffix(".git").unwrap_or(repo).to_owned(), lock.directory.trim_matches('/').to_owned())
}

/// The lock of the upstream that a revision has.
pub(crate) fn upstream_lock(revision: &PackageRevision) -> Option<&GitLock> {
    let lock = revision.status.as_ref()?.upstream_lock.as_ref()?.git.as_ref()?;
    Some(lock).filter(|lock| !lock.repo.is_empty())
}

impl Upstreams {
    /// Adds a revision. Drafts, and packages on a branch, are no upstreams to upgrade to.
    pub(crate) fn add(&mut self, revision: &PackageRevision) {
        let lock = revision.status.as_ref().and_then(|status| status.self_lock.as_ref()?.git.as_ref());
        let Some(lock) = lock.filter(|_| revision.spec.lifecycle.is_published() && revision.spec.revision > 0) else {
            return;
        };
        self.0.entry(address(lock)).or_default().push(Published {
            name: revision.name_any(),
            repository: revision.spec.repository_name.clone(),
            package: revision.spec.package_name.clone(),
            number: revision.spec.revision,
            reference: lock.reference.clone(),
        });
    }

    /// The published revisions of the package that a lock names.
    pub(crate) fn of(&self, lock: &GitLock) -> &[Published] {
        self.0.get(&address(lock)).map_or(&[], Vec::as_slice)
    }

    /// The revision that a lock names.
    pub(crate) fn named(&self, lock: &GitLock) -> Option<&Published> {
        self.of(lock).iter().find(|published| published.reference == lock.reference)
    }

    /// The newest revision of the package that a lock names.
    pub(crate) fn newest(&self, lock: &GitLock) -> Option<&Published> {
        self.of(lock).iter().max_by_key(|published| published.number)
    }
}

impl FromIterator<PackageRevision> for Upstreams {
    fn from_iter<I: IntoIterator<Item = PackageRevision>>(revisions: I) -> Self {
        let mut upstreams = Self::default();
        revisions.into_iter().for_each(|revision| upstreams.add(&revision));
        upstreams
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn revision(number: i64, lifecycle: &str) -> PackageRevision {
        let git =
            json!({"repo": "https://git.example.com/r.git", "directory": "basens", "ref": format!("basens/v{number}")});
        serde_json::from_value(json!({
            "metadata": {"name": format!("blueprints.basens.v{number}")},
            "spec": {"packageName": "basens", "repository": "blueprints", "revision": number, "lifecycle": lifecycle},
            "status": {"selfLock": {"type": "git", "git": git}},
        }))
        .unwrap()
    }

    #[test]
    fn lock_names_a_revision_and_its_successors() {
        let all = [revision(1, "Published"), revision(3, "DeletionProposed"), revision(2, "Published")];
        let upstreams: Upstreams = all.into_iter().chain([revision(4, "Draft"), revision(-1, "Published")]).collect();
        // Clones write directories with a slash, and addresses may lack `.git`.
        let lock = |reference: &str| GitLock {
            repo: "https://git.example.com/r".to_owned(),
            directory: "/basens".to_owned(),
            reference: reference.to_owned(),
            ..GitLock::default()
        };
        assert_eq!(upstreams.named(&lock("basens/v1")).unwrap().number, 1);
        assert_eq!(upstreams.newest(&lock("basens/v1")).unwrap().number, 3);
        assert_eq!(upstreams.named(&lock("basens/v9")), None);
        let other = GitLock { directory: "/other".to_owned(), ..lock("other/v1") };
        assert!(upstreams.of(&other).is_empty());
    }
}
