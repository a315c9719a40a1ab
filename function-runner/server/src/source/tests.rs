//! Tests with real repositories on disk.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use git2::Signature;
use stoa_git::cache::{Bounds, Folders};
use stoa_git::testing::{Behaviour, GitServer, empty_files};
use stoa_proto::ResolveRequest;
use tempfile::TempDir;

use super::job::{Question, Reply};
use super::sources::{READS, Visit};
use super::*;
use crate::local::LocalRepositories;

mod artifacts;
mod others;
mod packages;
mod room;
mod signed;

struct Origin {
    directory: TempDir,
    caches: TempDir,
}

impl Origin {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let mut options = git2::RepositoryInitOptions::new();
        options.initial_head("main");
        Repository::init_opts(directory.path(), &options).unwrap();
        Self { directory, caches: TempDir::new().unwrap() }
    }

    fn repository(&self) -> Repository {
        Repository::open(self.directory.path()).unwrap()
    }

    fn commit(&self, message: &str, files: &[(&str, &str)]) -> Oid {
        let repository = self.repository();
        for (path, text) in files {
            let file = self.directory.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let mut index = repository.index().unwrap();
        index.add_all(["*"], git2::IndexAddOption::DEFAULT, None).unwrap();
        index.write().unwrap();
        let tree = repository.find_tree(index.write_tree().unwrap()).unwrap();
        let author = Signature::now("t", "t@example.com").unwrap();
        let parent = repository.head().ok().map(|head| head.peel_to_commit().unwrap());
        repository.commit(Some("HEAD"), &author, &author, message, &tree, &parent.iter().collect::<Vec<_>>()).unwrap()
    }

    fn source(&self) -> Source {
        Source {
            provider: "Git".to_owned(),
            remote: format!("file://{}", self.directory.path().display()),
            ..Source::default()
        }
    }

    fn sources(&self) -> Sources {
        sources_in(self.caches.path())
    }

    async fn resolve(&self, version: &str, reference: &str) -> Result<String, Failure> {
        self.sources().resolve(&self.source(), version, reference).await.map(|resolved| resolved.commit)
    }
}

/// Sources that may be anywhere on this machine.
fn sources_in(caches: &Path) -> Sources {
    let local = LocalRepositories::below(vec!["/".into()]);
    Sources::new(Folders::new(caches.to_owned()), local, ReaderPool::in_process())
}

impl Sources {
    async fn read(&self, source: &Source, commit: &str, path: &str) -> Result<Content, Failure> {
        self.read_in_turn(source, commit, path).await.map(|(files, _)| files.content)
    }
}

#[tokio::test]
async fn version_is_a_branch_a_tag_or_a_commit() {
    let origin = Origin::new();
    let first = origin.commit("first\n\nbody", &[("a.yaml", "a: 1")]);
    let repository = origin.repository();
    let author = Signature::now("t", "t@example.com").unwrap();
    repository.tag("v1", repository.find_commit(first).unwrap().as_object(), &author, "one", false).unwrap();
    repository.branch("stable", &repository.find_commit(first).unwrap(), false).unwrap();
    let second = origin.commit("second", &[("a.yaml", "a: 2")]);

    let (first, second) = (first.to_string(), second.to_string());
    assert_eq!(origin.resolve("", "").await.unwrap(), second);
    assert_eq!(origin.resolve("latest", "").await.unwrap(), second);
    assert_eq!(origin.resolve("latest", "stable").await.unwrap(), first);
    assert_eq!(origin.resolve("main", "").await.unwrap(), second);
    assert_eq!(origin.resolve("v1", "main").await.unwrap(), first);
    assert_eq!(origin.resolve(&first, "").await.unwrap(), first);
    assert_eq!(origin.resolve(&first[..8], "").await.unwrap(), first);
    let resolved = origin.sources().resolve(&origin.source(), "v1", "").await.unwrap();
    assert_eq!(resolved.subject, "first");
}

