//! One object as it is kept: encoded, with what selectors look at beside it.

use std::{
    hash::{BuildHasher as _, RandomState},
    ops::Range,
    sync::{Arc, LazyLock, OnceLock},
};

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    definition::{Column, SelectableField},
    log::{Key, Version},
    object::Object,
    row::Row,
    selector::{FieldSelector, LabelSelector},
};

/// One object as the cache keeps it and lists and watches send it.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Where it lives in the log.
    pub key: Key,
    /// Its `resourceVersion`; 0 for the outcome of a dry run, which has none.
    pub version: Version,
    /// The whole object as JSON, `metadata.resourceVersion` in it.
    pub json: Bytes,
    /// A number that follows from the key, and does not change while the process lives.
    pub(crate) key_hash: u64,
    /// Where the member `"resourceVersion":"…",` stands in `json`, comma included.
    version_at: Range<usize>,
    /// Where the value of `metadata` stands in `json`.
    metadata_at: Range<usize>,
    facts: Arc<Facts>,
    /// What a table shows of it, once somebody asked.
    row: OnceLock<Row>,
}

/// What is known of an object without parsing it.
#[derive(Debug)]
struct Facts {
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    generation: i64,
    deleting: bool,
    labels: Box<[(Box<str>, Box<str>)]>,
    fields: Box<[Box<str>]>,
}

/// An object ready to be stored: its bytes without a version, and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// As the log keeps it.
    pub(crate) value: Bytes,
    /// Where things are in it.
    places: Places,
    facts: Arc<Facts>,
}

/// Where things are in an encoded object that has no version.
#[derive(Clone, Debug)]
struct Places {
    /// Where a version is spliced in.
    version: usize,
    /// The value of `metadata`.
    metadata: Range<usize>,
}

impl Stored {
    /// An object of which nothing is kept: it has no version, and its metadata may be empty.
    ///
    /// # Errors
    ///
    /// When it has no metadata.
    pub(crate) fn unkept(key: Key, object: &Object, fields: &[SelectableField]) -> Result<Self, serde_json::Error> {
        let json = Bytes::from(serde_json::to_vec(&object.0)?);
        let metadata = members(&json, 0).find(|(name, _)| *name == b"metadata").map(|(_, at)| at);
        let metadata_at = metadata.and_then(|at| Some(at..end_of_value(&json, at)?)).ok_or_else(no_metadata)?;
        let (key_hash, facts) = (hash(&key), Arc::new(Facts::of(object, fields)));
        let (version, version_at) = (Version::default(), metadata_at.start..metadata_at.start);
        Ok(Self { key, version, json, key_hash, version_at, metadata_at, facts, row: OnceLock::new() })
    }

    /// Its namespace, or the empty string.
    pub fn namespace(&self) -> &str {
        &self.facts.namespace
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        &self.facts.uid
    }

    /// Its generation; 0 when it has none.
    pub fn generation(&self) -> i64 {
        self.facts.generation
    }

    /// Whether it has a deletion timestamp.
    pub fn is_deleting(&self) -> bool {
        self.facts.deleting
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels = &self.facts.labels;
        let index = labels.binary_search_by(|(label, _)| (**label).cmp(key)).ok()?;
        Some(&labels[index].1)
    }

    /// Its labels, by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.facts.labels.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The values of the resource's selectable fields, in the order in which they are declared.
    pub fn fields(&self) -> &[Box<str>] {
        &self.facts.fields
    }

    /// Whether both selectors match.
    pub fn matches(&self, labels: &LabelSelector, fields: &FieldSelector) -> bool {
        labels.matches(|key| self.label(key)) && fields.matches(self.namespace(), self.name(), self.fields())
    }

    /// Parses the object, `metadata.resourceVersion` in it. Costs a parse with every call.
    pub fn object(&self) -> Object {
        // What is not a JSON object never becomes a `Stored`.
        serde_json::from_slice(&self.json).map(Object).unwrap_or_default()
    }

