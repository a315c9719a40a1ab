//! Sensitive values: which values are sensitive, and what is shown, recorded and reported in their place.
//!
//! Sensitive are the values in `data` and `stringData` of a v1 Secret, copies of a Secret in its annotations, and all
//! values that a reference carries them into. Values that SOPS [encrypted](crate::encrypted) are not. Plans show
//! [`MASK`], states hold a keyed digest (`secret_digest`), Specs are stored `sealed`, and messages are filtered by
//! [`Sensitive::redact`].

mod forms;
mod texts;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use self::texts::{SEARCHED, Texts};
use crate::encrypted::{is_ciphertext, is_encrypted};
use crate::object::{decoded, encoded, is_secret, secret_as_stored};
use crate::path::{FieldPath, Segment, below};
use crate::secret_digest::DigestKeys;
use crate::spec::ResourceId;

/// The text that plans show for a sensitive value.
pub const MASK: &str = "(sensitive)";
/// The text that plans show for a value that is unknown before an apply.
pub const UNKNOWN: &str = "(known after apply)";

/// The sensitive paths of one resource, and the texts that stand there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sensitive {
    paths: BTreeSet<FieldPath>,
    texts: Texts,
}

/// The paths in an object that are sensitive by its kind: one for each key of a Secret's data.
pub fn inherent(object: &Map<String, Value>) -> BTreeSet<FieldPath> {
    if is_secret(object) { of_secret(object) } else { BTreeSet::new() }
}

pub(crate) fn of_secret(object: &Map<String, Value>) -> BTreeSet<FieldPath> {
    let mut paths = BTreeSet::new();
    let is_encrypted = is_encrypted(object);
    let is_open = |(_, value): &(&String, &Value)| !(is_encrypted && is_ciphertext(value));
    for field in ["data", "stringData"] {
        match object.get(field) {
            Some(Value::Object(values)) => {
                paths.extend(values.iter().filter(is_open).map(|(key, _)| FieldPath::of_keys([field, key])));
            }
            Some(Value::Null) | None => {}
            Some(_) => drop(paths.insert(FieldPath::of_keys([field]))),
        }
    }
    let annotations =
        object.get("metadata").and_then(|metadata| metadata.get("annotations")).and_then(Value::as_object);
    let copies = annotations.into_iter().flatten().filter(|(_, value)| is_copy(value));
    paths.extend(copies.map(|(key, _)| FieldPath::of_keys(["metadata", "annotations", key])));
    paths
}

/// Whether a text is a whole Secret as JSON, as tools keep it in annotations: `kapp.k14s.io/original` and
/// `kubectl.kubernetes.io/last-applied-configuration`. Its values may be older than those of the Secret.
fn is_copy(value: &Value) -> bool {
    let text = value.as_str().filter(|text| text.trim_start().starts_with('{'));
    let object: Option<Map<String, Value>> = text.and_then(|text| serde_json::from_str(text).ok());
    object.is_some_and(|object| object.contains_key("data") || object.contains_key("stringData"))
}

impl Sensitive {
    /// The sensitive values of an object: by its kind, and at `flowed`, where references put sensitive values.
    pub fn of(object: &Map<String, Value>, flowed: &BTreeSet<FieldPath>) -> Self {
        let mut paths = inherent(object);
        paths.extend(flowed.iter().cloned());
        let mut sensitive = Self::at(paths, object);
        // Whoever admits a Secret sees its strings in base64, and may quote that.
        if let Some(stored) = secret_as_stored(object) {
            sensitive.extend_texts(&Self::at(of_secret(&stored), &stored));
        }
        sensitive
    }

    pub(crate) fn at(paths: BTreeSet<FieldPath>, object: &Map<String, Value>) -> Self {
        let mut texts = BTreeSet::new();
        for value in paths.iter().filter_map(|path| path.get(object)) {
            collect_texts(value, &mut texts);
        }
        Self { paths, texts: texts.into() }
    }

