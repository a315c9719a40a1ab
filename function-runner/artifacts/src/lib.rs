//! OCI artifacts and Helm charts, fetched from registries and chart repositories and verified, and packages pushed to registries.
//!
//! Start at [`Registry`] and [`ChartRepository`]. Every document and blob is limited, and compared with its digest and
//! size as it arrives; what does not match is never used. Credentials are for the host that they were given for: a
//! redirect to another one has none. Plain HTTP is for loopback only.
//!
//! Elsewhere: [`Repository`] and [`Selector`] are the names, [`Document`] is a manifest or an index, [`layers`] says how
//! an artifact becomes files, [`package_image`] makes one of files, and `stoa_archive` reads archives.

mod challenge;
mod charts;
mod digest;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod http_client;
pub mod layers;
mod login;
pub mod manifest;
pub mod package_image;
mod push;
mod reference;
mod registry;

pub use self::challenge::{Challenge, parse as parse_challenges};
pub use self::charts::{ChartIndex, ChartRepository, ChartVersion, InvalidIndex};
pub use self::digest::{Digest, Expected, InvalidDigest, Mismatch};
pub use self::http_client::{Endpoint, FetchError, InvalidUrl};
pub use self::login::{InvalidLogin, Login};
pub use self::manifest::{Descriptor, Document, Index, InvalidDocument, Manifest, Platform, media};
pub use self::package_image::{PackageImage, PackageImageFile, PackageImageRevision};
pub use self::reference::{
    InvalidRepository, InvalidSelector, Pick, Repository, Selector, is_tag, newest, tag_of, version_of,
};
pub use self::registry::{Access, Found, Registry};
