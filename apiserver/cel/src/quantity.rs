//! `resource.Quantity` in expressions: decimal numbers with the suffixes that Kubernetes has.
//!
//! Follows `k8s.io/apimachinery/pkg/api/resource`, which tells a number that it keeps in 64 bits from one that it does
//! not: only the former can be whole. Numbers of more than 38 digits are refused here.

use std::cmp::Ordering;

/// A number `mantissa × 10^exponent`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    mantissa: i128,
    exponent: i32,
    /// Whether upstream keeps it as a number of any length.
    is_long: bool,
}

/// Why a text is no quantity, in the words of `resource.ParseQuantity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    /// It does not look like one.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// The number is longer than numbers here.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
}

/// A sum that has too many digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantity overflow")]
pub(super) struct TooLarge;

/// How many digits a number of 64 bits has at least.
const DIGITS: i64 = 18;
/// The exponent of the smallest part that there is.
const NANO: i32 = -9;

/// What no mantissa is as large as. Of two that begin at the same digit, the one with fewer can so be written with as
/// many as the other.
const TOO_MANY: u128 = 10_u128.pow(38);

/// What a suffix stands for.
#[derive(Clone, Copy)]
enum Factor {
    Ten(i32),
    Two(u32),
}

impl Quantity {
    /// Reads `100m`, `1.5Gi`, `2e3`, ….
    pub(super) fn parse(text: &str) -> Result<Self, Unreadable> {
        if text.is_empty() {
            return Err(Unreadable::Format);
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let unsigned = unsigned.trim_start_matches('0');
        let (whole, rest) = unsigned.split_at(digits(unsigned));
        let after = rest.strip_prefix('.').unwrap_or(rest);
        let (fraction, suffix) = after.split_at(if after.len() < rest.len() { digits(after) } else { 0 });
        let factor = factor(suffix)?;
        let whole = if whole.is_empty() { "0" } else { whole };
        let short = short(whole, fraction, factor);
        let long = || long(whole, fraction, factor).ok_or(Unreadable::Numeric);
        let magnitude = short.map_or_else(long, Ok)?;
        Ok(Self { mantissa: if negative { -magnitude.mantissa } else { magnitude.mantissa }, ..magnitude })
    }

    pub(super) fn from_int(value: i64) -> Self {
        Self { mantissa: i128::from(value), exponent: 0, is_long: false }
    }

    pub(super) fn sign(self) -> i64 {
        self.mantissa.signum() as i64
    }

    /// The value when it is a whole number of 64 bits, and was written as one.
    pub(super) fn as_int(self) -> Option<i64> {
        let power = u32::try_from(self.exponent).ok().filter(|_| !self.is_long)?;
        if self.mantissa == 0 {
            return Some(0);
        }
        self.mantissa.checked_mul(10_i128.checked_pow(power)?)?.try_into().ok()
    }

    pub(super) fn as_float(self) -> f64 {
        match self.exponent {
            0 => self.mantissa as f64,
            // Powers of ten are those of the table, not multiplied.
            exponent => self.mantissa as f64 * format!("1e{exponent}").parse().unwrap_or(0.0),
        }
    }

    fn aligned(self, other: Self) -> Option<(i128, i128, i32)> {
        let exponent = self.exponent.min(other.exponent);
        let at = |quantity: Self| {
            let power = u32::try_from(i64::from(quantity.exponent) - i64::from(exponent)).ok()?;
            quantity.mantissa.checked_mul(10_i128.checked_pow(power)?)
        };
        Some((at(self)?, at(other)?, exponent))
    }

    pub(super) fn add(self, other: Self) -> Result<Self, TooLarge> {
        if !self.is_long && !other.is_long {
            match (self.mantissa, other.mantissa) {
                (_, 0) => return Ok(self),
                (0, _) => return Ok(other),
                _ => {}
            }
        }
        let (a, b, exponent) = self.aligned(other).ok_or(TooLarge)?;
        let mantissa = a.checked_add(b).filter(|sum| has_room(*sum)).ok_or(TooLarge)?;
        let fits = [a, b, mantissa].iter().all(|part| i64::try_from(*part).is_ok());
        Ok(Self { mantissa, exponent, is_long: self.is_long || other.is_long || !fits })
    }

    pub(super) fn sub(self, other: Self) -> Result<Self, TooLarge> {
        self.add(Self { mantissa: other.mantissa.checked_neg().ok_or(TooLarge)?, ..other })
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        let (a, b) = (self.reduced(), other.reduced());
        if a.sign() != b.sign() || a.mantissa == 0 {
            return a.sign().cmp(&b.sign());
        }
        let magnitude =
            |quantity: Self| i64::from(quantity.mantissa.unsigned_abs().ilog10()) + i64::from(quantity.exponent);
        match (magnitude(a).cmp(&magnitude(b)), a.aligned(b)) {
            (Ordering::Equal, Some((a, b, _))) => a.cmp(&b),
            (order, _) if a.sign() > 0 => order,
            (order, _) => order.reverse(),
        }
    }

    fn reduced(mut self) -> Self {
        while self.mantissa != 0 && self.mantissa % 10 == 0 {
            self.mantissa /= 10;
            self.exponent = self.exponent.saturating_add(1);
        }
        self
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.compare(*other).is_eq()
    }
}

fn has_room(mantissa: i128) -> bool {
    mantissa.unsigned_abs() < TOO_MANY
}

fn factor(suffix: &str) -> Result<Factor, Unreadable> {
    let end = suffix.find(|c: char| !"eEinumkKMGTP".contains(c)).unwrap_or(suffix.len());
    let exponent = suffix[end..].strip_prefix(['+', '-']).unwrap_or(&suffix[end..]);
    if !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Unreadable::Format);
    }
    Ok(match suffix {
        "Ki" => Factor::Two(10),
        "Mi" => Factor::Two(20),
        "Gi" => Factor::Two(30),
        "Ti" => Factor::Two(40),
        "Pi" => Factor::Two(50),
        "Ei" => Factor::Two(60),
        "" => Factor::Ten(0),
        "n" => Factor::Ten(-9),
        "u" => Factor::Ten(-6),
        "m" => Factor::Ten(-3),
        "k" => Factor::Ten(3),
        "M" => Factor::Ten(6),
        "G" => Factor::Ten(9),
        "T" => Factor::Ten(12),
        "P" => Factor::Ten(15),
        "E" => Factor::Ten(18),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse().ok());
            Factor::Ten(exponent.ok_or(Unreadable::Suffix)?)
        }
    })
}

