//! The work on the repository and the log between two failures.
//!
//! Start at [`Session::resume`]. Elsewhere: `sync` has the work with a remote of record, and `push` the work with pushes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use git2::Oid;
use stoa_machinery::log::{Key, LogError, Record, Snapshot, Version};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::{
    GitError, GitStatus, RemoteError,
    blocked::Retry,
    commit_builder::{CommitBuilder, Person},
    history::{self, Batch},
    progress::{Point, Progress, Store},
    project::{self, Index},
    projector::Shared,
    remote::{Heads, Remote},
    repository::ControlRepository,
};

/// The progress record is renewed after this many records of other kinds.
const SKIPPED: u64 = 4096;
/// Or after so long, with any such record.
const BEHIND: Duration = Duration::from_secs(5);

/// A session: the known state of the log and of main.
pub(super) struct Session {
    pub shared: Arc<Shared>,
    pub store: Store,
    pub progress: Progress,
    /// The objects that have files, as of `version`.
    pub index: Index,
    /// The remote that has main, and its refs as far as known.
    pub remote: Option<Remote>,
    pub heads: Heads,
    /// The end of the rest of its main after a push of this session.
    pub rests_until: Instant,
    /// When files that wait for something are tried again.
    pub retry: Retry,
    repository: ControlRepository,
    /// The newest processed version.
    pub version: Version,
    /// The newest processed version at the start of the session.
    begun: Version,
    /// Cancels transfers at the end of the session.
    _stop: DropGuard,
}

