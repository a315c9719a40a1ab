//! Commits in a repository on disk.

use tempfile::TempDir;

use super::*;
use crate::files::{Opaque, list};

struct Bed {
    folder: TempDir,
    repository: Repository,
}

fn person() -> Person {
    Person { name: "Ada".to_owned(), email: "ada@example.com".to_owned(), seconds: 1_700_000_000 }
}

fn text<'f>(path: &'f str, content: &'f str) -> FileToWrite<'f> {
    FileToWrite { path, content: content.as_bytes(), is_executable: false }
}

impl Bed {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        Self { folder, repository }
    }

    fn make(&self, parents: &[Oid], path: &str, change: Change<'_>) -> Result<Made, CommitError> {
        let (author, committer) = (person(), person());
        let request = NewCommit { parents: parents.to_vec(), message: "change\n", author, committer, path, change };
        make(&self.repository, &request)
    }

    fn files<'f>(&self, base: Option<Oid>, files: &[(&'f str, &'f str)]) -> Change<'f> {
        let files = files.iter().map(|(path, content)| text(path, content)).collect();
        Change::Files { base, files, removed: BTreeSet::new(), most: 1000 }
    }

    /// The files of a commit with their contents; `<Opaque>` for those that clients do not see.
    fn shown(&self, commit: Oid) -> Vec<String> {
        let root = bounded::root(&self.repository, &bounded::commit(&self.repository, commit).unwrap()).unwrap();
        let shown = |entry: Entry| {
            let content = match entry.read(&self.repository, 1000).unwrap().0 {
                Ok(content) => String::from_utf8(content).unwrap(),
                Err(kept) => format!("<{kept}>"),
            };
            format!("{}={content}", entry.path)
        };
        list(&self.repository, &root).unwrap().into_iter().map(shown).collect()
    }
}

#[test]
fn commit_replaces_one_folder() {
    let bed = Bed::new();
    let first = bed.make(&[], "a/web", bed.files(None, &[("Kptfile", "1"), ("x/y.yaml", "2")])).unwrap();
    let second = bed.make(&[first.commit], "a/db", bed.files(None, &[("Kptfile", "3")])).unwrap();
    let third = bed.make(&[second.commit], "a/web", bed.files(first.tree, &[("Kptfile", "4")])).unwrap();
    assert_eq!(bed.shown(third.commit), ["a/db/Kptfile=3", "a/web/Kptfile=4"]);
    let same = bed.make(&[third.commit], "a/web", Change::Folder(first.tree.unwrap())).unwrap();
    assert_eq!(bed.shown(same.commit), ["a/db/Kptfile=3", "a/web/Kptfile=1", "a/web/x/y.yaml=2"]);
    assert_eq!(same.tree, first.tree);
    let removed = bed.make(&[same.commit], "a/web", Change::Remove).unwrap();
    assert_eq!((bed.shown(removed.commit), removed.tree), (vec!["a/db/Kptfile=3".to_owned()], None));
    let again = bed.make(&[removed.commit], "b/c/d", Change::Remove).unwrap();
    assert_eq!(bed.shown(again.commit), ["a/db/Kptfile=3"]);
    let empty = bed.make(&[again.commit], "a/db", Change::Remove).unwrap();
    assert_eq!(bed.shown(empty.commit), [] as [&str; 0]);
    let nothing = bed.make(&[third.commit, first.commit], "a/web", Change::Nothing).unwrap();
    assert_eq!((bed.shown(nothing.commit), nothing.tree), (bed.shown(third.commit), third.tree));
    let first = bed.make(&[], "", Change::Nothing).unwrap();
    assert_eq!(bed.shown(first.commit), [] as [&str; 0]);
}

#[test]
fn same_request_makes_the_same_commit() {
    let (here, there) = (Bed::new(), Bed::new());
    let made = |bed: &Bed| bed.make(&[], "web", bed.files(None, &[("Kptfile", "1")])).unwrap();
    assert_eq!(made(&here), made(&there));
    assert!(here.folder.path() != there.folder.path());
}

