//! Durations as Go writes them, such as `1m30s`, and its words for what is none.

use std::time::Duration;

use stoa_cel::go::{self, DurationError};

use crate::status::quote;

/// Reads a duration; a negative one is zero.
///
/// # Errors
///
/// The sentence of Go's `time.ParseDuration`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    go::parse_duration(text).map_err(|error| {
        let problem = match error {
            DurationError::MissingUnit => "missing unit in".to_owned(),
            DurationError::UnknownUnit(unit) => format!("unknown unit {} in", quote(unit)),
            DurationError::Invalid => "invalid".to_owned(),
        };
        format!("time: {problem} duration {}", quote(text))
    })
}
