//! The properties of the bytes that the log reads back, as functions for a fuzzer to call.
//!
//! As in `stoa_machinery::fuzzing`: each takes any bytes and panics where a property does not hold.

use stoa_machinery::fuzzing::Target;

use crate::{etcd, local};

/// All targets of this crate.
pub const TARGETS: &[Target] = &[
    ("log_records", local::fuzzing::records),
    ("log_tails", local::fuzzing::tails),
    ("etcd_notes", etcd::fuzzing::etcd_notes),
];
