//! Builds the program that runs WebAssembly and Starlark into the cache, by the digest of its sources.
//!
//! It is a Cargo workspace of its own with some 250 crates. So `hack/test --all` builds and tests it, and other runs use what is
//! built.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::{paths, sources};

/// The folder of its crate, from the root of the repository.
const CRATE: &str = "function-runner/function-worker";
const NAME: &str = "stoa-function-worker";

/// The path of the binary, if it is built.
pub(crate) fn built() -> Option<PathBuf> {
    path().ok().filter(|path| path.exists())
}

/// The path of the binary, which is built first when the cache does not have it.
pub(crate) fn binary() -> Result<PathBuf> {
    let binary = path()?;
    if !binary.exists() {
        eprintln!("building {NAME}, once for its sources; the first time takes minutes …");
        cargo("build")?;
        let partial = binary.with_extension("partial");
        fs::copy(target()?.join("release").join(NAME), &partial).with_context(|| format!("copying {NAME}"))?;
        fs::rename(&partial, &binary).with_context(|| format!("renaming {}", partial.display()))?;
    }
    Ok(binary)
}

/// Runs the tests of the crate.
pub(crate) fn test() -> Result<()> {
    cargo("test")
}

fn cargo(command: &str) -> Result<()> {
    let manifest = paths::repository().join(CRATE).join("Cargo.toml");
    let mut cargo = Command::new("cargo");
    cargo.args([command, "--release", "--locked", "--manifest-path"]).arg(manifest);
    let status = cargo.arg("--target-dir").arg(target()?).status().context("running cargo")?;
    ensure!(status.success(), "cargo {command} of {NAME} failed");
    Ok(())
}

fn target() -> Result<PathBuf> {
    Ok(paths::cache()?.join("function-worker"))
}

fn path() -> Result<PathBuf> {
    sources::path_in_cache(NAME, &[CRATE, "apiserver/yaml"], |name| {
        name.ends_with(".rs") || name == "Cargo.toml" || name == "Cargo.lock"
    })
}
