//! A stored object: encoded, with the values for selectors beside it.
//!
//! The bytes are those that the log has, in the same memory. The version is no part of them, since a record has it; it is
//! put in wherever the object is written ([`Encoded`]).

use std::{
    hash::{BuildHasher as _, RandomState},
    ops::Range,
    sync::{Arc, LazyLock, OnceLock},
};

use bytes::Bytes;
use serde::{Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Map, Value};
use stoa_log::{Key, Version};
use stoa_meta::{
    definition::{Column, SelectableField},
    json::{self, end_of_string},
    object::Object,
    row::Row,
    schema::{MAX_DEPTH, TYPE_FIELDS, height},
    selector::{FieldSelector, LabelBits, LabelSelector},
};

use super::selectable::{Selectable, short};

/// One object as the cache keeps it and lists and watches send it.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Where it lives in the log.
    pub key: Key,
    /// Its `resourceVersion`; 0 for the outcome of a dry run, which has none.
    pub version: Version,
    /// The whole object as JSON, without its version.
    value: Bytes,
    /// Where things are in it.
    places: Places,
    /// A number that follows from the key, and does not change while the process lives.
    pub key_hash: u64,
    /// Here, since the labels are far away in memory.
    bits: LabelBits,
    selectable: Arc<Selectable>,
    /// What a table shows of it, once somebody asked.
    row: OnceLock<Row>,
}

/// An object ready to be stored: its bytes without a version, and what is known of it.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// As the log keeps it.
    pub value: Bytes,
    /// Where things are in it.
    places: Places,
    selectable: Arc<Selectable>,
}

/// Why an object cannot be kept, or what was kept is none.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// It could be written, and not be read again.
    #[error("it is nested {0} levels deep, and no more than {MAX_DEPTH} are read back")]
    TooDeep(usize),
    /// It has no metadata, or is no JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Where things are in an encoded object that has no version.
#[derive(Clone, Debug)]
struct Places {
    /// Where a version is spliced in.
    version: u32,
    metadata: Range<u32>,
}

impl Stored {
    /// An object of which nothing is kept: it has no version, and its metadata may be empty.
    /// Fails when it has no metadata, or is nested too deeply to be read back.
    pub(crate) fn ephemeral(key: Key, object: &Object, fields: &[SelectableField]) -> Result<Self, DecodeError> {
        let value = encoded(object)?;
        let metadata = members(&value, 0).find(|(name, _)| *name == b"metadata").map(|(_, at)| at);
        let metadata = metadata.and_then(|at| Some(at..end_of_value(&value, at)?)).ok_or_else(no_metadata)?;
        let places = Places::new(metadata.start, metadata);
        let prepared = Prepared { value, places, selectable: Arc::new(Selectable::of(object, fields)) };
        Ok(prepared.stored(key, Version::default()))
    }

    /// Its namespace, or the empty string.
    pub fn namespace(&self) -> &str {
        self.selectable.namespace()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.selectable.name()
    }

    /// Its uid.
    pub fn uid(&self) -> &str {
        self.selectable.uid()
    }

    /// Its generation; 0 when it has none.
    pub fn generation(&self) -> i64 {
        self.selectable.generation()
    }

    /// Whether it has a deletion timestamp.
    pub fn is_deleting(&self) -> bool {
        self.selectable.is_deleting()
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.selectable.label(key)
    }

    /// Its labels, by key.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.selectable.labels()
    }

    /// The value of one of the resource's selectable fields, which are numbered in the order in which they are declared;
    /// empty where there is none.
    pub fn field(&self, index: usize) -> &str {
        self.selectable.field(index)
    }

    /// Whether both selectors match.
    pub fn matches(&self, labels: &LabelSelector, fields: &FieldSelector) -> bool {
        labels.may_match(self.bits)
            && labels.matches(|key| self.label(key))
            && fields.matches(self.namespace(), self.name(), |index| self.field(index))
    }

    /// Parses the object, `metadata.resourceVersion` in it. Costs a parse with every call.
    pub fn object(&self) -> Object {
        let object = serde_json::from_slice(&self.value).map(Object);
        // Anything instead of it would be taken for what is stored, and written over that.
        let mut object = object.expect("what is no JSON object that reads back never becomes a `Stored`");
        if self.version != Version::default() {
            object.metadata_mut().insert("resourceVersion".to_owned(), self.version.to_string().into());
        }
        object
    }

    /// The JSON without `metadata.resourceVersion`.
    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }

    /// The whole object as JSON, `metadata.resourceVersion` in it. Costs a copy with every call.
    pub fn json(&self) -> Bytes {
        self.encoded().bytes()
    }

    /// Parses the object as a type, which may have fewer fields. Costs a copy and a parse with every call. Fails when
    /// it is not of that type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.json())
    }

    /// The same without its version, which spares the copy: for types that have only a few of its fields. Fails when it
    /// is not of that type.
    pub fn decode_part<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.value)
    }

    /// The JSON, to be written.
    pub fn encoded(&self) -> Encoded<'_> {
        self.part(0..short(self.value.len()))
    }

    /// The value of its `metadata`, to be written.
    pub fn metadata(&self) -> Encoded<'_> {
        self.part(self.places.metadata.clone())
    }

    /// A part of the JSON that the version is in.
    fn part(&self, range: Range<u32>) -> Encoded<'_> {
        let [start, version, end] = [range.start, self.places.version, range.end].map(|at| at as usize);
        Encoded { before: &self.value[start..version], version: self.version, after: &self.value[version..end] }
    }

    /// What a table of these columns shows of it; costs a parse the first time. They have to be the resource's.
    pub fn row(&self, columns: &[Column]) -> &Row {
        self.row.get_or_init(|| Row::new(columns, &self.object()))
    }

    /// The same, told apart from an object of its key and version that says more.
    pub(crate) fn of_the_past(mut self) -> Self {
        self.key_hash = !self.key_hash;
        self
    }

    /// The same object with another version.
    pub(crate) fn at_version(&self, version: Version) -> Self {
        Self { version, row: OnceLock::new(), ..self.clone() }
    }
}

