//! The properties of the log's files after any crash or fault.

use std::{any::Any, collections::BTreeMap, io, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use stoa_machinery::log::{Change, Key, LogError, Origin, Record, Version};

use super::{
    codec::{self, Batch, BatchWriter, DecodeError, Frame},
    disk::{Disk, DiskFile},
    files::{Segment, recover},
};

fn encode(batch: &Batch) -> Vec<u8> {
    let mut writer = BatchWriter::new(batch.sequence);
    batch.frames.iter().for_each(|frame| writer.push(frame));
    writer.finish()
}

/// Bytes, and bytes as the payload of a batch whose checksum is right: what decodes is the same once it is encoded.
pub(crate) fn records(data: &[u8]) {
    let wrapped = codec::enclose(7, data);
    for bytes in [data, &wrapped] {
        match codec::decode(bytes) {
            Ok((batch, length)) => {
                assert!(length <= bytes.len());
                assert_eq!(encode(&batch), &bytes[..length]);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert!(!matches!(
        codec::decode(&wrapped),
        Err(DecodeError::Truncated | DecodeError::Magic | DecodeError::Checksum)
    ));
    assert!(codec::holds_batch_after(&wrapped, 6));
    let behind = [data, &wrapped].concat();
    assert!(codec::holds_batch_after(&behind, 6));
    codec::holds_batch_after(data, 0);
}

/// A log of three batches with the bytes behind it. What was durable is there when it is opened, unless it is refused
/// as damaged; and it opens again to the same.
pub(crate) fn tails(data: &[u8]) {
    let record = |version: u64| {
        Frame::Record(Record {
            version: Version(version),
            key: Key::new(format!("/k/{version}")),
            change: Change::Put(Bytes::from_static(b"{}")),
            origin: Origin { user: "u".into(), verb: "create".into(), message: String::new() },
            time_ms: 1,
        })
    };
    let first = encode(&Batch { sequence: 1, frames: vec![Frame::SegmentStart { head: Version(0) }] });
    let second = encode(&Batch { sequence: 2, frames: vec![record(1), record(2)] });
    let third = encode(&Batch { sequence: 3, frames: vec![record(3)] });
    let durable = [first, second, third].concat();
    // Once as it is, once as the payload of the batch that would be next.
    let segment = Segment { first: 1, after: Version(0) }.name();
    for tail in [data.to_vec(), codec::enclose(4, data)] {
        let disk = Memory::default();
        disk.0.lock().insert(segment.clone(), [durable.as_slice(), &tail].concat());
        match recover(&disk) {
            Ok(found) => {
                assert!(found.state.head >= Version(3));
                assert!(
                    (1..=3).all(|version| found.state.values.contains_key(&Key::new(format!("/k/{version}"))))
                        || found.state.head > Version(3)
                );
                assert_eq!(found.length + found.cut, (durable.len() + tail.len()) as u64);
                assert!(found.length >= durable.len() as u64);
                let again = recover(&disk).expect("it was repaired");
                assert_eq!((again.state.head, again.length, again.cut), (found.state.head, found.length, 0));
            }
            Err(LogError::Corrupt(_)) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    // A file that is none of ours is refused, or what it says is taken; nothing else happens.
    for name in [segment, format!("{:020}.snapshot", 3)] {
        for bytes in [data.to_vec(), codec::enclose(0, data), codec::enclose(1, data)] {
            let disk = Memory::default();
            disk.0.lock().insert(name.clone(), bytes);
            if let Err(error) = recover(&disk) {
                assert!(matches!(error, LogError::Corrupt(_)), "{error:?}");
            }
        }
    }
}

type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A directory in memory.
#[derive(Clone, Debug, Default)]
struct Memory(Files);

#[derive(Debug)]
struct MemoryFile {
    files: Files,
    name: String,
}

impl Disk for Memory {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.0.lock().get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.0.lock().insert(name.to_owned(), Vec::new());
        Ok(Box::new(MemoryFile { files: self.0.clone(), name: name.to_owned() }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.0.lock();
        let bytes = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.lock().remove(name);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn room(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn lock(&self) -> io::Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(()))
    }
}

impl DiskFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.files.lock().entry(self.name.clone()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.files.lock().entry(self.name.clone()).or_default().truncate(length);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
