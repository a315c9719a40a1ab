//! The journal of a run: what happened, line by line. `runs/log` shows it.
//!
//! Lines are gathered and appended to the log as records of their own, so that whoever follows
//! sees them within half a second, and a crash loses at most that much of the tale, never of the
//! state.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoa_machinery::{
    Key, Version,
    log::{Change, Expect, Log, LogError, Origin, Write},
};
use stoa_storage::Clock;

use super::time_of;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    /// When it was written.
    pub(crate) time: Timestamp,
    /// The phase the run was in.
    pub(crate) phase: String,
    /// What it is about: the engine's id, or nothing for the run itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) id: String,
    /// What is done to it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) action: String,
    /// What came of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) outcome: String,
    /// The rest, for people; may have several lines.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
}

impl Line {
    /// The line as text, ending in a newline.
    pub(crate) fn text(&self) -> String {
        let time = self.time.strftime("%H:%M:%S");
        let about = [&self.action, &self.id, &self.outcome].map(String::as_str);
        let about = about.iter().filter(|s| !s.is_empty()).copied().collect::<Vec<_>>().join(" ");
        let head =
            if about.is_empty() { format!("{time} {}", self.phase) } else { format!("{time} {} {about}", self.phase) };
        match self.message.as_str() {
            "" => format!("{head}\n"),
            message => format!("{head}: {}\n", message.trim_end()),
        }
    }
}

/// Where the lines of a run are.
fn prefix(run_uid: &str) -> String {
    format!("/stoa/journal/{run_uid}/")
}

/// Writes the journal of one run.
#[derive(Debug)]
pub(crate) struct Journal {
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    run_uid: String,
    waiting: Vec<Line>,
}

impl Journal {
    /// The journal of a run; lines go after those of an earlier life.
    pub(crate) fn new(log: Arc<dyn Log>, clock: Arc<dyn Clock>, run_uid: &str) -> Self {
        Self { log, clock, run_uid: run_uid.to_owned(), waiting: Vec::new() }
    }

    /// Adds a line about the run itself.
    pub(crate) fn note(&mut self, phase: &str, message: impl Into<String>) {
        let (id, action, outcome) = Default::default();
        self.add(Line {
            time: time_of(&*self.clock),
            phase: phase.to_owned(),
            id,
            action,
            outcome,
            message: message.into(),
        });
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, line: Line) {
        self.waiting.push(line);
    }

    /// Writes what is waiting. A journal that cannot be written does not fail the run.
    pub(crate) async fn flush(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        let lines = std::mem::take(&mut self.waiting);
        // Nobody else writes under this name; what came first is told by the versions of the records.
        let name = format!("{:020}-{}", time_of(&*self.clock).as_nanosecond(), uuid::Uuid::new_v4().simple());
        let write = Write {
            key: Key::new(format!("{}{name}", prefix(&self.run_uid))),
            expect: Expect::Absent,
            change: Change::Put(Bytes::from(serde_json::to_vec(&lines).expect("lines serialize"))),
            fence: None,
            origin: Origin { user: "system:stoa:runs".to_owned(), ..Origin::default() },
        };
        if let Err(error) = self.log.append(write).await {
            tracing::warn!(error = &error as &dyn std::error::Error, run = self.run_uid, "journal lines are lost");
        }
    }
}

/// Reads the journal of a run as of now, and the version to follow it from.
pub(crate) async fn read(log: &dyn Log, run_uid: &str) -> Result<(Vec<Line>, Version), LogError> {
    let mut snapshot = log.scan(&prefix(run_uid), None).await?;
    snapshot.entries.sort_by_key(|entry| entry.version);
    let lines = snapshot.entries.iter().flat_map(|entry| decode(&entry.value)).collect();
    Ok((lines, snapshot.version))
}

/// Streams the lines that are written after a version.
pub(crate) async fn follow(
    log: &dyn Log,
    run_uid: &str,
    since: Version,
) -> Result<impl Stream<Item = Result<Vec<Line>, LogError>> + Send + use<>, LogError> {
    let prefix = prefix(run_uid);
    let records = log.follow(since).await?;
    Ok(records.filter_map(move |record| {
        let lines = match record {
            Err(error) => Some(Err(error)),
            Ok(record) if record.key.as_str().starts_with(&prefix) => match record.change {
                Change::Put(value) => Some(Ok(decode(&value))),
                Change::Delete => None,
            },
            Ok(_) => None,
        };
        std::future::ready(lines)
    }))
}

/// Removes the journal of a run.
pub(crate) async fn remove(log: &dyn Log, run_uid: &str) -> Result<(), LogError> {
    for entry in log.scan(&prefix(run_uid), None).await?.entries {
        let origin = Origin { user: "system:stoa:runs".to_owned(), ..Origin::default() };
        log.append(Write { key: entry.key, expect: Expect::Any, change: Change::Delete, fence: None, origin }).await?;
    }
    Ok(())
}

fn decode(value: &[u8]) -> Vec<Line> {
    serde_json::from_slice(value).unwrap_or_else(|error| {
        tracing::error!(%error, "journal lines do not decode");
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use stoa_machinery::log::MemoryLog;

    use super::*;

    #[derive(Debug)]
    struct At(i64);

    impl Clock for At {
        fn now_ms(&self) -> i64 {
            self.0
        }
    }

    #[tokio::test]
    async fn lines_stay_in_order_though_the_clock_is_set_back() {
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
        for (now, text) in [(7_200_000, "first"), (0, "second"), (3_600_000, "third")] {
            let mut journal = Journal::new(log.clone(), Arc::new(At(now)), "uid");
            journal.note("Applying", text);
            journal.flush().await;
        }
        let (lines, _) = read(&*log, "uid").await.unwrap();
        assert_eq!(lines.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["first", "second", "third"]);
    }
}
