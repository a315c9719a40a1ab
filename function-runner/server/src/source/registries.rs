//! The repositories of a registry that a source of provider OCI stands for, and requests to them.
//!
//! Start at [`tags`]. `function_images` and `package_artifacts` read the artifacts, and `artifact_pushes` writes them.

use std::sync::Arc;

use stoa_artifacts::{Access, FetchError, Login, Registry, Repository};
use stoa_outbound::causes;
use stoa_proto::Source;
use tokio::task::JoinSet;
use tonic::Code;

use super::artifacts::failure;
use crate::failure::{Failure, reason};

/// The most repositories of a source, and the most tags of all of them.
const MOST: usize = 2000;
/// The requests at once.
const AT_ONCE: usize = 8;

/// A repository by its name with the registry, with the credentials of a source.
pub(super) fn registry(source: &Source, name: &str) -> Result<Registry, Failure> {
    registry_for(source, name, Access::Pull)
}

/// The same for a purpose.
pub(super) fn registry_for(source: &Source, name: &str, access: Access) -> Result<Registry, Failure> {
    let invalid = |message: String| Failure::new(Code::InvalidArgument, reason::INVALID_MANIFEST, message);
    let repository: Repository = name.parse().map_err(|error| invalid(format!("{error}")))?;
    let login = Login::of_keys(&repository.registry, |key| source.credentials.get(key).map(|it| &it[..]));
    let login =
        login.map_err(|error| Failure::new(Code::InvalidArgument, reason::SOURCE_UNAUTHORIZED, error.to_string()))?;
    Registry::with_access(repository, login, access).map_err(|error| failure(&error))
}

/// The tags of the repository that a source names, or else of all repositories below it. The known names stand for those where the
/// registry does not list its repositories.
pub(super) async fn tags(source: &Source, known: &[String]) -> Result<Vec<(Arc<Registry>, String)>, Failure> {
    let root = registry(source, &source.remote)?;
    let registries = match root.tags().await {
        Ok(tags) if !tags.is_empty() => vec![(root, tags)],
        Ok(_) | Err(FetchError::NotFound { .. }) => below(source, &root, known).await?,
        Err(error) => return Err(failure(&error)),
    };
    let of = |(registry, tags): (Registry, Vec<String>)| {
        let registry = Arc::new(registry);
        tags.into_iter().map(move |tag| (Arc::clone(&registry), tag)).collect::<Vec<_>>()
    };
    let all: Vec<(Arc<Registry>, String)> = registries.into_iter().flat_map(of).collect();
    bounded(source, all.len(), "tags")?;
    Ok(all)
}

/// Rejects a registry with too much to ask for.
pub(super) fn bounded(source: &Source, count: usize, what: &str) -> Result<(), Failure> {
    if count <= MOST {
        return Ok(());
    }
    let message = format!(
        "{} has {count} {what}; a Repository has at most {MOST}, so register parts of it by longer names",
        source.remote
    );
    Err(Failure::new(Code::InvalidArgument, reason::TOO_LARGE, message))
}

/// The repositories below a name that have tags.
async fn below(source: &Source, root: &Registry, known: &[String]) -> Result<Vec<(Registry, Vec<String>)>, Failure> {
    let prefix = format!("{}/", root.repository().name);
    let mut names = match root.catalog().await {
        Ok(names) => names,
        // Registries of several users reject the question in either way.
        Err(
            FetchError::NotFound { .. }
            | FetchError::Unauthorized { .. }
            | FetchError::Status { status: 405 | 501, .. },
        ) if !known.is_empty() => {
            // Otherwise an outage would look like the deletion of all repositories.
            if !root.is_registry().await.map_err(|error| failure(&error))? {
                let host = &root.repository().registry;
                let message =
                    format!("no registry answers at {host}/v2/ (status 404); check the registry and its proxy");
                return Err(Failure::new(Code::Unavailable, reason::SOURCE_UNAVAILABLE, message));
            }
            known.to_vec()
        }
        Err(error @ (FetchError::NotFound { .. } | FetchError::Status { status: 405 | 501, .. })) => {
            let message = format!(
                "{} has no tags, and its registry does not list the repositories below ({}); name a repository with tags",
                root.repository(),
                causes(&error)
            );
            return Err(Failure::new(Code::NotFound, reason::VERSION_NOT_FOUND, message));
        }
        Err(error) => return Err(failure(&error)),
    };
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

/// Does something with each item, some at once; the results have any order. The first failure ends all.
pub(super) async fn each<I, T, F>(items: Vec<I>, work: impl Fn(I) -> F + Send) -> Result<Vec<T>, Failure>
where
    I: Send,
    T: Send + 'static,
    F: Future<Output = Result<T, Failure>> + Send + 'static,
{
    let mut requests: JoinSet<Result<T, Failure>> = JoinSet::new();
    let mut done = Vec::new();
    for item in items {
        if requests.len() >= AT_ONCE
            && let Some(result) = requests.join_next().await
        {
            done.push(result.map_err(|err| Failure::internal(&err))??);
        }
        requests.spawn(work(item));
    }
    while let Some(result) = requests.join_next().await {
        done.push(result.map_err(|err| Failure::internal(&err))??);
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_registries_are_refused() {
        let source = Source { remote: "oci://example.com/fn".to_owned(), ..Source::default() };
        assert!(bounded(&source, MOST, "tags").is_ok());
        let failure = bounded(&source, MOST + 1, "tags").unwrap_err();
        let problem = &failure.problems()[0];
        assert_eq!((failure.code(), problem.reason.as_str()), (Code::InvalidArgument, reason::TOO_LARGE));
        assert!(problem.message.starts_with("oci://example.com/fn has 2001 tags"), "{problem:?}");
    }
}
