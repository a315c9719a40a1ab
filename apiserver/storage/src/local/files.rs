//! The log's files: their names, what they hold, and how they are read back.
//!
//! Start at [`recover`]. A directory holds
//!
//! * `<first batch>.segment`: batches, appended; a first one says which version came before it.
//! * `<version>.snapshot`: all values at a version, and all leases. It replaces the segments
//!   whose records it includes.
//! * `*.new`: a file that was not finished, without meaning.
//!
//! Only the end of the last segment can be torn, since a batch is written when the one before
//! it is durable. Damage anywhere else is corruption and is reported.

use std::io;

use stoa_machinery::log::{LogError, Version};

use super::{
    codec::{self, Batch, BatchWriter, DecodeError, Frame, SnapshotStart},
    disk::{Disk, DiskFile, require_room},
    state::{Current, History, State},
};

const SEGMENT: &str = ".segment";
const SNAPSHOT: &str = ".snapshot";
const UNFINISHED: &str = ".new";
/// The bytes of one write of a snapshot. Little under test, so that a snapshot takes several.
const SNAPSHOT_CHUNK: usize = if cfg!(test) { 100 } else { 1 << 20 };
/// The free space that a snapshot leaves to concurrent appends, in bytes.
const SNAPSHOT_SPARE: u64 = if cfg!(test) { 200 } else { 16 << 20 };

/// A segment file.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Its first batch.
    pub first: u64,
    /// The last version before its first record.
    pub after: Version,
}

impl Segment {
    pub(super) fn name(&self) -> String {
        numbered(self.first, SEGMENT)
    }

    /// Whether a snapshot and everything from this segment on lack nothing: no record, and none of the batches that
    /// only have leases in them.
    pub(super) fn continues(&self, start: SnapshotStart) -> bool {
        self.after <= start.version && self.first <= start.batch + 1
    }
}

/// The log as found on disk.
#[derive(Debug)]
pub(super) struct Recovered {
    pub state: State,
    pub history: History,
    /// All segments, oldest first; the last is the one to append to.
    pub segments: Vec<Segment>,
    pub file: Box<dyn DiskFile>,
    /// The length of the last segment, in bytes.
    pub length: u64,
    /// The bytes of an unfinished write that were cut off.
    pub cut: u64,
}

pub(super) fn unavailable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> LogError {
    LogError::Unavailable(error.into())
}

fn corrupt(name: &str, what: impl std::fmt::Display) -> LogError {
    LogError::Corrupt(format!("{name}: {what}"))
}

fn numbered(number: u64, suffix: &str) -> String {
    format!("{number:020}{suffix}")
}

