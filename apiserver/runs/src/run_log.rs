//! The log of a Run, line by line, as the subresource `runs/log` shows it.
//!
//! Lines are gathered for half a second and appended to the log of the server as records. A crash loses at most
//! that much of a Run's log, never of its State. At the end of the Run the lines become a document in the
//! Backend (`keep`). The records are deleted once the status of the Run names the document.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use stoa_machinery::{
    Key, Version,
    log::{Change, Expect, Log, LogError, Write},
};
use stoa_storage::{
    Clock,
    documents::{DocumentError, DocumentStore},
};

use super::time_of;

/// The largest record, in bytes of the lines in it. etcd takes little more than four times as much.
const LARGEST: usize = 256 << 10;
/// The longest message of one line, in bytes; a longer one goes on in the next line. As JSON it may be six times as long.
const LONGEST: usize = 64 << 10;
/// So many bytes wait for a log that takes none.
const WAITING: usize = 8 << 20;
/// So many records are removed at once.
const AT_ONCE: usize = 16;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// When it was written.
    pub time: Timestamp,
    /// The phase the run was in.
    pub phase: String,
    /// What it is about: the engine's id, or nothing for the run itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// What is done to it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub action: String,
    /// What came of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub outcome: String,
    /// The rest, for people; may have several lines.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Whether the message goes on that of the line before, which became too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) continued: bool,
}

impl Line {
    /// A line about the whole: without an id, an action and an outcome.
    pub fn new(time: Timestamp, phase: &str, message: String) -> Self {
        let (id, action, outcome) = Default::default();
        Self { time, phase: phase.to_owned(), id, action, outcome, message, continued: false }
    }

    /// The line as text, ending in a newline.
    pub fn text(&self) -> String {
        if self.continued {
            return format!("{}\n", self.message.trim_end_matches('\n'));
        }
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

    /// Whether it is the one with which a run ends.
    pub fn is_end(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed" | "Canceled")
    }

    /// The same in as many lines as it takes for none to be too long; they are cut where their text is, if it has lines.
    fn split(mut self) -> Vec<Self> {
        let message = std::mem::take(&mut self.message);
        let mut rest = message.as_str();
        let mut lines = Vec::new();
        loop {
            let end = if rest.len() > LONGEST { cut(rest, LONGEST) } else { rest.len() };
            let (message, after) = rest.split_at(end);
            let continued = self.continued || !lines.is_empty();
            lines.push(Self { message: message.to_owned(), continued, ..self.clone() });
            if after.is_empty() {
                return lines;
            }
            rest = after;
        }
    }
}

/// Where to cut a text that is to have no more than so many bytes: behind a line, or else a character.
fn cut(text: &str, most: usize) -> usize {
    let most = text.floor_char_boundary(most);
    text[..most].rfind('\n').map_or(most, |newline| newline + 1)
}

/// Where the lines of a run are.
fn prefix(run_uid: &str) -> String {
    format!("/stoa/journal/{run_uid}/")
}

/// Writes the journal of one run.
#[derive(Debug)]
pub struct RunLog {
    log: Arc<dyn Log>,
    clock: Arc<dyn Clock>,
    run_uid: String,
    waiting: Vec<Line>,
    /// Records that the log has not taken yet, oldest first: where, what, and how many lines.
    unwritten: VecDeque<(Key, Bytes, usize)>,
    /// How many lines the log took so late that they were given up.
    lost: usize,
}

impl RunLog {
    /// The journal of a run; lines go after those of an earlier life.
    pub fn new(log: Arc<dyn Log>, clock: Arc<dyn Clock>, run_uid: &str) -> Self {
        let (waiting, unwritten) = Default::default();
        Self { log, clock, run_uid: run_uid.to_owned(), waiting, unwritten, lost: 0 }
    }

    /// Adds a line about the run itself.
    pub fn note(&mut self, phase: &str, message: impl Into<String>) {
        let line = self.line(phase, message.into());
        self.add(line);
    }

    fn line(&self, phase: &str, message: String) -> Line {
        Line::new(time_of(&*self.clock), phase, message)
    }

    /// Adds a line, which [`Self::flush`] writes.
    pub fn add(&mut self, line: Line) {
        self.waiting.push(line);
    }

    /// Writes what is waiting. A journal that cannot be written does not fail the run: what the log does not take is
    /// tried again with what comes after it, and only where that becomes too much is the oldest of it given up, which
    /// the journal then says.
    pub async fn flush(&mut self) {
        let mut record = Record::default();
        for line in std::mem::take(&mut self.waiting).into_iter().flat_map(Line::split) {
            let json = serde_json::to_vec(&line).expect("a line serializes");
            if !record.is_empty() && record.len() + json.len() > LARGEST {
                self.queue(std::mem::take(&mut record));
            }
            record.push(&json);
        }
        self.queue(record);
        if self.lost > 0 && self.append_all().await {
            let lost = std::mem::take(&mut self.lost);
            let line =
                self.line("RunLog", format!("{lost} lines are missing before this one: the log could not be written"));
            let mut record = Record::default();
            record.push(&serde_json::to_vec(&line).expect("a line serializes"));
            self.queue(record);
        }
        self.append_all().await;
        while self.unwritten.iter().map(|(_, value, _)| value.len()).sum::<usize>() > WAITING {
            self.lost += self.unwritten.pop_front().map_or(0, |(_, _, lines)| lines);
        }
    }