    /// The value of its `metadata` as it stands in the JSON.
    pub(crate) fn metadata_json(&self) -> &[u8] {
        &self.json[self.metadata_at.clone()]
    }

    /// What a table of these columns shows of it; costs a parse the first time. They have to be the resource's.
    pub(crate) fn row(&self, columns: &[Column]) -> &Row {
        self.row.get_or_init(|| Row::new(columns, &self.object()))
    }

    /// The same, told apart from an object of its key and version that says more.
    pub(crate) fn of_the_past(mut self) -> Self {
        self.key_hash = !self.key_hash;
        self
    }

    /// The same object with another version.
    pub(crate) fn at_version(&self, version: Version) -> Self {
        let (json, version_at) = splice(&self.json, self.version_at.clone(), version);
        let metadata_end = self.metadata_at.end - self.version_at.len() + version_at.len();
        let metadata_at = self.metadata_at.start..metadata_end;
        let Self { key, key_hash, facts, .. } = self.clone();
        Self { key, version, json, key_hash, version_at, metadata_at, facts, row: OnceLock::new() }
    }
}

impl Prepared {
    /// Encodes an object as the log keeps it, without its version.
    ///
    /// # Errors
    ///
    /// When it has no metadata.
    pub(crate) fn new(object: &Object, fields: &[SelectableField]) -> Result<Self, serde_json::Error> {
        debug_assert!(object.metadata().is_none_or(|metadata| !metadata.contains_key("resourceVersion")));
        let value = Bytes::from(serde_json::to_vec(&object.0)?);
        let places = Places::find(&value).ok_or_else(no_metadata)?;
        Ok(Self { value, places, facts: Arc::new(Facts::of(object, fields)) })
    }

    /// Reads what the log has kept.
    ///
    /// # Errors
    ///
    /// When the bytes are no JSON object with `metadata`.
    pub(crate) fn parse(value: Bytes, fields: &[SelectableField]) -> Result<Self, serde_json::Error> {
        let mut object = Object(serde_json::from_slice::<Map<String, Value>>(&value)?);
        // Of a member that stands twice the last one counts, which is not where the version would be put.
        let is_plain = members(&value, 0).count() == object.0.len();
        if is_plain
            && object.metadata().is_some_and(|metadata| !metadata.contains_key("resourceVersion"))
            && let Some(places) = Places::find(&value)
        {
            return Ok(Self { value, places, facts: Arc::new(Facts::of(&object, fields)) });
        }
        // Not as the registry writes it, such as with white space.
        object.metadata_mut().remove("resourceVersion");
        Self::new(&object, fields)
    }

    /// The object at `key` and `version`; version 0 leaves the version out.
    pub(crate) fn stored(&self, key: Key, version: Version) -> Stored {
        let Places { version: at, metadata } = self.places.clone();
        let (json, version_at) = splice(&self.value, at..at, version);
        let metadata_at = metadata.start..metadata.end + version_at.len();
        let (key_hash, facts) = (hash(&key), self.facts.clone());
        Stored { key, version, json, key_hash, version_at, metadata_at, facts, row: OnceLock::new() }
    }
}

impl Facts {
    fn of(object: &Object, fields: &[SelectableField]) -> Self {
        let metadata = object.metadata();
        let mut labels: Vec<(Box<str>, Box<str>)> = metadata
            .and_then(|metadata| metadata.get("labels"))
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into())))
            .collect();
        labels.sort();
        Self {
            namespace: object.namespace().into(),
            name: object.name().into(),
            uid: object.uid().into(),
            generation: metadata.and_then(|m| m.get("generation")).and_then(Value::as_i64).unwrap_or(0),
            deleting: metadata.is_some_and(|m| m.get("deletionTimestamp").is_some_and(|t| !t.is_null())),
            labels: labels.into(),
            fields: fields.iter().map(|field| field_text(object.get_path(field.path))).collect(),
        }
    }
}

