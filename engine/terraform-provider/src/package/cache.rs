//! Packages that are ready to run, in a folder by digest.
//!
//! Start at [`Installer::install`]. The layout is `packages/<digest of the files>/` and `archives/<digest of the
//! archive>`, whose text names the former. Only this user may enter the folder.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use stoa_archive::{ArchiveError, zip};

use super::hash::{self, HashError};
use super::{Address, ArchiveLimits, Hash, HashScheme, LockedProvider, Package, hex};

/// A package that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file cannot be read or written.
    #[error("installing a provider in {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The archive cannot be extracted.
    #[error("the package of {address} cannot be extracted")]
    Archive {
        /// The provider.
        address: Box<Address>,
        /// The reason.
        source: ArchiveError,
    },
    /// A checksum cannot be computed.
    #[error("the package of {address} has no checksum")]
    Hash {
        /// The provider.
        address: Box<Address>,
        /// The reason.
        source: HashError,
    },
    /// A checksum differs.
    #[error("the package of {address} has the checksum {found}, which {recorded} does not permit")]
    Mismatch {
        /// The provider.
        address: Box<Address>,
        /// The checksum of the package.
        found: Hash,
        /// The record of checksums.
        recorded: &'static str,
    },
    /// No checksum of the record can be compared.
    #[error(
        "no checksum of {address} in {recorded} can be compared; record an h1 checksum of this platform, which is {found}"
    )]
    NotRecorded {
        /// The provider.
        address: Box<Address>,
        /// The checksum of the package.
        found: Hash,
        /// The record of checksums.
        recorded: &'static str,
    },
    /// The package has no executable.
    #[error("the package of {address} has no file terraform-provider-{}", address.kind)]
    NoExecutable {
        /// The provider.
        address: Box<Address>,
    },
    /// The files changed since they were installed.
    #[error("the executable {} changed after it was installed; remove the folder of this package", .0.display())]
    Changed(PathBuf),
}

/// Installs packages into a cache.
#[derive(Clone, Debug)]
pub struct Installer {
    /// The folder of the cache.
    pub cache: PathBuf,
    /// The limits of a package.
    pub limits: ArchiveLimits,
}

/// A package that is ready to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// The provider.
    pub address: Address,
    /// The folder with its files.
    pub folder: PathBuf,
    /// The checksum of the files.
    pub files: Hash,
    /// The digest of the archive, if the package was one.
    pub archive: Option<Hash>,
    /// The executable.
    pub executable: PathBuf,
    /// The SHA-256 of the executable.
    pub digest: [u8; 32],
}

impl Installed {
    /// Hashes the executable again, which is required before each start.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or has changed.
    pub fn verify(&self) -> Result<(), InstallError> {
        let digest = hash::digest(&self.executable);
        let digest = digest.map_err(|source| InstallError::Hash { address: Box::new(self.address.clone()), source })?;
        if digest == self.digest { Ok(()) } else { Err(InstallError::Changed(self.executable.clone())) }
    }
}

impl Installer {
    /// Installs a package, unless the cache has it already. Without a lock, any files are permitted, and the result has
    /// the checksums to record. The call reads and writes files, so it needs a blocking thread.
    ///
    /// # Errors
    ///
    /// If the package is damaged, differs from the lock or from the mirror's checksums, or cannot be stored.
    pub fn install(
        &self,
        address: &Address,
        package: &Package,
        lock: Option<&LockedProvider>,
        mirror: &[Hash],
    ) -> Result<Installed, InstallError> {
        let of_hash = |source| InstallError::Hash { address: Box::new(address.clone()), source };
        let packages = self.folder("packages")?;
        let archive = match package {
            Package::Archive(path) => Some(Hash::of_archive(path).map_err(of_hash)?),
            Package::Folder(_) => None,
        };
        // A wrong archive is not even opened.
        let check = |found: &[Hash]| {
            verify(address, mirror, found, "the mirror", false)?;
            verify(address, lock.map_or(&[], |it| &it.hashes), found, "the lock file", false)
        };
        check(archive.as_slice())?;
        let known = match &archive {
            Some(Hash::Archive(digest)) => self.known(digest)?,
            _ => None,
        };
        let (files, folder) = match known {
            Some(known) => known,
            None => self.add(address, package, &packages)?,
        };
        let found: Vec<Hash> = archive.iter().cloned().chain([files.clone()]).collect();
        check(&found)?;
        verify(address, mirror, &found, "the mirror", !mirror.is_empty())?;
        if let Some(lock) = lock {
            verify(address, &lock.hashes, &found, "the lock file", true)?;
        }
        if let Some(Hash::Archive(digest)) = &archive {
            let path = self.folder("archives")?.join(hex(digest));
            fs::write(&path, files.to_string()).map_err(|source| InstallError::Io { path, source })?;
        }
        self.ready(address, folder, files, archive)
    }

    /// The package that a lock permits, if the cache has it. The call reads files, so it needs a blocking thread.
    ///
    /// # Errors
    ///
    /// If the files cannot be read, or have no executable.
    pub fn installed(&self, address: &Address, lock: &LockedProvider) -> Result<Option<Installed>, InstallError> {
        for hash in &lock.hashes {
            let (archive, known) = match hash {
                Hash::Archive(digest) => (Some(hash.clone()), self.known(digest)?),
                Hash::Files(_) => (None, self.intact(hash.clone())?),
                Hash::Other(_) => continue,
            };
            let Some((files, folder)) = known else { continue };
            let found: Vec<Hash> = archive.iter().cloned().chain([files.clone()]).collect();
            if verify(address, &lock.hashes, &found, "the lock file", true).is_ok() {
                return self.ready(address, folder, files, archive).map(Some);
            }
        }
        Ok(None)
    }

