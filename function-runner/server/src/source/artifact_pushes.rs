//! Writes published revisions of packages to a registry, and removes them.
//!
//! Start at [`push`]. Registries have no compare-and-swap. So the tag is read right before the push and after it, and the artifact
//! that it has then counts.

use std::sync::Arc;

use stoa_artifacts::{
    Access, Digest, Document, FetchError, Found, Manifest, PackageImage, PackageImageFile, PackageImageRevision,
    Registry,
};
use stoa_engine_git::commit::check_path;
use stoa_outbound::causes;
use stoa_packages::git_layout::{RefKind, RevisionRef};
use stoa_proto::{
    GitRef, PushArtifactRequest, PushArtifactResponse, PushedArtifact, RemoveArtifactRequest, RemoveArtifactResponse,
    Source, TakenTag, push_artifact_response, remove_artifact_response,
};
use tonic::Code;

use super::artifacts::failure;
use super::disk::on_files;
use super::package_artifacts::{LARGEST, archives, workspace};
use super::registries::{bounded, each, registry_for};
use super::sources::Sources;
use crate::failure::{Failure, reason, size};
use crate::packages::ArtifactQuestion;

/// The start of the names by which a layer of an image removes files.
const WHITEOUT: &str = ".wh.";

/// Pushes a revision, unless its tag has it already.
pub(super) async fn push(
    sources: &Sources,
    source: &Source,
    request: PushArtifactRequest,
) -> Result<PushArtifactResponse, Failure> {
    if request.revision < 1 {
        return Err(Failure::request("revision: must be 1 or more"));
    }
    let registry = registry_for(source, &source.remote, Access::Push)?;
    let (tag, own) = (format!("v{}", request.revision), request.workspace.clone());
    let image = on_files(move || image(&request)).await?;
    let before = tagged(&registry, &tag).await?;
    let was_done = before.is_some();
    let found = match before {
        Some(found) => found,
        None => {
            let failed = |error: FetchError| failure(&error);
            registry.upload(&image.layer).await.map_err(failed)?;
            registry.upload(&image.config).await.map_err(failed)?;
            let digest = registry.put(&tag, &image.manifest).await.map_err(failed)?;
            tagged(&registry, &tag).await?.ok_or_else(|| {
                let message = format!("{}:{tag} does not exist after the push of {digest}", registry.repository());
                Failure::new(Code::Unavailable, reason::SOURCE_UNAVAILABLE, message)
            })?
        }
    };
    let digest = found.as_ref().map(|(digest, _)| digest.to_string()).unwrap_or_default();
    let outcome = match found.as_ref().and_then(|(_, manifest)| manifest.as_ref()) {
        Some(manifest) if has_layer(manifest, &image) && workspace(manifest, &tag) == own => {
            let path = registry.repository().name.clone();
            // It is read as every other one is.
            let question = ArtifactQuestion { digest: digest.clone(), path: path.clone() };
            let package = sources.package(source, question).await?;
            let name = RevisionRef { kind: RefKind::Tag, path, last: tag }.to_string();
            let r#ref = Some(GitRef { name, commit: digest });
            push_artifact_response::Outcome::Done(PushedArtifact { r#ref, tree: package.tree, was_done })
        }
        manifest => {
            let workspace = manifest.map_or(&*tag, |manifest| workspace(manifest, &tag)).to_owned();
            push_artifact_response::Outcome::Taken(TakenTag { digest, workspace })
        }
    };
    Ok(PushArtifactResponse { outcome: Some(outcome) })
}

/// The digest and the manifest of a tag, if it exists. One that cannot be read has neither, and an index no manifest.
type Tagged = Option<(Digest, Option<Manifest>)>;

async fn tagged(registry: &Registry, tag: &str) -> Result<Option<Tagged>, Failure> {
    match registry.by_tag(tag).await {
        Ok(Found { digest, document: Document::Manifest(manifest), .. }) => Ok(Some(Some((digest, Some(manifest))))),
        Ok(Found { digest, document: Document::Index(_), .. }) => Ok(Some(Some((digest, None)))),
        Err(FetchError::NotFound { .. }) => Ok(None),
        Err(FetchError::Wrong { .. } | FetchError::Mismatch { .. }) => Ok(Some(None)),
        Err(error) => Err(failure(&error)),
    }
}

/// Whether a manifest has the files of an image, and no others.
fn has_layer(manifest: &Manifest, image: &PackageImage) -> bool {
    let own = Digest::of(&image.layer);
    archives(manifest).is_some_and(|layers| matches!(&layers[..], [layer] if layer.blob.digest == own))
}

/// The image of a revision. Its paths are those that a package in Git may have.
fn image(request: &PushArtifactRequest) -> Result<PackageImage, Failure> {
    let mut files = Vec::new();
    let mut bytes = 0;
    for file in &request.files {
        check_path(&file.path).map_err(|error| Failure::request(format!("files: {error}")))?;
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if name.starts_with(WHITEOUT) {
            let message = format!("files: {} begins with {WHITEOUT}, which removes files of an image", file.path);
            return Err(Failure::request(message));
        }
        bytes += file.content.len() as u64;
        files.push(PackageImageFile { path: &file.path, content: &file.content, is_executable: file.is_executable });
    }
    if bytes > LARGEST {
        let message = format!("the package has more than {} of files; make it smaller", size(LARGEST));
        return Err(Failure::new(Code::InvalidArgument, reason::TOO_LARGE, message));
    }
    let author = request.author.clone().unwrap_or_default();
    let created = jiff::Timestamp::from_second(author.seconds).map_err(|error| Failure::request(error.to_string()))?;
    let created = created.to_string();
    let revision = PackageImageRevision {
        number: request.revision,
        workspace: &request.workspace,
        author: &author.name,
        created: &created,
        task: if request.task.is_empty() { "{}" } else { &request.task },
    };
    PackageImage::new(&files, &revision).map_err(|error| Failure::request(format!("files: {error}")))
}

/// Removes the tag of a revision.
pub(super) async fn remove(
    source: &Source,
    request: &RemoveArtifactRequest,
) -> Result<RemoveArtifactResponse, Failure> {
    use remove_artifact_response::Outcome;

    let registry = Arc::new(registry_for(source, &source.remote, Access::Delete)?);
    let answer = |outcome| Ok(RemoveArtifactResponse { outcome: Some(outcome) });
    let Some(found) = tagged(&registry, &request.tag).await? else { return answer(Outcome::Removed(true)) };
    let digest = found.map(|(digest, _)| digest);
    let actual = digest.as_ref().map(Digest::to_string).unwrap_or_default();
    if actual != request.digest {
        return answer(Outcome::Moved(actual));
    }
    let refused = match registry.remove_tag(&request.tag).await {
        Ok(()) => return answer(Outcome::Removed(true)),
        // A registry that knows digests alone may answer this about a tag that it has.
        Err(error @ FetchError::NotFound { .. }) => match tagged(&registry, &request.tag).await? {
            None => return answer(Outcome::Removed(true)),
            Some(_) => causes(&error),
        },
        Err(error) => refusal(error)?,
    };
    let Some(digest) = digest else { return answer(Outcome::Refused(refused)) };
    // With its manifest go all of its tags.
    if let Some(other) = other_tag(source, &registry, &request.tag, &digest).await? {
        let why = format!("{refused}; the tag {other} has the same manifest, so Stoa does not remove that");
        return answer(Outcome::Refused(why));
    }
    match registry.remove_manifest(&digest).await {
        Ok(()) | Err(FetchError::NotFound { .. }) => answer(Outcome::Removed(true)),
        Err(error) => answer(Outcome::Refused(refusal(error)?)),
    }
}

/// The words of a registry that does not remove something.
///
/// # Errors
///
/// For every other error.
fn refusal(error: FetchError) -> Result<String, Failure> {
    match &error {
        FetchError::Status { status: 400 | 405 | 501, .. } => Ok(causes(&error)),
        _ => Err(failure(&error)),
    }
}

/// Another tag of a manifest.
async fn other_tag(
    source: &Source,
    registry: &Arc<Registry>,
    tag: &str,
    digest: &Digest,
) -> Result<Option<String>, Failure> {
    let tags = registry.tags().await.map_err(|error| failure(&error))?;
    let others: Vec<String> = tags.into_iter().filter(|other| other != tag).collect();
    // Each is a request.
    bounded(source, others.len(), "tags")?;
    let has_it = |other: String| {
        let (registry, digest) = (Arc::clone(registry), digest.clone());
        async move {
            let found = tagged(&registry, &other).await?.flatten();
            Ok::<_, Failure>(found.filter(|(found, _)| *found == digest).map(|_| other))
        }
    };
    Ok(each(others, has_it).await?.into_iter().flatten().next())
}
