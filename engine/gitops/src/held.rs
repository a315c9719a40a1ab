//! Looks for files of others in a namespace or of a kind whose own file is to go: what reconciles the repository deletes the
//! one, and the cluster the other with it.

use git2::{ObjectType, Repository, Tree, TreeEntry};
use stoa_engine::{Contents, Held, Owner};
use stoa_runtime::RuntimeError;

use crate::bounded;
use crate::commit::object_in;
use crate::place::Place;

/// What others own of it at the head of the branch.
pub(crate) fn at_head(
    place: &Place,
    directory: &str,
    owner: &Owner,
    contents: &Contents,
) -> Result<Held, RuntimeError> {
    let (repository, head) = place.head()?;
    let Some(head) = head else { return Ok(Held::of(contents)) };
    let look = || {
        let tree = bounded::root(&repository, &bounded::commit(&repository, head)?)?;
        in_tree(&repository, &tree, directory, owner, contents)
    };
    look().map_err(|err| place.explain_in(&repository, &err))
}

/// What others own of it in a tree, as far as it is in the workspace's folder.
pub(crate) fn in_tree(
    repository: &Repository,
    tree: &Tree<'_>,
    directory: &str,
    owner: &Owner,
    contents: &Contents,
) -> Result<Held, git2::Error> {
    let mut held = Held::of(contents);
    let Some(folder) = folder(repository, tree, directory)? else { return Ok(held) };
    match contents {
        // The files of a namespace are in a folder of that name.
        Contents::Namespace(name) => {
            if let Some(files) = self::folder(repository, &folder, name)? {
                note(repository, &files, "", owner, contents, &mut held);
            }
        }
        // The names of files begin with their kinds.
        Contents::Kind { kind, .. } => {
            for namespace in folder.iter().filter(|entry| entry.kind() == Some(ObjectType::Tree)) {
                let files = bounded::tree(repository, namespace.id())?;
                note(repository, &files, &kind.to_lowercase(), owner, contents, &mut held);
            }
        }
    }
    Ok(held)
}

/// The folder at a path, if there is one.
pub(crate) fn folder<'r>(
    repository: &'r Repository,
    tree: &Tree<'r>,
    path: &str,
) -> Result<Option<Tree<'r>>, git2::Error> {
    if path.is_empty() {
        return Ok(Some(tree.clone()));
    }
    match bounded::entry(repository, tree, path)? {
        Some(entry) if entry.kind() == Some(ObjectType::Tree) => bounded::tree(repository, entry.id()).map(Some),
        Some(_) | None => Ok(None),
    }
}

/// Notes those of the files that begin so.
fn note(repository: &Repository, files: &Tree<'_>, begin: &str, owner: &Owner, contents: &Contents, held: &mut Held) {
    let is_file = |entry: &TreeEntry<'_>| {
        entry.kind() == Some(ObjectType::Blob) && entry.name_bytes().starts_with(begin.as_bytes())
    };
    for entry in files.iter().filter(is_file) {
        // What is no object is nobody's.
        if let Some(object) = object_in(repository, "", &entry)
            && contents.has(&object)
            && let Some(foreign) = contents.foreign(owner, &object)
        {
            held.note(foreign);
        }
    }
}
