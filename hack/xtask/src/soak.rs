//! `hack/soak`: the tests of faults, in so many rounds with other random numbers each.
//!
//! Elsewhere: how a test makes rounds is in `tests/e2e/src/repeat.rs`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::binaries::Profile;
use crate::checks::{self, REAL};
use crate::cluster;
use crate::paths;

/// How long, and with what.
#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// How many rounds every test makes; if nothing else is said, as many as there are boundaries of a change
    #[arg(default_value_t = stoa_failpoint::of_clusters().len())]
    rounds: usize,
    /// Only a file of tests such as `boundaries`, or tests with this in their names, or `model`
    filter: Option<String>,
    /// The folder for the test bed, which the caller ends and removes
    #[arg(long)]
    work: PathBuf,
}

/// What `cargo test` runs of the processes: the package's tests, then those of their names to take.
const PROCESSES: [(&str, &str); 6] = [
    ("boundaries", ""),
    ("crash", ""),
    ("runners", ""),
    ("suspended", ""),
    ("replicas", "replicas_lose_and_repeat_nothing_whatever_is_killed"),
    ("behaviour", "faults::"),
];
/// What runs the tests of one file. With features as `hack/test` has them, nothing is built a second time.
const TEST: [&str; 4] = ["cargo", "test", "--workspace", REAL];
/// How many cases of the model a round is.
const CASES: usize = 500;

/// Runs them all, whichever fails.
///
/// # Errors
///
/// When any of them failed; by then each has said why, and what repeats it. When the filter leaves no test.
pub(crate) fn run(args: &Soak) -> Result<()> {
    let mut failed = Vec::new();
    if args.filter.as_deref().is_none_or(|filter| filter == "model") {
        let cases = (args.rounds * CASES).to_string();
        let model = [&TEST[..], &["--test=model"]].concat();
        if checks::execute(&model, &[("PROPTEST_CASES", &cases)]).is_err() {
            failed.push("model");
        }
    }
    if args.filter.as_deref() != Some("model") {
        checks::prerequisites()?;
        let chosen = chosen(args.filter.as_deref(), &list)?;
        let work = paths::make_folder(&args.work)?;
        let xtask = checks::keep_this_program(&work)?;
        let bed = work.join("cluster");
        let options = cluster::Options { stoa: Some(Profile::Debug), ..cluster::Options::default() };
        cluster::up(&bed, options)?;
        let mut environment = checks::environment(&work, &bed, &xtask)?;
        environment.push(("STOA_TEST_REPEAT", args.rounds.to_string()));
        for (test, names) in chosen {
            let flag = format!("--test={test}");
            let words = [&TEST[..], &[&flag, "--", "--nocapture", names]].concat();
            if checks::execute(&words, &checks::borrowed(&environment)).is_err() {
                failed.push(test);
            }
        }
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// The files of tests that a filter leaves, and what the names of the tests to take there have in them. `list` says which
/// tests of a file have something in their names, as `cargo test` does.
fn chosen<'f>(
    filter: Option<&'f str>,
    list: &dyn Fn(&str, &str) -> Result<String>,
) -> Result<Vec<(&'static str, &'f str)>> {
    let Some(filter) = filter else { return Ok(PROCESSES.to_vec()) };
    if let Some(file) = PROCESSES.iter().find(|(test, _)| *test == filter) {
        return Ok(vec![*file]);
    }
    let mut left = Vec::new();
    for (test, _) in PROCESSES {
        if list(test, filter)?.lines().any(|line| line.ends_with(": test")) {
            left.push((test, filter));
        }
    }
    ensure!(!left.is_empty(), "no test of faults has {filter:?} in its name");
    Ok(left)
}

fn list(test: &str, filter: &str) -> Result<String> {
    let flag = format!("--test={test}");
    let words = [&TEST[1..], &[&flag, "--", "--list", filter]].concat();
    let listed =
        Command::new(TEST[0]).current_dir(paths::repository()).args(words).stderr(Stdio::inherit()).output()?;
    ensure!(listed.status.success(), "the tests of {test} cannot be listed");
    Ok(String::from_utf8_lossy(&listed.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is listed where there are some tests.
    fn listed(test: &str, filter: &str) -> Result<String> {
        let names: &[&str] = match test {
            "crash" => &["server_is_killed", "disk_is_full"],
            "behaviour" => &["faults::disk_is_full", "plans::plan_is_shown"],
            _ => &[],
        };
        let left = names.iter().filter(|name| name.contains(filter));
        Ok(left.map(|name| format!("{name}: test\n")).chain(["\n0 benchmarks\n".to_owned()]).collect())
    }

    #[test]
    fn filter_is_a_file_of_tests_or_in_the_names_of_some() {
        let check = |filter: Option<&str>, expected: &[(&str, &str)]| {
            assert_eq!(chosen(filter, &listed).unwrap(), expected, "{filter:?}");
        };
        check(None, &PROCESSES);
        check(Some("runners"), &[("runners", "")]);
        check(Some("behaviour"), &[("behaviour", "faults::")]);
        check(Some("killed"), &[("crash", "killed")]);
        check(Some("disk"), &[("crash", "disk"), ("behaviour", "disk")]);
    }

    #[test]
    fn filter_that_leaves_no_test_or_cannot_be_asked_about_is_an_error() {
        let error = chosen(Some("earthquake"), &listed).unwrap_err().to_string();
        assert!(error.contains("earthquake"), "{error}");
        let error = chosen(Some("disk"), &|_, _| bail!("it does not compile")).unwrap_err().to_string();
        assert_eq!(error, "it does not compile");
    }
}
