//! How far the projection got, as a record in the log.
//!
//! Before main is moved, the record says from where to where, so that after a crash at any point a
//! look at main tells whether it happened. Commits of ours are known by their id alone, never by
//! what is written in them, because anybody can push a commit that looks like ours.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize, Serializer};
use stoa_machinery::log::{Change, Expect, Fence, Key, Log, Origin, Version, Write};
use tokio::time::Instant;

use super::{
    GitError, InvalidFile,
    invalid::{Alike, Files, Room},
};

/// Where the record lives.
pub(super) const KEY: &str = "/stoa/git/control";
/// The shape of the record. One without a version was written before there were any, and has the first.
const SCHEMA: u32 = 1;
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Encoded<'static>")]
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

/// The record as JSON has it. What is written is borrowed, since it may be more than a MiB, and is written often.
#[derive(Serialize, Deserialize)]
struct Encoded<'a> {
    /// Looked at before the rest is read: see [`Progress::decode`].
    #[serde(rename = "schemaVersion", skip_deserializing)]
    schema_version: u32,
    #[serde(flatten)]
    at: Cow<'a, Point>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Cow<'a, Point>>,
    #[serde(default, skip_serializing_if = "is_empty")]
    earlier: Cow<'a, [Point]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    push: Option<Cow<'a, Push>>,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    id: Cow<'a, str>,
    /// By path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    invalid: Files<'a>,
    /// Those of whose reasons hardly anything is kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    alike: Vec<Alike<'a>>,
    #[serde(default, skip_serializing_if = "is_zero")]
    unkept: u64,
}

/// The one field that never changes.
#[derive(Deserialize)]
struct Shape {
    #[serde(rename = "schemaVersion", default)]
    schema_version: u64,
}

impl Progress {
    /// Reads the record.
    ///
    /// # Errors
    ///
    /// [`GitError::Newer`] when a later version wrote it, and [`GitError::Progress`] when it does not decode. Either way it
    /// has to be left as it is.
    pub(super) fn decode(record: &[u8]) -> Result<Self, GitError> {
        let malformed = |source| GitError::Progress { source };
        let Shape { schema_version: found } = serde_json::from_slice(record).map_err(malformed)?;
        if found > u64::from(SCHEMA) {
            return Err(GitError::Newer { found, known: SCHEMA });
        }
        serde_json::from_slice(record).map_err(malformed)
    }
}

fn is_empty(points: &[Point]) -> bool {
    points.is_empty()
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl From<Encoded<'_>> for Progress {
    fn from(record: Encoded<'_>) -> Self {
        let Encoded { schema_version: _, at, next, earlier, push, id, invalid, alike, unkept } = record;
        let mut files: BTreeMap<String, InvalidFile> =
            invalid.into_iter().map(|(path, file)| (path.into_owned(), file.into_owned())).collect();
        files.extend(alike.into_iter().flat_map(Alike::files));
        Self {
            at: at.into_owned(),
            next: next.map(Cow::into_owned),
            earlier: earlier.into_owned(),
            push: push.map(Cow::into_owned),
            id: id.into_owned(),
            invalid: files,
            unkept,
            room: None,
        }
    }
}

impl Serialize for Progress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (alike, invalid) = Alike::of(&self.invalid);
        let encoded = Encoded {
            schema_version: SCHEMA,
            at: Cow::Borrowed(&self.at),
            next: self.next.as_ref().map(Cow::Borrowed),
            earlier: Cow::Borrowed(&self.earlier),
            push: self.push.as_ref().map(Cow::Borrowed),
            id: Cow::Borrowed(&self.id),
            invalid,
            alike,
            unkept: self.unkept,
        };
        encoded.serialize(serializer)
    }
}

/// The version up to which the record in the log says that everything is in Git; 0 when it has no record. The log may be
/// compacted up to it by every replica, whether or not one projects now: a projection continues from there.
///
/// # Errors
///
/// Those of the log, and [`GitError::Newer`] and [`GitError::Progress`] when the record cannot be read.
pub async fn recorded_version(log: &dyn Log) -> Result<Version, GitError> {
    let entry = log.read(&Key::new(KEY)).await?;
    let progress = entry.map(|entry| Progress::decode(&entry.value)).transpose()?;
    Ok(progress.map_or(Version::default(), |progress| progress.at.version))
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
    ///
    /// # Errors
    ///
    /// Those of the log, and of [`Progress::decode`].
    pub(super) async fn load(log: Arc<dyn Log>, fence: Option<Fence>) -> Result<(Self, Option<Progress>), GitError> {
        let entry = log.read(&Key::new(KEY)).await?;
        let written = entry.as_ref().map(|entry| entry.version);
        let progress = entry.map(|entry| Progress::decode(&entry.value)).transpose()?;
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
        let progress = Progress::decode(record.as_bytes()).unwrap();
        assert_eq!(progress.push.map(|push| (push.done, push.moves_first)), Some((3, false)));
        let file = &progress.invalid["things/web.yaml"];
        assert_eq!((file.reason.as_str(), file.waits, progress.unkept), ("it is wrong", false, 0));
    }

    #[test]
    fn what_a_later_version_wrote_is_not_guessed_at() {
        for later in [r#"{"schemaVersion":2,"version":7}"#, r#"{"schemaVersion":2,"at":[7]}"#] {
            let read = Progress::decode(later.as_bytes());
            assert!(matches!(read, Err(GitError::Newer { found: 2, known: SCHEMA })), "{read:?}");
        }
        for malformed in [r#"{"schemaVersion":"two","version":7}"#, r#"{"schemaVersion":1}"#, "not JSON"] {
            let read = Progress::decode(malformed.as_bytes());
            assert!(matches!(read, Err(GitError::Progress { .. })), "{read:?}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let point = |commit: &str, version| Point {
            commit: Some(commit.to_owned()),
            version: Version(version),
            history: Some("h".to_owned()),
        };
        let file = |reason: &str| InvalidFile {
            reason: reason.to_owned(),
            commit: "c".to_owned(),
            good: Some("g".to_owned()),
            waits: true,
        };
        let files = [("web", "it is wrong"), ("db", InvalidFile::CUT), ("api", "refused: …")];
        let full = Progress {
            at: point("a", 7),
            next: Some(point("b", 8)),
            earlier: vec![point("d", 9)],
            push: Some(Push { target: "e".to_owned(), done: 3, since: Version(5), moves_first: true }),
            id: "the log".to_owned(),
            invalid: files.map(|(path, reason)| (path.to_owned(), file(reason))).into(),
            unkept: 4,
            room: None,
        };
        for progress in [Progress::default(), full] {
            let written = serde_json::to_string(&progress).unwrap();
            assert_eq!(Progress::decode(written.as_bytes()).unwrap(), progress, "{written}");
        }
        assert_eq!(serde_json::to_string(&Progress::default()).unwrap(), r#"{"schemaVersion":1,"version":0}"#);
    }
}
