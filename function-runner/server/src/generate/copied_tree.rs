//! A copy of a tree in which files of SOPS are decrypted, or which has packages beside it, for a tool that reads files itself.
//!
//! Start at [`copy`]. The copy is in the runner's temporary folder, which its user alone reads, and ends with the rendering.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use stoa_proto::Problem;
use tempfile::TempDir;

use super::sops;
use crate::failure::{Failure, problem, reason};
use crate::source::{LARGEST_FILE, SourceFile, Tree};

/// The suffixes of files that SOPS encrypts as YAML and JSON.
const SUFFIXES: [&str; 3] = ["yaml", "yml", "json"];

/// The most encrypted files of a tree, in bytes. They are in the memory of this process.
const MOST_ENCRYPTED: usize = 16 << 20;

/// The files of a tree that SOPS may have encrypted, with their paths from its root. Files without their content in the tree are none.
///
/// # Errors
///
/// `INVALID_ARGUMENT` if they are too large together.
pub(super) fn encrypted_in(root: &Path) -> Result<Vec<SourceFile>, Failure> {
    let (mut found, mut bytes) = (Vec::new(), 0_usize);
    let each = |path: &Path, kind: fs::FileType| {
        let has_suffix = path.extension().is_some_and(|suffix| SUFFIXES.iter().any(|it| suffix == *it));
        if !kind.is_file() || !has_suffix || bytes > MOST_ENCRYPTED {
            return Ok(());
        }
        let on_disk = root.join(path);
        if on_disk.symlink_metadata()?.len() > LARGEST_FILE {
            return Ok(());
        }
        let file = SourceFile { path: path.to_string_lossy().into_owned(), bytes: fs::read(on_disk)? };
        if sops::may_be_encrypted(&file) {
            bytes += file.bytes.len();
            found.push(file);
        }
        Ok(())
    };
    walk(root, Path::new(""), &mut { each }).map_err(|error| Failure::internal(&error))?;
    if bytes > MOST_ENCRYPTED {
        let message = format!(
            "the files of the repository that SOPS encrypted have more than {} MiB; use a repository of its own",
            MOST_ENCRYPTED >> 20
        );
        return Err(Failure::invalid(vec![problem(reason::TOO_LARGE, message)]));
    }
    Ok(found)
}

/// A package of a registered module, whose tree stays meanwhile.
#[derive(Clone, Debug)]
pub(super) struct AddedPackage {
    pub(super) tree: Tree,
    /// Its folder in the copy.
    pub(super) path: String,
}

/// The folders of an artifact with programs, which no package needs.
const PROGRAMS: [&str; 2] = ["_dist", "dist"];

/// Copies a tree into a new folder of another one, with another content of some files, and with packages that it does not have itself.
/// Other files are links to the same content.
pub(super) fn copy(
    root: &Path,
    replaced: &[SourceFile],
    added: &[AddedPackage],
    into: &Path,
) -> Result<TempDir, Failure> {
    let failed = |error: io::Error| Failure::internal(&error);
    let folder = tempfile::Builder::new()
        .prefix("decrypted")
        .permissions(fs::Permissions::from_mode(0o700))
        .tempdir_in(into)
        .map_err(failed)?;
    let to = folder.path().to_owned();
    let replaced: HashMap<&Path, &SourceFile> = replaced.iter().map(|file| (Path::new(&file.path), file)).collect();
    let each = |path: &Path, kind: fs::FileType| {
        let (from, to) = (root.join(path), to.join(path));
        if kind.is_dir() {
            return fs::create_dir(to);
        }
        if kind.is_symlink() {
            return std::os::unix::fs::symlink(fs::read_link(from)?, to);
        }
        match replaced.get(path) {
            Some(file) => {
                let mut new = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
                io::Write::write_all(&mut new, &file.bytes)
            }
            None => link(&from, &to),
        }
    };
    walk(root, Path::new(""), &mut { each }).map_err(failed)?;
    for AddedPackage { tree, path } in added {
        let package = folder.path().join(path);
        if package.exists() {
            // The source has a copy of its own.
            continue;
        }
        make_folder(folder.path(), path)?;
        let each = |path: &Path, kind: fs::FileType| {
            let is_of_program = PROGRAMS.iter().any(|folder| path.starts_with(folder));
            let (from, to) = (tree.root().join(path), package.join(path));
            if is_of_program || kind.is_symlink() {
                Ok(())
            } else if kind.is_dir() {
                fs::create_dir(to)
            } else {
                link(&from, &to)
            }
        };
        walk(tree.root(), Path::new(""), &mut { each }).map_err(failed)?;
    }
    Ok(folder)
}