/// The numbers of the files with this suffix, ascending.
fn numbers(names: &[String], suffix: &str) -> Vec<u64> {
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| name.strip_suffix(suffix)?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// Reads the log back, repairs what a crash may leave, and starts it where there is none.
pub(super) fn recover(disk: &dyn Disk) -> Result<Recovered, LogError> {
    let names = disk.list().map_err(unavailable)?;
    for name in names.iter().filter(|name| name.ends_with(UNFINISHED)) {
        disk.remove(name).map_err(unavailable)?;
    }
    let (start, mut state) = newest_snapshot(disk, &names)?;
    let mut history = History::starting_at(state.head);

    let segments = numbers(&names, SEGMENT);
    let mut found = Vec::new();
    let mut tail = Vec::new();
    let mut cut = 0;
    let mut replay = Replay { start, next: None, state: &mut state, history: &mut history };
    for (index, first) in segments.iter().enumerate() {
        let name = numbered(*first, SEGMENT);
        let mut bytes = disk.read(&name).map_err(unavailable)?;
        let last = index + 1 == segments.len();
        let (segment, good) = replay.segment(&name, *first, &bytes, last)?;
        cut = bytes.len() - good;
        bytes.truncate(good);
        tail = bytes;
        found.push(segment);
    }
    let reached = replay.next.map_or(0, |next| next - 1);
    if let Some(start) = start
        && (reached < start.batch || state.head < start.version)
    {
        return Err(LogError::Corrupt(format!(
            "the segments end at batch {reached}, version {}, before the snapshot's {} and {}",
            state.head, start.batch, start.version
        )));
    }
    state.batch = reached;

    let (file, length) = match found.last() {
        Some(last) => (rewrite(disk, &last.name(), &tail).map_err(unavailable)?, tail.len() as u64),
        None => {
            let (segment, file, length) = create_segment(disk, &mut state).map_err(unavailable)?;
            found.push(segment);
            (file, length)
        }
    };
    Ok(Recovered { state, history, segments: found, file, length, cut: cut as u64 })
}

/// Starts a segment; its first batch says where it continues.
pub(super) fn create_segment(disk: &dyn Disk, state: &mut State) -> io::Result<(Segment, Box<dyn DiskFile>, u64)> {
    let segment = Segment { first: state.batch + 1, after: state.head };
    let mut writer = BatchWriter::new(segment.first);
    writer.push(&Frame::SegmentStart { head: segment.after });
    let bytes = writer.finish();
    let file = rewrite(disk, &segment.name(), &bytes)?;
    state.batch = segment.first;
    Ok((segment, file, bytes.len() as u64))
}

/// Puts `bytes` durably into the file `name` and keeps it open for more.
///
/// The last segment is synced whenever the log is opened: an earlier process's bytes read back from the kernel's cache, but
/// after a failed sync they need not be on the disk.
fn rewrite(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<Box<dyn DiskFile>> {
    put(disk, name, |file| file.append(bytes))
}

/// Puts what `write` writes durably into the file `name` and keeps it open. An attempt that fails leaves nothing: on a
/// full disk it would take the room that appends need.
fn put(
    disk: &dyn Disk,
    name: &str,
    write: impl FnOnce(&mut dyn DiskFile) -> io::Result<()>,
) -> io::Result<Box<dyn DiskFile>> {
    let unfinished = format!("{name}{UNFINISHED}");
    let named = disk.create(&unfinished).and_then(|mut file| {
        write(file.as_mut())?;
        file.sync()?;
        disk.rename(&unfinished, name)?;
        Ok(file)
    });
    let file = named.inspect_err(|_| discard(disk, &unfinished))?;
    disk.sync_directory()?;
    Ok(file)
}

/// Removes a useless file. After a failure the next attempt, or the next start, removes it.
fn discard(disk: &dyn Disk, name: &str) {
    // Some file systems have the room back only when the removal is durable.
    match disk.remove(name).and_then(|()| disk.sync_directory()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(name, %error, "an unfinished file of the log cannot be removed for now");
        }
        _ => {}
    }
}

struct Replay<'a> {
    start: Option<SnapshotStart>,
    /// The number that the next batch must have, once one was read.
    next: Option<u64>,
    state: &'a mut State,
    history: &'a mut History,
}

impl Replay<'_> {
    /// Replays one segment; returns it and how many of its bytes are good.
    fn segment(&mut self, name: &str, first: u64, bytes: &[u8], last: bool) -> Result<(Segment, usize), LogError> {
        // The first batch was durable before the file had its name, so it cannot be torn.
        let (batch, mut at) =
            codec::decode(bytes).map_err(|error| corrupt(name, format_args!("its start: {error}")))?;
        let segment = self.enter(name, first, &batch)?;
        let mut next = first + 1;
        while at < bytes.len() {
            let (batch, length) = match codec::decode(&bytes[at..]) {
                Ok(decoded) => decoded,
                // A checksum that matches is no torn write, and neither is one with others behind it.
                Err(error)
                    if !last || error == DecodeError::Malformed || codec::holds_batch_after(&bytes[at..], next) =>
                {
                    return Err(corrupt(name, format_args!("the batch at byte {at}: {error}")));
                }
                Err(_) => break,
            };
            if batch.sequence != next {
                return Err(corrupt(name, format_args!("batch {} at byte {at} is out of order", batch.sequence)));
            }
            next += 1;
            self.batch(name, batch)?;
            at += length;
        }
        self.next = Some(next);
        Ok((segment, at))
    }

    /// Checks that a segment continues where the one before it, or the snapshot, ends.
    fn enter(&self, name: &str, first: u64, batch: &Batch) -> Result<Segment, LogError> {
        let Some(Frame::SegmentStart { head }) = batch.frames.first() else {
            return Err(corrupt(name, "it does not begin as a segment does"));
        };
        let segment = Segment { first, after: *head };
        let continues = match (self.next, self.start) {
            (Some(next), _) => first == next,
            (None, Some(start)) => segment.continues(start),
            (None, None) => first == 1,
        };
        if continues && batch.sequence == first {
            Ok(segment)
        } else {
            Err(corrupt(name, "it does not continue where what is before it ends"))
        }
    }

    fn batch(&mut self, name: &str, batch: Batch) -> Result<(), LogError> {
        let leases = self.start.is_none_or(|start| batch.sequence > start.batch);
        for frame in batch.frames {
            match frame {
                Frame::Record(record) if record.version <= self.history.oldest => {}
                Frame::Record(record) if record.version.0 == self.state.head.0 + 1 => {
                    self.history.push(self.state.apply(record));
                }
                Frame::Record(record) => {
                    return Err(corrupt(name, format_args!("version {} follows {}", record.version, self.state.head)));
                }
                Frame::Held(held) if leases => self.state.hold(held),
                Frame::Released { name, token } if leases => self.state.release(&name, token),
                Frame::Held(_) | Frame::Released { .. } | Frame::SegmentStart { .. } => {}
                Frame::SnapshotStart(_) | Frame::Value(_) | Frame::SnapshotEnd { .. } => {
                    return Err(corrupt(name, "it has a snapshot's content"));
                }
            }
        }
        Ok(())
    }
}

