//! Merges a package and the packages in its folders.

use std::collections::{BTreeMap, BTreeSet};

use super::actions::{Action, Planned, actions};
use super::{Side, UpdateConflict, UpdateError, files, kptfile, kptfiles, objects};
use crate::files::{IGNORE_FILE, KPTFILE, Tree, file_name, join, package_of, packages};
use crate::identity::{changed_file, marked};
use crate::kptfile::Kptfile;
use crate::merge::{Cause, Definitions, Sides};
use crate::resources::{self, Resource};

/// One tree, its packages and their parts.
struct Package<'t> {
    tree: &'t Tree,
    /// The files of each package, its Kptfile and files with objects apart.
    files: BTreeMap<&'t str, BTreeSet<&'t str>>,
    kptfiles: BTreeMap<&'t str, Kptfile>,
    resources: &'t [Resource],
}

impl<'t> Package<'t> {
    fn read(side: Side, tree: &'t Tree, resources: &'t [Resource]) -> Result<Self, UpdateError> {
        let mut kptfiles = BTreeMap::new();
        for package in packages(tree) {
            if let Some(kptfile) = kptfile(side, tree, package)? {
                kptfiles.insert(package, kptfile);
            }
        }
        let with_objects: BTreeSet<&str> =
            crate::files::resource_files(tree).into_iter().map(|file| file.path).collect();
        let mut files: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for path in tree.paths().filter(|path| !with_objects.contains(path) && file_name(path) != KPTFILE) {
            files.entry(package_of(tree, path)).or_default().insert(path);
        }
        Ok(Self { tree, files, kptfiles, resources })
    }

    fn files(&self, package: &str) -> BTreeSet<&'t str> {
        self.files.get(package).cloned().unwrap_or_default()
    }

    fn resources(&self, package: &str) -> Vec<&'t Resource> {
        self.resources.iter().filter(|resource| resource.package == package).collect()
    }
}

/// Merges upstream's changes into the local tree.
pub(super) fn merge(trees: Sides<&Tree>) -> Result<(Tree, Vec<UpdateConflict>), UpdateError> {
    let Planned { actions, mut conflicts } = actions(trees)?;
    let trees = with_merged_ignores(trees, &actions, &mut conflicts)?;
    let resources = Sides {
        origin: objects_of(Side::Origin, &trees.origin)?,
        upstream: objects_of(Side::Upstream, &trees.upstream)?,
        local: objects_of(Side::Local, &trees.local)?,
    };
    let sides = Sides {
        origin: Package::read(Side::Origin, &trees.origin, &resources.origin)?,
        upstream: Package::read(Side::Upstream, &trees.upstream, &resources.upstream)?,
        local: Package::read(Side::Local, &trees.local, &resources.local)?,
    };
    let mut definitions = Definitions::default();
    for resource in resources.upstream.iter().chain(&resources.local).chain(&resources.origin) {
        definitions.add(&resource.value);
    }
    let mut merging = Merging { sides: &sides, definitions, after: Vec::new(), conflicts };
    for (package, action) in &actions {
        merging.objects(package, *action)?;
    }
    merging.check_files(&actions)?;
    let mut result = resources::write(&trees.local, &resources.local, &merging.after)?;
    for (package, action) in &actions {
        merging.files(package, *action, &mut result)?;
    }
    merging.take_whole_files(&mut result)?;
    Ok((result, merging.conflicts))
}

struct Merging<'s> {
    sides: &'s Sides<Package<'s>>,
    definitions: Definitions,
    after: Vec<Resource>,
    conflicts: Vec<UpdateConflict>,
}

impl<'s> Merging<'s> {
    /// Collects the objects of a package afterwards.
    fn objects(&mut self, package: &str, action: Action) -> Result<(), UpdateError> {
        let local = self.sides.local.resources(package);
        match action {
            Action::Keep => self.after.extend(local.into_iter().cloned()),
            Action::Delete => {}
            Action::Merge | Action::Add => {
                let (origin, upstream) = (self.sides.origin.resources(package), self.sides.upstream.resources(package));
                let origin = if action == Action::Merge { origin } else { Vec::new() };
                let sides = Sides { origin: origin.as_slice(), upstream: &upstream, local: &local };
                let merged = objects::merge(sides, &mut self.definitions)?;
                self.after.extend(merged.resources);
                self.conflicts.extend(merged.conflicts);
            }
        }
        Ok(())
    }

    /// Checks that each file has objects of one package. A folder may be a package on one side only.
    fn check_files(&self, actions: &BTreeMap<String, Action>) -> Result<(), UpdateError> {
        let local = &self.sides.local;
        let mut packages: BTreeMap<String, &str> = BTreeMap::new();
        for resource in &self.after {
            let (file, package) = (resource.file(), resource.package.as_str());
            let is_added = actions.get(package) == Some(&Action::Add);
            let is_other_file = is_added && local.files(package_of(local.tree, &file)).contains(file.as_str());
            let other = *packages.entry(file).or_insert(package);
            if is_other_file || other != package {
                // The inner one of the two is the folder.
                let path = if other.len() > package.len() { other } else { package };
                return Err(UpdateError::PackageOnBothSides { path: path.to_owned() });
            }
        }
        Ok(())
    }

