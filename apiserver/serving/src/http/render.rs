//! The form of an answer: objects, tables, or metadata alone.
//!
//! Objects are stored encoded, so that JSON of gets, lists and watches is copied and never parsed.
//! They carry `apiVersion` and `kind` everywhere but in lists, whose own kind says it, as typed Go servers do.

use std::{
    fmt::Write,
    hash::{Hash, Hasher},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use stoa_log::Version;
use stoa_meta::{definition::ResourceDefinition, object::Object, row::Row, status::ApiError};
use stoa_registry::{
    cache::Encoded,
    registry::{List, Stored},
};

use super::{
    body::{self, Pieces},
    negotiate::{self, Accepted, Convert},
    partial,
    query::{IncludeObject, Query},
    table::{self, RowStyle},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Object,
    Partial(&'static str),
    PartialList(&'static str),
    Table(RowStyle),
}

impl Form {
    /// The form that a client asks for; ages are counted to `now`.
    /// Fails with 400 `BadRequest` for a table with an unknown `includeObject`.
    pub(crate) fn of(accepted: Accepted, query: &Query, now: Timestamp) -> Result<Self, ApiError> {
        Ok(match accepted.convert {
            None => Self::Object,
            Some((Convert::Partial, version)) => Self::Partial(version),
            Some((Convert::PartialList, version)) => Self::PartialList(version),
            Some((Convert::Table, version)) => Self::Table(RowStyle { version, include: query.include_object()?, now }),
        })
    }

    /// The form with ages counted to the time that `now` tells.
    pub(crate) fn at(self, now: fn() -> Timestamp) -> Self {
        match self {
            Self::Table(style) => Self::Table(RowStyle { now: now(), ..style }),
            other => other,
        }
    }

    /// Refuses forms that a single object does not have.
    /// Fails with 406 `NotAcceptable`.
    pub(crate) fn check_object(self, definition: &ResourceDefinition) -> Result<(), ApiError> {
        let Self::PartialList(_) = self else { return Ok(()) };
        Err(negotiate::not_acceptable(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
            go_package(definition),
            definition.kind
        )))
    }

    /// Refuses forms that a list does not have.
    /// Fails with 406 `NotAcceptable`.
    pub(crate) fn check_list(self, definition: &ResourceDefinition) -> Result<(), ApiError> {
        let Self::Partial(_) = self else { return Ok(()) };
        Err(negotiate::not_acceptable(format!(
            "you requested PartialObjectMetadata, but the requested object is a list (*{}.{}List)",
            go_package(definition),
            definition.kind
        )))
    }
}

/// The package of a kind's type, as upstream names them: that of a group is called by its first word.
fn go_package(definition: &ResourceDefinition) -> &str {
    match definition.group.split('.').next() {
        None | Some("") => "core",
        Some(word) => word,
    }
}

/// One object in a form. A table's columns are left out without `headers`.
///
/// [`Form::PartialList`] gives the metadata of the object, of which a list has many.
pub(crate) fn write_object(
    out: &mut Vec<u8>,
    definition: &ResourceDefinition,
    form: Form,
    stored: &Stored,
    headers: bool,
) {
    match form {
        Form::Object => stored.encoded().write(out),
        Form::Partial(version) | Form::PartialList(version) => partial::write(out, stored.metadata(), version),
        Form::Table(style) => {
            let row = stored.row(&definition.columns);
            write_table(out, definition, style, stored.version, headers, |out| {
                table::write_row(out, style, row, stored.metadata(), stored.encoded());
            });
        }
    }
}

/// A table of one row.
fn write_table(
    out: &mut Vec<u8>,
    definition: &ResourceDefinition,
    style: RowStyle,
    version: Version,
    headers: bool,
    row: impl FnOnce(&mut Vec<u8>),
) {
    // The outcome of a dry run has no version.
    let metadata = match version {
        Version(0) => "{}".to_owned(),
        version => format!(r#"{{"resourceVersion":"{version}"}}"#),
    };
    table::write_head(out, definition, style, &metadata, headers);
    row(out);
    out.extend_from_slice(table::TAIL.as_bytes());
}

/// What a bookmark says.
pub(crate) struct Bookmark<'a> {
    pub(crate) version: Version,
    /// Whether initial events end here.
    pub(crate) initial_events_end: bool,
    /// What its object has besides the metadata: what any has of which nothing was said, as in Go, where it is of a type.
    pub(crate) zero: &'a Map<String, Value>,
}

/// The object of a bookmark in a form: type and version, the mark that ends initial events, and what its type has anyway.
pub(crate) fn write_bookmark(
    out: &mut Vec<u8>,
    definition: &ResourceDefinition,
    form: Form,
    bookmark: &Bookmark<'_>,
    headers: bool,
) {
    let &Bookmark { version, initial_events_end, zero } = bookmark;
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if initial_events_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let metadata_json = metadata.to_string();
    let mut object = zero.clone();
    object.insert("kind".to_owned(), definition.kind.as_str().into());
    object.insert("apiVersion".to_owned(), definition.api_version().into());
    object.insert("metadata".to_owned(), metadata);
    let object = Object(object);
    let json = stoa_meta::json::text(&object.0);
    match form {
        Form::Object => out.extend_from_slice(json.as_bytes()),
        Form::Partial(version) | Form::PartialList(version) => {
            partial::write(out, metadata_json.as_str().into(), version)
        }
        Form::Table(mut style) => {
            // The mark has to arrive, even in a table that carries no objects.
            if initial_events_end && style.include == IncludeObject::None {
                style.include = IncludeObject::Metadata;
            }
            let row = Row::new(&definition.columns, &object);
            write_table(out, definition, style, version, headers, |out| {
                table::write_row(out, style, &row, metadata_json.as_str().into(), json.as_str().into());
            });
        }
    }
}

/// How many items of a list are looked at before they are copied: as many as the nearest cache has room for.
const AHEAD: usize = 8;

/// A list in a form, to be written item by item.
#[derive(Debug)]
pub(crate) struct RenderedList {
    definition: Arc<ResourceDefinition>,
    form: Form,
    /// How every stored object of the resource begins: keys are sorted.
    type_prefix: Vec<u8>,
    pub(crate) head: Vec<u8>,
    /// The objects, in key order, or in that of the rows of a table.
    pub(crate) items: Vec<Arc<Stored>>,
    pub(crate) tail: &'static str,
}

impl RenderedList {
    pub(crate) fn new(definition: &Arc<ResourceDefinition>, form: Form, mut list: List) -> Self {
        let mut head = Vec::new();
        let metadata = list_metadata(&list);
        let tail = match form {
            Form::Table(style) => {
                table::write_head(&mut head, definition, style, &metadata, true);
                if let Some(order) = definition.row_order {
                    list.items.sort_by(|a, b| a.namespace().cmp(b.namespace()).then_with(|| order(a.name(), b.name())));
                }
                "]}\n"
            }
            Form::Object | Form::Partial(_) | Form::PartialList(_) => {
                let (kind, api_version) = match form {
                    Form::Partial(version) | Form::PartialList(version) => {
                        ("PartialObjectMetadataList".to_owned(), format!("meta.k8s.io/{version}"))
                    }
                    _ => (format!("{}List", definition.kind), definition.api_version()),
                };
                let text = format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{metadata},"items":["#);
                head.extend_from_slice(text.as_bytes());
                "]}\n"
            }
        };
        let tail = if list.items.is_empty() && form != Form::Object {
            // What upstream converts has no list where there is nothing.
            head.pop();
            head.extend_from_slice(b"null");
            "}\n"
        } else {
            tail
        };
        let type_prefix =
            format!(r#"{{"apiVersion":"{}","kind":"{}","#, definition.api_version(), definition.kind).into_bytes();
        Self { definition: Arc::clone(definition), form, type_prefix, head, items: list.items, tail }
    }

    /// Whether it takes more than this many bytes.
    pub(crate) fn is_longer_than(&self, bytes: usize) -> bool {
        let mut length = self.head.len();
        self.items.iter().any(|item| {
            length += self.item_bytes(item);
            length > bytes
        })
    }

    /// About how many bytes an item takes. Does not look at those bytes, which are far from what it looks at.
    pub(crate) fn item_bytes(&self, stored: &Stored) -> usize {
        match self.form {
            Form::Object => stored.encoded().len(),
            Form::Partial(_) | Form::PartialList(_) => stored.metadata().len(),
            Form::Table(style) => {
                let included = match style.include {
                    IncludeObject::None => 0,
                    IncludeObject::Metadata => stored.metadata().len(),
                    IncludeObject::Object => stored.encoded().len(),
                };
                stored.row(&self.definition.columns).text_len() + included
            }
        }
    }

    pub(crate) fn write_item(&self, out: &mut Vec<u8>, stored: &Stored) {
        match self.form {
            Form::Object => {
                out.push(b'{');
                self.without_type(stored).write(out);
            }
            Form::Partial(version) | Form::PartialList(version) => partial::write(out, stored.metadata(), version),
            Form::Table(style) => {
                let row = stored.row(&self.definition.columns);
                table::write_row(out, style, row, stored.metadata(), stored.encoded());
            }
        }
    }

    /// An encoded object from behind its opening brace, without the type that it begins with as all stored objects do.
    fn without_type<'a>(&self, stored: &'a Stored) -> Encoded<'a> {
        stored.encoded().without(&self.type_prefix)
    }

    /// Feeds a hasher with what tells the bytes of an item from those of any other item of the resource, and of the
    /// same item in another form or at another time.
    pub(crate) fn identify_item(&self, hasher: &mut impl Hasher, stored: &Stored) {
        (stored.version.0, stored.key_hash).hash(hasher);
        if let Form::Table(style) = self.form {
            stored.row(&self.definition.columns).ages(style.now).for_each(|age| age.hash(hasher));
        }
    }

    /// What all items have in common, for the same purpose.
    pub(crate) fn identify_form(&self, hasher: &mut impl Hasher) {
        std::mem::discriminant(&self.form).hash(hasher);
        match self.form {
            Form::Object => {}
            Form::Partial(version) | Form::PartialList(version) => version.hash(hasher),
            Form::Table(style) => (style.version, style.include).hash(hasher),
        }
    }

    /// Looks at what [`write_item`](Self::write_item) is going to copy of some items.
    ///
    /// The objects of a list lie anywhere in memory, and a copy of one waits for it. Looks at several of them, none of which
    /// depends on another, wait for all at once.
    fn look_at(&self, items: &[Arc<Stored>]) {
        let lines = |item: &Arc<Stored>| match self.form {
            Form::Object | Form::Table(RowStyle { include: IncludeObject::Object, .. }) => item.encoded().lines(),
            Form::Table(RowStyle { include: IncludeObject::None, .. }) => 0,
            Form::Partial(_) | Form::PartialList(_) | Form::Table(_) => item.metadata().lines(),
        };
        std::hint::black_box(items.iter().map(lines).sum::<u64>());
    }

    /// The whole list as it is written, with commas between the items and a line's end.
    pub(crate) fn pieces(mut self) -> Pieces {
        let mut next = 0;
        Box::new(move |out| {
            out.append(&mut self.head);
            let Some(item) = self.items.get(next) else {
                out.extend_from_slice(self.tail.as_bytes());
                return false;
            };
            if next.is_multiple_of(AHEAD) {
                self.look_at(&self.items[next..self.items.len().min(next + AHEAD)]);
            }
            if next > 0 {
                out.push(b',');
            }
            next += 1;
            self.write_item(out, item);
            true
        })
    }
}

fn list_metadata(list: &List) -> String {
    let mut metadata = format!(r#"{{"resourceVersion":"{}""#, list.version);
    if let Some(token) = &list.continue_token {
        let _ = write!(metadata, r#","continue":{}"#, Value::from(token.as_str()));
    }
    if let Some(remaining) = list.remaining_item_count {
        let _ = write!(metadata, r#","remainingItemCount":{remaining}"#);
    }
    metadata.push('}');
    metadata
}

/// One object in a form, as a whole body.
pub(crate) fn object(definition: &ResourceDefinition, form: Form, stored: &Arc<Stored>) -> Pieces {
    if form == Form::Object {
        return body::once(stored.json());
    }
    let mut out = Vec::new();
    write_object(&mut out, definition, form, stored, true);
    body::once(out)
}
