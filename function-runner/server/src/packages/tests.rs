//! Tests with real repositories on disk and behind a server.

use std::collections::HashMap;
use std::path::PathBuf;

use git2::{Oid, Repository, Signature};
use stoa_git::cache::Folders;
use stoa_git::testing::{GitServer, tree};
use stoa_proto::{
    CommitRef, DiscoverRequest, DiscoveredRefs, DiscoveredRevision, FilesRequest, FolderFiles, FolderOf, GitPerson,
    GitRef, NewCommit, PackageFile, PushRequest, PushResponse, RefUpdate, Source, commit_ref, new_commit,
    push_response, ref_update,
};
use tempfile::TempDir;
use tonic::Code;

use super::{DiscoverJob, PackageFiles, discover};
use crate::failure::Failure;
use crate::local::LocalRepositories;
use crate::source::{Cache, ReaderPool, Sources};

const MAIN: &str = "refs/heads/main";

/// A remote repository, and caches of it.
struct Bed {
    directory: TempDir,
    sources: Sources,
}

impl Bed {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        Repository::init_bare(directory.path().join("a.git")).unwrap();
        let caches = Folders::new(directory.path().join("caches"));
        let local = LocalRepositories::below(vec!["/".into()]);
        Self { sources: Sources::new(caches, local, ReaderPool::in_process()), directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("a.git")
    }

    fn repository(&self) -> Repository {
        Repository::open_bare(self.path()).unwrap()
    }

    fn source(&self) -> Source {
        let remote = format!("file://{}", self.path().display());
        Source { provider: "Git".to_owned(), remote, ..Source::default() }
    }

    /// A commit with exactly these files, to which the ref leads then.
    fn commit(&self, name: &str, parents: &[Oid], message: &str, files: &[(&str, &str)]) -> Oid {
        let repository = self.repository();
        let tree = repository.find_tree(tree(&repository, files)).unwrap();
        let who = Signature::new("Ada", "ada@example.com", &git2::Time::new(1_700_000_000, 0)).unwrap();
        let parents: Vec<_> = parents.iter().map(|id| repository.find_commit(*id).unwrap()).collect();
        let parents: Vec<&git2::Commit<'_>> = parents.iter().collect();
        let commit = repository.commit(None, &who, &who, message, &tree, &parents).unwrap();
        repository.reference(name, commit, true, "test").unwrap();
        commit
    }

    fn point(&self, name: &str, at: Oid) {
        self.repository().reference(name, at, true, "test").unwrap();
    }

    fn remove(&self, name: &str) {
        self.repository().find_reference(name).unwrap().delete().unwrap();
    }

    fn at(&self, name: &str) -> String {
        self.repository().refname_to_id(name).map(|id| id.to_string()).unwrap_or_default()
    }

    async fn discover(&self, directory: &str, known: &[GitRef]) -> (DiscoveredRefs, Vec<DiscoveredRevision>) {
        let (branch, directory, known) = ("main".to_owned(), directory.to_owned(), known.to_vec());
        let request = DiscoverRequest { branch, directory, known, ..DiscoverRequest::default() };
        let page = self.sources.discover(&self.source(), DiscoverJob::first(request)).await.unwrap();
        (page.refs.unwrap(), page.revisions)
    }

    async fn files(&self, commit: &str, path: &str) -> Result<PackageFiles, Failure> {
        let request = FilesRequest { commit: commit.to_owned(), path: path.to_owned(), ..FilesRequest::default() };
        self.sources.package_files(&self.source(), request).await
    }

    async fn push(&self, commits: Vec<NewCommit>, updates: Vec<RefUpdate>) -> Result<PushResponse, Failure> {
        self.sources.push(&self.source(), PushRequest { source: None, commits, updates }).await
    }
}

