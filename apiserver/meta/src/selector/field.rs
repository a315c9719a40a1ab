//! Field selectors: `metadata.name=web,spec.project!=shop`, on the fields that a resource declares.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::Value;

use crate::{
    definition::SelectableField,
    status::{ApiError, quote},
};

/// Matches objects by their name, namespace and declared fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: Field,
    equal: bool,
    value: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Name,
    Namespace,
    /// The position in the resource's selectable fields.
    Declared(usize),
    /// The same of a map, and the key of an entry.
    Entry(usize, String),
}

impl Field {
    fn find(name: &str, declared: &[SelectableField]) -> Option<Self> {
        let entry = |(index, field): (usize, &SelectableField)| Some(Self::Entry(index, field.entry(name)?.to_owned()));
        let plain = declared.iter().position(|field| field.name == name && !field.is_map()).map(Self::Declared);
        plain.or_else(|| declared.iter().enumerate().find_map(entry))
    }
}

/// The value of an entry of a map in JSON; empty where there is none.
fn entry(map: &str, key: &str) -> String {
    let map: BTreeMap<Cow<'_, str>, Value> = serde_json::from_str(map).unwrap_or_default();
    map.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// 400 for a field that cannot be selected, in upstream's words for kinds that declare none and for those that do.
fn unknown(name: &str, declares_none: bool) -> ApiError {
    ApiError::bad_request(if declares_none {
        format!("{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", quote(name))
    } else {
        format!("field label not supported: {name}")
    })
}

impl FieldSelector {
    /// Parses a `fieldSelector` parameter for a resource with these fields; empty matches everything. Fails with 400
    /// `BadRequest` for what does not parse and for a field that is not declared.
    pub fn parse(text: &str, declared: &[SelectableField]) -> Result<Self, ApiError> {
        FieldTerms::parse(text)?.of(declared)
    }

    /// Matches the objects of one name.
    pub fn of_name(name: &str) -> Self {
        Self(vec![Term { field: Field::Name, equal: true, value: name.to_owned() }])
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it matches an object; `field` gives the values of the declared ones, by their position.
    pub fn matches<'a>(&self, namespace: &'a str, name: &'a str, field: impl Fn(usize) -> &'a str) -> bool {
        self.0.iter().all(|term| {
            let value = match &term.field {
                Field::Name => name,
                Field::Namespace => namespace,
                Field::Declared(index) => field(*index),
                Field::Entry(index, key) => return (entry(field(*index), key) == term.value) == term.equal,
            };
            (value == term.value) == term.equal
        })
    }

    /// The only name that can match, when there is one.
    pub fn exact_name(&self) -> Option<&str> {
        self.exact(&Field::Name)
    }

    /// The only namespace that can match, when there is one.
    pub fn exact_namespace(&self) -> Option<&str> {
        self.exact(&Field::Namespace)
    }

    fn exact(&self, field: &Field) -> Option<&str> {
        self.0.iter().find(|term| term.field == *field && term.equal).map(|term| term.value.as_str())
    }
}

/// A selector whose fields have not been looked up: each, whether it has to be equal, and its value.
#[derive(Debug)]
pub struct FieldTerms<'a>(Vec<(&'a str, bool, String)>);

impl<'a> FieldTerms<'a> {
    /// Parses a `fieldSelector` parameter. Fails with 400 `BadRequest` for what does not parse.
    pub fn parse(text: &'a str) -> Result<Self, ApiError> {
        let mut parts = split(text);
        // As upstream sorts them, which decides what is told when more than one is wrong.
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (name, equal, value) = term(part).ok_or_else(|| {
                ApiError::bad_request(format!("invalid selector: '{text}'; can't understand '{part}'"))
            })?;
            terms.push((name, equal, unescape(value)?));
        }
        Ok(Self(terms))
    }

    /// The value that a field has to have, when there is one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|(name, equal, _)| *name == field && *equal).map(|(.., value)| value.as_str())
    }

    /// The selector for a resource with these fields. Fails with 400 `BadRequest` for a field that is not declared.
    pub fn of(self, declared: &[SelectableField]) -> Result<FieldSelector, ApiError> {
        let mut known = Vec::new();
        for (name, equal, value) in self.0 {
            if name.is_empty() && value.is_empty() {
                // It selects nothing of anything, and upstream drops it before it looks at the field.
                continue;
            }
            let field = match name {
                "metadata.name" => Field::Name,
                "metadata.namespace" => Field::Namespace,
                name => Field::find(name, declared).ok_or_else(|| unknown(name, declared.is_empty()))?,
            };
            known.push(Term { field, equal, value });
        }
        Ok(FieldSelector(known))
    }
}

