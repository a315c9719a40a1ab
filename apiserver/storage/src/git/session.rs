//! One continuous stretch of work on the repository and the log, from finding out where things stand to the first failure.
//!
//! Start at [`Session::resume`]. What a session does with a remote of record is in `sync`, what with pushes in `push`.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use git2::Oid;
use stoa_machinery::log::{Key, LogError, Record, Snapshot, Version};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::{
    GitError, GitStatus, RemoteError,
    draft::{Draft, Person},
    history::Batch,
    progress::{Point, Progress, Store},
    project::{self, Index},
    projector::Shared,
    remote::{Heads, Remote},
    repository::ControlRepository,
    waiting::Retry,
};

/// The progress record is renewed after so many records that have nothing to do with Git.
const SKIPPED: u64 = 4096;
/// Or after so long, with any such record.
const BEHIND: Duration = Duration::from_secs(5);

/// One continuous stretch of work: what is known about the log and main.
pub(super) struct Session {
    pub shared: Arc<Shared>,
    pub store: Store,
    pub progress: Progress,
    /// The objects that have files, as of `version`.
    pub index: Index,
    /// The remote that has main, and what it has as far as is known.
    pub remote: Option<Remote>,
    pub heads: Heads,
    /// Until when its main is left to others, as far as this session moved it.
    pub rests_until: Instant,
    /// When files that wait for something are tried again.
    pub retry: Retry,
    repository: ControlRepository,
    /// Every record up to here has been looked at.
    pub version: Version,
    /// And had been when it began.
    begun: Version,
    /// Ends what is transferred when the session does.
    _stop: DropGuard,
}

impl Session {
    /// Finds out where things stand, and finishes what was interrupted.
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
            // What is known of main can be continued record by record.
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

    /// The objects of a snapshot that have files. One that does not say where its file is has the one that is there, rather
    /// one that nothing is wrong with.
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

