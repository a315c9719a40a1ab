//! The flags of features besides the API.

use clap::{ArgAction, Args};

/// What is served besides the API.
#[derive(Clone, Copy, Debug, Args)]
pub struct FeatureOptions {
    /// Whether the server serves profiles at /debug/pprof/, for users with the verb `get`
    #[arg(long, default_value_t = true, default_missing_value = "true", num_args = 0..=1, require_equals = true,
          action = ArgAction::Set)]
    pub profiling: bool,
}
