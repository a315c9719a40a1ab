//! Values in secret stores: texts such as `ref://database/password?version=3`, as Kusion has them.
//!
//! A Spec is stored, validated and planned with such texts. The process that calls the infrastructure replaces them right
//! before ([`replace`]), so that no document has the value. Start at [`stored_secrets`].

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use crate::declared::{declare_paths, declared};
use crate::object::{encoded, is_secret};
use crate::path::{FieldPath, Segment};
use crate::problem::{Problem, reason};
use crate::resolve::{has_text, texts};
use crate::spec::{Resource, Spec};

/// The prefix of a value in a secret store.
const SCHEME: &str = "ref://";

/// A value in a secret store. Shown as it is written in a Spec.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredSecret {
    /// The name of the secret, which may contain slashes.
    pub name: String,
    /// The property of the secret, such as a key of a Kubernetes Secret.
    pub property: String,
    /// The version of the secret; none for the latest.
    pub version: Option<String>,
    /// The name of the store; none for the default one of the workspace.
    pub store: Option<String>,
}

impl fmt::Display for StoredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.name, self.property)?;
        let parameters = [("version", &self.version), ("store", &self.store)];
        let mut is_first = true;
        for (name, value) in parameters.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            write!(f, "{}{name}={value}", if is_first { '?' } else { '&' })?;
            is_first = false;
        }
        Ok(())
    }
}

impl StoredSecret {
    /// Reads a text of a Spec; `None` for a text that is a value itself.
    ///
    /// # Errors
    ///
    /// The end of a sentence about the text.
    pub fn parse(text: &str) -> Option<Result<Self, String>> {
        let rest = text.strip_prefix(SCHEME)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_plain = |part: &str| !part.is_empty() && !matches!(part, "." | "..") && !part.contains(['#', '%', '\\']);
        Some(match path.rsplit_once('/') {
            Some((name, property)) if path.split('/').all(is_plain) => {
                let (name, property) = (name.to_owned(), property.to_owned());
                parameters(query).map(|(version, store)| Self { name, property, version, store })
            }
            _ => Err(format!("must be {SCHEME}<name>/<property>, without special characters")),
        })
    }
}

/// The version and the store in a query.
fn parameters(query: &str) -> Result<(Option<String>, Option<String>), String> {
    let (mut version, mut store) = (None, None);
    for parameter in query.split('&').filter(|_| !query.is_empty()) {
        let is_name =
            |value: &str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let into = match parameter.split_once('=') {
            Some(("version", value)) if is_name(value) && version.is_none() => (&mut version, value),
            Some(("store", value)) if is_name(value) && store.is_none() => (&mut store, value),
            _ => return Err("has an unknown query; use ?version=<version>, ?store=<store>, or both with &".to_owned()),
        };
        *into.0 = Some(into.1.to_owned());
    }
    Ok((version, store))
}

/// All values of a Spec that are in secret stores. A Spec is validated before, so that each parses.
pub fn stored_secrets(spec: &Spec) -> BTreeSet<StoredSecret> {
    let mut found = BTreeSet::new();
    for resource in spec.resources.iter().filter(|resource| refers(&resource.attributes)) {
        texts(&resource.attributes, &mut |_, text| found.extend(StoredSecret::parse(text).and_then(Result::ok)));
    }
    found
}

/// Replaces the values in secret stores, and declares them sensitive. A value under `data` of a Secret becomes base64.
pub fn replace(spec: &mut Spec, value: &dyn Fn(&StoredSecret) -> Option<String>) {
    for resource in spec.resources.iter_mut().filter(|resource| refers(&resource.attributes)) {
        let is_secret = is_secret(&resource.attributes);
        let mut paths = declared(resource);
        let mut replacer = Replacer { value, is_secret, at: FieldPath::default(), replaced: BTreeSet::new() };
        replacer.map(&mut resource.attributes);
        paths.extend(replacer.replaced);
        declare_paths(resource, &paths);
    }
}

/// Problems of texts that name no value, and of keys of maps, which cannot be in a store.
pub(crate) fn check(resource: &Resource) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !refers(&resource.attributes) {
        return problems;
    }
    texts(&resource.attributes, &mut |field, text| {
        let Some(parsed) = StoredSecret::parse(text) else { return };
        let is_key = matches!(field.0.last(), Some(Segment::Key(key)) if key == text);
        let why = match parsed {
            _ if is_key => "cannot be a key of a map".to_owned(),
            Err(why) => why,
            Ok(_) => return,
        };
        let problem = Problem::new(reason::INVALID_REFERENCE, format!("a value in a secret store {why}"));
        problems.push(problem.of(&resource.id).at(format!("attributes.{field}")));
    });
    problems
}

/// Whether a text contains the name of a value in a store, and is longer. It is applied literally then.
pub(crate) fn is_misplaced(text: &str) -> bool {
    let is_space = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | ')' | ']' | '}' | '@');
    text.match_indices(SCHEME).any(|(at, _)| {
        let follows_word = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        let named = text[at..].split(is_space).next().unwrap_or_default();
        at > 0 && !follows_word && matches!(StoredSecret::parse(named), Some(Ok(_)))
    })
}

