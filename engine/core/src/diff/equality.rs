//! Equality of scalars that are written differently.

use serde_json::Value;

use crate::diff::quantities::is_quantity;
use crate::path::FieldPath;

/// The group and kind of an object, which say what its fields mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind<'a> {
    /// Empty for core.
    pub(super) group: &'a str,
    pub(super) kind: &'a str,
}

/// Whether two scalars at this path are equal. Lists and maps have to be identical. `kind` is set for Kubernetes objects.
pub(super) fn same(kind: Option<Kind<'_>>, path: &FieldPath, a: &Value, b: &Value) -> bool {
    if a == b {
        return true;
    }
    if let (Value::Number(a), Value::Number(b)) = (a, b) {
        // 1 and 1.0: YAML and JSON writers disagree on whether a whole number keeps its point.
        return a.as_f64().is_some_and(|a| b.as_f64() == Some(a)) && (a.is_f64() || b.is_f64());
    }
    kind.is_some_and(|kind| is_quantity(kind, path)) && quantity(a).is_some_and(|a| quantity(b) == Some(a))
}

/// A quantity in billionths, exactly; `None` when it is none or too large to say.
///
/// Follows the grammar of `k8s.io/apimachinery/pkg/api/resource`: a decimal number and a suffix
/// `n u m k M G T P E`, `Ki Mi Gi Ti Pi Ei` or an exponent.
fn quantity(value: &Value) -> Option<i128> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (base, power): (i128, i32) = match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (1024, 1),
        "Mi" => (1024, 2),
        "Gi" => (1024, 3),
        "Ti" => (1024, 4),
        "Pi" => (1024, 5),
        "Ei" => (1024, 6),
        exponent => (10, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    // The number is digits · 10^-fraction · base^power, wanted in units of 10^-9.
    let mut tens = 9 - i32::try_from(fraction.len()).ok()?;
    let mut out = digits;
    if base == 10 {
        tens = tens.checked_add(power)?;
    } else {
        out = out.checked_mul(base.checked_pow(u32::try_from(power).ok()?)?)?;
    }
    let scale = 10_i128.checked_pow(tens.unsigned_abs());
    out = match (tens >= 0, scale) {
        (true, scale) => out.checked_mul(scale?)?,
        (false, Some(scale)) if out % scale == 0 => out / scale,
        (false, _) => return None,
    };
    Some(if negative { -out } else { out })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(path: &[&str], a: Value, b: Value, expected: bool) {
        let path = FieldPath::of_keys(<[&str; 3]>::try_from(path).unwrap());
        let quota = Kind { group: "", kind: "ResourceQuota" };
        assert_eq!(same(Some(quota), &path, &a, &b), expected, "{a} and {b} at {path}");
        assert!(!same(None, &path, &a, &b) || a.is_number(), "{a} and {b} where nothing is known of the field");
    }

    #[test]
    fn quantities_are_compared_by_what_they_mean() {
        let cpu = ["spec", "hard", "cpu"];
        check(&cpu, json!("1000m"), json!("1"), true);
        check(&cpu, json!(1), json!("1"), true);
        check(&cpu, json!(0.5), json!("500m"), true);
        check(&cpu, json!("1Gi"), json!("1024Mi"), true);
        check(&cpu, json!("1.5Gi"), json!("1536Mi"), true);
        check(&cpu, json!("1e3"), json!("1k"), true);
        check(&cpu, json!("0.1"), json!("100m"), true);
        check(&cpu, json!("1G"), json!("1Gi"), false);
        check(&cpu, json!("1"), json!("2"), false);
        check(&cpu, json!("x"), json!("x1"), false);
        check(&cpu, json!("99999999999999999999999999E"), json!("1"), false);
    }

    #[test]
    fn text_elsewhere_is_compared_as_text() {
        check(&["spec", "data", "cpu"], json!("1000m"), json!("1"), false);
        check(&["spec", "data", "cpu"], json!("1"), json!(1), false);
    }

    #[test]
    fn whole_numbers_may_have_a_point() {
        check(&["spec", "count", "replicas"], json!(1.0), json!(1), true);
        check(&["spec", "count", "replicas"], json!(1.5), json!(1), false);
        check(&["spec", "count", "big"], json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992_u64), false);
    }
}
