//! Functions of strings, regular expressions among them.

use regex::Regex;

use super::{
    super::{
        budget::{Budget, Writer, fits},
        eval::{Error, Outcome},
        held,
        value::{List, Value},
    },
    Invocation, Patterns, template,
};

pub(super) fn call<'a>(call: &Invocation<'_, 'a>, budget: &mut Budget, patterns: &mut Patterns) -> Option<Outcome<'a>> {
    if let (Some("strings"), "quote", [Value::String(text)]) = (call.namespace, call.name, call.args) {
        return Some(quote(text, budget));
    }
    if let (Some("jsonpatch"), "escapeKey", [Value::String(key)]) = (call.namespace, call.name, call.args) {
        return Some(escape_key(key));
    }
    if call.namespace.is_some() {
        return None;
    }
    if let ("matches", [Value::String(text), Value::String(pattern)]) = (call.name, call.args) {
        return Some(patterns.get(pattern, text, budget).map(|pattern| Value::Bool(pattern.is_match(text))));
    }
    if !call.receiver {
        return None;
    }
    if let ("join", [Value::List(list), rest @ ..]) = (call.name, call.args) {
        return join(list, rest, budget);
    }
    let [Value::String(text), rest @ ..] = call.args else { return None };
    on_string(call.name, text, rest, budget, patterns)
}

