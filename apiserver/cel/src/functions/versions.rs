//! Semantic versions, as Kubernetes adds them to CEL: `semver("1.2.3").isLessThan(semver("1.10.0"))`.
//!
//! Follows `semverlib.go` in `k8s.io/apiserver/pkg/cel/library`. What was built of a version says nothing of its order.

use std::sync::Arc;

use semver::Version;

use super::{
    super::{
        eval::{Error, Outcome},
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

/// Reads a version. The error has the words of `github.com/blang/semver` for a text that is like none.
fn parse(text: &str) -> Result<Version, String> {
    Version::parse(text).map_err(|_| "No Major.Minor.Patch elements found".to_owned())
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
