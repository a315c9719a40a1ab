//! The strategies that take upstream's files: fast-forward, force-delete-replace and copy-merge.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Side, UpdateConflict, UpdateError, files, kptfile, kptfiles};
use crate::files::{KPTFILE, Tree, join, package_of, packages, resource_files};
use crate::identity::{marked_tree, unmarked};
use crate::kptfile::Kptfile;
use crate::merge::Sides;
use crate::resources::read_file;

/// Checks that the local files are those that were fetched, apart from marks, the name and the upstream.
pub(super) fn check_unchanged(trees: Sides<&Tree>) -> Result<(), UpdateError> {
    let (local, origin) = (trees.local, trees.origin);
    let packages_of = |tree| resource_files(tree).into_iter().map(|file| (file.path, file.package)).collect();
    let in_packages: [BTreeMap<&str, &str>; 2] = [local, origin].map(packages_of);
    let same_objects = |path| {
        let [one, other] = [(local, &in_packages[0]), (origin, &in_packages[1])]
            .map(|(tree, files)| objects(tree, files.get(path)?, path));
        one.is_some() && one == other
    };
    let mut changed = Vec::new();
    let paths: BTreeSet<&str> = local.paths().chain(origin.paths()).collect();
    for path in paths {
        let is_same = match path.strip_suffix(KPTFILE) {
            Some(folder) if folder.is_empty() || folder.ends_with('/') => {
                same_kptfiles(local, origin, folder.trim_end_matches('/'))?
            }
            _ => match (local.get(path), origin.get(path)) {
                (Some(one), Some(other)) => one == other || same_objects(path),
                _ => false,
            },
        };
        if !is_same {
            changed.push(path.to_owned());
        }
    }
    if changed.is_empty() { Ok(()) } else { Err(UpdateError::LocalChanges { files: changed }) }
}

/// Whether two Kptfiles are the same. A root without one counts as having a new one.
fn same_kptfiles(local: &Tree, origin: &Tree, package: &str) -> Result<bool, UpdateError> {
    let kptfiles = (kptfile(Side::Local, local, package)?, kptfile(Side::Origin, origin, package)?);
    Ok(match kptfiles {
        (Some(local), Some(origin)) => kptfiles::same(&local, &origin),
        (Some(local), None) if package.is_empty() => kptfiles::same(&local, &Kptfile::new("")),
        _ => false,
    })
}

/// The objects of a file without their marks, and its comments on lines of their own.
fn objects(tree: &Tree, package: &str, path: &str) -> Option<(Vec<Value>, Vec<String>)> {
    let objects = read_file(tree, package, path).ok()?;
    let comments = tree.text(path)?.lines().map(str::trim).filter(|line| line.starts_with('#'));
    Some((objects.iter().map(unmarked).collect(), comments.map(str::to_owned).collect()))
}

/// Upstream's tree with the merged Kptfile. Local packages with an upstream of their own stay.
pub(super) fn replace(trees: Sides<&Tree>) -> Result<(Tree, Vec<UpdateConflict>), UpdateError> {
    let mut result = marked_tree(trees.upstream);
    for package in packages(trees.local).into_iter().filter(|package| !package.is_empty()) {
        let own = kptfile(Side::Local, trees.local, package)?;
        let is_own = own.is_some_and(|kptfile| kptfile.upstream.is_some());
        if is_own && trees.upstream.get(&join(package, KPTFILE)).is_none() {
            for (path, file) in trees.local.iter().filter(|(path, _)| package_of(trees.local, path) == package) {
                files::put(&mut result, path, file)?;
            }
        }
    }
    let conflicts = merge_kptfile(trees, &mut result)?;
    Ok((result, conflicts))
}

/// The local tree with upstream's files over it. Files that upstream deleted are deleted.
pub(super) fn copy(trees: Sides<&Tree>) -> Result<(Tree, Vec<UpdateConflict>), UpdateError> {
    let mut result = trees.local.clone();
    for path in trees.origin.paths().filter(|path| trees.upstream.get(path).is_none()) {
        result.remove(path);
    }
    for (path, file) in marked_tree(trees.upstream).iter() {
        files::put(&mut result, path, file)?;
    }
    let conflicts = merge_kptfile(trees, &mut result)?;
    Ok((result, conflicts))
}

/// Writes the merged Kptfile of the root.
fn merge_kptfile(trees: Sides<&Tree>, result: &mut Tree) -> Result<Vec<UpdateConflict>, UpdateError> {
    let origin = kptfile(Side::Origin, trees.origin, "")?;
    let upstream = kptfile(Side::Upstream, trees.upstream, "")?;
    let Some(local) = kptfile(Side::Local, trees.local, "")? else { return Ok(Vec::new()) };
    let texts = trees.map(|tree| tree.text(KPTFILE));
    let own = kptfiles::Source { kptfile: &local, text: texts.local.unwrap_or_default() };
    let sides = Sides {
        origin: origin.as_ref().zip(texts.origin).map(|(kptfile, text)| kptfiles::Source { kptfile, text }),
        upstream: upstream.as_ref().zip(texts.upstream).map(|(kptfile, text)| kptfiles::Source { kptfile, text }),
        local: Some(own),
    };
    let (text, conflicts) = kptfiles::merged("", sides, own)?;
    result.write(KPTFILE, text)?;
    Ok(conflicts.into_iter().map(|it| UpdateConflict::of(KPTFILE.to_owned(), it)).collect())
}
