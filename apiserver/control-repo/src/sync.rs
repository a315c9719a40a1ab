//! Follows a remote of record: main is there, and the repository here is a copy that may be lost.
//!
//! The order of steps is that of a repository without a remote, with a push in place of the move of main. First commits are made
//! here, then the record in the log names the next main, and then the commits are pushed. After a crash, on any machine, the
//! remote's main shows whether the push arrived. A push may also arrive late, after another leader took over. So the record keeps
//! the announced commits until main has moved on from their base, after which the remote rejects them.
//!
//! Elsewhere: `remote` fetches and pushes.

use std::sync::Arc;

use git2::Oid;
use tokio::time::Instant;

use super::{
    GitError, RemoteError,
    history::Batch,
    progress::Point,
    remote::{Heads, Remote, Update},
    repository::MAIN,
    session::{Session, oid},
};

/// The most announced moves of main in the record. Each leader with an undecided push adds one.
const UNDECIDED: usize = 32;

impl Session {
    /// Where main is now; its commits are here.
    pub(super) async fn main(&mut self) -> Result<Option<Oid>, GitError> {
        if self.remote.is_some() {
            return Ok(self.fetch().await?.main);
        }
        self.git(|git| git.tip()).await
    }

    async fn fetch(&mut self) -> Result<Heads, GitError> {
        let Some(remote) = self.remote.clone() else { return Ok(self.heads) };
        let name = Remote::history_of(&self.progress.id);
        let heads = self.work(move |git| Ok(remote.fetch(&git.repository()?, true, Some(&name))?)).await?;
        self.heads = heads;
        Ok(heads)
    }

    /// Decides which announced move of main took place. False when no recorded commit is left anywhere, so that only the log
    /// knows the objects.
    pub(super) async fn settle_with_remote(&mut self) -> Result<bool, GitError> {
        let main = self.fetch().await?.main;
        let mut undecided = std::mem::take(&mut self.progress.earlier);
        undecided.extend(self.progress.next.take());
        let mut there: Option<Point> = None;
        let before = self.progress.at.commit.clone();
        for point in &undecided {
            let Some(commit) = oid(point)? else { continue };
            // Where main was to stay, only the history shows the push. Without it the records are processed again.
            let history = point.history.as_deref().filter(|_| point.commit == before);
            let history = history.map(Oid::from_str).transpose()?;
            let came_about = self.git(move |git| match (main, history) {
                (_, Some(history)) if !git.contains(history)? => Ok(false),
                (Some(main), _) => git.is_behind(commit, main),
                // A new remote: until now main of this repository counted.
                (None, _) => git.was_moved_to(commit, git.tip()?),
            });
            if came_about.await? && there.as_ref().is_none_or(|there| there.version < point.version) {
                there = Some(point.clone());
            }
        }
        if let Some(there) = there {
            self.progress.at = there;
        }
        if self.progress.at.commit == before {
            undecided.retain(|point| point.commit != before);
            undecided.sort_by_key(|point| point.version);
            undecided.dedup();
            undecided.drain(..undecided.len().saturating_sub(UNDECIDED));
            self.progress.earlier = undecided;
        }
        let tip = self.tip()?;
        let is_here = match tip {
            Some(tip) => self.git(move |git| git.contains(tip)).await?,
            None => false,
        };
        match (tip, main) {
            (Some(tip), Some(main)) if self.git(move |git| git.is_behind(tip, main)).await? => {}
            (Some(tip), Some(main)) => {
                return Err(RemoteError::Rewritten { main: main.to_string(), agreed: tip.to_string() }.into());
            }
            // A remote with files: they count as pushed.
            (None, Some(_)) => return Ok(true),
            (tip, None) => {
                let first = if is_here { tip } else { self.first_commit().await? };
                let Some(first) = first else { return Ok(false) };
                // Unapplied pushes to this repository come along.
                let here = self.git(|git| git.tip()).await?;
                let begin = match here {
                    Some(here) if is_here && self.git(move |git| git.is_behind(first, here)).await? => here,
                    _ => first,
                };
                if !self.push(None, begin, None).await? {
                    return Err(RemoteError::Raced.into());
                }
                self.account(first).await?;
                return Ok(is_here || tip.is_none());
            }
        }
        if let Some(tip) = tip {
            self.account(tip).await?;
        }
        Ok(true)
    }

