//! The packages of a registry: artifacts with one archive, and images of several layers, of a repository or of the repositories
//! below it. A tag is a revision.
//!
//! Start at [`page`]. This process asks for tags and manifests. The process that reads the cache of a repository makes a commit of
//! the archive ([`super::import`]) and reads its Kptfile (`packages::artifact`), so the files of a package are those of a commit.
//!
//! The ref of a tag is `refs/tags/<repository>/<tag>`, and its id is the digest of the manifest.

use std::sync::Arc;

use prost::Message as _;
use stoa_artifacts::{
    Digest, Document, FetchError, Manifest, Registry, Repository, layers,
    layers::{Form, Layer},
    manifest,
    package_image::{LIFECYCLE, REVISION, WORKSPACE},
};
use stoa_outbound::causes;
use stoa_packages::git_layout::{self, BRANCH_REVISION, RefKind, RevisionRef};
use stoa_proto::{DiscoveredRevision, GitPerson, GitRef, Problem, Source};
use tonic::Code;

use super::artifacts::{LAYERS, failure};
use super::registries::{each, registry, tags};
use super::sources::Sources;
use crate::failure::{Failure, problem, reason, size};
use crate::packages::discover::{PAGE, by_name, compared};
use crate::packages::{ArtifactPackage, ArtifactQuestion, DiscoverJob, DiscoverPage};

/// The largest package, in bytes: all of its archives.
pub(super) const LARGEST: u64 = 64 << 20;
/// The revisions that are read before the size of the page is compared with its limit.
const GROUP: usize = 32;
/// The reason of a revision whose manifest cannot be read.
const INVALID_REF: &str = "InvalidRef";
/// The longest workspace: a DNS label.
const WORKSPACE_BYTES: usize = 63;

/// One page of the revisions of a source of provider OCI.
pub(super) async fn page(sources: &Sources, source: &Source, job: &DiscoverJob) -> Result<DiscoverPage, Failure> {
    let request = job.request.as_ref().ok_or_else(|| Failure::internal(&"a question for packages has a request"))?;
    let root = registry(source, &source.remote)?.repository().clone();
    let is_first = job.from == 0;
    let now = if is_first { refs(source, &request.paths).await? } else { job.refs.clone() };
    let known = by_name(&request.known);
    let mut header = compared(&now, &known);
    // A caller that knows no refs may have revisions from before all tags were removed.
    header.unchanged &= !known.is_empty();
    if header.unchanged {
        return Ok(DiscoverPage { refs: Some(header), ..DiscoverPage::default() });
    }
    let is_known = |of: &&GitRef| known.get(&*of.name) == Some(&&*of.commit);
    let changed: Vec<GitRef> = now.iter().filter(|of| !is_known(of)).cloned().collect();
    let mut page = DiscoverPage::default();
    let (mut bytes, mut at) = (0, job.from as usize);
    while at < changed.len() && bytes <= PAGE {
        let group: Vec<GitRef> = changed.iter().skip(at).take(GROUP).cloned().collect();
        at += group.len();
        let read = |of| revision(sources.clone(), source.clone(), root.clone(), of);
        for revision in each(group, read).await?.into_iter().flatten() {
            bytes += revision.encoded_len();
            page.revisions.push(revision);
        }
    }
    if at < changed.len() {
        page.next = u32::try_from(at).map_err(|err| Failure::internal(&err))?;
    }
    page.revisions.sort_by(|a, b| a.r#ref.cmp(&b.r#ref));
    header.refs = now;
    page.refs = is_first.then_some(header);
    Ok(page)
}

/// The tags with their digests, sorted by name.
async fn refs(source: &Source, paths: &[String]) -> Result<Vec<GitRef>, Failure> {
    let found = each(tags(source, paths).await?, |(registry, tag)| reference(registry, tag)).await?;
    let mut refs: Vec<GitRef> = found.into_iter().flatten().collect();
    refs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(refs)
}

/// The ref of a tag; nothing if the tag does not exist any more. Without a readable manifest it has no id.
async fn reference(registry: Arc<Registry>, tag: String) -> Result<Option<GitRef>, Failure> {
    let commit = match registry.by_tag(&tag).await {
        Ok(found) => found.digest.to_string(),
        Err(FetchError::Wrong { .. } | FetchError::Mismatch { .. }) => String::new(),
        Err(FetchError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(failure(&error)),
    };
    let name = RevisionRef { kind: RefKind::Tag, path: registry.repository().name.clone(), last: tag };
    Ok(Some(GitRef { name: name.to_string(), commit }))
}

/// The name of the package in a repository: its path below the registered one, or the last part of the registered one itself.
fn package_name<'n>(root: &str, name: &'n str) -> &'n str {
    let below = name.strip_prefix(root).and_then(|rest| rest.strip_prefix('/'));
    below.unwrap_or_else(|| name.rsplit('/').next().unwrap_or(name))
}

