//! Named points at which tests end a process of Stoa as a crash would: the boundaries of the table in ARCHITECTURE.md
//! that says what is true after a crash at each step of an apply.
//!
//! `STOA_FAILPOINT=<point>=<file>` ends the process that first gets to the point, and makes the file, so that a process
//! which finds it there goes on. Without debug assertions there are no such points.

use std::{env, fs::OpenOptions, path::PathBuf, process, sync::LazyLock};

/// The variable that names a point and a file.
pub const VARIABLE: &str = "STOA_FAILPOINT";

/// Those of the API server, in the order in which a run comes to them.
pub const SERVER: &[&str] = &[
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
    "finish-heard",
    "state-kept",
    "release-numbered",
    "release-created",
    "resources-written",
    "records-dropped",
];

/// Those of the function-runner, in that order, too.
pub const RUNNER: &[&str] = &["call-allowed", "call-made", "result-kept", "walk-over"];

/// Ends the process here if it was told to. The point is one of [`SERVER`] or [`RUNNER`].
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

/// The point at which this process is to end, and the file that says that one has.
static ARMED: LazyLock<Option<(String, PathBuf)>> = LazyLock::new(|| {
    let armed = env::var(VARIABLE).ok()?;
    let (point, file) = armed.split_once('=')?;
    Some((point.to_owned(), PathBuf::from(file)))
});
