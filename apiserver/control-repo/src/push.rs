//! Applies the commits that people put on main, once, also across a crash.
//!
//! A push is the difference between two trees, whatever commits lead from one to the other. Its changes are applied in the
//! order of their paths, after moved objects have left their old files. The progress record counts them now and then. The changes
//! that a crash leaves undecided are found in the log by the commit that their records name. Changes without a record are applied
//! again.
//!
//! Start at `Session::ingest`. Elsewhere: `blocked` retries files that cannot be applied yet.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use git2::Oid;
use stoa_machinery::log::{Change, Key, LogError};
use stoa_yaml_edit as text;
use tokio::time::Instant;

use super::{
    CommitInfo, GitError, IngestError, InvalidFile, PushedFile, RemoteError,
    invalid::{REASON, cut},
    progress::Push,
    project,
    reader::{Content, Good, LARGEST_FILE},
    repository::FileChange,
    session::Session,
};

/// The number of applied changes of a push between two saves of the record.
const STEP: usize = 100;
/// Or as many as take so long.
const LONGEST_STEP: Duration = Duration::from_secs(1);

/// A rejected file with a pending report.
#[derive(Debug)]
pub(super) struct Refused {
    pub path: String,
    pub reason: String,
    pub commit: CommitInfo,
    /// Whether it is blocked and retried.
    pub waits: bool,
}

/// Changes in the order of their application: an object that moves leaves its old file before anything else, since it cannot
/// have two.
fn moves_first(mut changes: Vec<FileChange>, key: impl Fn(&str) -> Option<Key>) -> Vec<FileChange> {
    let there: HashSet<Key> = changes.iter().filter(|c| c.after.is_some()).filter_map(|c| key(&c.path)).collect();
    let leaves = |c: &FileChange| c.after.is_none() && key(&c.path).is_some_and(|key| there.contains(&key));
    changes.sort_by_cached_key(|change| !leaves(change));
    changes
}

fn too_large(size: usize) -> IngestError {
    IngestError::Invalid(format!("the file has {size} bytes, and {LARGEST_FILE} are the most that one may have"))
}

impl Session {
    /// Applies commits of others on main. When they removed processed commits, or exceeded a limit, main is put back and
    /// their commit gets a ref of its own: no decision is lost to a rewritten history, and no work waits for a push that
    /// cannot be applied.
    pub(super) async fn follow_main(&mut self, main: Oid) -> Result<(), GitError> {
        let Some(tip) = self.tip()? else { return self.ingest(main).await };
        if self.may_be_ours(main).await? {
            return Err(RemoteError::Raced.into());
        }
        if self.git(move |git| git.is_behind(tip, main)).await? {
            return match self.ingest(main).await {
                Err(error @ GitError::TooMuch { .. }) => self.put_back(tip, main, &error.to_string()).await,
                done => done,
            };
        }
        if self.remote.is_some() {
            return Err(RemoteError::Rewritten { main: main.to_string(), agreed: tip.to_string() }.into());
        }
        self.put_back(tip, main, "it does not go on from what is accounted for").await
    }

    /// Puts main back from `refused` to the last processed commit.
    async fn put_back(&mut self, tip: Oid, refused: Oid, why: &str) -> Result<(), GitError> {
        // A leader without its lease fails here: its knowledge is out of date.
        self.store.save(&self.progress).await?;
        if !self.git(move |git| git.restore(tip, refused)).await? {
            return Err(GitError::Raced);
        }
        tracing::error!(commit = %refused, restored = %tip, why, "main of the control repository is put back");
        self.report(|status| status.refused += 1);
        Ok(())
    }

    /// The changes between two commits, in the order of their application.
    async fn changes(&self, from: Option<Oid>, target: Oid) -> Result<Vec<FileChange>, GitError> {
        let layout = Arc::clone(&self.shared.layout);
        match self.work(move |git| git.changes(from, target, layout.as_ref())).await {
            Ok(changes) => Ok(moves_first(changes, |path| self.shared.layout.key(path))),
            Err(error @ GitError::TooMuch { .. }) if self.remote.is_some() => {
                let until = match from {
                    Some(tip) => format!("its main is put back to {tip}"),
                    None => "its main has less".to_owned(),
                };
                let why = format!("{error}; nothing is taken from the remote or put there until {until}");
                Err(RemoteError::TooMuch(why).into())
            }
            Err(error) => Err(error),
        }
    }