    fn ready(
        &self,
        address: &Address,
        folder: PathBuf,
        files: Hash,
        archive: Option<Hash>,
    ) -> Result<Installed, InstallError> {
        let executable = executable(address, &folder)?;
        let digest = hash::digest(&executable)
            .map_err(|source| InstallError::Hash { address: Box::new(address.clone()), source })?;
        Ok(Installed { address: address.clone(), folder, files, archive, executable, digest })
    }

    fn folder(&self, name: &str) -> Result<PathBuf, InstallError> {
        let path = self.cache.join(name);
        let created = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        created.map_err(|source| InstallError::Io { path: path.clone(), source })?;
        Ok(path)
    }

    /// The installed files of an archive, if they are intact.
    fn known(&self, archive: &[u8; 32]) -> Result<Option<(Hash, PathBuf)>, InstallError> {
        let recorded = fs::read_to_string(self.folder("archives")?.join(hex(archive))).ok();
        let Some(files) = recorded.and_then(|text| text.parse::<Hash>().ok()) else { return Ok(None) };
        self.intact(files)
    }

    /// The folder with these files, if it has them.
    fn intact(&self, files: Hash) -> Result<Option<(Hash, PathBuf)>, InstallError> {
        let folder = self.folder("packages")?.join(name_of(&files));
        let is_intact = Hash::of_folder(&folder).is_ok_and(|found| found == files);
        Ok(is_intact.then_some((files, folder)))
    }

    /// Copies or extracts the files, and renames their folder at the end.
    fn add(&self, address: &Address, package: &Package, packages: &Path) -> Result<(Hash, PathBuf), InstallError> {
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| InstallError::Io { path, source }
        };
        let partial = tempfile::Builder::new().prefix(".partial-").tempdir_in(packages).map_err(io(packages))?;
        let files = match package {
            Package::Archive(path) => zip::extract(path, partial.path(), self.limits)
                .map(Hash::of_files)
                .map_err(|source| InstallError::Archive { address: Box::new(address.clone()), source })?,
            Package::Folder(path) => {
                let of_hash = |source| InstallError::Hash { address: Box::new(address.clone()), source };
                // Links are found before anything is copied.
                Hash::of_folder(path).map_err(of_hash)?;
                copy(path, partial.path()).map_err(io(path))?;
                Hash::of_folder(partial.path()).map_err(of_hash)?
            }
        };
        let executable = executable(address, partial.path())?;
        fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).map_err(io(&executable))?;
        let folder = packages.join(name_of(&files));
        if Hash::of_folder(&folder).is_ok_and(|found| found == files) {
            return Ok((files, folder));
        }
        // A damaged folder is replaced as a whole.
        if folder.exists() {
            let old = tempfile::Builder::new().prefix(".damaged-").tempdir_in(packages).map_err(io(packages))?;
            fs::rename(&folder, old.path().join("package")).map_err(io(&folder))?;
        }
        fs::rename(partial.keep(), &folder).map_err(io(&folder))?;
        Ok((files, folder))
    }
}

fn name_of(files: &Hash) -> String {
    match files {
        Hash::Files(digest) | Hash::Archive(digest) => hex(digest),
        Hash::Other(text) => hex(text.as_bytes()),
    }
}

/// Compares checksums: every scheme that both sides have needs a match.
fn verify(
    address: &Address,
    recorded: &[Hash],
    found: &[Hash],
    record: &'static str,
    is_required: bool,
) -> Result<(), InstallError> {
    let mut is_compared = false;
    for found in found {
        let is_same_scheme = |it: &&Hash| it.scheme() == found.scheme();
        let mut same = recorded.iter().filter(is_same_scheme).peekable();
        if same.peek().is_none() {
            continue;
        }
        is_compared = true;
        if !same.any(|it| it == found) {
            return Err(InstallError::Mismatch {
                address: Box::new(address.clone()),
                found: found.clone(),
                recorded: record,
            });
        }
    }
    if is_required && !is_compared {
        let files = found.iter().find(|it| it.scheme() == Some(HashScheme::Files)).or(found.first());
        let found = files.expect("an installed package has a checksum").clone();
        return Err(InstallError::NotRecorded { address: Box::new(address.clone()), found, recorded: record });
    }
    Ok(())
}

/// The first file by name that is `terraform-provider-<type>`, followed by nothing, `_` or `.`.
fn executable(address: &Address, folder: &Path) -> Result<PathBuf, InstallError> {
    let io = |source| InstallError::Io { path: folder.to_owned(), source };
    let base = format!("terraform-provider-{}", address.kind);
    let mut found: Option<String> = None;
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let Some(rest) = name.strip_prefix(&base) else { continue };
        let is_named = rest.is_empty() || rest.starts_with(['_', '.']);
        if is_named && entry.file_type().map_err(io)?.is_file() && found.as_ref().is_none_or(|it| name < *it) {
            found = Some(name);
        }
    }
    let found = found.ok_or_else(|| InstallError::NoExecutable { address: Box::new(address.clone()) })?;
    Ok(folder.join(found))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            fs::create_dir(&target)?;
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