#[tokio::test]
async fn look_resolves_all_versions_in_one_fetch() {
    let origin = Origin::new();
    let first = origin.commit("first", &[("a.yaml", "a: 1")]);
    let repository = origin.repository();
    let author = Signature::now("t", "t@example.com").unwrap();
    let tag = repository
        .tag("v1", repository.find_commit(first).unwrap().as_object(), &author, "one", false)
        .unwrap()
        .to_string();
    repository.branch("stable", &repository.find_commit(first).unwrap(), false).unwrap();
    repository.branch("other", &repository.find_commit(first).unwrap(), false).unwrap();
    let second = origin.commit("second", &[("a.yaml", "a: 2")]).to_string();
    let first = first.to_string();
    let versions: Vec<String> = ["stable", "v1", &first[..8], "v9", "abcdef0"].map(str::to_owned).into();
    let commits = [("stable", &first), ("v1", &first), (&first[..8], &first)];
    let commits = commits.map(|(version, commit)| (version.to_owned(), commit.clone())).into();
    let expected = Looked { latest: second.clone(), commits, ..Looked::default() };
    let sources = origin.sources();
    assert_eq!(sources.look(&origin.source(), "main", versions.clone()).await.unwrap(), expected);
    // Its refs are all that it is asked for when nothing moved: with its objects away there is nothing to fetch.
    let objects = origin.directory.path().join(".git/objects");
    for folder in std::fs::read_dir(&objects).unwrap() {
        let path = folder.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.len() == 2 && ![&first, &second, &tag].iter().any(|kept| kept.starts_with(&name)) {
            std::fs::remove_dir_all(path).unwrap();
        }
    }
    assert_eq!(sources.look(&origin.source(), "main", versions).await.unwrap(), expected);
    check(sources.look(&origin.source(), "nowhere", Vec::new()).await, Code::NotFound, reason::VERSION_NOT_FOUND);
}

/// How many files with objects are in a folder of caches.
fn count_object_files(folder: &Path, is_of_objects: bool) -> usize {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let count = |path: std::path::PathBuf| match path.is_dir() {
        true => count_object_files(&path, is_of_objects || path.ends_with("objects")),
        false => usize::from(is_of_objects),
    };
    entries.map(count).sum()
}

#[tokio::test]
async fn branch_look_fetches_nothing() {
    let origin = Origin::new();
    let first = origin.commit("first", &[("a.yaml", "a: 1")]);
    let repository = origin.repository();
    let author = Signature::now("t", "t@example.com").unwrap();
    repository.tag("live", repository.find_commit(first).unwrap().as_object(), &author, "one", false).unwrap();
    let sources = origin.sources();
    let expected = Looked { latest: first.to_string(), ..Looked::default() };
    assert_eq!(sources.branch(&origin.source(), "main").await.unwrap(), expected);
    for name in ["live", "refs/tags/live", "refs/heads/main", &first.to_string()] {
        check(sources.branch(&origin.source(), name).await, Code::NotFound, reason::VERSION_NOT_FOUND);
    }
    assert_eq!(count_object_files(origin.caches.path(), false), 0);
    assert_eq!(sources.look(&origin.source(), "live", Vec::new()).await.unwrap(), expected);
    assert_ne!(count_object_files(origin.caches.path(), false), 0, "the other look fetches");
}

#[tokio::test]
async fn content_digest_changes_with_the_path_only() {
    let origin = Origin::new();
    let sources = origin.sources();
    let commit = |files: &[(&str, &str)]| origin.commit("another", files).to_string();
    let content =
        async |commit: &str, path: &str| sources.content(&origin.source(), commit, path, Vec::new()).await.unwrap();
    let first = commit(&[("s/a/b.yaml", "b: 1"), ("t/c.yaml", "c: 1")]);
    let elsewhere = commit(&[("t/c.yaml", "c: 2")]);
    let changed = commit(&[("s/a/b.yaml", "b: 2")]);
    let back = commit(&[("s/a/b.yaml", "b: 1")]);
    for path in ["s", "./s/", "s/a/b.yaml"] {
        let before = content(&first, path).await;
        assert_eq!(content(&elsewhere, path).await, before);
        assert_ne!(content(&changed, path).await, before);
        assert_eq!(content(&back, path).await, before);
    }
    assert_ne!(content(&first, "").await, content(&elsewhere, "").await);
    let paths = ["s", "u", "../s"].map(str::to_owned).to_vec();
    let found = sources.contents(&origin.source(), &first, paths).await.unwrap();
    assert_eq!(found, [("s".to_owned(), content(&first, "s").await)].into());
    check(sources.content(&origin.source(), &first, "u", Vec::new()).await, Code::NotFound, reason::PATH_NOT_FOUND);
}