/// A number that is certain to fit in 64 bits.
fn short(whole: &str, fraction: &str, factor: Factor) -> Option<Quantity> {
    let length = i64::try_from(whole.len() + fraction.len()).ok()?;
    let (mantissa, exponent, spare) = match factor {
        Factor::Ten(exponent) => (1, exponent, DIGITS - length),
        // Ten bits are three digits.
        Factor::Two(bits) if fraction.is_empty() => (1_i64 << bits, 0, 14 - length - i64::from(bits) * 3 / 10),
        Factor::Two(_) => return None,
    };
    let exponent = exponent.checked_sub(i32::try_from(fraction.len()).ok()?).filter(|exponent| *exponent >= NANO)?;
    if spare < 0 {
        return None;
    }
    let mantissa = format!("{whole}{fraction}").parse::<i64>().ok()?.checked_mul(mantissa)?;
    Some(Quantity { mantissa: i128::from(mantissa), exponent, is_long: false })
}

/// Any other number: what is less than a billionth of one is rounded up to it.
fn long(whole: &str, fraction: &str, factor: Factor) -> Option<Quantity> {
    let mantissa: i128 = format!("{whole}{fraction}").trim_start_matches('0').parse().or_else(zero_if_empty).ok()?;
    let places = i32::try_from(fraction.len()).ok()?;
    let (mut mantissa, mut exponent) = match factor {
        Factor::Ten(exponent) => (mantissa, exponent.checked_sub(places)?),
        Factor::Two(bits) => (mantissa.checked_mul(1_i128 << bits)?, -places),
    };
    if !has_room(mantissa) {
        return None;
    }
    while exponent < NANO && mantissa > 0 {
        mantissa = mantissa / 10 + i128::from(mantissa % 10 != 0);
        exponent += 1;
        if mantissa == 1 {
            exponent = exponent.max(NANO);
        }
    }
    let most = Quantity::from_int(i64::MAX);
    let made = Quantity { mantissa, exponent, is_long: true };
    let is_capped = matches!(factor, Factor::Two(_)) && made.compare(most) == Ordering::Greater;
    let made = if is_capped { Quantity { is_long: true, ..most } } else { made };
    // Upstream keeps all of these in billionths.
    Some(match made.exponent.checked_sub(NANO).and_then(|power| 10_i128.checked_pow(u32::try_from(power).ok()?)) {
        Some(power) if !is_capped => match made.mantissa.checked_mul(power).filter(|mantissa| has_room(*mantissa)) {
            Some(mantissa) => Quantity { mantissa, exponent: NANO, ..made },
            None => made,
        },
        _ => made,
    })
}

