//! Where things are: the repository, the cache that outlives it, and what cargo builds.

use std::env;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};

/// The repository's root: the one that the scripts in `hack/` name, since clones that share a build folder may share
/// this program, or the one that it was built in.
pub(crate) fn repository() -> PathBuf {
    if let Some(named) = env::var_os("STOA_REPOSITORY").filter(|value| !value.is_empty()) {
        return PathBuf::from(named);
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).expect("hack/xtask is two folders below the root").to_path_buf()
}

/// `$XDG_CACHE_HOME/stoa`, by default `~/.cache/stoa`, made when it is missing.
pub(crate) fn cache() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(base) => PathBuf::from(base),
        None => PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache"),
    };
    let cache = base.join("stoa");
    fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
    Ok(cache)
}

/// Where cargo puts what it builds, as the scripts in `hack/` set it.
pub(crate) fn cargo_target() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    if target.is_absolute() { target } else { repository().join(target) }
}

/// Makes a folder and returns its absolute path without symbolic links.
pub(crate) fn make_folder(path: &Path) -> Result<PathBuf> {
    fs::create_dir_all(path).with_context(|| format!("making {}", path.display()))?;
    fs::canonicalize(path).with_context(|| format!("resolving {}", path.display()))
}

/// Makes a folder that only its owner comes to, unless it is there: keys and the data of servers are in it.
pub(crate) fn make_own_folder(path: &Path) -> Result<PathBuf> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("making {}", path.display()))?;
    make_folder(path)
}

/// Waits for the lock file at `path` and holds it until the result is dropped.
///
/// The kernel lets go of it when the process ends, however it ends.
pub(crate) fn lock(path: &Path) -> Result<File> {
    let file =
        File::options().create(true).append(true).open(path).with_context(|| format!("opening {}", path.display()))?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}

/// The way from the folder `from` to `to`, both absolute; kustomize takes no absolute paths.
pub(crate) fn relative(from: &Path, to: &Path) -> PathBuf {
    let from: Vec<Component<'_>> = from.components().collect();
    let to: Vec<Component<'_>> = to.components().collect();
    let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = std::iter::repeat_n(Component::ParentDir, from.len() - shared);
    up.chain(to[shared..].iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_path_passes_through_shared_folder() {
        assert_eq!(relative(Path::new("/a/b/c"), Path::new("/a/d")), Path::new("../../d"));
        assert_eq!(relative(Path::new("/a"), Path::new("/a/d/e")), Path::new("d/e"));
    }

    #[test]
    fn repository_holds_the_workspace() {
        assert!(repository().join("Cargo.lock").is_file());
    }
}
