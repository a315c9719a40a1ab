//! ZIP archives, as far as packages use them.
//!
//! Start at [`extract`]. The central directory alone counts. Links, encryption, ZIP64, names that lead elsewhere and
//! names that occur twice are rejected, so a package can write only into its own folder.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use flate2::read::DeflateDecoder;
use sha2::{Digest as _, Sha256};

use super::Hash;

/// The longest comment of an archive, with the record that it follows.
const TAIL: u64 = 22 + 0xffff;

/// The limits of a package.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveLimits {
    /// The number of files and folders.
    pub entries: usize,
    /// The size of all files, in bytes.
    pub size: u64,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        Self { entries: super::MOST_ENTRIES, size: 4 << 30 }
    }
}

/// An archive that cannot be extracted.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file cannot be read or written.
    #[error("reading or writing {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is no ZIP archive, or a damaged one.
    #[error("the archive is damaged: {0}")]
    Damaged(&'static str),
    /// An entry is not permitted in a package.
    #[error("the archive has the entry {name:?}, which {problem}")]
    Entry {
        /// The name of the entry.
        name: String,
        /// The reason.
        problem: &'static str,
    },
    /// The package is too large.
    #[error("the archive has more than {} files or {} bytes", limits.entries, limits.size)]
    TooLarge {
        /// The limits.
        limits: ArchiveLimits,
    },
}

/// One entry of the central directory.
#[derive(Debug)]
struct Entry {
    name: String,
    is_folder: bool,
    is_executable: bool,
    is_deflated: bool,
    crc: u32,
    compressed: u64,
    size: u64,
    offset: u64,
}

/// Extracts an archive into an empty folder, and returns the checksum of its files.
///
/// # Errors
///
/// If the archive is damaged, has entries that are not permitted, or is too large. The folder then has a part of it.
pub(crate) fn extract(archive: &Path, folder: &Path, limits: ArchiveLimits) -> Result<Hash, ArchiveError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ArchiveError::Io { path, source }
    };
    let mut file = File::open(archive).map_err(failed(archive))?;
    let entries = entries(&mut file, limits).map_err(|error| error.into_archive_error(archive))?;
    let mut files = Vec::with_capacity(entries.len());
    for entry in entries {
        let path = folder.join(&entry.name);
        let parent = if entry.is_folder { &path } else { path.parent().unwrap_or(folder) };
        fs::create_dir_all(parent).map_err(failed(&path))?;
        if entry.is_folder {
            continue;
        }
        let data = data(&mut file, &entry).map_err(|error| error.into_archive_error(archive))?;
        let mode = if entry.is_executable { 0o755 } else { 0o644 };
        let mut target =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).map_err(failed(&path))?;
        let mut reader: Box<dyn Read> =
            if entry.is_deflated { Box::new(DeflateDecoder::new(data)) } else { Box::new(data) };
        let (mut digest, mut crc, mut left) = (Sha256::new(), crc32fast::Hasher::new(), entry.size);
        let mut buffer = vec![0; 128 * 1024];
        loop {
            let count = reader.read(&mut buffer).map_err(failed(archive))?;
            if count == 0 {
                break;
            }
            left = left.checked_sub(count as u64).ok_or(ArchiveError::Damaged("an entry is longer than its size"))?;
            digest.update(&buffer[..count]);
            crc.update(&buffer[..count]);
            target.write_all(&buffer[..count]).map_err(failed(&path))?;
        }
        if left > 0 || crc.finalize() != entry.crc {
            return Err(ArchiveError::Damaged("an entry differs from its checksum"));
        }
        // The mode at the creation depends on the mask of the process.
        target.set_permissions(fs::Permissions::from_mode(mode)).map_err(failed(&path))?;
        files.push((entry.name, digest.finalize().into()));
    }
    Ok(Hash::of_files(files))
}

/// An error before a file is named.
enum ReadError {
    Io(io::Error),
    Archive(ArchiveError),
}

