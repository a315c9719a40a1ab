//! New objects and the pack they are written as.
//!
//! A batch of commits changes a few entries of trees that may hold thousands, so each tree after
//! the first is written as its difference from the one before, which is known without any search.
//! The format is Git's "pack" version 2 with an index of version 2, as in gitformat-pack(5).

use std::{
    collections::BTreeMap,
    fs::OpenOptions,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use flate2::{Compression, write::ZlibEncoder};
use git2::{ObjectType, Oid};
use ring::digest;

/// Objects that are not in the repository yet.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// Encoded entries of the pack, in the order they were made.
    entries: Vec<Vec<u8>>,
    /// Which entry an object is.
    places: BTreeMap<Oid, usize>,
}

const REF_DELTA: u8 = 7;
const MIN_DELTA: usize = 4;

impl Objects {
    /// Adds an object, unless it is there, and returns its id.
    pub(super) fn add(&mut self, kind: ObjectType, content: &[u8]) -> Result<Oid, git2::Error> {
        let id = if kind == ObjectType::Tree { tree_id(content)? } else { Oid::hash_object(kind, content)? };
        if !self.places.contains_key(&id) {
            let number = match kind {
                ObjectType::Commit => 1,
                ObjectType::Tree => 2,
                _ => 3,
            };
            let entry = entry(number, content.len(), &[], content).map_err(failed)?;
            self.insert(id, entry);
        }
        Ok(id)
    }

    /// Adds a tree as what it has in place of `replaced` bytes of `base`, a tree that was added here.
    pub(super) fn add_tree(&mut self, content: &[u8], base: Oid, splice: &Splice) -> Result<Oid, git2::Error> {
        if !self.places.contains_key(&base) {
            return self.add(ObjectType::Tree, content);
        }
        let id = tree_id(content)?;
        if !self.places.contains_key(&id) {
            let delta = splice.delta(content);
            // Readers take shorter ones for damage.
            if delta.len() < MIN_DELTA {
                return self.add(ObjectType::Tree, content);
            }
            let entry = entry(REF_DELTA, delta.len(), base.as_bytes(), &delta).map_err(failed)?;
            self.insert(id, entry);
        }
        Ok(id)
    }

    fn insert(&mut self, id: Oid, entry: Vec<u8>) {
        self.places.insert(id, self.entries.len());
        self.entries.push(entry);
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Writes them into `directory` as a pack and its index, both synced, and returns their name
    /// without suffix.
    pub(super) fn write(&self, directory: &Path) -> Result<String, git2::Error> {
        let mut pack = b"PACK\0\0\0\x02".to_vec();
        pack.extend(count(self.entries.len()).to_be_bytes());
        let mut offsets = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            offsets.push(pack.len());
            pack.extend(entry);
        }
        let trailer = sha1(&[&pack])?;
        pack.extend(trailer.as_bytes());

        let mut index = b"\xfftOc\0\0\0\x02".to_vec();
        let mut upto = 0;
        for first in 0..=u8::MAX {
            upto += self.places.keys().filter(|id| id.as_bytes()[0] == first).count();
            index.extend(count(upto).to_be_bytes());
        }
        self.places.keys().for_each(|id| index.extend(id.as_bytes()));
        self.places.values().for_each(|place| index.extend(crc32fast::hash(&self.entries[*place]).to_be_bytes()));
        self.places.values().for_each(|place| index.extend(count(offsets[*place]).to_be_bytes()));
        index.extend(trailer.as_bytes());
        let checksum = sha1(&[&index])?;
        index.extend(checksum.as_bytes());

        let name = format!("pack-{trailer}");
        for (suffix, content) in [("pack", pack), ("idx", index)] {
            write_synced(&directory.join(format!("{name}.{suffix}")), &content).map_err(failed)?;
        }
        Ok(name)
    }
}

/// The id of a tree. Trees of large folders are what is hashed most, so they are not looked through for attempts at a
/// collision, as libgit2 does: names and ids of what was looked through leave no room for one.
fn tree_id(content: &[u8]) -> Result<Oid, git2::Error> {
    sha1(&[format!("tree {}\0", content.len()).as_bytes(), content])
}

