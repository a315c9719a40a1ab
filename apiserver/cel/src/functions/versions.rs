//! Semantic versions, as Kubernetes adds them to CEL: `semver("1.2.3").isLessThan(semver("1.10.0"))`.
//!
//! Follows `semverlib.go` in `k8s.io/apiserver/pkg/cel/library`. What was built of a version says nothing of its order.

use std::sync::Arc;

use semver::Version;

use super::{
    super::{
        eval::{Error, Outcome},
        go::text::quote,
        value::Value,
    },
    Invocation,
};

pub(super) fn call<'a>(call: &Invocation<'_, 'a>) -> Option<Outcome<'a>> {
    if call.namespace.is_some() {
        return None;
    }
    if call.receiver {
        let [Value::Semver(version), rest @ ..] = call.args else { return None };
        return on_version(call.name, version, rest);
    }
    let (text, normalizes) = match call.args {
        [Value::String(text)] => (text, false),
        [Value::String(text), Value::Bool(normalizes)] => (text, *normalizes),
        _ => return None,
    };
    let version = if normalizes { normalized(text).and_then(|text| parse(&text)) } else { parse(text) };
    Some(match call.name {
        "semver" => version.map(|version| Value::Semver(Arc::new(version))).map_err(Error::new),
        "isSemver" => Ok(Value::Bool(version.is_ok())),
        _ => return None,
    })
}

fn on_version<'a>(name: &str, version: &Version, rest: &[Value<'a>]) -> Option<Outcome<'a>> {
    let number = |number: u64| i64::try_from(number).map(Value::Int).map_err(|_| Error::new("integer overflow"));
    Some(match (name, rest) {
        ("major", []) => number(version.major),
        ("minor", []) => number(version.minor),
        ("patch", []) => number(version.patch),
        (_, [Value::Semver(other)]) => {
            let order = version.cmp_precedence(other);
            match name {
                "isLessThan" => Ok(Value::Bool(order.is_lt())),
                "isGreaterThan" => Ok(Value::Bool(order.is_gt())),
                "compareTo" => Ok(Value::Int(order as i64)),
                _ => return None,
            }
        }
        _ => return None,
    })
}

/// Reads a version, or says what is wrong in the words of `github.com/blang/semver`.
fn parse(text: &str) -> Result<Version, String> {
    if text.is_empty() {
        return Err("Version string empty".to_owned());
    }
    let parts: Vec<&str> = text.splitn(3, '.').collect();
    let [major, minor, rest] = parts.as_slice() else { return Err("No Major.Minor.Patch elements found".to_owned()) };
    let (rest, build) = rest.split_once('+').map_or((*rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, before) = rest.split_once('-').map_or((rest, None), |(patch, before)| (patch, Some(before)));
    for (part, name, capital) in [(*major, "major", "Major"), (*minor, "minor", "Minor"), (patch, "patch", "Patch")] {
        number(part, name, capital)?;
    }
    let fits = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    for part in before.into_iter().flat_map(|parts| parts.split('.')) {
        if part.is_empty() {
            return Err("Prerelease is empty".to_owned());
        }
        if part.len() > 1 && part.starts_with('0') && part.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {}", quote(part)));
        }
        if !fits(part) {
            return Err(format!("Invalid character(s) found in prerelease {}", quote(part)));
        }
    }
    for part in build.into_iter().flat_map(|parts| parts.split('.')) {
        if part.is_empty() {
            return Err("Build meta data is empty".to_owned());
        }
        if !fits(part) {
            return Err(format!("Invalid character(s) found in build meta data {}", quote(part)));
        }
    }
    Version::parse(text).map_err(|_| format!("{} is no semantic version", quote(text)))
}

fn number(text: &str, name: &str, capital: &str) -> Result<(), String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {name} number {}", quote(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{capital} number must not contain leading zeroes {}", quote(text)));
    }
    let problem = if text.is_empty() { "invalid syntax" } else { "value out of range" };
    text.parse::<u64>().map(drop).map_err(|_| format!("strconv.ParseUint: parsing {}: {problem}", quote(text)))
}

/// A version with what people leave out: without a `v` before it and zeros before its numbers, and with all three of these.
fn normalized(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err("short version cannot contain PreRelease/Build meta data".to_owned());
    }
    parts.resize(3, "0".to_owned());
    Ok(parts.join("."))
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|first: char| first.is_ascii_digit()) { rest.to_owned() } else { format!("0{rest}") }
}