    /// Decides whether main was moved where it was about to be moved. False when main has nothing
    /// to do with what is recorded, so that only the log can tell what belongs there.
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
            // The repository is another than it was. What is in it is kept as history.
            (Some(_), Some(main)) => {
                tracing::warn!(commit = %main, "the control repository was replaced; the log decides what is in it");
                self.progress.at.commit = Some(main.to_string());
                self.progress.push = None;
                Ok(false)
            }
            (tip, None) => {
                // A branch that went away comes back where it was.
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
            // A repository that was there before: what is in it counts as pushed.
            (None, Some(_)) => Ok(true),
        }
    }

    /// A commit to begin with, which is nowhere yet.
    pub(super) async fn first_commit(&self) -> Result<Option<Oid>, GitError> {
        let start = Draft {
            edits: Vec::new(),
            author: Person::stoa(),
            time_ms: self.shared.options.clock.now_ms(),
            message: "start the control repository\n".to_owned(),
        };
        self.git(move |git| git.commit(None, &[start])).await
    }

    /// Sees to it that the history of what was authored that is recorded is there. Where there is none it begins with the
    /// index, if that is `current`; otherwise what comes next begins it.
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

    /// What the histories that end in `past` lack: every version, as long as the log has them. The one that is recorded
    /// may have been on a machine that is gone.
    async fn lost_history(&self, past: Vec<Oid>) -> Result<Batch, GitError> {
        let ends = past.clone();
        let Some(since) = self.git(move |git| git.newest_version(&ends)).await? else {
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
        // The record of the progress itself comes after what it says was looked at.
        while let Some(record) = records.next().await {
            let record = record?;
            if record.version > self.version {
                break;
            }
            steps.extend(project::step(layout, &mut index, &record));
        }
        Ok(Batch::new(self.version, steps))
    }

    /// What the histories that end in `past` lack of what the index has, when the log no longer tells how it came about.
    async fn missing_history(&self, past: Vec<Oid>) -> Result<Batch, GitError> {
        let (index, layout, at) = (self.index.clone(), Arc::clone(&self.shared.layout), self.version);
        let known = self.history()?.map(|_| self.progress.at.version);
        self.git(move |git| git.history_difference(&past, known, at, index.authored(layout.as_ref()))).await
    }

    /// Shows readers the history as far as it is recorded, by this index if it was made already.
    async fn show_history(&self, index: Option<Oid>) -> Result<(), GitError> {
        match self.history()? {
            Some(end) => self.git(move |git| git.set_history(end, index)).await,
            None => Ok(()),
        }
    }

    pub(super) fn history(&self) -> Result<Option<Oid>, GitError> {
        Ok(self.progress.at.history.as_deref().map(Oid::from_str).transpose()?)
    }

    /// Applies what others put on main, beginning with what was being applied before a crash.
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

    /// Applies what others put on main since it was last looked at, if they did.
    pub(super) async fn look_at_main(&mut self) -> Result<(), GitError> {
        let Some(main) = self.main().await? else { return Err(GitError::Raced) };
        if Some(main) != self.tip()? {
            self.follow_main(main).await?;
        }
        Ok(())
    }

    /// Makes main what the log says now, in one commit, because the records in between are gone. Where it is `known` what
    /// main was made of, only the files of what is another by now are looked at: after a quiet time those are none.
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
            let draft = self
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
            if self.publish(draft.into_iter().collect(), missing).await? {
                self.progress.at.version = self.version;
                return self.store.save(&self.progress).await;
            }
            if self.remote.is_some() {
                // Main may be what was announced, which is decided anew.
                return Err(self.lost());
            }
            self.progress.next = None;
            self.catch_up_with_main().await?;
        }
    }

    /// The objects of which something else was authored when main was made; `None` where nobody can tell.
    async fn changed(&self) -> Result<Option<BTreeSet<Key>>, GitError> {
        let Some(end) = self.history()? else { return Ok(None) };
        let (index, layout, at) = (self.index.clone(), Arc::clone(&self.shared.layout), self.progress.at.version);
        self.git(move |git| git.changed_since(end, at, &index.authored(layout.as_ref()))).await
    }

    /// What it means that somebody else moved main.
    pub(super) fn lost(&self) -> GitError {
        if self.remote.is_some() { RemoteError::Raced.into() } else { GitError::Raced }
    }

    /// Turns records into commits; false when somebody else moved main.
    pub(super) async fn project(&mut self, records: Vec<Record>) -> Result<bool, GitError> {
        let Some(last) = records.last().map(|record| record.version) else { return Ok(true) };
        let Some(tip) = self.tip()? else { return Ok(false) };
        let layout = Arc::clone(&self.shared.layout);
        let mut index = std::mem::take(&mut self.index);
        let invalid = self.progress.invalid.clone();
        let (drafts, steps, index) = self
            .work(move |git| {
                let (drafts, steps) = project::drafts(git, tip, layout.as_ref(), &mut index, &invalid, &records)?;
                Ok((drafts, steps, index))
            })
            .await?;
        self.index = index;
        self.version = last;
        self.publish(drafts, Batch::new(last, steps)).await
    }

    /// Puts commits on main and a batch into the history, which begins with it where there is none; false when somebody
    /// else moved main.
    async fn publish(&mut self, drafts: Vec<Draft>, batch: Batch) -> Result<bool, GitError> {
        if drafts.is_empty() && batch.is_empty() && self.progress.at.history.is_some() {
            if let Some(tip) = self.tip()? {
                self.index.published(tip);
            }
            return Ok(true);
        }
        let count = drafts.len() as u64;
        let paths: BTreeSet<String> =
            drafts.iter().flat_map(|draft| &draft.edits).map(|edit| edit.path.clone()).collect();
        let tip = self.tip()?;
        let past = self.past().await?;
        let made = self.git(move |git| git.commit_with_history(tip, &drafts, &past, &batch)).await?;
        let (Some(commit), history) = made else { return Ok(true) };
        let next =
            Point { commit: Some(commit.to_string()), version: self.version, history: Some(history.end.to_string()) };
        self.progress.next = Some(next.clone());
        self.store.save(&self.progress).await?;
        let theirs = self.heads.history;
        let moved = match self.remote {
            Some(_) => match self.push(tip, commit, Some(history.end)).await {
                // It was looked at, so that it cannot come about any more.
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
        // Otherwise the record says so when it is saved next; until then main does, and what was moved from here.
        if self.remote.is_some() {
            self.store.save(&self.progress).await?;
        }
        if self.heads.history != theirs {
            // A late push of another may have put a history there that lacks this one.
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

    /// Says how far it is, and records it when that was long ago.
    pub(super) async fn caught_up_to(&mut self, version: Version) -> Result<(), GitError> {
        let is_behind = self.store.age_before(version).is_some_and(|age| age >= BEHIND);
        if version.0 >= self.progress.at.version.0 + SKIPPED || is_behind {
            self.progress.at.version = version;
            self.store.save(&self.progress).await?;
        }
        let head = self.shared.log.head().await?;
        let safe = self.progress.at.version;
        // What kept it from getting on is over when it got on, and not because it tries again.
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
