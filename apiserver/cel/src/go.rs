//! What Go's library reads and writes otherwise than Rust's: durations, times, URLs, addresses, regular expressions,
//! quoted texts and numbers.

use std::time::Duration;

use percent_encoding::percent_decode_str;

pub use self::pattern::pattern;
pub(crate) use self::pattern::{Translated, translate};

pub(crate) mod address;
pub(crate) mod float;
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
    nanoseconds(text).map(|nanoseconds| Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0)))
}

/// The same in nanoseconds, negative ones too.
pub(crate) fn nanoseconds(text: &str) -> Result<i64, DurationError<'_>> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(DurationError::Invalid);
    }
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut sum: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = rest.split_at(digits(rest));
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(DurationError::Invalid);
        }
        let whole: Option<u64> = if whole.is_empty() { Some(0) } else { whole.parse().ok() };
        let whole = whole.filter(|whole| *whole <= MOST_NEGATIVE).ok_or(DurationError::Invalid)?;
        let (unit, after) = after.split_at(after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len()));
        let unit = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(DurationError::MissingUnit),
            unknown => return Err(DurationError::UnknownUnit(unknown)),
        };
        let added = whole.checked_mul(unit).and_then(|added| added.checked_add(part_of(unit, fraction)));
        let added = added.and_then(|added| sum.checked_add(added)).filter(|sum| *sum <= MOST_NEGATIVE);
        sum = added.ok_or(DurationError::Invalid)?;
        rest = after;
    }
    let signed = if negative { 0_i64.checked_sub_unsigned(sum) } else { i64::try_from(sum).ok() };
    signed.ok_or(DurationError::Invalid)
}

/// How many nanoseconds a negative duration has at most; others have one less.
const MOST_NEGATIVE: u64 = 1 << 63;

/// What the digits behind a point are of a unit, in nanoseconds that are whole: rounded as Go does, with no more digits
/// than 63 bits hold.
fn part_of(unit: u64, digits: &str) -> u64 {
    let (mut number, mut scale) = (0_u64, 1.0);
    for digit in digits.bytes() {
        let longer = number.checked_mul(10).and_then(|number| number.checked_add(u64::from(digit - b'0')));
        match longer.filter(|longer| *longer <= MOST_NEGATIVE) {
            Some(longer) => (number, scale) = (longer, scale * 10.0),
            None => break,
        }
    }
    (number as f64 * (unit as f64 / scale)) as u64
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
            ("9999999999999999999999999x", Err(Invalid)),
        ] {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text:?}");
        }
        for (text, read) in [
            ("1000000h1ns", Ok(3_600_000_000_000_000_001)),
            ("2562047h47m16.854775807s", Ok(i64::MAX)),
            ("-2562047h47m16.854775808s", Ok(i64::MIN)),
            ("2562047h47m16.854775808s", Err(Invalid)),
            ("-2562047h47m16.854775809s", Err(Invalid)),
            ("18446744073709551616ns", Err(Invalid)),
            ("1.9ns", Ok(1)),
            ("1.99999999999999999999999ns", Ok(2)),
            ("0.33333333333333333333333333h", Ok(1_200_000_000_000)),
            ("0.1ms0.1us", Ok(100_100)),
            ("-+1s", Err(Invalid)),
        ] {
            assert_eq!(nanoseconds(text), read, "{text:?}");
        }
    }
}