#[tokio::test]
async fn file_is_read_as_text_within_a_limit() {
    let origin = Origin::new();
    let commit = origin.commit("first", &[("s/flow.yaml", "steps: []")]).to_string();
    let file = async |path: &str, most| origin.sources().file(&origin.source(), &commit, path, most).await;
    let expected = ("s/flow.yaml".to_owned(), "steps: []".to_owned());
    assert_eq!(file("./s//flow.yaml", 9).await.unwrap(), expected);
    check(file("s/flow.yaml", 8).await, Code::InvalidArgument, reason::TOO_LARGE);
    for path in ["s", "s/none.yaml", ""] {
        check(file(path, 100).await, Code::NotFound, reason::PATH_NOT_FOUND);
    }
    check(file("../flow.yaml", 100).await, Code::InvalidArgument, reason::INVALID_REQUEST);
}

#[tokio::test]
async fn folder_is_read_within_a_limit() {
    let origin = Origin::new();
    // One text in all files is one object in Git.
    let text = "# nothing\n".repeat(1 << 17);
    let paths: Vec<String> = (0..52).map(|number| format!("s/{number:02}.yaml")).collect();
    let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), text.as_str())).collect();
    let read = async |commit: Oid| origin.sources().read(&origin.source(), &commit.to_string(), "s").await;
    let Content::Folder { files: found, .. } = read(origin.commit("all of it", &files[..51])).await.unwrap() else {
        panic!("a folder")
    };
    assert_eq!(found.len(), 51);
    let refused = read(origin.commit("too much", &files)).await.unwrap_err();
    assert_eq!((refused.code(), refused.problems()[0].reason.as_str()), (Code::InvalidArgument, reason::TOO_LARGE));
    assert_eq!(refused.problems()[0].file, "s/51.yaml");
}

#[tokio::test]
async fn new_commit_is_seen_and_old_one_still_read() {
    let origin = Origin::new();
    let first = origin.commit("first", &[("a.yaml", "a: 1")]).to_string();
    assert_eq!(origin.resolve("latest", "").await.unwrap(), first);
    let second = origin.commit("second", &[("a.yaml", "a: 2")]).to_string();
    assert_eq!(origin.resolve("latest", "").await.unwrap(), second);
    for (commit, text) in [(&first, "a: 1"), (&second, "a: 2")] {
        let content = origin.sources().read(&origin.source(), commit, "./a.yaml").await.unwrap();
        let file = SourceFile { path: "a.yaml".to_owned(), bytes: text.as_bytes().to_vec() };
        assert_eq!(content, Content::File(file));
    }
}

#[tokio::test]
async fn cached_commit_is_read_without_the_remote() {
    let origin = Origin::new();
    let commit = origin.commit("first", &[("a.yaml", "a: 1")]).to_string();
    origin.resolve("latest", "").await.unwrap();
    let source = origin.source();
    let Origin { directory, caches } = origin;
    drop(directory);
    sources_in(caches.path()).read(&source, &commit, "a.yaml").await.unwrap();
}

#[tokio::test]
async fn folder_is_read_recursively_and_sorted() {
    let origin = Origin::new();
    let files =
        [("s/b.yaml", "b: 1"), ("s/a/z.json", "{}"), ("s/README.md", "x"), ("s/.hidden.yaml", "x"), ("t.yaml", "")];
    let commit = origin.commit("first", &files).to_string();
    let content = origin.sources().read(&origin.source(), &commit, "s/").await.unwrap();
    let Content::Folder { path, files, others, warnings } = content else { panic!("{content:?}") };
    let paths: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!((path.as_str(), paths), ("s", vec!["s/a/z.json", "s/b.yaml"]));
    assert_eq!((others, warnings), (vec!["README.md".to_owned()], vec![]));
}