impl Session {
    /// Reads the state, and finishes interrupted work.
    pub(super) async fn resume(shared: Arc<Shared>) -> Result<Self, GitError> {
        let (mut store, progress) = Store::load(Arc::clone(&shared.log), shared.options.fence.clone()).await?;
        let mut progress = progress.unwrap_or_default();
        if progress.id.is_empty() {
            // In the log before anything is anywhere by that name.
            progress.id = Uuid::new_v4().to_string();
            store.save(&progress).await?;
        }
        let (path, id, is_copy) = (shared.path.clone(), progress.id.clone(), shared.options.remote.is_some());
        let most_entries = shared.options.most_entries;
        let open = move || {
            let repository = ControlRepository::open(&path, is_copy)?;
            Ok::<_, git2::Error>(repository.of_log(&id).with_most_entries(most_entries))
        };
        let repository = tokio::task::spawn_blocking(open).await??;
        let (version, begun) = (progress.at.version, progress.at.version);
        let stop = CancellationToken::new();
        let remote = shared.options.remote.clone().map(|options| Remote::new(options, stop.clone()));
        let retry = Retry::soon(shared.options.retry);
        let mut session = Self {
            shared,
            store,
            progress,
            index: Index::default(),
            remote,
            heads: Heads::default(),
            rests_until: Instant::now(),
            retry,
            repository,
            version,
            begun,
            _stop: stop.drop_guard(),
        };
        let known =
            if session.remote.is_some() { session.settle_with_remote().await? } else { session.settle().await? };
        let at = session.progress.at.version;
        let old = match session.shared.log.scan("", Some(at)).await {
            // The state of main can be continued record by record.
            Ok(snapshot) if known => Some(snapshot),
            Ok(_) | Err(LogError::Expired { .. } | LogError::Future { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        session.index = match &old {
            Some(snapshot) => session.index_of(snapshot).await?,
            None => session.index_of(&session.shared.log.scan("", None).await?).await?,
        };
        session.version = session.progress.at.version;
        session.begin_history(old.is_some()).await?;
        session.complete_remote().await?;
        session.catch_up_with_main().await?;
        if old.is_none() {
            session.reconcile(known).await?;
        }
        let (commit, invalid) = (session.progress.at.commit.clone(), session.progress.invalid.clone());
        session.report(|status| {
            status.commit = commit;
            status.invalid = invalid;
        });
        session.begun = session.version;
        Ok(session)
    }

    /// The objects of a snapshot that have files. An object that does not say where its file is has the existing file,
    /// preferably one without a problem.
    async fn index_of(&self, snapshot: &Snapshot) -> Result<Index, GitError> {
        let layout = Arc::clone(&self.shared.layout);
        let mut index = Index::of(snapshot, layout.as_ref());
        if let Some(tip) = self.tip()?
            && index.is_incomplete()
        {
            let mut files: Vec<String> =
                self.work(move |git| git.files(tip, layout.as_ref())).await?.into_keys().collect();
            files.sort_by_key(|path| self.progress.invalid.contains_key(path));
            index.find(files, self.shared.layout.as_ref());
        }
        Ok(index)
    }

    /// Decides whether the announced move of main took place. False when main is unrelated to the record, so that only the
    /// log knows the objects.
    async fn settle(&mut self) -> Result<bool, GitError> {
        let main = self.git(|git| git.tip()).await?;
        if let Some(next) = self.progress.next.take()
            && let Some(commit) = oid(&next)?
            && self.git(move |git| git.was_moved_to(commit, main)).await?
        {
            self.progress.at = next;
        }
        match (self.tip()?, main) {
            (Some(tip), Some(_)) if self.git(move |git| git.contains(tip)).await? => Ok(true),
            // The repository was replaced. Its commits stay as history.
            (Some(_), Some(main)) => {
                tracing::warn!(commit = %main, "the control repository was replaced; the log decides what is in it");
                self.progress.at.commit = Some(main.to_string());
                self.progress.push = None;
                Ok(false)
            }
            (tip, None) => {
                // A deleted branch is restored.
                let old = match tip {
                    Some(tip) if self.git(move |git| git.contains(tip)).await? => Some(tip),
                    _ => None,
                };
                let first = match old {
                    Some(tip) => Some(tip),
                    None => self.first_commit().await?,
                };
                if let Some(first) = first {
                    if !self.git(move |git| git.advance(None, first)).await? {
                        return Err(GitError::Raced);
                    }
                    self.progress.at.commit = Some(first.to_string());
                }
                Ok(old.is_some() || tip.is_none())
            }
            // An older repository: its files count as pushed.
            (None, Some(_)) => Ok(true),
        }
    }

    /// A commit to begin with, which is nowhere yet.
    pub(super) async fn first_commit(&self) -> Result<Option<Oid>, GitError> {
        let start = CommitBuilder {
            edits: Vec::new(),
            author: Person::stoa(),
            time_ms: self.shared.options.clock.now_ms(),
            message: "start the control repository\n".to_owned(),
        };
        self.git(move |git| git.commit(None, &[start])).await
    }

    /// Makes sure that the recorded history exists. Without one, a new history begins with the index, if that is `current`,
    /// or else with the next batch.
    async fn begin_history(&mut self, current: bool) -> Result<(), GitError> {
        if let Some(end) = self.history()?
            && !self.git(move |git| git.contains(end)).await?
        {
            self.progress.at.history = None;
        }
        if current && self.progress.at.history.is_none() {
            let past = self.past().await?;
            let lost = self.lost_history(past.clone()).await?;
            let end = self.git(move |git| git.append_history(&past, &lost)).await?;
            self.progress.at.history = Some(end.to_string());
            self.store.save(&self.progress).await?;
        }
        self.show_history(None).await
    }

    /// The batch that the histories that end in `past` lack: every version, as long as the log has them. The recorded
    /// history may have been on a lost machine.
    async fn lost_history(&self, past: Vec<Oid>) -> Result<Batch, GitError> {
        let ends = past.clone();
        let Some(since) = self.git(move |git| history::newest_version(&*git.lend()?, &ends)).await? else {
            return self.missing_history(past).await;
        };
        if since >= self.version {
            return Ok(Batch::new(self.version, Vec::new()));
        }
        let records = match self.shared.log.scan("", Some(since)).await {
            Ok(snapshot) => match self.shared.log.follow(since).await {
                Ok(records) => Some((snapshot, records)),
                Err(LogError::Expired { .. }) => None,
                Err(error) => return Err(error.into()),
            },
            Err(LogError::Expired { .. } | LogError::Future { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let Some((snapshot, mut records)) = records else { return self.missing_history(past).await };
        let layout = self.shared.layout.as_ref();
        let (mut index, mut steps) = (Index::of(&snapshot, layout), Vec::new());
        // The record of the progress comes after the versions that it covers.
        while let Some(record) = records.next().await {
            let record = record?;
            if record.version > self.version {
                break;
            }
            steps.extend(project::step(layout, &mut index, &record));
        }
        Ok(Batch::new(self.version, steps))
    }

    /// The batch that the histories that end in `past` lack of the index, when the log has lost the versions in between.
    async fn missing_history(&self, past: Vec<Oid>) -> Result<Batch, GitError> {
        let (index, layout, at) = (self.index.clone(), Arc::clone(&self.shared.layout), self.version);
        let known = self.history()?.map(|_| self.progress.at.version);
        self.git(move |git| history::difference(&*git.lend()?, &past, known, at, index.authored(layout.as_ref()))).await
    }

    /// Publishes the history to readers up to the record, by this index if it exists already.
    async fn show_history(&self, index: Option<Oid>) -> Result<(), GitError> {
        match self.history()? {
            Some(end) => self.git(move |git| git.set_history(end, index)).await,
            None => Ok(()),
        }
    }

    pub(super) fn history(&self) -> Result<Option<Oid>, GitError> {
        Ok(self.progress.at.history.as_deref().map(Oid::from_str).transpose()?)
    }

    /// Applies commits of others on main, first those that a crash interrupted.
    async fn catch_up_with_main(&mut self) -> Result<(), GitError> {
        if let Some(push) = self.progress.push.clone()
            && let Ok(target) = Oid::from_str(&push.target)
            && self.git(move |git| git.contains(target)).await?
        {
            self.ingest(target).await?;
        }
        loop {
            match self.main().await? {
                Some(main) if Some(main) != self.tip()? => self.follow_main(main).await?,
                _ => return Ok(()),
            }
        }
    }

    /// Applies commits of others on main since the last check.
    pub(super) async fn look_at_main(&mut self) -> Result<(), GitError> {
        let Some(main) = self.main().await? else { return Err(GitError::Raced) };
        if Some(main) != self.tip()? {
            self.follow_main(main).await?;
        }
        Ok(())
    }

    /// Makes main agree with the log, in one commit, because the records in between are lost. Where the objects behind main
    /// are `known`, only the files of changed objects are compared: after a quiet time there are none.
    async fn reconcile(&mut self, known: bool) -> Result<(), GitError> {
        loop {
            let snapshot = self.shared.log.scan("", None).await?;
            let layout = Arc::clone(&self.shared.layout);
            let index = self.index_of(&snapshot).await?;
            self.index = index.clone();
            self.version = snapshot.version;
            let (version, time_ms) = (snapshot.version, self.shared.options.clock.now_ms());
            let invalid = self.progress.invalid.clone();
            let tip = self.tip()?;
            let changed = if known { self.changed().await? } else { None };
            let builder = self
                .work(move |git| match tip {
                    Some(tip) => {
                        let has_changed = |path: &str| match (&changed, layout.key(path)) {
                            (Some(changed), Some(key)) => changed.contains(&key),
                            _ => true,
                        };
                        let keep = |path: &str| invalid.contains_key(path) || !has_changed(path);
                        project::reconciliation(git, tip, layout.as_ref(), &index, &keep, version, time_ms)
                    }
                    None => Ok(None),
                })
                .await?;
            let past = self.past().await?;
            let missing = self.missing_history(past).await?;
            if self.publish(builder.into_iter().collect(), missing).await? {
                self.progress.at.version = self.version;
                return self.store.save(&self.progress).await;
            }
            if self.remote.is_some() {
                // Main may be the announced commit, which is decided anew.
                return Err(self.lost());
            }
            self.progress.next = None;
            self.catch_up_with_main().await?;
        }
    }

    /// The objects that changed since main was made; `None` where that is unknown.
    async fn changed(&self) -> Result<Option<BTreeSet<Key>>, GitError> {
        let Some(end) = self.history()? else { return Ok(None) };
        let (index, layout, at) = (self.index.clone(), Arc::clone(&self.shared.layout), self.progress.at.version);
        self.git(move |git| history::changed_since(&*git.lend()?, end, at, &index.authored(layout.as_ref()))).await
    }

    /// The error after another writer moved main.
    pub(super) fn lost(&self) -> GitError {
        if self.remote.is_some() { RemoteError::Raced.into() } else { GitError::Raced }
    }

    /// Turns records into commits; false when another writer moved main.
    pub(super) async fn project(&mut self, records: Vec<Record>) -> Result<bool, GitError> {
        let Some(last) = records.last().map(|record| record.version) else { return Ok(true) };
        let Some(tip) = self.tip()? else { return Ok(false) };
        let layout = Arc::clone(&self.shared.layout);
        let mut index = std::mem::take(&mut self.index);
        let invalid = self.progress.invalid.clone();
        let (builders, steps, index) = self
            .work(move |git| {
                let (builders, steps) = project::builders(git, tip, layout.as_ref(), &mut index, &invalid, &records)?;
                Ok((builders, steps, index))
            })
            .await?;
        self.index = index;
        self.version = last;
        self.publish(builders, Batch::new(last, steps)).await
    }

    /// Puts commits on main and a batch into the history, which begins with it where none exists; false when another writer
    /// moved main.
    async fn publish(&mut self, builders: Vec<CommitBuilder>, batch: Batch) -> Result<bool, GitError> {
        if builders.is_empty() && batch.is_empty() && self.progress.at.history.is_some() {
            if let Some(tip) = self.tip()? {
                self.index.published(tip);
            }
            return Ok(true);
        }
        let count = builders.len() as u64;
        let paths: BTreeSet<String> =
            builders.iter().flat_map(|builder| &builder.edits).map(|edit| edit.path.clone()).collect();
        let tip = self.tip()?;
        let past = self.past().await?;
        let made = self.git(move |git| git.commit_with_history(tip, &builders, &past, &batch)).await?;
        let (Some(commit), history) = made else { return Ok(true) };
        let next =
            Point { commit: Some(commit.to_string()), version: self.version, history: Some(history.end.to_string()) };
        self.progress.next = Some(next.clone());
        self.store.save(&self.progress).await?;
        let theirs = self.heads.history;
        let moved = match self.remote {
            Some(_) => match self.push(tip, commit, Some(history.end)).await {
                // The remote was read, so the push cannot arrive any more.
                Err(error @ GitError::Remote(RemoteError::Refused(_))) => {
                    self.progress.next = None;
                    self.store.save(&self.progress).await?;
                    return Err(error);
                }
                pushed => pushed?,
            },
            None => tip == Some(commit) || self.git(move |git| git.advance(tip, commit)).await?,
        };
        if !moved {
            return Ok(false);
        }
        self.account(commit).await?;
        self.index.published(commit);
        self.progress.at = next;
        self.show_history(history.index).await?;
        // Otherwise the next save records it; until then main and the ref of our last move show it.
        if self.remote.is_some() {
            self.store.save(&self.progress).await?;
        }
        if self.heads.history != theirs {
            // A late push of another leader may have set a history without this one.
            self.complete_remote().await?;
        }
        let safe = self.version;
        self.report(|status| {
            status.commits += count;
            status.commit = Some(commit.to_string());
            status.safe = safe;
        });
        self.overwrote(paths).await?;
        Ok(true)
    }

    /// Reports the progress, and records it when the last record is old.
    pub(super) async fn caught_up_to(&mut self, version: Version) -> Result<(), GitError> {
        let is_behind = self.store.age_before(version).is_some_and(|age| age >= BEHIND);
        if version.0 >= self.progress.at.version.0 + SKIPPED || is_behind {
            self.progress.at.version = version;
            self.store.save(&self.progress).await?;
        }
        let head = self.shared.log.head().await?;
        let safe = self.progress.at.version;
        // Progress clears an error; a retry alone does not.
        let gets_on = version > self.begun || version >= head;
        self.report(|status| {
            status.projected = version;
            status.safe = safe;
            status.backlog = head.0.saturating_sub(version.0);
            if gets_on {
                status.error = None;
                status.remote_problem = None;
            }
        });
        Ok(())
    }

    /// The commit that is accounted for.
    pub(super) fn tip(&self) -> Result<Option<Oid>, GitError> {
        oid(&self.progress.at)
    }

    pub(super) fn report(&self, change: impl FnOnce(&mut GitStatus)) {
        self.shared.status.send_if_modified(|status| {
            let before = status.clone();
            change(status);
            *status != before
        });
    }

    /// Works on the repository, off the threads that must not block.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ControlRepository) -> Result<T, GitError> + Send + 'static,
    ) -> Result<T, GitError> {
        let repository = self.repository.clone();
        tokio::task::spawn_blocking(move || work(&repository)).await?
    }

    pub(super) async fn git<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ControlRepository) -> Result<T, git2::Error> + Send + 'static,
    ) -> Result<T, GitError> {
        self.work(move |repository| Ok(work(repository)?)).await
    }
}

pub(super) fn oid(point: &Point) -> Result<Option<Oid>, GitError> {
    Ok(point.commit.as_deref().map(Oid::from_str).transpose()?)
}
