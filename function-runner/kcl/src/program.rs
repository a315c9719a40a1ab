//! A program, whose files are below a folder.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::outcome::{Error, Problem, code};

/// A program. Its files are below a folder, the root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The folder in which the program runs, from the root. The paths of entries start here.
    pub folder: String,
    /// The files to evaluate, in order, such as `../base/base.k`. A later entry can override configurations of an earlier one.
    pub entries: Vec<String>,
    /// The packages that the program imports by name, those of packages included.
    pub packages: Vec<Package>,
    /// The values of `option()`. The last one of a name counts.
    pub options: Vec<Parameter>,
    /// How the result is made.
    pub settings: Settings,
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// The name of the option.
    pub name: String,
    /// The value. A text may stand for another type.
    pub value: serde_json::Value,
    /// Whether the caller gives it to every program, also to one without such an option.
    pub is_common: bool,
    /// The origin of a value that may be secret. Messages name it instead of the value.
    pub origin: Option<String>,
}

/// A package outside the module of the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// The name that imports use.
    pub name: String,
    /// The folder, from the root.
    pub path: String,
}

/// Settings that `kcl_cli_configs` of a `kcl.yaml` has too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Leaves out keys and list items that are None.
    pub disable_none: bool,
    /// Adds `_type` to each instance of a schema, as its last key.
    pub include_schema_type_path: bool,
    /// Adds names that begin with an underscore.
    pub show_hidden: bool,
    /// Sorts the keys of all maps.
    pub sort_keys: bool,
    /// Limits integers to 32 bits.
    pub strict_range_check: bool,
    /// Changes of definitions, such as `app.replicas=2`.
    pub overrides: Vec<String>,
    /// The values that the result has; all without any.
    pub path_selector: Vec<String>,
}

impl Program {
    /// Checks that all entries and packages exist, since the library drops missing ones. Returns the paths of the entries from the
    /// root.
    pub(crate) fn check(&self, root: &Path) -> Result<Vec<String>, Error> {
        let mut problems = Vec::new();
        let mut paths = Vec::new();
        let missing = |message: String| Problem::new(code::MISSING, message).in_file(&self.folder);
        if self.entries.is_empty() {
            problems.push(missing("the program has no entries; name at least one file".to_owned()));
        }
        for entry in &self.entries {
            let path = normalized(&self.folder, entry);
            let place = path.as_ref().map(|path| root.join(path));
            match (path, place) {
                (Some(path), Some(place)) if place.is_file() => paths.push(path),
                (_, Some(place)) if place.is_dir() => {
                    problems.push(missing(format!("entry {entry:?} is a folder; name its files")));
                }
                (_, Some(_)) => problems.push(missing(format!("entry {entry:?} does not exist"))),
                (_, None) => problems.push(missing(format!("entry {entry:?} leads out of the source"))),
            }
        }
        let mut packages: BTreeMap<&str, &str> = BTreeMap::new();
        for Package { name, path } in &self.packages {
            if normalized("", path).is_none_or(|plain| plain != *path || !root.join(path).is_dir()) {
                problems.push(missing(format!("package {name} has no folder {path:?}")));
            }
            if packages.insert(name, path).is_some_and(|other| other != path) {
                problems.push(missing(format!("package {name} has two folders; use one version of it")));
            }
        }
        if problems.is_empty() { Ok(paths) } else { Err(Error::Program(problems)) }
    }
}

/// A path from the root, for one from a folder; nothing if it leads out of the root, or is absolute.
pub fn normalized(folder: &str, path: &str) -> Option<String> {
    if path.starts_with('/') || path.contains(['\0', '\\']) {
        return None;
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn root(files: &[&str]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        root
    }

    fn program(entries: &[&str]) -> Program {
        let entries = entries.iter().map(|entry| (*entry).to_owned()).collect();
        Program { folder: "shop/prod".to_owned(), entries, ..Program::default() }
    }

    fn messages(program: &Program, root: &TempDir) -> Vec<String> {
        match program.check(root.path()) {
            Err(Error::Program(problems)) => problems.into_iter().map(|problem| problem.message).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn entries_exist() {
        let files = ["shop/base/base.k", "shop/prod/main.k"];
        let root = root(&files);
        let paths = program(&["../base/base.k", "./main.k"]).check(root.path()).unwrap();
        assert_eq!(paths, files);
        let wrong = program(&["main.k", "missing.k", "../base", "../../../x.k", "/etc/passwd"]);
        let expected = [
            r#"entry "missing.k" does not exist"#,
            r#"entry "../base" is a folder; name its files"#,
            r#"entry "../../../x.k" leads out of the source"#,
            r#"entry "/etc/passwd" leads out of the source"#,
        ];
        assert_eq!(messages(&wrong, &root), expected);
        assert_eq!(messages(&program(&[]), &root), ["the program has no entries; name at least one file"]);
    }

    #[test]
    fn packages_have_one_folder_each() {
        let root = root(&["shop/prod/main.k", "kam/app.k", "kam2/app.k"]);
        let mut program = program(&["main.k"]);
        let package = |path: &str| Package { name: "kam".to_owned(), path: path.to_owned() };
        program.packages = vec![package("kam"), package("kam")];
        program.check(root.path()).unwrap();
        program.packages = vec![package("kam"), package("kam2"), package("kam3"), package("../kam")];
        let expected = [
            "package kam has two folders; use one version of it",
            r#"package kam has no folder "kam3""#,
            "package kam has two folders; use one version of it",
            r#"package kam has no folder "../kam""#,
            "package kam has two folders; use one version of it",
        ];
        assert_eq!(messages(&program, &root), expected);
    }
}
