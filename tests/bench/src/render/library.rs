//! The libraries alone, in processes that have used them before.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use stoa_archive::{ArchiveLimits, zip};
use stoa_kcl::{Compiler, Program, object_in, without_python};

use super::inputs::Inputs;
use super::{Tool, median, module};

/// How often KCL's library runs the program.
const ROUNDS: usize = 30;

/// How long the library takes, in ms.
///
/// # Errors
///
/// When it fails, or has another result than it should.
pub(super) fn one(tool: Tool, inputs: &Inputs, kcl: Option<&Path>) -> Result<f64> {
    match (tool, kcl) {
        (Tool::Kustomize, _) => of_go("BenchmarkKustomize"),
        (Tool::Helm, _) => of_go("BenchmarkHelm"),
        (Tool::Kcl, Some(wheel)) => of_kcl(wheel, inputs),
        (Tool::Kcl, None) => bail!("there is no library of KCL"),
    }
}

/// The result of a benchmark of the renderer's Go module.
fn of_go(benchmark: &str) -> Result<f64> {
    let mut go = Command::new("go");
    go.args(["test", "-run=^$", "-benchtime=2s", &format!("-bench=^{benchmark}$"), "."]).current_dir(module());
    let output = go.stdin(Stdio::null()).output().context("running go")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{benchmark}: {printed}{}", String::from_utf8_lossy(&output.stderr));
    nanoseconds(&printed).map(|time| time / 1e6).with_context(|| format!("{benchmark} has no result: {printed}"))
}

/// The number before `ns/op`.
fn nanoseconds(printed: &str) -> Option<f64> {
    printed.lines().find_map(|line| line.split_once(" ns/op")?.0.rsplit(char::is_whitespace).next()?.parse().ok())
}

fn of_kcl(wheel: &Path, inputs: &Inputs) -> Result<f64> {
    let folder = tempfile::tempdir().context("making a folder")?;
    let (files, path) = (folder.path().join("files"), folder.path().join("kcl.so"));
    zip::extract(wheel, &files, ArchiveLimits::default()).context("extracting KCL's package")?;
    let object = object_in(&files)?.context("the package has no shared object")?;
    fs::write(&path, without_python(fs::read(object)?)?)?;
    let mut library = Compiler::load(&path)?;
    let program = Program { folder: "kcl".to_owned(), entries: vec!["main.k".to_owned()], ..Program::default() };
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let output = library.run(&program, inputs.path()).map_err(|error| anyhow::anyhow!("{error:?}"))?;
        times.push(started.elapsed());
        ensure!(output.documents.len() == 1, "the program has {} documents", output.documents.len());
    }
    median(times).context("there are no times")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_of_a_benchmark_is_read() {
        let printed = "goos: linux\nBenchmarkHelm-2   \t     198\t  11905544.5 ns/op\nPASS\n";
        assert_eq!(nanoseconds(printed), Some(11_905_544.5));
        assert_eq!(nanoseconds("PASS\n"), None);
    }
}