impl Prepared {
    /// Encodes an object as the log keeps it, without its version. Fails when it has no metadata, or is nested too
    /// deeply to be read back.
    pub fn new(object: &Object, fields: &[SelectableField]) -> Result<Self, DecodeError> {
        debug_assert!(object.metadata().is_none_or(|metadata| !metadata.contains_key("resourceVersion")));
        let value = encoded(object)?;
        let places = Places::find(&value).ok_or_else(no_metadata)?;
        Ok(Self { value, places, selectable: Arc::new(Selectable::of(object, fields)) })
    }

    /// Reads what the log has kept. Fails when the bytes are no JSON object with `metadata`.
    pub fn parse(value: Bytes, fields: &[SelectableField]) -> Result<Self, DecodeError> {
        let mut object = Object(serde_json::from_slice::<Map<String, Value>>(&value)?);
        // Of a member that stands twice the last one counts, which is not where the version would be put.
        let is_plain = members(&value, 0).count() == object.0.len();
        if is_plain
            && object.metadata().is_some_and(|metadata| !metadata.contains_key("resourceVersion"))
            && let Some(places) = Places::find(&value)
        {
            return Ok(Self { value, places, selectable: Arc::new(Selectable::of(&object, fields)) });
        }
        // Not as the registry writes it, such as with white space.
        object.metadata_mut().remove("resourceVersion");
        Self::new(&object, fields)
    }

    /// The object at `key` and `version`; version 0 leaves the version out.
    pub fn stored(&self, key: Key, version: Version) -> Stored {
        let Self { value, places, selectable } = self.clone();
        let bits = LabelBits::of(selectable.labels());
        Stored { key_hash: hash(&key), key, version, value, places, bits, selectable, row: OnceLock::new() }
    }
}

fn no_metadata() -> serde_json::Error {
    serde::ser::Error::custom("there is no metadata")
}

fn hash(key: &Key) -> u64 {
    // Chosen by chance, so that nobody can choose keys of one hash.
    static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    HASHES.hash_one(key.as_str())
}

/// Encodes an object in no more memory than it takes: it may stay there for long.
fn encoded(object: &Object) -> Result<Bytes, DecodeError> {
    let levels = 1 + object.0.values().map(height).max().unwrap_or(0);
    if levels > MAX_DEPTH {
        return Err(DecodeError::TooDeep(levels));
    }
    Ok(json::to_vec(&TypeFirst(&object.0))?.into_boxed_slice().into())
}

/// The fields of an object, those of its type first: lists leave these out, and look for them there.
struct TypeFirst<'a>(&'a Map<String, Value>);

impl Serialize for TypeFirst<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let first = TYPE_FIELDS.iter().filter_map(|name| self.0.get_key_value(*name));
        let rest = self.0.iter().filter(|(name, _)| !TYPE_FIELDS.contains(&name.as_str()));
        serializer.collect_map(first.chain(rest))
    }
}

/// JSON with a version in it, which is put in as it is written.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a> {
    before: &'a [u8],
    /// 0 is left out.
    version: Version,
    after: &'a [u8],
}

impl<'a> From<&'a str> for Encoded<'a> {
    /// JSON in which all is as it is written.
    fn from(json: &'a str) -> Self {
        Self { before: json.as_bytes(), version: Version::default(), after: &[] }
    }
}

/// So many bytes come into the processor's caches together.
const LINE: usize = 64;