/// Splits at commas that no backslash stands before.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn term(part: &str) -> Option<(&str, bool, &str)> {
    let at = part.find("!=").into_iter().chain(part.find('=')).min()?;
    let (name, rest) = part.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some((name, false, value));
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some((name, true, value))
}

fn unescape(value: &str) -> Result<String, ApiError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(bad_escape(&format!("\\{c}"))),
                None => return Err(bad_escape("\\")),
            },
            ',' | '=' => {
                let code = u32::from(c);
                return Err(ApiError::bad_request(format!(
                    "invalid field selector: unescaped character in value: {code}"
                )));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

fn bad_escape(sequence: &str) -> ApiError {
    ApiError::bad_request(format!("invalid field selector: invalid escape sequence: {sequence}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIELDS: &[SelectableField] = &[
        SelectableField { name: "spec.project", path: &["spec", "project"] },
        SelectableField { name: "spec.n", path: &["spec", "n"] },
    ];

    fn matches(selector: &str) -> bool {
        FieldSelector::parse(selector, FIELDS).expect("good").matches("shop", "a=b,c", |index| ["web", ""][index])
    }

    #[test]
    fn terms_compare_text() {
        for good in [
            "",
            ",",
            "spec.project=web",
            "spec.project==web",
            "spec.project!=x",
            "spec.n=",
            "metadata.namespace=shop,spec.project=web",
            r"metadata.name=a\=b\,c",
        ] {
            assert!(matches(good), "{good:?}");
        }
        for bad in ["spec.project=x", "spec.project!=web", "spec.n=1", "metadata.name=a", "spec.project=web,spec.n=1"] {
            assert!(!matches(bad), "{bad:?}");
        }
    }

    #[test]
    fn entries_of_maps_are_selected_by_key() {
        let fields = [SelectableField { name: "spec.labels[*]", path: &["spec", "labels"] }, FIELDS[0]];
        let matches = |selector: &str, map: &str| {
            FieldSelector::parse(selector, &fields).expect("good").matches("", "", |index| [map, "web"][index])
        };
        let map = r#"{"tier":"gold","a.b/c":"1"}"#;
        for good in ["spec.labels[tier]=gold", "spec.labels[a.b/c]=1", "spec.labels[none]=", "spec.labels[tier]!=x"] {
            assert!(matches(good, map), "{good:?}");
        }
        assert!(!matches("spec.labels[tier]=gold", "") && !matches("spec.labels[tier]=silver", map));
        assert!(matches("spec.project=web,spec.labels[tier]=", ""), "an object without the map");
        for bad in ["spec.labels=x", "spec.labels[*=x", "spec.other[tier]=x"] {
            assert_eq!(FieldSelector::parse(bad, &fields).expect_err(bad).code(), 400, "{bad:?}");
        }
    }

    #[test]
    fn nonsense_is_a_bad_request() {
        for (bad, message) in [
            ("spec.project", "invalid selector: 'spec.project'; can't understand 'spec.project'"),
            ("spec.other=1", "field label not supported: spec.other"),
            (r"spec.n=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"spec.n=\", r"invalid field selector: invalid escape sequence: \"),
            ("spec.n=a=b", "invalid field selector: unescaped character in value: 61"),
            // All of it is read before any field is looked up, and in order.
            ("spec.other=1,x", "invalid selector: 'spec.other=1,x'; can't understand 'x'"),
            ("spec.other=1,a.other=1", "field label not supported: a.other"),
        ] {
            let error = FieldSelector::parse(bad, FIELDS).expect_err(bad);
            assert_eq!((error.code(), error.message()), (400, message), "{bad:?}");
        }
    }

    #[test]
    fn exact_name_and_namespace_are_known() {
        let selector = FieldSelector::parse("metadata.name=a,metadata.namespace!=b", FIELDS).expect("good");
        assert_eq!((selector.exact_name(), selector.exact_namespace()), (Some("a"), None));
    }

    proptest! {
        #[test]
        fn escaped_values_come_back(value in ".{0,12}") {
            let escaped = value.replace('\\', "\\\\").replace(',', "\\,").replace('=', "\\=");
            let selector = FieldSelector::parse(&format!("spec.project={escaped}"), FIELDS).expect("escaped");
            prop_assert!(selector.matches("", "", |index| [value.as_str(), ""][index]));
        }
    }
}
