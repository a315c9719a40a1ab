//! `string.format()`: `'%s has %d'.format([name, count])`.
//!
//! Follows version 2 of `Strings` in `github.com/google/cel-go/ext`, by which `%f` and `%e` are written for people who
//! read English: `12,345.500000` and `1.234500×10⁰³`. There are `%s`, `%d`, `%f`, `%e`, `%b`, `%o`, `%x` and `%X`.

use super::{
    super::{
        budget::{Budget, Writer, fits, rounds},
        eval::{Error, Outcome},
        go::text::{quote, shortest},
        value::{Key, List, Map, Value},
    },
    display, show,
};

/// The digits behind the point where nothing says how many.
const USUAL_PRECISION: usize = 6;
/// The most digits that may be asked for.
const MOST_PRECISION: usize = 1_000;

pub(super) fn fill<'a>(template: &str, args: &List<'a>, budget: &mut Budget) -> Outcome<'a> {
    let mut out = Writer::new(budget);
    let mut next = 0;
    let mut rest = template;
    while let Some(at) = rest.find('%') {
        out.push(&rest[..at])?;
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push("%")?;
            rest = after;
            continue;
        }
        let value = args.get(next).ok_or_else(|| Error::new(format!("index {next} out of range")))?;
        next += 1;
        let clause = Clause::read(&mut rest)?;
        clause.write(&value, &mut out)?;
    }
    out.push(rest)?;
    Ok(Value::text(out.finish()))
}

struct Clause {
    verb: char,
    precision: Option<usize>,
}

impl Clause {
    fn read(rest: &mut &str) -> Result<Self, Error> {
        let wrong = |why: &str| Error::new(format!("could not parse formatting clause: {why}"));
        let mut precision = None;
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(|c: char| !c.is_ascii_digit());
            let end =
                end.ok_or_else(|| wrong("error while parsing precision: could not find end of precision specifier"))?;
            let digits = &after[..end];
            let number = digits.parse::<usize>().ok().filter(|number| *number <= MOST_PRECISION);
            precision = Some(number.ok_or_else(|| {
                let why = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
                let why = format!("strconv.Atoi: parsing {}: {why}", quote(digits));
                wrong(&format!("error while parsing precision: error while converting precision to integer: {why}"))
            })?);
            *rest = &after[end..];
        }
        let mut characters = rest.chars();
        let verb = characters.next().ok_or_else(|| Error::new("unexpected end of string"))?;
        if !"sdfebxXo".contains(verb) {
            return Err(wrong(&format!("unrecognized formatting clause \"{verb}\"")));
        }
        *rest = characters.as_str();
        Ok(Self { verb, precision })
    }

    fn write(&self, value: &Value<'_>, out: &mut Writer<'_>) -> Result<(), Error> {
        let precision = self.precision.unwrap_or(USUAL_PRECISION);
        let refused =
            |what: &str| Err(Error::new(format!("error during formatting: {what}, was given {}", value.type_name())));
        let number = match value {
            Value::Double(number) => Some(*number),
            Value::String(text) => match &**text {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                _ => None,
            },
            _ => None,
        };
        // A negative number has a sign, not all the bits that computers keep it in.
        let whole = match value {
            Value::Int(number) => Some((*number < 0, number.unsigned_abs())),
            Value::Uint(number) => Some((false, *number)),
            _ => None,
        };
        let signed = |digits: fn(u64) -> String| {
            whole.map(|(negative, number)| format!("{}{}", if negative { "-" } else { "" }, digits(number)))
        };
        let written = match self.verb {
            's' => return text(value, out),
            'd' => match signed(|number| number.to_string()) {
                Some(text) => text,
                None => return refused("decimal clause can only be used on integers"),
            },
            'f' => match number {
                Some(number) => fixed(number, precision),
                None => return refused("fixed-point clause can only be used on doubles"),
            },
            'e' => match number {
                Some(number) => scientific(number, precision),
                None => return refused("scientific clause can only be used on doubles"),
            },
            'b' => match (signed(|number| format!("{number:b}")), value) {
                (Some(text), _) => text,
                (None, Value::Bool(value)) => u8::from(*value).to_string(),
                _ => return refused("only integers and bools can be formatted as binary"),
            },
            'o' => match signed(|number| format!("{number:o}")) {
                Some(text) => text,
                None => return refused("octal clause can only be used on integers"),
            },
            upper_or_lower => {
                let text = match (signed(|number| format!("{number:x}")), value) {
                    (Some(text), _) => text,
                    (None, Value::String(text)) => hexadecimal(text.as_bytes())?,
                    (None, Value::Bytes(bytes)) => hexadecimal(bytes)?,
                    _ => return refused("only integers, byte buffers, and strings can be formatted as hex"),
                };
                if upper_or_lower == 'X' { text.to_uppercase() } else { text }
            }
        };
        out.push(&written)
    }
}

