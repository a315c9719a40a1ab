//! Writes a pack, version 2, and its index, as in gitformat-pack(5).

use std::{
    cell::RefCell,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use flate2::{Compress, Compression, FlushCompress, Status};
use git2::Oid;
use ring::digest;

use super::pack_index::{self, Place};

/// The kinds of entries, beside those of objects.
pub(super) const OFS_DELTA: u8 = 6;
pub(super) const REF_DELTA: u8 = 7;
/// The kind of a whole tree.
pub(super) const TREE: u8 = 2;

/// A pack that is being written.
pub(super) struct PackFile {
    folder: PathBuf,
    file: BufWriter<File>,
    digest: digest::Context,
    length: u64,
    places: Vec<Place>,
}

impl PackFile {
    /// Begins a pack of `count` objects in a folder.
    pub(super) fn create(folder: &Path, count: usize) -> io::Result<Self> {
        let file = BufWriter::new(create(&folder.join("new.pack"))?);
        let digest = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        let mut pack = Self { folder: folder.to_owned(), file, digest, length: 0, places: Vec::with_capacity(count) };
        let count = u32::try_from(count).map_err(io::Error::other)?;
        pack.write(b"PACK\0\0\0\x02")?;
        pack.write(&count.to_be_bytes())?;
        Ok(pack)
    }

    /// Adds an object as an [`entry`], or what git made of it.
    pub(super) fn add(&mut self, id: Oid, entry: &[u8]) -> io::Result<()> {
        self.places.push(Place { id, crc: crc32fast::hash(entry), offset: self.length });
        self.write(entry)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.digest.update(bytes);
        self.length += bytes.len() as u64;
        self.file.write_all(bytes)
    }

    /// Ends the pack and writes its index, both synced; returns their name without suffix.
    pub(super) fn finish(mut self) -> io::Result<String> {
        let trailer = oid(self.digest.finish())?;
        self.file.write_all(trailer.as_bytes())?;
        self.file.into_inner()?.sync_all()?;
        self.places.sort_unstable_by_key(|place| place.id);
        let mut index = pack_index::encode(&self.places, trailer);
        let checksum = sha1(&[&index])?;
        index.extend(checksum.as_bytes());
        let mut file = create(&self.folder.join("new.idx"))?;
        file.write_all(&index)?;
        file.sync_all()?;
        let name = format!("pack-{trailer}");
        for suffix in ["pack", "idx"] {
            fs::rename(self.folder.join(format!("new.{suffix}")), self.folder.join(format!("{name}.{suffix}")))?;
        }
        Ok(name)
    }
}

fn create(path: &Path) -> io::Result<File> {
    // What an attempt that broke off left may not be written to.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)
}

/// The SHA-1 of some bytes.
pub(super) fn sha1(parts: &[&[u8]]) -> io::Result<Oid> {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    parts.iter().for_each(|part| context.update(part));
    oid(context.finish())
}

fn oid(digest: digest::Digest) -> io::Result<Oid> {
    Oid::from_bytes(digest.as_ref()).map_err(io::Error::other)
}

thread_local! {
    /// Most entries are shorter than what a new one of these has to clear.
    static COMPRESS: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), true));
}

/// An entry: its type and size in groups of 4 and then 7 bits, its base, its compressed content.
pub(super) fn entry(kind: u8, base: &[u8], content: &[u8]) -> io::Result<Vec<u8>> {
    let mut entry = header(kind, content.len() as u64, base);
    COMPRESS.with_borrow_mut(|compress| {
        compress.reset();
        loop {
            let done = usize::try_from(compress.total_in()).map_err(io::Error::other)?;
            entry.reserve((content.len() - done) / 2 + 64);
            if compress.compress_vec(&content[done..], &mut entry, FlushCompress::Finish)? == Status::StreamEnd {
                return Ok(entry);
            }
        }
    })
}

/// How an entry begins.
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