/// Makes a folder of a copy, and those around it. A link among these may lead out of the copy, where nothing is written.
fn make_folder(copy: &Path, path: &str) -> Result<(), Failure> {
    let mut at = copy.to_owned();
    for name in path.split('/') {
        if matches!(name, "" | "." | "..") {
            return Err(Failure::request(format!("{path:?} is no folder for the package of a registered module")));
        }
        at.push(name);
        let is_folder = match at.symlink_metadata() {
            Ok(found) => found.is_dir(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir(&at).map_err(|error| Failure::internal(&error))?;
                true
            }
            Err(error) => return Err(Failure::internal(&error)),
        };
        if !is_folder {
            let message =
                format!("is no folder, so that {path} cannot have the package of a registered module; remove it");
            let file = at.strip_prefix(copy).unwrap_or(&at).to_string_lossy().into_owned();
            return Err(Failure::invalid(vec![Problem { file, ..problem(reason::INVALID_KCL, message) }]));
        }
    }
    Ok(())
}

/// Links a file to the content of another one, or copies it: the temporary folder may be on another file system.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop))
}

/// Calls a function with each entry below a folder of a tree, by its path from the root. Folders come before their entries, and no link
/// is followed.
fn walk(root: &Path, folder: &Path, each: &mut impl FnMut(&Path, fs::FileType) -> io::Result<()>) -> io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let (path, kind) = (folder.join(entry.file_name()), entry.file_type()?);
        each(&path, kind)?;
        if kind.is_dir() {
            walk(root, &path, each)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENCRYPTED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../sops/tests/data/secret.enc.yaml"));

    #[test]
    fn copy_has_other_content_and_leaves_the_tree() {
        let (tree, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(tree.path().join("web/base")).unwrap();
        for (path, text) in
            [("web/main.k", "a = 1\n"), ("web/base/secret.yaml", ENCRYPTED), ("web/plain.yaml", "a: 1\n")]
        {
            fs::write(tree.path().join(path), text).unwrap();
        }
        std::os::unix::fs::symlink("main.k", tree.path().join("web/link.k")).unwrap();
        let found = encrypted_in(tree.path()).unwrap();
        assert_eq!(found.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["web/base/secret.yaml"]);
        let plain = SourceFile { path: "web/base/secret.yaml".to_owned(), bytes: b"a: b\n".to_vec() };
        let copied = copy(tree.path(), &[plain], &[], temporary.path()).unwrap();
        let read = |path: &str| fs::read_to_string(copied.path().join(path)).unwrap();
        assert_eq!((read("web/base/secret.yaml").as_str(), read("web/link.k").as_str()), ("a: b\n", "a = 1\n"));
        assert_eq!(fs::read_to_string(tree.path().join("web/base/secret.yaml")).unwrap(), ENCRYPTED);
        let path = copied.path().to_owned();
        drop(copied);
        assert!(!path.exists());
    }

    #[test]
    fn package_is_never_written_through_a_link() {
        let (copy, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (link, folder) in [("vendor", "vendor/network_1"), ("a", "a"), ("b", "b/c/d")] {
            std::os::unix::fs::symlink(outside.path(), copy.path().join(link)).unwrap();
            let problem = make_folder(copy.path(), folder).unwrap_err().problems()[0].clone();
            assert_eq!((problem.file.as_str(), problem.reason.as_str()), (link, reason::INVALID_KCL));
        }
        for path in ["..", "x/../../y", "/x", "x//y", ""] {
            assert!(make_folder(copy.path(), path).is_err(), "{path}");
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        make_folder(copy.path(), "modules/network_1").unwrap();
        assert!(copy.path().join("modules/network_1").is_dir());
    }

    #[test]
    fn encrypted_files_have_limits() {
        let tree = tempfile::tempdir().unwrap();
        let padded = |bytes: usize| format!("{ENCRYPTED}{}", "#".repeat(bytes - ENCRYPTED.len()));
        let largest = usize::try_from(LARGEST_FILE).unwrap();
        // A tree has such a file without its content.
        fs::write(tree.path().join("large.yaml"), padded(largest + 1)).unwrap();
        assert!(encrypted_in(tree.path()).unwrap().is_empty());
        for number in 0..=MOST_ENCRYPTED / largest {
            fs::write(tree.path().join(format!("{number}.yaml")), padded(largest)).unwrap();
        }
        let problem = encrypted_in(tree.path()).unwrap_err().problems()[0].clone();
        assert!(problem.reason == reason::TOO_LARGE && problem.message.contains("16 MiB"), "{problem:?}");
    }
}
