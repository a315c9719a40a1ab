//! `resource.Quantity` in expressions: exact decimal numbers with the suffixes that Kubernetes has.

use std::cmp::Ordering;

/// A number `mantissa × 10^exponent`, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quantity {
    mantissa: i128,
    exponent: i32,
}

impl Quantity {
    /// Reads `100m`, `1.5Gi`, `2e3`, …; nothing for what is none.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let digits = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(digits);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 30 {
            return None;
        }
        let magnitude: i128 = format!("{whole}{fraction}").parse().ok()?;
        let mantissa = if text.starts_with('-') { -magnitude } else { magnitude };
        let exponent = -i32::try_from(fraction.len()).ok()?;
        if let Some(power) = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == suffix) {
            let factor = 1_i128 << (10 * (power + 1));
            return Some(Self { mantissa: mantissa.checked_mul(factor)?, exponent }.reduced());
        }
        let scale = match suffix {
            "" => 0,
            "n" => -9,
            "u" => -6,
            "m" => -3,
            "k" => 3,
            "M" => 6,
            "G" => 9,
            "T" => 12,
            "P" => 15,
            "E" => 18,
            _ => suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok().filter(|scale| scale.abs() <= 30)?,
        };
        Some(Self { mantissa, exponent: exponent + scale }.reduced())
    }

    /// A whole number.
    pub(super) fn from_int(value: i64) -> Self {
        Self { mantissa: i128::from(value), exponent: 0 }.reduced()
    }

    fn reduced(mut self) -> Self {
        if self.mantissa == 0 {
            return Self { mantissa: 0, exponent: 0 };
        }
        while self.mantissa % 10 == 0 {
            self.mantissa /= 10;
            self.exponent += 1;
        }
        self
    }

    /// -1, 0 or 1.
    pub(super) fn sign(self) -> i64 {
        self.mantissa.signum() as i64
    }

    /// The value when it is a whole number that fits.
    pub(super) fn as_int(self) -> Option<i64> {
        let power = u32::try_from(self.exponent).ok()?;
        self.mantissa.checked_mul(10_i128.checked_pow(power)?)?.try_into().ok()
    }

    /// The nearest floating-point number.
    pub(super) fn as_float(self) -> f64 {
        self.mantissa as f64 * 10_f64.powi(self.exponent)
    }

    /// Both with one exponent.
    fn aligned(self, other: Self) -> Option<(i128, i128, i32)> {
        let exponent = self.exponent.min(other.exponent);
        let at = |quantity: Self| {
            let power = u32::try_from(quantity.exponent - exponent).ok()?;
            quantity.mantissa.checked_mul(10_i128.checked_pow(power)?)
        };
        Some((at(self)?, at(other)?, exponent))
    }

    /// The sum; nothing when it does not fit.
    pub(super) fn add(self, other: Self) -> Option<Self> {
        let (a, b, exponent) = self.aligned(other)?;
        Some(Self { mantissa: a.checked_add(b)?, exponent }.reduced())
    }

    /// The difference; nothing when it does not fit.
    pub(super) fn sub(self, other: Self) -> Option<Self> {
        self.add(Self { mantissa: other.mantissa.checked_neg()?, exponent: other.exponent })
    }

    /// Which of the two is greater.
    pub(super) fn compare(self, other: Self) -> Ordering {
        match self.aligned(other) {
            Some((a, b, _)) => a.cmp(&b),
            None => self.as_float().total_cmp(&other.as_float()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_mean_what_they_mean_in_kubernetes() {
        let int = |text: &str| Quantity::parse(text).and_then(Quantity::as_int);
        for (text, value) in
            [("1", 1), ("1k", 1000), ("1Ki", 1024), ("1.5Gi", 1_610_612_736), ("2e3", 2000), ("-5", -5), ("5000m", 5)]
        {
            assert_eq!(int(text), Some(value), "{text}");
        }
        assert_eq!(int("100m"), None);
        for bad in ["", ".", "1.2.3", "1ki", "abc", "1e", "--1", "Mi"] {
            assert_eq!(Quantity::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn sums_and_comparisons_are_exact() {
        let quantity = |text: &str| Quantity::parse(text).unwrap();
        assert_eq!(quantity("100m").add(quantity("900m")), Some(quantity("1")));
        assert_eq!(quantity("1Gi").sub(quantity("1Mi")), Some(quantity("1023Mi")));
        assert_eq!(quantity("0.1").compare(quantity("100m")), Ordering::Equal);
        assert_eq!(quantity("1G").compare(quantity("1Gi")), Ordering::Less);
    }
}