impl ReadError {
    fn into_archive_error(self, path: &Path) -> ArchiveError {
        match self {
            Self::Io(source) => ArchiveError::Io { path: path.to_owned(), source },
            Self::Archive(error) => error,
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { damaged("it ends too early") } else { Self::Io(error) }
    }
}

fn damaged(problem: &'static str) -> ReadError {
    ReadError::Archive(ArchiveError::Damaged(problem))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The entries of the central directory, checked.
fn entries(file: &mut File, limits: ArchiveLimits) -> Result<Vec<Entry>, ReadError> {
    let length = file.seek(SeekFrom::End(0))?;
    let tail_length = length.min(TAIL);
    file.seek(SeekFrom::Start(length - tail_length))?;
    let mut tail = Vec::new();
    file.take(tail_length).read_to_end(&mut tail)?;
    // The record ends with a comment of the length that it says.
    let is_end = |at: &usize| {
        tail[*at..].starts_with(b"PK\x05\x06") && *at + 22 + usize::from(u16_at(&tail, at + 20)) == tail.len()
    };
    let end = (0..tail.len().saturating_sub(21)).rev().find(is_end).ok_or_else(|| damaged("it is no ZIP archive"))?;
    let end = &tail[end..];
    let (count, size, offset) = (u16_at(end, 10), u32_at(end, 12), u32_at(end, 16));
    if u16_at(end, 4) != 0 || u16_at(end, 8) != count || count == u16::MAX || offset == u32::MAX {
        return Err(damaged("archives in parts and ZIP64 are not supported"));
    }
    if usize::from(count) > limits.entries {
        return Err(ReadError::Archive(ArchiveError::TooLarge { limits }));
    }
    if u64::from(size) + u64::from(offset) > length {
        return Err(damaged("its directory is elsewhere"));
    }
    file.seek(SeekFrom::Start(offset.into()))?;
    let mut directory = Vec::new();
    file.take(size.into()).read_to_end(&mut directory)?;

    let mut entries = Vec::with_capacity(count.into());
    let mut names = HashSet::new();
    let mut rest = &directory[..];
    let mut total = 0_u64;
    for _ in 0..count {
        let (head, after) = rest.split_at_checked(46).ok_or_else(|| damaged("its directory ends too early"))?;
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(head, at)));
        let name_bytes = after.get(..name).ok_or_else(|| damaged("its directory ends too early"))?;
        rest = after.get(name + extra + comment..).ok_or_else(|| damaged("its directory ends too early"))?;
        let entry = entry(head, name_bytes).map_err(ReadError::Archive)?;
        if !names.insert(entry.name.clone()) {
            let problem = "occurs twice";
            return Err(ReadError::Archive(ArchiveError::Entry { name: entry.name, problem }));
        }
        total = total.saturating_add(entry.size);
        if total > limits.size {
            return Err(ReadError::Archive(ArchiveError::TooLarge { limits }));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn entry(head: &[u8], name: &[u8]) -> Result<Entry, ArchiveError> {
    if !head.starts_with(b"PK\x01\x02") {
        return Err(ArchiveError::Damaged("its directory has something else than entries"));
    }
    let text = String::from_utf8_lossy(name).into_owned();
    let wrong = |problem| Err(ArchiveError::Entry { name: text.clone(), problem });
    let (flags, method) = (u16_at(head, 8), u16_at(head, 10));
    if flags & 1 != 0 {
        return wrong("is encrypted");
    }
    if !matches!(method, 0 | 8) {
        return wrong("is compressed by another method than deflate");
    }
    // Systems like Unix store the mode of the file.
    let mode = if head[5] == 3 { u32_at(head, 38) >> 16 } else { 0 };
    if !matches!(mode & 0o170_000, 0 | 0o100_000 | 0o040_000) {
        return wrong("is neither a file nor a folder");
    }
    let is_folder = text.ends_with('/');
    let plain = text.strip_suffix('/').unwrap_or(&text);
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    let is_utf8 = std::str::from_utf8(name).is_ok();
    if !is_utf8 || text.contains(['\\', '\0', '\n']) || !plain.split('/').all(is_plain) {
        return wrong("has a name that leads elsewhere");
    }
    let [compressed, size, offset] = [20, 24, 42].map(|at| u32_at(head, at));
    if [compressed, size, offset].contains(&u32::MAX) {
        return wrong("needs ZIP64");
    }
    if is_folder && size > 0 {
        return wrong("is a folder with data");
    }
    Ok(Entry {
        name: plain.to_owned(),
        is_folder,
        is_executable: mode & 0o111 != 0,
        is_deflated: method == 8,
        crc: u32_at(head, 16),
        compressed: compressed.into(),
        size: size.into(),
        offset: offset.into(),
    })
}

/// The data of an entry, which follow its local header.
fn data<'a>(file: &'a mut File, entry: &Entry) -> Result<io::Take<&'a mut File>, ReadError> {
    file.seek(SeekFrom::Start(entry.offset))?;
    let mut head = [0; 30];
    file.read_exact(&mut head)?;
    if !head.starts_with(b"PK\x03\x04") {
        return Err(damaged("an entry is elsewhere"));
    }
    let skipped = i64::from(u16_at(&head, 26)) + i64::from(u16_at(&head, 28));
    file.seek(SeekFrom::Current(skipped))?;
    Ok(file.take(entry.compressed))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An entry of an archive for tests.
    #[derive(Clone, Debug)]
    pub(crate) struct Sample {
        pub(crate) name: String,
        pub(crate) content: Vec<u8>,
        pub(crate) mode: u32,
        pub(crate) deflate: bool,
    }

    pub(crate) fn sample(name: &str, content: &str) -> Sample {
        Sample { name: name.to_owned(), content: content.into(), mode: 0o100_755, deflate: true }
    }

    /// An archive with these entries.
    pub(crate) fn archive(samples: &[Sample]) -> Vec<u8> {
        let (mut out, mut directory) = (Vec::new(), Vec::new());
        for sample in samples {
            let offset = u32::try_from(out.len()).unwrap();
            let data = if sample.deflate {
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(&sample.content).unwrap();
                encoder.finish().unwrap()
            } else {
                sample.content.clone()
            };
            let mut common = Vec::new();
            common.extend([20, 0, 0, 0, if sample.deflate { 8 } else { 0 }, 0, 0, 0, 0, 0]);
            common.extend(crc32fast::hash(&sample.content).to_le_bytes());
            common.extend(u32::try_from(data.len()).unwrap().to_le_bytes());
            common.extend(u32::try_from(sample.content.len()).unwrap().to_le_bytes());
            common.extend(u16::try_from(sample.name.len()).unwrap().to_le_bytes());
            common.extend([0, 0]);
            out.extend(b"PK\x03\x04");
            out.extend(&common);
            out.extend(sample.name.as_bytes());
            out.extend(data);
            directory.extend(b"PK\x01\x02\x14\x03");
            directory.extend(&common);
            directory.extend([0; 6]);
            directory.extend((sample.mode << 16).to_le_bytes());
            directory.extend(offset.to_le_bytes());
            directory.extend(sample.name.as_bytes());
        }
        let offset = u32::try_from(out.len()).unwrap();
        let count = u16::try_from(samples.len()).unwrap().to_le_bytes();
        out.extend(&directory);
        out.extend(b"PK\x05\x06\0\0\0\0");
        out.extend(count);
        out.extend(count);
        out.extend(u32::try_from(directory.len()).unwrap().to_le_bytes());
        out.extend(offset.to_le_bytes());
        out.extend([0, 0]);
        out
    }

    fn extracted(bytes: &[u8], limits: ArchiveLimits) -> (tempfile::TempDir, Result<Hash, ArchiveError>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("package.zip");
        fs::write(&path, bytes).unwrap();
        let target = folder.path().join("target");
        fs::create_dir(&target).unwrap();
        let result = extract(&path, &target, limits);
        (folder, result)
    }

    fn error_of(samples: &[Sample]) -> String {
        let (_, result) = extracted(&archive(samples), ArchiveLimits::default());
        result.unwrap_err().to_string()
    }

    #[test]
    fn archives_become_folders_with_the_same_checksum() {
        let samples = [
            sample("terraform-provider-x", "binary"),
            Sample { mode: 0o100_644, deflate: false, ..sample("doc/LICENSE", "text") },
            Sample { mode: 0o040_755, ..sample("empty/", "") },
        ];
        let (folder, result) = extracted(&archive(&samples), ArchiveLimits::default());
        let target = folder.path().join("target");
        assert_eq!(result.unwrap(), Hash::of_folder(&target).unwrap());
        assert_eq!(fs::read_to_string(target.join("doc/LICENSE")).unwrap(), "text");
        let mode = |name: &str| fs::metadata(target.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("terraform-provider-x"), mode("doc/LICENSE")), (0o755, 0o644));
        assert!(target.join("empty").is_dir());
    }