fn sha1(parts: &[&[u8]]) -> Result<Oid, git2::Error> {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    parts.iter().for_each(|part| context.update(part));
    Oid::from_bytes(context.finish().as_ref())
}

/// A number in a pack. One with more than 2 GiB would need another index, but batches are small.
fn count(number: usize) -> u32 {
    u32::try_from(number).ok().filter(|number| *number < 1 << 31).expect("a batch of commits is far below 2 GiB")
}

fn failed(error: io::Error) -> git2::Error {
    git2::Error::from_str(&format!("objects cannot be written: {error}"))
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o444).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// An entry: its type and size in groups of 4 and then 7 bits, its base, its compressed content.
fn entry(kind: u8, size: usize, base: &[u8], content: &[u8]) -> io::Result<Vec<u8>> {
    let mut entry = Vec::new();
    let mut rest = size >> 4;
    let mut byte = kind << 4 | (size & 0xf) as u8;
    while rest != 0 {
        entry.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    entry.push(byte);
    entry.extend(base);
    let mut encoder = ZlibEncoder::new(entry, Compression::fast());
    encoder.write_all(content)?;
    encoder.finish()
}

/// A piece of some bytes that was replaced by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Splice {
    /// Where the piece began.
    pub at: usize,
    /// How long it was.
    pub removed: usize,
    /// How long what is there instead is.
    pub added: usize,
}

impl Splice {
    /// Instructions that make `after` from what it was before: copy, insert, copy.
    fn delta(&self, after: &[u8]) -> Vec<u8> {
        let before = after.len() - self.added + self.removed;
        let mut delta = Vec::new();
        varint(&mut delta, before);
        varint(&mut delta, after.len());
        copy(&mut delta, 0, self.at);
        for piece in after[self.at..self.at + self.added].chunks(0x7f) {
            delta.push(piece.len() as u8);
            delta.extend(piece);
        }
        copy(&mut delta, self.at + self.removed, before);
        delta
    }
}

fn varint(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Copies these bytes of the base, in pieces that a reader of any age takes.
fn copy(out: &mut Vec<u8>, mut from: usize, to: usize) {
    while from < to {
        let length = (to - from).min(0xffff);
        let at = out.len();
        out.push(0x80);
        for (bit, byte) in [from, from >> 8, from >> 16, from >> 24, length, length >> 8].into_iter().enumerate() {
            if byte & 0xff != 0 {
                out[at] |= 1 << bit;
                out.push((byte & 0xff) as u8);
            }
        }
        from += length;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Follows the instructions of a delta, as gitformat-pack(5) has them.
    fn follow(base: &[u8], mut delta: &[u8]) -> Vec<u8> {
        let mut take = || {
            let byte = delta[0];
            delta = &delta[1..];
            byte
        };
        let mut size = || {
            let (mut size, mut shift) = (0, 0);
            loop {
                let byte = take();
                size |= usize::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    return size;
                }
            }
        };
        assert_eq!(size(), base.len());
        let result = size();
        let mut out = Vec::new();
        while out.len() < result {
            let instruction = take();
            if instruction & 0x80 == 0 {
                out.extend((0..instruction).map(|_| take()));
                continue;
            }
            let mut fields = [0_usize; 6];
            for (bit, field) in fields.iter_mut().enumerate() {
                if instruction & 1 << bit != 0 {
                    *field = usize::from(take());
                }
            }
            let from = fields[0] | fields[1] << 8 | fields[2] << 16 | fields[3] << 24;
            let length = fields[4] | fields[5] << 8;
            out.extend(&base[from..from + length]);
        }
        assert!(delta.is_empty());
        out
    }

    proptest! {
        #[test]
        fn a_delta_makes_the_one_from_the_other(
            length in 0_usize..200_000, at: prop::sample::Index, end: prop::sample::Index, new in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let base: Vec<u8> = (0..length).map(|n| (n * 31 % 251) as u8).collect();
            let (at, end) = (at.index(length + 1), end.index(length + 1));
            let (at, end) = (at.min(end), at.max(end));
            let after = [&base[..at], &new, &base[end..]].concat();
            let splice = Splice { at, removed: end - at, added: new.len() };
            prop_assert_eq!(follow(&base, &splice.delta(&after)), after);
        }
    }
}
