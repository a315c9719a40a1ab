//! The folder with the programs of modules.
//!
//! A module is in `<registry path>/<version>`, such as `ghcr.io/kusionstack/network/0.2.0`. There, its program for a platform is
//! `<os>/<arch>/kusion-module-<name>_<version>`, as Kusion has it, and `SHA256SUMS` lists the SHA-256 of each program, as `sha256sum`
//! prints it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file with the checksums of a version.
const CHECKSUMS: &str = "SHA256SUMS";

/// The folder.
#[derive(Clone, Debug)]
pub struct Mirror(PathBuf);

/// The program of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub executable: PathBuf,
    /// Its SHA-256 according to the list.
    pub digest: [u8; 32],
}

/// A module that the folder does not have.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// The path or the version is no name of a folder.
    #[error(
        "path {path:?} and version {version:?} name no folder; use a registry path such as oci://ghcr.io/kusionstack/network"
    )]
    Name {
        /// The path of the module.
        path: String,
        /// The version of the module.
        version: String,
    },
    /// There is no program.
    #[error("there is no file {}; copy the module's program for this platform to it", .0.display())]
    Missing(PathBuf),
    /// There is no list of checksums, or it is unreadable.
    #[error("{} cannot be read ({error}); write it by `sha256sum {program} > {CHECKSUMS}` in its folder", path.display())]
    Checksums {
        /// The list.
        path: PathBuf,
        /// The path of the program in the list.
        program: String,
        /// The reason.
        error: io::Error,
    },
    /// The list does not have the program.
    #[error("{} has no SHA-256 of {program}; write it by `sha256sum {program} >> {CHECKSUMS}` in its folder", path.display())]
    Unlisted {
        /// The list.
        path: PathBuf,
        /// The path of the program in the list.
        program: String,
    },
}

impl Mirror {
    /// The mirror in a folder.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// The program of a module for this platform, which is not verified here.
    ///
    /// # Errors
    ///
    /// If the folder has no such program, or no checksum of it.
    pub fn find(&self, path: &str, version: &str) -> Result<Program, MirrorError> {
        let wrong = || MirrorError::Name { path: path.to_owned(), version: version.to_owned() };
        let segments = segments(path).filter(|_| is_segment(version)).ok_or_else(wrong)?;
        let name = segments.last().ok_or_else(wrong)?;
        let folder = segments.iter().fold(self.0.clone(), |folder, segment| folder.join(segment)).join(version);
        let program = program_path(name, version);
        let executable = folder.join(&program);
        if !executable.is_file() {
            return Err(MirrorError::Missing(executable));
        }
        let list = folder.join(CHECKSUMS);
        let text = match fs::read_to_string(&list) {
            Ok(text) => text,
            Err(error) => return Err(MirrorError::Checksums { path: list, program, error }),
        };
        match listed(&text, Path::new(&program)) {
            Some(digest) => Ok(Program { executable, digest }),
            None => Err(MirrorError::Unlisted { path: list, program }),
        }
    }
}

/// The path of a program for this platform in the folder of its version.
pub fn program_path(name: &str, version: &str) -> String {
    format!("{}/{}/{}", platform().0, platform().1, program_name(name, version))
}

fn program_name(name: &str, version: &str) -> String {
    format!("kusion-module-{name}_{version}")
}

/// The name of a module, which is the last part of its registry path; nothing for a path that names no module.
pub fn name(path: &str) -> Option<&str> {
    segments(path)?.pop()
}

/// The program for this platform in the files of a module's artifact: in `_dist`, as `kusion mod push` has it, in `dist`, or at the root.
/// Nothing outside of the folder is a program.
pub fn program_in(root: &Path, name: &str, version: &str) -> Option<PathBuf> {
    let inside = root.canonicalize().ok()?;
    let path = program_path(name, version);
    let candidates = [format!("_dist/{path}"), format!("dist/{path}"), path, program_name(name, version)];
    let found = candidates.iter().filter_map(|candidate| inside.join(candidate).canonicalize().ok());
    found.filter(|file| file.starts_with(&inside)).find(|file| file.is_file())
}

