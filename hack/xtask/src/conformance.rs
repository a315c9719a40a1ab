//! `hack/conformance`: sends the same requests to Go's sample-apiserver and to ours, and updates `tests/conformance/RESULTS.md`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::binaries::{self, Profile};
use crate::cluster::{self, WardleLog};
use crate::paths;

/// What to ask, and of whom.
#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// The test bed's folder; it is started when it is down, and left running
    #[arg(long, default_value = ".cluster")]
    dir: PathBuf,
    /// Where ours keeps its objects; the document is about local files
    #[arg(long, value_enum, default_value_t = WardleLog::Local)]
    log: WardleLog,
    /// Write tests/conformance/RESULTS.md
    #[arg(long)]
    update: bool,
    /// Only what comes from the log: versions, pages, watches, conflicts; with no regard to the document
    #[arg(long, conflicts_with_all = ["update", "run", "first"])]
    stored: bool,
    /// A regular expression: only checks whose area and name match, with no regard to the document
    #[arg(long)]
    run: Option<String>,
    /// Instead of the checks, conversations put together at random, with the numbers from this one on
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    first: Option<u32>,
    /// How many of each kind of them
    #[arg(long, default_value_t = 1000, requires = "first")]
    count: u32,
}

/// Starts what is not running and compares.
pub(crate) fn run(args: &Conformance) -> Result<()> {
    ensure!(
        !args.update || args.log == WardleLog::Local,
        "--update needs --log local: tests/conformance/RESULTS.md records the answers of that log"
    );
    // Of Stoa itself only its own kinds are asked.
    let stoa = (!args.stored && args.first.is_none()).then_some(Profile::Debug);
    cluster::up(&args.dir, cluster::Options { stoa, wardle: Some(args.log), ..cluster::Options::default() })?;
    let mut flags = Vec::new();
    if args.stored {
        flags.push("-stored");
    }
    if args.update {
        flags.push("-update");
    }
    if let Some(only) = &args.run {
        flags.extend(["-run", only]);
    }
    let (first, count) = (args.first.map(|first| first.to_string()), args.count.to_string());
    if let Some(first) = &first {
        flags.extend(["-first", first, "-count", &count]);
    }
    compare(&fs::canonicalize(&args.dir)?, None, &flags)
}

/// What comes from the log, asked without kube-apiserver in between: what `hack/test` asks of every other log than the
/// document's.
pub(crate) const STORED: [&str; 3] = ["-stored", "-modes", "direct"];

/// The part of that which differs most from log to log.
pub(crate) const STORED_IN_PART: [&str; 4] =
    ["-modes", "direct", "-run", "^(?:deletecollection|expired|update|watch|watch options): "];

/// Compares on a test bed that is up with `--stoa` and `--wardle`; our programs may be in the folder `built`.
///
/// # Errors
///
/// When an answer differs that may not, or the document is out of date.
pub(crate) fn compare(bed: &Path, built: Option<&Path>, flags: &[&str]) -> Result<()> {
    let module = paths::repository().join("tests/conformance");
    let program = bed.join("conformance");
    let compiled = Command::new("go").current_dir(&module).args(["build", "-o"]).arg(&program).arg(".").status();
    ensure!(compiled.context("running go")?.success(), "go build failed in {}", module.display());
    let environment = bed.join("conformance.env");
    let lines: Vec<String> =
        cluster::environment(bed)?.into_iter().map(|(key, value)| format!("{key}={value}\n")).collect();
    fs::write(&environment, lines.concat()).context("writing the test bed's environment")?;
    let definitions = bed.join("crds.json");
    let printed = Command::new(binaries::crds(built)?).stderr(Stdio::inherit()).output().context("running crds")?;
    ensure!(printed.status.success(), "printing the definitions of Stoa's kinds failed");
    fs::write(&definitions, printed.stdout).context("writing the definitions of Stoa's kinds")?;
    let mut command = Command::new(&program);
    command.arg("-bed").arg(bed).arg("-env").arg(&environment).arg("-definitions").arg(&definitions);
    command
        .arg("-document")
        .arg(paths::repository().join("tests/conformance/RESULTS.md"))
        .args(flags)
        .stdin(Stdio::null());
    ensure!(command.status().context("running the conformance program")?.success(), "the answers differ");
    Ok(())
}
