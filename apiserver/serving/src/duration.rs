//! Durations as Go writes them, such as `1m30s`, and Go's errors for malformed ones.

use std::time::Duration;

use stoa_cel::go::{self, DurationError};
use stoa_meta::status::quote;

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

pub(crate) fn text(duration: Duration) -> String {
    let minutes = duration.as_secs() / 60;
    let rest = duration - Duration::from_secs(minutes * 60);
    match (minutes / 60, minutes % 60) {
        (0, 0) if rest.is_zero() => "0s".to_owned(),
        // Rust writes less than a minute as Go does.
        (0, 0) => format!("{rest:?}"),
        (0, minutes) => format!("{minutes}m{}s", rest.as_secs_f64()),
        (hours, minutes) => format!("{hours}h{minutes}m{}s", rest.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_go_writes_them() {
        for (nanos, expected) in [
            (0, "0s"),
            (1_500, "1.5µs"),
            (532_100_000, "532.1ms"),
            (2_000_000_000, "2s"),
            (59_999_999_999, "59.999999999s"),
            (60_000_000_000, "1m0s"),
            (62_500_000_000, "1m2.5s"),
            (3_600_000_000_000, "1h0m0s"),
            (7_384_250_000_000, "2h3m4.25s"),
        ] {
            assert_eq!(text(Duration::from_nanos(nanos)), expected);
        }
    }
}
