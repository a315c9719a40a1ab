//! Packages in folders: a filesystem mirror.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use semver::Version;

use super::{Address, Platform, VersionConstraint, newest};

/// A package as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Package {
    /// A ZIP archive.
    Archive(PathBuf),
    /// A folder with the files.
    Folder(PathBuf),
}

/// A folder with packages of providers: `<host>/<namespace>/<type>/<version>/<os>_<arch>/`, or
/// `<host>/<namespace>/<type>/terraform-provider-<type>_<version>_<os>_<arch>.zip`.
#[derive(Clone, Debug)]
pub struct FilesystemMirror {
    /// The folder.
    pub root: PathBuf,
}

/// A mirror without the package.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// A folder cannot be read.
    #[error("reading the mirror's folder {}", path.display())]
    Read {
        /// The folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// No version meets the constraint.
    #[error("the mirror has no version of {address} that meets {constraint:?}; it has {versions}")]
    NoVersion {
        /// The provider.
        address: Box<Address>,
        /// The constraint.
        constraint: String,
        /// The versions, with commas in between.
        versions: String,
    },
    /// The chosen version does not exist for the platform.
    #[error("the mirror has version {version} of {address}, but not for {platform}")]
    NoPlatform {
        /// The provider.
        address: Box<Address>,
        /// The version, which is chosen over all platforms.
        version: Version,
        /// The platform.
        platform: Platform,
    },
}

impl MirrorError {
    pub(super) fn no_version<'a>(
        address: &Address,
        constraint: &VersionConstraint,
        versions: impl Iterator<Item = &'a Version>,
    ) -> Self {
        let versions: Vec<String> = versions.map(ToString::to_string).collect();
        let versions = if versions.is_empty() { "none".to_owned() } else { versions.join(", ") };
        Self::NoVersion { address: Box::new(address.clone()), constraint: constraint.to_string(), versions }
    }
}

type Packages = BTreeMap<Version, BTreeMap<Platform, Package>>;

impl FilesystemMirror {
    /// All versions of a provider, for any platform.
    ///
    /// # Errors
    ///
    /// If a folder cannot be read. A missing one has no versions.
    pub fn versions(&self, address: &Address) -> Result<BTreeSet<Version>, MirrorError> {
        Ok(self.packages(address)?.into_keys().collect())
    }

    /// The newest version that a constraint permits, with its package.
    ///
    /// # Errors
    ///
    /// If there is no such version, or the newest is not there for the platform.
    pub fn find(
        &self,
        address: &Address,
        constraint: &VersionConstraint,
        platform: &Platform,
    ) -> Result<(Version, Package), MirrorError> {
        let mut packages = self.packages(address)?;
        let Some(version) = newest(packages.keys(), constraint).cloned() else {
            return Err(MirrorError::no_version(address, constraint, packages.keys()));
        };
        match packages.get_mut(&version).and_then(|it| it.remove(platform)) {
            Some(package) => Ok((version, package)),
            None => {
                let (address, platform) = (Box::new(address.clone()), platform.clone());
                Err(MirrorError::NoPlatform { address, version, platform })
            }
        }
    }

    fn packages(&self, address: &Address) -> Result<Packages, MirrorError> {
        let folder = self.root.join(&address.host).join(&address.namespace).join(&address.kind);
        let mut packages = Packages::new();
        for (name, path) in read_folder(&folder)? {
            if path.is_dir() {
                let Ok(version) = name.parse::<Version>() else { continue };
                for (platform, path) in read_folder(&path)? {
                    if path.is_dir() {
                        let all = packages.entry(version.clone()).or_default();
                        // An archive has more checksums to compare.
                        all.entry(Platform(platform)).or_insert(Package::Folder(path));
                    }
                }
            } else if let Some((version, platform)) = parts_of_archive(&name, &address.kind) {
                packages.entry(version).or_default().insert(platform, Package::Archive(path));
            }
        }
        Ok(packages)
    }
}

/// The version and the platform in `terraform-provider-<type>_<version>_<os>_<arch>.zip`.
fn parts_of_archive(name: &str, kind: &str) -> Option<(Version, Platform)> {
    let rest = name.strip_prefix("terraform-provider-")?.strip_prefix(kind)?.strip_prefix('_')?;
    let mut parts = rest.strip_suffix(".zip")?.rsplitn(3, '_');
    let (architecture, os, version) = (parts.next()?, parts.next()?, parts.next()?);
    Some((version.parse().ok()?, Platform(format!("{os}_{architecture}"))))
}

fn read_folder(folder: &Path) -> Result<Vec<(String, PathBuf)>, MirrorError> {
    let failed = |source| MirrorError::Read { path: folder.to_owned(), source };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if let Ok(name) = entry.file_name().into_string() {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_have_archives_and_folders() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("registry.terraform.io/hashicorp/random");
        for version in ["3.5.0", "v9.0.0", "4.0.0-beta1", "3.10.0"] {
            let platform = if version == "3.10.0" { "windows_amd64" } else { "linux_amd64" };
            std::fs::create_dir_all(folder.join(version).join(platform)).unwrap();
        }
        let archive = folder.join("terraform-provider-random_3.6.0_linux_amd64.zip");
        std::fs::write(&archive, "").unwrap();
        std::fs::write(folder.join("terraform-provider-random_v8.0.0_linux_amd64.zip"), "").unwrap();
        std::fs::write(folder.join("terraform-provider-other_8.0.0_linux_amd64.zip"), "").unwrap();
        let mirror = FilesystemMirror { root: root.path().to_owned() };
        let address: Address = "random".parse().unwrap();
        let linux = Platform("linux_amd64".to_owned());
        let find = |constraint: &str| mirror.find(&address, &constraint.parse().unwrap(), &linux);
        assert_eq!(find("< 3.10").unwrap(), (Version::new(3, 6, 0), Package::Archive(archive)));
        let folder = Package::Folder(folder.join("3.5.0/linux_amd64"));
        assert_eq!(find("~> 3.5.0").unwrap(), (Version::new(3, 5, 0), folder));
        // The newest version counts over all platforms.
        let missing = find("~> 3.0").unwrap_err();
        assert!(matches!(missing, MirrorError::NoPlatform { .. }), "{missing}");
        let none = find("> 4").unwrap_err().to_string();
        assert!(none.ends_with("it has 3.5.0, 3.6.0, 3.10.0, 4.0.0-beta1"), "{none}");
        assert!(mirror.versions(&"tls".parse().unwrap()).unwrap().is_empty());
    }
}
