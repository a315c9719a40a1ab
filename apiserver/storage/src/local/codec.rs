//! The bytes of the log: how batches of frames become bytes, and back.
//!
//! Everything is a [`Batch`]: one checksummed unit that is there whole or not at all. Integers
//! are little-endian, strings and bytes are preceded by their length as a `u32`:
//!
//! ```text
//! batch  = magic "StoB", payload length u32, crc32 of the rest u32, sequence u64, payload
//! payload = frame*
//! frame  = kind u8, body
//! ```
//!
//! Decoding is a pure function of the bytes. Whatever they are, it answers and never panics.

use std::time::Duration;

use bytes::Bytes;
use stoa_machinery::log::{Change, Entry, Key, Origin, Record, Version};

use super::state::Holding;

const MAGIC: &[u8; 4] = b"StoB";
/// Bytes before a batch's payload.
pub(super) const BATCH_HEADER: usize = 20;

/// The most bytes of a snapshot's frame besides its texts and value, with its share of a batch's header: lengths and
/// numbers.
pub(super) const FRAME_OVERHEAD: usize = 40;

/// A part of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// The first frame of a segment file.
    SegmentStart {
        /// The last version before this segment.
        head: Version,
    },
    /// One write.
    Record(Record),
    /// A lease was granted or renewed.
    Held(Holding),
    /// A lease was given up by the holder of this token.
    Released { name: String, token: u64 },
    /// The first frame of a snapshot file.
    SnapshotStart(SnapshotStart),
    /// One value in a snapshot.
    Value(Entry),
    /// The last frame of a snapshot file.
    SnapshotEnd {
        /// The number of values.
        values: u64,
    },
}

/// The header of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SnapshotStart {
    /// The version whose values are in it.
    pub version: Version,
    /// The last batch that was durable when it was written: its leases are as of then.
    pub batch: u64,
    /// The last lease token that was given out.
    pub token: u64,
}

/// Frames that were written together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Its number; they follow each other without a gap.
    pub sequence: u64,
    /// What is in it.
    pub frames: Vec<Frame>,
}

/// Why bytes are not a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("it ends early")]
    Truncated,
    #[error("it does not begin as a batch does")]
    Magic,
    #[error("its checksum does not match")]
    Checksum,
    #[error("its checksum matches, but its content makes no sense")]
    Malformed,
}

/// Builds one batch.
#[derive(Debug)]
pub(super) struct BatchWriter {
    bytes: Vec<u8>,
}

impl BatchWriter {
    pub(super) fn new(sequence: u64) -> Self {
        let mut bytes = Vec::with_capacity(4096);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&sequence.to_le_bytes());
        Self { bytes }
    }

    /// The length of the payload so far.
    pub(super) fn payload_len(&self) -> usize {
        self.bytes.len() - BATCH_HEADER
    }

    pub(super) fn push(&mut self, frame: &Frame) {
        match frame {
            Frame::SegmentStart { head } => {
                self.u8(1);
                self.u64(head.0);
            }
            Frame::Record(record) => self.record(record),
            Frame::Held(held) => {
                self.u8(4);
                self.bytes(held.name.as_bytes());
                self.bytes(held.holder.as_bytes());
                self.u64(held.token);
                self.u64(u64::try_from(held.ttl.as_millis()).unwrap_or(u64::MAX));
                self.i64(held.deadline_ms);
            }
            Frame::Released { name, token } => {
                self.u8(5);
                self.bytes(name.as_bytes());
                self.u64(*token);
            }
            Frame::SnapshotStart(start) => {
                self.u8(6);
                self.u64(start.version.0);
                self.u64(start.batch);
                self.u64(start.token);
            }
            Frame::Value(entry) => {
                self.u8(7);
                self.bytes(entry.key.as_str().as_bytes());
                self.u64(entry.version.0);
                self.bytes(&entry.value);
            }
            Frame::SnapshotEnd { values } => {
                self.u8(8);
                self.u64(*values);
            }
        }
    }

    /// The batch as bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.payload_len()).expect("writes are limited to far less than 4 GiB");
        self.bytes[4..8].copy_from_slice(&length.to_le_bytes());
        let crc = checksum(length, &self.bytes[12..]);
        self.bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        self.bytes
    }

    fn record(&mut self, record: &Record) {
        self.u8(if matches!(record.change, Change::Put(_)) { 2 } else { 3 });
        self.u64(record.version.0);
        self.i64(record.time_ms);
        self.bytes(record.key.as_str().as_bytes());
        self.bytes(record.origin.user.as_bytes());
        self.bytes(record.origin.verb.as_bytes());
        self.bytes(record.origin.message.as_bytes());
        if let Change::Put(value) = &record.change {
            self.bytes(value);
        }
    }

    fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, value: &[u8]) {
        let length = u32::try_from(value.len()).expect("writes are limited to far less than 4 GiB");
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(value);
    }
}