    /// Secret texts in all forms in which a generator may write them. They stand nowhere in particular.
    pub fn of_texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        let mut found = BTreeSet::new();
        for text in texts {
            forms::collect(text, &mut found);
            found.extend(decoded_text(text));
        }
        Self { paths: BTreeSet::new(), texts: found.into() }
    }

    /// The same, and words that are sensitive as whole values alone: inside other texts they are by chance.
    #[must_use]
    pub fn with_words<'t>(mut self, words: impl IntoIterator<Item = &'t str>) -> Self {
        let mut found: BTreeSet<Arc<str>> = BTreeSet::new();
        for word in words.into_iter().filter(|word| word.len() >= SEARCHED) {
            found.extend([Arc::from(word), Arc::from(encoded(word))]);
        }
        self.texts.extend(&Texts::of_words(found));
        self
    }

    /// The paths of all values of an object that have one of the texts.
    pub fn paths_with_texts(&self, object: &Map<String, Value>) -> BTreeSet<FieldPath> {
        let mut found = BTreeSet::new();
        self.replaced(object, &mut |path, _| {
            found.insert(path.clone());
            Value::Null
        });
        found
    }

    pub(crate) fn add(&mut self, path: FieldPath, value: Option<&Value>) {
        if let Some(value) = value {
            let mut texts = BTreeSet::new();
            collect_texts(value, &mut texts);
            self.texts.extend(&texts.into());
        }
        self.paths.insert(path);
    }

    /// Also what is sensitive in `other`.
    pub fn extend(&mut self, other: &Self) {
        self.paths.extend(other.paths.iter().cloned());
        self.extend_texts(other);
    }

    /// Adds the texts of `other`.
    pub fn extend_texts(&mut self, other: &Self) {
        self.texts.extend(&other.texts);
    }

    /// The paths.
    pub fn paths(&self) -> &BTreeSet<FieldPath> {
        &self.paths
    }

    /// Whether nothing is sensitive.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.texts.is_empty()
    }

    /// Whether the value at the path is sensitive as a whole.
    pub fn covers(&self, path: &[Segment]) -> bool {
        (1..=path.len()).any(|depth| self.paths.contains(&path[..depth]))
    }

    /// The sensitive paths at or below `path`, from there; all of it when it is covered.
    pub fn below(&self, path: &FieldPath) -> Vec<FieldPath> {
        if self.covers(&path.0) {
            return vec![FieldPath::default()];
        }
        below(&self.paths, &path.0).map(|rest| FieldPath(rest.to_vec())).collect()
    }

    /// The value at `path` as plans show it.
    pub fn shown(&self, path: &FieldPath, value: &Value) -> Value {
        self.replace(&mut path.clone(), value, &mut |_, _| Value::from(MASK))
    }

    /// A path as plans show it: the key of a list item may be sensitive.
    pub fn shown_path(&self, path: &FieldPath) -> FieldPath {
        let shown = |segment: &Segment| match segment {
            Segment::Item { key, value } if self.is_sensitive_text(value) => {
                Segment::Item { key: key.clone(), value: MASK.to_owned() }
            }
            other => other.clone(),
        };
        FieldPath(path.0.iter().map(shown).collect())
    }

    /// The object as states store it: each sensitive value replaced by its digest.
    pub fn recorded(&self, id: &ResourceId, object: &Map<String, Value>, keys: &DigestKeys) -> Map<String, Value> {
        self.replaced(object, &mut |_, value| keys.mask(id, value))
    }

    /// All forms in which a state may store an object, with the digests of other keys and of none.
    pub fn recorded_ways(
        &self,
        id: &ResourceId,
        object: &Map<String, Value>,
        keys: &DigestKeys,
    ) -> Vec<Map<String, Value>> {
        if self.is_empty() {
            return vec![object.clone()];
        }
        keys.masks().map(|mask| self.replaced(object, &mut |_, value| mask(id, value))).collect()
    }

    /// An object with every sensitive value replaced by what `mask` makes of its path and the value.
    pub(crate) fn replaced(
        &self,
        object: &Map<String, Value>,
        mask: &mut dyn FnMut(&FieldPath, &Value) -> Value,
    ) -> Map<String, Value> {
        if self.is_empty() {
            return object.clone();
        }
        let mut at = FieldPath::default();
        object
            .iter()
            .map(|(key, value)| {
                at.0.push(Segment::Key(key.clone()));
                let value = self.replace(&mut at, value, mask);
                at.0.pop();
                (key.clone(), value)
            })
            .collect()
    }

    /// A message without the sensitive texts.
    pub fn redact(&self, message: &str) -> String {
        self.texts.masked(message, MASK)
    }

    fn replace(&self, at: &mut FieldPath, value: &Value, mask: &mut dyn FnMut(&FieldPath, &Value) -> Value) -> Value {
        if self.is_empty() {
            return value.clone();
        }
        if self.is_sensitive(at, value) {
            return mask(at, value);
        }
        match value {
            Value::Object(map) => map
                .iter()
                .map(|(key, value)| {
                    at.0.push(Segment::Key(key.clone()));
                    let value = self.replace(at, value, mask);
                    at.0.pop();
                    (key.clone(), value)
                })
                .collect(),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| {
                    at.0.push(Segment::Index(index));
                    let item = self.replace(at, item, mask);
                    at.0.pop();
                    item
                })
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }

    /// Whether the value at a path is sensitive as a whole.
    pub(crate) fn is_sensitive(&self, at: &FieldPath, value: &Value) -> bool {
        if self.covers(&at.0) {
            return !value.is_null();
        }
        // The server may move a value, so that equal texts are masked everywhere. Names are excluded, since ids contain
        // them, and so is the uid, which no server derives from a value.
        match value {
            Value::String(text) => self.is_sensitive_text(text) && !message_names_object(at),
            // A text of digits becomes a number where nobody quotes it.
            Value::Number(number) => self.texts.have(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        }
    }

    /// Whether a text is sensitive, or contains a sensitive one.
    pub fn is_sensitive_text(&self, text: &str) -> bool {
        self.texts.are_in(text)
    }
}