/// The parts of a registry path without its scheme; nothing if one of them names no folder.
fn segments(path: &str) -> Option<Vec<&str>> {
    let path = path.split_once("://").map_or(path, |(_, rest)| rest);
    let path = path.strip_suffix(".git").unwrap_or(path);
    let segments: Vec<&str> = path.split('/').collect();
    segments.iter().all(|segment| is_segment(segment)).then_some(segments)
}

fn is_segment(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':' | b'+');
    !matches!(text, "" | "." | "..") && text.bytes().all(is_plain)
}

/// The names of Go for the platform of this process: the operating system, and the architecture.
pub fn platform() -> (&'static str, &'static str) {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let system = if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS };
    (system, architecture)
}

/// The checksum of a file in the output of `sha256sum`.
fn listed(text: &str, file: &Path) -> Option<[u8; 32]> {
    let is_of_file = |name: &str| Path::new(name.strip_prefix("./").unwrap_or(name)) == file;
    let of_line = |line: &str| {
        let (digest, name) = line.split_once(' ')?;
        // The second character is an asterisk for files that were read as binary ones.
        let name = name.strip_prefix([' ', '*'])?;
        is_of_file(name.trim_end()).then(|| digest.to_owned())
    };
    let digest = text.lines().find_map(of_line)?;
    if digest.len() != 64 || !digest.is_ascii() {
        return None;
    }
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digest[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn program_has_the_listed_digest() {
        let root = tempfile::tempdir().unwrap();
        let mirror = Mirror::new(root.path());
        let find = |path: &str| mirror.find(path, "0.2.0");
        let (system, architecture) = platform();
        let program = format!("{system}/{architecture}/kusion-module-network_0.2.0");
        let folder = "ghcr.io/kusionstack/network/0.2.0";
        let path = "oci://ghcr.io/kusionstack/network";
        assert!(matches!(find(path), Err(MirrorError::Missing(_))));
        file(root.path(), &format!("{folder}/{program}"), "x");
        assert!(matches!(find(path), Err(MirrorError::Checksums { .. })));
        for text in ["", "ab  other\n", &format!("abc  {program}\n"), &format!("{}  {program}\n", "g".repeat(64))] {
            file(root.path(), &format!("{folder}/SHA256SUMS"), text);
            assert!(matches!(find(path), Err(MirrorError::Unlisted { .. })), "{text}");
        }
        for separator in ["  ", " *", "  ./"] {
            let text = format!("{}{separator}{program}\n", "0f".repeat(32));
            file(root.path(), &format!("{folder}/SHA256SUMS"), &text);
            let expected = Program { executable: root.path().join(folder).join(&program), digest: [15; 32] };
            for path in [path, "ghcr.io/kusionstack/network", "git://ghcr.io/kusionstack/network.git"] {
                assert_eq!(find(path).unwrap(), expected);
            }
        }
    }

    #[test]
    fn artifact_has_its_program_in_one_of_several_folders() {
        let path = program_path("network", "0.2.0");
        for folder in ["_dist/", "dist/", ""] {
            let root = tempfile::tempdir().unwrap();
            assert_eq!(program_in(root.path(), "network", "0.2.0"), None);
            file(root.path(), &format!("{folder}{path}"), "x");
            let expected = root.path().canonicalize().unwrap().join(format!("{folder}{path}"));
            assert_eq!(program_in(root.path(), "network", "0.2.0"), Some(expected));
            assert_eq!(program_in(root.path(), "network", "0.3.0"), None);
        }
        assert_eq!(name("oci://ghcr.io/kusionstack/network"), Some("network"));
        assert_eq!(name("a//b"), None);
    }

    #[test]
    fn links_out_of_an_artifact_lead_to_no_program() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        file(outside.path(), &program_path("network", "1"), "x");
        std::os::unix::fs::symlink(outside.path(), root.path().join("_dist")).unwrap();
        assert_eq!(program_in(root.path(), "network", "1"), None);
    }

    #[test]
    fn names_lead_nowhere_else() {
        let mirror = Mirror::new("/mirror");
        for (path, version) in [
            ("", "1"),
            ("/etc", "1"),
            ("oci://a/../b", "1"),
            ("a//b", "1"),
            ("a/b", ""),
            ("a/b", ".."),
            ("a/b", "1/2"),
            ("a b", "1"),
        ] {
            assert!(matches!(mirror.find(path, version), Err(MirrorError::Name { .. })), "{path} {version}");
        }
    }
}
