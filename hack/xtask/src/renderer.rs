//! Builds the function-runner's renderer, a Go program, into the cache by the digest of its sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::paths;

/// The folder of its Go module, from the root of the repository.
pub(crate) const MODULE: &str = "function-runner/renderer";
const NAME: &str = "stoa-renderer";

/// The path of the binary, which is built first when the cache does not have it.
pub(crate) fn binary() -> Result<PathBuf> {
    let binary = path()?;
    if binary.exists() {
        return Ok(binary);
    }
    let folder = binary.parent().context("the cache has no folder")?;
    let _lock = paths::lock(&folder.join(format!(".{NAME}.lock")))?;
    if !binary.exists() {
        eprintln!("building {NAME} from Go modules, once for its sources; the first time takes minutes …");
        let partial = binary.with_extension("partial");
        let mut go = Command::new("go");
        go.current_dir(paths::repository().join(MODULE)).env("CGO_ENABLED", "0");
        go.args(["build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o"]).arg(&partial).arg(".");
        let built = go.stdout(std::io::stderr()).status().context("running go; Go 1.26 is needed to build it")?;
        ensure!(built.success(), "go build of {NAME} failed");
        fs::rename(&partial, &binary).with_context(|| format!("renaming {}", partial.display()))?;
    }
    Ok(binary)
}

/// The path of the binary, if it is built.
pub(crate) fn built() -> Option<PathBuf> {
    path().ok().filter(|path| path.exists())
}

fn path() -> Result<PathBuf> {
    let folder = paths::cache()?.join("bin");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let mut files = Vec::new();
    sources(&paths::repository().join(MODULE), &mut files)?;
    files.sort();
    let mut hasher = Sha256::new();
    for file in files {
        let content = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        hasher.update((content.len() as u64).to_be_bytes());
        hasher.update(content);
    }
    let digest: String = hasher.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    Ok(folder.join(format!("{NAME}-{digest}")))
}

/// The files that decide the binary.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "testdata" {
                sources(&path, files)?;
            }
        } else if (name.ends_with(".go") && !name.ends_with("_test.go")) || name == "go.mod" || name == "go.sum" {
            files.push(path);
        }
    }
    Ok(())
}
