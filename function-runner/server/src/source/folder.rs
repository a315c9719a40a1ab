//! The YAML and JSON files of a folder in the tree of a commit, as [`content`](super::content) reads them from Git's objects.

use std::fs;
use std::path::Path;

use super::SourceFile;
use super::content::{DEEPEST, MOST_BYTES, MOST_FILES, is_readable, link, too_large};
use crate::failure::Failure;

/// The files below a folder of a stack's folder in a tree, sorted by path; none where there is no such folder.
///
/// # Errors
///
/// A link among them or on the way to them, and too many files.
pub(crate) fn files_of_folder(root: &Path, stack: &str, folder: &str) -> Result<Vec<SourceFile>, Failure> {
    let mut reading = Reading { root, files: Vec::new(), bytes: 0 };
    if is_folder(root, stack, folder)? {
        reading.folder(folder, 0)?;
    }
    reading.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(reading.files)
}

/// Whether a path is a folder of the tree. A link on the way may lead to a folder of another commit. Tools follow a link on the way to
/// the stack, so that one is an error only if it leads to the path. With an empty stack, each link on the way is an error.
pub(crate) fn is_folder(root: &Path, stack: &str, path: &str) -> Result<bool, Failure> {
    let leads_to_it = || {
        let (root, target) = (root.canonicalize().ok()?, root.join(path).canonicalize().ok()?);
        Some(target.starts_with(root))
    };
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    for part in ends.filter_map(|end| path.get(..end)) {
        match root.join(part).symlink_metadata() {
            Ok(found) if found.is_symlink() && (part.len() > stack.len() || leads_to_it() == Some(true)) => {
                return Err(link(part));
            }
            Ok(found) if found.is_dir() => {}
            Ok(_) | Err(_) => return Ok(false),
        }
    }
    Ok(true)
}

struct Reading<'r> {
    root: &'r Path,
    files: Vec<SourceFile>,
    bytes: u64,
}

impl Reading<'_> {
    fn folder(&mut self, folder: &str, depth: usize) -> Result<(), Failure> {
        if depth > DEEPEST {
            return Err(too_large(folder));
        }
        let failed = |err: std::io::Error| Failure::internal(&err);
        for entry in fs::read_dir(self.root.join(folder)).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                self.folder(&path, depth + 1)?;
            } else if is_readable(&name) && kind.is_symlink() {
                return Err(link(&path));
            } else if is_readable(&name) {
                self.bytes += entry.metadata().map_err(failed)?.len();
                if self.files.len() >= MOST_FILES || self.bytes > MOST_BYTES as u64 {
                    return Err(too_large(&path));
                }
                let bytes = fs::read(entry.path()).map_err(failed)?;
                self.files.push(SourceFile { path, bytes });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_and_folders_are_errors() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let write = |path: std::path::PathBuf| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "a: 1\n").unwrap();
        };
        for path in ["s/b/a.yaml", "s/a.json", "s/c.txt", "s/.d.yaml"] {
            write(root.path().join(path));
        }
        write(outside.path().join("sub/a.yaml"));
        let files = |stack: &str, folder: &str| {
            let files = files_of_folder(root.path(), stack, folder)?;
            Ok::<_, Failure>(files.into_iter().map(|file| file.path).collect::<Vec<_>>())
        };
        let refused = |stack: &str, folder: &str| files(stack, folder).unwrap_err().problems()[0].file.clone();
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("s/link")).unwrap();
        std::os::unix::fs::symlink("s", root.path().join("inside")).unwrap();
        assert_eq!(files("", "s").unwrap(), ["s/a.json", "s/b/a.yaml"]);
        assert_eq!((refused("", "link"), refused("", "link/none")), ("link".to_owned(), "link".to_owned()));
        assert_eq!((refused("s", "s/link"), refused("s", "s/link/none")), ("s/link".to_owned(), "s/link".to_owned()));
        assert_eq!(refused("inside", "inside/b"), "inside");
        for (stack, folder) in [("", "none"), ("s", "s/c.txt/none"), ("inside", "inside/none"), ("link", "link/sub")] {
            assert!(files(stack, folder).unwrap().is_empty(), "{folder}");
        }
        std::os::unix::fs::symlink("a.json", root.path().join("s/b.yaml")).unwrap();
        assert_eq!(refused("", "s"), "s/b.yaml");
    }
}