/// A batch with this payload, whatever it is.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn enclose(sequence: u64, payload: &[u8]) -> Vec<u8> {
    let mut writer = BatchWriter::new(sequence);
    writer.bytes.extend_from_slice(payload);
    writer.finish()
}

/// Covers everything but the magic and the checksum itself.
fn checksum(length: u32, rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(rest);
    hasher.finalize()
}

/// Decodes the batch that `bytes` begin with, and says how many bytes it took.
pub(super) fn decode(bytes: &[u8]) -> Result<(Batch, usize), DecodeError> {
    let (payload, sequence) = payload(bytes)?;
    let mut reader = Reader(payload);
    let mut frames = Vec::new();
    while !reader.0.is_empty() {
        frames.push(reader.frame().ok_or(DecodeError::Malformed)?);
    }
    Ok((Batch { sequence, frames }, BATCH_HEADER + payload.len()))
}

/// Whether a whole batch with a number above `sequence` begins anywhere in `bytes`.
pub(super) fn holds_batch_after(bytes: &[u8], sequence: u64) -> bool {
    bytes
        .windows(MAGIC.len())
        .enumerate()
        .filter(|(_, window)| window == MAGIC)
        .any(|(at, _)| payload(&bytes[at..]).is_ok_and(|(_, found)| found > sequence))
}

