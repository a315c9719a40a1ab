//! The limits of one fetch: a server may send packs without end, or one with more than is wanted.

use std::cell::Cell;

use git2::RemoteCallbacks;

use crate::without_userinfo;

/// The largest pack that is received, in bytes, and the most objects that it may have.
const MOST_BYTES: usize = 4 << 30;
const MOST_OBJECTS: usize = 20_000_000;

/// Ends a fetch where more comes than may be, while it comes.
#[derive(Debug)]
pub struct Bound {
    most_objects: usize,
    has_begun: Cell<bool>,
    is_over: Cell<bool>,
}

impl Default for Bound {
    fn default() -> Self {
        Self::of(MOST_OBJECTS)
    }
}

impl Bound {
    fn of(most_objects: usize) -> Self {
        Self { most_objects, has_begun: Cell::new(false), is_over: Cell::new(false) }
    }

    /// Watches the fetch that has these callbacks.
    pub fn watch<'c>(&'c self, callbacks: &mut RemoteCallbacks<'c>) {
        callbacks.transfer_progress(|progress| {
            self.has_begun.set(true);
            self.is_over.set(progress.received_bytes() > MOST_BYTES || progress.total_objects() > self.most_objects);
            !self.is_over.get()
        });
    }

    /// Whether anything had come.
    pub fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// Whether more was to come than may be, so that the fetch failed for that.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// What people are told of the repository at `remote`, of which more was to come.
    pub fn told(remote: &str) -> String {
        let shown = without_userinfo(remote);
        format!("{shown} has more than {} GiB or {MOST_OBJECTS} objects to fetch", MOST_BYTES >> 30)
    }
}

#[cfg(test)]
mod tests {
    use git2::{FetchOptions, Repository, Signature};

    use super::*;

    #[test]
    fn fetch_of_more_than_may_be_ends() {
        let folder = tempfile::tempdir().unwrap();
        let origin = Repository::init_bare(folder.path().join("origin")).unwrap();
        let me = Signature::now("me", "me@example.com").unwrap();
        let mut files = origin.treebuilder(None).unwrap();
        for name in ["a", "b"] {
            files.insert(name, origin.blob(name.as_bytes()).unwrap(), 0o100_644).unwrap();
        }
        let tree = origin.find_tree(files.write().unwrap()).unwrap();
        origin.commit(Some("refs/heads/main"), &me, &me, "first", &tree, &[]).unwrap();
        let url = format!("file://{}", origin.path().display());
        // A commit, a tree and two files.
        for (most, is_over) in [(3, true), (4, false)] {
            let copy = Repository::init_bare(folder.path().join(most.to_string())).unwrap();
            let bound = Bound::of(most);
            let fetched = {
                let mut callbacks = RemoteCallbacks::new();
                bound.watch(&mut callbacks);
                let mut options = FetchOptions::new();
                options.remote_callbacks(callbacks);
                let mut remote = copy.remote_anonymous(&url).unwrap();
                remote.fetch(&["+refs/heads/main:refs/heads/main"], Some(&mut options), None)
            };
            assert_eq!((fetched.is_err(), bound.is_over(), bound.has_begun()), (is_over, is_over, true), "{most}");
        }
    }

    #[test]
    fn what_is_too_much_is_told_without_a_password() {
        let told = "https://git.example.com/a.git has more than 4 GiB or 20000000 objects to fetch";
        assert_eq!(Bound::told("https://bot:hunter2@git.example.com/a.git"), told);
    }
}
