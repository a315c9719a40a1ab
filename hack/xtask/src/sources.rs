//! Names programs in the cache by the digest of their sources.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

use crate::paths;

/// The path of a program in the cache. The files of the folders that `decides` chooses by name are its sources.
pub(crate) fn path_in_cache(name: &str, folders: &[&str], decides: fn(&str) -> bool) -> Result<PathBuf> {
    let cache = paths::cache()?.join("bin");
    fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
    let mut files = Vec::new();
    for folder in folders {
        collect(&paths::repository().join(folder), decides, &mut files)?;
    }
    files.sort();
    let mut hasher = Sha256::new();
    for file in files {
        let content = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        hasher.update((content.len() as u64).to_be_bytes());
        hasher.update(content);
    }
    let digest: String = hasher.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    Ok(cache.join(format!("{name}-{digest}")))
}

fn collect(folder: &Path, decides: fn(&str) -> bool, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "testdata" && name != "target" {
                collect(&path, decides, files)?;
            }
        } else if decides(&name) {
            files.push(path);
        }
    }
    Ok(())
}