    /// Applies the changes between the last processed commit and `target`.
    pub(super) async fn ingest(&mut self, target: Oid) -> Result<(), GitError> {
        let from = self.tip()?;
        let changes = self.changes(from, target).await?;
        let mut push = match self.progress.push.take().filter(|push| push.target == target.to_string()) {
            Some(push) => push,
            None => {
                let since = self.shared.log.head().await?;
                Push { target: target.to_string(), done: 0, since }
            }
        };
        // Saved also after an interruption: a write that was on its way then comes before this record, so the search below
        // finds it if it arrives at all.
        self.progress.push = Some(push.clone());
        self.store.save(&self.progress).await?;
        tracing::info!(commit = %target, changes = changes.len(), done = push.done, "a push to the control repository");
        let applied = self.applied(&changes, &push).await?;
        let unkept = self.progress.unkept;
        let (mut refused, mut saved) = (Vec::new(), Instant::now());
        for (number, change) in changes.iter().enumerate().skip(push.done) {
            if applied.contains(&change.path) {
                self.accept(&change.path).await?;
            } else {
                // A blocked file is not reported while that may end soon.
                refused.extend(self.ingest_file(change, from, target).await?.filter(|refused| !refused.waits));
            }
            push.done = number + 1;
            if push.done.is_multiple_of(STEP) || saved.elapsed() >= LONGEST_STEP {
                self.tell(&mut refused).await?;
                self.progress.push = Some(push.clone());
                self.store.save(&self.progress).await?;
                saved = Instant::now();
            }
        }
        self.tell(&mut refused).await?;
        self.progress.push = Some(push);
        if changes.iter().any(|change| self.progress.waits(&change.path)) {
            // From now on writes of their objects are rejected, and the files replace no concurrent write of others.
            self.store.save(&self.progress).await?;
            self.have_patience(&changes, target).await?;
        }
        self.progress.push = None;
        self.account(target).await?;
        self.store.save(&self.progress).await?;
        if self.progress.unkept > unkept {
            let files = self.progress.unkept - unkept;
            tracing::error!(commit = %target, files, "more pushed files are invalid than there is room for in the record");
        }
        let (invalid, files) = (self.progress.invalid.clone(), changes.len() as u64);
        self.report(|status| {
            status.pushes += 1;
            status.files += files;
            status.commit = Some(target.to_string());
            status.invalid = invalid;
        });
        Ok(())
    }

    /// Records and reports rejected files. A crash before all reports leads to another rejection.
    ///
    /// Recorded before the report, which changes the object: a concurrent write that does not know of the file loses its
    /// race and reads again.
    pub(super) async fn tell(&mut self, refused: &mut Vec<Refused>) -> Result<(), GitError> {
        if refused.is_empty() {
            return Ok(());
        }
        self.store.save(&self.progress).await?;
        for Refused { path, reason, commit, waits } in refused.drain(..) {
            tracing::warn!(path, commit = commit.id, reason, waits, "a pushed file is refused");
            self.shared.ingest.invalid(&path, &reason, &commit).await?;
        }
        Ok(())
    }

    /// The paths of this push whose records are in the log already.
    async fn applied(&self, changes: &[FileChange], push: &Push) -> Result<BTreeSet<String>, GitError> {
        let head = self.shared.log.head().await?;
        let mut applied = BTreeSet::new();
        if head == push.since {
            return Ok(applied);
        }
        let mut records = match self.shared.log.follow(push.since).await {
            Ok(records) => records,
            // The log was compacted since, so that was long ago; the changes are applied again.
            Err(LogError::Expired { .. }) => return Ok(applied),
            Err(error) => return Err(error.into()),
        };
        let commits: BTreeSet<String> = changes.iter().map(|change| change.commit.origin_message()).collect();
        let layout = self.shared.layout.as_ref();
        while let Some(record) = records.next().await.transpose()? {
            if record.origin.user == layout.ingest_user() && commits.contains(&record.origin.message) {
                let path = match &record.change {
                    Change::Put(value) => layout.location(&record.key, value).path(),
                    Change::Delete => None,
                };
                applied.extend(path.or_else(|| self.index.path(&record.key).map(str::to_owned)));
            }
            if record.version >= head {
                break;
            }
        }
        Ok(applied)
    }

    /// Applies a file that differs between the commits `from` and `target`; returns the report when it is rejected.
    async fn ingest_file(
        &mut self,
        change: &FileChange,
        from: Option<Oid>,
        target: Oid,
    ) -> Result<Option<Refused>, GitError> {
        let path = &change.path;
        let (was_invalid, good) = match self.progress.invalid.get(path) {
            Some(invalid) => (true, invalid.good_commit()),
            None => (false, None),
        };
        let (name, [old, new]) = (path.clone(), [change.before, change.after]);
        let (before, after, good) = self
            .git(move |git| {
                let reader = git.reader()?;
                let before = old.map_or(Ok(None), |id| reader.content(id))?.map(Content::bytes);
                let after = new.map_or(Ok(None), |id| reader.pushed(target, &name, Some(id)))?;
                let good = if was_invalid { reader.good(good, &name)? } else { from.zip(before.clone()) };
                Ok((before, after, good))
            })
            .await?;
        // A comment was written or lines were moved: nothing that counts.
        if let (Some(before), Some(Content::Bytes(after))) = (&before, &after)
            && !was_invalid
            && text::same(before, after)
        {
            return Ok(None);
        }
        let outcome = self.apply(path, after.as_ref(), good.as_ref(), &change.commit).await?;
        self.conclude(path, outcome, good.map(|(commit, _)| commit), &change.commit).await
    }

