//! The properties of the editing of pushed files, as functions for a fuzzer to call.
//!
//! As in `stoa_machinery::fuzzing`: each takes any bytes and panics where a property does not hold.

use stoa_machinery::fuzzing::Target;

/// All targets of this crate.
pub const TARGETS: &[Target] =
    &[("git_edits", stoa_yaml_edit::fuzzing::edits), ("git_comments", stoa_yaml_edit::fuzzing::comments)];
