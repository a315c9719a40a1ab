//! Resolution of references: finds the references of a resource, and replaces them by values.
//!
//! Start at [`resolve`]. Values that contain an unknown or sensitive value are unknown or sensitive too.
//!
//! Elsewhere: `bounds` limits the expansion.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::bounds::{Budget, TooLarge};
use crate::path::{FieldPath, Segment, below, scalar, type_name};
use crate::reference::{Part, Reference, ReferenceError, Template, may_refer, parse};
use crate::spec::Resource;

/// All references in the attributes of a resource, and those that do not parse, with their fields.
pub fn references(
    attributes: &Map<String, Value>,
    known: &dyn Fn(&str) -> bool,
) -> (Vec<Reference>, Vec<(FieldPath, ReferenceError)>) {
    let mut found = Vec::new();
    let mut errors = Vec::new();
    if !refers(attributes) {
        return (found, errors);
    }
    let mut visit = |field: &FieldPath, text: &str| match parse(text, known) {
        Ok(None) => {}
        Ok(Some(template)) => found.extend(template.references().cloned()),
        Err(err) => errors.push((field.clone(), err)),
    };
    texts(attributes, &mut visit);
    (found, errors)
}

/// All references in the attributes of a resource that parse, with their fields.
pub fn references_at(attributes: &Map<String, Value>, known: &dyn Fn(&str) -> bool) -> Vec<(FieldPath, Reference)> {
    let mut found = Vec::new();
    let mut visit = |field: &FieldPath, text: &str| {
        if let Ok(Some(template)) = parse(text, known) {
            found.extend(template.references().map(|reference| (field.clone(), reference.clone())));
        }
    };
    if refers(attributes) {
        texts(attributes, &mut visit);
    }
    found
}

/// Whether any text may contain a reference. Most resources have none, and need no paths then.
pub(crate) fn refers(attributes: &Map<String, Value>) -> bool {
    has_text(attributes, &may_refer)
}

/// Whether any text in the attributes, including keys of maps, fulfils a condition.
pub(crate) fn has_text(attributes: &Map<String, Value>, is_it: &dyn Fn(&str) -> bool) -> bool {
    fn in_value(value: &Value, is_it: &dyn Fn(&str) -> bool) -> bool {
        match value {
            Value::String(text) => is_it(text),
            Value::Array(items) => items.iter().any(|item| in_value(item, is_it)),
            Value::Object(map) => has_text(map, is_it),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    attributes.iter().any(|(key, value)| is_it(key) || in_value(value, is_it))
}

/// Visits every text in the attributes, keys of maps among them, with where it stands.
pub(crate) fn texts(attributes: &Map<String, Value>, visit: &mut dyn FnMut(&FieldPath, &str)) {
    strings_of_map(attributes, &mut FieldPath::default(), visit);
}

fn strings_of_map(map: &Map<String, Value>, at: &mut FieldPath, visit: &mut dyn FnMut(&FieldPath, &str)) {
    for (key, value) in map {
        at.0.push(Segment::Key(key.clone()));
        visit(at, key);
        strings_of(value, at, visit);
        at.0.pop();
    }
}

fn strings_of(value: &Value, at: &mut FieldPath, visit: &mut dyn FnMut(&FieldPath, &str)) {
    match value {
        Value::String(text) => visit(at, text),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                at.0.push(Segment::Index(index));
                strings_of(item, at, visit);
                at.0.pop();
            }
        }
        Value::Object(map) => strings_of_map(map, at, visit),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup<'l> {
    /// A value with sensitive paths, relative to it; the empty path is all of it.
    Known {
        /// The value, borrowed until it is known to fit.
        value: &'l Value,
        /// Its sensitive parts.
        sensitive: Vec<FieldPath>,
    },
    /// Nobody knows before it is applied.
    Unknown,
}

/// Attributes with their references replaced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved<'a> {
    /// The attributes; null stands where a value is unknown. Those of the resource itself where nothing is replaced, since a
    /// plan has thousands.
    pub attributes: Cow<'a, Map<String, Value>>,
    /// The paths of values that are unknown until another resource is applied.
    pub unknown: BTreeSet<FieldPath>,
    /// The paths of values from sensitive ones.
    pub sensitive: BTreeSet<FieldPath>,
}

