//! Packages in an OCI registry, in the layout of OpenTofu's `oci_mirror`.
//!
//! A version is a tag. It leads to an index of the type `application/vnd.opentofu.provider`, with a manifest for each
//! platform, whose only layer of the type `archive/zip` is the package.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use semver::Version;
use stoa_artifacts::{
    Document, FetchError, InvalidLogin, InvalidRepository, Login, Registry, Repository, media, tag_of,
};
use stoa_terraform_provider::package::{Address, Platform};

/// A registry with the packages of providers.
#[derive(Clone)]
pub(super) struct RegistryMirror {
    /// The repository of a provider: `${hostname}`, `${namespace}` and `${type}` stand for parts of its address.
    pub(super) template: String,
    /// The Secret with the credentials.
    pub(super) keys: HashMap<String, Bytes>,
}

/// A package that a registry does not have, or does not send.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegistryError {
    #[error(transparent)]
    Repository(#[from] InvalidRepository),
    #[error(transparent)]
    Login(#[from] InvalidLogin),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("{reference} has no package for {platform}")]
    NoPlatform { reference: String, platform: Platform },
    #[error("{reference} is no provider: {problem}")]
    Layout { reference: String, problem: &'static str },
}

impl RegistryMirror {
    fn repository(&self, address: &Address) -> Result<Repository, InvalidRepository> {
        let parts = [("${hostname}", &address.host), ("${namespace}", &address.namespace), ("${type}", &address.kind)];
        parts.into_iter().fold(self.template.clone(), |text, (symbol, part)| text.replace(symbol, part)).parse()
    }

    /// Downloads the package of a version for a platform into a folder.
    pub(super) async fn fetch(
        &self,
        (address, version, platform): (&Address, &Version, &Platform),
        into: &Path,
        limit: u64,
    ) -> Result<PathBuf, RegistryError> {
        let repository = self.repository(address)?;
        let login = Login::of_keys(&repository.registry, |key| self.keys.get(key).map(|it| &it[..]))?;
        let tag = tag_of(version);
        let reference = format!("{repository}:{tag}");
        let wrong = |problem| RegistryError::Layout { reference: reference.clone(), problem };
        let registry = Registry::new(repository, login)?;
        let Document::Index(index) = registry.by_tag(&tag).await?.document else {
            return Err(wrong("it is a manifest; push an index of the manifests of all platforms"));
        };
        if index.artifact_type != media::PROVIDER {
            return Err(wrong("its artifactType is not application/vnd.opentofu.provider"));
        }
        let is_target = |kind: &str| kind == media::PROVIDER_TARGET;
        let target = index.manifests.into_iter().find(|it| {
            let of = it.platform.clone().unwrap_or_default();
            is_target(&it.artifact_type) && format!("{}_{}", of.os, of.architecture) == platform.0
        });
        let target = target
            .ok_or_else(|| RegistryError::NoPlatform { reference: reference.clone(), platform: platform.clone() })?;
        let Document::Manifest(manifest) = registry.by_digest(&target.digest).await?.document else {
            return Err(wrong("the manifest of its platform is an index"));
        };
        if !is_target(&manifest.artifact_type) {
            return Err(wrong("the artifactType of its manifest is not application/vnd.opentofu.provider-target"));
        }
        let mut archives = manifest.layers.iter().filter(|layer| layer.media_type == media::ZIP);
        let (Some(archive), None) = (archives.next(), archives.next()) else {
            return Err(wrong("its manifest has not exactly one layer of the media type archive/zip"));
        };
        let path = into.join("package.zip");
        registry.blob(&archive.digest, Some(archive.size), limit, &path).await?;
        Ok(path)
    }
}