/// The archives of a package: one, or the layers of an image. Nothing for another artifact, such as a chart or a signature.
pub(super) fn archives(manifest: &Manifest) -> Option<Vec<Layer>> {
    let layers = layers::of_manifest(manifest).ok()?;
    let is_archive = matches!(&layers[..], [Layer { form: Form::Archive(_), .. }]);
    (is_archive || layers::is_image(&layers)).then_some(layers)
}

/// An annotation of the manifest, or of the last layer that has it, which Porch annotates.
fn annotation<'m>(manifest: &'m Manifest, layers: &'m [Layer], key: &str) -> Option<&'m str> {
    let of_layers = || layers.iter().rev().find_map(|layer| layer.blob.annotations.get(key));
    manifest.annotations.get(key).or_else(of_layers).map(String::as_str)
}

/// The workspace of a revision: that of the annotation under the tag of its number, or else the tag. So another tag of the same
/// manifest, such as `latest`, is another revision.
pub(super) fn workspace<'m>(manifest: &'m Manifest, tag: &'m str) -> &'m str {
    let annotated = manifest.annotations.get(WORKSPACE).map(String::as_str);
    let pushed = format!("v{}", number(manifest.annotations.get(REVISION).map(String::as_str), tag));
    annotated.filter(|text| tag == pushed && (1..=WORKSPACE_BYTES).contains(&text.len())).unwrap_or(tag)
}

/// The number of a revision: by Porch's annotation, or else by its tag.
fn number(annotated: Option<&str>, tag: &str) -> i32 {
    let numbers = [annotated.unwrap_or_default(), tag].map(git_layout::revision_of);
    numbers.into_iter().find(|number| *number > 0).unwrap_or(BRANCH_REVISION)
}

/// The author and the time, as the annotations of a manifest have them.
fn author(manifest: &Manifest) -> Option<GitPerson> {
    let created: jiff::Timestamp = manifest.annotations.get(manifest::CREATED)?.parse().ok()?;
    let name = manifest.annotations.get(manifest::AUTHORS).cloned().unwrap_or_default();
    Some(GitPerson { name, email: String::new(), seconds: created.as_second() })
}

/// The revision of a ref; nothing for an artifact that is no package, and for a draft of Porch.
async fn revision(
    sources: Sources,
    source: Source,
    root: Repository,
    of: GitRef,
) -> Result<Option<DiscoveredRevision>, Failure> {
    let RevisionRef { path, last: tag, .. } = RevisionRef::parse(&of.name)
        .ok_or_else(|| Failure::request(format!("{:?} is no tag of a package", of.name)))?;
    let mut revision = DiscoveredRevision {
        package: package_name(&root.name, &path).to_owned(),
        path: path.clone(),
        revision: number(None, &tag),
        workspace: tag.clone(),
        lifecycle: "Published".to_owned(),
        commit: of.commit.clone(),
        ref_commit: of.commit.clone(),
        r#ref: of.name,
        ..DiscoveredRevision::default()
    };
    let source = Source { remote: format!("oci://{}/{path}", root.registry), ..source };
    let manifest = match of.commit.parse::<Digest>() {
        Ok(digest) => fetched_manifest(&source, &digest).await?,
        Err(_) => Err("its manifest is none that Stoa reads".to_owned()),
    };
    let manifest = match manifest {
        Ok(Some(manifest)) => manifest,
        Ok(None) => return Ok(None),
        Err(why) => {
            let message = format!("{path}:{tag} cannot be read: {why}; push the package again");
            revision.problem = Some(problem(INVALID_REF, message));
            return Ok(Some(revision));
        }
    };
    let Some(layers) = archives(&manifest) else { return Ok(None) };
    match annotation(&manifest, &layers, LIFECYCLE) {
        Some("Draft" | "Proposed") => return Ok(None),
        Some("DeletionProposed") => "DeletionProposed".clone_into(&mut revision.lifecycle),
        Some(_) | None => {}
    }
    let annotated = annotation(&manifest, &layers, REVISION);
    // An image may be a program beside the packages.
    let is_certain = layers.len() == 1 || annotated.is_some();
    revision.revision = number(annotated, &tag);
    workspace(&manifest, &tag).clone_into(&mut revision.workspace);
    revision.author = author(&manifest);
    let bytes = layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.blob.size));
    if bytes > LARGEST || layers.len() > LAYERS {
        let most = size(LARGEST);
        let message = format!("{path}:{tag} has more than {most} or {LAYERS} layers; make the package smaller");
        revision.problem = Some(problem(reason::TOO_LARGE, message));
        return Ok(Some(revision).filter(|_| is_certain));
    }
    match sources.package(&source, ArtifactQuestion { digest: of.commit, path }).await {
        Ok(ArtifactPackage { tree, kptfile, problem }) => {
            (revision.tree, revision.kptfile, revision.problem) = (tree, kptfile, problem);
        }
        // One broken package hides no other.
        Err(failure) => revision.problem = Some(of_package(failure)?),
    }
    let is_package = is_certain || revision.problem.is_none();
    Ok(Some(revision).filter(|_| is_package))
}

