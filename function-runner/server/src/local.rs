//! The repositories on this machine that a Source may name by path.
//!
//! A path could reach any file of the function-runner, such as repositories that it fetched for others. So a Source may only name
//! repositories in the folders of `--local-repositories`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The folders in which repositories may be named by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct LocalRepositories(Arc<[PathBuf]>);

impl LocalRepositories {
    /// The repositories below these folders, which need not exist yet.
    pub(crate) fn below(folders: Vec<PathBuf>) -> Self {
        Self(folders.into())
    }

    pub(crate) fn folders(&self) -> Arc<[PathBuf]> {
        Arc::clone(&self.0)
    }

    /// Checks whether a repository on this machine may be used.
    pub(crate) fn check(&self, address: &str) -> Result<(), String> {
        match stoa_git::local_path(address) {
            Some(path) if !is_below(&path, &self.0) => Err(format!(
                "{} is a path on the machine of the function-runner that its --local-repositories does not allow; use a URL, or add the folder there",
                stoa_git::without_userinfo(address)
            )),
            _ => Ok(()),
        }
    }
}

/// Whether a path is below one of these folders. Resolves links; the parent folder counts for a path that does not exist.
pub(crate) fn is_below(path: &Path, folders: &[PathBuf]) -> bool {
    let real = path.ancestors().find_map(|ancestor| {
        let real = ancestor.canonicalize().ok()?;
        Some(real.join(path.strip_prefix(ancestor).ok()?))
    });
    let is_plain = |path: &Path| !path.components().any(|part| part == Component::ParentDir);
    let below = |folder: &PathBuf| {
        let folder = folder.canonicalize();
        folder.is_ok_and(|folder| real.as_ref().is_some_and(|real| real.starts_with(folder) && is_plain(real)))
    };
    // libgit2 takes a path to end at a NUL, which an address may have as `%00`.
    let has_nul = path.as_os_str().as_bytes().contains(&0);
    path.is_absolute() && !has_nul && folders.iter().any(below)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn allowed_repositories_are_named_by_path() {
        let root = tempfile::TempDir::new().unwrap();
        let (allowed, other) = (root.path().join("allowed"), root.path().join("allowed-not"));
        fs::create_dir_all(allowed.join("a.git")).unwrap();
        fs::create_dir_all(&other).unwrap();
        symlink(&other, allowed.join("link")).unwrap();
        symlink(&allowed, root.path().join("way")).unwrap();
        let at = |path: &str| root.path().join(path).display().to_string();
        let some = LocalRepositories::below(vec![root.path().join("nothing"), root.path().join("way")]);
        for address in [
            at("allowed/a.git"),
            at("way/a.git"),
            at("allowed/missing.git"),
            format!("file://{}", at("allowed/a%2Egit")),
            "https://git.example.com/a.git".to_owned(),
            "git@git.example.com:a.git".to_owned(),
        ] {
            some.check(&address).unwrap();
        }
        for address in [
            at("allowed-not"),
            at("allowed/link"),
            at("allowed/link/a.git"),
            at("allowed/missing/../../allowed-not"),
            at("nothing/a.git"),
            format!("file://{}", at("allowed/%2e%2e/allowed-not")),
            format!("file://{}", at("allowed/..%00")),
            format!("file://{}", at("allowed/link%00/a.git")),
            format!("file://localhost{}", at("allowed-not")),
            "allowed/a.git".to_owned(),
            String::new(),
        ] {
            let told = some.check(&address).unwrap_err();
            assert!(told.contains("--local-repositories"), "{told}");
        }
        let told = LocalRepositories::default().check(&at("allowed/a.git")).unwrap_err();
        assert!(told.starts_with(&at("allowed/a.git")), "{told}");
        LocalRepositories::below(vec![PathBuf::from("/")]).check(&at("allowed-not/missing.git")).unwrap();
    }
}