fn payload(bytes: &[u8]) -> Result<(&[u8], u64), DecodeError> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(DecodeError::Magic);
    }
    let (header, rest) = bytes.split_at_checked(BATCH_HEADER).ok_or(DecodeError::Truncated)?;
    let mut fields = Reader(&header[MAGIC.len()..]);
    let (Some(length), Some(crc), Some(sequence)) = (fields.u32(), fields.u32(), fields.u64()) else {
        return Err(DecodeError::Truncated);
    };
    let payload = rest.get(..length as usize).ok_or(DecodeError::Truncated)?;
    if checksum(length, &bytes[12..BATCH_HEADER + payload.len()]) != crc {
        return Err(DecodeError::Checksum);
    }
    Ok((payload, sequence))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn frame(&mut self) -> Option<Frame> {
        Some(match self.take(1)?[0] {
            1 => Frame::SegmentStart { head: Version(self.u64()?) },
            2 => Frame::Record(self.record(true)?),
            3 => Frame::Record(self.record(false)?),
            4 => Frame::Held(Holding {
                name: self.string()?,
                holder: self.string()?,
                token: self.u64()?,
                ttl: Duration::from_millis(self.u64()?),
                deadline_ms: self.i64()?,
            }),
            5 => Frame::Released { name: self.string()?, token: self.u64()? },
            6 => Frame::SnapshotStart(SnapshotStart {
                version: Version(self.u64()?),
                batch: self.u64()?,
                token: self.u64()?,
            }),
            7 => Frame::Value(Entry { key: self.key()?, version: Version(self.u64()?), value: self.value()? }),
            8 => Frame::SnapshotEnd { values: self.u64()? },
            _ => return None,
        })
    }

    fn record(&mut self, put: bool) -> Option<Record> {
        let version = Version(self.u64()?);
        let time_ms = self.i64()?;
        let key = self.key()?;
        let origin = Origin { user: self.string()?, verb: self.string()?, message: self.string()? };
        let change = if put { Change::Put(self.value()?) } else { Change::Delete };
        Some(Record { version, key, change, origin, time_ms })
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take(8)?.try_into().ok().map(i64::from_le_bytes)
    }

    fn counted(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.counted()?).ok()
    }

    fn string(&mut self) -> Option<String> {
        self.text().map(str::to_owned)
    }

    fn key(&mut self) -> Option<Key> {
        self.text().map(Key::new)
    }

    /// Copied, so that one value does not keep the whole file in memory.
    fn value(&mut self) -> Option<Bytes> {
        self.counted().map(Bytes::copy_from_slice)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame() -> impl Strategy<Value = Frame> {
        let value = proptest::collection::vec(any::<u8>(), 0..64);
        let put = (any::<u64>(), any::<i64>(), ".*", ".*", proptest::option::of(value.clone())).prop_map(
            |(version, time_ms, key, user, value)| {
                Frame::Record(Record {
                    version: Version(version),
                    key: Key::new(key),
                    change: value.map_or(Change::Delete, |value| Change::Put(value.into())),
                    origin: Origin { user, verb: "update".into(), message: String::new() },
                    time_ms,
                })
            },
        );
        prop_oneof![
            put,
            any::<u64>().prop_map(|head| Frame::SegmentStart { head: Version(head) }),
            (".*", ".*", any::<u64>(), any::<u32>(), any::<i64>()).prop_map(
                |(name, holder, token, ttl, deadline_ms)| {
                    Frame::Held(Holding { name, holder, token, ttl: Duration::from_millis(ttl.into()), deadline_ms })
                }
            ),
            (".*", any::<u64>()).prop_map(|(name, token)| Frame::Released { name, token }),
            any::<[u64; 3]>().prop_map(|[version, batch, token]| {
                Frame::SnapshotStart(SnapshotStart { version: Version(version), batch, token })
            }),
            (".*", any::<u64>(), value).prop_map(|(key, version, value)| {
                Frame::Value(Entry { key: Key::new(key), version: Version(version), value: value.into() })
            }),
            any::<u64>().prop_map(|values| Frame::SnapshotEnd { values }),
        ]
    }

    fn encode(batch: &Batch) -> Vec<u8> {
        let mut writer = BatchWriter::new(batch.sequence);
        batch.frames.iter().for_each(|frame| writer.push(frame));
        writer.finish()
    }

    proptest! {
        #[test]
        fn what_was_encoded_decodes(sequence: u64, frames in proptest::collection::vec(frame(), 0..8), rest: Vec<u8>) {
            let batch = Batch { sequence, frames };
            let mut bytes = encode(&batch);
            let length = bytes.len();
            bytes.extend(rest);
            prop_assert_eq!(decode(&bytes), Ok((batch, length)));
        }

        #[test]
        fn arbitrary_bytes_are_answered(bytes: Vec<u8>) {
            let _ = decode(&bytes);
            let _ = holds_batch_after(&bytes, 0);
        }

        /// Bytes that pass the checksum reach the frames, so those must withstand anything too.
        #[test]
        fn arbitrary_payloads_are_answered(payload: Vec<u8>) {
            let bytes = enclose(1, &payload);
            match decode(&bytes) {
                Ok((_, length)) => prop_assert_eq!(length, bytes.len()),
                Err(error) => prop_assert_eq!(error, DecodeError::Malformed),
            }
        }

        #[test]
        fn a_part_is_truncated(frames in proptest::collection::vec(frame(), 0..4), cut: prop::sample::Index) {
            let bytes = encode(&Batch { sequence: 7, frames });
            prop_assert_eq!(decode(&bytes[..cut.index(bytes.len())]).unwrap_err(), DecodeError::Truncated);
        }

        #[test]
        fn a_flipped_bit_is_noticed(frames in proptest::collection::vec(frame(), 0..4), at: prop::sample::Index, bit in 0..8u8) {
            let mut bytes = encode(&Batch { sequence: 7, frames });
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn a_later_batch_is_found_behind_damage(damage in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut bytes = damage;
            bytes.extend(encode(&Batch { sequence: 9, frames: vec![Frame::SnapshotEnd { values: 0 }] }));
            prop_assert!(holds_batch_after(&bytes, 8));
            prop_assert!(!holds_batch_after(&bytes, 9));
        }
    }
}
