//! Numbers of any size, exact in decimal.
//!
//! Start at [`Number`]. Terraform computes with 512 bits of binary precision. A number with more digits than those bits
//! can tell apart is rounded to them, so that an answer of a provider equals the number that it was sent.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use num_bigint::{BigInt, BigUint, Sign};

/// The binary precision of Terraform's numbers.
const PRECISION: u64 = 512;
/// Decimals with at most so many digits differ after rounding to [`PRECISION`] bits too.
const DISTINCT_DIGITS: usize = 153;
/// The most digits and the largest exponent of a number.
const LONGEST: usize = 10_000;

/// A number: a decimal of any size, or an infinity, which providers make of floats out of range.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Number(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    NegativeInfinity,
    /// `digits * 10^exponent`, where `digits` does not end in a zero, and zero has the exponent zero.
    Finite {
        digits: BigInt,
        exponent: i64,
    },
    PositiveInfinity,
}

/// A text that is no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// The text does not have the form of a decimal number.
    #[error("{0:?} is not a decimal number")]
    Syntax(String),
    /// The number is too large or too exact.
    #[error("a number has more than {LONGEST} digits")]
    TooLong,
    /// A float is not a number.
    #[error("a float is NaN")]
    NotANumber,
}

impl Number {
    /// Positive infinity.
    pub const INFINITY: Self = Self(Form::PositiveInfinity);
    /// Negative infinity.
    pub const NEGATIVE_INFINITY: Self = Self(Form::NegativeInfinity);

    fn finite(digits: BigInt, exponent: i64) -> Self {
        if digits.sign() == Sign::NoSign {
            return Self(Form::Finite { digits, exponent: 0 });
        }
        let text = digits.magnitude().to_string();
        let zeros = text.bytes().rev().take_while(|byte| *byte == b'0').count();
        if text.len() - zeros > DISTINCT_DIGITS
            && let Some((digits, exponent)) = rounded(&digits, exponent)
        {
            return Self::finite(digits, exponent);
        }
        if zeros == 0 {
            return Self(Form::Finite { digits, exponent });
        }
        let digits = digits / power(10, zeros as u64);
        Self(Form::Finite { digits, exponent: exponent + i64::try_from(zeros).expect("a text is shorter") })
    }

    /// The exact value of a float.
    ///
    /// # Errors
    ///
    /// If it is NaN.
    pub fn from_f64(float: f64) -> Result<Self, NumberError> {
        if float.is_nan() {
            return Err(NumberError::NotANumber);
        }
        if float.is_infinite() {
            return Ok(if float > 0.0 { Self::INFINITY } else { Self::NEGATIVE_INFINITY });
        }
        let bits = float.to_bits();
        let (fraction, raised) = (bits & ((1 << 52) - 1), (bits >> 52) & 0x7ff);
        let (mantissa, power_of_two) =
            if raised == 0 { (fraction, -1074) } else { (fraction | (1 << 52), raised.cast_signed() - 1075) };
        let magnitude = BigInt::from(mantissa);
        let magnitude = if float.is_sign_negative() { -magnitude } else { magnitude };
        Ok(binary(magnitude, power_of_two))
    }

    /// The nearest float.
    pub fn to_f64(&self) -> f64 {
        match &self.0 {
            Form::NegativeInfinity => f64::NEG_INFINITY,
            Form::PositiveInfinity => f64::INFINITY,
            Form::Finite { digits, exponent } => {
                format!("{digits}e{exponent}").parse().expect("digits with an exponent are a float")
            }
        }
    }

    /// The float with exactly this value, if there is one.
    pub fn exact_f64(&self) -> Option<f64> {
        let float = self.to_f64();
        (Self::from_f64(float).as_ref() == Ok(self)).then_some(float)
    }

    /// The integer with this value, if it has 64 bits.
    pub fn to_i64(&self) -> Option<i64> {
        match &self.0 {
            Form::Finite { digits, exponent: exponent @ 0..=18 } => {
                i64::try_from(digits * BigInt::from(10u64.pow(u32::try_from(*exponent).ok()?))).ok()
            }
            _ => None,
        }
    }

    /// How many digits it has before or after the point, whichever are more.
    fn length(&self) -> usize {
        let Form::Finite { digits, exponent } = &self.0 else { return 0 };
        let count = digits.magnitude().to_string().len();
        let zeros = usize::try_from(exponent.unsigned_abs()).unwrap_or(usize::MAX);
        if *exponent > 0 { count.saturating_add(zeros) } else { count.max(zeros) }
    }

    /// Whether it is finite and has no fraction.
    pub fn is_integer(&self) -> bool {
        matches!(&self.0, Form::Finite { exponent, .. } if *exponent >= 0)
    }

    /// Whether it is finite.
    pub fn is_finite(&self) -> bool {
        matches!(self.0, Form::Finite { .. })
    }
}