/// No digits at all are zero.
fn zero_if_empty(error: std::num::ParseIntError) -> Result<i128, std::num::ParseIntError> {
    if *error.kind() == std::num::IntErrorKind::Empty { Ok(0) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_mean_what_they_mean_in_kubernetes() {
        let int = |text: &str| Quantity::parse(text).ok().and_then(Quantity::as_int);
        for (text, value) in [
            ("1", Some(1)),
            ("1k", Some(1000)),
            ("1Ki", Some(1024)),
            ("2e3", Some(2000)),
            ("1e+3", Some(1000)),
            ("-5", Some(-5)),
            ("+", Some(0)),
            (".", Some(0)),
            ("007", Some(7)),
            // Whole numbers that are not written so, or are too large, are none.
            ("5000m", None),
            ("1.0", None),
            ("1.5Gi", None),
            ("7Ei", None),
            ("9999999999999999999", None),
        ] {
            assert_eq!(int(text), value, "{text}");
        }
    }

    #[test]
    fn parser_rejects_invalid_quantities_like_kubernetes() {
        for (text, error) in [
            ("", Unreadable::Format),
            ("1.2.3", Unreadable::Format),
            ("abc", Unreadable::Format),
            ("--1", Unreadable::Suffix),
            ("1 ", Unreadable::Format),
            ("1Gi1", Unreadable::Suffix),
            ("1ki", Unreadable::Suffix),
            ("1e", Unreadable::Suffix),
            (&"1".repeat(39), Unreadable::Numeric),
            (&"1".repeat(50), Unreadable::Numeric),
        ] {
            assert_eq!(Quantity::parse(text), Err(error), "{text}");
        }
        assert_eq!(Quantity::parse("Mi"), Quantity::parse("0"));
    }

    #[test]
    fn sums_and_comparisons_are_exact() {
        let quantity = |text: &str| Quantity::parse(text).unwrap();
        assert_eq!(quantity("100m").add(quantity("900m")), Ok(quantity("1")));
        assert_eq!(quantity("1Gi").sub(quantity("1Mi")), Ok(quantity("1023Mi")));
        assert_eq!(quantity("0.1").compare(quantity("100m")), Ordering::Equal);
        assert_eq!(quantity("1G").compare(quantity("1Gi")), Ordering::Less);
        assert_eq!(quantity("-1e100").compare(quantity("-1e99")), Ordering::Less);
        assert_eq!(quantity("0").compare(quantity("-1")), Ordering::Greater);
        let most = "9".repeat(38);
        assert_eq!(quantity(&most).add(quantity("1")), Err(TooLarge));
        assert_eq!(quantity(&most).compare(quantity("9.1e37")), Ordering::Greater);
        assert_eq!(quantity(&format!("-{most}")).compare(quantity("-9.1e37")), Ordering::Less);
    }

    #[test]
    fn what_is_too_small_is_rounded_up() {
        let quantity = |text: &str| Quantity::parse(text).unwrap();
        assert_eq!(quantity("0.1n"), quantity("1n"));
        assert_eq!(quantity("1.23456789012"), quantity("1.234567891"));
        assert_eq!(quantity("-1e-100"), quantity("-1n"));
        assert_eq!(quantity("9Ei"), Quantity::from_int(i64::MAX));
    }
}