/// One line for each revision, sorted.
fn table(revisions: &[DiscoveredRevision]) -> Vec<String> {
    let line = |of: &DiscoveredRevision| {
        let name = of.r#ref.strip_prefix("refs/").unwrap();
        let problem = of.problem.as_ref().map(|problem| format!(" {}", problem.reason)).unwrap_or_default();
        format!("{name}: {} {} {} {}{problem}", of.package, of.workspace, of.revision, of.lifecycle)
    };
    let mut lines: Vec<String> = revisions.iter().map(line).collect();
    lines.sort();
    lines
}

const KPTFILE: &str = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: example\n";

fn annotated(message: &str, path: &str, workspace: &str, task: &str) -> String {
    let task = if task.is_empty() { String::new() } else { format!(r#","task":{{"type":"{task}"}}"#) };
    format!("{message}\n\nkpt:{{\"package\":\"{path}\",\"workspaceName\":\"{workspace}\"{task}}}\n")
}

/// A repository as Porch writes it: one approved package, one draft of it, and a proposed one.
fn porch(bed: &Bed) -> [Oid; 3] {
    let web = [("web/Kptfile", KPTFILE), ("README.md", "x")];
    let first = bed.commit(MAIN, &[], "first", &[("README.md", "x")]);
    let init = annotated("init", "web", "one", "init");
    let draft = bed.commit("refs/heads/other", &[first], &init, &web);
    let render = annotated("render", "web", "one", "render");
    let draft = bed.commit("refs/heads/other", &[draft], &render, &web);
    let approval = annotated("Approving package revision web/1", "web", "one", "");
    let approved = bed.commit(MAIN, &[first, draft], &approval, &web);
    bed.point("refs/tags/web/v1", approved);
    let edit = annotated("edit", "web", "two", "edit");
    let changed = [("web/Kptfile", KPTFILE), ("web/cm.yaml", "a: 1"), ("README.md", "x")];
    let second = bed.commit("refs/heads/drafts/web/two", &[approved], &edit, &changed);
    let deep = [("net/db/Kptfile", KPTFILE), ("web/Kptfile", KPTFILE), ("README.md", "x")];
    let clone = annotated("clone", "net/db", "ws", "clone");
    let third = bed.commit("refs/heads/proposed/net/db/ws", &[approved], &clone, &deep);
    [approved, second, third]
}

#[tokio::test]
async fn every_kind_of_revision_is_discovered() {
    let bed = Bed::new();
    let [approved, second, _] = porch(&bed);
    bed.point("refs/tags/web/2", second);
    bed.point("refs/tags/release-1", approved);
    bed.point("refs/tags/other/v1", approved);
    bed.point("refs/heads/deletionProposed/web/v1", approved);
    let (refs, revisions) = bed.discover("", &[]).await;
    assert_eq!(
        table(&revisions),
        [
            "heads/drafts/web/two: web two 0 Draft",
            "heads/main: web main -1 Published",
            "heads/proposed/net/db/ws: net/db ws 0 Proposed",
            "tags/web/2: web two 2 Published",
            "tags/web/v1: web one 1 DeletionProposed",
        ]
    );
    assert!(refs.branch_is_complete && !refs.unchanged);
    assert_eq!(refs.branch_commit, approved.to_string());
    let tag = revisions.iter().find(|of| of.r#ref == "refs/tags/web/v1").unwrap();
    assert_eq!((tag.commit.as_str(), tag.task.as_str()), (&*approved.to_string(), r#"{"type":"init"}"#));
    assert_eq!(tag.kptfile, KPTFILE.as_bytes());
    assert_eq!(tag.deletion_proposed.as_ref().unwrap().commit, approved.to_string());
    let person = GitPerson { name: "Ada".to_owned(), email: "ada@example.com".to_owned(), seconds: 1_700_000_000 };
    assert!(revisions.iter().all(|of| of.author == Some(person.clone())));
    let main = revisions.iter().find(|of| of.revision == -1).unwrap();
    assert_eq!((&main.tree, &main.path), (&tag.tree, &"web".to_owned()), "the same content has the same id");
}

#[tokio::test]
async fn later_answers_have_changed_revisions_alone() {
    let bed = Bed::new();
    let [approved, second, _] = porch(&bed);
    let (before, _) = bed.discover("", &[]).await;
    let (same, none) = bed.discover("", &before.refs).await;
    assert!(same.unchanged && none.is_empty() && same.refs.is_empty());

    bed.remove("refs/heads/proposed/net/db/ws");
    bed.point("refs/heads/deletionProposed/web/v1", approved);
    let (after, revisions) = bed.discover("", &before.refs).await;
    assert_eq!(after.removed_refs, ["refs/heads/proposed/net/db/ws"]);
    assert_eq!(table(&revisions), ["tags/web/v1: web one 1 DeletionProposed"]);
    bed.remove("refs/heads/deletionProposed/web/v1");
    let (after, revisions) = bed.discover("", &after.refs).await;
    assert_eq!(table(&revisions), ["tags/web/v1: web one 1 Published"]);

    let files = [("db/Kptfile", KPTFILE), ("web/Kptfile", KPTFILE), ("README.md", "y")];
    let next = bed.commit(MAIN, &[approved], "by hand", &files);
    let (after, revisions) = bed.discover("", &after.refs).await;
    assert_eq!(table(&revisions), ["heads/main: db main -1 Published"], "the other one has the same tree");
    assert!(!after.branch_is_complete);
    bed.commit(MAIN, &[next], "by hand", &[("db/Kptfile", KPTFILE), ("db/a.yaml", "a: 1")]);
    // A draft of the name of a folder of drafts.
    bed.remove("refs/heads/drafts/web/two");
    bed.point("refs/heads/drafts/web/two/three", second);
    let (after, revisions) = bed.discover("", &after.refs).await;
    assert_eq!(
        table(&revisions),
        ["heads/drafts/web/two/three: web/two three 0 Draft MissingKptfile", "heads/main: db main -1 Published"]
    );
    assert_eq!(after.removed_paths, ["web"]);
    assert_eq!(after.removed_refs, ["refs/heads/drafts/web/two"]);

    // A forced push whose commits the earlier ones do not lead to.
    bed.commit(MAIN, &[], "anew", &[("x/Kptfile", KPTFILE)]);
    let (after, revisions) = bed.discover("", &after.refs).await;
    assert_eq!(
        (table(&revisions), after.removed_paths),
        (vec!["heads/main: x main -1 Published".to_owned()], vec!["db".to_owned()])
    );
}

#[tokio::test]
async fn broken_package_hides_no_other() {
    let bed = Bed::new();
    let large = format!("{KPTFILE}# {}", "x".repeat(300 << 10));
    let files = [
        ("broken/Kptfile", "a: [1"),
        ("fine/Kptfile", KPTFILE),
        ("large/Kptfile", &large),
        ("strange/Kptfile", "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: a\nunknown: 1\n"),
    ];
    let first = bed.commit(MAIN, &[], "first", &files);
    bed.point("refs/tags/broken/v1", first);
    bed.point("refs/tags/fine/v1", first);
    bed.point("refs/heads/drafts/absent/ws", first);
    let blob = bed.repository().blob(b"no commit").unwrap();
    std::fs::create_dir_all(bed.path().join("refs/tags/fine")).unwrap();
    std::fs::write(bed.path().join("refs/tags/fine/v2"), format!("{blob}\n")).unwrap();
    let (_, revisions) = bed.discover("", &[]).await;
    assert_eq!(
        table(&revisions),
        [
            "heads/drafts/absent/ws: absent ws 0 Draft MissingKptfile",
            "heads/main: broken main -1 Published InvalidKptfile",
            "heads/main: fine main -1 Published",
            "heads/main: large main -1 Published TooLarge",
            "heads/main: strange main -1 Published InvalidKptfile",
            "tags/broken/v1: broken v1 1 Published InvalidKptfile",
            "tags/fine/v1: fine v1 1 Published",
        ]
    );
    let problem = |path: &str| revisions.iter().find(|of| of.path == path).unwrap().problem.clone().unwrap();
    assert_eq!(problem("broken").file, "broken/Kptfile");
    assert!(problem("strange").message.contains("unknown"), "{:?}", problem("strange"));
    let broken = revisions.iter().find(|of| of.path == "broken").unwrap();
    assert_eq!(broken.kptfile, "a: [1".as_bytes());
}

#[tokio::test]
async fn directory_limits_and_names_packages() {
    let bed = Bed::new();
    let files = [("a/web/Kptfile", KPTFILE), ("b/web/Kptfile", KPTFILE), ("a/Kptfile", KPTFILE)];
    let first = bed.commit(MAIN, &[], "first", &files);
    for name in ["refs/tags/a/web/v1", "refs/tags/b/web/v1", "refs/tags/a/v1", "refs/heads/drafts/a/web/ws"] {
        bed.point(name, first);
    }
    let (refs, revisions) = bed.discover("/a/", &[]).await;
    assert_eq!(
        table(&revisions),
        [
            "heads/drafts/a/web/ws: web ws 0 Draft",
            "heads/main: web main -1 Published",
            "tags/a/web/v1: web v1 1 Published",
        ]
    );
    assert!(revisions.iter().all(|of| of.path == "a/web"));
    assert_eq!(refs.refs.len(), 3);
}

#[tokio::test]
async fn empty_repository_has_no_branch() {
    let bed = Bed::new();
    let (refs, revisions) = bed.discover("", &[]).await;
    assert!(revisions.is_empty() && refs.branch_commit.is_empty() && refs.refs.is_empty());
    let commit = new(Vec::new(), "", None);
    let pushed = bed.push(vec![commit], vec![update(MAIN, "", Some(made(0)))]).await.unwrap();
    assert!(matches!(pushed.outcome, Some(push_response::Outcome::Done(_))), "{pushed:?}");
    assert_eq!(bed.at(MAIN), pushed.commits[0].commit);
}

#[test]
fn pages_are_of_one_moment() {
    let bed = Bed::new();
    let mut files: Vec<(String, &str)> = Vec::new();
    for number in 0..20 {
        files.push((format!("p{number:02}/Kptfile"), KPTFILE));
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let first = bed.commit(MAIN, &[], "first", &files);
    for number in 0..20 {
        bed.point(&format!("refs/tags/p{number:02}/v1"), first);
        bed.point(&format!("refs/heads/drafts/p{number:02}/ws"), first);
    }
    let cache = bed.directory.path().join("cache");
    Repository::init_bare(&cache).unwrap();
    let cache = Cache::open(&cache, bed.source(), 1, false).unwrap();
    let request = DiscoverRequest { branch: "main".to_owned(), ..DiscoverRequest::default() };
    let mut job = DiscoverJob::first(request);
    let (mut pages, mut all, mut first_page) = (0, Vec::new(), DiscoveredRefs::default());
    loop {
        let page = discover::page_within(&cache, &job, 2000).unwrap();
        pages += 1;
        if let Some(header) = &page.refs {
            first_page = header.clone();
            // Later commits are of the next answer.
            bed.remove("refs/tags/p19/v1");
        }
        all.extend(page.revisions.clone());
        let Some(next) = job.after(&page, &first_page) else { break };
        job = next;
    }
    assert!(pages > 5, "{pages}");
    let mut lines = table(&all);
    assert_eq!(lines.len(), 60);
    lines.dedup();
    assert_eq!(lines.len(), 60);
}

#[tokio::test]
async fn files_without_content_are_listed() {
    let bed = Bed::new();
    let large = "x".repeat((1 << 20) + 1);
    let files = [("web/Kptfile", KPTFILE), ("web/a/icon.png", "\u{0}png"), ("web/large.txt", large.as_str())];
    let first = bed.commit(MAIN, &[], "first", &files);
    let found = bed.files(&first.to_string(), "web/").await.unwrap();
    let shown: Vec<_> =
        found.files.iter().map(|file| (file.path.as_str(), file.content.len(), file.kept.as_str())).collect();
    assert_eq!(shown, [("Kptfile", KPTFILE.len(), ""), ("a/icon.png", 0, "Binary"), ("large.txt", 0, "TooLarge")]);
    let request = FilesRequest {
        commit: first.to_string(),
        path: "web".to_owned(),
        with_binary: true,
        max_file_bytes: 10,
        ..FilesRequest::default()
    };
    let all = bed.sources.package_files(&bed.source(), request).await.unwrap();
    assert_eq!((all.files[1].content.len(), all.files[0].kept.as_str()), (4, "TooLarge"));
    let repository = bed.repository();
    let object = repository.find_object(first, None).unwrap();
    let who = Signature::now("t", "t@example.com").unwrap();
    let tag = repository.tag("web/v1", &object, &who, "a tag of its own", false).unwrap();
    assert_eq!(bed.files(&tag.to_string(), "web").await.unwrap(), found);
    let tree = found.tree.unwrap();
    let committed = repository.find_commit(first).unwrap().time().seconds();
    assert_eq!((tree.files, tree.bytes, tree.committed), (3, KPTFILE.len() as u64, committed));
    for (path, code) in [("db", Code::NotFound), ("web/Kptfile", Code::NotFound), ("../web", Code::InvalidArgument)] {
        assert_eq!(bed.files(&first.to_string(), path).await.unwrap_err().code(), code, "{path}");
    }
    assert_eq!(bed.files(&"1".repeat(40), "web").await.unwrap_err().code(), Code::NotFound);
}

fn id(commit: &str) -> CommitRef {
    CommitRef { commit: Some(commit_ref::Commit::Id(commit.to_owned())) }
}

fn made(number: u32) -> CommitRef {
    CommitRef { commit: Some(commit_ref::Commit::NewCommit(number)) }
}

fn update(name: &str, expected: &str, to: Option<CommitRef>) -> RefUpdate {
    let target = to.map_or(ref_update::Target::Delete(true), ref_update::Target::Commit);
    RefUpdate { name: name.to_owned(), expected: expected.to_owned(), target: Some(target) }
}

fn new(parents: Vec<CommitRef>, path: &str, change: Option<new_commit::Change>) -> NewCommit {
    let author = GitPerson { name: "Ada".to_owned(), email: "ada@example.com".to_owned(), seconds: 1_700_000_000 };
    let (path, author) = (path.to_owned(), Some(author));
    NewCommit { parents, message: "m\n".to_owned(), author, committer: None, path, change }
}

fn files(files: &[(&str, &str)]) -> new_commit::Change {
    let file = |(path, text): &(&str, &str)| PackageFile {
        path: (*path).to_owned(),
        content: text.as_bytes().to_vec().into(),
        ..PackageFile::default()
    };
    new_commit::Change::Files(FolderFiles { files: files.iter().map(file).collect(), ..FolderFiles::default() })
}

const DRAFT: &str = "refs/heads/drafts/web/ws";
const PROPOSED: &str = "refs/heads/proposed/web/ws";
const TAG: &str = "refs/tags/web/v1";

fn done(pushed: &PushResponse) -> bool {
    let Some(push_response::Outcome::Done(done)) = &pushed.outcome else { panic!("{pushed:?}") };
    done.was_done
}

fn moved(pushed: &PushResponse) -> HashMap<&str, &str> {
    let Some(push_response::Outcome::Conflict(conflict)) = &pushed.outcome else { panic!("{pushed:?}") };
    conflict.refs.iter().map(|of| (of.name.as_str(), of.actual.as_str())).collect()
}

/// A package from its first commit to its tag, with the calls of the API server.
async fn check_life(bed: &Bed, source: Source) {
    let push = async |commits: Vec<NewCommit>, updates: Vec<RefUpdate>| {
        bed.sources.push(&source, PushRequest { source: None, commits, updates }).await.unwrap()
    };
    let main = bed.commit(MAIN, &[], "first", &[("README.md", "x"), ("db/Kptfile", KPTFILE)]).to_string();
    let commit = new(vec![id(&main)], "web", Some(files(&[("Kptfile", KPTFILE), ("old.yaml", "a: 1")])));
    let request = (vec![commit.clone()], vec![update(DRAFT, "", Some(made(0)))]);
    let created = push(request.0.clone(), request.1.clone()).await;
    assert!(!done(&created));
    assert!(done(&push(request.0, request.1.clone()).await), "the same request is done once");
    let other = new(vec![id(&main)], "web", Some(files(&[("Kptfile", KPTFILE)])));
    assert_eq!(moved(&push(vec![other], request.1).await)[DRAFT], created.commits[0].commit);

    // Somebody adds a picture; a save in two commits keeps it.
    let draft = Oid::from_str(&created.commits[0].commit).unwrap();
    let all = [
        ("README.md", "x"),
        ("db/Kptfile", KPTFILE),
        ("web/Kptfile", KPTFILE),
        ("web/old.yaml", "a: 1"),
        ("web/i.png", "\u{0}"),
    ];
    let draft = bed.commit(DRAFT, &[draft], "picture", &all).to_string();
    let first = new(vec![id(&draft)], "web", Some(files(&[("Kptfile", KPTFILE), ("new.yaml", "a: 2")])));
    let second = new(vec![made(0)], "web", Some(files(&[("Kptfile", KPTFILE), ("new.yaml", "a: 3")])));
    let saved = push(vec![first, second], vec![update(DRAFT, &draft, Some(made(1)))]).await;
    assert!(!done(&saved));
    let head = saved.commits[1].commit.clone();
    let found = bed
        .sources
        .package_files(
            &source,
            FilesRequest { commit: head.clone(), path: "web".to_owned(), ..FilesRequest::default() },
        )
        .await
        .unwrap();
    let shown: Vec<_> = found.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(shown, ["Kptfile", "i.png", "new.yaml"]);
    assert_eq!(found.tree.unwrap().tree, saved.commits[1].tree);

    let propose = vec![update(PROPOSED, "", Some(id(&head))), update(DRAFT, &head, None)];
    assert!(!done(&push(Vec::new(), propose).await));
    assert_eq!((bed.at(DRAFT).as_str(), bed.at(PROPOSED)), ("", head.clone()));

    // The deployed branch moves meanwhile.
    let approve = |main: &str| {
        let folder = FolderOf { commit: Some(id(&head)), path: String::new() };
        let commit = new(vec![id(main), id(&head)], "web", Some(new_commit::Change::Folder(folder)));
        let updates =
            vec![update(MAIN, main, Some(made(0))), update(TAG, "", Some(made(0))), update(PROPOSED, &head, None)];
        (vec![commit], updates)
    };
    let next = bed.commit(MAIN, &[Oid::from_str(&main).unwrap()], "by hand", &[("db/Kptfile", "x")]).to_string();
    let (commits, updates) = approve(&main);
    let stale = push(commits, updates).await;
    let expected: HashMap<&str, &str> = [(MAIN, next.as_str())].into();
    assert_eq!(moved(&stale), expected);
    assert_eq!((bed.at(TAG).as_str(), bed.at(PROPOSED)), ("", head.clone()), "nothing moved");
    let (commits, updates) = approve(&next);
    let approved = push(commits.clone(), updates.clone()).await;
    assert!(!done(&approved) && done(&push(commits, updates).await));
    assert_eq!(approved.commits[0].tree, saved.commits[1].tree, "the package is the draft, with its picture");
    assert_eq!((bed.at(TAG), bed.at(PROPOSED).as_str()), (bed.at(MAIN), ""));

    // A lost tag, and a withdrawn proposal.
    bed.remove(TAG);
    assert!(!done(&push(Vec::new(), vec![update(TAG, "", Some(id(&approved.commits[0].commit)))]).await));
    let late = push(Vec::new(), vec![update(DRAFT, "", Some(id(&head))), update(PROPOSED, &head, None)]).await;
    let expected: HashMap<&str, &str> = [(PROPOSED, "")].into();
    assert_eq!(moved(&late), expected);
    assert_eq!(bed.at(DRAFT), "");
}

#[tokio::test]
async fn package_lives_in_a_folder() {
    let bed = Bed::new();
    check_life(&bed, bed.source()).await;
    let (_, revisions) = bed.discover("", &[]).await;
    let lines = [
        "heads/main: db main -1 Published InvalidKptfile",
        "heads/main: web main -1 Published",
        "tags/web/v1: web v1 1 Published",
    ];
    assert_eq!(table(&revisions), lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn package_lives_behind_a_server() {
    let bed = Bed::new();
    let server = GitServer::start(bed.directory.path(), "correct horse", None).await;
    let credentials = [("username", "bot"), ("password", "correct horse")];
    let credentials = credentials.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec().into())).into();
    let remote = server.url("http", "a.git");
    check_life(&bed, Source { provider: "Git".to_owned(), remote, credentials, ..Source::default() }).await;
    assert!(server.pushes() > 8);
}

#[tokio::test]
async fn parent_that_a_forced_push_removed_conflicts() {
    let bed = Bed::new();
    let gone = bed.commit(MAIN, &[], "first", &[("a", "1")]).to_string();
    let now = bed.commit(MAIN, &[], "anew", &[("a", "2")]).to_string();
    let (objects, id_of) = (bed.path().join("objects"), gone.clone());
    std::fs::remove_file(objects.join(&id_of[..2]).join(&id_of[2..])).unwrap();
    let commit = new(vec![id(&gone)], "web", Some(files(&[("Kptfile", KPTFILE)])));
    let pushed = bed.push(vec![commit.clone()], vec![update(MAIN, &gone, Some(made(0)))]).await.unwrap();
    let expected: HashMap<&str, &str> = [(MAIN, now.as_str())].into();
    assert_eq!(moved(&pushed), expected);
    let missing = bed.push(vec![commit], vec![update(DRAFT, "", Some(made(0)))]).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound, "no ref moved");
}

#[tokio::test]
async fn wrong_requests_are_rejected_before_anything_moves() {
    let bed = Bed::new();
    let main = bed.commit(MAIN, &[], "first", &[("web/Kptfile", KPTFILE)]).to_string();
    let commit = |path: &str, change| vec![new(vec![id(&main)], path, Some(change))];
    let one = || vec![update(DRAFT, "", Some(made(0)))];
    let fine = || files(&[("Kptfile", KPTFILE)]);
    for (commits, updates) in [
        (commit("web", fine()), Vec::new()),
        (commit("web", fine()), vec![update("drafts/web/ws", "", Some(made(0)))]),
        (commit("web", fine()), vec![update("refs/notes/x", "", Some(made(0)))]),
        (commit("web", fine()), vec![update("refs/heads/a..b", "", Some(made(0)))]),
        (commit("web", fine()), vec![update(DRAFT, "", Some(made(1)))]),
        (commit("web", fine()), [one(), one()].concat()),
        (commit("web", fine()), vec![update(DRAFT, "main", Some(made(0)))]),
        (commit("web", fine()), vec![update(DRAFT, "", None)]),
        (commit("../web", fine()), one()),
        (commit("web", files(&[("../x", "x")])), one()),
        (commit("web", files(&[(".git/config", "x")])), one()),
        (vec![new(vec![made(0)], "web", Some(fine()))], one()),
        (vec![NewCommit { author: None, ..new(Vec::new(), "web", None) }], one()),
    ] {
        let text = format!("{commits:?} {updates:?}");
        let failure = bed.push(commits, updates).await.expect_err(&text);
        assert_eq!(failure.code(), Code::InvalidArgument, "{text}: {failure:?}");
        assert_eq!(bed.at(DRAFT), "");
    }
}
