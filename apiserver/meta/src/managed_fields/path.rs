//! One step of a path into an object, as `managedFields` write it.
//!
//! Follows `structured-merge-diff/v6/fieldpath` (`element.go`, `serialize-pe.go`).

use std::{cmp::Ordering, fmt};

use serde_json::{Map, Value};

use super::value;
use crate::status::quote;

/// One step of a path: from a map or list to what is in it.
#[derive(Clone, Debug)]
pub(super) enum PathElement {
    /// A map's entry or an object's field: `f:spec`.
    Field(Box<str>),
    /// The item of a keyed list with these keys, sorted by name: `k:{"name":"web"}`.
    Key(Vec<(Box<str>, Value)>),
    /// An item of a set: `v:"web"`.
    Value(Value),
    /// An item of any other list: `i:0`.
    Index(i64),
}

/// Why a text is no path element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathElementError {
    /// A kind that later versions may know; what it leads to is left out.
    #[error("unknown path element type")]
    UnknownType,
    /// Nothing that could be read.
    #[error("{0}")]
    Malformed(String),
}

impl PathElement {
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    pub(super) fn decode(text: &str) -> Result<Self, PathElementError> {
        let malformed = |detail: String| PathElementError::Malformed(detail);
        let (kind, content) = match (text.as_bytes(), text.get(2..)) {
            ([kind, b':', ..], Some(content)) => (*kind, content),
            ([_, _, ..], _) => return Err(malformed(format!("missing colon: {text}"))),
            _ => return Err(malformed("key must be 2 characters long:".to_owned())),
        };
        let json = |error: serde_json::Error| malformed(error.to_string());
        match kind {
            b'f' => Ok(Self::field(content)),
            b'v' => Ok(Self::Value(serde_json::from_str(content).map_err(json)?)),
            b'k' => {
                let keys: Map<String, Value> = serde_json::from_str(content).map_err(json)?;
                let mut keys: Vec<_> = keys.into_iter().map(|(name, value)| (name.into_boxed_str(), value)).collect();
                keys.sort_by(|a, b| a.0.cmp(&b.0));
                Ok(Self::Key(keys))
            }
            b'i' => content
                .parse()
                .map(Self::Index)
                .map_err(|_| malformed(format!("strconv.Atoi: parsing {}: invalid syntax", quote(content)))),
            _ => Err(PathElementError::UnknownType),
        }
    }

    pub(super) fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let mut out = String::from("k:{");
                for (index, (name, key)) in keys.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    value::write_json_string(name, false, &mut out);
                    out.push(':');
                    value::write_json(key, &mut out);
                }
                out.push('}');
                out
            }
            Self::Value(item) => {
                let mut out = String::from("v:");
                value::write_json(item, &mut out);
                out
            }
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                value::compare_all(a.iter(), b.iter(), |a, b| a.0.cmp(&b.0).then_with(|| value::compare(&a.1, &b.1)))
            }
            (Self::Value(a), Self::Value(b)) => value::compare(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for PathElement {}

/// As conflicts name it: `.spec`, `[name="web"]`, `[="web"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<_> = keys.iter().map(|(name, key)| format!("{name}={}", value::InPath(key))).collect();
                write!(f, "[{}]", keys.join(","))
            }
            Self::Value(item) => write!(f, "[={}]", value::InPath(item)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path as it is shown: its elements one after the other.
pub(super) struct Shown<'a>(pub(super) &'a [PathElement]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|element| element.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_read_back_as_they_were_written() {
        for (text, shown) in [
            ("f:spec", ".spec"),
            ("f:a b", ".a b"),
            ("f:", "."),
            (r#"k:{"name":"web","port":80}"#, r#"[name="web",port=80]"#),
            (r#"v:"a\u003c""#, r#"[="a<"]"#),
            ("v:1", "[=1]"),
            ("i:7", "[7]"),
        ] {
            let element = PathElement::decode(text).expect(text);
            assert_eq!((element.encode().as_str(), element.to_string().as_str()), (text, shown));
        }
    }

    #[test]
    fn decoder_distinguishes_malformed_from_unknown_elements() {
        assert_eq!(PathElement::decode("x:1"), Err(PathElementError::UnknownType));
        for text in ["", "f", "ff", "v:{", "k:1", "i:x", "é"] {
            assert!(matches!(PathElement::decode(text), Err(PathElementError::Malformed(_))), "{text}");
        }
    }
}
