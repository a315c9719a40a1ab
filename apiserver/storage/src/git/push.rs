//! Applies what people put on main, once, even when a crash comes between.
//!
//! A push is the difference between two trees, whatever commits led from one to the other. Its
//! changes are applied in the order of their paths, and the progress record counts them. The one
//! change that a crash can leave undecided is found in the log by the commit its record names.

use std::{collections::BTreeSet, sync::Arc};

use futures_util::StreamExt as _;
use git2::Oid;
use stoa_machinery::log::{Change, LogError};

use super::{
    GitError, IngestError, InvalidFile, PushedFile, RemoteError,
    progress::Push,
    project,
    repository::{Content, FileChange, LARGEST_FILE},
    session::Session,
    text,
};

impl Session {
    /// Applies what others put on main. When they took away what is accounted for, or put more there than is looked at,
    /// main is put back and theirs is kept beside it: what people decided is never lost to a rewritten history, and nothing
    /// waits for a push that cannot be applied.
    pub(super) async fn follow_main(&mut self, main: Oid) -> Result<(), GitError> {
        let Some(tip) = self.tip()? else { return self.ingest(main).await };
        if self.may_be_ours(main).await? {
            return Err(RemoteError::Raced.into());
        }
        if self.git(move |git| git.is_behind(tip, main)).await? {
            return match self.ingest(main).await {
                Err(GitError::TooMuch { .. }) if self.remote.is_none() => {
                    self.put_back(tip, main, "it changes more than is looked at").await
                }
                Err(error @ GitError::TooMuch { .. }) => Err(RemoteError::TooMuch(format!(
                    "{error}; nothing is taken from the remote or put there until its main is put back to {tip}"
                ))
                .into()),
                done => done,
            };
        }
        if self.remote.is_some() {
            return Err(RemoteError::Rewritten { main: main.to_string(), agreed: tip.to_string() }.into());
        }
        self.put_back(tip, main, "it does not go on from what is accounted for").await
    }

    /// Puts main back from `refused` to what is accounted for.
    async fn put_back(&mut self, tip: Oid, refused: Oid, why: &str) -> Result<(), GitError> {
        // Whoever has lost the lease fails here, and knows too little to judge.
        self.store.save(&self.progress).await?;
        if !self.git(move |git| git.restore(tip, refused)).await? {
            return Err(GitError::Raced);
        }
        tracing::error!(commit = %refused, restored = %tip, why, "main of the control repository is put back");
        self.report(|status| status.refused += 1);
        Ok(())
    }

    /// Applies what changed between the commit that is accounted for and `target`.
    pub(super) async fn ingest(&mut self, target: Oid) -> Result<(), GitError> {
        let from = self.tip()?;
        let layout = Arc::clone(&self.shared.layout);
        let changes = self.work(move |git| git.changes(from, target, layout.as_ref())).await?;
        let mut push = match self.progress.push.take().filter(|push| push.target == target.to_string()) {
            Some(push) => push,
            None => Push { target: target.to_string(), done: 0, since: self.shared.log.head().await? },
        };
        // Saved when it is taken up again, too: a write that was on its way when the work on it ended
        // comes before this one, so it is found below if it comes at all.
        self.progress.push = Some(push.clone());
        self.store.save(&self.progress).await?;
        tracing::info!(commit = %target, changes = changes.len(), done = push.done, "a push to the control repository");
        let applied = self.applied(&changes, &push).await?;
        for (number, change) in changes.into_iter().enumerate().skip(push.done) {
            if !applied.contains(&change.path) {
                self.ingest_file(&change, from).await?;
            }
            push.done = number + 1;
            self.progress.push = Some(push.clone());
            self.store.save(&self.progress).await?;
        }
        self.progress.push = None;
        self.account(target).await?;
        self.store.save(&self.progress).await?;
        self.report(|status| {
            status.pushes += 1;
            status.commit = Some(target.to_string());
        });
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
            // Compacted since, so it is long ago; what was applied then is applied again.
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

    /// Applies a file that differs from what it was in the commit `from`.
    async fn ingest_file(&mut self, change: &FileChange, from: Option<Oid>) -> Result<(), GitError> {
        let path = &change.path;
        let was_invalid = self.progress.invalid.contains_key(path);
        let before = self.content(change.before).await?.map(Content::bytes);
        let after = self.content(change.after).await?;
        let good = self.last_good(path, before.as_deref(), from).await?;
        let outcome = match &after {
            // A comment was written or lines were moved: nothing that counts.
            Some(Content::Bytes(after))
                if !was_invalid && before.as_ref().is_some_and(|before| text::same(before, after)) =>
            {
                return Ok(());
            }
            Some(Content::Bytes(after)) if self.is_current(path, after).await? => Ok(()),
            Some(Content::Bytes(after)) => {
                let before = good.as_ref().map(|(_, before)| before.as_slice());
                let file = PushedFile { path, content: after, before, commit: &change.commit };
                self.shared.ingest.apply(file).await
            }
            Some(Content::TooLarge(size)) => Err(IngestError::Invalid(format!(
                "the file has {size} bytes, and {LARGEST_FILE} are the most that one may have"
            ))),
            None => self.shared.ingest.remove(path, &change.commit).await,
        };
        match outcome {
            Ok(()) if was_invalid => {
                self.shared.ingest.valid_again(path).await?;
                self.progress.invalid.remove(path);
            }
            Ok(()) => {}
            Err(IngestError::Invalid(reason)) => {
                tracing::warn!(path, commit = change.commit.id, reason, "a pushed file is invalid");
                let good = good.map(|(commit, _)| commit.to_string());
                let invalid = InvalidFile { reason: reason.clone(), commit: change.commit.id.clone(), good };
                self.progress.invalid.insert(path.clone(), invalid);
                // Recorded before it is told: telling changes the object, so that a write which has not heard of the
                // file by then loses its race and looks again.
                self.store.save(&self.progress).await?;
                self.shared.ingest.invalid(path, &reason, &change.commit).await?;
            }
            Err(error) => return Err(error.into()),
        }
        let invalid = self.progress.invalid.clone();
        self.report(|status| {
            status.files += 1;
            status.invalid = invalid;
        });
        Ok(())
    }

    /// What is in a file of a commit.
    async fn content(&self, id: Option<Oid>) -> Result<Option<Content>, GitError> {
        let Some(id) = id else { return Ok(None) };
        self.git(move |git| git.reader()?.content(id)).await
    }

    /// The file as it was last applied or written, and a commit that has it so; it was `before` in the commit `from`.
    async fn last_good(
        &self,
        path: &str,
        before: Option<&[u8]>,
        from: Option<Oid>,
    ) -> Result<Option<(Oid, Vec<u8>)>, GitError> {
        let Some(invalid) = self.progress.invalid.get(path) else {
            return Ok(from.zip(before.map(<[u8]>::to_vec)));
        };
        let Some(commit) = invalid.good.as_deref().and_then(|id| Oid::from_str(id).ok()) else { return Ok(None) };
        let path = path.to_owned();
        let content = self.git(move |git| git.reader()?.read(commit, &path)).await?;
        Ok(content.map(|content| (commit, content.bytes())))
    }

    /// Whether the object already is what the file says.
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
            if self.progress.invalid.contains_key(&path) {
                self.shared.ingest.valid_again(&path).await?;
                self.progress.invalid.remove(&path);
                changed = true;
            }
        }
        if changed {
            self.store.save(&self.progress).await?;
            let invalid = self.progress.invalid.clone();
            self.report(|status| status.invalid = invalid);
        }
        Ok(())
    }
}
