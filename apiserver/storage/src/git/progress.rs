//! How far the projection got, as a record in the log.
//!
//! Before main is moved, the record says from where to where, so that after a crash at any point a
//! look at main tells whether it happened. Commits of ours are known by their id alone, never by
//! what is written in them, because anybody can push a commit that looks like ours.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use stoa_machinery::log::{Change, Expect, Fence, Key, Log, Origin, Version, Write};
use tokio::time::Instant;

use super::{
    GitError, InvalidFile,
    invalid::{Alike, Room},
};

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
    /// Whether objects leave their files before they come into others. Where it was not so, another change may have been
    /// meant by what is done.
    #[serde(default)]
    pub moves_first: bool,
}

/// Everything that has to survive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Encoded", into = "Encoded")]
pub(super) struct Progress {
    /// The commit up to which everything on main is either ours or was ingested.
    pub at: Point,
    /// Where main is being moved.
    pub next: Option<Point>,
    /// Where main of a remote may still be moved by a push that began long ago, as by a leader that had to give up. All
    /// begin at the same commit, so none can come about any more once main has moved on from there.
    pub earlier: Vec<Point>,
    pub push: Option<Push>,
    /// What tells this log's history from another's; empty before the first start.
    pub id: String,
    /// The files that were refused, by path.
    pub invalid: BTreeMap<String, InvalidFile>,
    /// How many files were refused besides, for which there was no room, since there were last none in the record. They are
    /// told and keep nobody from writing their objects.
    pub unkept: u64,
    /// How much of it those in the record take, once that was counted.
    pub(super) room: Option<Room>,
}

/// The record as JSON has it.
#[derive(Serialize, Deserialize)]
struct Encoded {
    #[serde(flatten)]
    at: Point,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Point>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<Point>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    push: Option<Push>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    id: String,
    /// By path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    invalid: BTreeMap<String, InvalidFile>,
    /// Those of whose reasons hardly anything is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    alike: Vec<Alike>,
    #[serde(default, skip_serializing_if = "is_zero")]
    unkept: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl From<Encoded> for Progress {
    fn from(record: Encoded) -> Self {
        let Encoded { at, next, earlier, push, id, mut invalid, alike, unkept } = record;
        invalid.extend(alike.into_iter().flat_map(Alike::files));
        Self { at, next, earlier, push, id, invalid, unkept, room: None }
    }
}

impl From<Progress> for Encoded {
    fn from(progress: Progress) -> Self {
        let Progress { at, next, earlier, push, id, invalid, unkept, room: _ } = progress;
        let (alike, invalid) = Alike::of(invalid);
        Self { at, next, earlier, push, id, invalid, alike, unkept }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_before_are_read() {
        let record = r#"{"commit":"a","version":7,"push":{"target":"b","done":3,"since":5},
            "invalid":{"things/web.yaml":{"reason":"it is wrong","commit":"c"}}}"#;
        let progress: Progress = serde_json::from_str(record).unwrap();
        assert_eq!(progress.push.map(|push| (push.done, push.moves_first)), Some((3, false)));
        let file = &progress.invalid["things/web.yaml"];
        assert_eq!((file.reason.as_str(), file.waits, progress.unkept), ("it is wrong", false, 0));
    }
}