#[tokio::test]
async fn oversized_cache_is_made_anew() {
    let origin = Origin::new();
    let commit = origin.commit("first", &[("a.yaml", "a: 1")]).to_string();
    let cache = origin.caches.path().join("git").join(cache_name(&origin.source()));
    let small = Sources { most_of_a_cache: 1, ..origin.sources() };
    for _ in 0..2 {
        small.read(&origin.source(), &commit, "a.yaml").await.unwrap();
        assert!(!cache.exists());
    }
    origin.resolve("", "").await.unwrap();
    assert!(cache.exists());
    // It is noted by nobody yet, and nothing is fetched that would have it looked at.
    small.read(&origin.source(), &commit, "a.yaml").await.unwrap();
    assert!(cache.exists());
}

#[track_caller]
fn check<T: std::fmt::Debug>(result: Result<T, Failure>, code: Code, reason: &str) {
    let failure = result.unwrap_err();
    assert_eq!((failure.code(), failure.problems()[0].reason.as_str()), (code, reason), "{failure:?}");
}

/// Commits that no ref of the origin leads to, with a file `a.yaml` each.
fn strays(origin: &Origin, count: usize) -> Vec<String> {
    let repository = origin.repository();
    let head = repository.head().unwrap().peel_to_commit().unwrap();
    let author = Signature::now("t", "t@example.com").unwrap();
    let stray = |number: usize| {
        let mut tree = repository.treebuilder(None).unwrap();
        let blob = repository.blob(format!("a: stray {number}").as_bytes()).unwrap();
        tree.insert("a.yaml", blob, 0o100_644).unwrap();
        let tree = repository.find_tree(tree.write().unwrap()).unwrap();
        repository.commit(None, &author, &author, "stray", &tree, &[&head]).unwrap().to_string()
    };
    (0..count).map(stray).collect()
}

/// The origin behind a server that gives out any commit, as those of Gitea and GitHub do.
async fn serving_all(origin: &Origin) -> (GitServer, Source) {
    origin.repository().config().unwrap().set_bool("uploadpack.allowAnySHA1InWant", true).unwrap();
    let server = GitServer::start(origin.directory.path(), "correct horse", None).await;
    let credentials = [("username", "bot"), ("password", "correct horse")];
    let source = Source {
        provider: "Git".to_owned(),
        remote: server.url("http", ".git"),
        credentials: credentials.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec().into())).into(),
        ..Source::default()
    };
    (server, source)
}

#[tokio::test(flavor = "multi_thread")]
async fn unreferenced_commits_are_kept_up_to_a_limit() {
    let origin = Origin::new();
    let head = origin.commit("first", &[("b.yaml", "b: 1")]).to_string();
    let commits = strays(&origin, 8);
    let sources = Sources { max_unreferenced: 2, ..origin.sources() };
    let (_server, source) = serving_all(&origin).await;
    let text = async |commit: &str| sources.file(&source, commit, "a.yaml", 100).await.unwrap().1;
    let cache = origin.caches.path().join("git").join(cache_name(&source));
    let has = |folder: &Path, commit: &str| {
        Repository::open_bare(folder).unwrap().odb().unwrap().exists(Oid::from_str(commit).unwrap())
    };
    for (number, commit) in commits.iter().enumerate() {
        assert_eq!(text(commit).await, format!("a: stray {number}"));
        assert!(has(&cache.join("strays"), commit) && !has(&cache, commit), "it is beside the rest");
        let refs = Repository::open_bare(cache.join("strays")).unwrap();
        assert!(refs.references_glob("refs/stoa/*").unwrap().count() <= 2);
    }
    assert!(!has(&cache.join("strays"), &commits[0]), "nothing of it is left");
    // Whoever needs it has it again, and many at once are in nobody's way.
    let all = futures_util::future::join_all(commits.iter().map(|commit| text(commit))).await;
    let expected: Vec<String> = (0..8).map(|number| format!("a: stray {number}")).collect();
    assert_eq!(all, expected);
    let changed = sources.changed(&source, &head, &commits[3], vec!["a.yaml".to_owned(), "c".to_owned()]).await;
    assert_eq!(changed.unwrap().unwrap(), ["a.yaml"]);
    // A week later.
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(8 * 24 * 60 * 60);
    let made = std::fs::File::options().write(true).open(cache.join("strays/HEAD")).unwrap();
    made.set_modified(long_ago).unwrap();
    text(&commits[3]).await;
    assert!(has(&cache.join("strays"), &commits[3]), "what is there is read");
    text(&commits[0]).await;
    assert!(!has(&cache.join("strays"), &commits[3]));
}

