//! Texts and numbers as Go's packages `strconv` and `fmt` write them.

use std::fmt::Write as _;

/// A text in quotation marks, escaped as Go's `strconv.Quote` does it.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        let escaped = match c {
            '"' => r#"\""#,
            '\\' => r"\\",
            '\x07' => r"\a",
            '\x08' => r"\b",
            '\x0c' => r"\f",
            '\n' => r"\n",
            '\r' => r"\r",
            '\t' => r"\t",
            '\x0b' => r"\v",
            c => {
                let code = u32::from(c);
                // Writing to a string cannot fail.
                let _ = match code {
                    0..0x20 | 0x7f => write!(quoted, "\\x{code:02x}"),
                    _ if is_printable(c) => write!(quoted, "{c}"),
                    0..0x1_0000 => write!(quoted, "\\u{code:04x}"),
                    _ => write!(quoted, "\\U{code:08x}"),
                };
                continue;
            }
        };
        quoted.push_str(escaped);
    }
    quoted.push('"');
    quoted
}

/// Whether a character leaves a mark or is a space, as Go's `unicode.IsPrint` has it. Unassigned
/// characters, of which Rust has no table, pass here.
pub fn is_printable(c: char) -> bool {
    let invisible = matches!(u32::from(c),
        0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x180E | 0x200B..=0x200F | 0x202A..=0x202E
        | 0x2060..=0x206F | 0xE000..=0xF8FF | 0xFEFF | 0xFFF0..=0xFFFB | 0xE0000..=0x0010_FFFF);
    c == ' ' || !(c.is_control() || c.is_whitespace() || invisible)
}

/// A number with the least digits that tell it, as `strconv.FormatFloat(number, 'g', -1, 64)` writes it: `1.5`, `1e+06`.
pub fn shortest(number: f64) -> String {
    if number.is_nan() || number.is_infinite() {
        return not_finite(number).to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{number}");
    }
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs())
}

/// What `strconv` and `fmt` call a number that is none, or has no end.
pub(crate) fn not_finite(number: f64) -> &'static str {
    if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "+Inf"
    } else {
        "-Inf"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (number, written) in [
            (1.5, "1.5"),
            (1.0, "1"),
            (-0.0, "-0"),
            (999_999.9, "999999.9"),
            (1_000_000.0, "1e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (0.000_1, "0.0001"),
            (0.000_012_5, "1.25e-05"),
            (1e100, "1e+100"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(shortest(number), written);
        }
    }
}
