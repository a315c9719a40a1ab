//! Checksums of packages: `zh:` of the archive, and `h1:` of its files.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::{MOST_ENTRIES, hex};

/// A checksum with its scheme.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hash {
    /// `h1:`: the digest of the files of a package, which an archive and its folder share.
    Files([u8; 32]),
    /// `zh:`: the digest of the archive. An unpacked package cannot be compared with it.
    Archive([u8; 32]),
    /// A scheme of another version.
    Other(String),
}

/// A scheme of checksums that this version knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashScheme {
    /// `h1:`.
    Files,
    /// `zh:`.
    Archive,
}

/// A checksum that cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub enum HashError {
    /// The package has too many files and folders.
    #[error("the package has more than {MOST_ENTRIES} files and folders")]
    TooMany,
    /// The text has another form.
    #[error("{0:?} is not a checksum; the form is h1:BASE64 or zh:HEX")]
    Form(String),
    /// A file cannot be read.
    #[error("reading {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The package has something else than files and folders, or a name that has no checksum.
    #[error("{} is neither a file nor a folder with a plain name", .0.display())]
    Kind(PathBuf),
}

impl Hash {
    /// The scheme, if this version knows it.
    pub fn scheme(&self) -> Option<HashScheme> {
        match self {
            Self::Files(_) => Some(HashScheme::Files),
            Self::Archive(_) => Some(HashScheme::Archive),
            Self::Other(_) => None,
        }
    }

    /// The checksum of files by their relative names and digests.
    pub(crate) fn of_files(mut files: Vec<(String, [u8; 32])>) -> Self {
        files.sort();
        let mut digest = Sha256::new();
        for (name, content) in files {
            digest.update(hex(&content));
            digest.update("  ");
            digest.update(name);
            digest.update("\n");
        }
        Self::Files(digest.finalize().into())
    }

    /// The checksum of an unpacked package.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or the folder has links.
    pub fn of_folder(folder: &Path) -> Result<Self, HashError> {
        let mut files = Vec::new();
        collect(folder, "", &mut files, &mut 0)?;
        Ok(Self::of_files(files))
    }

    /// The digest of an archive.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn of_archive(archive: &Path) -> Result<Self, HashError> {
        Ok(Self::Archive(digest(archive)?))
    }
}

/// The SHA-256 of a file.
///
/// # Errors
///
/// If the file cannot be read.
pub fn digest(path: &Path) -> Result<[u8; 32], HashError> {
    let failed = |source| HashError::Read { path: path.to_owned(), source };
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(digest.finalize().into()),
            count => digest.update(&buffer[..count]),
        }
    }
}

fn collect(
    folder: &Path,
    prefix: &str,
    files: &mut Vec<(String, [u8; 32])>,
    entries: &mut usize,
) -> Result<(), HashError> {
    let failed = |source| HashError::Read { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        *entries += 1;
        if *entries > MOST_ENTRIES {
            return Err(HashError::TooMany);
        }
        let path = entry.path();
        let kind = entry.file_type().map_err(failed)?;
        let name = entry.file_name().into_string().ok().filter(|name| !name.contains('\n'));
        match name {
            Some(name) if kind.is_file() => files.push((format!("{prefix}{name}"), digest(&path)?)),
            Some(name) if kind.is_dir() => collect(&path, &format!("{prefix}{name}/"), files, entries)?,
            _ => return Err(HashError::Kind(path)),
        }
    }
    Ok(())
}

impl FromStr for Hash {
    type Err = HashError;

    fn from_str(text: &str) -> Result<Self, HashError> {
        let failed = || HashError::Form(text.to_owned());
        let (scheme, value) = text.split_once(':').ok_or_else(failed)?;
        match scheme {
            "h1" => {
                let bytes = STANDARD.decode(value).ok().and_then(|it| it.try_into().ok());
                Ok(Self::Files(bytes.ok_or_else(failed)?))
            }
            "zh" => {
                let is_hex = value.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it));
                if value.len() != 64 || !is_hex {
                    return Err(failed());
                }
                let mut bytes = [0; 32];
                for (index, byte) in bytes.iter_mut().enumerate() {
                    *byte = u8::from_str_radix(&value[index * 2..index * 2 + 2], 16).map_err(|_| failed())?;
                }
                Ok(Self::Archive(bytes))
            }
            _ if !scheme.is_empty() && !value.is_empty() => Ok(Self::Other(text.to_owned())),
            _ => Err(failed()),
        }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(bytes) => write!(f, "h1:{}", STANDARD.encode(bytes)),
            Self::Archive(bytes) => write!(f, "zh:{}", hex(bytes)),
            Self::Other(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_survive_as_texts() {
        let files = Hash::of_files(vec![("b/c".to_owned(), [2; 32]), ("a".to_owned(), [1; 32])]);
        assert_eq!(files.to_string().parse::<Hash>().unwrap(), files);
        let archive = Hash::Archive([0xab; 32]);
        assert_eq!(archive.to_string().parse::<Hash>().unwrap(), archive);
        assert_eq!("h2:x".parse::<Hash>().unwrap(), Hash::Other("h2:x".to_owned()));
        for text in ["", "h1", "h1:", "h1:AA==", "zh:00", ":x", &format!("zh:{}", "AB".repeat(32))] {
            assert!(text.parse::<Hash>().is_err(), "{text}");
        }
    }

    #[test]
    fn checksums_of_files_do_not_depend_on_their_order() {
        let files = |names: [&str; 2]| Hash::of_files(names.map(|name| (name.to_owned(), [1; 32])).to_vec());
        assert_eq!(files(["a", "b"]), files(["b", "a"]));
        // Computed with sha256sum and base64.
        let empty = Hash::of_files(vec![("f".to_owned(), Sha256::digest("").into())]);
        assert_eq!(empty.to_string(), "h1:AxraCpn1Gh65ie1VphJOWEzNnFg/XyVXjZJ10xm61SM=");
    }

    #[test]
    fn links_have_no_checksum() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::fs::write(folder.path().join("d/f"), "x").unwrap();
        let before = Hash::of_folder(folder.path()).unwrap();
        assert_eq!(before, Hash::of_files(vec![("d/f".to_owned(), Sha256::digest("x").into())]));
        std::os::unix::fs::symlink("d/f", folder.path().join("link")).unwrap();
        assert!(matches!(Hash::of_folder(folder.path()), Err(HashError::Kind(_))));
    }

    #[test]
    fn package_has_a_limit_of_files() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MOST_ENTRIES {
            std::fs::File::create(folder.path().join(number.to_string())).unwrap();
        }
        Hash::of_folder(folder.path()).unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        assert!(matches!(Hash::of_folder(folder.path()), Err(HashError::TooMany)));
    }
}
