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
    /// Whether objects leave their files before they come into others. Where it was not so, another change may have been
    /// meant by what is done.
    #[serde(default)]
    pub moves_first: bool,
}

/// How long a reason may be, in bytes.
pub(super) const REASON: usize = 1 << 10;
/// And where there are so many that all would not fit.
const SHORT_REASON: usize = 64;
/// How many bytes refused files may take in the record with their reasons, and how many at all: etcd takes 1.5 MiB.
const ROOM_FOR_REASONS: usize = 512 << 10;
const ROOM: usize = 1 << 20;
/// What a refused file takes besides its path and reason, at most.
const EACH: usize = 192;

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
    /// Whether something else is in its way, or what it needs is not there. It is tried again until it is not so any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
}

impl InvalidFile {
    /// How many bytes it takes in the record, at most.
    fn size(&self, path: &str) -> usize {
        encoded(path) + encoded(&self.reason) + EACH
    }
}

/// How many bytes a text takes as JSON, at most.
fn encoded(text: &str) -> usize {
    let byte = |byte| match byte {
        b'"' | b'\\' => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.bytes().map(byte).sum()
}

/// A text of at most so many bytes, which says where it was cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most - '…'.len_utf8());
    format!("{}…", &text[..end])
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
    /// How many files were refused besides, for which there was no room, since there were last none in the record. They are
    /// told and keep nobody from writing their objects.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unkept: u64,
    /// How many bytes those in the record take, once that was counted.
    #[serde(skip)]
    taken: Option<usize>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Progress {
    /// Notes a file that was refused. Where there are very many its reason is cut short, and then it is only counted: false
    /// when there was no room for it.
    pub(super) fn refuse(&mut self, path: &str, mut file: InvalidFile) -> bool {
        let taken = self.forget(path);
        if taken + file.size(path) > ROOM_FOR_REASONS {
            file.reason = cut(&file.reason, SHORT_REASON);
        }
        let has_room = taken + file.size(path) <= ROOM;
        if has_room {
            self.taken = Some(taken + file.size(path));
            self.invalid.insert(path.to_owned(), file);
        } else {
            self.unkept += 1;
        }
        has_room
    }

    /// Notes that nothing is wrong with a file any more; whether that was in the record.
    pub(super) fn accept(&mut self, path: &str) -> bool {
        let was_there = self.invalid.contains_key(path);
        self.forget(path);
        if self.invalid.is_empty() {
            self.unkept = 0;
        }
        was_there
    }

    /// Takes a file out of the record; returns how many bytes the others take.
    fn forget(&mut self, path: &str) -> usize {
        let size = self.invalid.remove(path).map_or(0, |file| file.size(path));
        let others = || self.invalid.iter().map(|(path, file)| file.size(path)).sum::<usize>();
        let taken = self.taken.map_or_else(others, |taken| taken - size);
        self.taken = Some(taken);
        taken
    }

    /// Whether a file waits.
    pub(super) fn waits(&self, path: &str) -> bool {
        self.invalid.get(path).is_some_and(|file| file.waits)
    }

    /// Whether it may have been told that something is wrong with a file.
    pub(super) fn may_be_told(&self, path: &str) -> bool {
        self.unkept > 0 || self.invalid.contains_key(path)
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

    fn invalid(reason: &str) -> InvalidFile {
        InvalidFile { reason: reason.to_owned(), commit: "c".repeat(40), good: Some("g".repeat(40)), waits: true }
    }

    #[test]
    fn however_many_files_are_refused_the_record_fits_into_the_log() {
        for reason in ["it is wrong".to_owned(), "\u{1}\"".repeat(REASON / 2), "ü".repeat(REASON / 2)] {
            let (mut progress, mut kept) = (Progress::default(), 0);
            for number in 0..10_000 {
                let path = format!("organizations/shop/projects/web/stacks/{number}.yaml");
                kept += usize::from(progress.refuse(&path, invalid(&reason)));
            }
            assert_eq!(progress.invalid.len(), kept);
            let size = serde_json::to_vec(&progress).unwrap().len();
            assert!((ROOM / 2..ROOM + 1024).contains(&size), "{size}");
            assert_eq!(progress.invalid.len() as u64 + progress.unkept, 10_000);
            // What there is room for is not put out by what comes later, and what is known of takes no more.
            let first = "organizations/shop/projects/web/stacks/0.yaml";
            assert_eq!(progress.invalid[first].reason, reason);
            let last = progress.invalid.keys().next_back().unwrap().clone();
            assert!(progress.refuse(&last, invalid(&reason)));
            assert_eq!(progress.invalid.len(), kept);
            assert!(progress.may_be_told("of/which/there/is/no/record.yaml"));
            assert!(!progress.accept("of/which/there/is/no/record.yaml"));
            for path in progress.invalid.keys().cloned().collect::<Vec<_>>() {
                assert!(progress.accept(&path));
            }
            assert_eq!((progress.invalid.len(), progress.unkept, progress.taken), (0, 0, Some(0)));
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("short", 8), "short");
        assert_eq!(cut("a üüüüü", 8), "a ü…");
        assert_eq!(cut(&"ü".repeat(REASON), REASON).len(), REASON - 1);
    }

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
