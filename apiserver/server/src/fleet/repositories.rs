//! The repositories of fleets: their commits, their files and their credentials.
//!
//! The credentials of a namespace are in one Secret, by the name that Kalypso gives it. An object that people wrote gets those of its
//! own namespace, which admission asked its author about. An object that Git owns gets those of its Environment. It may name another
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
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// The largest file that is read, in bytes: that of `stoa_fleet`.
pub(super) const LARGEST: u32 = 4 << 20;

/// The keys of a Secret.
pub(super) type Keys = BTreeMap<String, Vec<u8>>;

/// The organization, the remote and the branch of a known commit.
type BranchKey = (String, String, String);

/// The last known commits of branches. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks(Arc<Mutex<KnownCommits>>);

/// Commits of branches, each with the time of the question.
#[derive(Debug, Default)]
struct KnownCommits {
    of: HashMap<BranchKey, (Instant, String)>,
    expired: Option<Instant>,
}

impl Looks {
    /// Makes the next reading ask the servers about all branches. An answer to an earlier question is not kept.
    pub(crate) fn expire(&self) {
        let mut known = self.0.lock();
        known.of.clear();
        known.expired = Some(Instant::now());
    }

    fn get(&self, key: &BranchKey) -> Option<String> {
        let known = self.0.lock();
        known.of.get(key).filter(|(asked, _)| asked.elapsed() < FRESH).map(|(_, commit)| commit.clone())
    }

    fn put(&self, key: BranchKey, asked: Instant, commit: &str) {
        let mut known = self.0.lock();
        if known.expired.is_none_or(|expired| asked > expired) {
            known.of.insert(key, (asked, commit.to_owned()));
        }
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
    let mut keys = Keys::default();
    if let Some(owner) = namespace_of_secret(namespace, environment, repo, is_owned_by_git) {
        let found = services.cluster.secret(&owner, SECRET).await.map_err(|error| {
            (reason::SOURCE_UNREACHABLE, format!("secret {owner}/{SECRET} cannot be read: {}", error.message()))
        })?;
        keys = found.unwrap_or_default();
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

/// The namespace of the Secret for a repository that an object names; none for an object of Git that names another server than
/// the one of its Environment.
fn namespace_of_secret(
    namespace: &str,
    environment: Option<&Environment>,
    repo: &str,
    is_owned_by_git: bool,
) -> Option<String> {
    if !is_owned_by_git {
        return Some(namespace.to_owned());
    }
    let environment = environment?;
    let own = server(&environment.spec.control_plane.repo)?;
    if server(repo)? == own { environment.namespace() } else { None }
}

/// The scheme, host and port of an address; none where clients of Git may read another host in it.
fn server(repo: &str) -> Option<String> {
    let (scheme, rest) = repo.split_once("://")?;
    let authority = rest.split('/').next()?;
    let host = authority.rsplit('@').next()?;
    let is_plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte));
    let has_other_end = authority.contains(['?', '#', '\\']);
    (is_plain && !has_other_end).then(|| format!("{scheme}://{host}").to_ascii_lowercase())
}

/// Whether Git owns an object.
pub(super) fn is_owned_by_git<K: kube::Resource>(object: &K) -> bool {
    object.annotations().contains_key(labels::FILE_IN_GIT)
}

/// The commit of a branch.
pub(super) async fn look(services: &Services, looks: &Looks, source: &Source, branch: &str) -> Result<String, Refusal> {
    let key = (source.organization.clone(), source.remote.clone(), branch.to_owned());
    if let Some(commit) = looks.get(&key) {
        return Ok(commit);
    }
    let asked = Instant::now();
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
    looks.put(key, asked, &commit);
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
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn commit_is_known_until_it_is_old_or_expired() {
        let (looks, key) = (Looks::default(), ("dev".to_owned(), "remote".to_owned(), "main".to_owned()));
        looks.put(key.clone(), Instant::now(), "a");
        assert_eq!(looks.get(&key).as_deref(), Some("a"));
        tokio::time::advance(FRESH).await;
        assert_eq!(looks.get(&key), None);
        let asked = Instant::now();
        tokio::time::advance(Duration::from_millis(1)).await;
        looks.expire();
        looks.put(key.clone(), asked, "a");
        assert_eq!(looks.get(&key), None, "the branch may have moved after the question");
        tokio::time::advance(Duration::from_millis(1)).await;
        looks.put(key.clone(), Instant::now(), "b");
        assert_eq!(looks.get(&key).as_deref(), Some("b"));
    }

    #[test]
    fn server_of_an_address_has_no_path_and_no_user() {
        for (repo, expected) in [
            ("https://git.example.com/team/app.git", Some("https://git.example.com")),
            ("https://Ann@Git.example.com:8443/app", Some("https://git.example.com:8443")),
            ("file:///srv/app.git", Some("file://")),
            ("git@example.com:app.git", None),
            // Clients of Git connect to the host before these characters.
            ("https://git.example.net#@git.example.com/app", None),
            ("https://git.example.net?@git.example.com/app", None),
            ("https://git.example.net\\@git.example.com/app", None),
        ] {
            assert_eq!(server(repo).as_deref(), expected, "{repo}");
        }
    }

    #[test]
    fn secret_is_that_of_the_author_or_of_the_environment() {
        let environment = |repo: &str| -> Environment {
            let spec = json!({"controlPlane": {"repo": repo, "branch": "dev", "path": "."}});
            serde_json::from_value(json!({"metadata": {"name": "dev", "namespace": "acme"}, "spec": spec})).unwrap()
        };
        let of = environment("https://git.example.com/acme/control-plane");
        for (repo, is_owned_by_git, expected) in [
            ("https://git.example.com/acme/app", true, Some("acme")),
            ("https://git.example.net/acme/app", true, None),
            // Its author may have no rights in the namespace of the Environment.
            ("https://git.example.com/acme/app", false, Some("dev")),
        ] {
            let found = namespace_of_secret("dev", Some(&of), repo, is_owned_by_git);
            assert_eq!(found.as_deref(), expected, "{repo}");
        }
        let of = environment("git@git.example.com:acme/control-plane");
        assert_eq!(namespace_of_secret("dev", Some(&of), "git@git.example.net:app", true), None, "no server is known");
    }

    #[test]
    fn only_yaml_files_are_read() {
        for (path, expected) in [("a/b.yaml", true), ("x.yml", true), ("README.md", false), ("a/.sourceignore", true)] {
            assert_eq!(may_have_objects(path), expected, "{path}");
        }
    }
}
