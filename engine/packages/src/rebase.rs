//! Moves a package to another upstream, or to a newer revision of itself.
//!
//! Start at [`rebase`]. It merges as an update does: the changes from the old upstream to the new one, and those here.

use crate::files::Tree;
use crate::kptfile::{UpdateStrategy, UpstreamLock};
use crate::update::{Side, Update, UpdateError, Updated, apply, kptfile};

/// A move of a package to another upstream.
#[derive(Clone, Copy, Debug)]
pub struct Rebase<'t> {
    /// The old upstream as it was fetched last; empty if that is unknown.
    pub old: &'t Tree,
    /// The new upstream.
    pub new: &'t Tree,
    /// The package here.
    pub local: &'t Tree,
    /// The revision of the new upstream. `None` for a newer revision of the package itself, which keeps its own upstream.
    pub revision: Option<&'t UpstreamLock>,
}

/// Moves a package to another upstream. Its changes stay, and so does the strategy of its updates.
///
/// Objects of the new upstream are found by the names of the old one, whatever their files.
///
/// # Errors
///
/// [`UpdateError`] when one of the trees cannot be read.
pub fn rebase(rebase: &Rebase<'_>) -> Result<Updated, UpdateError> {
    let Rebase { old, new, local, revision } = *rebase;
    let moved = if revision.is_none() { newer_upstream(rebase)? } else { None };
    let revision = revision.or(moved.as_ref());
    let update = Update { origin: old, upstream: new, local, strategy: None, revision };
    apply(&update, UpdateStrategy::ResourceMerge)
}

/// The upstream that a newer revision of the package was upgraded to meanwhile. Its content comes with that revision. An upgrade of
/// the package here counts more.
fn newer_upstream(rebase: &Rebase<'_>) -> Result<Option<UpstreamLock>, UpdateError> {
    let lock = |side, tree| kptfile(side, tree, "").map(|found| found.and_then(|kptfile| kptfile.upstream_lock));
    let old = lock(Side::Origin, rebase.old)?;
    let is_here = lock(Side::Local, rebase.local)? != old;
    Ok(lock(Side::Upstream, rebase.new)?.filter(|new| !is_here && Some(new) != old.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kptfile::{GitLock, Kptfile};

    const KPTFILE: &str = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: pkg\n";

    fn tree(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        tree.write("Kptfile", KPTFILE).unwrap();
        for (path, text) in files {
            tree.write(path, text.as_bytes().to_vec()).unwrap();
        }
        tree
    }

    fn config(name: &str, data: &str) -> String {
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n{data}")
    }

    #[test]
    fn local_changes_move_to_the_new_upstream() {
        let old = tree(&[("a.yaml", &config("a", "  a: one\n  b: one\n")), ("b.yaml", &config("b", "  a: one\n"))]);
        let new = tree(&[("all.yaml", &config("a", "  a: two\n  b: one\n")), ("c.md", "new")]);
        let kptfile =
            format!("{KPTFILE}upstream:\n  type: git\n  git:\n    repo: old\n  updateStrategy: fast-forward\n");
        let local = tree(&[
            ("Kptfile", &kptfile),
            ("a.yaml", &config("a", "  a: one\n  b: mine # ours\n")),
            ("b.yaml", &config("b", "  a: one\n")),
        ]);
        let git = GitLock { repo: "new".to_owned(), reference: "v1".to_owned(), ..GitLock::default() };
        let revision = UpstreamLock { kind: "git".to_owned(), git: Some(git) };
        let rebased = rebase(&Rebase { old: &old, new: &new, local: &local, revision: Some(&revision) }).unwrap();
        assert_eq!(rebased.conflicts, []);
        assert_eq!(rebased.tree.paths().collect::<Vec<_>>(), ["Kptfile", "all.yaml", "c.md"]);
        assert_eq!(rebased.tree.text("all.yaml"), Some(&*config("a", "  a: two\n  b: mine # ours\n")));
        let kptfile = Kptfile::parse(rebased.tree.text("Kptfile").unwrap()).unwrap();
        assert_eq!(kptfile.upstream_lock, Some(revision));
        let upstream = kptfile.upstream.unwrap();
        assert_eq!((upstream.git.unwrap().repo.as_str(), upstream.update_strategy.as_str()), ("new", "fast-forward"));
    }

    #[test]
    fn newer_revision_of_the_package_keeps_its_upstream() {
        let old = tree(&[("a.yaml", &config("a", "  a: one\n  b: one\n"))]);
        let published = tree(&[("a.yaml", &config("a", "  a: two\n  b: one\n"))]);
        let draft = tree(&[("a.yaml", &config("a", "  a: one\n  b: mine\n"))]);
        let rebased = rebase(&Rebase { old: &old, new: &published, local: &draft, revision: None }).unwrap();
        assert_eq!(rebased.conflicts, []);
        assert_eq!(rebased.tree.text("a.yaml"), Some(&*config("a", "  a: two\n  b: mine\n")));
        assert_eq!(rebased.tree.text("Kptfile"), Some(KPTFILE));
    }

    #[test]
    fn newer_revision_of_the_package_brings_its_newer_upstream() {
        let lock = |reference: &str| {
            let git = GitLock { repo: "up".to_owned(), reference: reference.to_owned(), ..GitLock::default() };
            UpstreamLock { kind: "git".to_owned(), git: Some(git) }
        };
        let at = |reference: &str| {
            let git = format!("  type: git\n  git:\n    repo: up\n    ref: {reference}\n");
            tree(&[("Kptfile", &format!("{KPTFILE}upstream:\n{git}upstreamLock:\n{git}"))])
        };
        for (old, new, local, expected) in
            [("v1", "v2", "v1", "v2"), ("v1", "v1", "v2", "v2"), ("v1", "v2", "v3", "v3")]
        {
            let (old, new, local) = (at(old), at(new), at(local));
            let rebased = rebase(&Rebase { old: &old, new: &new, local: &local, revision: None }).unwrap();
            let kptfile = Kptfile::parse(rebased.tree.text("Kptfile").unwrap()).unwrap();
            assert_eq!(kptfile.upstream_lock, Some(lock(expected)));
            assert_eq!(kptfile.upstream.unwrap().git.unwrap().reference, expected);
        }
    }
}