/// Whether a text names a value in a secret store.
pub fn may_be_stored(text: &str) -> bool {
    text.starts_with(SCHEME)
}

fn refers(attributes: &Map<String, Value>) -> bool {
    has_text(attributes, &may_be_stored)
}

struct Replacer<'a> {
    value: &'a dyn Fn(&StoredSecret) -> Option<String>,
    is_secret: bool,
    at: FieldPath,
    replaced: BTreeSet<FieldPath>,
}

impl Replacer<'_> {
    fn map(&mut self, map: &mut Map<String, Value>) {
        for (key, value) in map {
            self.at.0.push(Segment::Key(key.clone()));
            self.value(value);
            self.at.0.pop();
        }
    }

    fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => {
                let stored = StoredSecret::parse(text).and_then(Result::ok);
                let Some(found) = stored.and_then(|stored| (self.value)(&stored)) else { return };
                let is_data = self.is_secret && self.at.first_key() == Some("data");
                *text = if is_data { encoded(&found) } else { found };
                self.replaced.insert(self.at.clone());
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.at.0.push(Segment::Index(index));
                    self.value(item);
                    self.at.0.pop();
                }
            }
            Value::Object(map) => self.map(map),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::declared::SENSITIVE;

    fn spec(attributes: Value) -> Spec {
        serde_json::from_value(json!({"resources": [{"id": "a", "type": "Kubernetes", "attributes": attributes}]}))
            .unwrap()
    }

    #[test]
    fn text_names_a_stored_value() {
        let parsed = |text: &str| StoredSecret::parse(text).map(|it| it.map(|it| (it.name, it.property, it.version)));
        let named = |name: &str, property: &str, version: Option<&str>| {
            Some(Ok((name.to_owned(), property.to_owned(), version.map(str::to_owned))))
        };
        assert_eq!(parsed("ref://db/password"), named("db", "password", None));
        assert_eq!(parsed("ref://team/db/password?version=3"), named("team/db", "password", Some("3")));
        assert_eq!(parsed("see ref://db/password"), None);
        for wrong in [
            "ref://",
            "ref://db",
            "ref://db/",
            "ref:///x",
            "ref://../x",
            "ref://a/%2e%2e/x",
            "ref://a/b?v=1",
            "ref://a/b?version=",
            "ref://a/b?version=1&x=2",
            "ref://a/b?version=1&version=2",
            "ref://a/b?store=",
            "ref://a/b?store=a_b",
            "ref://a/b#c",
        ] {
            assert!(parsed(wrong).is_some_and(|it| it.is_err()), "{wrong}");
        }
        let text = "ref://team/db/password?version=3";
        assert_eq!(StoredSecret::parse(text).unwrap().unwrap().to_string(), text);
        for (text, shown) in [
            ("ref://db/password?store=cloud", "ref://db/password?store=cloud"),
            ("ref://db/password?store=cloud&version=3", "ref://db/password?version=3&store=cloud"),
        ] {
            let stored = StoredSecret::parse(text).unwrap().unwrap();
            assert_eq!((stored.to_string().as_str(), stored.store.as_deref()), (shown, Some("cloud")));
        }
    }

    #[test]
    fn stored_values_are_replaced_and_declared() {
        let mut spec = spec(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"},
            "data": {"password": "ref://db/password"}, "stringData": {"user": "ref://db/user?version=2", "host": "db"}}));
        let names: Vec<String> = stored_secrets(&spec).iter().map(ToString::to_string).collect();
        assert_eq!(names, ["ref://db/password", "ref://db/user?version=2"]);
        assert_eq!(check(&spec.resources[0]), []);
        replace(&mut spec, &|stored| Some(format!("<{}>", stored.property)));
        let attributes = &spec.resources[0].attributes;
        assert_eq!(attributes["data"], json!({"password": "PHBhc3N3b3JkPg=="}));
        assert_eq!(attributes["stringData"], json!({"user": "<user>", "host": "db"}));
        assert_eq!(spec.resources[0].extensions[SENSITIVE], json!(["data.password", "stringData.user"]));
        assert!(stored_secrets(&spec).is_empty());
    }

    #[test]
    fn name_inside_a_text_is_misplaced() {
        for text in
            ["postgres://shop:ref://db/password@db", "a: ref://db/password\nb: c", "see ref://db/password?version=3"]
        {
            assert!(is_misplaced(text), "{text}");
        }
        for text in ["ref://db/password", "href://db/password", "git+ref://db/password", "ref://db/", "see ref://db"] {
            assert!(!is_misplaced(text), "{text}");
        }
    }

    #[test]
    fn invalid_names_and_keys_are_problems() {
        let spec = spec(json!({"data": {"a": "ref://db", "ref://db/key": "x"}}));
        let found: Vec<String> =
            check(&spec.resources[0]).iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
        assert_eq!(
            found,
            [
                "attributes.data.a: a value in a secret store must be ref://<name>/<property>, without special characters",
                "attributes.data[\"ref://db/key\"]: a value in a secret store cannot be a key of a map",
            ]
        );
    }
}
