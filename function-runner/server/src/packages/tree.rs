//! Finds the packages of a folder, and those in which two folders differ.

use std::collections::BTreeMap;

use git2::{ObjectType, Oid, Repository, Tree};
use stoa_engine_git::bounded;

/// The most folders that are read, and the deepest level.
const MOST_FOLDERS: usize = 400_000;
const DEEPEST: usize = 64;

/// Packages that are new or have another tree, and packages that are gone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// By path, with their trees now.
    pub(super) packages: BTreeMap<String, Oid>,
    pub(super) removed: Vec<String>,
}

/// Compares the folder at a path, then and now. Equal folders are not read.
pub(super) fn changed(
    repository: &Repository,
    path: &str,
    then: Option<&Tree<'_>>,
    now: Option<&Tree<'_>>,
) -> Result<Changed, git2::Error> {
    let mut walk = Walk { repository, changed: Changed::default(), folders: 0 };
    walk.compare(path, then, now, 0)?;
    walk.changed.removed.sort_unstable();
    Ok(walk.changed)
}

struct Walk<'r> {
    repository: &'r Repository,
    changed: Changed,
    folders: usize,
}

impl Walk<'_> {
    fn compare(
        &mut self,
        path: &str,
        then: Option<&Tree<'_>>,
        now: Option<&Tree<'_>>,
        depth: usize,
    ) -> Result<(), git2::Error> {
        if then.map(Tree::id) == now.map(Tree::id) {
            return Ok(());
        }
        self.folders += 1;
        if self.folders > MOST_FOLDERS || depth > DEEPEST {
            return Err(bounded::too_many(&format!("folders below {path:?}")));
        }
        match (then.is_some_and(is_package), now.filter(|now| is_package(now))) {
            (_, Some(now)) => drop(self.changed.packages.insert(path.to_owned(), now.id())),
            (true, None) => self.changed.removed.push(path.to_owned()),
            (false, None) => {}
        }
        let mut below: BTreeMap<Vec<u8>, [Option<Oid>; 2]> = BTreeMap::new();
        for (side, tree) in [then, now].into_iter().enumerate() {
            let folders = tree.into_iter().flat_map(Tree::iter);
            for entry in folders.filter(|entry| entry.kind() == Some(ObjectType::Tree)) {
                below.entry(entry.name_bytes().to_vec()).or_default()[side] = Some(entry.id());
            }
        }
        for (name, [then, now]) in below.into_iter().filter(|(_, [then, now])| then != now) {
            // A name that is no text is in no path of the API.
            let Ok(name) = String::from_utf8(name) else { continue };
            let path = if path.is_empty() { name } else { format!("{path}/{name}") };
            let folder = |id: Option<Oid>| id.map(|id| bounded::tree(self.repository, id)).transpose();
            let (then, now) = (folder(then)?, folder(now)?);
            self.compare(&path, then.as_ref(), now.as_ref(), depth + 1)?;
        }
        Ok(())
    }
}

/// Whether a folder has a Kptfile.
fn is_package(tree: &Tree<'_>) -> bool {
    tree.get_name("Kptfile").is_some_and(|entry| entry.kind() == Some(ObjectType::Blob))
}
