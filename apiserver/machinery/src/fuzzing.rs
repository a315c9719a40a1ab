//! Properties of everything that reads bytes from outside, as functions for a fuzzer to call.
//!
//! Each target takes any bytes and panics when a property fails. The functions are beside the code that they check, in the
//! crates below; `tests/fuzz` runs them.

use std::sync::LazyLock;

pub use stoa_meta::fuzzing::Target;

/// All targets of the crates below.
pub static TARGETS: LazyLock<Vec<Target>> = LazyLock::new(|| {
    [
        stoa_meta::fuzzing::TARGETS,
        stoa_registry::fuzzing::TARGETS,
        stoa_admission::fuzzing::TARGETS,
        stoa_serving::fuzzing::TARGETS,
    ]
    .concat()
});
