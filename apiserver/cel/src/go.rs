//! What Go's library reads otherwise than Rust's: durations and the parameters of URLs.

use std::time::Duration;

use percent_encoding::percent_decode_str;

/// Reads a duration as Go's `time.ParseDuration` does: `1h15m30.5s`, `300ms`. A negative one is zero.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        seconds += number
            * match &rest[..unit] {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    Some(if negative { Duration::ZERO } else { duration })
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
fn is_escaped_well(text: &str) -> bool {
    let digits = |rest: &str| rest.len() >= 2 && rest.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    text.split('%').skip(1).all(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, millis) in [
            ("32s", Some(32_000)),
            ("1m30s", Some(90_000)),
            ("300ms", Some(300)),
            ("1.5h", Some(5_400_000)),
            (".5s", Some(500)),
            ("0", Some(0)),
            ("+2s", Some(2_000)),
            ("-2s", Some(0)),
            ("", None),
            ("10", None),
            ("s", None),
            ("1d", None),
            ("1s ", None),
            ("1..5s", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text:?}");
        }
    }
}
