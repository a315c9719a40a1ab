//! The functions of a registry: the images of a repository, or of the repositories below it, with their annotations.

use std::sync::Arc;

use stoa_artifacts::{Document, FetchError, Registry};
use stoa_outbound::causes;
use stoa_packages::function_metadata;
use stoa_proto::{FunctionsResponse, OfferedFunction, Problem, Source};

use super::artifacts::failure;
use super::registries;
use crate::failure::{Failure, problem};
use crate::functions::offered;

/// The reason of images that cannot be read.
const INVALID: &str = "InvalidFunction";

/// Lists the functions of a source of provider OCI: those of the repository that it names, or else of all repositories below it.
pub(super) async fn functions(source: &Source) -> Result<FunctionsResponse, Failure> {
    let mut found = FunctionsResponse::default();
    let images = registries::tags(source, &[]).await?;
    for read in registries::each(images, |(registry, tag)| function(registry, tag)).await? {
        match read {
            Ok(function) => found.functions.push(function),
            Err(problem) => found.problems.push(problem),
        }
    }
    found.functions.sort_by(|a, b| a.image.cmp(&b.image));
    Ok(found)
}

/// The function of an image. An image that is none is a problem of its own.
async fn function(registry: Arc<Registry>, tag: String) -> Result<Result<OfferedFunction, Problem>, Failure> {
    let repository = registry.repository();
    let image = format!("{}/{}:{tag}", repository.registry, repository.name);
    let wrong = |message: String| Problem { file: image.clone(), ..problem(INVALID, message) };
    let annotations = match registry.by_tag(&tag).await {
        Ok(found) => match found.document {
            Document::Manifest(manifest) => manifest.annotations,
            // An index of several platforms has the annotations of its images.
            Document::Index(index) => {
                index.manifests.into_iter().next().map(|first| first.annotations).unwrap_or_default()
            }
        },
        Err(error @ (FetchError::Wrong { .. } | FetchError::Mismatch { .. })) => return Ok(Err(wrong(causes(&error)))),
        Err(FetchError::NotFound { .. }) => return Ok(Err(wrong("the tag does not exist any more".to_owned()))),
        Err(error) => return Err(failure(&error)),
    };
    let described = function_metadata::of_annotations(&image, |key| annotations.get(key).map(String::as_str));
    Ok(described.map(|described| offered(described, "")).map_err(|error| wrong(error.to_string())))
}
