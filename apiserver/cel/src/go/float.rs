//! Floating-point numbers as Go's `strconv.ParseFloat` reads them: hexadecimal ones and underscores, too.
//!
//! Follows `internal/strconv/atof.go` of Go 1.26. Rust's parser reads decimal digits.

/// Bits of the fraction of a double.
const FRACTION: u32 = 52;
/// The exponents of the smallest and the largest normal double.
const EXPONENTS: [i64; 2] = [-1022, 1023];

/// Reads a number; `None` where Go has a syntax error or a range error.
pub(crate) fn parse(text: &str) -> Option<f64> {
    let stripped;
    let text = if text.contains('_') {
        if !has_underscores_between_digits(text) {
            return None;
        }
        stripped = text.replace('_', "");
        &stripped
    } else {
        text
    };
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if let Some(hexadecimal) = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X")) {
        let number = hexadecimal_number(hexadecimal)?;
        return Some(if text.starts_with('-') { -number } else { number });
    }
    let number: f64 = text.parse().ok()?;
    let has_digits = text.bytes().any(|byte| byte.is_ascii_digit());
    // Go rejects a NaN with a sign.
    let is_rejected = if number.is_nan() { unsigned.len() < text.len() } else { number.is_infinite() && has_digits };
    (!is_rejected).then_some(number)
}

/// Whether each underscore is between two digits. A base prefix counts as a digit.
fn has_underscores_between_digits(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text).as_bytes();
    let prefix = match unsigned {
        [b'0', letter, ..] => Some(letter.to_ascii_lowercase()).filter(|letter| b"box".contains(letter)),
        _ => None,
    };
    let is_digit = |byte: u8| byte.is_ascii_digit() || (prefix == Some(b'x') && byte.is_ascii_hexdigit());
    let number = &unsigned[if prefix.is_some() { 2 } else { 0 }..];
    number.iter().enumerate().filter(|(_, byte)| **byte == b'_').all(|(at, _)| {
        let is_after_digit = if at == 0 { prefix.is_some() } else { is_digit(number[at - 1]) };
        is_after_digit && number.get(at + 1).is_some_and(|byte| is_digit(*byte))
    })
}

/// The number of hexadecimal digits with an exponent of two, without sign and prefix: `1.8p-1`.
fn hexadecimal_number(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let (mut mantissa, mut is_inexact) = (0_u64, false);
    // The places that the digits are moved by to the left.
    let mut moved = 0_i64;
    for (digit, is_fraction) in whole.chars().map(|c| (c, false)).chain(fraction.chars().map(|c| (c, true))) {
        let digit = u64::from(digit.to_digit(16)?);
        if mantissa >> 60 == 0 {
            mantissa = (mantissa << 4) | digit;
            moved -= if is_fraction { 4 } else { 0 };
        } else {
            is_inexact |= digit != 0;
            moved += if is_fraction { 0 } else { 4 };
        }
    }
    let exponent_digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if whole.len() + fraction.len() == 0
        || exponent_digits.is_empty()
        || !exponent_digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    // Go reads no further digits either.
    let add = |sum: i64, digit: u8| if sum < 10_000 { sum * 10 + i64::from(digit - b'0') } else { sum };
    let magnitude = exponent_digits.bytes().fold(0, add);
    let exponent = if exponent.starts_with('-') { -magnitude } else { magnitude };
    rounded(mantissa, exponent + moved, is_inexact)
}

/// The double next to `mantissa` times two to the power of `exponent`, and to the even one of two. `is_inexact`: the number
/// is a little larger. `None` where it is larger than all doubles.
fn rounded(mut mantissa: u64, mut exponent: i64, is_inexact: bool) -> Option<f64> {
    if mantissa == 0 {
        return Some(0.0);
    }
    // The leading bit comes first, and there are ten bits to round by.
    let shift = mantissa.leading_zeros();
    mantissa = (mantissa << shift) | u64::from(is_inexact);
    exponent -= i64::from(shift);
    let of_leading_bit = exponent + 63;
    // A subnormal number has fewer bits.
    let missing = (EXPONENTS[0] - of_leading_bit).clamp(0, 64);
    let dropped = 63 - i64::from(FRACTION) + missing;
    let (kept, rest, half) = match u32::try_from(dropped) {
        Ok(dropped) if dropped < 64 => (mantissa >> dropped, mantissa & ((1 << dropped) - 1), 1 << (dropped - 1)),
        Ok(64) => (0, mantissa, 1 << 63),
        _ => return Some(0.0),
    };
    let kept = kept + u64::from(rest > half || (rest == half && kept & 1 == 1));
    // A carry into the next power of two is right as it is: the bits of a double are in that order.
    let biased = if missing > 0 { 0 } else { of_leading_bit - EXPONENTS[0] };
    if biased > EXPONENTS[1] - EXPONENTS[0] {
        return None;
    }
    let bits = (u64::try_from(biased).ok()? << FRACTION) + kept;
    Some(f64::from_bits(bits)).filter(|number| number.is_finite())
}
