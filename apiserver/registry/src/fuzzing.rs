//! Properties of continue tokens and stored values, as functions for a fuzzer to call; see [`stoa_meta::fuzzing`].

pub use stoa_meta::fuzzing::Target;

use crate::{cache, registry};

/// All targets of this crate.
pub const TARGETS: &[Target] =
    &[("continue_tokens", registry::fuzzing::continue_tokens), ("stored", cache::fuzzing::stored)];