/// Writes all of `values`, which are those at `start.version`, and the leases of `state`.
///
/// # Errors
///
/// [`io::ErrorKind::StorageFull`] when that would leave too little room for appends; nothing is written then.
pub(super) fn write_snapshot(
    disk: &dyn Disk,
    start: SnapshotStart,
    values: &[stoa_machinery::log::Entry],
    state: &State,
) -> io::Result<()> {
    let sizes = values.iter().map(|entry| entry.key.as_str().len() + entry.value.len());
    let sizes = sizes.chain(state.leases.values().map(|held| held.name.len() + held.holder.len()));
    let size: usize = sizes.map(|size| size + codec::FRAME_OVERHEAD).sum();
    require_room(disk.room(), size as u64, SNAPSHOT_SPARE)?;
    let frames = std::iter::once(Frame::SnapshotStart(start))
        .chain(state.leases.values().cloned().map(Frame::Held))
        .chain(values.iter().cloned().map(Frame::Value))
        .chain(std::iter::once(Frame::SnapshotEnd { values: values.len() as u64 }));
    put(disk, &numbered(start.version.0, SNAPSHOT), |file| {
        let mut writer = BatchWriter::new(0);
        let mut sequence = 0;
        for frame in frames {
            if writer.payload_len() >= SNAPSHOT_CHUNK {
                sequence += 1;
                file.append(&std::mem::replace(&mut writer, BatchWriter::new(sequence)).finish())?;
            }
            writer.push(&frame);
        }
        file.append(&writer.finish())
    })
    .map(drop)
}

/// Removes the snapshots before `version`.
pub(super) fn retire_snapshots(disk: &dyn Disk, version: Version) -> io::Result<()> {
    for number in numbers(&disk.list()?, SNAPSHOT).into_iter().filter(|number| *number < version.0) {
        disk.remove(&numbered(number, SNAPSHOT))?;
    }
    Ok(())
}

/// Loads the newest snapshot that reads back. An older one does as well where the segments
/// after it are still there, which the replay checks.
fn newest_snapshot(disk: &dyn Disk, names: &[String]) -> Result<(Option<SnapshotStart>, State), LogError> {
    let mut damage = None;
    for number in numbers(names, SNAPSHOT).into_iter().rev() {
        let name = numbered(number, SNAPSHOT);
        let bytes = disk.read(&name).map_err(unavailable)?;
        match read_snapshot(&bytes) {
            Some((start, state)) if start.version.0 == number => return Ok((Some(start), state)),
            _ => {
                tracing::error!(snapshot = name, "a snapshot of the log does not read back");
                damage.get_or_insert(corrupt(&name, "it does not read back"));
            }
        }
    }
    // With every segment still there no snapshot is needed.
    match damage {
        Some(error) if numbers(names, SEGMENT).first() != Some(&1) => Err(error),
        _ => Ok((None, State::default())),
    }
}

fn read_snapshot(mut bytes: &[u8]) -> Option<(SnapshotStart, State)> {
    let mut state = State::default();
    let mut start = None;
    let mut sequence = 0;
    while !bytes.is_empty() {
        let (batch, length) = codec::decode(bytes).ok().filter(|(batch, _)| batch.sequence == sequence)?;
        bytes = &bytes[length..];
        sequence += 1;
        for frame in batch.frames {
            match frame {
                Frame::SnapshotStart(found) if start.is_none() => {
                    start = Some(found);
                    state.head = found.version;
                    state.token = found.token;
                }
                Frame::Held(held) => state.hold(held),
                Frame::Value(entry) => {
                    state.values.insert(entry.key, Current { version: entry.version, value: entry.value });
                }
                Frame::SnapshotEnd { values } if values == state.values.len() as u64 && bytes.is_empty() => {
                    return start.map(|start| (start, state));
                }
                _ => return None,
            }
        }
    }
    None
}