    /// Applies a pushed file or removal, unless the object agrees with it already. `good` is the content when it was last
    /// applied or written.
    pub(super) async fn apply(
        &self,
        path: &str,
        pushed: Option<&Content>,
        good: Option<&Good>,
        commit: &CommitInfo,
    ) -> Result<Result<(), IngestError>, GitError> {
        Ok(match pushed {
            Some(Content::Bytes(content)) if self.is_current(path, content).await? => Ok(()),
            Some(Content::Bytes(content)) => {
                let before = good.map(|(_, before)| before.as_slice());
                let is_first = self.tip()?.is_none();
                self.shared.ingest.apply(PushedFile { path, content, before, commit, is_first }).await
            }
            Some(Content::TooLarge(size)) => Err(too_large(*size)),
            Some(Content::Submodule) => Err(IngestError::Invalid("a submodule is no file".to_owned())),
            None => self.shared.ingest.remove(path, commit).await,
        })
    }

    /// Records the outcome for a file, whose last valid content is in the commit `good`; returns the report when it was
    /// rejected.
    pub(super) async fn conclude(
        &mut self,
        path: &str,
        outcome: Result<(), IngestError>,
        good: Option<Oid>,
        commit: &CommitInfo,
    ) -> Result<Option<Refused>, GitError> {
        let (reason, waits) = match outcome {
            Ok(()) => {
                self.accept(path).await?;
                return Ok(None);
            }
            Err(IngestError::Invalid(reason)) => (reason, false),
            Err(IngestError::Waiting(reason)) => (reason, true),
            Err(error @ IngestError::Unavailable(_)) => return Err(error.into()),
        };
        let reason = cut(&reason, REASON);
        let good = good.map(|commit| commit.to_string());
        let file = InvalidFile { reason: reason.clone(), commit: commit.id.clone(), good, waits };
        // A file without room in the record is not retried, so it is reported at once.
        let waits = self.progress.refuse(path, file) && waits && self.progress.waits(path);
        Ok(Some(Refused { path: path.to_owned(), reason, commit: commit.clone(), waits }))
    }

    /// Clears the problem of a file and its report; returns whether the record had it.
    pub(super) async fn accept(&mut self, path: &str) -> Result<bool, GitError> {
        if !self.progress.may_be_told(path) {
            return Ok(false);
        }
        self.shared.ingest.valid_again(path).await?;
        Ok(self.progress.accept(path))
    }

    /// Whether the object agrees with the file already.
    async fn is_current(&self, path: &str, content: &[u8]) -> Result<bool, GitError> {
        let layout = self.shared.layout.as_ref();
        let Some(key) = self.index.key(path, layout) else { return Ok(false) };
        let Some(entry) = self.shared.log.read(&key).await? else { return Ok(false) };
        Ok(layout.location(&key, &entry.value).path().as_deref() == Some(path)
            && project::rendered(layout, &key, &entry.value)
                .is_some_and(|rendered| text::same(rendered.as_bytes(), content)))
    }

    /// Hears that our own commits replaced these files, and none of them is invalid any more.
    pub(super) async fn overwrote(&mut self, paths: BTreeSet<String>) -> Result<(), GitError> {
        let mut changed = false;
        for path in paths {
            changed |= self.accept(&path).await?;
        }
        if changed {
            self.store.save(&self.progress).await?;
            let invalid = self.progress.invalid.clone();
            self.report(|status| status.invalid = invalid);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, after: bool) -> FileChange {
        let commit = CommitInfo {
            id: "c".repeat(40),
            author: String::new(),
            email: String::new(),
            subject: String::new(),
            time: 0,
        };
        let id = Oid::hash_object(git2::ObjectType::Blob, path.as_bytes()).unwrap();
        FileChange { path: path.to_owned(), before: (!after).then_some(id), after: after.then_some(id), commit }
    }

    #[test]
    fn moved_object_leaves_old_file_first() {
        let changes = vec![
            change("a/new", true),
            change("a/web", true),
            change("b/gone", false),
            change("b/web", false),
            change("c/db", false),
            change("d/db", true),
        ];
        let ordered = moves_first(changes, |path| Some(Key::new(path.rsplit_once('/')?.1)));
        let paths: Vec<_> = ordered.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(paths, ["b/web", "c/db", "a/new", "a/web", "b/gone", "d/db"]);
    }
}
