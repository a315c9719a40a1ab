//! Field-by-field comparison of the Spec with the live object and the record.
//!
//! Start at [`three_way`]. A field of the live object alone was set by its server or by another writer, and stays. It
//! is removed if it is recorded, since the Spec had it once, or if it is in an atomic list or map. [`against_preview`]
//! compares with the result of a dry run, and [`moved`] with what was applied.
//!
//! Elsewhere: `equality` compares scalars, `quantities` lists fields with amounts, `lists` matches items, and `hidden`
//! masks formerly sensitive values.

mod equality;
mod hidden;
mod lists;
mod quantities;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};

use crate::ignore::Ignored;
use crate::object::{
    is_aggregated_role, is_server_set, named, secret_as_stored, split_api_version, without_aggregated_rules,
};
use crate::owner::{remove_mark, without_mark, written_mark};
use crate::path::{FieldPath, Finder, Segment, below, step_mut};
use crate::plan::FieldChange;
use crate::resolve::Resolved;
use crate::schema::{ListKey, Schema};
use crate::secret_digest::{DigestKeys, contains_mask, is_masked, masked_paths};
use crate::sensitive::{MASK, Sensitive, UNKNOWN};
use crate::spec::{ResourceId, ResourceType};
use crate::state::StateResource;

/// The input of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// The id that the digests of what is recorded are made with, which is mostly its own.
    pub id: &'a ResourceId,
    /// Its resource type; Kubernetes objects have fields that their server sets.
    pub kind: ResourceType,
    /// The recorded attributes, sensitive values masked, if it is recorded.
    pub prior: Option<&'a Map<String, Value>>,
    /// All records of the object, attributes and live objects, also those that do not count as prior. A live value is
    /// sensitive where one of them has a mask.
    pub records: &'a [&'a Map<String, Value>],
    /// A lost call may have set sensitive values without a record. Live values are then masked, except where a record has
    /// the same value in plain text.
    pub unsure: bool,
    /// The wanted attributes.
    pub desired: &'a Resolved<'a>,
    /// The live object.
    pub live: &'a Map<String, Value>,
    /// The keys of the digests of sensitive values.
    pub keys: &'a DigestKeys,
    /// The merge schema of a kind that is not built in, if known.
    pub schema: Option<&'a Schema>,
}

/// An applied resource and its live object.
#[derive(Clone, Copy, Debug)]
pub struct Deployed<'a> {
    /// Its record.
    pub record: &'a StateResource,
    /// The resource in the last release; its sensitive values are masked wherever they are live.
    pub released: Option<&'a Resolved<'a>>,
    /// As in a [`Comparison`].
    pub unsure: bool,
    /// The live object.
    pub live: &'a Map<String, Value>,
    /// The keys of the digests of sensitive values.
    pub keys: &'a DigestKeys,
    /// The merge schema of a kind that is not built in, if known.
    pub schema: Option<&'a Schema>,
}

/// The fields that an apply would change, without a dry run.
pub fn three_way(comparison: &Comparison<'_>) -> Vec<FieldChange> {
    compare(comparison, None, None)
}

/// The fields that an apply would change, by the result of a dry run.
pub fn against_preview(comparison: &Comparison<'_>, previewed: &Map<String, Value>) -> Vec<FieldChange> {
    compare(comparison, Some(previewed), None)
}

/// The fields whose live values differ from what was applied, apart from the Spec. All of them are drift. Values that the
/// infrastructure had set by then, and ignored fields, are not.
pub fn moved(deployed: &Deployed<'_>) -> Vec<FieldChange> {
    let Deployed { record, released, unsure, live, keys, schema } = *deployed;
    let applied = Resolved { sensitive: masked_paths(&record.attributes), ..Resolved::plain(&record.attributes) };
    // An applied resource had no invalid ignored fields.
    let ignored = Ignored::of(&record.as_applied()).unwrap_or_default();
    let desired = ignored.resolved(applied, live);
    let (id, kind, prior) = (record.digest_id(), record.kind, Some(&record.attributes));
    let known = released.map(|released| Sensitive::of(&released.attributes, &released.sensitive)).unwrap_or_default();
    let masked = released.map(|released| known.recorded(id, &released.attributes, keys));
    let records: Vec<&Map<String, Value>> = record.objects().chain(&masked).collect();
    let (records, desired) = (records.as_slice(), &desired);
    let comparison = Comparison { id, kind, prior, records, unsure, desired, live, keys, schema };
    compare(&comparison, None, Some(&LastResult { live: &record.live, known: &known }))
}

