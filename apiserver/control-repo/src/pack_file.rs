//! Writes a pack, version 2, and its index, as in gitformat-pack(5).
//!
//! Start at [`PackFile`]. Elsewhere: `pack_index` encodes the index.

use std::{
    cell::RefCell,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use flate2::{Compress, Compression, FlushCompress, Status};
use git2::Oid;
use sha1::{Digest as _, Sha1};

use super::pack_index::{self, IndexEntry};

/// The kinds of entries, beside those of objects.
pub(super) const OFS_DELTA: u8 = 6;
pub(super) const REF_DELTA: u8 = 7;
/// The kind of a whole tree.
pub(super) const TREE: u8 = 2;

/// A whole tree of this length or more is stored uncompressed. Half of it is ids, which do not compress, and the next merge
/// of packs makes it a difference from a newer tree.
pub(super) const LARGE_TREE: usize = 1 << 10;

/// A pack that is being written.
pub(super) struct PackFile {
    folder: PathBuf,
    file: Digested,
    length: u64,
    places: Vec<IndexEntry>,
}

/// A file that ends in the digest of its content.
struct Digested {
    file: BufWriter<File>,
    digest: Sha1,
}

impl Digested {
    fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: BufWriter::new(create(path)?), digest: Sha1::new() })
    }

    /// Ends the file, synced; returns its digest.
    fn finish(mut self) -> io::Result<Oid> {
        let digest = oid(&self.digest.finalize())?;
        self.file.write_all(digest.as_bytes())?;
        self.file.into_inner()?.sync_all()?;
        Ok(digest)
    }
}

impl Write for Digested {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl PackFile {
    /// Begins a pack of `count` objects in a folder.
    pub(super) fn create(folder: &Path, count: usize) -> io::Result<Self> {
        let file = Digested::create(&folder.join("new.pack"))?;
        let mut pack = Self { folder: folder.to_owned(), file, length: 0, places: Vec::with_capacity(count) };
        let count = u32::try_from(count).map_err(io::Error::other)?;
        pack.write(b"PACK\0\0\0\x02")?;
        pack.write(&count.to_be_bytes())?;
        Ok(pack)
    }

    /// Adds an object as an [`entry`], ours or one of git.
    pub(super) fn add(&mut self, id: Oid, entry: &[u8]) -> io::Result<()> {
        self.places.push(IndexEntry { id, crc: crc32fast::hash(entry), offset: self.length });
        self.write(entry)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// Ends the pack and writes its index, both synced; returns their name without suffix.
    pub(super) fn finish(mut self) -> io::Result<String> {
        let trailer = self.file.finish()?;
        self.places.sort_unstable_by_key(|place| place.id);
        let mut index = Digested::create(&self.folder.join("new.idx"))?;
        pack_index::encode(&self.places, trailer, &mut index)?;
        index.finish()?;
        let name = format!("pack-{trailer}");
        for suffix in ["pack", "idx"] {
            fs::rename(self.folder.join(format!("new.{suffix}")), self.folder.join(format!("{name}.{suffix}")))?;
        }
        Ok(name)
    }
}

fn create(path: &Path) -> io::Result<File> {
    // A leftover of a failed attempt is read-only.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)
}

/// The SHA-1 of some bytes.
pub(super) fn sha1(parts: &[&[u8]]) -> io::Result<Oid> {
    let mut digest = Sha1::new();
    parts.iter().for_each(|part| digest.update(part));
    oid(&digest.finalize())
}

fn oid(digest: &[u8]) -> io::Result<Oid> {
    Oid::from_bytes(digest).map_err(io::Error::other)
}

thread_local! {
    /// Reused, because a new one clears more memory than most entries have bytes.
    static COMPRESS: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), true));
    /// Makes uncompressed streams.
    static STORE: RefCell<Compress> = RefCell::new(Compress::new(Compression::none(), true));
}

/// Content up to this length is stored uncompressed: the setup of a compressor would cost more than everything else, and
/// short content is mostly ids.
const SHORT: usize = 320;

