//! Functions of strings, regular expressions among them.

use regex::{Regex, RegexBuilder};

use super::{
    super::{
        eval::{Error, Outcome},
        value::{List, Value},
    },
    Invocation, display,
};

pub(super) const NAMES: &[&str] = &[
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "find",
    "findAll",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "join",
    "lowerAscii",
    "upperAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "reverse",
    "format",
    "quote",
    "escapeKey",
];

/// The most memory that a compiled pattern may take, in bytes.
const LARGEST_PATTERN: usize = 1 << 20;

pub(super) fn call<'a>(call: &Invocation<'_, 'a>) -> Option<Outcome<'a>> {
    if let (Some("strings"), "quote", [Value::String(text)]) = (call.namespace, call.name, call.args) {
        return Some(Ok(Value::text(format!("{text:?}"))));
    }
    if let (Some("jsonpatch"), "escapeKey", [Value::String(key)]) = (call.namespace, call.name, call.args) {
        return Some(Ok(Value::text(key.replace('~', "~0").replace('/', "~1"))));
    }
    if call.namespace.is_some() {
        return None;
    }
    if let ("matches", [Value::String(text), Value::String(pattern)]) = (call.name, call.args) {
        return Some(compile(pattern).map(|pattern| Value::Bool(pattern.is_match(text))));
    }
    if !call.receiver {
        return None;
    }
    if let ("join", [Value::List(list), rest @ ..]) = (call.name, call.args) {
        return join(list, rest);
    }
    let [Value::String(text), rest @ ..] = call.args else { return None };
    on_string(call.name, text, rest)
}