    /// Merges the Kptfile of a package and its files without objects.
    fn files(&mut self, package: &str, action: Action, result: &mut Tree) -> Result<(), UpdateError> {
        let Sides { origin, upstream, local } = self.sides;
        let path = join(package, KPTFILE);
        match action {
            Action::Keep => {}
            Action::Delete => {
                result.remove(&path);
                for file in local.files(package) {
                    result.remove(file);
                }
            }
            Action::Add => {
                for file in upstream.files(package).into_iter().chain([path.as_str()]) {
                    let Some(content) = upstream.tree.get(file) else { continue };
                    match result.get(file) {
                        // The folder is no package here, and has the file.
                        Some(own) if own != content => {
                            self.conflicts.push(UpdateConflict::of_path(file, Cause::ChangedOnBothSides));
                        }
                        _ => files::put(result, file, content)?,
                    }
                }
            }
            Action::Merge => {
                self.kptfile(package, result)?;
                let trees = Sides { origin: origin.tree, upstream: upstream.tree, local: local.tree };
                let paths = Sides {
                    origin: origin.files(package),
                    upstream: upstream.files(package),
                    local: local.files(package),
                };
                self.conflicts.extend(files::merge(trees, &paths, result)?);
            }
        }
        Ok(())
    }

    fn kptfile(&mut self, package: &str, result: &mut Tree) -> Result<(), UpdateError> {
        let path = join(package, KPTFILE);
        let source = |side: &'s Package<'s>| {
            let (kptfile, text) = (side.kptfiles.get(package)?, side.tree.text(&path)?);
            Some(kptfiles::Source { kptfile, text })
        };
        let Sides { origin, upstream, local } = self.sides;
        let sides = Sides { origin: source(origin), upstream: source(upstream), local: source(local) };
        let Some(own) = sides.local else { return Ok(()) };
        let (text, conflicts) = kptfiles::merged(package, sides, own)?;
        self.conflicts.extend(conflicts.into_iter().map(|it| UpdateConflict::of(path.clone(), it)));
        Ok(result.write(&path, text)?)
    }

    /// Takes upstream's bytes for files in which all objects are upstream's, so that the head of the file comes along.
    fn take_whole_files(&self, result: &mut Tree) -> Result<(), UpdateError> {
        let mut after: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for resource in &self.after {
            after.entry(resource.file()).or_default().push(resource.text());
        }
        let [origin, upstream] = [&self.sides.origin, &self.sides.upstream].map(|side| by_file(side.resources));
        for (path, resources) in &upstream {
            let Some(texts) = after.get(path) else { continue };
            let local = self.sides.local.tree.get(path);
            for as_fetched in [Resource::clone as fn(&Resource) -> Resource, marked] {
                let was = origin.get(path).map(|was| changed_file(self.sides.origin.tree, path, was, as_fetched));
                let is_unchanged = local.is_none_or(|local| was.is_some_and(|was| was.as_bytes() == local.content));
                let wanted: Vec<String> = resources.iter().map(|it| as_fetched(it).text()).collect();
                if is_unchanged && *texts == wanted {
                    result.write(path, changed_file(self.sides.upstream.tree, path, resources, as_fetched))?;
                }
            }
        }
        Ok(())
    }
}

fn by_file(resources: &[Resource]) -> BTreeMap<String, Vec<&Resource>> {
    let mut files: BTreeMap<String, Vec<&Resource>> = BTreeMap::new();
    for resource in resources {
        files.entry(resource.file()).or_default().push(resource);
    }
    files
}

/// The objects of a tree without its Kptfiles.
pub(super) fn objects_of(side: Side, tree: &Tree) -> Result<Vec<Resource>, UpdateError> {
    let read = resources::read(tree).map_err(|source| UpdateError::Read { side, source })?;
    Ok(read.into_iter().filter(|resource| file_name(&resource.path) != KPTFILE).collect())
}

/// The trees with the `.krmignore` files that packages have afterwards, so that all trees have objects in the same files. Of
/// packages that stay or are deleted, only the local files are left.
fn with_merged_ignores(
    trees: Sides<&Tree>,
    actions: &BTreeMap<String, Action>,
    conflicts: &mut Vec<UpdateConflict>,
) -> Result<Sides<Tree>, UpdateError> {
    let mut with = trees.map(Tree::clone);
    for (package, action) in actions {
        let path = join(package, IGNORE_FILE);
        let files = trees.map(|tree| tree.get(&path).cloned());
        match action {
            Action::Merge => {
                let (merged, cause) = files::merged(files);
                conflicts.extend(cause.map(|cause| UpdateConflict::of_path(&path, cause)));
                for tree in [&mut with.origin, &mut with.upstream, &mut with.local] {
                    match &merged {
                        Some(file) => files::put(tree, &path, file)?,
                        None => drop(tree.remove(&path)),
                    }
                }
            }
            Action::Add => {
                // The folder is no package here, and has the file.
                if let Some(local) = files
                    .local
                    .as_ref()
                    .filter(|local| Some(*local) != files.upstream.as_ref() && Some(*local) != files.origin.as_ref())
                {
                    conflicts.push(UpdateConflict::of_path(&path, Cause::ChangedOnBothSides));
                    files::put(&mut with.upstream, &path, local)?;
                }
            }
            Action::Keep | Action::Delete => {}
        }
    }
    for (tree, all) in [(&mut with.origin, trees.origin), (&mut with.upstream, trees.upstream)] {
        let is_local = |path: &&str| matches!(actions.get(package_of(all, path)), Some(Action::Keep | Action::Delete));
        for path in all.paths().filter(is_local) {
            tree.remove(path);
        }
    }
    Ok(with)
}