/// Live values that remain sensitive after an apply, since they were sensitive when they were recorded. Fields of other
/// managers are included. The paths are those in the live object.
pub(crate) fn still_sensitive<'r>(
    kind: ResourceType,
    records: impl Iterator<Item = &'r Map<String, Value>>,
    wanted: &Map<String, Value>,
    live: &Map<String, Value>,
) -> Sensitive {
    let kubernetes = kind == ResourceType::Kubernetes;
    let schema = kubernetes.then(|| Schema::built_in(wanted).unwrap_or(Schema::of_any_kind()));
    let mut left = Sensitive::default();
    for record in records.filter(|record| record.values().any(contains_mask)) {
        left.extend(&hidden::by_record(schema, &stored(record, kubernetes), wanted, live, true));
    }
    left
}

/// The fields of an object that does not exist yet, without those that its id has.
pub fn of_new(id: &ResourceId, kind: ResourceType, desired: &Resolved<'_>, keys: &DigestKeys) -> Vec<FieldChange> {
    let is_object = kind == ResourceType::Kubernetes;
    let live = if is_object { named(&desired.attributes) } else { Map::new() };
    let mut desired = Cow::Borrowed(desired);
    if is_object && is_aggregated_role(&desired.attributes) {
        let attributes = without_aggregated_rules(desired.attributes.clone().into_owned());
        desired = Cow::Owned(Resolved { attributes: Cow::Owned(attributes), ..desired.into_owned() });
    }
    let (prior, unsure, live, desired) = (None, false, &live, &*desired);
    three_way(&Comparison { id, kind, prior, records: &[], unsure, desired, live, keys, schema: None })
}

