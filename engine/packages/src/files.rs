//! The files of a package, and of the packages in its folders.
//!
//! Start at [`Tree`]. [`packages`] finds its packages and [`resource_files`] the files that have objects. The rules of
//! `.krmignore` are in `ignore`.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::ignore::Rules;

/// The name of the file that makes a folder a package.
pub const KPTFILE: &str = "Kptfile";

/// The name of the file that excludes files of its package.
pub const IGNORE_FILE: &str = ".krmignore";

/// The size of a path in bytes.
const MAX_PATH: usize = 4096;

/// How large a tree may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of files.
    pub files: usize,
    /// The size of one file, in bytes.
    pub file_bytes: usize,
    /// The size of all files, in bytes.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { files: 100_000, file_bytes: 32 << 20, bytes: 512 << 20 }
    }
}

/// The kind of an entry, as Git has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A file.
    Regular,
    /// A file that may be executed.
    Executable,
    /// A symbolic link. Packages have none.
    Link,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its bytes.
    pub content: Bytes,
    /// Whether it may be executed.
    pub is_executable: bool,
}

/// The files of a folder, by path. A path is relative, has `/` between its segments and names a file of the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    files: BTreeMap<String, File>,
}

/// Why a tree is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The path is no path of a file in a package.
    #[error("file {path:?} {problem}; rename it")]
    Path {
        /// The path.
        path: String,
        /// The problem, as the rest of a sentence.
        problem: &'static str,
    },
    /// The entry is a symbolic link.
    #[error("{path} is a symbolic link, which packages cannot have; replace it with a copy of the file")]
    Link {
        /// The path.
        path: String,
    },
    /// A file has the name of a folder.
    #[error("{path} is a file and a folder; rename one of them")]
    FileAndFolder {
        /// The path that is both.
        path: String,
    },
    /// The tree has too many files.
    #[error("the package has {files} files, more than {limit}; split it")]
    TooManyFiles {
        /// The number of files.
        files: usize,
        /// The limit.
        limit: usize,
    },
    /// A file is too large.
    #[error("{path} has {bytes} bytes, more than {limit}; keep it outside of the package")]
    FileTooLarge {
        /// The file.
        path: String,
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// All files together are too large.
    #[error("the package has {bytes} bytes, more than {limit}; split it")]
    TooLarge {
        /// The size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

impl Tree {
    /// Adds a file, or replaces the one at this path.
    ///
    /// # Errors
    ///
    /// [`TreeError::Link`] for a symbolic link, [`TreeError::Path`] for a path that leads out of the tree or into `.git`,
    /// and [`TreeError::FileAndFolder`].
    pub fn add(&mut self, path: &str, mode: Mode, content: impl Into<Bytes>) -> Result<(), TreeError> {
        self.check_path(path)?;
        let is_executable = match mode {
            Mode::Regular => false,
            Mode::Executable => true,
            Mode::Link => return Err(TreeError::Link { path: path.to_owned() }),
        };
        self.files.insert(path.to_owned(), File { content: content.into(), is_executable });
        Ok(())
    }

    /// Sets the content of a file. A file that exists keeps its mode.
    ///
    /// # Errors
    ///
    /// As [`Tree::add`].
    pub fn write(&mut self, path: &str, content: impl Into<Bytes>) -> Result<(), TreeError> {
        let is_executable = self.files.get(path).is_some_and(|file| file.is_executable);
        self.add(path, if is_executable { Mode::Executable } else { Mode::Regular }, content)
    }

    /// Removes a file.
    pub fn remove(&mut self, path: &str) -> Option<File> {
        self.files.remove(path)
    }

    /// One file.
    pub fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// The content of a file as text; `None` if there is no such file, or it is not UTF-8.
    pub fn text(&self, path: &str) -> Option<&str> {
        std::str::from_utf8(&self.files.get(path)?.content).ok()
    }

    /// All files, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// The paths of all files, in order.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The files below a folder, by their paths in it. The empty name is the whole tree.
    #[must_use]
    pub fn folder(&self, name: &str) -> Self {
        if name.is_empty() {
            return self.clone();
        }
        let prefix = format!("{name}/");
        let files = self.files.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        Self { files: files.map(|(path, file)| (path[prefix.len()..].to_owned(), file.clone())).collect() }
    }

    /// Checks the size of the tree.
    ///
    /// # Errors
    ///
    /// [`TreeError::TooManyFiles`], [`TreeError::FileTooLarge`] and [`TreeError::TooLarge`].
    pub fn check(&self, limits: &Limits) -> Result<(), TreeError> {
        if self.len() > limits.files {
            return Err(TreeError::TooManyFiles { files: self.len(), limit: limits.files });
        }
        let mut bytes: usize = 0;
        for (path, file) in self.iter() {
            let size = file.content.len();
            if size > limits.file_bytes {
                return Err(TreeError::FileTooLarge { path: path.to_owned(), bytes: size, limit: limits.file_bytes });
            }
            bytes = bytes.saturating_add(size);
        }
        if bytes > limits.bytes {
            return Err(TreeError::TooLarge { bytes, limit: limits.bytes });
        }
        Ok(())
    }

    fn check_path(&self, path: &str) -> Result<(), TreeError> {
        if let Some(problem) = path_problem(path) {
            return Err(TreeError::Path { path: path.to_owned(), problem });
        }
        let both = |path: &str| Err(TreeError::FileAndFolder { path: path.to_owned() });
        if let Some(parent) = folders(path).find(|folder| self.files.contains_key(*folder)) {
            return both(parent);
        }
        let inside = format!("{path}/");
        if self.files.range(inside.clone()..).next().is_some_and(|(other, _)| other.starts_with(&inside)) {
            return both(path);
        }
        Ok(())
    }
}

/// The problem of a path as the rest of a sentence about it; `None` for a path that a package can have.
pub(crate) fn path_problem(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("has no name");
    }
    if path.len() > MAX_PATH {
        return Some("has a path of more than 4096 bytes");
    }
    if path.starts_with('/') {
        return Some("has an absolute path");
    }
    if path.contains('\\') {
        return Some("has a backslash in its path");
    }
    if path.chars().any(char::is_control) {
        return Some("has a control character in its path");
    }
    path.split('/').find_map(|segment| match segment {
        "" => Some("has an empty segment in its path"),
        "." | ".." => Some("has the segment . or .. in its path"),
        _ if segment.eq_ignore_ascii_case(".git") => Some("is inside of a folder .git"),
        _ => None,
    })
}

/// The folders that a path is in, from the outermost, without the root.
pub(crate) fn folders(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// The name of a file without its folders.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// A path below a folder. The empty name is the root.
pub(crate) fn join(folder: &str, path: &str) -> String {
    if folder.is_empty() { path.to_owned() } else { format!("{folder}/{path}") }
}

/// Whether a file of this name has objects: `*.yaml`, `*.yml`, `*.json` and `Kptfile`.
pub fn has_objects(path: &str) -> bool {
    let name = file_name(path);
    name == KPTFILE || [".yaml", ".yml", ".json"].iter().any(|suffix| name.ends_with(suffix))
}

/// The folders with a Kptfile, by path; the root is the empty text.
pub fn packages(tree: &Tree) -> Vec<&str> {
    let mut found: Vec<&str> = tree.paths().filter_map(package_of_kptfile).collect();
    found.sort_unstable();
    found
}

fn package_of_kptfile(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some((folder, KPTFILE)) => Some(folder),
        None if path == KPTFILE => Some(""),
        Some(_) | None => None,
    }
}

/// The package of a file: the innermost of its folders with a Kptfile, or else the root.
pub fn package_of<'p>(tree: &Tree, path: &'p str) -> &'p str {
    let inner: Vec<&str> = folders(path).collect();
    inner.into_iter().rev().find(|folder| tree.get(&join(folder, KPTFILE)).is_some()).unwrap_or("")
}