/// `base^exponent`.
fn power(base: u32, exponent: u64) -> BigInt {
    BigInt::from(BigUint::from(base).pow(u32::try_from(exponent).expect("exponents are limited")))
}

/// `mantissa * 2^exponent`.
fn binary(mantissa: BigInt, exponent: i64) -> Number {
    if exponent >= 0 {
        return Number::finite(mantissa << exponent.unsigned_abs(), 0);
    }
    // A half is five tenths.
    Number::finite(mantissa * power(5, exponent.unsigned_abs()), exponent)
}

/// The nearest number with [`PRECISION`] bits, ties to even; nothing if it is the number itself.
fn rounded(digits: &BigInt, exponent: i64) -> Option<(BigInt, i64)> {
    let divisor = power(10, exponent.min(0).unsigned_abs());
    let dividend = digits.magnitude() * power(10, exponent.max(0).unsigned_abs()).magnitude();
    let divisor = divisor.magnitude();
    // The quotient has two bits more than needed at least; whether anything is left over is a third.
    let shift = (PRECISION + 2 + divisor.bits()).saturating_sub(dividend.bits());
    let shifted = &dividend << shift;
    let (quotient, rest) = (&shifted / divisor, &shifted % divisor);
    let rest_is_zero = rest == BigUint::ZERO;
    let surplus = quotient.bits().checked_sub(PRECISION)?;
    let mask = (BigUint::from(1u8) << surplus) - 1u8;
    let low = &quotient & &mask;
    if low == BigUint::ZERO && rest_is_zero {
        return None;
    }
    let half = BigUint::from(1u8) << (surplus - 1);
    let mut high = quotient >> surplus;
    let above = match low.cmp(&half) {
        Ordering::Less => false,
        Ordering::Greater => true,
        Ordering::Equal => !rest_is_zero || high.bit(0),
    };
    if above {
        high += 1u8;
    }
    let result = BigInt::from_biguint(digits.sign(), high);
    let power_of_two = i64::try_from(surplus).ok()? - i64::try_from(shift).ok()?;
    Some(if power_of_two >= 0 {
        (result << power_of_two.unsigned_abs(), 0)
    } else {
        (result * power(5, power_of_two.unsigned_abs()), power_of_two)
    })
}

impl FromStr for Number {
    type Err = NumberError;

    /// Reads digits with an optional sign, fraction and exponent.
    fn from_str(text: &str) -> Result<Self, NumberError> {
        // A sign, a zero and a point stand before the digits.
        if text.len() > LONGEST + 3 {
            return Err(NumberError::TooLong);
        }
        let syntax = || NumberError::Syntax(text.to_owned());
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(syntax());
        }
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = whole.strip_prefix(['+', '-']).unwrap_or(whole);
        let all = || digits.bytes().chain(fraction.bytes());
        if all().count() == 0 || !all().all(|byte| byte.is_ascii_digit()) {
            return Err(syntax());
        }
        let digits: BigInt = format!("{digits}{fraction}").parse().map_err(|_| syntax())?;
        if digits.sign() == Sign::NoSign {
            return Ok(Self::finite(digits, 0));
        }
        let digits = if mantissa.starts_with('-') { -digits } else { digits };
        let exponent: i64 = exponent.parse().map_err(|_| NumberError::TooLong)?;
        let limit = i64::try_from(LONGEST).expect("it is small");
        if !(-limit..=limit).contains(&exponent) {
            return Err(NumberError::TooLong);
        }
        let number = Self::finite(digits, exponent - i64::try_from(fraction.len()).expect("a text is short"));
        // A printed number can be read again.
        if number.length() > LONGEST { Err(NumberError::TooLong) } else { Ok(number) }
    }
}

impl From<i32> for Number {
    fn from(integer: i32) -> Self {
        Self::finite(integer.into(), 0)
    }
}

impl From<i64> for Number {
    fn from(integer: i64) -> Self {
        Self::finite(integer.into(), 0)
    }
}

