//! `hack/soak`: the tests of faults, in so many rounds with other random numbers each.
//!
//! Elsewhere: how a test makes rounds is in `tests/e2e/src/repeat.rs`.

use std::path::PathBuf;

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
    /// Only a file of tests such as `boundaries`, or `model`
    filter: Option<String>,
    /// The folder for the test bed, which the caller ends and removes
    #[arg(long)]
    work: PathBuf,
}

/// What `cargo test` runs of the processes: the package's tests, then those of their names to take.
const PROCESSES: [(&str, &str); 7] = [
    ("boundaries", ""),
    ("crash", ""),
    ("runners", ""),
    ("suspended", ""),
    ("replicas", "replicas_lose_and_repeat_nothing_whatever_is_killed"),
    ("behaviour", "faults::"),
    ("terraform", "crashes::"),
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
        let chosen = chosen(args.filter.as_deref())?;
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

/// The files of tests that a filter leaves, and the names of the tests to run there.
fn chosen(filter: Option<&str>) -> Result<Vec<(&'static str, &'static str)>> {
    let is_chosen = |(test, _): &(&str, &str)| filter.is_none_or(|filter| filter == *test);
    let chosen: Vec<_> = PROCESSES.into_iter().filter(is_chosen).collect();
    ensure!(!chosen.is_empty(), "{:?} is no file of fault tests", filter.unwrap_or_default());
    Ok(chosen)
}