/// The fields in which two records of a resource differ, by path, digests of sensitive values as [`MASK`]. Where one of the two is
/// sensitive, neither is shown.
pub fn between(
    id: &ResourceId,
    kind: ResourceType,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Vec<FieldChange> {
    let desired = Resolved::plain(after);
    // Without a record, no digests are compared.
    let keys = DigestKeys::new(&[0; 32], &[]);
    let (prior, unsure) = (None, false);
    let (desired, live, keys) = (&desired, before, &keys);
    let comparison = Comparison { id, kind, prior, records: &[], unsure, desired, live, keys, schema: None };
    let mut changes = against_preview(&comparison, after);
    // The order of maps depends on a feature of serde_json that any crate in the build may turn on.
    changes.sort_by(|a, b| a.path.cmp(&b.path));
    for FieldChange { before, after, .. } in &mut changes {
        match (before, after) {
            (Some(before), Some(after)) if contains_mask(before) || contains_mask(after) => {
                (*before, *after) = (MASK.into(), MASK.into());
            }
            (before, after) => {
                before.iter_mut().for_each(hide_digests);
                after.iter_mut().for_each(hide_digests);
            }
        }
    }
    changes
}

fn hide_digests(value: &mut Value) {
    if is_masked(value) {
        *value = MASK.into();
        return;
    }
    match value {
        Value::Object(map) => map.values_mut().for_each(hide_digests),
        Value::Array(items) => items.iter_mut().for_each(hide_digests),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// What else is known when the record has the wanted values.
struct LastResult<'a> {
    /// The recorded live object.
    live: &'a Map<String, Value>,
    /// The sensitive values of the last release.
    known: &'a Sensitive,
}

fn compare(
    comparison: &Comparison<'_>,
    previewed: Option<&Map<String, Value>>,
    applied: Option<&LastResult<'_>>,
) -> Vec<FieldChange> {
    let kubernetes = comparison.kind == ResourceType::Kubernetes;
    let desired = as_stored(comparison.desired, kubernetes);
    // Most live objects have the annotation, so that a copy would be expensive.
    let live = match kubernetes {
        true => secret_as_stored(comparison.live).map_or(Cow::Borrowed(comparison.live), Cow::Owned),
        false => Cow::Borrowed(comparison.live),
    };
    let prior = comparison.prior.map(|prior| stored(prior, kubernetes));
    let previewed = previewed.map(|previewed| stored(previewed, kubernetes));
    let made = applied.map(|applied| secret_as_stored(applied.live).map_or(Cow::Borrowed(applied.live), Cow::Owned));
    let live_metadata = if kubernetes { metadata_without_mark(&live) } else { None };
    let mut sensitive = Sensitive::of(&desired.attributes, &desired.sensitive);
    sensitive.extend(&Sensitive::of(&live, &desired.sensitive));
    let object = if kubernetes { kind_of(comparison.desired) } else { None };
    let schema = kubernetes.then(|| {
        let known = Schema::built_in(&comparison.desired.attributes).or(comparison.schema);
        known.unwrap_or(Schema::of_any_kind())
    });
    let mut hidden = sensitive.clone();
    for record in comparison.records.iter().filter(|record| record.values().any(contains_mask)) {
        let want = previewed.as_deref().unwrap_or(&desired.attributes);
        hidden.extend(&hidden::by_record(schema, &stored(record, kubernetes), want, &live, false));
    }
    if let Some(applied) = applied {
        hidden.extend_texts(applied.known);
    }
    let recorded = OnceCell::new();
    let mut walker = Walker {
        kubernetes,
        object,
        schema,
        is_owned: false,
        strict: previewed.is_some(),
        id: comparison.id,
        keys: comparison.keys,
        prior: prior.as_deref(),
        made: made.as_deref(),
        live: &live,
        live_metadata: live_metadata.as_ref(),
        recorded: &recorded,
        finder: Finder::default(),
        wanted: comparison.desired,
        desired: &desired,
        sensitive: &sensitive,
        hidden: &hidden,
        unsure: comparison.unsure,
        records: comparison.records,
        shown: FieldPath::default(),
        raw: FieldPath::default(),
        changes: Vec::new(),
    };
    match &previewed {
        Some(previewed) => walker.map(None, previewed, &live),
        None => walker.map(walker.prior, &desired.attributes, &live),
    }
    walker.changes
}

fn kind_of<'a>(desired: &'a Resolved<'_>) -> Option<equality::Kind<'a>> {
    let text = |key: &str| desired.attributes.get(key).and_then(Value::as_str);
    Some(equality::Kind { group: split_api_version(text("apiVersion")?).0, kind: text("kind")? })
}

/// An object as a server keeps it.
fn stored(object: &Map<String, Value>, kubernetes: bool) -> Cow<'_, Map<String, Value>> {
    if !kubernetes {
        return Cow::Borrowed(object);
    }
    without_mark(secret_as_stored(object).map_or(Cow::Borrowed(object), Cow::Owned))
}

/// The compared metadata of a live object with an owner annotation.
fn metadata_without_mark(live: &Map<String, Value>) -> Option<Map<String, Value>> {
    written_mark(live)?;
    let mut metadata: Map<String, Value> = live
        .get("metadata")?
        .as_object()?
        .iter()
        .filter(|(key, _)| !is_server_set(&["metadata"], key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    remove_mark(&mut metadata);
    Some(metadata)
}

/// The wanted object as a server would store it.
fn as_stored<'a>(desired: &'a Resolved<'a>, kubernetes: bool) -> Cow<'a, Resolved<'a>> {
    let attributes = match stored(&desired.attributes, kubernetes) {
        Cow::Borrowed(_) => return Cow::Borrowed(desired),
        Cow::Owned(attributes) => attributes,
    };
    let moved = |paths: &BTreeSet<FieldPath>| {
        if attributes.contains_key("stringData") || !desired.attributes.contains_key("stringData") {
            return paths.clone();
        }
        paths
            .iter()
            .map(|path| match path.0.split_first() {
                Some((Segment::Key(first), rest)) if first == "stringData" => FieldPath::of_keys(["data"]).concat(rest),
                _ => path.clone(),
            })
            .collect()
    };
    let (unknown, sensitive) = (moved(&desired.unknown), moved(&desired.sensitive));
    Cow::Owned(Resolved { attributes: Cow::Owned(attributes), unknown, sensitive })
}

struct Walker<'a> {
    kubernetes: bool,
    object: Option<equality::Kind<'a>>,
    /// The merge schema; `None` for other resource types.
    schema: Option<&'a Schema>,
    /// Whether the path is within an atomic list or map, so that additions of others are removed.
    is_owned: bool,
    /// Whether fields of the live side alone are removed: true for a comparison with a dry run.
    strict: bool,
    id: &'a ResourceId,
    keys: &'a DigestKeys,
    prior: Option<&'a Map<String, Value>>,
    /// The recorded live values, if the record has the wanted values; else `None`.
    made: Option<&'a Map<String, Value>>,
    live: &'a Map<String, Value>,
    /// The compared live metadata, if it has an owner annotation.
    live_metadata: Option<&'a Map<String, Value>>,
    /// All forms in which the wanted object may be recorded; computed with the first change.
    recorded: &'a OnceCell<Vec<Map<String, Value>>>,
    finder: Finder<'a>,
    /// The wanted object, as it is written and as a server would store it.
    wanted: &'a Resolved<'a>,
    desired: &'a Resolved<'a>,
    sensitive: &'a Sensitive,
    /// Masked values: these, and formerly sensitive ones.
    hidden: &'a Sensitive,
    /// Whether live values without an equal record may be sensitive.
    unsure: bool,
    /// All records, for objects of providers: their attributes are recorded as they are live.
    records: &'a [&'a Map<String, Value>],
    /// The current path, for people.
    shown: FieldPath,
    /// The current path in the wanted object, with list indexes.
    raw: FieldPath,
    changes: Vec<FieldChange>,
}

