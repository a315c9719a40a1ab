//! Floating-point numbers as Go's `strconv.ParseFloat(text, 64)` reads them (`src/strconv/atof.go` of Go 1.26).
//!
//! Besides what Rust reads, Go takes underscores between digits (`1_000.5`) and hexadecimal mantissas with a binary
//! exponent (`0x1.8p4`). It refuses a NaN with a sign, and numbers that 64 bits cannot express.

/// Reads a number; `None` where Go answers an error.
pub(crate) fn parse(text: &str) -> Option<f64> {
    if text.starts_with(['+', '-']) && text[1..].eq_ignore_ascii_case("nan") {
        return None;
    }
    if text.contains('_') && !are_underscores_between_digits(text) {
        return None;
    }
    let has_digits = text.bytes().any(|byte| byte.is_ascii_digit());
    // Only numbers have underscores: `in_f` is none.
    let digits = if has_digits { text.replace('_', "") } else { text.to_owned() };
    let (is_negative, unsigned) = match digits.strip_prefix(['+', '-']) {
        Some(rest) => (digits.starts_with('-'), rest),
        None => (false, &*digits),
    };
    let number = match unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        Some(hexadecimal) => parse_hexadecimal(hexadecimal)?,
        None if unsigned.starts_with(['+', '-']) => return None,
        None => unsigned.parse().ok()?,
    };
    (number.is_finite() || !has_digits).then_some(if is_negative { -number } else { number })
}

/// Whether each underscore is between two digits, or between the prefix of a base and a digit: `underscoreOK`.
fn are_underscores_between_digits(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text).to_ascii_lowercase();
    let is_hexadecimal = text.starts_with("0x");
    let has_prefix = is_hexadecimal || text.starts_with("0b") || text.starts_with("0o");
    let digits = if has_prefix { &text[2..] } else { &*text };
    let is_digit = |byte: u8| if is_hexadecimal { byte.is_ascii_hexdigit() } else { byte.is_ascii_digit() };
    let bytes = digits.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_').all(|(at, _)| {
        let follows_digit = at.checked_sub(1).map_or(has_prefix, |before| is_digit(bytes[before]));
        follows_digit && bytes.get(at + 1).is_some_and(|after| is_digit(*after))
    })
}

/// An exponent beyond this is as good as infinite: no text that fits into a request has as many digits.
const LARGEST_EXPONENT: i64 = 1 << 40;

/// The number of `1.8p4`, which follows `0x`; infinite when it is too large. Rounds to nearest, ties to even.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let exponent_digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if exponent_digits.is_empty() || !exponent_digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // More digits than i64 has: only the sign counts.
    let exponent = exponent.parse::<i64>().unwrap_or(if exponent.starts_with('-') { i64::MIN } else { i64::MAX });
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    // The first 16 digits that count, and whether one behind them is not zero.
    let (mut significand, mut has_more) = (0_u64, false);
    let mut exponent = exponent.clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT) - 4 * fraction.len() as i64;
    for digit in whole.chars().chain(fraction.chars()) {
        let digit = u64::from(digit.to_digit(16)?);
        if significand >> 60 == 0 {
            significand = significand << 4 | digit;
        } else {
            has_more |= digit != 0;
            exponent += 4;
        }
    }
    Some(rounded(significand, has_more, exponent))
}

/// The number nearest to `significand * 2^exponent`, to which a part of its last bit is added if `has_more`.
fn rounded(significand: u64, has_more: bool, exponent: i64) -> f64 {
    /// Bits of a mantissa.
    const BITS: i64 = 53;
    /// The exponent of the least number.
    const LEAST: i64 = -1074;
    if significand == 0 {
        return 0.0;
    }
    let bits = i64::from(64 - significand.leading_zeros());
    // What has more bits than fit is cut, and a number that is less than the least ones more so.
    let cut = (bits - BITS).max(LEAST - exponent).max(0);
    if cut > bits {
        return 0.0;
    }
    let mantissa = significand.checked_shr(cut as u32).unwrap_or(0);
    let rest = u128::from(significand) - (u128::from(mantissa) << cut);
    let half = (1_u128 << cut) >> 1;
    let is_up = cut > 0 && (rest > half || rest == half && (has_more || mantissa % 2 == 1));
    let (mantissa, exponent) = (mantissa + u64::from(is_up), exponent + cut);
    if exponent > 1024 {
        return f64::INFINITY;
    }
    // In two steps, since one power may be less than the least number or infinite. Each product is exact, or infinite.
    let power_of_two = |exponent: i64| f64::from_bits(((1023 + exponent) as u64) << (BITS - 1));
    mantissa as f64 * power_of_two(exponent / 2) * power_of_two(exponent - exponent / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of Go 1.26; more are in `tests/upstream.txt`.
    #[test]
    fn numbers_are_read_as_go_reads_them() {
        for (text, number) in [
            ("0x1p4", Some(16.0)),
            ("-0X.8P+1", Some(-1.0)),
            ("0x1.fffffffffffff8p0", Some(2.0)),
            ("0x1.00000000000008p0", Some(1.0)),
            ("0x1.000000000000080000000000001p0", Some(1.000_000_000_000_000_2)),
            ("0x1p-1074", Some(5e-324)),
            ("0x1p-1075", Some(0.0)),
            ("0x1.8p-1075", Some(5e-324)),
            ("0x0.fffffffffffff8p-1022", Some(f64::MIN_POSITIVE)),
            ("0x1.fffffffffffffp1023", Some(f64::MAX)),
            ("0x1.fffffffffffff8p1023", None),
            ("0x1p99999999999999999999", None),
            ("0x1p-99999999999999999999", Some(0.0)),
            ("0x0p99999999999999999999", Some(0.0)),
            ("0x1", None),
            ("0x1p--4", None),
            ("0x-1p4", None),
            ("--1", None),
            ("1_0", Some(10.0)),
            ("0x_1_0p1_0", Some(16384.0)),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
            ("1_e1", None),
            ("i_nf", None),
            ("é_", None),
            ("1e400", None),
            ("-Inf", Some(f64::NEG_INFINITY)),
        ] {
            assert_eq!(parse(text), number, "{text}");
        }
    }
}
