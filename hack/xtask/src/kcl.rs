//! Downloads KCL's library, a Python package, with pip.
//!
//! The cache has the package by its version. Its checksum is that of `stoa_kcl`'s list.

use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::paths;

/// The package, its version, and the checksum of the file for CPython 3.11 on x86-64.
const PACKAGE: &str = "kcl_lib";
const VERSION: &str = "0.13.2";
const SHA256: &str = "9ce15a503e2abee31c3ad1cbcfd42f2a9e6125cb15171043625385abc19be00b";
/// Any version of Python has the same library, and pip downloads for versions other than its own.
const TARGET: [&str; 8] =
    ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--platform", "manylinux2014_x86_64"];

/// The path of the package, which is downloaded first when the cache does not have it; nothing if it cannot be here.
pub(crate) fn wheel() -> Result<Option<PathBuf>> {
    if (OS, ARCH) != ("linux", "x86_64") {
        eprintln!("skipped: KCL, whose library is here for Linux on x86-64");
        return Ok(None);
    }
    let wheel = path()?;
    if wheel.exists() {
        return Ok(Some(wheel));
    }
    let folder = wheel.parent().context("the cache has no folder")?;
    let _lock = paths::lock(&folder.join(format!(".{PACKAGE}.lock")))?;
    if wheel.exists() {
        return Ok(Some(wheel));
    }
    if !has_pip() {
        eprintln!("skipped: KCL; install Python 3 with pip, which downloads {PACKAGE}");
        return Ok(None);
    }
    eprintln!("downloading {PACKAGE} {VERSION} with pip, once …");
    let downloads = folder.join(format!(".{PACKAGE}-{VERSION}"));
    fs::create_dir_all(&downloads).with_context(|| format!("making {}", downloads.display()))?;
    let requirements = downloads.join("requirements.txt");
    fs::write(&requirements, format!("{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n"))
        .with_context(|| format!("writing {}", requirements.display()))?;
    let mut pip = pip();
    pip.args(["download", "--quiet", "--no-deps", "--require-hashes", "--only-binary=:all:"]).args(TARGET);
    let status =
        pip.arg("--dest").arg(&downloads).arg("--requirement").arg(&requirements).stdout(Stdio::null()).status();
    ensure!(status.context("running pip")?.success(), "pip download of {PACKAGE} {VERSION} failed");
    let downloaded = fs::read_dir(&downloads)?.filter_map(|entry| Some(entry.ok()?.path()));
    let downloaded = downloaded.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    fs::rename(downloaded.context("pip downloaded no package")?, &wheel)
        .with_context(|| format!("renaming to {}", wheel.display()))?;
    fs::remove_dir_all(&downloads).with_context(|| format!("removing {}", downloads.display()))?;
    Ok(Some(wheel))
}

/// The path of the package, if it is downloaded.
pub(crate) fn downloaded() -> Option<PathBuf> {
    path().ok().filter(|path| path.exists())
}

fn path() -> Result<PathBuf> {
    let folder = paths::cache()?.join("bin");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder.join(format!("{PACKAGE}-{VERSION}.whl")))
}

fn pip() -> Command {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip"]).stdin(Stdio::null());
    pip
}

fn has_pip() -> bool {
    pip().arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
