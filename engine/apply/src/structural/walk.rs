//! Walk through an object beside its schema: fields, types, and items of lists and maps.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use stoa_engine::FieldPath;
use stoa_engine::path::{Segment, below};
use stoa_engine::types::{misfit, wanted};

use super::patterns::Patterns;
use super::prepare::size;
use super::rules::Pending;
use super::{Fault, Finding, MOST, Steps, is_meta, is_set, listed, of_rest};

/// The schema of metadata that users write. Null is an empty text there.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string", "nullable": true}});
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
        "name": {"type": "string", "nullable": true},
        "namespace": {"type": "string", "nullable": true},
        "labels": texts,
        "annotations": texts,
        "finalizers": {"type": "array", "items": {"type": "string", "nullable": true}},
    }})
});

/// One walk through an object.
#[derive(Debug)]
pub(super) struct Walk<'w, 's> {
    pub(super) patterns: &'w mut Patterns<'s>,
    pub(super) steps: &'w mut Steps,
    unknown: &'w BTreeSet<FieldPath>,
    at: FieldPath,
    found: Vec<Finding>,
    /// Rules of schemas that were met.
    pending: Vec<Pending<'s>>,
    /// Whether the schema defines fields. Alternatives only restrict values.
    is_structure: bool,
    /// Whether a parent preserves unknown fields.
    is_kept: bool,
    /// Whether a part of the schema was skipped.
    is_unsure: bool,
}

impl<'w, 's> Walk<'w, 's> {
    pub(super) fn new(patterns: &'w mut Patterns<'s>, steps: &'w mut Steps, unknown: &'w BTreeSet<FieldPath>) -> Self {
        Self {
            patterns,
            steps,
            unknown,
            at: FieldPath::default(),
            found: Vec::new(),
            pending: Vec::new(),
            is_structure: true,
            is_kept: false,
            is_unsure: false,
        }
    }

    /// Validates an object, and collects the rules to evaluate.
    pub(super) fn object(
        mut self,
        schema: &'s Value,
        object: &Value,
        live: Option<&Map<String, Value>>,
    ) -> (Vec<Finding>, Vec<Pending<'s>>) {
        self.whole(schema, object, live.is_some());
        if let Value::Object(map) = object {
            self.map(schema, map, live, true);
        }
        self.note_rules(schema, live.is_some());
        (self.found, self.pending)
    }

    pub(super) fn value(&mut self, schema: &'s Value, value: &Value, live: Option<&Value>) {
        if !self.steps.take(1) || self.unknown.contains(&self.at) {
            self.is_unsure = true;
            return;
        }
        // A live value may stay, and so may a permitted null.
        if live == Some(value) || (value.is_null() && is_set(schema, "nullable")) {
            return;
        }
        if let Some(message) = mistyped(schema, value) {
            return self.report(Fault::Mistyped, message);
        }
        self.whole(schema, value, live.is_some());
        match value {
            Value::Object(map) => {
                let is_embedded = self.is_structure && is_set(schema, "x-kubernetes-embedded-resource");
                self.map(schema, map, live.and_then(Value::as_object), is_embedded);
            }
            Value::Array(items) => self.list(schema, items, live.and_then(Value::as_array)),
            Value::String(text) => self.text(schema, text),
            Value::Number(number) => self.number(schema, number),
            Value::Null | Value::Bool(_) => {}
        }
        self.note_rules(schema, live.is_some());
    }

    fn map(&mut self, schema: &'s Value, map: &Map<String, Value>, live: Option<&Map<String, Value>>, has_meta: bool) {
        let fields = schema.get("properties").and_then(Value::as_object);
        let rest = of_rest(schema);
        let is_kept = is_set(schema, "x-kubernetes-preserve-unknown-fields");
        let is_free = is_kept || is_set(schema, "additionalProperties");
        let kept_around = self.is_kept;
        self.is_kept |= is_kept;
        for (key, value) in map {
            self.at.0.push(Segment::Key(key.clone()));
            let live = live.and_then(|live| live.get(key));
            match fields.and_then(|fields| fields.get(key)) {
                own if has_meta && is_meta(key) => self.meta(key, own, value, live),
                Some(schema) => self.value(schema, value, live),
                None => match rest {
                    Some(schema) => self.value(schema, value, live),
                    None if is_free || !self.is_structure => {}
                    None => {
                        // Maps without declared fields are merged by their content.
                        let is_dropped = self.is_kept || fields.is_none_or(Map::is_empty);
                        let fault = if is_dropped { Fault::Dropped } else { Fault::Unknown };
                        self.report(fault, "its kind has no field of this name".to_owned());
                    }
                },
            }
            self.at.0.pop();
        }
        self.is_kept = kept_around;
        self.sizes(schema, ["minProperties", "maxProperties"], "entries", map.len(), live.is_some());
        let of_meta = if has_meta { &["apiVersion", "kind"][..] } else { &[] };
        let required = listed(schema, "required").iter().filter_map(Value::as_str);
        for name in required.chain(of_meta.iter().copied()) {
            let is_there = map.contains_key(name) || live.is_some_and(|live| live.contains_key(name));
            if !self.steps.take(1) {
                self.is_unsure = true;
                return;
            }
            if !is_there {
                self.at.0.push(Segment::Key(name.to_owned()));
                self.report(Fault::Missing, "its kind requires this field".to_owned());
                self.at.0.pop();
            }
        }
    }