    /// Whether main got there by an announced move that seemed lost.
    pub(super) async fn may_be_ours(&self, main: Oid) -> Result<bool, GitError> {
        for point in &self.progress.earlier {
            if let Some(commit) = oid(point)?
                && self.git(move |git| git.is_behind(commit, main)).await?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The ends on which the history continues: the recorded one, and the remote's if that differs. A push with a rejected
    /// main may have left one there.
    pub(super) async fn past(&self) -> Result<Vec<Oid>, GitError> {
        let (Some(ours), Some(theirs)) = (self.history()?, self.heads.history) else {
            return Ok(self.history()?.or(self.heads.history).into_iter().collect());
        };
        let relation = move |git: &super::repository::ControlRepository| {
            Ok((git.is_behind(theirs, ours)?, git.is_behind(ours, theirs)?))
        };
        Ok(match self.git(relation).await? {
            (true, _) => vec![ours],
            (false, true) => vec![theirs],
            (false, false) => vec![ours, theirs],
        })
    }

    /// Pushes the missing part of the history to the remote, such as all of it to a new remote. A different end there is
    /// joined with ours.
    pub(super) async fn complete_remote(&mut self) -> Result<(), GitError> {
        let (Some(tip), Some(mut ours)) = (self.tip()?, self.history()?) else { return Ok(()) };
        if self.remote.is_none() || self.heads.history == Some(ours) {
            return Ok(());
        }
        match self.past().await?[..] {
            [end] if end == ours => {}
            [_] => return Ok(()),
            ref ends => {
                let (ends, at) = (ends.to_vec(), self.progress.at.version);
                ours = self.git(move |git| git.append_history(&ends, &Batch::new(at, Vec::new()))).await?;
                self.progress.at.history = Some(ours.to_string());
                self.store.save(&self.progress).await?;
            }
        }
        match self.push(Some(tip), tip, Some(ours)).await? {
            true => Ok(()),
            false => Err(RemoteError::Raced.into()),
        }
    }

    /// Moves main at the remote from `tip` to `commit`, and its history; false when another writer moved either first.
    pub(super) async fn push(&mut self, tip: Option<Oid>, commit: Oid, history: Option<Oid>) -> Result<bool, GitError> {
        let Some(remote) = self.remote.clone() else { return Ok(false) };
        let mut updates = Vec::new();
        // The history is first: one that is ahead of main does no harm, since it comes from the log alone.
        if let Some(history) = history.filter(|history| self.heads.history != Some(*history)) {
            updates.push(Update { name: Remote::history_of(&self.progress.id), old: self.heads.history, new: history });
        }
        if tip != Some(commit) {
            updates.push(Update { name: MAIN.to_owned(), old: tip, new: commit });
        }
        if updates.is_empty() {
            return Ok(true);
        }
        let updates: Arc<[Update]> = updates.into();
        let (sent, by) = (Arc::clone(&updates), remote.clone());
        let began = Instant::now();
        let told = match self.work(move |git| Ok(by.push(&git.repository()?, &sent)?)).await {
            Ok(told) => told,
            Err(GitError::Remote(RemoteError::Raced)) => return Ok(false),
            Err(error) => return Err(error),
        };
        for (update, refusal) in updates.iter().zip(told) {
            let head = if update.name == MAIN { &mut self.heads.main } else { &mut self.heads.history };
            match refusal {
                None => *head = Some(update.new),
                // A lost race and a rejection have the same answer; only a race moved main.
                Some(_) if update.name == MAIN && self.fetch().await?.main != tip => return Ok(false),
                Some(why) if update.name == MAIN => {
                    return Err(RemoteError::Refused(format!("the remote refuses the push to main: {why}")).into());
                }
                // Another writer moved it; the two are joined after this.
                Some(_) if self.fetch().await?.history != update.old => {}
                Some(why) => {
                    tracing::warn!(name = update.name, why, "the remote does not take the history of versions");
                }
            }
        }
        if tip != Some(commit) {
            self.rests_until = Instant::now() + remote.rest(began.elapsed());
        }
        self.report(|status| status.remote_pushes += 1);
        Ok(true)
    }

    /// Notes the commit of main, with all of it processed.
    pub(super) async fn account(&mut self, commit: Oid) -> Result<(), GitError> {
        let commit_text = commit.to_string();
        self.progress.next = None;
        if self.progress.at.commit.as_ref() != Some(&commit_text) {
            self.progress.at.commit = Some(commit_text);
            self.progress.earlier.clear();
        }
        match self.remote {
            Some(_) => {
                let theirs = self.heads.main;
                self.git(move |git| git.mirror(commit, theirs)).await
            }
            None => Ok(()),
        }
    }
}