#[test]
fn files_that_clients_do_not_see_stay() {
    let bed = Bed::new();
    let mut tree = bed.repository.treebuilder(None).unwrap();
    let blob = |content: &[u8]| bed.repository.blob(content).unwrap();
    tree.insert("Kptfile", blob(b"1"), 0o100_644).unwrap();
    tree.insert("run.sh", blob(b"#!/bin/sh"), 0o100_755).unwrap();
    tree.insert("icon.png", blob(b"\x89PNG\0"), 0o100_644).unwrap();
    tree.insert("large.yaml", blob(&vec![b'a'; 1001]), 0o100_644).unwrap();
    tree.insert("link", blob(b"Kptfile"), 0o120_000).unwrap();
    let module = blob(b"some commit");
    tree.insert("module", module, 0o160_000).unwrap();
    tree.insert("old.yaml", blob(b"old"), 0o100_644).unwrap();
    let base = tree.write().unwrap();
    let files = [("Kptfile", "2"), ("run.sh", "#!/bin/bash"), ("large.yaml/x", "now a folder")];
    let Change::Files { files, most, .. } = bed.files(None, &files) else { unreachable!() };
    let removed = ["link"].into();
    let made = bed.make(&[], "web", Change::Files { base: Some(base), files, removed, most }).unwrap();
    assert_eq!(
        bed.shown(made.commit),
        [
            "web/Kptfile=2",
            "web/icon.png=<Binary>",
            "web/large.yaml/x=now a folder",
            "web/module=<Submodule>",
            "web/run.sh=#!/bin/bash",
        ]
    );
    let tree = bed.repository.find_tree(made.tree.unwrap()).unwrap();
    assert_eq!(tree.get_name("run.sh").unwrap().filemode(), 0o100_755, "it stays executable");
    assert_eq!(tree.get_name("module").unwrap().id(), module);
    let kept: Vec<Opaque> = list(&bed.repository, &bed.repository.find_tree(base).unwrap())
        .unwrap()
        .iter()
        .filter_map(|entry| entry.read(&bed.repository, 1000).unwrap().0.err())
        .collect();
    assert_eq!(kept, [Opaque::Binary, Opaque::TooLarge, Opaque::Link, Opaque::Submodule]);
}

#[test]
fn wrong_paths_and_parents_are_rejected() {
    let bed = Bed::new();
    let first = bed.make(&[], "web", bed.files(None, &[("Kptfile", "1")])).unwrap();
    let deep = vec!["a"; files::DEEPEST + 1].join("/");
    for path in ["", "/a", "a/", "../a", "a/./b", "a/.git/config", "a\0b", "a\\b", &deep] {
        let wrong = bed.make(&[first.commit], "web", bed.files(None, &[(path, "x")])).unwrap_err();
        assert!(matches!(wrong, CommitError::Invalid(_)), "{path}: {wrong}");
        let wrong = bed.make(&[first.commit], path, bed.files(None, &[("Kptfile", "x")])).unwrap_err();
        assert!(matches!(wrong, CommitError::Invalid(_)), "{path}: {wrong}");
    }
    for files in [[("a", "1"), ("a", "2")], [("a", "1"), ("a/b", "2")], [("a/b", "1"), ("a", "2")]] {
        let wrong = bed.make(&[], "web", bed.files(None, &files)).unwrap_err();
        assert!(matches!(wrong, CommitError::Invalid(_)), "{files:?}: {wrong}");
    }
    let below_a_file = bed.make(&[first.commit], "web/Kptfile/x", bed.files(None, &[("Kptfile", "x")])).unwrap_err();
    assert!(matches!(below_a_file, CommitError::Invalid(_)), "{below_a_file}");
    let absent = Oid::from_str(&"1".repeat(40)).unwrap();
    let missing = bed.make(&[absent], "web", Change::Remove).unwrap_err();
    assert!(matches!(missing, CommitError::Missing(_)), "{missing}");
}

#[test]
fn names_of_authors_cannot_forge_a_commit() {
    let bed = Bed::new();
    let author = Person { name: "a <b@c>\nparent 1".to_owned(), email: "e<>\n".to_owned(), seconds: 1 };
    let request = NewCommit {
        parents: Vec::new(),
        message: "m",
        author: author.clone(),
        committer: Person { name: String::new(), ..author },
        path: "web",
        change: Change::Nothing,
    };
    let made = make(&bed.repository, &request).unwrap();
    let commit = bed.repository.find_commit(made.commit).unwrap();
    assert_eq!((commit.parent_count(), commit.author().name().unwrap()), (0, "a  b@c  parent 1"));
    assert_eq!(commit.committer().name().unwrap(), "Unknown");
}