impl<'a> Resolved<'a> {
    /// Attributes that have no references.
    pub fn plain(attributes: &'a Map<String, Value>) -> Self {
        Self { attributes: Cow::Borrowed(attributes), ..Self::default() }
    }

    /// The same with owned attributes.
    pub fn into_owned(self) -> Resolved<'static> {
        let Self { attributes, unknown, sensitive } = self;
        Resolved { attributes: Cow::Owned(attributes.into_owned()), unknown, sensitive }
    }

    /// What has to be known before a dry run, for people; `None` if nothing is missing.
    pub fn waits(&self) -> Option<String> {
        let fields: Vec<String> = self.unknown.iter().map(ToString::to_string).collect();
        (!fields.is_empty()).then(|| format!("{} known after apply", fields.join(", ")))
    }

    /// Whether the value at the path, or a part of it, is unknown.
    pub fn is_unknown(&self, path: &FieldPath) -> bool {
        (0..=path.0.len()).any(|depth| self.unknown.contains(&path.0[..depth]))
            || below(&self.unknown, &path.0).next().is_some()
    }
}

/// Replaces each reference in the attributes of a resource by the result of `lookup`, within the budget.
///
/// # Errors
///
/// All problems with their fields. The first reference over the budget ends the search.
pub fn resolve<'a, 'l>(
    resource: &'a Resource,
    known: &dyn Fn(&str) -> bool,
    lookup: &mut dyn FnMut(&Reference) -> Result<Lookup<'l>, ReferenceError>,
    budget: &mut Budget,
) -> Result<Resolved<'a>, Vec<(FieldPath, ReferenceError)>> {
    let Resource { id, attributes, .. } = resource;
    if !refers(attributes) {
        return Ok(Resolved::plain(attributes));
    }
    budget.begin(id);
    let mut resolver = Resolver {
        known,
        lookup,
        budget,
        at: FieldPath::default(),
        out: Resolved::default(),
        errors: Vec::new(),
        is_over: false,
    };
    let attributes = Cow::Owned(resolver.map(attributes));
    let Resolver { out, errors, .. } = resolver;
    budget.end(id);
    if errors.is_empty() { Ok(Resolved { attributes, ..out }) } else { Err(errors) }
}

struct Resolver<'a, 'l> {
    known: &'a dyn Fn(&str) -> bool,
    lookup: &'a mut dyn FnMut(&Reference) -> Result<Lookup<'l>, ReferenceError>,
    budget: &'a mut Budget,
    at: FieldPath,
    out: Resolved<'static>,
    errors: Vec<(FieldPath, ReferenceError)>,
    /// Whether the budget is exceeded, so that the rest is skipped.
    is_over: bool,
}

/// A string after its references were replaced.
enum Text {
    Unchanged,
    Value(Value),
    Unknown,
}

impl Resolver<'_, '_> {
    fn map(&mut self, map: &Map<String, Value>) -> Map<String, Value> {
        let mut out = Map::new();
        for (key, value) in map {
            if self.is_over {
                break;
            }
            let Some(key) = self.key(key) else { continue };
            if out.contains_key(&key) {
                let message = format!("two keys of this map become `{key}`");
                self.fail(self.at.clone(), ReferenceError::Unfit(message));
                continue;
            }
            self.at.0.push(Segment::Key(key.clone()));
            let value = self.value(value);
            self.at.0.pop();
            out.insert(key, value);
        }
        out
    }

    /// The key with its references replaced; `None` when it is unknown or wrong.
    fn key(&mut self, key: &str) -> Option<String> {
        let place = |at: &FieldPath| at.key(key);
        let mut sensitive = Vec::new();
        let value = match self.text(key, &place, &mut sensitive) {
            Text::Unchanged => return Some(key.to_owned()),
            Text::Value(value) => value,
            Text::Unknown => {
                let unknown = self.counted(self.at.clone());
                self.out.unknown.extend(unknown);
                return None;
            }
        };
        let error = if sensitive.is_empty() {
            match value {
                Value::String(text) => return Some(text),
                value => match scalar(&value) {
                    Some(text) => return Some(text.into_owned()),
                    None => format!("{} cannot be a key", type_name(&value)),
                },
            }
        } else {
            "a sensitive value cannot be a key".to_owned()
        };
        self.fail(place(&self.at), ReferenceError::Unfit(error));
        None
    }

