//! `hack/soak`: the tests of faults, in so many rounds with other random numbers each.
//!
//! Elsewhere: how a test makes rounds is in `tests/e2e/src/repeat.rs`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use crate::binaries::Profile;
use crate::checks;
use crate::cluster;
use crate::paths;

/// How long, and with what.
#[derive(Debug, Args)]
pub(crate) struct Soak {
    /// How many rounds every test makes; 21 are at every boundary of a change
    #[arg(default_value_t = 21)]
    rounds: u32,
    /// Only tests with this in their names, which the model's are not, or `model`
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
/// How many cases of the model a round is.
const CASES: u32 = 500;

/// Runs them all, whichever fails.
///
/// # Errors
///
/// When any of them failed; by then each has said why, and what repeats it.
pub(crate) fn run(args: &Soak) -> Result<()> {
    let mut failed = Vec::new();
    if args.filter.as_deref().is_none_or(|filter| filter == "model") {
        let cases = (args.rounds * CASES).to_string();
        let model = ["cargo", "test", "--package=stoa-apply", "--test=model"];
        if checks::execute(&model, &[("PROPTEST_CASES", &cases)]).is_err() {
            failed.push("model");
        }
    }
    if args.filter.as_deref() != Some("model") {
        checks::prerequisites()?;
        let work = paths::make_folder(&args.work)?;
        let xtask = checks::keep_this_program(&work)?;
        let bed = work.join("cluster");
        let options = cluster::Options { stoa: Some(Profile::Debug), ..cluster::Options::default() };
        cluster::up(&bed, options)?;
        let mut environment = checks::environment(&work, &bed, &xtask)?;
        environment.push(("STOA_TEST_REPEAT", args.rounds.to_string()));
        for (test, all) in PROCESSES {
            let test_flag = format!("--test={test}");
            let mut words = vec!["cargo", "test", "--package=stoa-e2e", &test_flag, "--", "--nocapture"];
            words.push(args.filter.as_deref().unwrap_or(all));
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
