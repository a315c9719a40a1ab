//! Trees for tests, without a working copy.

use git2::{Index, IndexEntry, IndexTime, Oid, Repository};

/// Writes a tree with exactly these files, by path and text, and returns its id. Paths may have folders.
pub fn tree(repository: &Repository, files: &[(&str, &str)]) -> Oid {
    let mut index = Index::new().unwrap();
    let time = IndexTime::new(0, 0);
    for (path, text) in files {
        let id = repository.blob(text.as_bytes()).unwrap();
        let entry = IndexEntry {
            ctime: time,
            mtime: time,
            dev: 0,
            ino: 0,
            mode: 0o100_644,
            uid: 0,
            gid: 0,
            file_size: 0,
            id,
            flags: 0,
            flags_extended: 0,
            path: path.as_bytes().to_vec(),
        };
        index.add(&entry).unwrap();
    }
    index.write_tree_to(repository).unwrap()
}
