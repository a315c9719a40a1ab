//! The control repository on disk: the operations of Git that the projection needs, without any knowledge of the log.
//!
//! Start at [`ControlRepository`], a path with a [pool](RepoPool) of one open repository. Elsewhere: `trees`, `walk` and `blame` read,
//! `objects` and `packs` write.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use git2::{Config, ConfigLevel, ErrorCode, ObjectType, Oid, Repository, RepositoryInitOptions};
use parking_lot::Mutex;

use super::{
    GitError,
    blame::Blame,
    commit_builder::CommitBuilder,
    history::{self, Appended, Batch, HISTORY},
    layout::{CommitInfo, Layout},
    locks,
    objects::Objects,
    packs,
    reader::{Newest, Reader},
    repo_pool::{PooledRepo, RepoPool},
    trees::{self, Item},
    walk::{Excess, Walk},
};

/// The branch with all files.
pub(super) const MAIN: &str = "refs/heads/main";
/// Refs that reject pushes.
const HIDDEN: [&str; 2] = ["refs/stoa", "refs/replace"];
/// Refs of a copy that reject pushes.
const BRANCHES: &str = "refs/heads";
const BRANCHES_PATTERN: &str = "^refs/heads$";
/// The newest commit to which we moved main. It is known after a restart, and protected from garbage collection after others
/// removed it from main.
const MOVED: &str = "refs/stoa/moved";
/// The refs of commits that we took off main.
const REFUSED: &str = "refs/stoa/refused";
/// Settings for libgit2 alone: with its setting for syncs, git would warn everybody who pushes about an old setting.
/// Redirects of a remote are our own matter.
const LIBGIT2_CONFIG: &str = "libgit2.config";
/// The most tree entries that a walk counts to find the changes of a push. As many files would take hours to apply.
pub(super) const MOST_ENTRIES: usize = 1 << 20;
/// A walk over all files counts this many times as many entries.
const ALL: usize = 4;

/// A file that differs between two commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileChange {
    pub path: String,
    /// The ids of its content.
    pub before: Option<Oid>,
    /// `None` when it was removed.
    pub after: Option<Oid>,
    /// The newest commit that changed it.
    pub commit: CommitInfo,
}

/// A handle of the repository. Its clones share the lock, which keeps other processes from projecting into it while work is
/// under way.
#[derive(Clone, Debug)]
pub(super) struct ControlRepository {
    path: PathBuf,
    pool: RepoPool,
    /// The id of the log whose history is indexed here.
    log: Arc<str>,
    newest: Newest,
    /// The end of the history.
    newest_past: Arc<Mutex<Option<history::Newest>>>,
    /// The most tree entries that a walk counts to find the changes of a push.
    most_entries: usize,
    _lock: Arc<File>,
}

impl ControlRepository {
    /// Opens the bare repository at `path`, or makes it. A copy of a remote rejects pushes to branches.
    pub(super) fn open(path: &Path, is_copy: bool) -> Result<Self, git2::Error> {
        let lock = Arc::new(locks::take(path)?);
        let mut options = RepositoryInitOptions::new();
        options.bare(true).initial_head("main").external_template(false);
        let repository = Repository::init_opts(path, &options)?;
        let mut config = repository.config()?;
        config.set_str("core.fsync", "all")?;
        config.set_bool("receive.denyDeletes", true)?;
        config.set_bool("receive.denyNonFastForwards", true)?;
        // Pushes may not remove our refs, and a replacement would make git show another history.
        for refs in HIDDEN {
            config.set_multivar("receive.hideRefs", &format!("^{refs}$"), refs)?;
        }
        if is_copy {
            config.set_multivar("receive.hideRefs", BRANCHES_PATTERN, BRANCHES)?;
        } else if config.multivar("receive.hideRefs", Some(BRANCHES_PATTERN))?.next().is_some() {
            config.remove_multivar("receive.hideRefs", BRANCHES_PATTERN)?;
        }
        config.set_bool("receive.fsckObjects", true)?;
        let mut ours = Config::open(&path.join(LIBGIT2_CONFIG))?;
        ours.set_bool("core.fsyncObjectFiles", true)?;
        // No server may redirect us, with the credentials of the remote, to another: a list of refs has no other setting for
        // that.
        ours.set_bool("http.followRedirects", false)?;
        packs::prepare(&repository)?;
        Ok(Self {
            path: path.to_owned(),
            pool: RepoPool::default(),
            log: Arc::default(),
            newest: Arc::default(),
            newest_past: Arc::default(),
            most_entries: MOST_ENTRIES,
            _lock: lock,
        })
    }

