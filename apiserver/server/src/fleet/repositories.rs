//! The repositories of fleets: their commits, their files and their credentials.
//!
//! The credentials of a namespace are in one Secret, by the name that Kalypso gives it. An object that Git owns may name another
//! server, and then gets none: who writes a file in Git could have them sent anywhere.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use stoa_fleet::{Files, folder};
use stoa_kinds::scheduler::environment::SECRET;
use stoa_proto::{FilesRequest, LookRequest, Source};
use stoa_runs::{Services, runner};
use stoa_types::{
    labels, reason,
    scheduler::{Environment, Repository},
};
use tokio::time::Instant;

/// The age of a known commit after which the server is asked again.
pub(crate) const FRESH: Duration = Duration::from_secs(10);
/// The timeout of one request.
const PATIENCE: Duration = Duration::from_secs(60);
/// The largest file that is read, in bytes: that of `stoa_fleet`.
const LARGEST: u32 = 4 << 20;

/// The keys of a Secret.
pub(super) type Keys = BTreeMap<String, Vec<u8>>;

/// Commits of branches, each with the time of the answer, by repository and branch.
type KnownCommits = HashMap<(String, String, String), (Instant, String)>;

/// The last known commits of branches. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks(Arc<Mutex<KnownCommits>>);

impl Looks {
    /// Has the servers asked again about all branches.
    pub(crate) fn expire(&self) {
        self.0.lock().clear();
    }
}

/// A repository as an environment sees it.
#[derive(Clone, Debug)]
pub(super) struct Remote {
    pub(super) source: Source,
    /// The keys of the Secret, for pull requests.
    pub(super) keys: Keys,
}

/// The reason and the message of something that failed.
pub(crate) type Refusal = (&'static str, String);

/// A repository with the credentials for it.
pub(super) async fn remote(
    services: &Services,
    namespace: &str,
    environment: Option<&Environment>,
    repo: &str,
    is_owned_by_git: bool,
) -> Result<Remote, Refusal> {
    let is_trusted = |environment: &Environment| server(&environment.spec.control_plane.repo) == server(repo);
    let of_environment = environment.filter(|environment| is_trusted(environment)).and_then(|it| it.namespace());
    let places: Vec<String> = match (is_owned_by_git, of_environment) {
        (true, None) => Vec::new(),
        (true, Some(of)) => vec![of],
        (false, None) => vec![namespace.to_owned()],
        (false, Some(of)) => vec![namespace.to_owned(), of],
    };
    let mut keys = Keys::default();
    for place in places {
        let found = services.cluster.secret(&place, SECRET).await.map_err(|error| {
            (reason::SOURCE_UNREACHABLE, format!("secret {place}/{SECRET} cannot be read: {}", error.message()))
        })?;
        if let Some(found) = found {
            keys = found;
            break;
        }
    }
    let credentials = keys.iter().map(|(key, value)| (key.clone(), Bytes::from(value.clone()))).collect();
    let source = Source {
        provider: "Git".to_owned(),
        remote: repo.to_owned(),
        credentials,
        organization: namespace.to_owned(),
        ..Source::default()
    };
    Ok(Remote { source, keys })
}

/// The scheme, host and port of an address.
fn server(repo: &str) -> Option<String> {
    let (scheme, rest) = repo.split_once("://")?;
    let host = rest.split('/').next()?;
    Some(format!("{scheme}://{}", host.rsplit('@').next()?).to_ascii_lowercase())
}

/// Whether Git owns an object.
pub(super) fn is_owned_by_git<K: kube::Resource>(object: &K) -> bool {
    object.annotations().contains_key(labels::FILE_IN_GIT)
}

/// The commit of a branch.
pub(super) async fn look(services: &Services, looks: &Looks, source: &Source, branch: &str) -> Result<String, Refusal> {
    let key = (source.organization.clone(), source.remote.clone(), branch.to_owned());
    let known = looks.0.lock().get(&key).cloned();
    if let Some((_, commit)) = known.filter(|(at, _)| at.elapsed() < FRESH) {
        return Ok(commit);
    }
    let request =
        LookRequest { source: Some(source.clone()), r#ref: branch.to_owned(), versions: Vec::new(), branch_only: true };
    let looked = tokio::time::timeout(PATIENCE, services.runner.look(request)).await.map_err(|_| late(source))?;
    let commit = match looked {
        Ok(response) => response.into_inner().latest,
        Err(status) if runner::lacks_version(&status) => {
            let message = format!("branch {branch:?} does not exist in {}; create it", source.remote);
            return Err((reason::REF_NOT_FOUND, message));
        }
        Err(status) => return Err(refusal(&status)),
    };
    looks.0.lock().insert(key, (Instant::now(), commit.clone()));
    Ok(commit)
}

/// The files of a folder at a commit that may have objects.
pub(super) async fn files(
    services: &Services,
    source: &Source,
    commit: &str,
    of: &Repository,
) -> Result<Files, Refusal> {
    let path = folder(&of.path).ok_or_else(|| {
        (reason::PATH_NOT_FOUND, format!("path {:?} leads out of the repository; name a folder in it", of.path))
    })?;
    let request = FilesRequest {
        source: Some(source.clone()),
        commit: commit.to_owned(),
        path,
        max_file_bytes: LARGEST,
        with_binary: false,
    };
    let read = tokio::time::timeout(PATIENCE, services.runner.package_files(request)).await;
    let read = read.map_err(|_| late(source))?.map_err(|status| refusal(&status))?;
    let mut files = Files::new();
    for file in read.files.into_iter().filter(|file| may_have_objects(&file.path)) {
        if file.kept == "TooLarge" {
            let message = format!("{} has {} bytes, and {LARGEST} are allowed; split the file", file.path, file.bytes);
            return Err((reason::INVALID_FILES, message));
        }
        files.insert(file.path, file.content);
    }
    Ok(files)
}

/// Whether a file counts for `stoa_fleet`, by its name. Other files of a repository stay out of memory.
fn may_have_objects(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    path.ends_with(".yaml") || path.ends_with(".yml") || matches!(name, "Kustomization" | ".sourceignore")
}

fn late(source: &Source) -> Refusal {
    (reason::SOURCE_UNREACHABLE, format!("{} did not answer within {PATIENCE:?}", source.remote))
}

/// The reason and message of a call that failed.
pub(super) fn refusal(status: &tonic::Status) -> Refusal {
    runner::halt(status, reason::SOURCE_UNREACHABLE).into_reason(reason::SOURCE_UNREACHABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_of_an_address_has_no_path_and_no_user() {
        for (repo, expected) in [
            ("https://git.example.com/team/app.git", Some("https://git.example.com")),
            ("https://Ann@Git.example.com:8443/app", Some("https://git.example.com:8443")),
            ("file:///srv/app.git", Some("file://")),
            ("git@example.com:app.git", None),
        ] {
            assert_eq!(server(repo).as_deref(), expected, "{repo}");
        }
    }

    #[test]
    fn only_yaml_files_are_read() {
        for (path, expected) in [("a/b.yaml", true), ("x.yml", true), ("README.md", false), ("a/.sourceignore", true)] {
            assert_eq!(may_have_objects(path), expected, "{path}");
        }
    }
}
