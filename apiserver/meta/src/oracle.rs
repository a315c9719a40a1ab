//! Kubernetes' own libraries as an oracle for tests: a Go program (`tests/oracle`) that answers what they make of a
//! write, and kinds and objects to ask about.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
};

use proptest::{
    collection::{btree_map, vec},
    prelude::*,
    sample::select,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Map, Value, json};

use crate::definition::{ALL_VERBS, ResourceDefinition};

/// Names the program.
const PROGRAM: &str = "STOA_TEST_ORACLE";

/// A running oracle.
pub(crate) struct Oracle {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Oracle {
    /// Starts the program that the environment names; nothing, with a word on standard error, when it names none.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = env::var_os(PROGRAM) else {
            eprintln!("skipped: {PROGRAM} does not name the oracle");
            return None;
        };
        let mut child =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the oracle starts");
        let questions = child.stdin.take().expect("it is piped");
        let answers = BufReader::new(child.stdout.take().expect("it is piped"));
        Some(Self { child, questions, answers })
    }

    pub(crate) fn ask(&mut self, question: &Value) -> Value {
        // At once: each token of a value that writes itself would be a call of the kernel.
        self.questions.write_all(format!("{question}\n").as_bytes()).expect("the oracle listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the oracle answers");
        serde_json::from_str(&line).expect("its answer is JSON")
    }

    /// Tells it of a kind as clients see it, by a name for later questions.
    pub(crate) fn define(&mut self, name: &str, schemas: &Map<String, Value>, subresource: &str, ignored: &Value) {
        let answer = self.ask(&json!({
            "define": name,
            "schemas": schemas,
            "component": "dev.test.v1.Thing",
            "gvk": { "Group": "test.dev", "Version": "v1", "Kind": "Thing" },
            "empty": empty(),
            "subresource": subresource,
            "ignored": ignored,
        }));
        assert_eq!(answer, json!({}), "{schemas:#?}");
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // It ends by itself once nobody can ask any more; this only makes sure.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the same cases every time, so many unless `PROPTEST_CASES` says how many.
pub(crate) fn runner(cases: u32) -> TestRunner {
    let told = ProptestConfig::default();
    let cases = if env::var_os("PROPTEST_CASES").is_some() { told.cases } else { cases };
    let config = ProptestConfig { cases, failure_persistence: None, ..told };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

pub(crate) fn empty() -> Value {
    json!({ "apiVersion": "test.dev/v1", "kind": "Thing", "metadata": {}, "spec": {}, "status": {} })
}

pub(crate) fn definition(spec: &Type) -> Arc<ResourceDefinition> {
    Arc::new(ResourceDefinition {
        group: "test.dev".to_owned(),
        version: "v1".to_owned(),
        kind: "Thing".to_owned(),
        plural: "things".to_owned(),
        singular: "thing".to_owned(),
        schema: Arc::new(json!({
            "type": "object",
            "properties": { "spec": spec.schema(), "status": spec.schema(), "metadata": { "type": "object" } },
        })),
        has_status: true,
        verbs: ALL_VERBS.to_vec(),
        ..ResourceDefinition::default()
    })
}

/// A type of values, as schemas describe them.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    Text,
    Count,
    Flag,
    /// A map of which nothing is known.
    Free,
    /// Nothing is known at all.
    Anything,
    Struct(Vec<(&'static str, Type)>),
    AtomicStruct(Vec<(&'static str, Type)>),
    MapOf(Box<Type>),
    AtomicList(Box<Type>),
    Set(Box<Type>),
    /// A list keyed by `name` and `port`, the port with a default, of structs with more fields.
    Keyed(Vec<(&'static str, Type)>),
    /// The same for strategic merge patches: merged by `name`.
    Merged(Vec<(&'static str, Type)>),
}

impl Type {
    fn schema(&self) -> Value {
        let fields = |fields: &[(&'static str, Self)]| -> Map<String, Value> {
            fields.iter().map(|(name, field)| ((*name).to_owned(), field.schema())).collect()
        };
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Count => json!({ "type": "integer", "format": "int64" }),
            Self::Flag => json!({ "type": "boolean" }),
            Self::Free => json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }),
            Self::Anything => json!({ "x-kubernetes-preserve-unknown-fields": true }),
            Self::Struct(all) => json!({ "type": "object", "properties": fields(all) }),
            Self::AtomicStruct(all) => {
                json!({ "type": "object", "properties": fields(all), "x-kubernetes-map-type": "atomic" })
            }
            Self::MapOf(element) => json!({ "type": "object", "additionalProperties": element.schema() }),
            Self::AtomicList(item) => json!({ "type": "array", "items": item.schema() }),
            Self::Set(item) => json!({
                "type": "array",
                "items": item.schema(),
                "x-kubernetes-list-type": "set",
                "x-kubernetes-patch-strategy": "merge",
            }),
            Self::Keyed(all) => {
                let mut fields = fields(all);
                fields.insert("name".to_owned(), json!({ "type": "string" }));
                fields.insert("port".to_owned(), json!({ "type": "integer", "default": 80 }));
                json!({
                    "type": "array",
                    "items": { "type": "object", "properties": fields },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "port"],
                })
            }
            Self::Merged(all) => {
                let mut fields = fields(all);
                fields.insert("name".to_owned(), json!({ "type": "string" }));
                json!({
                    "type": "array",
                    "items": { "type": "object", "properties": fields },
                    "x-kubernetes-patch-strategy": "merge",
                    "x-kubernetes-patch-merge-key": "name",
                })
            }
        }
    }

    /// Some values of the type. Lists may have items twice.
    pub(crate) fn values(&self) -> BoxedStrategy<Value> {
        match self {
            Self::Text => select(&["", "a", "b", "c<"][..]).prop_map(Value::from).boxed(),
            Self::Count => (0..3_i64).prop_map(Value::from).boxed(),
            Self::Flag => any::<bool>().prop_map(Value::from).boxed(),
            Self::Free => btree_map(select(&["x", "y", "z"][..]), anything(), 0..3).prop_map(to_map).boxed(),
            Self::Anything => anything(),
            Self::Struct(fields) | Self::AtomicStruct(fields) => objects(fields, Vec::new()),
            Self::MapOf(element) => {
                btree_map(select(&["x", "y", "z"][..]), element.values(), 0..3).prop_map(to_map).boxed()
            }
            Self::AtomicList(item) | Self::Set(item) => vec(item.values(), 0..4).prop_map(Value::from).boxed(),
            Self::Keyed(fields) => {
                let port = prop_oneof![Just(None), Just(Some(json!(80))), Just(Some(json!(81)))];
                let name = prop_oneof![8 => names().prop_map(Some), 1 => Just(None)];
                vec(objects(fields, vec![("name", name.boxed()), ("port", port.boxed())]), 0..4)
                    .prop_map(Value::from)
                    .boxed()
            }
            Self::Merged(fields) => {
                vec(objects(fields, vec![("name", names().prop_map(Some).boxed())]), 0..4).prop_map(Value::from).boxed()
            }
        }
    }
}

fn names() -> impl Strategy<Value = Value> {
    select(&["a", "b", "c", "d"][..]).prop_map(Value::from)
}

/// Objects in which each field may be missing, besides these keys.
fn objects(
    fields: &[(&'static str, Type)],
    keys: Vec<(&'static str, BoxedStrategy<Option<Value>>)>,
) -> BoxedStrategy<Value> {
    let fields = fields.iter().map(|(name, field)| (*name, proptest::option::of(field.values()).boxed()));
    let (names, values): (Vec<_>, Vec<_>) = fields.chain(keys).unzip();
    values
        .prop_map(move |values| {
            let present = names.iter().zip(values).filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
            Value::Object(present.collect())
        })
        .boxed()
}

fn to_map(entries: std::collections::BTreeMap<&'static str, Value>) -> Value {
    Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn anything() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        Just(json!(0.5)),
        select(&["", "a"][..]).prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map(select(&["x", "y"][..]), inner, 0..3).prop_map(to_map),
        ]
    })
    .boxed()
}

/// Types of all shapes, a few levels deep.
pub(crate) fn types() -> impl Strategy<Value = Type> {
    let scalar = || prop_oneof![Just(Type::Text), Just(Type::Count), Just(Type::Flag)];
    let leaf = prop_oneof![4 => scalar(), 1 => Just(Type::Free), 1 => Just(Type::Anything)];
    let inner = leaf.prop_recursive(2, 10, 3, move |inner| {
        let fields = || fields(inner.clone());
        prop_oneof![
            3 => fields().prop_map(Type::Struct),
            1 => fields().prop_map(Type::AtomicStruct),
            2 => inner.clone().prop_map(|element| Type::MapOf(Box::new(element))),
            1 => inner.clone().prop_map(|item| Type::AtomicList(Box::new(item))),
            2 => prop_oneof![Just(Type::Text), Just(Type::Count)].prop_map(|item| Type::Set(Box::new(item))),
            3 => fields().prop_map(Type::Keyed),
            1 => fields().prop_map(Type::Merged),
        ]
    });
    vec(inner, 1..4).prop_map(|types| Type::Struct(["p", "q", "r"].into_iter().zip(types).collect()))
}

fn fields(inner: BoxedStrategy<Type>) -> impl Strategy<Value = Vec<(&'static str, Type)>> {
    vec(inner, 1..3).prop_map(|types| ["u", "v"].into_iter().zip(types).collect())
}

pub(crate) fn metadata() -> BoxedStrategy<Value> {
    let owners = vec(select(&["1", "2"][..]), 0..2).prop_map(|uids| {
        let owner = |uid| json!({ "apiVersion": "v1", "kind": "K", "name": "n", "uid": uid });
        Value::from(uids.into_iter().map(owner).collect::<Vec<_>>())
    });
    let fields = [
        ("labels", Type::MapOf(Box::new(Type::Text)).values()),
        ("finalizers", Type::Set(Box::new(Type::Text)).values()),
        ("ownerReferences", owners.boxed()),
    ];
    let (names, values): (Vec<_>, Vec<_>) =
        fields.into_iter().map(|(name, values)| (name, proptest::option::weighted(0.3, values))).unzip();
    values
        .prop_map(move |values| {
            let present = names.iter().zip(values).filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
            Value::Object(present.collect())
        })
        .boxed()
}
