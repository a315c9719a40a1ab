//! tar archives, plain or compressed by gzip.
//!
//! Start at [`read`], which gives each file to its caller. Symbolic links are entries of their own, which nothing here
//! follows; those that lead out of the archive are rejected, as are hard links and devices.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, EntryType};

use super::names::{self, wrong};
use super::{ArchiveError, ArchiveLimits, Names};

/// The compression of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// None.
    Plain,
    /// gzip.
    Gzip,
}

/// An entry that is no folder.
pub struct Entry<'a> {
    /// The path below the root, without `./` at the start.
    pub name: &'a str,
    /// The content.
    pub kind: Kind<'a>,
}

/// The content of an entry.
pub enum Kind<'a> {
    /// A file.
    File {
        /// Whether its owner may execute it.
        is_executable: bool,
        /// Its bytes, at most the size that [`read`] has counted.
        content: &'a mut dyn Read,
    },
    /// A symbolic link to this path, relative to the folder of the link.
    Link(&'a str),
}

/// The bytes of the format besides the content: a header for each entry, and the longest extensions of it.
const HEADERS: u64 = 16 << 10;

/// Reads an archive, and gives each file and link to the caller in the order of the archive. `names` has the entries so
/// far, and the limits.
///
/// # Errors
///
/// If the archive is damaged, has entries that are not permitted, or is too large. Errors of the caller are
/// [`ArchiveError::Io`] with the path of the archive.
pub fn read(
    archive: &Path,
    compression: Compression,
    limits: ArchiveLimits,
    names: &mut Names,
    mut take: impl FnMut(Entry<'_>) -> io::Result<()>,
) -> Result<(), ArchiveError> {
    let failed = |source: io::Error| ArchiveError::Io { path: archive.to_owned(), source };
    let file = BufReader::new(File::open(archive).map_err(failed)?);
    // An archive of a few bytes can expand to any size.
    let left = limits.size.saturating_add(HEADERS.saturating_mul(limits.entries as u64));
    let bounded = |reader: Box<dyn Read>| Bounded { reader, left };
    let reader = match compression {
        Compression::Plain => bounded(Box::new(file)),
        Compression::Gzip => bounded(Box::new(MultiGzDecoder::new(file))),
    };
    // The formats' errors have the same types as those of the file.
    let damaged = |error: io::Error| match error.kind() {
        io::ErrorKind::FileTooLarge => ArchiveError::TooLarge { limits },
        io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidData
        | io::ErrorKind::UnexpectedEof
        | io::ErrorKind::Other => ArchiveError::Damaged("it is no tar archive, or ends too early"),
        _ => failed(error),
    };
    let mut tar = Archive::new(reader);
    for entry in tar.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let path = entry.path_bytes().into_owned();
        let Ok(name) = std::str::from_utf8(&path) else {
            return Err(wrong(&String::from_utf8_lossy(&path), "has a name that is not UTF-8"));
        };
        let kind = entry.header().entry_type();
        // `git archive` writes the commit as a comment.
        if kind == EntryType::XGlobalHeader {
            continue;
        }
        let name = plain(name);
        match kind {
            EntryType::Directory if name.is_empty() => {}
            EntryType::Directory => names.add_folder(name)?,
            EntryType::Regular | EntryType::Continuous => {
                let size = entry.size();
                names.add_file(name, size)?;
                let is_executable = entry.header().mode().map_err(damaged)? & 0o100 != 0;
                let mut counted = Counted { reader: &mut entry, count: 0, error: None };
                let kind = Kind::File { is_executable, content: &mut counted };
                let taken = take(Entry { name, kind });
                if let Some(error) = counted.error {
                    return Err(damaged(error));
                }
                taken.map_err(failed)?;
                if counted.count != size {
                    return Err(ArchiveError::Damaged("it is no tar archive, or ends too early"));
                }
            }
            EntryType::Symlink => {
                let target = entry.link_name_bytes().unwrap_or_default().into_owned();
                let target = std::str::from_utf8(&target).ok().filter(|target| stays_below(name, target));
                let target = target.ok_or_else(|| wrong(name, "is a link that leads elsewhere"))?;
                names.add_file(name, target.len() as u64)?;
                take(Entry { name, kind: Kind::Link(target) }).map_err(failed)?;
            }
            _ => return Err(wrong(name, "is neither a file, a folder nor a symbolic link")),
        }
    }
    Ok(())
}

/// A name without `./` at its start and `/` at its end, which programs add to folders.
fn plain(name: &str) -> &str {
    let mut name = name;
    while let Some(rest) = name.strip_prefix("./") {
        name = rest;
    }
    let name = name.strip_suffix('/').unwrap_or(name);
    if name == "." { "" } else { name }
}

/// Whether a link of this name leads to a path of the same archive.
fn stays_below(name: &str, target: &str) -> bool {
    if names::check(name).is_err() || target.is_empty() || target.starts_with('/') || target.contains(['\\', '\0']) {
        return false;
    }
    let mut depth = name.split('/').count() - 1;
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." if depth == 0 => return false,
            ".." => depth -= 1,
            _ => depth += 1,
        }
    }
    true
}

/// A reader that ends with an error once it has given too much.
struct Bounded {
    reader: Box<dyn Read>,
    left: u64,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(count)
    }
}

