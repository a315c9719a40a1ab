//! How far the projection got, as a record in the log.
//!
//! Before main is moved, the record says from where to where, so that after a crash at any point a
//! look at main tells whether it happened. Commits of ours are known by their id alone, never by
//! what is written in them, because anybody can push a commit that looks like ours.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use stoa_machinery::log::{Change, Expect, Fence, Key, Log, Origin, Version, Write};

use tokio::time::Instant;

use super::GitError;

/// Where the record lives.
pub(super) const KEY: &str = "/stoa/git/control";
const USER: &str = "system:stoa:git";

/// A commit, and the log up to where it shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Point {
    /// The commit's id; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Every record up to here is in it, or does not belong in Git.
    pub version: Version,
    /// The commit that the history of what was authored ends in; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
}

/// A push that is being applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Push {
    /// The commit that main was moved to.
    pub target: String,
    /// How many of its changes, in the order of their paths, are done with.
    pub done: usize,
    /// The log's head when it was begun.
    pub since: Version,
}

/// A file, or its removal, that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvalidFile {
    /// Why, for people.
    pub reason: String,
    /// The id of the commit that has it.
    pub commit: String,
    /// The id of the commit on main that has the file as it was last applied or written, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good: Option<String>,
}

/// Everything that has to survive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// The commit up to which everything on main is either ours or was ingested.
    #[serde(flatten)]
    pub at: Point,
    /// Where main is being moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Point>,
    /// Where main of a remote may still be moved by a push that began long ago, as by a leader that had to give up. All
    /// begin at the same commit, so none can come about any more once main has moved on from there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<Point>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push: Option<Push>,
    /// What tells this log's history from another's; empty before the first start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// By path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub invalid: BTreeMap<String, InvalidFile>,
}

/// The record as it is in the log.
#[derive(Debug)]
pub(super) struct Store {
    log: Arc<dyn Log>,
    fence: Option<Fence>,
    written: Option<Version>,
    /// When.
    saved: Instant,
}

impl Store {
    /// Reads it; `None` when the log has none yet.
    pub(super) async fn load(log: Arc<dyn Log>, fence: Option<Fence>) -> Result<(Self, Option<Progress>), GitError> {
        let entry = log.read(&Key::new(KEY)).await?;
        let written = entry.as_ref().map(|entry| entry.version);
        let progress = entry
            .map(|entry| serde_json::from_slice(&entry.value))
            .transpose()
            .map_err(|source| GitError::Progress { source })?;
        Ok((Self { log, fence, written, saved: Instant::now() }, progress))
    }

    /// Writes it, provided that nobody else has.
    pub(super) async fn save(&mut self, progress: &Progress) -> Result<(), GitError> {
        let value = serde_json::to_vec(progress).map_err(|source| GitError::Progress { source })?;
        let write = Write {
            key: Key::new(KEY),
            expect: self.written.map_or(Expect::Absent, Expect::At),
            change: Change::Put(value.into()),
            fence: self.fence.clone(),
            origin: Origin { user: USER.to_owned(), verb: String::new(), message: String::new() },
        };
        self.written = Some(self.log.append(write).await?);
        self.saved = Instant::now();
        Ok(())
    }

    /// How long ago the record was written, if there are others after it up to `version`.
    pub(super) fn age_before(&self, version: Version) -> Option<Duration> {
        self.written.is_none_or(|written| written < version).then(|| self.saved.elapsed())
    }
}