    fn value(&mut self, value: &Value) -> Value {
        match value {
            _ if self.is_over => Value::Null,
            Value::String(text) => {
                let mut sensitive = Vec::new();
                match self.text(text, &FieldPath::clone, &mut sensitive) {
                    Text::Unchanged => value.clone(),
                    Text::Value(value) => {
                        for below in sensitive {
                            let sensitive = self.counted(self.at.concat(&below.0));
                            self.out.sensitive.extend(sensitive);
                        }
                        value
                    }
                    Text::Unknown => {
                        let unknown = self.counted(self.at.clone());
                        self.out.unknown.extend(unknown);
                        Value::Null
                    }
                }
            }
            Value::Array(items) => Value::Array(
                items
                    .iter()
                    .enumerate()
                    .map(|(index, item)| {
                        self.at.0.push(Segment::Index(index));
                        let item = self.value(item);
                        self.at.0.pop();
                        item
                    })
                    .collect(),
            ),
            Value::Object(map) => Value::Object(self.map(map)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// A stored path, within the budget.
    fn counted(&mut self, path: FieldPath) -> Option<FieldPath> {
        match self.budget.take_path(&path) {
            _ if self.is_over => None,
            Ok(()) => Some(path),
            Err(err) => {
                self.stop(path, err);
                None
            }
        }
    }

    /// Keeps what is wrong, and where.
    fn fail(&mut self, place: FieldPath, err: ReferenceError) {
        match (err, self.budget.take_path(&place)) {
            _ if self.is_over => {}
            (ReferenceError::TooLarge(err), _) | (_, Err(err)) => self.stop(place, err),
            (err, Ok(())) => self.errors.push((place, err)),
        }
    }

    fn stop(&mut self, place: FieldPath, err: TooLarge) {
        self.is_over = true;
        self.errors.push((place, err.into()));
    }

    /// Resolves a text at a path. The path is computed only for problems, since most texts are short.
    fn text(&mut self, text: &str, place: &dyn Fn(&FieldPath) -> FieldPath, sensitive: &mut Vec<FieldPath>) -> Text {
        match parse(text, self.known) {
            Ok(None) => Text::Unchanged,
            Ok(Some(Template::Whole(reference))) => match self.whole(&reference) {
                Ok(Some((value, paths))) => {
                    sensitive.extend(paths);
                    Text::Value(value)
                }
                Ok(None) => Text::Unknown,
                Err(err) => {
                    self.fail(place(&self.at), err);
                    Text::Unknown
                }
            },
            Ok(Some(Template::Text(parts))) => {
                let mut out = Some(String::new());
                for part in parts {
                    if self.is_over {
                        return Text::Unknown;
                    }
                    if let Err(err) = self.part(&part, &mut out, sensitive) {
                        self.fail(place(&self.at), err);
                        out = None;
                    }
                }
                out.map_or(Text::Unknown, |text| Text::Value(Value::String(text)))
            }
            Err(err) => {
                self.fail(place(&self.at), err);
                Text::Unknown
            }
        }
    }

    /// The value of a reference, if known, and its sensitive paths.
    fn whole(&mut self, reference: &Reference) -> Result<Option<(Value, Vec<FieldPath>)>, ReferenceError> {
        let Lookup::Known { value, sensitive } = (self.lookup)(reference)? else { return Ok(None) };
        self.budget.take_value(value, self.at.0.len())?;
        Ok(Some((value.clone(), sensitive)))
    }

    /// Puts a part behind a text, as long as all of it is known.
    fn part(
        &mut self,
        part: &Part,
        out: &mut Option<String>,
        sensitive: &mut Vec<FieldPath>,
    ) -> Result<(), ReferenceError> {
        let reference = match part {
            Part::Text(text) => {
                out.iter_mut().for_each(|out| out.push_str(text));
                return Ok(());
            }
            Part::Reference(reference) => reference,
        };
        let Lookup::Known { value, sensitive: paths } = (self.lookup)(reference)? else {
            *out = None;
            return Ok(());
        };
        if !paths.is_empty() {
            *sensitive = vec![FieldPath::default()];
        }
        let unfit = || format!("{reference} is {}, which does not fit inside a string", type_name(value));
        let piece = scalar(value).ok_or_else(|| ReferenceError::Unfit(unfit()))?;
        if let Some(out) = out {
            self.budget.take_text(&piece)?;
            out.push_str(&piece);
        }
        Ok(())
    }
}