impl From<u64> for Number {
    fn from(integer: u64) -> Self {
        Self::finite(integer.into(), 0)
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |number: &Self| match &number.0 {
            Form::NegativeInfinity => 0,
            Form::Finite { .. } => 1,
            Form::PositiveInfinity => 2,
        };
        match (&self.0, &other.0) {
            (Form::Finite { digits: a, exponent: i }, Form::Finite { digits: b, exponent: j }) => {
                let least = *i.min(j);
                let scaled = |digits: &BigInt, exponent: i64| digits * power(10, (exponent - least).unsigned_abs());
                a.sign().cmp(&b.sign()).then_with(|| scaled(a, *i).cmp(&scaled(b, *j)))
            }
            _ => rank(self).cmp(&rank(other)),
        }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Number {
    /// All digits, without an exponent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (digits, exponent) = match &self.0 {
            Form::NegativeInfinity => return f.write_str("-Inf"),
            Form::PositiveInfinity => return f.write_str("Inf"),
            Form::Finite { digits, exponent } => (digits, *exponent),
        };
        if digits.sign() == Sign::Minus {
            f.write_str("-")?;
        }
        let text = digits.magnitude().to_string();
        if exponent >= 0 {
            let zeros = usize::try_from(exponent).map_err(|_| fmt::Error)?;
            return write!(f, "{text}{}", "0".repeat(zeros));
        }
        let fraction = usize::try_from(exponent.unsigned_abs()).map_err(|_| fmt::Error)?;
        let text = format!("{text:0>width$}", width = fraction + 1);
        let (whole, fraction) = text.split_at(text.len() - fraction);
        write!(f, "{whole}.{fraction}")
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> Number {
        text.parse().unwrap()
    }

    #[test]
    fn numbers_print_all_digits_without_an_exponent() {
        for (text, printed) in [
            ("1e21", "1000000000000000000000"),
            ("1.50", "1.5"),
            ("1e-7", "0.0000001"),
            ("-0", "0"),
            ("-12.050e1", "-120.5"),
            ("+7", "7"),
            (".5", "0.5"),
            ("9007199254740993", "9007199254740993"),
            ("0.1", "0.1"),
        ] {
            assert_eq!(number(text).to_string(), printed);
        }
    }

    #[test]
    fn numbers_compare_by_value() {
        assert_eq!(number("1e3"), number("1000.0"));
        assert!(number("0.1") < Number::from_f64(0.1).unwrap());
        assert_ne!(number("0.1"), Number::from_f64(0.1).unwrap());
        assert_eq!(number("0.5"), Number::from_f64(0.5).unwrap());
        assert!(number("-2") < number("-1.5") && number("2") < number("10"));
        assert!(Number::INFINITY > number("1e9999") && Number::NEGATIVE_INFINITY < number("-1e9999"));
    }

    #[test]
    fn texts_that_are_no_numbers_are_rejected() {
        for text in ["", "-", ".", "1e", "0x10", " 1", "1 ", "1_000", "Inf", "NaN", "1e+-3", "--1"] {
            assert_eq!(text.parse::<Number>(), Err(NumberError::Syntax(text.to_owned())));
        }
        assert_eq!("1e10001".parse::<Number>(), Err(NumberError::TooLong));
        assert!("1e-10000".parse::<Number>().unwrap().to_string().parse::<Number>().is_ok());
        assert_eq!("11e9999".parse::<Number>(), Err(NumberError::TooLong));
        assert_eq!("1e99999999999999999999".parse::<Number>(), Err(NumberError::TooLong));
        assert_eq!("1".repeat(10_004).parse::<Number>(), Err(NumberError::TooLong));
    }

    #[test]
    fn long_numbers_round_to_512_bits() {
        let two = |bits: u32| -> BigInt { BigUint::from(2u8).pow(bits).into() };
        let odd = Number::finite(two(512) + 1, 0);
        assert_eq!(odd.to_string(), two(512).to_string());
        assert_eq!(Number::finite(two(512) + 3, 0).to_string(), BigInt::to_string(&(two(512) + 4)));
        assert_eq!(Number::finite(two(511) + 1, 0).to_string(), BigInt::to_string(&(two(511) + 1)));
        let tiny = number(&format!("0.{}", "3".repeat(400)));
        assert_eq!(tiny, number(&format!("0.{}", "3".repeat(300))));
        assert_eq!(number(&tiny.to_string()), tiny);
    }

    #[test]
    fn integers_and_floats_convert_exactly_or_not_at_all() {
        assert_eq!(number("9223372036854775807").to_i64(), Some(i64::MAX));
        assert_eq!(number("9223372036854775808").to_i64(), None);
        assert_eq!(number("1.5").to_i64(), None);
        assert_eq!(number("1.5").exact_f64(), Some(1.5));
        assert_eq!(number("0.1").exact_f64(), None);
        assert_eq!(number("1e400").exact_f64(), None);
        assert_eq!(Number::from_f64(f64::NAN), Err(NumberError::NotANumber));
    }

    proptest! {
        #[test]
        fn floats_survive(float in any::<f64>().prop_filter("a number", |it| !it.is_nan())) {
            let exact = Number::from_f64(float).unwrap();
            prop_assert_eq!(exact.to_f64(), float);
            if exact.is_finite() {
                prop_assert_eq!(exact.to_string().parse::<Number>().unwrap(), exact);
            }
        }

        #[test]
        fn order_is_that_of_floats(a in -1e9..1e9, b in -1e9..1e9) {
            let (x, y) = (Number::from_f64(a).unwrap(), Number::from_f64(b).unwrap());
            prop_assert_eq!(Some(x.cmp(&y)), a.partial_cmp(&b));
        }
    }
}
