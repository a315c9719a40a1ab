//! Decides what becomes of the packages in folders, before anything is merged.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Side, UpdateConflict, UpdateError, kptfile, kptfiles};
use crate::files::{KPTFILE, Tree, file_name, package_of, packages, resource_files};
use crate::identity::unmarked;
use crate::kptfile::{Git, Kptfile};
use crate::merge::{Cause, Sides};
use crate::resources::read_file;

/// The future of a package in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The three versions are merged.
    Merge,
    /// Upstream's comes along.
    Add,
    /// The local one stays, or stays deleted.
    Keep,
    /// The local one is deleted.
    Delete,
}

/// The future of all packages.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// The actions by folder, the root included, parents first.
    pub(super) actions: BTreeMap<String, Action>,
    /// The disagreements about whole packages.
    pub(super) conflicts: Vec<UpdateConflict>,
}

/// Decides what becomes of each package. The trees are as they were given, with a `.krmignore` of their own each.
pub(super) fn actions(trees: Sides<&Tree>) -> Result<Planned, UpdateError> {
    let sides = Sides {
        origin: Packages::read(Side::Origin, trees.origin)?,
        upstream: Packages::read(Side::Upstream, trees.upstream)?,
        local: Packages::read(Side::Local, trees.local)?,
    };
    let named = [&sides.origin, &sides.upstream, &sides.local].into_iter().flat_map(|side| side.kptfiles.keys());
    let named: BTreeSet<&str> = named.copied().chain([""]).collect();
    let mut planned = Planned::default();
    for package in named {
        let (action, cause) = action(package, &sides)?;
        planned.actions.insert(package.to_owned(), action);
        planned.conflicts.extend(cause.map(|cause| UpdateConflict::of_path(package, cause)));
    }
    Ok(planned)
}

fn action(package: &str, sides: &Sides<Packages<'_>>) -> Result<(Action, Option<Cause>), UpdateError> {
    let Sides { origin, upstream, local } = sides;
    let [in_origin, in_upstream, in_local] = [origin, upstream, local].map(|side| side.kptfiles.get(package));
    Ok(match (in_origin, in_upstream, in_local) {
        _ if package.is_empty() => (Action::Merge, None),
        (None, Some(_), Some(_)) if upstream.same(package, local) => (Action::Keep, None),
        (None, Some(_), Some(_)) => return Err(UpdateError::PackageOnBothSides { path: package.to_owned() }),
        (None, Some(_), None) => (Action::Add, None),
        (Some(_), None, Some(_)) if origin.same(package, local) => (Action::Delete, None),
        (Some(_), None, Some(_)) => (Action::Keep, Some(Cause::DeletedUpstream)),
        (Some(_), Some(_), None) if origin.same(package, upstream) => (Action::Keep, None),
        (Some(_), Some(_), None) => (Action::Keep, Some(Cause::DeletedHere)),
        // Another upstream was chosen for it here.
        (Some(origin), Some(_), Some(local)) if git_of(origin) != git_of(local) => (Action::Keep, None),
        (Some(_), Some(_), Some(_)) => (Action::Merge, None),
        (_, None, _) => (Action::Keep, None),
    })
}

fn git_of(kptfile: &Kptfile) -> Option<&Git> {
    kptfile.upstream.as_ref()?.git.as_ref()
}

/// The packages of one tree.
struct Packages<'t> {
    tree: &'t Tree,
    kptfiles: BTreeMap<&'t str, Kptfile>,
    /// The files of each package without its Kptfile, and whether they have objects.
    files: BTreeMap<&'t str, BTreeMap<&'t str, bool>>,
}

impl<'t> Packages<'t> {
    fn read(side: Side, tree: &'t Tree) -> Result<Self, UpdateError> {
        let mut kptfiles = BTreeMap::new();
        for package in packages(tree) {
            if let Some(kptfile) = kptfile(side, tree, package)? {
                kptfiles.insert(package, kptfile);
            }
        }
        let with_objects: BTreeSet<&str> = resource_files(tree).into_iter().map(|file| file.path).collect();
        let mut files: BTreeMap<&str, BTreeMap<&str, bool>> = BTreeMap::new();
        for path in tree.paths().filter(|path| file_name(path) != KPTFILE) {
            files.entry(package_of(tree, path)).or_default().insert(path, with_objects.contains(path));
        }
        Ok(Self { tree, kptfiles, files })
    }

    /// Whether a package is the same in another tree, apart from marks, the name and the upstream.
    fn same(&self, package: &str, other: &Self) -> bool {
        let kptfiles = self.kptfiles.get(package).zip(other.kptfiles.get(package));
        let same_file = |path: &str, has_objects: bool| {
            self.tree.get(path) == other.tree.get(path) || (has_objects && self.same_objects(package, path, other))
        };
        kptfiles.is_some_and(|(one, other)| kptfiles::same(one, other))
            && self.files.get(package) == other.files.get(package)
            && self.files.get(package).into_iter().flatten().all(|(path, has_objects)| same_file(path, *has_objects))
    }

    fn same_objects(&self, package: &str, path: &str, other: &Self) -> bool {
        let values = self.values(package, path);
        values.is_some() && values == other.values(package, path)
    }

    /// The objects of a file without their marks, in any order; `None` when they cannot be read.
    fn values(&self, package: &str, path: &str) -> Option<Vec<Value>> {
        let resources = read_file(self.tree, package, path).ok()?;
        let mut values: Vec<Value> = resources.iter().map(unmarked).collect();
        values.sort_by_cached_key(Value::to_string);
        Some(values)
    }
}
