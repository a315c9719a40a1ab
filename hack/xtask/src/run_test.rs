//! Starts one program of tests, as Cargo's runner, with as many tests at once as it is best for it.

use std::{env, ffi::OsString, os::unix::process::CommandExt as _, path::Path, process::Command};

use anyhow::{Context as _, Result};
use clap::Args;

/// The programs whose tests wait most of the time: for other processes, such as kubectl, or for time to go by.
const WAITING: [&str; 8] =
    ["behaviour", "cases", "delegation", "runners", "stoa_apiserver", "stoa_notifications", "stoa_runs", "transcripts"];
/// How many tests they have at once for each processor.
const AT_ONCE: usize = 2;
const THREADS: &str = "RUST_TEST_THREADS";
/// The names of the packages whose tests run, with spaces in between; of all if it is not set.
pub(crate) const ONLY: &str = "STOA_TEST_ONLY";
/// If it is set, each test is printed with its duration.
const TIMES: &str = "STOA_TEST_TIMES";
/// The package that a program is of, as Cargo says.
const PACKAGE: &str = "CARGO_PKG_NAME";

#[derive(Args, Debug)]
pub(crate) struct RunTest {
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Becomes the program.
///
/// # Errors
///
/// When it cannot be run.
pub(crate) fn run(args: &RunTest) -> Result<()> {
    let (program, args) = args.command.split_first().context("no command")?;
    if let (Ok(only), Ok(package)) = (env::var(ONLY), env::var(PACKAGE))
        && !only.split(' ').any(|name| name == package)
    {
        return Ok(());
    }
    let mut command = Command::new(program);
    command.args(args);
    if env::var_os(TIMES).is_some() {
        // The option is there in nightly versions, and where this variable is set.
        command.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time"]);
    }
    if is_waiting(Path::new(program)) && env::var_os(THREADS).is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        command.env(THREADS, (AT_ONCE * processors).to_string());
    }
    Err(command.exec()).with_context(|| format!("running {}", program.display()))
}

/// Whether a program, whose file Cargo calls `<name>-<hash>`, is one of those that wait.
fn is_waiting(program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once('-'));
    name.is_some_and(|(name, _)| WAITING.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_told_by_their_names() {
        let is_waiting = |path: &str| is_waiting(Path::new(path));
        assert!(is_waiting("/target/debug/deps/behaviour-0123abcd"));
        assert!(!is_waiting("/target/debug/deps/behaviour_of-0123abcd") && !is_waiting("behaviour"));
    }
}
