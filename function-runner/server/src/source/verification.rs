//! The commits and artifacts of a Source that a trusted key signed.
//!
//! Start at [`keys`]. The process that reads a source calls [`of_commit`] before it uses the content of a commit, and this
//! process calls [`of_artifact`] before it fetches an artifact. A commit counts by its own signature, or by that of an
//! annotated tag with its own name that leads to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use git2::{ObjectType, Oid, Repository};
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use stoa_artifacts::{Digest, Document, Registry};
use stoa_proto::{Source, Verification};
use stoa_signatures::{
    CERTIFICATE_ANNOTATION, SIGNATURE_ANNOTATION, SIMPLE_SIGNING, Signer, TrustedKeys, Unverified, signature_tag,
    tag_of,
};
use tonic::Code;

use super::error::here;
use crate::failure::{Failure, reason};

/// The largest payload of a signature, in bytes.
const PAYLOAD: u64 = 64 << 10;
/// The most signatures of an artifact that are tried.
const SIGNATURES: usize = 50;
/// The largest tag that is read, in bytes.
const LARGEST_TAG: usize = 1 << 20;
/// The most verified artifacts in memory.
const REMEMBERED: usize = 10_000;

/// The keys that a source trusts; nothing where it needs no signature.
pub(super) fn keys(source: &Source) -> Result<Option<TrustedKeys>, Failure> {
    let Some(Verification { keys }) = &source.verify else { return Ok(None) };
    let invalid = |message: String| Failure::new(Code::InvalidArgument, reason::INVALID_KEYS, message);
    let mut texts = Vec::new();
    for of in keys {
        let text = std::str::from_utf8(&of.text).map_err(|_| invalid(format!("{} is no text in UTF-8", of.name)))?;
        texts.push((of.name.as_str(), text));
    }
    if texts.is_empty() {
        return Err(invalid("spec.verify has no public keys".to_owned()));
    }
    TrustedKeys::read(texts).map(Some).map_err(|error| invalid(error.to_string()))
}

/// The digest of the keys that a source trusts, which is part of the key of every cache of content.
pub(crate) fn digest(source: &Source) -> Option<[u8; 32]> {
    source.verify.as_ref().map(|verify| Sha256::digest(verify.encode_to_vec()).into())
}

/// The signer of a commit. `Err` has the reason that it is not verified.
pub(super) fn of_commit(
    repository: &Repository,
    keys: &TrustedKeys,
    commit: Oid,
) -> Result<Result<Signer, Unverified>, Failure> {
    let content = content(repository, commit)?;
    let unverified = match keys.verify_commit(&content) {
        Ok(signer) => return Ok(Ok(signer)),
        Err(unverified) => unverified,
    };
    Ok(of_tags(repository, keys, commit)?.ok_or(unverified))
}

/// The signer of a tag that leads to a commit.
fn of_tags(repository: &Repository, keys: &TrustedKeys, commit: Oid) -> Result<Option<Signer>, Failure> {
    let commit = commit.to_string();
    for tag in repository.references_glob("refs/tags/*").map_err(|error| here(&error))? {
        let tag = tag.map_err(|error| here(&error))?;
        let (Some(id), Ok(name)) = (tag.target(), tag.name()) else { continue };
        // Most tags of many repositories are plain names of commits.
        let header = repository.odb().and_then(|odb| odb.read_header(id));
        let (size, kind) = header.map_err(|error| here(&error))?;
        if kind != ObjectType::Tag || size > LARGEST_TAG {
            continue;
        }
        let content = content(repository, id)?;
        let signed = tag_of(&content);
        // A tag that somebody moved to another name vouches for nothing.
        let is_for = signed.is_some_and(|it| it.object == commit && name == format!("refs/tags/{}", it.name));
        if let Some(signer) = is_for.then(|| keys.verify_tag(&content).ok()).flatten() {
            return Ok(Some(signer));
        }
    }
    Ok(None)
}

/// The content of an object, whose hash libgit2 compares.
fn content(repository: &Repository, id: Oid) -> Result<Vec<u8>, Failure> {
    let odb = repository.odb().map_err(|error| here(&error))?;
    odb.read(id).map(|object| object.data().to_vec()).map_err(|error| here(&error))
}

/// The failure of content that is not verified.
pub(super) fn failure(what: &str, unverified: &Unverified) -> Failure {
    let (reason, remedy) = match unverified {
        Unverified::Missing => (reason::SIGNATURE_MISSING, "sign it with a key of spec.verify of the Source"),
        Unverified::Untrusted { .. } => {
            (reason::SIGNATURE_UNTRUSTED, "add the key to spec.verify of the Source, or sign with another")
        }
        Unverified::Invalid { .. } => (reason::SIGNATURE_INVALID, "sign it again"),
    };
    Failure::new(Code::InvalidArgument, reason, format!("{what} {unverified}; {remedy}"))
}

/// Signers by the artifact and the digest of the keys.
type Signers = HashMap<(String, [u8; 32]), String>;

/// The artifacts that were verified, with their signers. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Verified(Arc<Mutex<Signers>>);

impl Verified {
    /// The signer of an artifact, asked for once for each list of keys. Empty where the source needs no signature.
    pub(super) async fn signer(
        &self,
        source: &Source,
        registry: Option<&Registry>,
        artifact: &Digest,
    ) -> Result<String, Failure> {
        let (Some(keys), Some(of_keys)) = (keys(source)?, digest(source)) else { return Ok(String::new()) };
        let Some(registry) = registry else {
            let message =
                "spec.verify needs provider Git or OCI; a signed chart is a Source of provider OCI".to_owned();
            return Err(Failure::new(Code::InvalidArgument, reason::INVALID_KEYS, message));
        };
        let key = (format!("{}@{artifact}", registry.repository()), of_keys);
        if let Some(signer) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(signer.clone());
        }
        let signer = of_artifact(registry, &keys, artifact).await?;
        let signer = signer.map_err(|unverified| failure(&key.0, &unverified))?.to_string();
        let mut verified = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= REMEMBERED {
            verified.clear();
        }
        verified.insert(key, signer.clone());
        Ok(signer)
    }
}

/// The signer of an artifact, by the signatures that cosign stores beside it.
async fn of_artifact(
    registry: &Registry,
    keys: &TrustedKeys,
    artifact: &Digest,
) -> Result<Result<Signer, Unverified>, Failure> {
    let digest = artifact.to_string();
    let found = match registry.by_tag(&signature_tag(&digest)).await {
        Ok(found) => found,
        Err(stoa_artifacts::FetchError::NotFound { .. }) => return Ok(Err(Unverified::Missing)),
        Err(error) => return Err(super::artifacts::failure(&error)),
    };
    let Document::Manifest(manifest) = found.document else { return Ok(Err(Unverified::Missing)) };
    let mut unverified = Unverified::Missing;
    for layer in manifest.layers.into_iter().filter(|layer| layer.media_type == SIMPLE_SIGNING).take(SIGNATURES) {
        let Some(signature) = layer.annotations.get(SIGNATURE_ANNOTATION) else { continue };
        let payload = registry.small_blob(&layer.digest, PAYLOAD).await;
        let payload = payload.map_err(|error| super::artifacts::failure(&error))?;
        match keys.verify_artifact(&digest, &payload, signature) {
            Ok(signer) => return Ok(Ok(signer)),
            Err(Unverified::Untrusted { .. }) if layer.annotations.contains_key(CERTIFICATE_ANNOTATION) => {
                unverified = Unverified::keyless();
            }
            Err(why) => unverified = why,
        }
    }
    Ok(Err(unverified))
}