    /// Validates apiVersion, kind and metadata. Their schema can only restrict names.
    fn meta(&mut self, key: &str, own: Option<&'s Value>, value: &Value, live: Option<&Value>) {
        if key == "metadata" {
            self.value(&METADATA, value, live);
        } else if let Some(message) = misfit("string", value).filter(|_| !self.is_unknown()) {
            self.report(Fault::Mistyped, message);
        }
        if let Some(schema) = own {
            self.loosely(|walk| walk.value(schema, value, live));
        }
    }

    fn list(&mut self, schema: &'s Value, items: &[Value], live: Option<&Vec<Value>>) {
        let keys: Vec<&str> = listed(schema, "x-kubernetes-list-map-keys").iter().filter_map(Value::as_str).collect();
        let (is_set_of, is_map) = match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => (true, false),
            Some("map") => (false, !keys.is_empty()),
            Some(_) | None => (false, false),
        };
        // Others may have items of their own in a list that is shared.
        let has_others = live.is_some() && (is_set_of || is_map);
        self.sizes(schema, ["minItems", "maxItems"], "items", items.len(), has_others);
        let tells_apart = |item: &Value| match is_map {
            true => Value::from_iter(keys.iter().map(|key| item.get(key).cloned().unwrap_or_default())).to_string(),
            false => item.to_string(),
        };
        let cost = |item: &Value| match is_map {
            true => keys.iter().map(|key| 1 + item.get(key).map_or(0, size)).sum(),
            false => size(item),
        };
        let compared = items.iter().chain(live.filter(|_| is_map).into_iter().flatten());
        if (is_set_of || is_map) && !compared.map(cost).all(|cost| self.steps.take(cost)) {
            return self.pass_over();
        }
        let known: HashMap<String, &Value> = match live.filter(|_| is_map) {
            Some(live) => live.iter().map(|item| (tells_apart(item), item)).collect(),
            None => HashMap::new(),
        };
        let mut seen = HashMap::new();
        for (index, item) in items.iter().enumerate() {
            self.at.0.push(Segment::Index(index));
            let named = (is_set_of || is_map).then(|| tells_apart(item));
            let live = named.as_ref().and_then(|named| known.get(named).copied());
            if let Some(named) = named.filter(|_| !self.is_unknown_within())
                && let Some(first) = seen.insert(named, index)
            {
                let what = if is_map { format!("the same {}", keys.join(", ")) } else { "the same value".to_owned() };
                self.report(Fault::Refused, format!("item {first} has {what}; items must be unique"));
            }
            if let Some(schema) = schema.get("items") {
                self.value(schema, item, live);
            }
            self.at.0.pop();
        }
    }

    /// Validates a value by a schema that defines no fields.
    pub(super) fn loosely<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        let around = std::mem::replace(&mut self.is_structure, false);
        let seen = look(self);
        self.is_structure = around;
        seen
    }

    /// Whether a value matches one of several schemas, without findings; `None` when that is not decided.
    pub(super) fn fits(&mut self, schema: &'s Value, value: &Value) -> Option<bool> {
        let found = std::mem::take(&mut self.found);
        let is_unsure = std::mem::take(&mut self.is_unsure);
        self.loosely(|walk| walk.value(schema, value, None));
        let failed = !std::mem::replace(&mut self.found, found).is_empty();
        let is_sure = failed || !self.is_unsure;
        self.is_unsure |= is_unsure;
        is_sure.then_some(!failed)
    }

    pub(super) fn report(&mut self, fault: Fault, message: String) {
        if self.found.len() < MOST {
            self.found.push(Finding { fault, field: self.at.clone(), message });
        }
    }

    /// Notes that a part is skipped.
    pub(super) fn pass_over(&mut self) {
        self.is_unsure = true;
    }

    fn is_unknown(&self) -> bool {
        self.unknown.contains(&self.at)
    }

    /// Whether anything here or below is unknown.
    pub(super) fn is_unknown_within(&self) -> bool {
        below(self.unknown, &self.at.0).next().is_some()
    }

    /// Collects rules of values that are all known and all ours, since rules see the whole object.
    fn note_rules(&mut self, schema: &'s Value, has_live: bool) {
        if self.is_structure
            && !has_live
            && schema.get("x-kubernetes-validations").is_some()
            && !self.is_unknown_within()
        {
            self.pending.push(Pending { at: self.at.clone(), schema });
        }
    }
}

/// Why a value is not of the type that a schema has, if it is not.
fn mistyped(schema: &Value, value: &Value) -> Option<String> {
    if is_set(schema, "x-kubernetes-int-or-string") {
        let is_one = value.is_string() || misfit("integer", value).is_none();
        return (!is_one).then(|| wanted("a whole number or text", value));
    }
    misfit(schema.get("type")?.as_str()?, value)
}