    /// The same repository, with the history of the log of this id.
    pub(super) fn of_log(self, id: &str) -> Self {
        Self { log: id.into(), newest_past: Arc::default(), ..self }
    }

    /// The same repository, with this limit of entries of a walk.
    pub(super) fn with_most_entries(self, most_entries: usize) -> Self {
        Self { most_entries, ..self }
    }

    /// A fresh handle for long work, such as a fetch. The pooled one is closed, since it would stay open between two checks
    /// of a remote.
    pub(super) fn repository(&self) -> Result<Repository, git2::Error> {
        self.pool.close();
        open(&self.path)
    }

    /// The pooled repository for one use.
    pub(super) fn lend(&self) -> Result<PooledRepo, git2::Error> {
        self.pool.lend(&self.path)
    }

    /// The newest commit on main; `None` when there is none yet.
    pub(super) fn tip(&self) -> Result<Option<Oid>, git2::Error> {
        let repository = self.lend()?;
        tip(&repository)
    }

    pub(super) fn contains(&self, commit: Oid) -> Result<bool, git2::Error> {
        Ok(self.lend()?.find_commit(commit).is_ok())
    }

    /// Whether `old` is `new` or an ancestor of it.
    pub(super) fn is_behind(&self, old: Oid, new: Oid) -> Result<bool, git2::Error> {
        let repository = self.lend()?;
        if repository.find_commit(old).is_err() {
            return Ok(false);
        }
        Ok(old == new || repository.graph_descendant_of(new, old)?)
    }

    /// Whether we moved main, which is at `main` now, to `commit`.
    pub(super) fn was_moved_to(&self, commit: Oid, main: Option<Oid>) -> Result<bool, git2::Error> {
        let moved = self.lend()?.refname_to_id(MOVED).is_ok_and(|moved| moved == commit);
        Ok(moved || main.map_or(Ok(false), |main| self.is_behind(commit, main))?)
    }

