//! Properties of the answers of webhooks, as functions for a fuzzer to call; see [`stoa_meta::fuzzing`].

pub use stoa_meta::fuzzing::Target;

use crate::webhook;

/// All targets of this crate.
pub const TARGETS: &[Target] = &[("admission_reviews", webhook::fuzzing::admission_reviews)];
