//! The digest and the program of an image, from its registry.

use serde::Deserialize;
use stoa_artifacts::{Digest, Document, Index, Login, Manifest, Registry, Repository};
use stoa_outbound::causes;
use tonic::Code;

use crate::failure::{Failure, reason};

/// The largest configuration of an image, in bytes.
const LARGEST: u64 = 4 << 20;

/// An image by its digest, and the command that it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// The name with the digest.
    pub(super) image: String,
    /// The entrypoint and its arguments.
    pub(super) command: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct ImageConfig {
    #[serde(default)]
    config: Execution,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Execution {
    #[serde(default)]
    entrypoint: Option<Vec<String>>,
    #[serde(default)]
    cmd: Option<Vec<String>>,
}

/// The repository, and the tag or digest, of an image.
fn split(image: &str) -> (&str, Option<&str>, Option<&str>) {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    match name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
        Some((name, tag)) => (name, Some(tag), digest),
        None => (name, None, digest),
    }
}

fn wrong(image: &str, why: &str) -> Failure {
    let message = format!("the image of function {image} cannot be used: {why}");
    Failure::new(Code::FailedPrecondition, reason::NOT_AVAILABLE, message)
}

/// Reads the program of an image.
pub(super) async fn read(image: &str) -> Result<Program, Failure> {
    let (name, tag, digest) = split(image);
    let repository: Repository = name.parse().map_err(|error| wrong(image, &format!("{error}")))?;
    let login = Login::of_keys(&repository.registry, |_| None).map_err(|error| wrong(image, &error.to_string()))?;
    let failed = |error: stoa_artifacts::FetchError| crate::source::registry_failure(&error);
    let registry = Registry::new(repository, login).map_err(failed)?;
    let found = match digest {
        Some(digest) => {
            let digest: Digest = digest.parse().map_err(|error| wrong(image, &format!("{error}")))?;
            registry.by_digest(&digest).await.map_err(failed)?
        }
        None => registry.by_tag(tag.unwrap_or("latest")).await.map_err(failed)?,
    };
    let pinned = format!("{name}@{}", found.digest);
    let manifest = match found.document {
        Document::Manifest(manifest) => manifest,
        Document::Index(index) => {
            let Some(digest) = of_platform(&index) else { return Err(wrong(image, "it has no part for Linux")) };
            match registry.by_digest(&digest).await.map_err(failed)?.document {
                Document::Manifest(manifest) => manifest,
                Document::Index(_) => return Err(wrong(image, "it is an index of indexes")),
            }
        }
    };
    let config = config(&registry, &manifest).await?;
    let command = command(&config).map_err(|why| wrong(image, &why))?;
    Ok(Program { image: pinned, command })
}

/// The part of an index for Linux. Programs of the same image have the same command on every architecture.
fn of_platform(index: &Index) -> Option<Digest> {
    let is_linux = |part: &&stoa_artifacts::Descriptor| part.platform.as_ref().is_some_and(|of| of.os == "linux");
    index.manifests.iter().find(is_linux).map(|part| part.digest.clone())
}

async fn config(registry: &Registry, manifest: &Manifest) -> Result<Vec<u8>, Failure> {
    let read = registry.small_blob(&manifest.config.digest, LARGEST).await;
    read.map_err(|error| {
        tracing::warn!(error = causes(&error), "the configuration of an image cannot be read");
        crate::source::registry_failure(&error)
    })
}

fn command(config: &[u8]) -> Result<Vec<String>, String> {
    let ImageConfig { config } =
        serde_json::from_slice(config).map_err(|_| "its configuration is malformed".to_owned())?;
    let parts = config.entrypoint.into_iter().chain(config.cmd).flatten();
    let command: Vec<String> = parts.collect();
    if command.is_empty() { Err("it has neither an entrypoint nor a command".to_owned()) } else { Ok(command) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_has_a_tag_or_a_digest() {
        assert_eq!(split("example.com:5000/fn/a:v1"), ("example.com:5000/fn/a", Some("v1"), None));
        assert_eq!(split("example.com:5000/fn/a"), ("example.com:5000/fn/a", None, None));
        assert_eq!(split("example.com/a:v1@sha256:00"), ("example.com/a", Some("v1"), Some("sha256:00")));
    }

    #[test]
    fn command_is_entrypoint_and_arguments() {
        let of = |text: &str| command(text.as_bytes());
        let both = of(r#"{"config": {"Entrypoint": ["/fn"], "Cmd": ["-v"]}}"#);
        assert_eq!(both, Ok(vec!["/fn".to_owned(), "-v".to_owned()]));
        assert_eq!(of(r#"{"config": {"Cmd": ["/fn"]}}"#), Ok(vec!["/fn".to_owned()]));
        for none in ["{}", r#"{"config": {"Entrypoint": null}}"#, "["] {
            assert!(of(none).is_err(), "{none}");
        }
    }
}
