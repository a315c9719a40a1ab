//! Manifests and indexes of registries.
//!
//! Start at [`Document::parse`]. A document is one or the other by its media type, and may not claim two.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Digest;

/// Media types.
pub mod media {
    /// A manifest of OCI.
    pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    /// An index of OCI.
    pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    /// A manifest of Docker.
    pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
    /// An index of Docker.
    pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
    /// The configuration of an image of OCI.
    pub const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
    /// A layer of an image of OCI, by gzip.
    pub const IMAGE_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
    /// The content of an artifact of Flux.
    pub const FLUX_CONTENT: &str = "application/vnd.cncf.flux.content.v1.tar+gzip";
    /// A Helm chart.
    pub const HELM_CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
    /// The signature of a Helm chart.
    pub const HELM_PROVENANCE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";
    /// A Terraform provider for several platforms, as OpenTofu has it.
    pub const PROVIDER: &str = "application/vnd.opentofu.provider";
    /// A Terraform provider for one platform.
    pub const PROVIDER_TARGET: &str = "application/vnd.opentofu.provider-target";
    /// A ZIP archive.
    pub const ZIP: &str = "archive/zip";
}

/// The name of the file that a layer is.
pub const TITLE: &str = "org.opencontainers.image.title";
/// Whether a layer with a title is an archive of the folder with that name.
pub const UNPACK: &str = "io.deis.oras.content.unpack";
/// The revision that an artifact was made of.
pub const REVISION: &str = "org.opencontainers.image.revision";
/// The version of an artifact.
pub const VERSION: &str = "org.opencontainers.image.version";
/// The time at which an artifact was made, as of RFC 3339.
pub const CREATED: &str = "org.opencontainers.image.created";
/// The people who made an artifact.
pub const AUTHORS: &str = "org.opencontainers.image.authors";

/// A reference to a blob or another document.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its media type.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// The type of the artifact that it is; of documents only.
    #[serde(default)]
    pub artifact_type: String,
    /// The platform of the document.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// More about it.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// A platform, by Go's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// The operating system.
    #[serde(default)]
    pub os: String,
    /// The architecture.
    #[serde(default)]
    pub architecture: String,
}

/// The manifest of one artifact.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The type of the artifact.
    #[serde(default)]
    pub artifact_type: String,
    /// Its configuration.
    pub config: Descriptor,
    /// Its content.
    pub layers: Vec<Descriptor>,
    /// More about it.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

impl Manifest {
    /// The type of the artifact, which is that of its configuration where it has none of its own.
    pub fn kind(&self) -> &str {
        if self.artifact_type.is_empty() { &self.config.media_type } else { &self.artifact_type }
    }
}

/// A list of documents.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// The type of the artifact.
    #[serde(default)]
    pub artifact_type: String,
    /// The documents.
    pub manifests: Vec<Descriptor>,
}

/// A manifest or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// A manifest.
    Manifest(Manifest),
    /// An index.
    Index(Index),
}

/// A document that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDocument {
    /// It has no JSON of this form.
    #[error("it is no manifest of a registry: {0}")]
    Form(String),
    /// It has another media type.
    #[error("its media type is {0:?}, which Stoa does not read; push it as an OCI image manifest")]
    Type(String),
    /// It claims to be two things.
    #[error("its media type is {said:?} in the answer and {own:?} in the document")]
    Ambiguous {
        /// The type in the answer.
        said: String,
        /// The type in the document.
        own: String,
    },
}

/// The parts of a document that say which it is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    #[serde(default)]
    schema_version: u64,
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    manifests: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    layers: Option<serde::de::IgnoredAny>,
}

impl Document {
    /// Reads a document, which an answer of this media type has.
    ///
    /// # Errors
    ///
    /// If it is another document, or a manifest and an index at the same time.
    pub fn parse(bytes: &[u8], said: &str) -> Result<Self, InvalidDocument> {
        // The text of the error may quote a document that is none of a registry.
        let form = |error: serde_json::Error| {
            InvalidDocument::Form(format!("line {}, column {}", error.line(), error.column()))
        };
        let said = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let kind: Kind = serde_json::from_slice(bytes).map_err(form)?;
        if kind.schema_version != 2 {
            return Err(InvalidDocument::Form(format!("its schemaVersion is {}, not 2", kind.schema_version)));
        }
        let (said, own) = (said, kind.media_type);
        let is_generic = matches!(said.as_str(), "" | "application/json" | "application/octet-stream" | "text/plain");
        if !is_generic && !own.is_empty() && said != own {
            return Err(InvalidDocument::Ambiguous { said, own });
        }
        // Documents of OCI need no type of their own.
        let of_form = if kind.manifests.is_some() { media::INDEX } else { media::MANIFEST };
        let media_type = [own.as_str(), if is_generic { "" } else { said.as_str() }, of_form];
        let media_type = media_type.into_iter().find(|it| !it.is_empty()).unwrap_or(of_form);
        if kind.manifests.is_some() && kind.layers.is_some() {
            return Err(InvalidDocument::Form("it has manifests and layers".to_owned()));
        }
        match media_type {
            media::MANIFEST | media::DOCKER_MANIFEST => serde_json::from_slice(bytes).map(Self::Manifest).map_err(form),
            media::INDEX | media::DOCKER_INDEX => serde_json::from_slice(bytes).map(Self::Index).map_err(form),
            other => Err(InvalidDocument::Type(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn descriptor(kind: &str) -> serde_json::Value {
        json!({"mediaType": kind, "digest": Digest::of(b"x").to_string(), "size": 1})
    }

    #[test]
    fn documents_are_what_they_say() {
        let manifest = json!({"schemaVersion": 2, "mediaType": media::MANIFEST, "config": descriptor("a/b"),
            "layers": [descriptor(media::FLUX_CONTENT)], "annotations": {"a": "b"}});
        let parsed = Document::parse(manifest.to_string().as_bytes(), media::MANIFEST).unwrap();
        let Document::Manifest(parsed) = parsed else { panic!("{parsed:?}") };
        assert_eq!((parsed.kind(), parsed.layers[0].media_type.as_str()), ("a/b", media::FLUX_CONTENT));
        let index = json!({"schemaVersion": 2, "manifests": [descriptor(media::MANIFEST)]});
        for said in ["", "application/json; charset=utf-8", media::INDEX] {
            let parsed = Document::parse(index.to_string().as_bytes(), said).unwrap();
            assert!(matches!(parsed, Document::Index(_)));
        }
    }

    #[test]
    fn other_documents_are_rejected() {
        let error = |document: serde_json::Value, said: &str| {
            Document::parse(document.to_string().as_bytes(), said).unwrap_err().to_string()
        };
        let manifest =
            json!({"schemaVersion": 2, "mediaType": media::MANIFEST, "config": descriptor("a"), "layers": []});
        let with = |field: &str, value: serde_json::Value| {
            let mut changed = manifest.clone();
            changed[field] = value;
            changed
        };
        assert!(error(manifest.clone(), media::INDEX).contains("in the answer"));
        assert!(error(with("manifests", json!([])), media::MANIFEST).ends_with("it has manifests and layers"));
        assert!(error(with("schemaVersion", json!(1)), "").ends_with("its schemaVersion is 1, not 2"));
        assert!(error(with("mediaType", json!("a/b")), "").contains("which Stoa does not read"));
        let mut layer = descriptor("a");
        layer["size"] = json!(-1);
        for (field, value) in [("layers", json!([layer])), ("layers", json!(1)), ("config", json!(null))] {
            assert!(error(with(field, value), "").starts_with("it is no manifest"));
        }
    }
}
