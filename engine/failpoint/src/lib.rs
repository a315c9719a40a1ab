//! Failpoints: named points at which tests end a process of Stoa, as a crash would.
//!
//! The points are the crash points in the table of docs/design/crash-points.md, which states what holds after a crash
//! at each step of an apply.
//!
//! `STOA_FAILPOINT=<point>=<file>` ends the first process that reaches the point, and creates the file. A process that
//! finds the file continues. Builds without debug assertions have no failpoints.

use std::{
    env,
    fs::OpenOptions,
    path::{Path, PathBuf},
    process,
    sync::LazyLock,
};

/// The variable that names a point and a file.
pub const VARIABLE: &str = "STOA_FAILPOINT";

/// Failpoints of the API server, in the order of a run.
pub const SERVER: &[&str] = &[
    "run-recorded",
    "lease-taken",
    "commit-noted",
    "spec-kept",
    "spec-noted",
    "plan-kept",
    "plan-noted",
    "head-dirty",
    "intent-heard",
    "intent-recorded",
    "result-heard",
    "result-recorded",
    "health-heard",
    "finish-heard",
    "proposal-noted",
    "merge-noted",
    "state-kept",
    "release-numbered",
    "release-created",
    "resources-written",
    "records-dropped",
    "end-noted",
];

/// Failpoints of the function-runner, in the same order.
pub const RUNNER: &[&str] = &[
    "call-allowed",
    "commit-made",
    "branch-moved",
    "pull-request-opened",
    "call-made",
    "result-kept",
    "health-told",
    "walk-over",
];

/// Failpoints of runs that write to Git.
pub const OF_GIT: &[&str] = &["commit-made", "branch-moved"];

/// Failpoints of runs that open pull requests.
pub const OF_PROPOSALS: &[&str] = &["pull-request-opened", "proposal-noted", "merge-noted"];

/// Failpoints of runs that create or change something.
pub const OF_HEALTH: &[&str] = &["health-told", "health-heard"];

/// The failpoints of a run that changes a cluster.
pub fn of_clusters() -> Vec<&'static str> {
    let is_elsewhere = |point: &&&str| OF_GIT.contains(*point) || OF_PROPOSALS.contains(*point);
    SERVER.iter().chain(RUNNER).filter(|point| !is_elsewhere(point)).copied().collect()
}

/// Ends the process here if the failpoint is armed. The point is one of [`SERVER`] or [`RUNNER`].
pub fn reached(point: &str) {
    debug_assert!(SERVER.contains(&point) || RUNNER.contains(&point), "{point} is not listed");
    if cfg!(debug_assertions)
        && let Some((armed, file)) = &*ARMED
        && armed == point
        && OpenOptions::new().write(true).create_new(true).open(file).is_ok()
    {
        process::abort();
    }
}

/// The file that is made where this process is to end, if it is to.
pub fn file() -> Option<&'static Path> {
    if !cfg!(debug_assertions) {
        return None;
    }
    (*ARMED).as_ref().map(|(_, file)| file.as_path())
}

/// The armed failpoint of this process, and the file that marks it as used.
static ARMED: LazyLock<Option<(String, PathBuf)>> = LazyLock::new(|| {
    let armed = env::var(VARIABLE).ok()?;
    let (point, file) = armed.split_once('=')?;
    Some((point.to_owned(), PathBuf::from(file)))
});

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The points that each row of the table names, by the number of the row.
    fn rows(document: &str) -> Vec<(&str, Vec<&str>)> {
        let table = document.lines().skip_while(|line| !line.starts_with("| # | after | crash points |"));
        let rows = table.skip(2).take_while(|line| line.starts_with('|'));
        rows.map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            (cells[1], cells[3].split('`').skip(1).step_by(2).collect())
        })
        .collect()
    }

    #[test]
    fn apply_steps_and_failpoints_match() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/design/crash-points.md");
        let document = std::fs::read_to_string(path).unwrap();
        let rows = rows(&document);
        assert!(rows.len() > 15, "the table has {} rows", rows.len());
        let without: Vec<&str> = rows.iter().filter(|(_, points)| points.is_empty()).map(|(row, _)| *row).collect();
        assert!(without.is_empty(), "no crash is tried after the steps {without:?}");
        let named: Vec<&str> = rows.iter().flat_map(|(_, points)| points).copied().collect();
        let listed: BTreeSet<&str> = SERVER.iter().chain(RUNNER).copied().collect();
        assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), listed);
        assert_eq!(named.len(), SERVER.len() + RUNNER.len(), "some are named twice");
    }

    #[test]
    fn points_of_some_runs_are_points() {
        let some = [OF_GIT, OF_PROPOSALS, OF_HEALTH].concat();
        assert!(some.iter().all(|point| SERVER.contains(point) || RUNNER.contains(point)), "{some:?}");
        assert_eq!(of_clusters().len(), SERVER.len() + RUNNER.len() - OF_GIT.len() - OF_PROPOSALS.len());
    }
}
