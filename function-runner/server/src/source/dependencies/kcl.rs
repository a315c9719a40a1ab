//! What a program in KCL reads outside of its folder: entries, imported packages, modules, and the files of its project.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use git2::{ObjectType, Tree};

use super::{Dependencies, Outside, is_below, join, resolve};
use crate::generate::kcl::layout;
use crate::generate::kcl::module_file::{self, ModuleFile, Source};
use crate::source::lock::folders_around;

/// The most files of a stack that are read for their imports.
const MOST_FILES: usize = 10_000;
/// The package that reads files of any path.
const FILES: &str = "file";

/// A source of KCL, and the folder where its imports start.
type Reached = (String, Rc<str>);

impl Dependencies<'_> {
    /// What a program reads: its entries, the packages that they import, modules with their dependencies, the project's base, and
    /// `project.yaml`.
    pub(super) fn kcl(&self, outside: &mut Outside<'_, '_>) {
        let (root, stack) = (outside.root, outside.stack);
        let own = names(self, root, stack);
        if !own.iter().any(|name| is_source(name) || [module_file::NAME, layout::SETTINGS].contains(&name.as_str())) {
            return;
        }
        for (name, wanted) in
            [(layout::PROJECT, own.iter().any(|name| name == layout::STACK)), (module_file::NAME, true)]
        {
            if let Some(folder) = nearest(root, stack, name).filter(|_| wanted) {
                outside.add(&join(folder, name));
            }
        }
        let module = nearest(root, stack, module_file::NAME);
        let packages = match module {
            Some(module) => self.packages(outside, module),
            None => BTreeMap::new(),
        };
        let mut waiting: Vec<Reached> = Vec::new();
        for entry in self.entries(root, stack, module) {
            waiting.extend(self.add_entry(outside, &entry));
        }
        let base = stack.rsplit_once('/').map(|(parent, _)| parent).or((!stack.is_empty()).then_some(""));
        if let Some(base) = base.map(|parent| join(parent, layout::BASE)) {
            waiting.extend(self.add_entry(outside, &base));
        }
        self.follow(outside, waiting, &packages);
    }

    /// The files and folders that a stack names as entries, and its own folder.
    fn entries(&self, root: &Tree<'_>, stack: &str, module: Option<&str>) -> BTreeSet<String> {
        let own = self.module_file(root, stack).map(|file| file.entries).unwrap_or_default();
        let of_settings = self.texts(root, &join(stack, layout::SETTINGS));
        let path = |text: &String| match text.strip_prefix(layout::MODULE) {
            Some(rest) => resolve(module.unwrap_or(stack), rest.trim_start_matches('/')),
            None => resolve(stack, text),
        };
        own.iter().chain(&of_settings).filter_map(path).chain([stack.to_owned()]).collect()
    }

    /// Adds an entry, and the folder around a file unless that has the stack; the sources in it.
    fn add_entry(&self, outside: &mut Outside<'_, '_>, entry: &str) -> Vec<Reached> {
        let root = outside.root;
        let is_folder = entry.is_empty() || kind(root, entry) == Some(ObjectType::Tree);
        let folder = if is_folder { entry } else { entry.rsplit_once('/').map_or("", |(folder, _)| folder) };
        let files: Vec<String> = match is_folder {
            true => sources(self, root, entry),
            false if is_source(entry) && outside.add(entry) => vec![entry.to_owned()],
            false => return Vec::new(),
        };
        add_folder(outside, folder, &files);
        let start: Rc<str> = nearest(root, folder, module_file::NAME).unwrap_or(folder).into();
        files.into_iter().map(|file| (file, start.clone())).collect()
    }

    /// Adds the packages that sources import, and those that they import.
    fn follow(&self, outside: &mut Outside<'_, '_>, mut waiting: Vec<Reached>, packages: &BTreeMap<String, String>) {
        let (mut visited, mut imported) = (HashSet::new(), HashSet::new());
        while let Some((file, start)) = waiting.pop() {
            if visited.len() >= MOST_FILES || !visited.insert((file.clone(), start.clone())) {
                continue;
            }
            let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
            for import in self.imports_of(outside.root, &file).iter() {
                if import == FILES {
                    // Its paths are not known before the program runs.
                    outside.add("");
                }
                let first = import.split('.').next().unwrap_or_default();
                let Some(path) = path_of_import(import, folder, &start).filter(|_| !packages.contains_key(first))
                else {
                    continue;
                };
                if !imported.insert((path.clone(), start.clone())) {
                    continue;
                }
                let source = format!("{path}{}", layout::K);
                if outside.add(&source) {
                    waiting.push((source, start.clone()));
                }
                if !path.is_empty() && kind(outside.root, &path) == Some(ObjectType::Tree) {
                    let files = sources(self, outside.root, &path);
                    add_folder(outside, &path, &files);
                    waiting.extend(files.into_iter().map(|file| (file, start.clone())));
                }
            }
        }
    }

    /// Adds the folders of the packages of a module, and of their packages. They are by the names that imports use.
    fn packages(&self, outside: &mut Outside<'_, '_>, module: &str) -> BTreeMap<String, String> {
        let (mut found, mut visited) = (BTreeMap::new(), HashSet::new());
        let mut waiting = vec![module.to_owned()];
        while let Some(folder) = waiting.pop() {
            if !visited.insert(folder.clone()) {
                continue;
            }
            for dependency in self.module_file(outside.root, &folder).map(|file| file.dependencies).unwrap_or_default()
            {
                let version =
                    |of: &str, version: Option<&str>| join(of, &layout::vendored_name(&dependency.name, version));
                let candidates: Vec<String> = match &dependency.source {
                    Source::Path(path) => resolve(&folder, path).into_iter().collect(),
                    Source::Remote { version: named, .. } => [folder.as_str(), module]
                        .into_iter()
                        .flat_map(|of| [version(of, named.as_deref()), version(of, None)])
                        .collect(),
                };
                let Some(path) = candidates.into_iter().find(|path| outside.add(path)) else { continue };
                found.insert(dependency.import_name(), path.clone());
                waiting.push(path);
            }
        }
        found
    }

    fn module_file(&self, root: &Tree<'_>, folder: &str) -> Option<ModuleFile> {
        let (_, text) = self.text(root, &join(folder, module_file::NAME))?;
        // The generator says what is wrong with it.
        module_file::read(&text).ok()
    }

    /// The packages that a source imports.
    fn imports_of(&self, root: &Tree<'_>, file: &str) -> Rc<[String]> {
        let none = || Rc::from([]);
        let Ok(entry) = root.get_path(file.as_ref()) else { return none() };
        if let Some(known) = self.imports.borrow().get(&entry.id()) {
            return known.clone();
        }
        let Some((id, text)) = self.text(root, file) else { return none() };
        let imports: Rc<[String]> = imports(&text).into();
        self.imports.borrow_mut().insert(id, imports.clone());
        imports
    }
}

