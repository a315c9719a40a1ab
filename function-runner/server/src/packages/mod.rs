//! Package repositories.
//!
//! [`discover`], [`artifact`], [`files`] and [`push`] are the work of a source process (`source::job`), which has the cache of the
//! repository. `service::packages` is the gRPC service. `crate::functions` runs the functions of packages, and `source::package_artifacts` lists
//! the packages of registries.
//!
//! The layout in Git is in `stoa_packages::git_layout`, and docs/design/packages-in-git.md.

pub(crate) mod artifact;
pub(crate) mod discover;
pub(crate) mod files;
pub(crate) mod functions;
pub(crate) mod history;
pub(crate) mod push;
mod reader;
mod tree;

pub(crate) use artifact::{ArtifactPackage, ArtifactQuestion};
pub(crate) use discover::{DiscoverJob, DiscoverPage};
pub(crate) use files::PackageFiles;

#[cfg(test)]
mod tests;