    /// Moves main from `old` to `new`; false when another writer moved it first.
    pub(super) fn advance(&self, old: Option<Oid>, new: Oid) -> Result<bool, git2::Error> {
        let repository = self.lend()?;
        let moved = match old {
            Some(old) => repository.reference_matching(MAIN, new, true, old, "stoa"),
            None => repository.reference(MAIN, new, false, "stoa"),
        };
        match moved {
            Ok(_) => repository.reference(MOVED, new, true, "stoa").map(|_| true),
            Err(error)
                if matches!(
                    error.code(),
                    ErrorCode::Modified | ErrorCode::Locked | ErrorCode::Exists | ErrorCode::NotFound
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Sets main of a copy to the remote's main, which may have moved on to `theirs`. A main here that neither contains gets
    /// a ref of its own.
    pub(super) fn mirror(&self, main: Oid, theirs: Option<Oid>) -> Result<(), git2::Error> {
        let here = self.tip()?;
        if here == Some(main) {
            return Ok(());
        }
        if let Some(here) = here
            && !self.is_behind(here, main)?
            && !theirs.map_or(Ok(false), |theirs| self.is_behind(here, theirs))?
        {
            tracing::error!(commit = %here, "commits that were pushed to the copy of the control repository are refused");
            let repository = self.lend()?;
            keep(&repository, here)?;
        }
        self.lend()?.reference(MAIN, main, true, "stoa: as at the remote").map(|_| ())
    }

    /// Puts main back from `refused` to `tip`, and gives `refused` a ref of its own; false when another writer moved main
    /// first.
    pub(super) fn restore(&self, tip: Oid, refused: Oid) -> Result<bool, git2::Error> {
        let repository = self.lend()?;
        keep(&repository, refused)?;
        drop(repository);
        self.advance(Some(refused), tip)
    }

    /// A handle for many reads in a row.
    pub(super) fn reader(&self) -> Result<Reader, git2::Error> {
        let (newest, most_entries) = (Arc::clone(&self.newest), self.most_entries);
        Ok(Reader::new(self.lend()?, newest, most_entries))
    }

    /// All files of objects in a commit, with the ids of their contents.
    pub(super) fn files(&self, commit: Oid, layout: &dyn Layout) -> Result<BTreeMap<String, Oid>, GitError> {
        let repository = self.lend()?;
        let tree = repository.find_commit(commit)?.tree_id();
        let mut files = BTreeMap::new();
        let mut walk = Walk::new(&repository, layout, ALL * self.most_entries);
        let excess = walk.differing(None, Some(tree), &mut |path, plain, id| {
            // Of a file that exists twice, the one in the folder itself counts.
            if plain == path || !files.contains_key(plain.as_ref()) {
                files.insert(plain.into_owned(), id);
            }
        })?;
        excess.map_or(Ok(files), |excess| Err(too_much(commit, excess)))
    }

    /// The files of objects that differ between two commits, by path. Without `from`, all.
    ///
    /// # Errors
    ///
    /// [`GitError::TooMuch`] when the walk exceeds a limit.
    pub(super) fn changes(&self, from: Option<Oid>, to: Oid, layout: &dyn Layout) -> Result<Vec<FileChange>, GitError> {
        let repository = self.lend()?;
        let tree = |commit: Oid| Ok::<_, git2::Error>(repository.find_commit(commit)?.tree_id());
        let mut paths = BTreeSet::new();
        let mut walk = Walk::new(&repository, layout, self.most_entries);
        let excess = walk.differing(from.map(tree).transpose()?, Some(tree(to)?), &mut |_, path, _| {
            paths.insert(path.into_owned());
        })?;
        if let Some(excess) = excess {
            return Err(too_much(to, excess));
        }
        let (mut before, mut after) = (trees::tree_of(&repository, from)?, trees::tree_of(&repository, Some(to))?);
        let mut blame = Blame::new(&repository, layout, self.most_entries, from, to)?;
        let mut changes = Vec::new();
        for path in paths {
            let names: Vec<&str> = path.split('/').collect();
            let (were, are) = (before.files(&repository, &names)?, after.files(&repository, &names)?);
            // A copy that is left after the counting one was removed did not count before either.
            let is_left = were.get(1..).is_some_and(|others| others == are);
            let (before, after) = (were.first(), are.first());
            // It may have moved from one folder to another.
            if before != after {
                let (before, after) = (before.copied(), after.copied().filter(|_| !is_left));
                let commit = blame.commit(&path)?;
                changes.push(FileChange { path, before, after, commit });
            }
        }
        Ok(changes)
    }

    /// Makes commits on top of `base`, durably, and returns the last. Main does not move.
    pub(super) fn commit(&self, base: Option<Oid>, builders: &[CommitBuilder]) -> Result<Option<Oid>, git2::Error> {
        let mut objects = Objects::default();
        let repository = self.lend()?;
        let tip = self.add_commits(&repository, base, builders, &mut objects)?;
        publish(&repository, &objects)?;
        Ok(tip)
    }

    /// Makes commits on top of `base` and appends to the histories that end in `past`, durably; returns both ends. No ref
    /// points to them yet.
    pub(super) fn commit_with_history(
        &self,
        base: Option<Oid>,
        builders: &[CommitBuilder],
        past: &[Oid],
        batch: &Batch,
    ) -> Result<(Option<Oid>, Appended), git2::Error> {
        let mut objects = Objects::default();
        let repository = self.lend()?;
        let tip = self.add_commits(&repository, base, builders, &mut objects)?;
        let past = history::append(&repository, &self.log, past, batch, &mut self.newest_past.lock(), &mut objects)?;
        publish(&repository, &objects)?;
        Ok((tip, past))
    }

    /// Appends to the histories that end in `past`, durably.
    pub(super) fn append_history(&self, past: &[Oid], batch: &Batch) -> Result<Oid, git2::Error> {
        Ok(self.commit_with_history(None, &[], past, batch)?.1.end)
    }

    /// Publishes the history with this end to readers, by this index if it exists already.
    pub(super) fn set_history(&self, end: Oid, index: Option<Oid>) -> Result<(), git2::Error> {
        let repository = self.lend()?;
        if repository.refname_to_id(HISTORY).ok() != Some(end) {
            repository.reference(HISTORY, end, true, "stoa")?;
        }
        match index {
            Some(index) => history::set_index(&repository, &self.log, index),
            None => history::index(&repository, &self.log, end, |objects| publish(&repository, objects)),
        }
    }

    fn add_commits(
        &self,
        repository: &Repository,
        base: Option<Oid>,
        builders: &[CommitBuilder],
        objects: &mut Objects,
    ) -> Result<Option<Oid>, git2::Error> {
        if builders.is_empty() {
            return Ok(base);
        }
        let newest = self.newest.lock().take();
        let mut tree = match newest {
            Some((commit, tree)) if Some(commit) == base => tree,
            _ => trees::tree_of(repository, base)?,
        };
        let mut tip = base;
        for builder in builders {
            for edit in &builder.edits {
                let content = edit.content.as_ref();
                let blob = content.map(|content| objects.add(ObjectType::Blob, content.as_bytes())).transpose()?;
                let names: Vec<&str> = edit.path.split('/').collect();
                tree.put(repository, &names, blob.map(Item::File), objects)?;
            }
            let commit = builder.encode(tree.id(objects)?, tip);
            tip = Some(objects.add(ObjectType::Commit, commit.as_bytes())?);
        }
        *self.newest.lock() = tip.map(|tip| (tip, tree));
        Ok(tip)
    }
}

fn publish(repository: &Repository, objects: &Objects) -> Result<(), git2::Error> {
    if objects.is_empty() { Ok(()) } else { packs::publish(repository, objects) }
}

/// Gives a commit that we take off main a ref of its own.
fn keep(repository: &Repository, refused: Oid) -> Result<(), git2::Error> {
    let name = format!("{REFUSED}/{refused}");
    repository.reference(&name, refused, true, "stoa: refused").map(|_| ())
}

/// Opens the repository at `path` with synced writes.
pub(super) fn open(path: &Path) -> Result<Repository, git2::Error> {
    synced(Repository::open_bare(path)?, path)
}

/// The newest commit on main of a repository; `None` when there is none.
pub(super) fn tip(repository: &Repository) -> Result<Option<Oid>, git2::Error> {
    match repository.refname_to_id(MAIN) {
        Ok(tip) => Ok(Some(tip)),
        Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The repository of somebody else in `folder`, with our settings: writes through it are synced, and its own settings stay
/// unchanged.
pub(super) fn open_another(folder: &Path, ours: &Repository) -> Result<Repository, git2::Error> {
    synced(Repository::open(folder)?, ours.path())
}

fn synced(repository: Repository, ours: &Path) -> Result<Repository, git2::Error> {
    let mut config = repository.config()?;
    config.add_file(&ours.join(LIBGIT2_CONFIG), ConfigLevel::App, true)?;
    repository.set_config(&config)?;
    Ok(repository)
}

fn too_much(commit: Oid, excess: Excess) -> GitError {
    GitError::TooMuch { commit: commit.to_string(), excess }
}