/// The content of a file, which remembers its own errors: those of the caller are others.
struct Counted<'a> {
    reader: &'a mut dyn Read,
    count: u64,
    error: Option<io::Error>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.reader.read(buffer) {
            Ok(count) => {
                self.count += count as u64;
                Ok(count)
            }
            Err(error) => {
                let kind = error.kind();
                self.error = Some(error);
                Err(kind.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const LIMITS: ArchiveLimits = ArchiveLimits { entries: 10, size: 1 << 20 };

    fn header(name: &str, kind: EntryType, size: usize) -> tar::Header {
        let mut header = tar::Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(size as u64);
        header
    }

    fn append(tar: &mut tar::Builder<Vec<u8>>, mut header: tar::Header, content: &[u8]) {
        header.set_cksum();
        tar.append(&header, content).unwrap();
    }

    fn file(tar: &mut tar::Builder<Vec<u8>>, name: &str, content: &str) {
        append(tar, header(name, EntryType::Regular, content.len()), content.as_bytes());
    }

    fn link(tar: &mut tar::Builder<Vec<u8>>, name: &str, target: &str) {
        let mut header = header(name, EntryType::Symlink, 0);
        header.set_link_name(target).unwrap();
        append(tar, header, b"");
    }

    /// The entries as `name=content` and `name->target`.
    fn read_bytes(bytes: &[u8], compression: Compression) -> Result<Vec<String>, ArchiveError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("archive");
        std::fs::write(&path, bytes).unwrap();
        let mut found = Vec::new();
        read(&path, compression, LIMITS, &mut Names::new(LIMITS), |Entry { name, kind }| {
            match kind {
                Kind::File { content, .. } => {
                    let mut text = String::new();
                    content.read_to_string(&mut text)?;
                    found.push(format!("{name}={text}"));
                }
                Kind::Link(target) => found.push(format!("{name}->{target}")),
            }
            Ok(())
        })?;
        Ok(found)
    }

    fn read_built(build: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Result<Vec<String>, ArchiveError> {
        let mut tar = tar::Builder::new(Vec::new());
        build(&mut tar);
        read_bytes(&tar.into_inner().unwrap(), Compression::Plain)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn files_and_inner_links_are_read() {
        let build = |tar: &mut tar::Builder<Vec<u8>>| {
            append(tar, header("./", EntryType::Directory, 0), b"");
            append(tar, header("./a/", EntryType::Directory, 0), b"");
            file(tar, "./a/b.yaml", "x: 1");
            link(tar, "a/c.yaml", "../a/b.yaml");
            file(tar, "empty", "");
        };
        let expected = ["a/b.yaml=x: 1", "a/c.yaml->../a/b.yaml", "empty="];
        assert_eq!(read_built(build).unwrap(), expected);
        let mut tar = tar::Builder::new(Vec::new());
        build(&mut tar);
        let bytes = tar.into_inner().unwrap();
        assert_eq!(read_bytes(&gzip(&bytes), Compression::Gzip).unwrap(), expected);
        assert!(matches!(read_bytes(&bytes, Compression::Gzip), Err(ArchiveError::Damaged(_))));
        assert!(read_bytes(&bytes[..700], Compression::Plain).is_err(), "it ends within a header");
    }

    #[test]
    fn entries_that_lead_elsewhere_are_rejected() {
        for name in ["../x", "/x", "a/../../x", "a//b"] {
            let error = read_built(|tar| file(tar, name, "")).unwrap_err().to_string();
            assert!(error.ends_with("which has a name that leads elsewhere"), "{name}: {error}");
        }
        for (name, target) in [("a", "/etc/passwd"), ("a", "../x"), ("a/b", "../../x"), ("a/b", "c/../../../x")] {
            let error = read_built(|tar| link(tar, name, target)).unwrap_err().to_string();
            assert!(error.ends_with("which is a link that leads elsewhere"), "{target}: {error}");
        }
        for kind in [EntryType::Link, EntryType::Char, EntryType::Fifo] {
            let error = read_built(|tar| append(tar, header("x", kind, 0), b"")).unwrap_err().to_string();
            assert!(error.ends_with("which is neither a file, a folder nor a symbolic link"), "{kind:?}: {error}");
        }
        let twice = read_built(|tar| {
            link(tar, "a", "b");
            file(tar, "a/x", "");
        });
        assert!(twice.unwrap_err().to_string().ends_with("which is a file and a folder"));
    }

    #[test]
    fn archives_that_expand_are_stopped() {
        let mut tar = tar::Builder::new(Vec::new());
        file(&mut tar, "large", &"0".repeat((1 << 20) + 1));
        let bytes = gzip(&tar.into_inner().unwrap());
        assert!(bytes.len() < 100_000);
        assert!(matches!(read_bytes(&bytes, Compression::Gzip), Err(ArchiveError::TooLarge { .. })));
        // The name of an entry may be longer than all of its content.
        let mut tar = tar::Builder::new(Vec::new());
        let name = "n".repeat(2 << 20);
        append(&mut tar, header("././@LongLink", EntryType::GNULongName, name.len()), name.as_bytes());
        file(&mut tar, "x", "");
        let bytes = gzip(&tar.into_inner().unwrap());
        assert!(matches!(read_bytes(&bytes, Compression::Gzip), Err(ArchiveError::TooLarge { .. })));
    }
}