impl Encoded<'_> {
    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.before);
        if self.version != Version::default() {
            out.extend_from_slice(MEMBER);
            out.extend_from_slice(itoa::Buffer::new().format(self.version.0).as_bytes());
            out.extend_from_slice(b"\",");
        }
        out.extend_from_slice(self.after);
    }

    /// The number of bytes of the encoding.
    #[expect(clippy::len_without_is_empty, reason = "no object is empty")]
    pub fn len(&self) -> usize {
        let version = match self.version.0.checked_ilog10() {
            Some(digits) => MEMBER.len() + digits as usize + 1 + 2,
            None => 0,
        };
        self.before.len() + version + self.after.len()
    }

    /// The sum of a byte of each line of memory that it is in.
    pub fn lines(&self) -> u64 {
        let bytes = [self.before, self.after].into_iter().flat_map(|part| part.iter().step_by(LINE));
        bytes.map(|byte| u64::from(*byte)).sum()
    }

    /// An object from behind its opening brace, without the `beginning` that it has as a rule.
    pub fn without(self, beginning: &[u8]) -> Self {
        Self { before: self.before.strip_prefix(beginning).unwrap_or(&self.before[1..]), ..self }
    }

    /// All of it in one piece.
    pub fn bytes(&self) -> Bytes {
        let mut out = Vec::with_capacity(self.len());
        self.write(&mut out);
        out.into()
    }
}

/// What stands before a version.
const MEMBER: &[u8] = br#""resourceVersion":""#;

impl Places {
    fn new(version: usize, metadata: Range<usize>) -> Self {
        Self { version: short(version), metadata: short(metadata.start)..short(metadata.end) }
    }

    /// `"resourceVersion":"…",` belongs before the first member of `metadata` whose name comes later, such as `uid`,
    /// or else before the first. Nothing when there is no metadata, or an empty one.
    fn find(json: &[u8]) -> Option<Self> {
        // From the value back over the colon and the quoted name.
        let start = |(name, value): (&[u8], usize)| value - 1 - name.len() - 2;
        let metadata = members(json, 0).find(|(name, _)| *name == b"metadata")?.1;
        let later = members(json, metadata).find(|(name, _)| *name > b"resourceVersion".as_slice());
        let version = later.or_else(|| members(json, metadata).next()).map(start)?;
        Some(Self::new(version, metadata..end_of_value(json, metadata)?))
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
    use stoa_meta::testing::json_value;

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
        let json = stored.json();
        let text = std::str::from_utf8(&json).expect("text");
        assert!(text.contains(r#""namespace":"shop","resourceVersion":"42","uid":"u"}"#), "{text}");
        let metadata = |stored: &Stored| serde_json::from_slice::<Value>(&stored.metadata().bytes()).expect("JSON");
        assert_eq!(metadata(&stored)["resourceVersion"], "42");
        let later = stored.at_version(Version(1_000));
        assert_eq!(metadata(&later)["resourceVersion"], "1000");
        assert_eq!(later.object().meta_str("resourceVersion"), "1000");
        assert_eq!(later.at_version(Version(42)).json(), json);
        assert_eq!(later.at_version(Version(0)).object(), sample());
    }

    #[test]
    fn the_type_comes_first_whatever_other_fields_there_are() {
        let stored = Prepared::new(&sample(), FIELDS).expect("encodes").stored(Key::new("/k"), Version(1));
        let mut item = Vec::new();
        stored.encoded().without(br#"{"apiVersion":"g/v1","kind":"K","#).write(&mut item);
        assert!(item.starts_with(br#""data":{"#), "{}", String::from_utf8_lossy(&item));
    }

    #[test]
    fn facts_are_those_of_the_object() {
        let stored = Prepared::new(&sample(), FIELDS).expect("encodes").stored(Key::new("/k"), Version(1));
        assert_eq!((stored.namespace(), stored.name(), stored.uid()), ("shop", "web", "u"));
        assert_eq!((stored.generation(), stored.is_deleting()), (3, false));
        assert_eq!((stored.label("a"), stored.label("b"), stored.label("c")), (Some("1"), Some("2"), None));
        assert_eq!([0, 1, 2, 3].map(|index| stored.field(index)), ["p", "7", "", ""]);
        assert_eq!(stored.labels().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
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
        let stored = Stored::ephemeral(Key::new("/k"), &answer, FIELDS).expect("it has metadata");
        assert_eq!((stored.object(), stored.metadata().bytes()), (answer, Bytes::from("{}")));
        Stored::ephemeral(Key::new("/k"), &object(json!({"kind": "K"})), FIELDS).expect_err("no metadata");
    }

    #[test]
    fn what_stands_twice_is_kept_once() {
        for text in [
            r#"{"metadata":{"name":"a"},"metadata":{"name":"b"}}"#,
            r#"{"metadata":{"name":"a"},"metadat\u0061":{"name":"b"}}"#,
        ] {
            let prepared = Prepared::parse(Bytes::from(text), FIELDS).expect("an object");
            let stored = prepared.stored(Key::new("/k"), Version(7));
            assert_eq!(stored.json(), r#"{"metadata":{"resourceVersion":"7","name":"b"}}"#, "{text}");
        }
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
            let metadata: Map<String, Value> = serde_json::from_slice(&stored.metadata().bytes()).expect("JSON");
            prop_assert_eq!(Some(&metadata), object.metadata());
            prop_assert_eq!(serde_json::from_slice::<Map<String, Value>>(&stored.json()).expect("JSON"), object.0.clone());
            prop_assert_eq!(stored.encoded().len(), stored.json().len());
            prop_assert_eq!(stored.object(), object);
        }
    }
}
