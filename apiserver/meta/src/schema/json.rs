//! Reads JSON along a schema: notes duplicate fields, skips unknown ones without building them, and shows what has a type
//! in the order in which it stands.

use std::{borrow::Cow, cell::RefCell, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, error::Category};

use super::{
    StrictErrors, SyntaxError, TYPE_FIELDS,
    compile::{CompiledSchema, Field, NodeId, Shape},
    path::Path,
};
use crate::status::quote;

/// Is shown a value that was read, where the schema has it, and its path.
type Look<'a> = dyn Fn(NodeId, &Value, &Path<'_>) + 'a;

/// Reads a body; with a schema, unknown fields are noted and left out.
pub(super) fn parse(schema: Option<&CompiledSchema>, body: &[u8]) -> Result<(Value, StrictErrors), SyntaxError> {
    let strict = RefCell::default();
    let value = read(schema, body, &strict, None)?;
    Ok((value, strict.into_inner()))
}

/// Shows all values of a body that have a type, in its order: parts before their whole, and all that stand twice.
pub(super) fn look_through(schema: &CompiledSchema, body: &[u8], look: &Look<'_>) -> Result<(), SyntaxError> {
    read(Some(schema), body, &RefCell::default(), Some(look)).map(drop)
}

fn read(
    schema: Option<&CompiledSchema>,
    body: &[u8],
    strict: &RefCell<StrictErrors>,
    look: Option<&Look<'_>>,
) -> Result<Value, SyntaxError> {
    // Go's decoder replaces what is not UTF-8, so bodies that it takes have to be taken here.
    let text = with_whole_characters(String::from_utf8_lossy(body));
    if let Some(character) = too_deep(&text) {
        return Err(SyntaxError(format!("invalid character '{character}' exceeded max depth")));
    }
    let seed = Seed { schema, node: schema.map(CompiledSchema::root), path: &Path::Root, strict, look };
    let mut deserializer = serde_json::Deserializer::from_str(&text);
    seed.deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| SyntaxError(go_message(&error, &text)))
}

/// The text with halves of surrogate pairs that have no other half replaced, as Go's decoder replaces them.
fn with_whole_characters(text: Cow<'_, str>) -> Cow<'_, str> {
    let escape = |at: usize| -> Option<u16> {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u").filter(|digits| digits.is_ascii())?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut halves, mut at) = (Vec::new(), 0);
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        at += match (escape(at), escape(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                halves.push(at);
                6
            }
            // Whatever stands behind it begins no escape of its own.
            _ => 2,
        };
    }
    if halves.is_empty() {
        return text;
    }
    let mut whole = text.into_owned();
    halves.into_iter().for_each(|at| whole.replace_range(at..at + 6, "\\ufffd"));
    Cow::Owned(whole)
}

/// Where the reader is, and what the schema says of it; no node means that anything goes.
struct Seed<'a, 'p> {
    schema: Option<&'a CompiledSchema>,
    node: Option<NodeId>,
    path: &'p Path<'p>,
    strict: &'a RefCell<StrictErrors>,
    look: Option<&'a Look<'a>>,
}

impl<'a> Seed<'a, '_> {
    fn child<'p>(&self, node: Option<NodeId>, path: &'p Path<'p>) -> Seed<'a, 'p> {
        Seed { schema: self.schema, node, path, strict: self.strict, look: self.look }
    }

    fn shape(&self) -> Option<&'a Shape> {
        Some(&self.schema?.node(self.node?).shape)
    }

    /// Whether a member is `apiVersion` or `kind` to whoever takes any case of letters for that.
    fn tells_type(&self, key: &str) -> bool {
        matches!(self.path, Path::Root) && TYPE_FIELDS.iter().any(|field| key.eq_ignore_ascii_case(field))
    }

    fn note(&self, what: &str, key: &str) {
        self.strict.borrow_mut().note_field(what, &self.path.key(key));
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let (shown, path) = (self.look.zip(self.node), self.path);
        let value = deserializer.deserialize_any(self)?;
        if let Some((look, node)) = shown {
            look(node, &value, path);
        }
        Ok(value)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // A minus before nothing makes no other number.
        if value == 0.0 && value.is_sign_negative() {
            return Ok(0.into());
        }
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let items = match self.shape() {
            Some(Shape::Array(items)) => Some(*items),
            _ => None,
        };
        let mut values = Vec::new();
        while let Some(value) = sequence.next_element_seed(self.child(items, &self.path.index(values.len())))? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let shape = match self.shape() {
            Some(Shape::Object(shape)) => Some(shape),
            _ => None,
        };
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let (node, path) = match shape.map(|shape| shape.field(&key)) {
                // What may tell the kind is looked at first, and is unknown then.
                Some(Field::Unknown) if self.tells_type(&key) => (None, self.path.key(&key)),
                Some(Field::Unknown) => {
                    self.note("unknown", &key);
                    entries.next_value::<IgnoredAny>()?;
                    continue;
                }
                Some(Field::Known(id)) => (Some(id), self.path.key(&key)),
                Some(Field::Element(id)) => (Some(id), self.path.element(&key)),
                Some(Field::Free) | None => (None, self.path.key(&key)),
            };
            if map.contains_key(&key) {
                self.note("duplicate", &key);
            }
            let value = entries.next_value_seed(self.child(node, &path))?;
            match (self.schema, shape.map(|shape| shape.field(&key)), map.get_mut(&key)) {
                (Some(schema), Some(Field::Known(id)), Some(before)) => merge(schema, id, before, value),
                _ => drop(map.insert(key, value)),
            }
        }
        Ok(Value::Object(map))
    }
}

