//! Secret values in the result of a generator: declared sensitive in its Spec, and hidden in its messages.
//!
//! A generator may write a value anywhere, also in another form, and quote it in an error. Start at
//! [`SecretValues::protect`]. A value in a key, a name or an id cannot be hidden, and fails the call.

use prost::bytes::Bytes;
use serde_json::Value as Json;
use stoa_engine::declared::declare;
use stoa_engine::digest::canonical_json;
use stoa_engine::spec::Resource;
use stoa_engine::{Sensitive, Spec};
use stoa_proto::{Problem, Value};
use tonic::Code;

use super::{Rendered, yaml};
use crate::blocking::run_blocking;
use crate::failure::{Failure, problem, reason};

/// Shorter texts are in names and keys by chance.
const NAMED: usize = 8;
/// So are shorter parts of a text, such as the name of a database.
const NAMED_PART: usize = 16;
/// Shorter parts of a text are in other texts by chance.
const PART: usize = 8;
/// Texts with more bytes, such as archives, have no parts.
const LARGEST: usize = 1 << 20;

/// The texts of the secret values of a stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretValues {
    all: Sensitive,
    /// The names of the values, and the texts of each that no name may have.
    each: Vec<(String, Sensitive)>,
}

impl SecretValues {
    /// The secret ones of some values.
    pub(crate) fn of(values: &[Value]) -> Self {
        let mut secrets = Self::default();
        for value in values.iter().filter(|value| value.sensitive) {
            let Ok(json) = serde_json::from_str::<Json>(&value.json) else { continue };
            let mut texts = Vec::new();
            collect(&json, &mut texts);
            let mut parts = Vec::new();
            texts.iter().for_each(|text| read(text, &mut parts));
            let (long, short): (Vec<&str>, Vec<&str>) =
                parts.iter().map(String::as_str).partition(|part| part.len() >= PART);
            let whole = texts.iter().map(String::as_str);
            secrets.all.extend(&Sensitive::of_texts(whole.clone().chain(long.iter().copied())).with_words(short));
            let named = whole.filter(|text| text.trim().len() >= NAMED);
            let named = named.chain(long.into_iter().filter(|part| part.len() >= NAMED_PART));
            secrets.each.push((value.name.clone(), Sensitive::of_texts(named)));
        }
        secrets
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A text without the secret values.
    pub(super) fn redact(&self, text: &str) -> String {
        self.all.redact(text)
    }

    /// Problems without the secret values.
    pub(super) fn redacted_all(&self, problems: Vec<Problem>) -> Vec<Problem> {
        problems.into_iter().map(|problem| self.redacted(problem)).collect()
    }

    /// A failure without the secret values.
    pub(super) fn redacted_failure(&self, failure: Failure) -> Failure {
        let (code, problems) = failure.into_parts();
        Failure::of(code, self.redacted_all(problems))
    }

    /// The result of a generator with the secret values declared and hidden.
    pub(crate) async fn protect(self, result: Result<Rendered, Failure>) -> Result<Rendered, Failure> {
        if self.all.is_empty() {
            return result;
        }
        match result {
            Ok(mut rendered) => {
                rendered.warnings.iter_mut().for_each(|warning| *warning = self.all.redact(warning));
                let spec = std::mem::take(&mut rendered.spec);
                rendered.spec = run_blocking(async move { self.declared(&spec) }).await?;
                Ok(rendered)
            }
            Err(failure) => Err(self.redacted_failure(failure)),
        }
    }

    fn redacted(&self, problem: Problem) -> Problem {
        let Problem { reason, message, file, resource_id, field, line } = problem;
        let [message, file, resource_id, field] =
            [message, file, resource_id, field].map(|text| self.all.redact(&text));
        Problem { reason, message, file, resource_id, field, line }
    }

    /// A Spec with the secret values declared.
    pub(super) fn declared(&self, spec: &Bytes) -> Result<Bytes, Failure> {
        let mut parsed: Spec = serde_json::from_slice(spec).map_err(|error| Failure::internal(&error))?;
        let named: Vec<Problem> = parsed.resources.iter().filter_map(|resource| self.named_in(resource)).collect();
        if !named.is_empty() {
            return Err(Failure::of(Code::InvalidArgument, named));
        }
        declare(&mut parsed, &self.all);
        Ok(canonical_json(&parsed).into())
    }

    /// The problem of a resource with a secret value where documents show it.
    fn named_in(&self, resource: &Resource) -> Option<Problem> {
        let (value, part) = self.each.iter().find_map(|(name, texts)| Some((name, exposed(resource, texts)?)))?;
        let message = format!(
            "secret value {value:?} is in {part}, which plans and messages show; use it in values of fields alone, or \
             make it a plain value"
        );
        let found = problem(reason::INVALID_MANIFEST, message);
        let file = resource.extensions.get(stoa_engine::spec::FILE).and_then(Json::as_str).unwrap_or_default();
        Some(self.redacted(Problem { resource_id: resource.id.0.clone(), file: file.to_owned(), ..found }))
    }
}

/// The part of a resource that shows one of the texts.
fn exposed(resource: &Resource, texts: &Sensitive) -> Option<&'static str> {
    let is_in = |text: &str| texts.is_sensitive_text(text);
    let metadata = resource.attributes.get("metadata").and_then(Json::as_object);
    let mut names = ["name", "namespace"].into_iter().filter_map(|key| metadata?.get(key)?.as_str());
    if names.any(is_in) {
        return Some("the name of the object");
    }
    if is_in(&resource.id.0) || resource.depends_on.iter().any(|id| is_in(&id.0)) {
        return Some("an id");
    }
    if resource.attributes.iter().any(|(key, value)| is_in(key) || has_key(value, &is_in)) {
        return Some("a key of a map");
    }
    let of_extension = |(key, value): (&String, &Json)| {
        let mut texts = Vec::new();
        collect(value, &mut texts);
        is_in(key) || has_key(value, &is_in) || texts.iter().any(|text| is_in(text))
    };
    resource.extensions.iter().any(of_extension).then_some("an extension of the resource")
}

