//! Builds the function-runner's renderer, a Go program, into the cache by the digest of its sources.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{paths, sources};

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
    sources::path_in_cache(NAME, &[MODULE], |name| {
        (name.ends_with(".go") && !name.ends_with("_test.go")) || name == "go.mod" || name == "go.sum"
    })
}