fn no_metadata() -> serde_json::Error {
    serde::ser::Error::custom("there is no metadata")
}

fn field_text(value: Option<&Value>) -> Box<str> {
    match value {
        Some(Value::String(text)) => text.as_str().into(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string().into(),
        Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => "".into(),
    }
}

fn hash(key: &Key) -> u64 {
    // Chosen by chance, so that nobody can choose keys of one hash.
    static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    HASHES.hash_one(key.as_str())
}

/// Replaces `range` by the member for `version`.
fn splice(json: &Bytes, range: Range<usize>, version: Version) -> (Bytes, Range<usize>) {
    let member =
        if version == Version::default() { String::new() } else { format!("\"resourceVersion\":\"{version}\",") };
    let mut out = Vec::with_capacity(json.len() - range.len() + member.len());
    out.extend_from_slice(&json[..range.start]);
    out.extend_from_slice(member.as_bytes());
    out.extend_from_slice(&json[range.end..]);
    (out.into(), range.start..range.start + member.len())
}

impl Places {
    /// `"resourceVersion":"…",` belongs before the first member of `metadata` whose name comes later, such as `uid`,
    /// or else before the first. Nothing when there is no metadata, or an empty one.
    fn find(json: &[u8]) -> Option<Self> {
        // From the value back over the colon and the quoted name.
        let start = |(name, value): (&[u8], usize)| value - 1 - name.len() - 2;
        let metadata = members(json, 0).find(|(name, _)| *name == b"metadata")?.1;
        let later = members(json, metadata).find(|(name, _)| *name > b"resourceVersion".as_slice());
        let version = later.or_else(|| members(json, metadata).next()).map(start)?;
        Some(Self { version, metadata: metadata..end_of_value(json, metadata)? })
    }
}

/// The members of the object that begins at `at`: their names as encoded, and where the values
/// begin. Expects compact JSON, as `serde_json` writes it, and ends at whatever it does not know.
fn members(json: &[u8], at: usize) -> impl Iterator<Item = (&[u8], usize)> {
    let mut next = (json.get(at) == Some(&b'{')).then_some(at + 1);
    std::iter::from_fn(move || {
        let start = next.take()?;
        let name_end = end_of_string(json, start)?;
        let value = (json.get(name_end) == Some(&b':')).then_some(name_end + 1)?;
        let end = end_of_value(json, value)?;
        next = (json.get(end) == Some(&b',')).then_some(end + 1);
        Some((&json[start + 1..name_end - 1], value))
    })
}

/// The position after the string that begins with the quote at `at`.
fn end_of_string(json: &[u8], at: usize) -> Option<usize> {
    if json.get(at) != Some(&b'"') {
        return None;
    }
    let mut i = at + 1;
    loop {
        match json.get(i)? {
            b'"' => return Some(i + 1),
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
}

/// The position after the value that begins at `at`.
fn end_of_value(json: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut i = at;
    loop {
        match json.get(i)? {
            b'"' => {
                i = end_of_string(json, i)?;
                if depth == 0 {
                    return Some(i);
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return Some(i),
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Some(i + 1);
                }
            }
            b',' if depth == 0 => return Some(i),
            _ => {}
        }
        i += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const FIELDS: &[SelectableField] = &[
        SelectableField { name: "spec.project", path: &["spec", "project"] },
        SelectableField { name: "spec.n", path: &["spec", "n"] },
        SelectableField { name: "spec.none", path: &["spec", "none"] },
    ];

    fn object(value: Value) -> Object {
        Object(value.as_object().expect("a map").clone())
    }

    fn sample() -> Object {
        object(json!({
            "apiVersion": "g/v1", "kind": "K", "data": {"metadata": {"uid": "not this one"}, "q": "\"}{,"},
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": {"b": "2", "a": "1"}, "generation": 3},
            "spec": {"project": "p", "n": 7},
        }))
    }

    #[test]
    fn version_is_spliced_in_where_it_sorts() {
        let stored = Prepared::new(&sample(), FIELDS).expect("encodes").stored(Key::new("/k"), Version(42));
        let text = std::str::from_utf8(&stored.json).expect("text");
        assert!(text.contains(r#""namespace":"shop","resourceVersion":"42","uid":"u"}"#), "{text}");
        let metadata = |stored: &Stored| serde_json::from_slice::<Value>(stored.metadata_json()).expect("JSON");
        assert_eq!(metadata(&stored)["resourceVersion"], "42");
        let later = stored.at_version(Version(1_000));
        assert_eq!(metadata(&later)["resourceVersion"], "1000");
        assert_eq!(later.object().meta_str("resourceVersion"), "1000");
        assert_eq!(later.at_version(Version(42)).json, stored.json);
        assert_eq!(later.at_version(Version(0)).object(), sample());
    }

    #[test]
    fn facts_are_those_of_the_object() {
        let stored = Prepared::new(&sample(), FIELDS).expect("encodes").stored(Key::new("/k"), Version(1));
        assert_eq!((stored.namespace(), stored.name(), stored.uid()), ("shop", "web", "u"));
        assert_eq!((stored.generation(), stored.is_deleting()), (3, false));
        assert_eq!((stored.label("a"), stored.label("b"), stored.label("c")), (Some("1"), Some("2"), None));
        assert_eq!(stored.fields(), ["p".into(), "7".into(), "".into()] as [Box<str>; 3]);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for bad in ["", "1", "[]", "{", "{}", r#"{"metadata":1}"#, r#"{"metadata":{}}"#, "\u{0}"] {
            Prepared::parse(Bytes::from(bad), FIELDS).expect_err(bad);
        }
    }

    #[test]
    fn what_is_not_kept_may_have_empty_metadata() {
        let answer = object(json!({"kind": "K", "metadata": {}, "spec": {"metadata": 1}}));
        let stored = Stored::unkept(Key::new("/k"), &answer, FIELDS).expect("it has metadata");
        assert_eq!((stored.object(), stored.metadata_json()), (answer, b"{}".as_slice()));
        Stored::unkept(Key::new("/k"), &object(json!({"kind": "K"})), FIELDS).expect_err("no metadata");
    }

    #[test]
    fn what_stands_twice_is_kept_once() {
        for text in [
            r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#,
            r#"{"metadata":{"name":"a"},"metadat\u0061":{"name":"b"}}"#,
        ] {
            let prepared = Prepared::parse(Bytes::from(text), FIELDS).expect("an object");
            let stored = prepared.stored(Key::new("/k"), Version(7));
            assert_eq!(stored.json, r#"{"metadata":{"resourceVersion":"7","name":"b"}}"#, "{text}");
        }
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~é\"\\\\{}\\[\\],:]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-z\"\\\\]{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn splicing_changes_nothing_but_the_version(
            members in proptest::collection::btree_map("[a-z\"]{1,9}", json_value(), 0..4),
            metadata in proptest::collection::btree_map("[a-z\"]{1,4}", json_value(), 0..4),
            version in 1..u64::MAX,
        ) {
            let mut object = Object(members.into_iter().collect());
            let mut metadata: Map<String, Value> = metadata.into_iter().collect();
            metadata.insert("name".to_owned(), json!("web"));
            object.0.insert("metadata".to_owned(), Value::Object(metadata));
            let stored = Prepared::new(&object, &[]).expect("encodes").stored(Key::new("/k"), Version(version));
            object.metadata_mut().insert("resourceVersion".to_owned(), json!(version.to_string()));
            let metadata: Map<String, Value> = serde_json::from_slice(stored.metadata_json()).expect("JSON");
            prop_assert_eq!(Some(&metadata), object.metadata());
            prop_assert_eq!(stored.object(), object);
        }
    }
}
