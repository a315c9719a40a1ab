//! Reads the package that an artifact of a registry is: its Kptfile, and the id of its folder.
//!
//! Elsewhere: `source::package_artifacts` asks the registry, and `source::import` makes the commit of the artifact.

use git2::Oid;
use prost::bytes::Bytes;
use stoa_proto::{DiscoverRequest, DiscoveredRevision, Problem};

use super::reader::{Marks, Reader};
use crate::failure::Failure;
use crate::source::Cache;

/// A question for the package of an artifact.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ArtifactQuestion {
    /// The digest of the artifact.
    #[prost(string, tag = "1")]
    pub(crate) digest: String,
    /// The name of its repository, for messages.
    #[prost(string, tag = "2")]
    pub(crate) path: String,
}

/// The package of an artifact, as in [`DiscoveredRevision`].
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ArtifactPackage {
    #[prost(string, tag = "1")]
    pub(crate) tree: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) kptfile: Bytes,
    #[prost(message, optional, tag = "3")]
    pub(crate) problem: Option<Problem>,
}

/// Reads the package of an artifact, whose commit is cached.
pub(crate) fn read(cache: &Cache, commit: Oid, path: &str) -> Result<ArtifactPackage, Failure> {
    let (request, marks) = (DiscoverRequest::default(), Marks::of(&[], &[], &[]));
    let reader = Reader::new(cache, &request, ("", ""), &marks);
    let DiscoveredRevision { tree, kptfile, problem, .. } = reader.artifact(path, commit)?;
    Ok(ArtifactPackage { tree, kptfile, problem })
}