fn hexadecimal(bytes: &[u8]) -> Result<String, Error> {
    fits(2 * bytes.len())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A number that is none, or has no end, in signs.
fn not_finite(number: f64) -> Option<&'static str> {
    match number {
        number if number.is_nan() => Some("NaN"),
        f64::INFINITY => Some("∞"),
        f64::NEG_INFINITY => Some("-∞"),
        _ => None,
    }
}

fn fixed(number: f64, precision: usize) -> String {
    if let Some(text) = not_finite(number) {
        return text.to_owned();
    }
    let text = format!("{number:.precision$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut grouped = String::with_capacity(text.len() * 4 / 3);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

/// Upstream takes the precision for how wide the text is to be.
fn scientific(number: f64, width: usize) -> String {
    if let Some(text) = not_finite(number) {
        return format!("{text:>width$}");
    }
    let text = format!("{number:.USUAL_PRECISION$e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let raised: String = format!("{:02}", exponent.unsigned_abs())
        .bytes()
        .map(|digit| ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][usize::from(digit - b'0')])
        .collect();
    let text = format!("{digits}×10{}{raised}", if exponent < 0 { "⁻" } else { "" });
    format!("{text:>width$}")
}

fn text(value: &Value<'_>, out: &mut Writer<'_>) -> Result<(), Error> {
    match value {
        Value::List(list) => list_of(list, out),
        Value::Map(map) => map_of(map, out),
        Value::Bytes(bytes) if std::str::from_utf8(bytes).is_err() => {
            Err(Error::new("error during formatting: invalid UTF-8 in bytes, cannot convert to string"))
        }
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Double(_)
        | Value::String(_)
        | Value::Bytes(_)
        | Value::Duration(_)
        | Value::Timestamp(_)
        | Value::Type(_) => show(value, out),
        other => Err(Error::new(format!(
            "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, \
             lists, types, durations, and timestamps, was given {}",
            other.type_name()
        ))),
    }
}

fn list_of(list: &List<'_>, out: &mut Writer<'_>) -> Result<(), Error> {
    out.push("[")?;
    for (index, item) in list.iter().enumerate() {
        out.push(if index == 0 { "" } else { ", " })?;
        inner(&item, out)?;
    }
    out.push("]")
}

/// In the order of the keys as they are written.
fn map_of(map: &Map<'_>, out: &mut Writer<'_>) -> Result<(), Error> {
    let rounds = rounds(map.len());
    out.spend(rounds * (map.len() / 10))?;
    let mut entries = Vec::with_capacity(map.len());
    for (key, value) in map.entries() {
        out.spend(1 + rounds * key.size())?;
        let key = match &key {
            Key::String(text) => quote(text),
            key => key.to_string(),
        };
        entries.push((key, value));
    }
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    out.push("{")?;
    for (index, (key, value)) in entries.iter().enumerate() {
        out.push(if index == 0 { "" } else { ", " })?;
        out.push(key)?;
        out.push(":")?;
        inner(value, out)?;
    }
    out.push("}")
}

/// A value in a list or map, as an expression would have it.
fn inner(value: &Value<'_>, out: &mut Writer<'_>) -> Result<(), Error> {
    out.step()?;
    match value {
        Value::String(text) => {
            out.spend(text.len() / 10)?;
            out.push(&quote(text))
        }
        Value::Bytes(bytes) => {
            out.spend(bytes.len() / 10)?;
            let text = std::str::from_utf8(bytes);
            let text = text
                .map_err(|_| Error::new("error during formatting: invalid UTF-8 in bytes, cannot convert to string"))?;
            out.push("b")?;
            out.push(&quote(text))
        }
        Value::Double(number) if number.is_finite() => out.push(&format!("{number:.USUAL_PRECISION$}")),
        Value::Double(number) => out.push(&quote(&shortest(*number))),
        Value::Duration(_) | Value::Timestamp(_) => {
            let name = if matches!(value, Value::Duration(_)) { "duration" } else { "timestamp" };
            let shown = out.budgeted(|budget| display(value, budget))?;
            out.push(&format!("{name}({})", quote(&shown)))
        }
        Value::List(_)
        | Value::Map(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Type(_) => text(value, out),
        other => Err(Error::new(format!("error during formatting: no formatting function for {}", other.type_name()))),
    }
}