impl Walker<'_> {
    fn map(&mut self, prior: Option<&Map<String, Value>>, want: &Map<String, Value>, have: &Map<String, Value>) {
        let around = self.is_owned;
        self.is_owned |= self.schema.is_some_and(|schema| schema.is_atomic_map(&self.raw));
        for (key, wanted) in want {
            if self.is_server_set(key) {
                continue;
            }
            let had = have.get(key);
            if had == Some(wanted) && (self.strict || self.desired.unknown.is_empty()) {
                continue;
            }
            let prior = prior.and_then(|prior| prior.get(key));
            let step = Segment::Key(key.clone());
            self.within(step.clone(), step, |walker| walker.value(prior, wanted, had));
        }
        for (key, had) in have {
            let was_wanted = prior.and_then(|prior| prior.get(key)).is_some_and(|prior| !prior.is_null());
            // Most of what only the live side has is in nothing that one owns, and no path is made for that.
            let is_to_go = || was_wanted || self.strict || self.is_owned && self.is_added(&self.shown.key(key), had);
            if want.contains_key(key) || had.is_null() || !is_to_go() || self.is_server_set(key) {
                continue;
            }
            let step = Segment::Key(key.clone());
            self.within(step.clone(), step, |walker| walker.change(Some(had), None));
        }
        self.is_owned = around;
    }

    /// Whether a live value was added by others in an atomic list or map.
    fn is_added(&self, path: &FieldPath, had: &Value) -> bool {
        let live = |path: &FieldPath| self.finder.get(self.live, path);
        self.is_owned && !self.schema.is_some_and(|schema| schema.is_filled(path, had, &live))
    }

    fn value(&mut self, prior: Option<&Value>, want: &Value, have: Option<&Value>) {
        if !self.strict && self.desired.unknown.contains(&self.raw) {
            return self.change(have, Some(&Value::from(UNKNOWN)));
        }
        match (want, have) {
            (Value::Null, None | Some(Value::Null)) => {}
            // Null means that the Spec does not set the field.
            (Value::Null, Some(had)) => {
                let was_wanted = prior.is_some_and(|prior| !prior.is_null());
                if was_wanted || self.strict || self.is_added(&self.shown, had) {
                    self.change(Some(had), None);
                }
            }
            (_, None | Some(Value::Null)) => self.change(None, Some(want)),
            // A digest is one value, though it is written as a map.
            (_, Some(had)) if is_masked(want) || is_masked(had) => {
                let is_record = self.made.is_some();
                if want != had && !(is_record && self.keys.is_mask_of(self.id, want, had)) {
                    self.change(Some(had), Some(want));
                }
            }
            (Value::Object(want), Some(Value::Object(have))) => {
                let is_metadata = matches!(self.raw.0.as_slice(), [Segment::Key(key)] if key == "metadata");
                let have = self.live_metadata.filter(|_| is_metadata).unwrap_or(have);
                self.map(prior.and_then(Value::as_object), want, have);
            }
            (Value::Array(want), Some(Value::Array(have))) => {
                self.list(prior.and_then(Value::as_array).map(Vec::as_slice), want, have);
            }
            (_, Some(had)) => {
                if !equality::same(self.object, &self.raw, want, had) {
                    self.change(Some(had), Some(want));
                }
            }
        }
    }

    fn list(&mut self, prior: Option<&[Value]>, want: &[Value], have: &[Value]) {
        let merge = self.schema.and_then(|schema| schema.list(&self.raw));
        let around = self.is_owned;
        self.is_owned |= self.schema.is_some() && merge.is_none();
        match lists::matching(merge, prior, want, have) {
            lists::Matching::ByKeys { keys, shared } => {
                self.keyed_list(&keys, shared && !self.strict, prior, want, have);
            }
            lists::Matching::Set => self.set(prior, want, have),
            lists::Matching::ByPosition => {
                for position in 0..want.len().max(have.len()) {
                    let step = Segment::Index(position);
                    self.within(step.clone(), step, |walker| match (want.get(position), have.get(position)) {
                        (Some(want), had) => walker.value(prior.and_then(|it| it.get(position)), want, had),
                        (None, had) => walker.change(had, None),
                    });
                }
            }
        }
        self.is_owned = around;
    }

    /// Compares lists whose items have keys. In a `shared` list, others may have items too.
    fn keyed_list(&mut self, keys: &[ListKey], shared: bool, prior: Option<&[Value]>, want: &[Value], have: &[Value]) {
        let prior = prior.unwrap_or_default();
        let [in_prior, in_want, in_have] = [prior, want, have].map(|items| lists::positions(items, keys));
        let mut positions = Vec::with_capacity(want.len());
        for (index, wanted) in want.iter().enumerate() {
            let Some(text) = lists::key_of(wanted, keys) else { continue };
            let had = in_have.get(&text).copied();
            positions.extend(had);
            let prior = in_prior.get(&text).map(|at| &prior[*at]);
            let item = lists::step_to(keys, text);
            self.within(item, Segment::Index(index), |walker| walker.value(prior, wanted, had.map(|at| &have[at])));
        }
        for (index, had) in have.iter().enumerate() {
            let Some(text) = lists::key_of(had, keys) else { continue };
            if !in_want.contains_key(&text) && (in_prior.contains_key(&text) || !shared) {
                let item = lists::step_to(keys, text);
                self.within(item, Segment::Index(want.len() + index), |walker| walker.change(Some(had), None));
            }
        }
        // Containers and variables have an order, with or without items of others in between.
        if !positions.is_sorted() {
            let names = |items: &[Value]| Value::from_iter(items.iter().filter_map(|item| lists::key_of(item, keys)));
            self.change(Some(&names(have)), Some(&names(want)));
        }
    }

    /// A list of scalars to which others add, such as finalizers.
    fn set(&mut self, prior: Option<&[Value]>, want: &[Value], have: &[Value]) {
        let [in_prior, in_want, in_have] =
            [prior.unwrap_or_default(), want, have].map(|items| items.iter().collect::<HashSet<&Value>>());
        for (index, wanted) in want.iter().enumerate() {
            if !in_have.contains(wanted) {
                let step = Segment::Index(index);
                self.within(step.clone(), step, |walker| walker.change(None, Some(wanted)));
            }
        }
        for (index, had) in have.iter().enumerate() {
            if !in_want.contains(had) && (in_prior.contains(had) || self.strict) {
                let step = Segment::Index(index);
                self.within(step.clone(), step, |walker| walker.change(Some(had), None));
            }
        }
    }

    fn within(&mut self, shown: Segment, raw: Segment, work: impl FnOnce(&mut Self)) {
        self.shown.0.push(shown);
        self.raw.0.push(raw);
        work(self);
        self.shown.0.pop();
        self.raw.0.pop();
    }

    fn is_server_set(&self, key: &str) -> bool {
        if !self.kubernetes || self.raw.0.len() > 2 {
            return false;
        }
        let parents: Option<Vec<&str>> = self
            .raw
            .0
            .iter()
            .map(|segment| match segment {
                Segment::Key(key) => Some(key.as_str()),
                Segment::Index(_) | Segment::Item { .. } => None,
            })
            .collect();
        parents.is_some_and(|parents| is_server_set(&parents, key))
    }

    fn change(&mut self, before: Option<&Value>, after: Option<&Value>) {
        if self.is_as_made() {
            return;
        }
        let drift = self.made.is_some() || self.is_drift(before.is_some());
        let show = |value: &Value| self.hidden.shown(&self.raw, value);
        let change = FieldChange {
            path: self.hidden.shown_path(&self.shown).to_string(),
            before: before.map(|had| if self.may_be_sensitive(had) { Value::from(MASK) } else { show(had) }),
            after: after.map(|after| if after == UNKNOWN { after.clone() } else { self.with_unknown(show(after)) }),
            drift,
            forces_replacement: false,
        };
        self.changes.push(change);
    }

    /// Whether a live value here may be sensitive.
    fn may_be_sensitive(&self, had: &Value) -> bool {
        let recorded = if self.kubernetes { self.prior.as_slice() } else { self.records };
        self.unsure && !recorded.iter().any(|record| self.finder.get(record, &self.shown) == Some(had))
    }

    /// The wanted value here, with unknown values shown as such.
    fn with_unknown(&self, mut value: Value) -> Value {
        for path in below(&self.desired.unknown, &self.raw.0).filter(|_| !self.strict) {
            if let Some(unknown) = path.iter().try_fold(&mut value, step_mut) {
                *unknown = UNKNOWN.into();
            }
        }
        value
    }

    /// Whether the live value is the one that the infrastructure had set for the applied value.
    fn is_as_made(&self) -> bool {
        let Some(made) = self.made else { return false };
        match (self.finder.get(made, &self.shown), self.finder.get(self.live, &self.shown)) {
            (Some(made), Some(live)) => self.keys.is_record_of(self.id, made, live),
            (None, None) => !made.is_empty(),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Whether the wanted value is the recorded one, so that the live side drifted.
    fn is_drift(&self, is_live: bool) -> bool {
        let Some(prior) = self.prior else { return false };
        let recorded = self.recorded.get_or_init(|| {
            // Digests are of what was wanted, which for a Secret may be another text than its server keeps.
            let wanted = self.wanted;
            let mut sensitive = Sensitive::of(&wanted.attributes, &wanted.sensitive);
            sensitive.extend(self.sensitive);
            let ways = sensitive.recorded_ways(self.id, &wanted.attributes, self.keys);
            ways.iter().map(|recorded| stored(recorded, self.kubernetes).into_owned()).collect()
        });
        let prior = self.finder.get(prior, &self.shown);
        recorded.iter().any(|recorded| match (prior, self.finder.get(recorded, &self.shown)) {
            (Some(prior), Some(wanted)) => prior == wanted,
            // Changes of a server are not drift; additions to an atomic value are.
            (None, None) => !self.strict || self.is_owned && is_live,
            _ => false,
        })
    }
}

#[cfg(test)]
mod naive_tests;
#[cfg(test)]
mod tests;
