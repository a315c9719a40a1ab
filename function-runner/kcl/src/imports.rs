//! The sources of a program: its entries, and the packages that they import.
//!
//! An import begins at the nearest folder with a `kcl.mod`, at the folder of the importing file, or at a package of the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::program::{Package, normalized};
use crate::scan::{Scan, scan};

/// The suffix of KCL's sources, and of those that a package leaves out.
const SOURCE: &str = ".k";
const TEST: &str = "_test.k";
/// The file at the root of a module.
const MODULE: &str = "kcl.mod";
/// The most sources of a program. The library fails long before.
const MOST: usize = 20_000;

/// A source, with its facts.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path from the root.
    pub(crate) path: String,
    pub(crate) is_entry: bool,
    pub(crate) text: String,
    pub(crate) scan: Scan,
}

/// Reads the entries, and all that they import. Files that cannot be read are left to the library.
pub(crate) fn sources(root: &Path, entries: &[String], packages: &[Package]) -> Vec<Source> {
    let mut sources: Vec<Source> = Vec::new();
    let mut waiting: Vec<(String, bool)> = entries.iter().rev().map(|entry| (entry.clone(), true)).collect();
    let mut seen: BTreeSet<String> = entries.iter().cloned().collect();
    let mut folders: BTreeSet<String> = BTreeSet::new();
    while let Some((path, is_entry)) = waiting.pop() {
        if sources.len() == MOST {
            break;
        }
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        let scan = scan(&text);
        let imported = scan.imports.iter().filter_map(|import| target(root, &path, import, packages));
        for (folder, name) in imported {
            if folders.insert(format!("{folder}/{name}")) {
                let files = files(root, &folder, name);
                waiting.extend(files.into_iter().filter(|file| seen.insert(file.clone())).map(|file| (file, false)));
            }
        }
        sources.push(Source { path, is_entry, text, scan });
    }
    sources
}

/// The folder in which an import is a folder or a file, and its name.
fn target<'a>(root: &Path, file: &str, import: &'a str, packages: &[Package]) -> Option<(String, &'a str)> {
    let own = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let dots = import.len() - import.trim_start_matches('.').len();
    let names = &import[dots..];
    let (start, names) = match dots {
        0 => match packages.iter().find(|package| names.split('.').next() == Some(package.name.as_str())) {
            Some(package) => (package.path.clone(), names.split_once('.').map_or("", |(_, rest)| rest)),
            None => (module(root, own), names),
        },
        _ => (normalized(own, &"../".repeat(dots - 1))?, names),
    };
    let (parents, name) = names.rsplit_once('.').unwrap_or(("", names));
    Some((normalized(&start, &parents.replace('.', "/"))?, name))
}

/// The module of a folder: the nearest one upwards with a `kcl.mod`, or the folder itself.
pub(crate) fn module(root: &Path, folder: &str) -> String {
    let mut at = folder;
    loop {
        if root.join(at).join(MODULE).is_file() {
            return at.to_owned();
        }
        match at.rsplit_once('/') {
            Some((parent, _)) => at = parent,
            None if !at.is_empty() => at = "",
            None => return folder.to_owned(),
        }
    }
}

/// The sources of a package: a folder, or one file.
fn files(root: &Path, folder: &str, name: &str) -> Vec<String> {
    let path = normalized(folder, name).unwrap_or_default();
    let Ok(entries) = fs::read_dir(root.join(&path)) else {
        return vec![format!("{path}{SOURCE}")];
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let taken = names.filter(|name| name.ends_with(SOURCE) && !name.ends_with(TEST) && !name.starts_with('_'));
    let mut files: Vec<String> = taken.filter_map(|name| normalized(&path, &name)).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_lead_to_modules_folders_and_packages() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("shop/kcl.mod", ""),
            (
                "shop/prod/main.k",
                "import lib.deep\nimport .near\nimport ..up\nimport kam.v1 as ac\nimport missing\nimport regex\n",
            ),
            ("shop/prod/near/n.k", "import lib\n"),
            ("shop/up.k", ""),
            ("shop/lib/l.k", ""),
            ("shop/lib/l_test.k", ""),
            ("shop/lib/_l.k", ""),
            ("shop/lib/deep/d.k", "import lib.deep\n"),
            ("shop/other/o.k", ""),
            ("kam/v1/a.k", "import parts\n"),
            ("parts/p.k", ""),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let package = |name: &str| Package { name: name.to_owned(), path: name.to_owned() };
        let found = sources(root.path(), &["shop/prod/main.k".to_owned()], &[package("kam"), package("parts")]);
        let mut paths: Vec<_> = found.iter().map(|source| source.path.as_str()).collect();
        paths.sort_unstable();
        let expected = [
            "kam/v1/a.k",
            "parts/p.k",
            "shop/lib/deep/d.k",
            "shop/lib/l.k",
            "shop/prod/main.k",
            "shop/prod/near/n.k",
            "shop/up.k",
        ];
        assert_eq!(paths, expected);
        assert_eq!(found.iter().filter(|source| source.is_entry).count(), 1);
    }
}
