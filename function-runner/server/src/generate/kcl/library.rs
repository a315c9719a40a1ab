//! KCL's library, from its file to the processes that load it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use stoa_archive::{ArchiveLimits, zip};
use stoa_kcl::{Kind, VERSION, object_in, release, without_python};

/// The ending of Python packages.
const WHEEL: &str = "whl";

/// Verifies the file of `--kcl-library`, and writes the object that processes load into a folder that nobody else writes. The file is the
/// Python package, or the shared object in it.
///
/// # Errors
///
/// If the file is not of a known release, and has not the given SHA-256 either.
pub(crate) fn prepare(file: &Path, sha256: Option<&str>, folder: &Path) -> anyhow::Result<PathBuf> {
    let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let (digest, known) = release(&bytes);
    let is_given = sha256.is_some_and(|given| given.eq_ignore_ascii_case(&digest));
    match sha256 {
        Some(given) => ensure!(
            is_given,
            "--kcl-library {}: its SHA-256 is {digest}, and --kcl-library-sha256 is {given}",
            file.display()
        ),
        None => ensure!(
            known.is_some(),
            "--kcl-library {}: is not kcl_lib {VERSION} for Linux on x86-64: its SHA-256 is {digest}; use that version, or set \
             --kcl-library-sha256",
            file.display()
        ),
    }
    let is_wheel = known.map_or(file.extension().is_some_and(|it| it == WHEEL), |known| known.kind == Kind::Wheel);
    let object = if is_wheel { of_wheel(file, folder)? } else { bytes };
    let object = without_python(object).with_context(|| format!("reading {}", file.display()))?;
    let path = folder.join("kcl.so");
    let mut target = OpenOptions::new().write(true).create(true).truncate(true).mode(0o500).open(&path);
    let written =
        target.as_mut().map_err(|error| std::io::Error::from(error.kind())).and_then(|it| it.write_all(&object));
    written.with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// The shared object in a Python package.
fn of_wheel(file: &Path, folder: &Path) -> anyhow::Result<Vec<u8>> {
    let package = tempfile::tempdir_in(folder).context("making a folder for KCL's package")?;
    zip::extract(file, package.path(), ArchiveLimits::default())
        .with_context(|| format!("extracting {}", file.display()))?;
    let found = object_in(package.path()).with_context(|| format!("reading {}", file.display()))?;
    let object = found.with_context(|| format!("{} has no shared object", file.display()))?;
    fs::read(&object).with_context(|| format!("reading {}", object.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kcl.so");
        let failed = |sha256: Option<&str>| format!("{:#}", prepare(&file, sha256, folder.path()).unwrap_err());
        assert!(failed(None).starts_with("reading "), "{}", failed(None));
        fs::write(&file, "").unwrap();
        let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert!(failed(None).contains("is not kcl_lib 0.13.2 for Linux on x86-64"), "{}", failed(None));
        assert!(failed(Some("00")).contains(&format!("its SHA-256 is {digest}, and")), "{}", failed(Some("00")));
        assert!(failed(Some(digest)).contains("the file is no 64-bit ELF object"), "{}", failed(Some(digest)));
    }
}
