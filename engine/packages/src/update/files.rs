//! Merges the files of a package that have no objects.
//!
//! A file that changed on one side is taken from there. One that changed on both sides stays as it is here.

use std::collections::BTreeSet;

use super::UpdateConflict;
use crate::files::{File, Tree, TreeError};
use crate::merge::{Cause, Sides};

/// Merges the files of these paths into the result, which begins as the local tree.
pub(super) fn merge(
    trees: Sides<&Tree>,
    paths: &Sides<BTreeSet<&str>>,
    result: &mut Tree,
) -> Result<Vec<UpdateConflict>, TreeError> {
    let mut conflicts = Vec::new();
    for path in paths.origin.union(&paths.upstream) {
        let file = |tree: &Tree, paths: &BTreeSet<&str>| tree.get(path).filter(|_| paths.contains(path)).cloned();
        let sides = Sides {
            origin: file(trees.origin, &paths.origin),
            upstream: file(trees.upstream, &paths.upstream),
            local: file(trees.local, &paths.local),
        };
        let is_taken = sides.local.is_none() && result.get(path).is_some();
        match outcome(&sides) {
            Outcome::Local => {}
            // Another package has the path here.
            Outcome::Upstream if is_taken => {
                conflicts.push(UpdateConflict::of_path(path, Cause::ChangedOnBothSides));
            }
            Outcome::Upstream => match sides.upstream {
                Some(file) => put(result, path, &file)?,
                None => drop(result.remove(path)),
            },
            Outcome::Conflict(cause) => conflicts.push(UpdateConflict::of_path(path, cause)),
        }
    }
    Ok(conflicts)
}

enum Outcome {
    Local,
    Upstream,
    Conflict(Cause),
}

fn outcome(sides: &Sides<Option<File>>) -> Outcome {
    let Sides { origin, upstream, local } = sides;
    if origin == upstream || upstream == local {
        Outcome::Local
    } else if origin == local {
        Outcome::Upstream
    } else if local.is_none() {
        Outcome::Conflict(Cause::DeletedHere)
    } else if upstream.is_none() {
        Outcome::Conflict(Cause::DeletedUpstream)
    } else {
        Outcome::Conflict(Cause::ChangedOnBothSides)
    }
}

/// Writes a file with its mode.
pub(super) fn put(tree: &mut Tree, path: &str, file: &File) -> Result<(), TreeError> {
    let mode = if file.is_executable { crate::files::Mode::Executable } else { crate::files::Mode::Regular };
    tree.add(path, mode, file.content.clone())
}

/// The file that a merge results in, and the disagreement.
pub(super) fn merged(sides: Sides<Option<File>>) -> (Option<File>, Option<Cause>) {
    match outcome(&sides) {
        Outcome::Upstream => (sides.upstream, None),
        Outcome::Local => (sides.local, None),
        Outcome::Conflict(cause) => (sides.local, Some(cause)),
    }
}