/// Adds a folder as a whole; of one around the stack only these files, since it has other stacks too.
fn add_folder(outside: &mut Outside<'_, '_>, folder: &str, files: &[String]) {
    if is_below(outside.stack, folder) {
        for file in files {
            outside.add(file);
        }
    } else {
        outside.add(folder);
    }
}

/// The nearest folder upwards with a file of this name.
fn nearest<'p>(root: &Tree<'_>, folder: &'p str, name: &str) -> Option<&'p str> {
    folders_around(folder).find(|folder| kind(root, &join(folder, name)) == Some(ObjectType::Blob))
}

fn kind(root: &Tree<'_>, path: &str) -> Option<ObjectType> {
    root.get_path(path.as_ref()).ok()?.kind()
}

/// The names right in a folder.
fn names(of: &Dependencies<'_>, root: &Tree<'_>, folder: &str) -> Vec<String> {
    let all = |tree: &Tree<'_>| tree.iter().filter_map(|entry| Some(entry.name().ok()?.to_owned())).collect();
    if folder.is_empty() {
        return all(root);
    }
    let found = root.get_path(folder.as_ref()).and_then(|entry| of.repository.find_tree(entry.id()));
    found.map(|tree| all(&tree)).unwrap_or_default()
}

/// The paths of the sources right in a folder.
fn sources(of: &Dependencies<'_>, root: &Tree<'_>, folder: &str) -> Vec<String> {
    names(of, root, folder).iter().filter(|name| is_source(name)).map(|name| join(folder, name)).collect()
}

fn is_source(name: &str) -> bool {
    name.ends_with(layout::K)
}

/// The path of an imported package without `.k`: from the folder where imports start, or from that of the file with as many dots.
fn path_of_import(import: &str, folder: &str, start: &str) -> Option<String> {
    let name = import.trim_start_matches('.');
    let from = match import.len() - name.len() {
        0 => start.to_owned(),
        dots => resolve(folder, &"../".repeat(dots - 1))?,
    };
    resolve(&from, &name.replace('.', "/"))
}

/// The names in the import statements of a source. A line of a text that looks like one counts too.
fn imports(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix("import")?;
        let rest = rest.strip_prefix([' ', '\t'])?.trim_start();
        let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '#' | ';')).unwrap_or(rest.len());
        let name = rest[..end].trim_matches(['"', '\'']);
        (!name.is_empty()).then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_in_all_forms() {
        let text = "import a.b as c\n  import .near\nimport ..up.x # y\nimport\tmath\nimportant = 1\nx = \"import z\"\nimport a.b\n";
        assert_eq!(imports(text), ["..up.x", ".near", "a.b", "math"]);
        let path = |import: &str| path_of_import(import, "shop/prod", "shop");
        assert_eq!(path("a.b").as_deref(), Some("shop/a/b"));
        assert_eq!(path(".near").as_deref(), Some("shop/prod/near"));
        assert_eq!(path("..up.x").as_deref(), Some("shop/up/x"));
        assert_eq!(path("....x"), None);
    }
}