fn has_key(value: &Json, is_in: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Json::Object(map) => map.iter().any(|(key, value)| is_in(key) || has_key(value, is_in)),
        Json::Array(items) => items.iter().any(|item| has_key(item, is_in)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => false,
    }
}

/// The texts in a value.
fn collect(value: &Json, texts: &mut Vec<String>) {
    match value {
        Json::String(text) => texts.push(text.clone()),
        Json::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Json::Object(map) => map.values().for_each(|value| collect(value, texts)),
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

/// What a template that reads a text as JSON or YAML, or writes it without quotes, makes of it.
fn read(text: &str, parts: &mut Vec<String>) {
    if text.len() > LARGEST {
        return;
    }
    let values = serde_json::from_str(text).map_or_else(|_| yaml::values(text), |value| vec![value]);
    for value in values {
        match value {
            Json::Number(number) => parts.push(number.to_string()),
            other => collect(&other, parts),
        }
    }
    parts.retain(|part| part != text);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secrets(text: &str) -> SecretValues {
        let value = |name: &str, json: Json, sensitive| Value {
            name: name.to_owned(),
            json: json.to_string(),
            sensitive,
            ..Value::default()
        };
        SecretValues::of(&[value("password", json!(text), true), value("region", json!("eu-central-1"), false)])
    }

    fn spec(attributes: Json, extensions: Json) -> Bytes {
        let resource = json!({"id": "v1:ConfigMap:a", "type": "Kubernetes", "attributes": attributes,
            "extensions": extensions});
        json!({"resources": [resource]}).to_string().into()
    }

    /// The fields that a secret text makes sensitive.
    #[track_caller]
    fn declared(text: &str, attributes: Json) -> Json {
        let found = secrets(text).declared(&spec(attributes, json!({}))).unwrap();
        serde_json::from_slice::<Json>(&found).unwrap()["resources"][0]["extensions"]["stoa.dev/sensitive"].clone()
    }

    #[test]
    fn rewritten_texts_are_declared() {
        let pem = "-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\nq83vEjRWeJASNFZ4\n-----END KEY-----\n";
        let file = "[db]\n  key = |\n    -----BEGIN KEY-----\n    MIIEowIBAAKCAQEA\n    q83vEjRWeJASNFZ4\n";
        let creds = r#"{"user": "shop", "pass": "hunter2-and-more", "port": 5432}"#;
        for (text, value) in [
            ("hunter22\n", json!("hunter22")),
            ("hunter22\n", json!("aHVudGVyMjI=")),
            ("a\"b\\c&d<e", json!(r#"{"p": "a\"b\\c\u0026d\u003ce"}"#)),
            ("a\"b\\c&d<e", json!(r#"{"p": "a\"b\\c&d<e"}"#)),
            ("it's it", json!("p: 'it''s it'")),
            ("471142", json!(471_142)),
            ("0471142", json!(160_354)),
            (creds, json!("hunter2-and-more")),
            (creds, json!("db://x:hunter2-and-more@db")),
            (creds, json!("shop")),
            ("user: admin\npass: hunter2-and-more\n", json!("hunter2-and-more")),
            ("[hunter2-and-more]", json!("hunter2-and-more")),
            ("\"hunter22\" # old", json!("hunter22")),
            (pem, json!(file)),
        ] {
            let paths = declared(text, json!({"data": {"a": value, "b": "other", "port": 5432}}));
            assert_eq!(paths, json!(["data.a"]), "{text:?} in {value}");
        }
        assert_eq!(declared(creds, json!({"image": "registry/shop:1"})), Json::Null, "a short part of it");
        assert_eq!(declared(pem, json!({"a": "-----BEGIN KEY-----\nother\n-----END KEY-----\n"})), Json::Null);
    }

    #[test]
    fn large_text_has_no_parts() {
        let of = |bytes: usize| {
            let mut parts = Vec::new();
            read(&format!("[\"{}\"]", "a".repeat(bytes)), &mut parts);
            parts.len()
        };
        assert_eq!((of(100), of(LARGEST)), (1, 0));
    }

    #[test]
    fn secret_text_in_name_or_key_fails() {
        let named = |attributes: Json, extensions: Json| {
            let failure = secrets("hunter22\n").declared(&spec(attributes, extensions)).unwrap_err();
            let problem = &failure.problems()[0];
            assert!(!format!("{problem:?}").contains("hunter22"), "{problem:?}");
            problem.message.clone()
        };
        let told = "which plans and messages show; use it in values of fields alone, or make it a plain value";
        for (attributes, extensions, part) in [
            (json!({"metadata": {"name": "db-hunter22"}}), json!({}), "the name of the object"),
            (json!({"data": [{"hunter22": "x"}]}), json!({}), "a key of a map"),
            (json!({}), json!({"stoa.dev/timeout": ["hunter22"]}), "an extension of the resource"),
        ] {
            assert_eq!(named(attributes, extensions), format!("secret value \"password\" is in {part}, {told}"));
        }
        let by_chance = spec(json!({"metadata": {"name": "shop"}}), json!({}));
        assert!(secrets("shop").declared(&by_chance).is_ok() && secrets("pass: shop").declared(&by_chance).is_ok());
    }

    #[tokio::test]
    async fn every_part_of_a_problem_is_redacted() {
        let text = || "x/hunter22".to_owned();
        let wrong = Problem {
            file: text(),
            resource_id: text(),
            field: text(),
            line: 3,
            ..problem(reason::NOT_RENDERED, text())
        };
        let failure = secrets("hunter22").protect(Err(Failure::invalid(vec![wrong]))).await.unwrap_err();
        let problem = &failure.problems()[0];
        let hidden = "x/(sensitive)";
        assert_eq!(
            (problem.message.as_str(), problem.file.as_str(), problem.resource_id.as_str(), problem.field.as_str()),
            (hidden, hidden, hidden, hidden)
        );
    }
}
