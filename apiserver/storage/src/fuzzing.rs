//! What holds for the bytes that are read back or come from Git, as functions for a fuzzer to call.
//!
//! As in `stoa_machinery::fuzzing`: each takes any bytes and panics when something does not hold that should.

use stoa_machinery::fuzzing::Target;

use crate::{etcd, local};

/// All targets of this crate.
pub const TARGETS: &[Target] = &[
    ("log_records", local::fuzzing::records),
    ("log_tails", local::fuzzing::tails),
    ("etcd_notes", etcd::fuzzing::etcd_notes),
    ("git_edits", stoa_yaml_edit::fuzzing::edits),
    ("git_comments", stoa_yaml_edit::fuzzing::comments),
];