/// The manifest with a digest; nothing if it does not exist any more or is an index, and why it cannot be read.
async fn fetched_manifest(source: &Source, digest: &Digest) -> Result<Result<Option<Manifest>, String>, Failure> {
    match registry(source, &source.remote)?.by_digest(digest).await {
        Ok(found) => match found.document {
            Document::Manifest(manifest) => Ok(Ok(Some(manifest))),
            Document::Index(_) => Ok(Ok(None)),
        },
        Err(FetchError::NotFound { .. }) => Ok(Ok(None)),
        Err(error @ (FetchError::Wrong { .. } | FetchError::Mismatch { .. })) => Ok(Err(causes(&error))),
        Err(error) => Err(failure(&error)),
    }
}

/// The problem of one package that a failure is about.
///
/// # Errors
///
/// The failure, if it is about the registry or the cache.
fn of_package(failure: Failure) -> Result<Problem, Failure> {
    let (code, problems) = failure.into_parts();
    let is_of_package = |problem: &&Problem| [reason::INVALID_MANIFEST, reason::TOO_LARGE].contains(&&*problem.reason);
    match problems.iter().find(is_of_package).filter(|_| code == Code::InvalidArgument) {
        Some(problem) => Ok(problem.clone()),
        None => Err(Failure::of(code, problems)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repositories_are_packages_below_the_registered_name() {
        for (name, expected) in [("packages/web", "web"), ("packages/net/web", "net/web"), ("packages", "packages")] {
            assert_eq!(package_name("packages", name), expected);
        }
        assert_eq!(package_name("team/packages/web", "team/packages/web"), "web");
    }

    #[test]
    fn numbers_are_those_of_annotations_and_tags() {
        for (annotated, tag, expected) in [
            (None, "v3", 3),
            (None, "3", 3),
            (Some("v2"), "main", 2),
            (Some("x"), "v4", 4),
            (None, "1.2.0", -1),
            (None, "0", -1),
            (Some("-7"), "latest", -1),
        ] {
            assert_eq!(number(annotated, tag), expected, "{annotated:?} {tag}");
        }
    }

    #[test]
    fn artifacts_with_archives_are_packages() {
        let of = |kinds: &[&str]| {
            let blob = |kind: &str| json!({"mediaType": kind, "digest": Digest::of(b""), "size": 0});
            let layers: Vec<_> = kinds.iter().map(|kind| blob(kind)).collect();
            let manifest = json!({"config": blob("x"), "layers": layers});
            archives(&serde_json::from_value(manifest).unwrap()).is_some()
        };
        let (tar, flux) = ("application/vnd.docker.image.rootfs.diff.tar.gzip", stoa_artifacts::media::FLUX_CONTENT);
        assert!(of(&[tar]) && of(&[flux]) && of(&["application/vnd.oci.image.layer.v1.tar"]));
        assert!(of(&[tar, tar]) && of(&[flux, tar]));
        for other in [&[][..], &[tar, "text/x"], &[stoa_artifacts::media::HELM_CHART], &["application/json"]] {
            assert!(!of(other), "{other:?}");
        }
    }
}
