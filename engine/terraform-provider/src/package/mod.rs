//! Packages of providers: where they are, which version is taken, and whether the files are the expected ones.
//!
//! Start at [`Installer`]. A package comes from a folder or from a network mirror, is compared with the lock file, and is
//! extracted into a cache by its digest. The executable is hashed again before each use.
//!
//! Elsewhere: [`Address`] names a provider, [`LockFile`] and [`enum@Hash`] say what is expected, `stoa_archive` reads packages,
//! [`FilesystemMirror`] and [`NetworkMirror`] are the sources.

mod cache;
mod hash;
mod lock_file;
mod mirror;
mod network;
mod platform;
mod version;

pub use stoa_archive::{ArchiveError, ArchiveLimits};
pub use stoa_engine::provider_address::{ProviderAddress as Address, ProviderAddressError as AddressError};

pub use self::cache::{InstallError, Installed, Installer};
pub use self::hash::digest;
pub use self::hash::{Hash, HashError, HashScheme};
pub use self::lock_file::{LockFile, LockFileError, LockedProvider, RecordedLockError};
pub use self::mirror::{FilesystemMirror, MirrorError, Package};
pub use self::network::{HttpAnswer, HttpClient, HttpError, NetworkError, NetworkMirror};
pub use self::platform::Platform;
pub use self::version::{VersionConstraint, VersionError, newest};

/// The most files and folders of a package.
const MOST_ENTRIES: usize = 10_000;

/// A digest as lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string grows");
        text
    })
}