fn on_string<'a>(name: &str, text: &str, rest: &[Value<'a>]) -> Option<Outcome<'a>> {
    Some(match (name, rest) {
        ("contains", [Value::String(part)]) => Ok(Value::Bool(text.contains(&**part))),
        ("startsWith", [Value::String(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        ("endsWith", [Value::String(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        ("find", [Value::String(pattern)]) => {
            compile(pattern).map(|pattern| Value::text(pattern.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", [Value::String(pattern)]) => find_all(text, pattern, usize::MAX),
        ("findAll", [Value::String(pattern), Value::Int(most)]) => {
            find_all(text, pattern, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        ("charAt", [Value::Int(index)]) => char_at(text, *index),
        ("indexOf", [Value::String(part)]) => Ok(index_of(text, part, 0)),
        ("indexOf", [Value::String(part), Value::Int(from)]) => {
            within(text, *from).map(|from| index_of(text, part, from))
        }
        ("lastIndexOf", [Value::String(part)]) => Ok(last_index_of(text, part, usize::MAX)),
        ("lastIndexOf", [Value::String(part), Value::Int(to)]) => {
            within(text, *to).map(|to| last_index_of(text, part, to))
        }
        ("lowerAscii", []) => Ok(Value::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::text(text.trim())),
        ("reverse", []) => Ok(Value::text(text.chars().rev().collect::<String>())),
        ("replace", [Value::String(from), Value::String(to)]) => replace(text, from, to, None),
        ("replace", [Value::String(from), Value::String(to), Value::Int(most)]) => {
            replace(text, from, to, usize::try_from(*most).ok())
        }
        ("split", [Value::String(separator)]) => Ok(split(text, separator, usize::MAX)),
        ("split", [Value::String(separator), Value::Int(most)]) => {
            Ok(split(text, separator, usize::try_from(*most).unwrap_or(usize::MAX)))
        }
        ("substring", [Value::Int(from)]) => substring(text, *from, text.chars().count() as i64),
        ("substring", [Value::Int(from), Value::Int(to)]) => substring(text, *from, *to),
        ("format", [Value::List(args)]) => format(text, args),
        _ => return None,
    })
}

fn compile(pattern: &str) -> Result<Regex, Error> {
    RegexBuilder::new(pattern)
        .size_limit(LARGEST_PATTERN)
        .build()
        .map_err(|error| Error::new(format!("error parsing regexp: {error}")))
}

fn find_all<'a>(text: &str, pattern: &str, most: usize) -> Outcome<'a> {
    let found = compile(pattern)?;
    Ok(Value::list(found.find_iter(text).take(most).map(|found| Value::text(found.as_str())).collect()))
}

fn out_of_range(index: i64) -> Error {
    Error::new(format!("index out of range: {index}"))
}

/// An index that is in the text, or at its end.
fn within(text: &str, index: i64) -> Result<usize, Error> {
    usize::try_from(index).ok().filter(|index| *index <= text.chars().count()).ok_or_else(|| out_of_range(index))
}

fn char_at<'a>(text: &str, index: i64) -> Outcome<'a> {
    let at = within(text, index)?;
    Ok(Value::text(text.chars().nth(at).map(String::from).unwrap_or_default()))
}

/// Counts in characters, as CEL does.
fn position(text: &str, byte: usize) -> i64 {
    text[..byte].chars().count() as i64
}

fn index_of<'a>(text: &str, part: &str, from: usize) -> Value<'a> {
    let start = text.char_indices().nth(from).map_or(text.len(), |(byte, _)| byte);
    Value::Int(text[start..].find(part).map_or(-1, |at| position(text, start + at)))
}

fn last_index_of<'a>(text: &str, part: &str, to: usize) -> Value<'a> {
    let found = text.char_indices().map(|(byte, _)| byte).chain([text.len()]).enumerate();
    let last = found.take_while(|(index, _)| *index <= to).filter(|(_, byte)| text[*byte..].starts_with(part)).last();
    Value::Int(last.map_or(-1, |(index, _)| index as i64))
}

fn replace<'a>(text: &str, from: &str, to: &str, most: Option<usize>) -> Outcome<'a> {
    let count = text.matches(from).count().min(most.unwrap_or(usize::MAX));
    if text.len().saturating_add(count.saturating_mul(to.len())) > super::super::LARGEST_STRING {
        return Err(Error::new("the string is too long"));
    }
    Ok(Value::text(match most {
        Some(most) => text.replacen(from, to, most),
        None => text.replace(from, to),
    }))
}

fn split<'a>(text: &str, separator: &str, most: usize) -> Value<'a> {
    match (most, separator.is_empty()) {
        (0, _) => Value::list(Vec::new()),
        (_, true) if most == usize::MAX => Value::list(text.chars().map(|c| Value::text(c.to_string())).collect()),
        _ => Value::list(text.splitn(most, separator).map(Value::text).collect()),
    }
}

fn substring<'a>(text: &str, from: i64, to: i64) -> Outcome<'a> {
    let (start, end) = (within(text, from)?, within(text, to)?);
    if start > end {
        return Err(Error::new(format!("invalid substring range. start: {from}, end: {to}")));
    }
    Ok(Value::text(text.chars().skip(start).take(end - start).collect::<String>()))
}

fn join<'a>(list: &List<'a>, rest: &[Value<'a>]) -> Option<Outcome<'a>> {
    let separator = match rest {
        [] => "",
        [Value::String(separator)] => separator,
        _ => return None,
    };
    let texts: Option<Vec<String>> = list
        .iter()
        .map(|item| match item {
            Value::String(text) => Some(text.into_owned()),
            _ => None,
        })
        .collect();
    Some(texts.map(|texts| Value::text(texts.join(separator))).ok_or_else(Error::no_such_overload))
}

/// `%s`, `%d`, `%f`, `%e`, `%b`, `%o`, `%x` and `%X`, with a precision for `%f` and `%e`.
fn format<'a>(template: &str, args: &List<'a>) -> Outcome<'a> {
    let mut out = String::new();
    let mut next = 0;
    let mut rest = template;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let verb_at = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let precision = rest[..verb_at].trim_start_matches('.').parse::<usize>().unwrap_or(6).min(100);
        let verb = rest[verb_at..].chars().next().ok_or_else(|| Error::new("unexpected end of format string"))?;
        rest = &rest[verb_at + verb.len_utf8()..];
        if verb == '%' {
            out.push('%');
            continue;
        }
        let value = args.get(next).ok_or_else(|| Error::new(format!("index {next} out of range")))?;
        next += 1;
        out.push_str(&one(verb, precision, &value)?);
    }
    out.push_str(rest);
    Ok(Value::text(out))
}

fn one(verb: char, precision: usize, value: &Value<'_>) -> Result<String, Error> {
    let wrong = || Error::new(format!("could not convert argument of type {} for %{verb}", value.type_name()));
    Ok(match (verb, value) {
        ('s', value) => display(value),
        ('d', Value::Int(value)) => value.to_string(),
        ('d', Value::Uint(value)) => value.to_string(),
        ('f', Value::Double(value)) => format!("{value:.precision$}"),
        ('f', Value::Int(value)) => format!("{:.precision$}", *value as f64),
        ('e', Value::Double(value)) => format!("{value:.precision$e}"),
        ('b', Value::Int(value)) => format!("{value:b}"),
        ('b', Value::Bool(value)) => u8::from(*value).to_string(),
        ('o', Value::Int(value)) => format!("{value:o}"),
        ('x', Value::Int(value)) => format!("{value:x}"),
        ('X', Value::Int(value)) => format!("{value:X}"),
        ('x', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        ('X', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02X}")).collect(),
        _ => return Err(wrong()),
    })
}
