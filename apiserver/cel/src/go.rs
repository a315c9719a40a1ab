//! What Go's library reads and writes otherwise than Rust's: durations, times, URLs, addresses, regular expressions,
//! quoted texts and numbers.

use std::time::Duration;

use percent_encoding::percent_decode_str;

pub use self::pattern::pattern;
pub(crate) use self::pattern::{Translated, translate};

pub(crate) mod address;
mod pattern;
pub mod text;
pub mod time;
pub(crate) mod url;

/// Why a text is no duration, as Go tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurationError<'a> {
    /// A number stands without a unit.
    MissingUnit,
    /// There is no such unit.
    UnknownUnit(&'a str),
    /// Anything else.
    Invalid,
}

/// Reads a duration as Go's `time.ParseDuration` does: `1h15m30.5s`, `300ms`. A negative one is zero.
///
/// # Errors
///
/// [`DurationError`], for the first thing that is wrong.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError<'_>> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut seconds = 0.0;
    if rest.is_empty() {
        return Err(DurationError::Invalid);
    }
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    while !rest.is_empty() {
        let mut end = digits(rest);
        if rest[end..].starts_with('.') {
            end += 1 + digits(&rest[end + 1..]);
        }
        let number: f64 = rest[..end].parse().map_err(|_| DurationError::Invalid)?;
        rest = &rest[end..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        seconds += number
            * match &rest[..unit] {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "" => return Err(DurationError::MissingUnit),
                unknown => return Err(DurationError::UnknownUnit(unknown)),
            };
        rest = &rest[unit..];
    }
    let duration = Duration::try_from_secs_f64(seconds).map_err(|_| DurationError::Invalid)?;
    Ok(if negative { Duration::ZERO } else { duration })
}

/// The parameters in what stands after the `?` of a URL, in their order. A pair with a semicolon or a broken escape is none.
///
/// Follows Go's `net/url`.
pub fn query(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';') && is_escaped_well(pair));
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

/// Whether two hexadecimal digits follow each percent sign.
pub fn is_escaped_well(text: &str) -> bool {
    let digits = |rest: &str| rest.len() >= 2 && rest.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    text.split('%').skip(1).all(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        use DurationError::{Invalid, MissingUnit, UnknownUnit};
        for (text, millis) in [
            ("32s", Ok(32_000)),
            ("1m30s", Ok(90_000)),
            ("300ms", Ok(300)),
            ("1.5h", Ok(5_400_000)),
            (".5s", Ok(500)),
            ("0", Ok(0)),
            ("+2s", Ok(2_000)),
            ("-2s", Ok(0)),
            ("", Err(Invalid)),
            ("10", Err(MissingUnit)),
            ("1h5", Err(MissingUnit)),
            ("1.2.3s", Err(MissingUnit)),
            ("s", Err(Invalid)),
            (".", Err(Invalid)),
            ("1d", Err(UnknownUnit("d"))),
            ("1s ", Err(UnknownUnit("s "))),
            ("1..5s", Err(MissingUnit)),
            ("99999999999999999999h", Err(Invalid)),
        ] {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }
}