/// Whether the path is a part of the identity.
fn message_names_object(path: &FieldPath) -> bool {
    let keys: Vec<&str> = path.keys().collect();
    matches!(keys.as_slice(), ["apiVersion" | "kind"] | ["metadata", "name" | "namespace" | "uid"])
        && keys.len() == path.0.len()
}

fn collect_texts(value: &Value, texts: &mut BTreeSet<Arc<str>>) {
    match value {
        Value::String(text) if !text.is_empty() => {
            // Servers quote the text behind base64 in their messages, too.
            texts.extend(decoded_text(text));
            texts.insert(Arc::from(text.as_str()));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, texts)),
        Value::Object(map) => map.values().for_each(|value| collect_texts(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The text behind base64.
fn decoded_text(text: &str) -> Option<Arc<str>> {
    decoded(text).filter(|plain| plain.len() >= SEARCHED).map(Arc::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::ObjectRef;
    use crate::secret_digest::is_masked;

    fn keys() -> DigestKeys {
        DigestKeys::new(&[7; 32], &[])
    }

    fn secret() -> Map<String, Value> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "labels": {"user": "YWRtaW4="}},
            "data": {"user": "YWRtaW4="}, "stringData": {"password": "hunter2"},
        });
        secret.as_object().unwrap().clone()
    }

    #[test]
    fn secret_values_are_masked_but_keys_are_not() {
        let sensitive = Sensitive::of(&secret(), &BTreeSet::new());
        let recorded = sensitive.recorded(&"v1:Secret:db".into(), &secret(), &keys());
        assert!(is_masked(&recorded["data"]["user"]) && is_masked(&recorded["stringData"]["password"]));
        assert_eq!(recorded["metadata"]["name"], "db");
        let shown = sensitive.shown(&FieldPath::of_keys(["stringData"]), &secret()["stringData"]);
        assert_eq!(shown, json!({"password": MASK}));
    }

    #[test]
    fn copied_secret_in_annotation_is_masked() {
        let copy = r#"{"kind": "Secret", "data": {"password": "b2xkLXZhbHVlLTAx"}}"#;
        let strings = r#" {"stringData": {"password": "old-value-01"}}"#;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "annotations": {
            "kapp.k14s.io/original": copy, "strings": strings, "note": "{\"a\": 1}"}}, "data": {"password": "bmV3"}});
        let secret = secret.as_object().unwrap();
        let recorded = Sensitive::of(secret, &BTreeSet::new()).recorded(&"v1:Secret:db".into(), secret, &keys());
        let annotations = &recorded["metadata"]["annotations"];
        assert!(is_masked(&annotations["kapp.k14s.io/original"]) && is_masked(&annotations["strings"]));
        assert_eq!(annotations["note"], "{\"a\": 1}");
        assert!(!Value::Object(recorded).to_string().contains("b2xkLXZhbHVlLTAx"));
    }

    #[test]
    fn sensitive_text_is_masked_elsewhere() {
        let recorded = Sensitive::of(&secret(), &BTreeSet::new()).recorded(&"x".into(), &secret(), &keys());
        assert!(is_masked(&recorded["metadata"]["labels"]["user"]));
    }

    #[test]
    fn object_name_is_never_masked() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "shop",
            "labels": {"user": "db"}}, "stringData": {"user": "db", "team": "shop", "version": "v1", "kind": "Secret"}});
        let object = secret.as_object().unwrap();
        let recorded = Sensitive::of(object, &BTreeSet::new()).recorded(&"v1:Secret:shop:db".into(), object, &keys());
        assert_eq!(ObjectRef::of(&recorded), ObjectRef::of(object));
        assert!(is_masked(&recorded["metadata"]["labels"]["user"]) && is_masked(&recorded["stringData"]["user"]));
    }

    #[test]
    fn uid_with_sensitive_text_is_recorded() {
        let live = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pin", "uid": "0b5e-4711-9f",
            "labels": {"pin": "4711"}}, "stringData": {"pin": "4711"}});
        let object = live.as_object().unwrap();
        let recorded = Sensitive::of(object, &BTreeSet::new()).recorded(&"v1:Secret:pin".into(), object, &keys());
        assert_eq!(recorded["metadata"]["uid"], "0b5e-4711-9f");
        assert!(is_masked(&recorded["metadata"]["labels"]["pin"]));
    }

    #[test]
    fn messages_are_redacted_in_every_encoding() {
        let sensitive = Sensitive::of(&secret(), &BTreeSet::new());
        assert_eq!(
            sensitive.redact("Invalid value: \"hunter2\" for admin (YWRtaW4=)"),
            "Invalid value: \"(sensitive)\" for (sensitive) ((sensitive))"
        );
    }

    #[test]
    fn messages_lose_what_strings_are_in_base64() {
        let sensitive = Sensitive::of(&secret(), &BTreeSet::new());
        // As a policy of admission tells what it saw: base64 of hunter2.
        let said = sensitive.redact("denied: data.password is \"aHVudGVyMg==\"");
        assert_eq!(said, "denied: data.password is \"(sensitive)\"");
        // Where it is copied to it is as sensitive as in its place.
        let live = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db",
            "annotations": {"copy": "aHVudGVyMg=="}}, "stringData": {"password": "hunter2"}});
        let recorded = sensitive.recorded(&"v1:Secret:db".into(), live.as_object().unwrap(), &keys());
        assert!(is_masked(&recorded["metadata"]["annotations"]["copy"]));
        assert_eq!(sensitive.paths().len(), 2, "it is a text and no place: {sensitive:?}");
    }

    #[test]
    fn number_of_secret_digits_is_masked() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pin"},
            "stringData": {"pin": "471142", "replicas": "1"}});
        let sensitive = Sensitive::of(secret.as_object().unwrap(), &BTreeSet::new());
        let live = json!({"spec": {"pin": 471_142, "longer": 4_711_420, "replicas": 1}});
        let recorded = sensitive.recorded(&"x".into(), live.as_object().unwrap(), &keys());
        assert!(is_masked(&recorded["spec"]["pin"]), "{recorded:?}");
        assert_eq!((&recorded["spec"]["longer"], &recorded["spec"]["replicas"]), (&json!(4_711_420), &json!(1)));
    }

    #[test]
    fn words_are_sensitive_as_whole_values() {
        let sensitive = Sensitive::of_texts(["hunter22"]).with_words(["admin", "x"]);
        let object = json!({"user": "admin", "path": "/admin/", "pass": "<hunter22>", "b": "YWRtaW4=", "x": "x"});
        let paths = sensitive.paths_with_texts(object.as_object().unwrap());
        assert_eq!(paths.iter().map(ToString::to_string).collect::<Vec<_>>(), ["b", "pass", "user"]);
        assert_eq!(sensitive.redact("for /admin/"), "for /(sensitive)/");
    }

    #[test]
    fn quoted_multiline_text_is_redacted() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"},
            "stringData": {"key": "-----BEGIN \"KEY\"-----\nabc\n"}});
        let sensitive = Sensitive::of(secret.as_object().unwrap(), &BTreeSet::new());
        let said = sensitive.redact(r#"Invalid value: "-----BEGIN \"KEY\"-----\nabc\n": no"#);
        assert_eq!(said, "Invalid value: \"(sensitive)\": no");
    }
}
