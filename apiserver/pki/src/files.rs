//! Private keys and what belongs to them, on disk.
//!
//! Files are written whole or not at all: a new file beside the old one, synced, then renamed over it. Keys are
//! files with mode 0600 from the moment they exist; nothing here is encrypted, so the folder belongs on a disk whose
//! reader may act as the key's owner.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use crate::PkiError;

/// Writes a file that only its owner can read (mode 0600), replacing what was there at once.
///
/// The parent folder is made, with mode 0700, when it does not exist.
///
/// # Errors
///
/// [`PkiError::Io`]; the old file is still there then.
pub fn write_private(path: &Path, contents: &[u8]) -> Result<(), PkiError> {
    write(path, contents, 0o600)
}

/// Writes a file that everyone may read (mode 0644), such as a certificate, replacing what was there at once.
///
/// # Errors
///
/// [`PkiError::Io`]; the old file is still there then.
pub fn write_public(path: &Path, contents: &[u8]) -> Result<(), PkiError> {
    write(path, contents, 0o644)
}

/// Reads a text file.
///
/// # Errors
///
/// [`PkiError::Io`], also when the file is not UTF-8.
pub fn read(path: &Path) -> Result<String, PkiError> {
    fs::read_to_string(path).map_err(|source| io_error(path, source))
}

fn write(path: &Path, contents: &[u8], mode: u32) -> Result<(), PkiError> {
    let failed = |source| io_error(path, source);
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.exists() {
        make_private_folder(folder).map_err(failed)?;
    }
    let mut name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder.join(name);
    let written = write_new(&temporary, contents, mode).and_then(|()| fs::rename(&temporary, path));
    if let Err(source) = written {
        // The rest of a failed attempt; the failure that matters is already known.
        let _ = fs::remove_file(&temporary);
        return Err(failed(source));
    }
    // The rename itself is only durable once the folder is.
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)
}

fn write_new(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    // An abandoned file of a process with the same id might have another mode.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

fn make_private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn io_error(path: &Path, source: io::Error) -> PkiError {
    PkiError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn private_file_restricts_access_to_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/key.pem");
        write_public(&path, b"old").unwrap();
        assert_eq!(mode(&path), 0o644);
        write_private(&path, b"secret").unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(read(&path).unwrap(), "secret");
    }

    #[test]
    fn a_write_leaves_no_other_file_behind() {
        let folder = tempfile::tempdir().unwrap();
        write_private(&folder.path().join("key.pem"), b"a").unwrap();
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["key.pem"]);
    }

    #[test]
    fn write_error_names_file() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("file");
        write_public(&blocked, b"").unwrap();
        let error = write_private(&blocked.join("key.pem"), b"a").unwrap_err();
        assert!(matches!(&error, PkiError::Io { path, .. } if path.ends_with("file/key.pem")), "{error:?}");
    }
}