fn on_string<'a>(
    name: &str,
    text: &str,
    rest: &[Value<'a>],
    budget: &mut Budget,
    patterns: &mut Patterns,
) -> Option<Outcome<'a>> {
    Some(match (name, rest) {
        ("contains", [Value::String(part)]) => Ok(Value::Bool(text.contains(&**part))),
        ("startsWith", [Value::String(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        ("endsWith", [Value::String(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        ("find", [Value::String(pattern)]) => {
            let pattern = patterns.get(pattern, text, budget);
            pattern.map(|pattern| Value::text(pattern.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", [Value::String(pattern)]) => {
            patterns.get(pattern, text, budget).and_then(|pattern| find_all(text, pattern, usize::MAX, budget))
        }
        ("findAll", [Value::String(pattern), Value::Int(most)]) => {
            let most = usize::try_from(*most).unwrap_or(usize::MAX);
            patterns.get(pattern, text, budget).and_then(|pattern| find_all(text, pattern, most, budget))
        }
        ("charAt", [Value::Int(index)]) => char_at(text, *index),
        ("indexOf", [Value::String(part)]) => Ok(index_of(text, part, 0)),
        // Nothing is found anywhere.
        ("indexOf" | "lastIndexOf", [Value::String(part), Value::Int(at)]) if part.is_empty() => Ok(Value::Int(*at)),
        ("indexOf", [Value::String(part), Value::Int(from)]) => {
            not_negative(*from).map(|from| index_of(text, part, from))
        }
        ("lastIndexOf", [Value::String(part)]) => Ok(last_index_of(text, part, usize::MAX)),
        ("lastIndexOf", [Value::String(part), Value::Int(to)]) => not_negative(*to).map(|to| {
            let is_in = text.chars().nth(to).is_some();
            if is_in { last_index_of(text, part, to) } else { Value::Int(-1) }
        }),
        ("lowerAscii", []) => Ok(Value::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::text(text.trim())),
        ("reverse", []) => Ok(Value::text(text.chars().rev().collect::<String>())),
        ("replace", [Value::String(from), Value::String(to)]) => replace(text, from, to, None).map(Value::text),
        ("replace", [Value::String(from), Value::String(to), Value::Int(most)]) => {
            replace(text, from, to, usize::try_from(*most).ok()).map(Value::text)
        }
        ("split", [Value::String(separator)]) => split(text, separator, usize::MAX, budget),
        ("split", [Value::String(separator), Value::Int(most)]) => {
            split(text, separator, usize::try_from(*most).unwrap_or(usize::MAX), budget)
        }
        ("substring", [Value::Int(from)]) => within(text, *from).map(|from| Value::text(tail(text, from))),
        ("substring", [Value::Int(from), Value::Int(to)]) => substring(text, *from, *to),
        ("format", [Value::List(args)]) => template::fill(text, args, budget),
        _ => return None,
    })
}

fn find_all<'a>(text: &str, pattern: &Regex, most: usize, budget: &mut Budget) -> Outcome<'a> {
    let mut all = Vec::new();
    for found in pattern.find_iter(text).take(most) {
        // The rest of the text may be looked at for each.
        budget.spend(1 + (text.len() - found.start()) / 10)?;
        held::room(all.len())?;
        all.push(Value::text(found.as_str()));
    }
    Ok(Value::list(all))
}

fn out_of_range(index: i64) -> Error {
    Error::new(format!("index out of range: {index}"))
}

/// An index that may be behind the text.
fn not_negative(index: i64) -> Result<usize, Error> {
    usize::try_from(index).map_err(|_| out_of_range(index))
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
    let start = text.char_indices().nth(to).map_or(text.len(), |(byte, _)| byte);
    let end = text.floor_char_boundary(start.saturating_add(part.len()));
    Value::Int(text[..end].rfind(part).map_or(-1, |at| position(text, at)))
}

/// Characters that have a short escape have it; others stand as they are.
fn quote<'a>(text: &str, budget: &mut Budget) -> Outcome<'a> {
    let mut out = Writer::new(budget);
    out.push("\"")?;
    for c in text.chars() {
        match c {
            '\x07' => out.push("\\a")?,
            '\x08' => out.push("\\b")?,
            '\x0c' => out.push("\\f")?,
            '\n' => out.push("\\n")?,
            '\r' => out.push("\\r")?,
            '\t' => out.push("\\t")?,
            '\x0b' => out.push("\\v")?,
            '\\' => out.push("\\\\")?,
            '"' => out.push("\\\"")?,
            c => out.push(c.encode_utf8(&mut [0; 4]))?,
        }
    }
    out.push("\"")?;
    Ok(Value::text(out.finish()))
}

fn escape_key<'a>(key: &str) -> Outcome<'a> {
    replace(&replace(key, "~", "~0", None)?, "/", "~1", None).map(Value::text)
}

fn replace(text: &str, from: &str, to: &str, most: Option<usize>) -> Result<String, Error> {
    let count = text.matches(from).count().min(most.unwrap_or(usize::MAX));
    fits(text.len().saturating_add(count.saturating_mul(to.len())))?;
    Ok(match most {
        Some(most) => text.replacen(from, to, most),
        None => text.replace(from, to),
    })
}

fn split<'a>(text: &str, separator: &str, most: usize, budget: &mut Budget) -> Outcome<'a> {
    let Some(singly) = most.checked_sub(1) else { return Ok(Value::list(Vec::new())) };
    if !separator.is_empty() {
        return collect(text.splitn(most, separator), budget);
    }
    // Each character alone and then the rest, without the empty texts at both ends.
    let end = text.char_indices().nth(singly).map_or(text.len(), |(byte, _)| byte);
    let (characters, rest) = text.split_at(end);
    collect(characters.split_inclusive(|_: char| true).chain(Some(rest).filter(|rest| !rest.is_empty())), budget)
}

fn collect<'t, 'a>(parts: impl Iterator<Item = &'t str>, budget: &mut Budget) -> Outcome<'a> {
    let mut list = Vec::new();
    for part in parts {
        budget.spend(1)?;
        held::room(list.len())?;
        list.push(Value::text(part));
    }
    Ok(Value::list(list))
}

/// What is left of a text after so many characters.
fn tail(text: &str, from: usize) -> &str {
    text.char_indices().nth(from).map_or("", |(byte, _)| &text[byte..])
}

fn substring<'a>(text: &str, from: i64, to: i64) -> Outcome<'a> {
    if from > to {
        return Err(Error::new(format!("invalid substring range. start: {from}, end: {to}")));
    }
    let (start, end) = (within(text, from)?, within(text, to)?);
    Ok(Value::text(text.chars().skip(start).take(end - start).collect::<String>()))
}

fn join<'a>(list: &List<'a>, rest: &[Value<'a>], budget: &mut Budget) -> Option<Outcome<'a>> {
    let separator = match rest {
        [] => "",
        [Value::String(separator)] => &**separator,
        _ => return None,
    };
    let mut out = Writer::new(budget);
    let joined = list.iter().enumerate().try_for_each(|(index, item)| {
        let Value::String(text) = item else { return Err(Error::no_such_overload()) };
        out.push(if index == 0 { "" } else { separator })?;
        out.push(&text)
    });
    Some(joined.map(|()| Value::text(out.finish())))
}
