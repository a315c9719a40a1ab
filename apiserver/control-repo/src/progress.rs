//! The progress of the projection, as a record in the log.
//!
//! The record says from which commit to which main is about to move. So after a crash at any point, main shows whether it
//! moved. Our commits are known by their id alone and never by their text, because anybody can push a commit that imitates ours.
//!
//! Start at [`Progress`]. Elsewhere: `session` follows it, and `projection_state` shows it to every replica.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use stoa_machinery::log::{Change, Expect, Fence, Key, Log, Origin, Version, Write};
use tokio::time::Instant;

use super::{GitError, InvalidFile};

/// Where the record lives.
pub(super) const KEY: &str = "/stoa/git/control";
/// The version of the record. A record without one has the first version.
const SCHEMA: u32 = 1;
const USER: &str = "system:stoa:git";

/// A commit, and the version of the log that it shows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Point {
    /// The commit's id; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Each record up to here is in the commit, or does not belong in Git.
    pub version: Version,
    /// The end of the history; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
}

/// A push that is being applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Push {
    /// The commit that main was moved to.
    pub target: String,
    /// How many of its changes, in the order of their application, are done with.
    pub done: usize,
    /// The log's head at the start of the push.
    pub since: Version,
}

/// Everything that has to survive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Read before the rest: see [`Progress::decode`].
    #[serde(rename = "schemaVersion", skip_deserializing)]
    schema_version: SchemaVersion,
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
    /// The id of this log's history; empty before the first start.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// The files that were refused, by path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub invalid: BTreeMap<String, InvalidFile>,
    /// The files without reasons in a record of an earlier build, until [`Progress::decode`] moves them to `invalid`.
    #[serde(default, skip_serializing)]
    alike: Vec<Alike>,
    /// The number of further rejected files without room in the record, since it was last empty. They are reported, and do
    /// not block writes of their objects.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unkept: u64,
    /// The bytes of the files in the record, once counted.
    #[serde(skip)]
    pub(super) bytes: Option<usize>,
}

/// Files that have all but their paths in common.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Alike {
    #[serde(flatten)]
    file: InvalidFile,
    paths: Vec<String>,
}

/// The version that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct SchemaVersion(u32);

impl Default for SchemaVersion {
    fn default() -> Self {
        Self(SCHEMA)
    }
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
    /// [`GitError::Newer`] when a later version wrote it, and [`GitError::Progress`] when it does not decode. Both leave the
    /// record unchanged.
    pub(super) fn decode(record: &[u8]) -> Result<Self, GitError> {
        let malformed = |source| GitError::Progress { source };
        let Shape { schema_version: found } = serde_json::from_slice(record).map_err(malformed)?;
        if found > u64::from(SCHEMA) {
            return Err(GitError::Newer { found, known: SCHEMA });
        }
        let mut progress: Self = serde_json::from_slice(record).map_err(malformed)?;
        for Alike { file, paths } in mem::take(&mut progress.alike) {
            for path in paths {
                progress.refuse(&path, file.clone());
            }
        }
        Ok(progress)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The version up to which everything is in Git by the record in the log; 0 without a record. Every replica may compact the
/// log up to it, whether a projection runs or not: a projection continues from there.
///
/// # Errors
///
/// Those of the log, and [`GitError::Newer`] and [`GitError::Progress`] when the record cannot be read.
pub async fn recorded_version(log: &dyn Log) -> Result<Version, GitError> {
    let entry = log.read(&Key::new(KEY)).await?;
    let progress = entry.map(|entry| Progress::decode(&entry.value)).transpose()?;
    Ok(progress.map_or(Version::default(), |progress| progress.at.version))
}

/// The record in the log.
#[derive(Debug)]
pub(super) struct Store {
    log: Arc<dyn Log>,
    fence: Option<Fence>,
    written: Option<Version>,
    /// When.
    saved: Instant,
}

impl Store {
    /// Reads the record; `None` before the first.
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

    /// Writes the record, provided that no other writer did.
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

    /// The age of the record, if others follow it up to `version`.
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
        assert_eq!(progress.push.map(|push| push.done), Some(3));
        let file = &progress.invalid["things/web.yaml"];
        assert_eq!((file.reason.as_str(), file.waits, progress.unkept), ("it is wrong", false, 0));
    }

    #[test]
    fn files_without_reasons_of_earlier_builds_are_read() {
        let record = |paths: &str| {
            format!(
                r#"{{"schemaVersion":1,"commit":"a","version":7,"invalid":{{"web":{{"reason":"wrong","commit":"b"}}}},
                "alike":[{{"reason":"refused: …","commit":"c","good":"g","waits":true,"paths":[{paths}]}},
                {{"reason":"…","commit":"d","paths":["last"]}}],"unkept":4}}"#
            )
        };
        let progress = Progress::decode(record(r#""api","shop""#).as_bytes()).unwrap();
        let file = InvalidFile {
            reason: "refused: …".to_owned(),
            commit: "c".to_owned(),
            good: Some("g".to_owned()),
            waits: true,
        };
        assert_eq!([&progress.invalid["api"], &progress.invalid["shop"]], [&file; 2]);
        assert_eq!(progress.invalid["last"].commit, "d");
        assert_eq!((progress.invalid.len(), progress.unkept), (4, 4));
        // It is written in the other form, and the files without room are counted.
        let paths: Vec<String> = (0..14_000).map(|number| format!("\"organizations/shop/stacks/{number}\"")).collect();
        let progress = Progress::decode(record(&paths.join(",")).as_bytes()).unwrap();
        assert_eq!(progress.invalid.len() as u64 + progress.unkept, 14_002 + 4);
        let written = serde_json::to_vec(&progress).unwrap();
        assert!(written.len() < 1_400_000 && progress.invalid.len() > 3_000, "{}", written.len());
        let read = Progress::decode(&written).unwrap();
        assert_eq!((read.invalid, read.unkept), (progress.invalid, progress.unkept));
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
        let files = [("web", "it is wrong"), ("api", "refused: …")];
        let full = Progress {
            at: point("a", 7),
            next: Some(point("b", 8)),
            earlier: vec![point("d", 9)],
            push: Some(Push { target: "e".to_owned(), done: 3, since: Version(5) }),
            id: "the log".to_owned(),
            invalid: files.map(|(path, reason)| (path.to_owned(), file(reason))).into(),
            unkept: 4,
            ..Progress::default()
        };
        for progress in [Progress::default(), full] {
            let written = serde_json::to_string(&progress).unwrap();
            assert_eq!(Progress::decode(written.as_bytes()).unwrap(), progress, "{written}");
        }
        assert_eq!(serde_json::to_string(&Progress::default()).unwrap(), r#"{"schemaVersion":1,"version":0}"#);
    }
}