/// The cache of a source in a folder, with commits fetched that no ref leads to or without.
fn opened(directory: &Path, source: &Source, with_unreferenced: bool) -> Cache {
    stoa_git::cache::make_bare(directory).unwrap();
    Cache::open(directory, source.clone(), 10, with_unreferenced).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn unreferenced_commit_is_fetched_on_request_only() {
    let origin = Origin::new();
    origin.commit("first", &[("b.yaml", "b: 1")]);
    let commit = Oid::from_str(&strays(&origin, 1)[0]).unwrap();
    let (_server, source) = serving_all(&origin).await;
    let directory = origin.caches.path().join("git/one");
    let without = opened(&directory, &source, false);
    check(without.ensure(commit), Code::NotFound, reason::VERSION_NOT_FOUND);
    assert!(without.lacks_unreferenced.get(), "whoever asks says whether it is still wanted");
    let with = opened(&directory, &source, true);
    with.ensure(commit).unwrap();
    assert!(!with.lacks_unreferenced.get());
    check(with.ensure(Oid::from_str(&"1".repeat(40)).unwrap()), Code::NotFound, reason::VERSION_NOT_FOUND);
    assert!(!with.lacks_unreferenced.get(), "nothing is left to ask for");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreferenced_commit_is_missing_only_by_the_server() {
    let origin = Origin::new();
    origin.commit("first", &[("b.yaml", "b: 1")]);
    let commit = Oid::from_str(&strays(&origin, 1)[0]).unwrap();
    let (server, source) = serving_all(&origin).await;
    let directory = origin.caches.path().join("git/one");
    let cache = opened(&directory, &source, true);
    check(cache.ensure(Oid::from_str(&"1".repeat(40)).unwrap()), Code::NotFound, reason::VERSION_NOT_FOUND);
    server.behave(Behaviour::Away);
    check(cache.fetch_unreferenced(commit), Code::Unavailable, reason::SOURCE_UNAVAILABLE);
    server.behave(Behaviour::Normal);
    cache.ensure(commit).unwrap();

    // A server that gives out what refs lead to alone.
    let other = opened(&origin.caches.path().join("git/two"), &source, true);
    origin.repository().config().unwrap().set_bool("uploadpack.allowAnySHA1InWant", false).unwrap();
    check(other.ensure(commit), Code::NotFound, reason::VERSION_NOT_FOUND);
    // Its answer has no more to it than one that broke off.
    server.behave(Behaviour::Away);
    let ended = git2::Error::new(ErrorCode::Eof, ErrorClass::Net, "could not read from remote repository");
    check(other.refused(&ended, false), Code::Unavailable, reason::SOURCE_UNAVAILABLE);
    server.behave(Behaviour::Normal);
    other.refused(&ended, false).unwrap();
    check(other.refused(&ended, true), Code::Unavailable, reason::SOURCE_UNAVAILABLE);
}

#[tokio::test]
async fn missing_version_and_path_are_not_found() {
    let origin = Origin::new();
    let commit = origin.commit("first", &[("a.yaml", "a: 1")]).to_string();
    check(origin.resolve("nope", "").await, Code::NotFound, reason::VERSION_NOT_FOUND);
    check(origin.resolve("latest", "nope").await, Code::NotFound, reason::VERSION_NOT_FOUND);
    check(origin.resolve(&"1".repeat(39), "").await, Code::NotFound, reason::VERSION_NOT_FOUND);
    check(origin.resolve(&"1".repeat(40), "").await, Code::NotFound, reason::VERSION_NOT_FOUND);
    check(origin.sources().read(&origin.source(), &commit, "nope").await, Code::NotFound, reason::PATH_NOT_FOUND);
    let missing = Source { remote: "file:///nonexistent/repository.git".to_owned(), ..origin.source() };
    check(origin.sources().resolve(&missing, "", "").await, Code::NotFound, reason::SOURCE_NOT_FOUND);
}

#[tokio::test]
async fn empty_repository_has_no_latest() {
    check(Origin::new().resolve("latest", "").await, Code::NotFound, reason::VERSION_NOT_FOUND);
}

#[tokio::test]
async fn unreachable_server_is_unavailable() {
    let origin = Origin::new();
    // A port that was free a moment ago and that nobody listens on.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let away = Source { remote: format!("https://127.0.0.1:{port}/a.git"), ..origin.source() };
    check(origin.sources().resolve(&away, "", "").await, Code::Unavailable, reason::SOURCE_UNAVAILABLE);
}

#[tokio::test]
async fn paths_do_not_leave_the_source() {
    let origin = Origin::new();
    let commit = origin.commit("first", &[("a.yaml", "a: 1")]).to_string();
    check(
        origin.sources().read(&origin.source(), &commit, "../x").await,
        Code::InvalidArgument,
        reason::INVALID_REQUEST,
    );
}

#[test]
fn credentials_have_separate_caches() {
    let source = Source { remote: "https://x/y".to_owned(), ..Source::default() };
    let with = Source { credentials: [("token".to_owned(), vec![1].into())].into(), ..source.clone() };
    assert_ne!(cache_name(&source), cache_name(&with));
}

#[tokio::test]
async fn cache_in_use_is_not_removed() {
    let origin = Origin::new();
    let commit = origin.commit("first", &[("a.yaml", "a: 1")]).to_string();
    let (sources, source) = (origin.sources(), origin.source());
    let sweep = || sources.caches.sweep(Bounds { unused: Duration::ZERO, bytes: 0 }).unwrap();
    sources.resolve(&source, "main", "").await.unwrap();
    let caches = sources.caches.clone();
    let removed = sources.with_cache(&source, move |visit: &mut Visit| {
        let removed = caches.sweep(Bounds { unused: Duration::ZERO, bytes: 0 }).unwrap();
        async move {
            let request = ResolveRequest { version: "main".to_owned(), ..ResolveRequest::default() };
            let reply = visit.ask(Question::Resolve(request)).await?;
            assert!(matches!(reply, Reply::Resolved(_)));
            Ok::<_, Failure>(removed)
        }
        .boxed()
    });
    assert_eq!(removed.await.unwrap(), 0);
    assert_eq!(sweep(), 1);
    assert!(!origin.caches.path().join("git").join(cache_name(&source)).exists());
    // It is fetched again.
    assert_eq!(sources.file(&source, &commit, "a.yaml", 10).await.unwrap().1, "a: 1");
}

#[tokio::test]
async fn organizations_take_turns_in_a_cache() {
    let origin = Origin::new();
    let sources = origin.sources();
    let order = Arc::new(Mutex::new(Vec::new()));
    let call = |organization: &'static str| {
        let source = Source { organization: organization.to_owned(), ..origin.source() };
        let (sources, order) = (sources.clone(), Arc::clone(&order));
        async move {
            let noted = sources.with_cache(&source, move |_: &mut Visit| {
                order.lock().unwrap().push(organization);
                std::future::ready(Ok::<_, Failure>(())).boxed()
            });
            noted.await.unwrap();
        }
    };
    futures_util::future::join_all(["many", "many", "many", "few"].map(call)).await;
    assert_eq!(*order.lock().unwrap(), ["many", "many", "few", "many"]);
}

#[tokio::test]
async fn broken_cache_is_fetched_anew() {
    let origin = Origin::new();
    let commit = origin.commit("first", &[("a.yaml", "a: 1")]).to_string();
    let breaks: [fn(&Path); 4] = [
        |cache| empty_files(&cache.join("objects")),
        |cache| empty_files(&cache.join("refs")),
        |cache| std::fs::write(cache.join("config"), "[core").unwrap(),
        |cache| std::fs::remove_file(cache.join("HEAD")).unwrap(),
    ];
    for (nth, damage) in breaks.into_iter().enumerate() {
        assert_eq!(origin.resolve("main", "").await.unwrap(), commit);
        damage(&origin.caches.path().join("git").join(cache_name(&origin.source())));
        assert_eq!(origin.resolve("main", "").await.unwrap(), commit, "after break {nth}");
        let text = origin.sources().file(&origin.source(), &commit, "a.yaml", 10).await.unwrap().1;
        assert_eq!(text, "a: 1", "after break {nth}");
    }
}

#[tokio::test]
async fn reads_wait_for_memory() {
    let origin = Origin::new();
    let commit = origin.commit("one", &[("a.yaml", "a: 1\n")]).to_string();
    let sources = origin.sources();
    let read = async || sources.read_in_turn(&origin.source(), &commit, "a.yaml").await.unwrap();
    let mut held = Vec::new();
    for _ in 0..READS {
        held.push(read().await);
    }
    let mut next = Box::pin(read());
    let patience = std::time::Duration::from_millis(100);
    assert!(tokio::time::timeout(patience, &mut next).await.is_err(), "all places are taken");
    let source = origin.source();
    let other = tokio::time::timeout(Duration::from_secs(60), sources.resolve(&source, "main", "")).await;
    assert_eq!(other.expect("whoever waits keeps nobody from the source").unwrap().commit, commit);
    held.pop();
    drop(next.await);
}

#[tokio::test]
async fn changes_count_from_the_merge_base() {
    let origin = Origin::new();
    let sources = origin.sources();
    let start = origin.commit("start", &[("web/a.yaml", "a: 1"), ("api/a.yaml", "a: 1"), ("gone/a.yaml", "a: 1")]);
    let repository = origin.repository();
    let branch =
        |name: &str, at: Oid| drop(repository.branch(name, &repository.find_commit(at).unwrap(), true).unwrap());
    let check_out = |name: &str| {
        repository.set_head(&format!("refs/heads/{name}")).unwrap();
        repository.checkout_head(Some(git2::build::CheckoutBuilder::new().force().remove_untracked(true))).unwrap();
    };
    branch("better", start);
    let base = origin.commit("others", &[("api/a.yaml", "a: 2")]).to_string();
    check_out("better");
    std::fs::remove_dir_all(origin.directory.path().join("gone")).unwrap();
    let commit = origin.commit("better", &[("web/a.yaml", "a: 2"), ("new/a.yaml", "a: 1")]).to_string();
    let changed = async |base: &str, commit: &str, paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        sources.changed(&origin.source(), base, commit, paths).await
    };
    let all = ["web", "api", "gone/", "new", "never", "README.md"];
    assert_eq!(
        changed(&base, &commit, &all).await.unwrap().unwrap(),
        ["web", "gone/", "new"],
        "what others changed is not its own"
    );
    assert_eq!(changed(&commit, &commit, &all).await.unwrap(), None, "it is in there");
    assert_eq!(changed(&commit, &base, &all).await.unwrap().unwrap(), ["api"]);
    assert_eq!(changed(&base, &commit, &["", "./web//a.yaml"]).await.unwrap().unwrap(), ["", "./web//a.yaml"]);
    check(changed(&base, &commit, &["../up"]).await, Code::InvalidArgument, reason::INVALID_REQUEST);
    check(changed(&base, &"0".repeat(40), &all).await, Code::NotFound, reason::VERSION_NOT_FOUND);
}
