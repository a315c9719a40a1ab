//! The YAML and JSON files of a folder in the tree of a commit, as [`content`](super::content) reads them from Git's objects.

use std::fs;
use std::path::Path;

use super::SourceFile;
use super::content::{DEEPEST, MOST_BYTES, MOST_FILES, is_readable, link, too_large};
use crate::failure::Failure;

/// The files below a folder of a tree, sorted by path; none where there is no such folder.
pub(crate) fn files_of_folder(root: &Path, folder: &str) -> Result<Vec<SourceFile>, Failure> {
    let mut reading = Reading { root, files: Vec::new(), bytes: 0 };
    // A link may lead to a folder of another commit.
    let mut around = Path::new(folder).ancestors().filter(|part| !part.as_os_str().is_empty());
    let is_folder = |part: &Path| root.join(part).symlink_metadata().is_ok_and(|found| found.is_dir());
    if around.all(is_folder) {
        reading.folder(folder, 0)?;
    }
    reading.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(reading.files)
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
    fn links_of_a_folder_lead_nowhere() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let write = |path: std::path::PathBuf| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "a: 1\n").unwrap();
        };
        for path in ["s/b/a.yaml", "s/a.json", "s/c.txt", "s/.d.yaml"] {
            write(root.path().join(path));
        }
        write(outside.path().join("a.yaml"));
        let paths = |folder: &str| {
            let files = files_of_folder(root.path(), folder)?;
            Ok::<_, Failure>(files.into_iter().map(|file| file.path).collect::<Vec<_>>())
        };
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("s/link")).unwrap();
        assert_eq!(paths("s").unwrap(), ["s/a.json", "s/b/a.yaml"]);
        assert!(paths("link").unwrap().is_empty() && paths("none").unwrap().is_empty());
        std::os::unix::fs::symlink("a.json", root.path().join("s/b.yaml")).unwrap();
        assert_eq!(paths("s").unwrap_err().problems()[0].file, "s/b.yaml");
    }
}
