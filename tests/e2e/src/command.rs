//! Running programs and waiting for what they cause.

use std::collections::hash_map::RandomState;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::hash::BuildHasher as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs a command to its end and returns what it printed.
///
/// # Panics
///
/// When it fails, with what it said.
pub fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    // Some programs, such as the tests of Go, say there why they fail.
    let said = || format!("{}\n{text}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, said());
    text.into_owned()
}

/// Runs git in a repository without a work tree and returns what it printed.
///
/// # Panics
///
/// When it fails, with what it said.
pub fn git(repository: &Path, args: &[&str]) -> String {
    run(Command::new("git").arg("--git-dir").arg(repository).args(args))
}

/// Asks until there is an answer, less and less often: what takes long is not to be slower for that.
///
/// # Panics
///
/// When there is none within `patience`.
pub fn eventually<T>(what: &str, patience: Duration, ask: impl FnMut() -> Option<T>) -> T {
    eventually_or(patience, ask, || what.to_owned())
}

/// The same; what is told in the end is found out then.
///
/// # Panics
///
/// When there is none within `patience`.
pub fn eventually_or<T>(patience: Duration, mut ask: impl FnMut() -> Option<T>, what: impl FnOnce() -> String) -> T {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(50);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        if Instant::now() >= deadline {
            panic!("not within {patience:?}: {}", what());
        }
        thread::sleep(pause);
        pause = (pause * 3 / 2).min(Duration::from_millis(500));
    }
}

/// A name that no other test uses: `<prefix>-` and eight digits.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{:08x}", RandomState::new().hash_one(0) >> 32)
}

/// What the environment says, which `hack/test` sets.
pub(crate) fn setting(name: &str) -> PathBuf {
    env::var_os(name)
        .map(PathBuf::from)
        .unwrap_or_else(|| panic!("{name} is not set; hack/test sets it, see CONTRIBUTING.md"))
}

/// The versions of kubectl that transcripts are played with: an old and a current one, or the one that is there.
pub fn kubectls_of_interest() -> Vec<PathBuf> {
    let mut all = kubectls();
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        matches!(name, "kubectl.1.27" | "kubectl.1.32")
    };
    if all.iter().any(named) { all.into_iter().filter(named).collect() } else { vec![all.swap_remove(0)] }
}

/// kubectl of the versions that the environment names, oldest first: by hand, what this machine has of them.
pub fn kubectl_versions() -> Vec<PathBuf> {
    match env::var_os("STOA_TEST_KUBECTLS") {
        Some(paths) => env::split_paths(&paths).collect(),
        None => kubectls(),
    }
}

/// The kubectl programs of this machine: the plain one, and every `kubectl.1.<minor>` beside it.
pub fn kubectls() -> Vec<PathBuf> {
    let plain = env::var_os("STOA_TEST_KUBECTL").map_or_else(
        || {
            let path = env::var_os("PATH").unwrap_or_default();
            env::split_paths(&path)
                .map(|folder| folder.join("kubectl"))
                .find(|file| file.is_file())
                .expect("kubectl is in PATH, or named by STOA_TEST_KUBECTL")
        },
        PathBuf::from,
    );
    let folder = fs::canonicalize(&plain).unwrap().parent().unwrap().to_path_buf();
    let mut versions: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with("kubectl.1.")))
        .collect();
    versions.sort();
    versions.insert(0, plain);
    versions
}
