//! The functions of a registry: the images of a repository, or of the repositories below it, with their annotations.

use std::sync::Arc;

use stoa_artifacts::{Document, FetchError, Login, Registry, Repository};
use stoa_outbound::causes;
use stoa_packages::function_metadata;
use stoa_proto::{FunctionsResponse, OfferedFunction, Problem, Source};
use tokio::task::JoinSet;
use tonic::Code;

use super::artifacts::failure;
use crate::failure::{Failure, problem, reason};
use crate::functions::offered;

/// The most images of a registry that are functions, and the most repositories.
const MOST: usize = 2000;
/// The requests at once.
const AT_ONCE: usize = 4;
/// The reason of images that cannot be read.
const INVALID: &str = "InvalidFunction";

fn registry(source: &Source, name: &str) -> Result<Registry, Failure> {
    let invalid = |message: String| Failure::new(Code::InvalidArgument, reason::INVALID_MANIFEST, message);
    let repository: Repository = name.parse().map_err(|error| invalid(format!("{error}")))?;
    let login = Login::of_keys(&repository.registry, |key| source.credentials.get(key).map(|it| &it[..]));
    let login =
        login.map_err(|error| Failure::new(Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED, error.to_string()))?;
    Registry::new(repository, login).map_err(|error| failure(&error))
}

/// Lists the functions of a source of provider OCI: those of the repository that it names, or else of all repositories below it.
pub(super) async fn functions(source: &Source) -> Result<FunctionsResponse, Failure> {
    let root = registry(source, &source.remote)?;
    let registries = match root.tags().await {
        Ok(tags) if !tags.is_empty() => vec![(root, tags)],
        Ok(_) | Err(FetchError::NotFound { .. }) => below(source, &root).await?,
        Err(error) => return Err(failure(&error)),
    };
    let tags = |(registry, tags): (Registry, Vec<String>)| {
        let registry = Arc::new(registry);
        tags.into_iter().map(move |tag| (Arc::clone(&registry), tag)).collect::<Vec<_>>()
    };
    let images: Vec<(Arc<Registry>, String)> = registries.into_iter().flat_map(tags).collect();
    bounded(source, images.len(), "images")?;
    let mut found = FunctionsResponse::default();
    for some in images.chunks(AT_ONCE) {
        let mut requests = JoinSet::new();
        for (registry, tag) in some.iter().cloned() {
            requests.spawn(function(registry, tag));
        }
        while let Some(read) = requests.join_next().await {
            match read.map_err(|err| Failure::internal(&err))?? {
                Ok(function) => found.functions.push(function),
                Err(problem) => found.problems.push(problem),
            }
        }
    }
    found.functions.sort_by(|a, b| a.image.cmp(&b.image));
    Ok(found)
}

/// Rejects a registry with too much to ask for.
fn bounded(source: &Source, count: usize, what: &str) -> Result<(), Failure> {
    if count <= MOST {
        return Ok(());
    }
    let message = format!(
        "{} has {count} {what}, and a function repository has at most {MOST}; name a repository further below",
        source.remote
    );
    Err(Failure::new(Code::InvalidArgument, reason::TOO_LARGE, message))
}

/// The repositories below a name that have tags.
async fn below(source: &Source, root: &Registry) -> Result<Vec<(Registry, Vec<String>)>, Failure> {
    let prefix = format!("{}/", root.repository().name);
    let mut names = root.catalog().await.map_err(|error| failure(&error))?;
    names.retain(|name| name.starts_with(&prefix));
    // Each is a request.
    bounded(source, names.len(), "repositories below it")?;
    let mut found = Vec::new();
    for name in names {
        let registry = registry(source, &format!("oci://{}/{name}", root.repository().registry))?;
        match registry.tags().await {
            Ok(tags) => found.push((registry, tags)),
            // A repository without tags is in some catalogs.
            Err(FetchError::NotFound { .. }) => {}
            Err(error) => return Err(failure(&error)),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_registries_are_refused() {
        let source = Source { remote: "oci://example.com/fn".to_owned(), ..Source::default() };
        assert!(bounded(&source, MOST, "images").is_ok());
        let failure = bounded(&source, MOST + 1, "images").unwrap_err();
        let problem = &failure.problems()[0];
        assert_eq!((failure.code(), problem.reason.as_str()), (Code::InvalidArgument, reason::TOO_LARGE));
        assert!(problem.message.starts_with("oci://example.com/fn has 2001 images"), "{problem:?}");
    }
}