/// Reads what stands a second time into what was made of the first, as Go does where it knows the type: a field keeps
/// what is not said of it again. Everywhere else the last one counts.
fn merge(schema: &CompiledSchema, node: NodeId, into: &mut Value, from: Value) {
    match (&schema.node(node).shape, into, from) {
        (Shape::Object(shape), Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match (shape.field(&key), into.get_mut(&key)) {
                    (Field::Known(id), Some(before)) => merge(schema, id, before, value),
                    _ => drop(into.insert(key, value)),
                }
            }
        }
        (Shape::Array(items), Value::Array(into), Value::Array(from)) => {
            into.truncate(from.len());
            for (index, value) in from.into_iter().enumerate() {
                match into.get_mut(index) {
                    Some(before) => merge(schema, *items, before, value),
                    None => into.push(value),
                }
            }
        }
        (_, into, from) => *into = from,
    }
}

/// The deepest nesting that Go's decoder reads, of fields that nobody knows too.
const GO_MAX_DEPTH: usize = 10_000;

/// The character at which a text is nested too deeply.
fn too_deep(text: &str) -> Option<char> {
    if text.len() <= GO_MAX_DEPTH {
        return None;
    }
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > GO_MAX_DEPTH {
                    return Some(char::from(byte));
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The error as Go's `encoding/json` words it.
fn go_message(error: &serde_json::Error, text: &str) -> String {
    let message = error.to_string();
    if error.classify() == Category::Eof {
        return "unexpected end of JSON input".to_owned();
    }
    let context = [
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("expected `:`", "after object key"),
        ("key must be a string", "looking for beginning of object key string"),
        ("trailing comma", "looking for beginning of value"),
        ("trailing characters", "after top-level value"),
        ("control character", "in string literal"),
        ("invalid escape", "in string escape code"),
        ("invalid number", "in numeric literal"),
        ("expected value", "looking for beginning of value"),
        ("expected ident", "in literal"),
        ("recursion limit exceeded", "exceeded max depth"),
    ];
    let byte = byte_at(text, error.line(), error.column());
    let Some((_, context)) = context.iter().find(|(prefix, _)| message.starts_with(prefix)) else {
        return message;
    };
    match byte {
        // A line's end is reported after it.
        _ if message.starts_with("control character") && error.column() == 0 => {
            format!(r"invalid character '\n' {context}")
        }
        Some(b'\'') => format!(r"invalid character '\'' {context}"),
        Some(b'"') => format!("invalid character '\"' {context}"),
        // Go looks at bytes, and shows each as the character of that number.
        Some(byte) => {
            let quoted = quote(&char::from(byte).to_string());
            let context = match (byte, message.starts_with("trailing comma")) {
                (b'}', true) => "looking for beginning of object key string".to_owned(),
                _ if *context == "in literal" => in_literal(text, error.line(), error.column()),
                _ => (*context).to_owned(),
            };
            format!("invalid character '{}' {context}", quoted.trim_matches('"'))
        }
        None => message,
    }
}

/// Which literal ends at the byte that an error points at, and how it would go on.
fn in_literal(text: &str, line: usize, column: usize) -> String {
    let before = line.checked_sub(1).and_then(|line| text.split('\n').nth(line)).unwrap_or("");
    let before = before.get(..column.saturating_sub(1)).unwrap_or("");
    let begun = ["null", "true", "false"].iter().flat_map(|word| (1..word.len()).rev().map(|at| word.split_at(at)));
    let found = begun.filter(|(begun, _)| before.ends_with(begun)).max_by_key(|(begun, _)| begun.len());
    found.map_or("in literal".to_owned(), |(begun, rest)| {
        let next = rest.get(..1).unwrap_or("");
        format!("in literal {begun}{rest} (expecting '{next}')")
    })
}

/// The byte that an error points at; the column counts bytes and is that of the byte read last.
fn byte_at(text: &str, line: usize, column: usize) -> Option<u8> {
    let line = text.split('\n').nth(line.checked_sub(1)?)?.as_bytes();
    let at = column.saturating_sub(1);
    line.get(at).copied().or((at == line.len()).then_some(b'\n'))
}