    #[test]
    fn entries_that_lead_elsewhere_are_rejected() {
        for name in ["../x", "/x", "a/../../x", "a//b", "./x", "a\\b", "", "/", "a/..", "a\nb"] {
            let error = error_of(&[sample(name, "")]);
            assert!(error.ends_with("which has a name that leads elsewhere"), "{error}");
        }
        let link = Sample { mode: 0o120_777, ..sample("link", "/etc") };
        assert!(error_of(&[link, sample("link/x", "")]).ends_with("which is neither a file nor a folder"));
        assert!(error_of(&[sample("x", "1"), sample("x", "2")]).ends_with("which occurs twice"));
        // A file cannot be a folder at the same time.
        let (_, both) = extracted(&archive(&[sample("x", "1"), sample("x/y", "2")]), ArchiveLimits::default());
        assert!(matches!(both, Err(ArchiveError::Io { .. })));
    }

    #[test]
    fn large_and_damaged_archives_are_rejected() {
        let good = archive(&[sample("x", &"y".repeat(1000))]);
        let limits = |entries, size| ArchiveLimits { entries, size };
        for limits in [limits(0, 1 << 20), limits(1, 999)] {
            assert!(matches!(extracted(&good, limits).1, Err(ArchiveError::TooLarge { .. })));
        }
        assert!(extracted(&good, limits(1, 1000)).1.is_ok());
        for length in 0..good.len() {
            assert!(extracted(&good[..length], ArchiveLimits::default()).1.is_err(), "{length}");
        }
        for at in 0..good.len() {
            let mut changed = good.clone();
            changed[at] ^= 0x55;
            // Times, versions and attributes do not matter.
            if let (folder, Ok(_)) = extracted(&changed, ArchiveLimits::default()) {
                let files = fs::read_dir(folder.path().join("target")).unwrap().count();
                assert!(files <= 1);
            }
        }
    }
}