/// An entry: its type and size in groups of 4 and then 7 bits, its base, its content as a zlib stream.
pub(super) fn entry(kind: u8, base: &[u8], content: &[u8]) -> io::Result<Vec<u8>> {
    let mut entry = header(kind, content.len() as u64, base);
    match content.len() {
        ..=SHORT => store(content, &mut entry)?,
        LARGE_TREE.. if kind == TREE => STORE.with_borrow_mut(|store| deflate(store, content, &mut entry))?,
        _ => COMPRESS.with_borrow_mut(|compress| deflate(compress, content, &mut entry))?,
    }
    Ok(entry)
}

/// Adds content as a zlib stream.
fn deflate(compress: &mut Compress, content: &[u8], entry: &mut Vec<u8>) -> io::Result<()> {
    compress.reset();
    loop {
        let done = usize::try_from(compress.total_in()).map_err(io::Error::other)?;
        entry.reserve((content.len() - done) / 2 + 64);
        if compress.compress_vec(&content[done..], entry, FlushCompress::Finish)? == Status::StreamEnd {
            return Ok(());
        }
    }
}

/// Adds content as a zlib stream of one block that is not compressed, as in RFC 1950 and, 3.2.4, RFC 1951.
fn store(content: &[u8], entry: &mut Vec<u8>) -> io::Result<()> {
    let length = u16::try_from(content.len()).map_err(io::Error::other)?;
    entry.extend([0x78, 0x01, 0x01]);
    entry.extend(length.to_le_bytes());
    entry.extend((!length).to_le_bytes());
    entry.extend(content);
    entry.extend(adler32(content).to_be_bytes());
    Ok(())
}

/// The checksum of content that is [`SHORT`], so that neither sum grows out of its type.
fn adler32(content: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (low, high) = content.iter().fold((1, 0), |(low, high), byte| {
        let low = low + u32::from(*byte);
        (low, high + low)
    });
    (high % MODULUS) << 16 | (low % MODULUS)
}

/// The header of an entry.
pub(super) fn header(kind: u8, size: u64, base: &[u8]) -> Vec<u8> {
    let mut header = Vec::new();
    let mut rest = size >> 4;
    let mut byte = kind << 4 | (size & 0xf) as u8;
    while rest != 0 {
        header.push(byte | 0x80);
        byte = (rest & 0x7f) as u8;
        rest >>= 7;
    }
    header.push(byte);
    header.extend(base);
    header
}

#[cfg(test)]
mod tests {
    use git2::{ObjectType, Repository};

    use super::*;

    #[test]
    fn git_reads_compressed_and_short_objects() {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let contents: Vec<Vec<u8>> =
            (0..=2 * SHORT).map(|length| (0..length).map(|n| (n * 7) as u8).collect()).collect();
        let file = Oid::hash_object(ObjectType::Blob, &contents[0]).unwrap();
        let tree = |files: usize| -> Vec<u8> {
            let name = |number: usize| format!("100644 {number:05}\0").into_bytes();
            (0..files).flat_map(|number| [name(number).as_slice(), file.as_bytes()].concat()).collect()
        };
        // The longest is more than one block that is not compressed can be.
        let trees = [tree(10), tree(LARGE_TREE / 33), tree(LARGE_TREE / 33 + 1), tree(5_000)];
        let all = contents.iter().map(|content| (ObjectType::Blob, 3, content));
        let all: Vec<_> = all.chain(trees.iter().map(|tree| (ObjectType::Tree, TREE, tree))).collect();
        let mut pack = PackFile::create(&folder.path().join("objects/pack"), all.len()).unwrap();
        for (kind, number, content) in &all {
            let id = Oid::hash_object(*kind, content).unwrap();
            pack.add(id, &entry(*number, &[], content).unwrap()).unwrap();
        }
        pack.finish().unwrap();
        let odb = repository.odb().unwrap();
        for (kind, _, content) in &all {
            let id = Oid::hash_object(*kind, content).unwrap();
            assert_eq!(odb.read(id).unwrap().data(), content.as_slice());
        }
        let fsck = std::process::Command::new("git").arg("-C").arg(folder.path()).args(["fsck", "--strict"]).output();
        let fsck = fsck.unwrap();
        assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stderr));
    }
}