/// A file with objects and the package that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceFile<'t> {
    /// The folder of the package; empty for the root.
    pub package: &'t str,
    /// The path in the tree.
    pub path: &'t str,
}

/// The files that [have objects](has_objects) and that the `.krmignore` of their package does not exclude, by path.
///
/// The `.krmignore` of a package says nothing about the packages in its folders, as in kyaml.
pub fn resource_files(tree: &Tree) -> Vec<ResourceFile<'_>> {
    let mut rules: BTreeMap<&str, Rules> = BTreeMap::new();
    let mut found = Vec::new();
    for path in tree.paths().filter(|path| has_objects(path)) {
        let package = package_of(tree, path);
        let rules = rules.entry(package).or_insert_with(|| ignore_rules(tree, package));
        if !rules.ignores(relative(package, path)) {
            found.push(ResourceFile { package, path });
        }
    }
    found
}

/// The rules of a package's `.krmignore`; without the file they ignore nothing.
pub(crate) fn ignore_rules(tree: &Tree, package: &str) -> Rules {
    tree.text(&join(package, IGNORE_FILE)).map_or_else(Rules::default, Rules::parse)
}

/// A path of the tree inside of a folder that it is in.
pub(crate) fn relative<'p>(folder: &str, path: &'p str) -> &'p str {
    path.strip_prefix(folder).map_or(path, |rest| rest.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, content) in paths {
            tree.write(path, content.as_bytes().to_vec()).unwrap();
        }
        tree
    }

    fn read(tree: &Tree) -> Vec<(&str, &str)> {
        resource_files(tree).into_iter().map(|file| (file.package, file.path)).collect()
    }

    #[test]
    fn paths_outside_of_the_tree_are_rejected() {
        for path in [
            "",
            "/a",
            "../a",
            "a/../b",
            "./a",
            "a//b",
            "a/",
            "a\\b",
            "a\nb",
            ".git/config",
            "x/.GIT/y",
            &"a".repeat(5000),
        ] {
            let error = Tree::default().add(path, Mode::Regular, "").unwrap_err();
            assert!(matches!(error, TreeError::Path { .. }), "{path:?}: {error}");
        }
        assert_eq!(Tree::default().add(".github/x.yaml", Mode::Regular, ""), Ok(()));
    }

    #[test]
    fn symbolic_links_are_rejected() {
        let error = Tree::default().add("a", Mode::Link, "b").unwrap_err();
        assert_eq!(
            error.to_string(),
            "a is a symbolic link, which packages cannot have; replace it with a copy of the file"
        );
    }

    #[test]
    fn file_and_folder_of_one_name_are_rejected() {
        let mut tree = tree(&[("a/b", ""), ("c", "")]);
        for path in ["a", "c/d"] {
            assert!(matches!(tree.write(path, ""), Err(TreeError::FileAndFolder { .. })), "{path}");
        }
    }

    #[test]
    fn written_file_keeps_its_mode() {
        let mut tree = Tree::default();
        tree.add("run.sh", Mode::Executable, "a").unwrap();
        tree.write("run.sh", "b").unwrap();
        assert_eq!(tree.get("run.sh"), Some(&File { content: "b".into(), is_executable: true }));
    }

    #[test]
    fn large_trees_are_rejected() {
        let tree = tree(&[("a", "12345"), ("b", "1")]);
        let limits = Limits { files: 2, file_bytes: 5, bytes: 6 };
        assert_eq!(tree.check(&limits), Ok(()));
        for (limits, expected) in [
            (Limits { files: 1, ..limits }, "the package has 2 files, more than 1; split it"),
            (Limits { file_bytes: 4, ..limits }, "a has 5 bytes, more than 4; keep it outside of the package"),
            (Limits { bytes: 5, ..limits }, "the package has 6 bytes, more than 5; split it"),
        ] {
            assert_eq!(tree.check(&limits).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn objects_are_in_files_of_some_names() {
        let tree = tree(&[
            ("Kptfile", ""),
            (".hidden/a.yaml", ""),
            (".b.yml", ""),
            ("c.json", ""),
            ("README.md", ""),
            ("d.yaml.tmpl", ""),
        ]);
        assert_eq!(read(&tree), [("", ".b.yml"), ("", ".hidden/a.yaml"), ("", "Kptfile"), ("", "c.json")]);
    }

    #[test]
    fn files_belong_to_the_innermost_package() {
        let tree = tree(&[
            ("Kptfile", ""),
            (".krmignore", "*.json\nvendor/\n"),
            ("a.yaml", ""),
            ("b.json", ""),
            ("vendor/a.yaml", ""),
            ("vendor/db/Kptfile", ""),
            ("vendor/db/.krmignore", "x.yaml"),
            ("vendor/db/b.json", ""),
            ("vendor/db/x.yaml", ""),
            ("vendor/db/in/y.yaml", ""),
        ]);
        assert_eq!(packages(&tree), ["", "vendor/db"]);
        assert_eq!(
            read(&tree),
            [
                ("", "Kptfile"),
                ("", "a.yaml"),
                ("vendor/db", "vendor/db/Kptfile"),
                ("vendor/db", "vendor/db/b.json"),
                ("vendor/db", "vendor/db/in/y.yaml"),
            ]
        );
    }

    #[test]
    fn folders_have_their_own_paths() {
        let tree = tree(&[("a/b/c", "1"), ("a/d", "2"), ("ab", "3")]);
        assert_eq!(tree.folder("a").paths().collect::<Vec<_>>(), ["b/c", "d"]);
        assert_eq!(tree.folder(""), tree);
    }
}