    pub(crate) fn is_written(&self) -> bool {
        self.waiting.is_empty() && self.unwritten.is_empty() && self.lost == 0
    }

    fn queue(&mut self, record: Record) {
        if record.is_empty() {
            return;
        }
        // Nobody else writes under this name; what came first is told by the versions of the records.
        let name = format!("{:020}-{}", time_of(&*self.clock).as_nanosecond(), uuid::Uuid::new_v4().simple());
        let key = Key::new(format!("{}{name}", prefix(&self.run_uid)));
        let (value, lines) = record.end();
        self.unwritten.push_back((key, value, lines));
    }

    /// Appends what the log has not taken yet; whether that is all.
    async fn append_all(&mut self) -> bool {
        while let Some((key, value, lines)) = self.unwritten.front() {
            let write = Write::new(key.clone(), Expect::Absent, Change::Put(value.clone())).by("system:stoa:runs");
            match self.log.append(write).await {
                // What is there already is from a try whose answer was lost.
                Ok(_) | Err(LogError::Conflict { .. }) => {}
                Err(error @ LogError::TooLarge { .. }) => {
                    tracing::error!(error = &error as &dyn std::error::Error, run = self.run_uid, "lines are lost");
                    self.lost += lines;
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, run = self.run_uid, "lines are kept back");
                    return false;
                }
            }
            self.unwritten.pop_front();
        }
        true
    }
}

#[derive(Debug, Default)]
struct Record {
    json: Vec<u8>,
    lines: usize,
}

impl Record {
    fn is_empty(&self) -> bool {
        self.lines == 0
    }

    fn len(&self) -> usize {
        self.json.len()
    }

    fn push(&mut self, line: &[u8]) {
        self.json.push(if self.is_empty() { b'[' } else { b',' });
        self.json.extend_from_slice(line);
        self.lines += 1;
    }

    fn end(mut self) -> (Bytes, usize) {
        self.json.push(b']');
        (self.json.into(), self.lines)
    }
}

/// Keeps the journal of a run that ends as a document; the text of its digest. The records are left, for those that follow
/// them.
///
/// # Errors
///
/// When the log cannot be read, or the Backend cannot be written.
pub(crate) async fn keep(
    log: &dyn Log,
    run_uid: &str,
    documents: &dyn DocumentStore,
    scope: &str,
) -> Result<String, KeepError> {
    let (lines, _) = read(log, run_uid).await?;
    let digest = documents.put_owed(scope, json_lines(&lines)).await?;
    Ok(digest.to_string())
}

/// Why a journal is not kept as a document.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    /// The log cannot be read.
    #[error("the log cannot be read")]
    Log(#[from] LogError),
    /// The Backend cannot be written.
    #[error("the backend cannot be written")]
    Document(#[from] DocumentError),
}

/// Lines as they are kept and shown: one JSON object in each.
pub fn json_lines(lines: &[Line]) -> Bytes {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line).expect("a line serializes");
        text.push(b'\n');
    }
    text.into()
}

/// The lines of a document.
pub fn of_document(document: &[u8]) -> Result<Vec<Line>, serde_json::Error> {
    serde_json::Deserializer::from_slice(document).into_iter().collect()
}

/// Reads the journal of a run as of now, and the version to follow it from.
pub async fn read(log: &dyn Log, run_uid: &str) -> Result<(Vec<Line>, Version), LogError> {
    let mut snapshot = log.scan(&prefix(run_uid), None).await?;
    snapshot.entries.sort_by_key(|entry| entry.version);
    let lines = snapshot.entries.iter().flat_map(|entry| decode(&entry.value)).collect();
    Ok((lines, snapshot.version))
}

/// Streams the lines that are written after a version.
pub async fn follow(
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

/// Removes the records of a run's journal.
pub async fn remove(log: &dyn Log, run_uid: &str) -> Result<(), LogError> {
    let entries = log.scan(&prefix(run_uid), None).await?.entries;
    let removed = stream::iter(entries).map(|entry| async {
        log.append(Write::new(entry.key, Expect::Any, Change::Delete).by("system:stoa:runs")).await
    });
    removed.buffer_unordered(AT_ONCE).try_for_each(|_| std::future::ready(Ok(()))).await
}

fn decode(value: &[u8]) -> Vec<Line> {
    serde_json::from_slice(value).unwrap_or_else(|error| {
        tracing::error!(%error, "journal lines do not decode");
        Vec::new()
    })
}

#[cfg(test)]
pub(crate) mod tests;
