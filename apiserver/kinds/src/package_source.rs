//! Sources of provider Package: the folder of the package in its repository, and the paths of Stacks there.
//!
//! Elsewhere: `stoa_runs::package_source` finds the commit of a revision.

use stoa_types::{
    Stack,
    config::SourcePackage,
    porchconfig::{Repository, RepositorySpec},
};

use crate::lookup::Lookup;

/// The path of a package from the root of its Git repository.
pub fn folder(package: &SourcePackage, repository: &RepositorySpec) -> String {
    let directory = repository.git.as_ref().map_or("", |git| git.directory.trim_matches('/'));
    if directory.is_empty() { package.name.clone() } else { format!("{directory}/{}", package.name) }
}

/// The path of a stack's folder from the root of the Git repository. Without paths of the Stack and its Project, it is that of
/// the package.
pub fn path(folder: &str, stack: &Stack, project: &str) -> String {
    let below = if stack.spec.path.is_empty() { project } else { &stack.spec.path };
    match below.trim_matches('/') {
        "" | "." => folder.to_owned(),
        below => format!("{folder}/{below}"),
    }
}

/// The folder of a package, as the watch cache has its Repository.
pub(crate) fn cached_folder(lookup: &Lookup, namespace: &str, package: &SourcePackage) -> String {
    let repository = lookup.cached_spec::<Repository>(namespace, &package.repository);
    folder(package, &repository.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_begin_at_the_folder_of_the_package() {
        let repository = |directory: &str| -> RepositorySpec {
            let git = json!({"repo": "https://git.example.com/r.git", "branch": "main", "directory": directory});
            serde_json::from_value(json!({ "git": git })).unwrap()
        };
        let package = SourcePackage { repository: "blueprints".to_owned(), name: "network/basens".to_owned() };
        assert_eq!(folder(&package, &repository("")), "network/basens");
        assert_eq!(folder(&package, &repository("/packages/")), "packages/network/basens");
        let stack = |path: &str| -> Stack {
            let spec = json!({"project": "web", "stackName": "prod", "path": path});
            serde_json::from_value(json!({"metadata": {"name": "web-prod"}, "spec": spec})).unwrap()
        };
        for (own, project, expected) in [("", "", "p"), (".", "", "p"), ("", "sub/", "p/sub"), ("own", "sub", "p/own")]
        {
            assert_eq!(path("p", &stack(own), project), expected, "{own:?} {project:?}");
        }
    }
}
