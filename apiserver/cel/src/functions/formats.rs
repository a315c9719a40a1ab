//! Formats that texts may have, as Kubernetes adds them to CEL: `format.dns1123Label().validate(object.metadata.name)`.
//!
//! Follows `format.go` in `k8s.io/apiserver/pkg/cel/library`. The rules of names are those of [`names`]; those of dates,
//! UUIDs and base64 are `k8s.io/kube-openapi/pkg/validation/strfmt`'s.

use super::{
    super::{
        budget::Budget,
        eval::{Error, Outcome},
        go::{time, url::Url},
        names,
        value::Value,
    },
    Invocation,
};

/// A format: how it is called, and what is wrong with a text that does not have it.
#[derive(Debug)]
pub(in super::super) struct Format {
    pub(in super::super) name: &'static str,
    complaints: fn(&str) -> Vec<String>,
    /// How long the regular expression is, or may be, that tells whether a text has it; each character costs.
    pattern: usize,
}

static FORMATS: [Format; 13] = [
    Format { name: "dns1123Label", complaints: names::dns_label, pattern: 30 },
    Format { name: "dns1123Subdomain", complaints: names::dns_subdomain, pattern: 60 },
    Format { name: "dns1035Label", complaints: names::dns_1035_label, pattern: 30 },
    Format { name: "qualifiedName", complaints: names::label_key, pattern: 60 },
    Format { name: "dns1123LabelPrefix", complaints: |text| names::dns_label(&begun(text)), pattern: 30 },
    Format { name: "dns1123SubdomainPrefix", complaints: |text| names::dns_subdomain(&begun(text)), pattern: 60 },
    Format { name: "dns1035LabelPrefix", complaints: |text| names::dns_1035_label(&begun(text)), pattern: 30 },
    Format { name: "labelValue", complaints: names::label_value, pattern: 40 },
    Format { name: "uri", complaints: |text| Url::check(text).err().into_iter().collect(), pattern: 1103 },
    Format { name: "uuid", complaints: |text| unless(is_uuid(text), "does not match the UUID format"), pattern: 70 },
    Format { name: "byte", complaints: |text| unless(is_base64(text), "invalid base64"), pattern: 84 },
    Format { name: "date", complaints: |text| unless(time::is_date(text), "invalid date"), pattern: 71 },
    Format { name: "datetime", complaints: |text| unless(is_date_time(text), "invalid datetime"), pattern: 71 },
];

pub(super) fn call<'a>(call: &Invocation<'_, 'a>, budget: &mut Budget) -> Option<Outcome<'a>> {
    match (call.namespace, call.name, call.args) {
        (Some("format"), "named", [Value::String(name)]) => {
            Some(Ok(Value::Optional(named(name).map(|format| Box::new(Value::Format(format))))))
        }
        (Some("format"), name, []) => named(name).map(|format| Ok(Value::Format(format))),
        (None, "validate", [Value::Format(format), Value::String(text)]) if call.receiver => {
            Some(validate(format, text, budget))
        }
        _ => None,
    }
}

pub(super) fn named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

/// Costs as much as a search for the pattern, as upstream counts it.
fn validate<'a>(format: &Format, text: &str, budget: &mut Budget) -> Result<Value<'a>, Error> {
    budget.spend((1 + text.len() / 10) * (1 + format.pattern / 4))?;
    let complaints: Vec<Value<'a>> = (format.complaints)(text).into_iter().map(short).collect();
    Ok(Value::Optional((!complaints.is_empty()).then(|| Box::new(Value::list(complaints)))))
}

/// A complaint may have the text in it.
fn short<'a>(complaint: String) -> Value<'a> {
    match Error::new(complaint) {
        Error::Message(text) => Value::text(text),
        _ => Value::text(""),
    }
}

/// What a name may be checked as that has this beginning.
fn begun(prefix: &str) -> String {
    names::mask_trailing_dash(prefix)
}

fn unless(holds: bool, complaint: &str) -> Vec<String> {
    if holds { Vec::new() } else { vec![complaint.to_owned()] }
}

/// Groups of 8, 4, 4, 4 and 12 hexadecimal digits, with a dash between two or none.
fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    [8, 4, 4, 4, 12].into_iter().enumerate().all(|(index, digits)| {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(digits) else { return false };
        rest = after;
        group.bytes().all(|byte| byte.is_ascii_hexdigit())
    }) && rest.is_empty()
}

/// Whole groups of the standard alphabet, at least one.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    !digits.is_empty() && text.len().is_multiple_of(4) && text.len() - digits.len() <= 2 && digits.bytes().all(fits)
}

/// A date, `t` and a time with an offset; what stands after another `t` does not count.
fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(clock)) = (parts.next(), parts.next()) else { return false };
    time::is_date(date) && is_clock(clock)
}

/// `15:04:05`, a fraction after any character, and `z` or an offset.
fn is_clock(text: &str) -> bool {
    let Some((clock, rest)) = text.split_at_checked("15:04:05".len()) else { return false };
    let parts: Vec<&str> = clock.split(':').collect();
    let [hour, minute, second] = parts.as_slice() else { return false };
    let is_number = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if ![hour, minute, second].into_iter().all(|part| is_number(part))
        || *hour > "23"
        || *minute > "59"
        || *second > "59"
    {
        return false;
    }
    let is_zone = |zone: &str| {
        zone == "z"
            || zone
                .strip_prefix(['+', '-'])
                .and_then(|offset| offset.split_once(':'))
                .is_some_and(|(hours, minutes)| is_number(hours) && is_number(minutes))
    };
    let fraction = rest.strip_prefix(|first: char| first != '\n').unwrap_or("");
    let after = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    is_zone(rest) || (after.len() < fraction.len() && is_zone(after))
}
