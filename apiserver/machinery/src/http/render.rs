//! The form of what is answered: objects as they are, tables, or metadata alone.
//!
//! Objects are stored encoded, so that JSON of gets, lists and watches is copied and never parsed.
//! They carry `apiVersion` and `kind` wherever they are, in lists too: typed Go servers leave both
//! out of items, but those who read these kinds (kube-rs, client-go's dynamic client) know them from
//! custom resources, whose items have them.

use std::{fmt::Write, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    body::{self, Pieces},
    negotiate::{self, Accepted, Convert},
    partial,
    query::{IncludeObject, Query},
    table::{self, RowStyle},
};
use crate::{
    definition::ResourceDefinition,
    log::Version,
    object::Object,
    registry::{List, Stored},
    status::ApiError,
};

/// A form to answer in; the texts are versions of group `meta.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects themselves.
    Object,
    /// `PartialObjectMetadata`.
    Partial(&'static str),
    /// `PartialObjectMetadataList`.
    PartialList(&'static str),
    /// `Table`.
    Table(RowStyle),
}

impl Form {
    /// The form that a client asks for; ages are counted to `now`.
    ///
    /// # Errors
    ///
    /// 400 `BadRequest` for a table with an unknown `includeObject`.
    pub(crate) fn of(accepted: Accepted, query: &Query, now: Timestamp) -> Result<Self, ApiError> {
        Ok(match accepted.convert {
            None => Self::Object,
            Some((Convert::Partial, version)) => Self::Partial(version),
            Some((Convert::PartialList, version)) => Self::PartialList(version),
            Some((Convert::Table, version)) => Self::Table(RowStyle { version, include: query.include_object()?, now }),
        })
    }

    /// Refuses forms that a single object does not have.
    ///
    /// # Errors
    ///
    /// 406 `NotAcceptable`.
    pub(crate) fn check_object(self, definition: &ResourceDefinition) -> Result<(), ApiError> {
        let Self::PartialList(_) = self else { return Ok(()) };
        Err(negotiate::not_acceptable(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
            definition.version, definition.kind
        )))
    }

    /// Refuses forms that a list does not have.
    ///
    /// # Errors
    ///
    /// 406 `NotAcceptable`.
    pub(crate) fn check_list(self, definition: &ResourceDefinition) -> Result<(), ApiError> {
        let Self::Partial(_) = self else { return Ok(()) };
        Err(negotiate::not_acceptable(format!(
            "you requested PartialObjectMetadata, but the requested object is a list (*{}.{}List)",
            definition.version, definition.kind
        )))
    }
}

/// One object in a form. A table's columns are left out without `headers`.
///
/// [`Form::PartialList`] gives the metadata of the object, which is what watches of lists send.
pub(crate) fn write_object(
    out: &mut Vec<u8>,
    definition: &ResourceDefinition,
    form: Form,
    stored: &Stored,
    headers: bool,
) {
    match form {
        Form::Object => out.extend_from_slice(&stored.json),
        Form::Partial(version) | Form::PartialList(version) => partial::write(out, &stored.json, version),
        Form::Table(style) => {
            write_table(out, definition, style, stored.version, &stored.object(), &stored.json, headers);
        }
    }
}

fn write_table(
    out: &mut Vec<u8>,
    definition: &ResourceDefinition,
    style: RowStyle,
    version: Version,
    object: &Object,
    json: &[u8],
    headers: bool,
) {
    // The outcome of a dry run has no version.
    let metadata = match version {
        Version(0) => "{}".to_owned(),
        version => format!(r#"{{"resourceVersion":"{version}"}}"#),
    };
    table::write_head(out, definition, style, &metadata, headers);
    table::write_row(out, definition, style, object, json);
    out.extend_from_slice(table::TAIL.as_bytes());
}

/// The object of a bookmark in a form: type and version, and the mark that ends initial events.
pub(crate) fn write_bookmark(
    out: &mut Vec<u8>,
    definition: &ResourceDefinition,
    form: Form,
    version: Version,
    initial_events_end: bool,
    headers: bool,
) {
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if initial_events_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    let value = json!({"kind": definition.kind, "apiVersion": definition.api_version(), "metadata": metadata});
    let json = value.to_string();
    match form {
        Form::Object => out.extend_from_slice(json.as_bytes()),
        Form::Partial(version) | Form::PartialList(version) => partial::write(out, json.as_bytes(), version),
        Form::Table(mut style) => {
            // The mark has to arrive, even in a table that carries no objects.
            if initial_events_end && style.include == IncludeObject::None {
                style.include = IncludeObject::Metadata;
            }
            let Value::Object(map) = value else { unreachable!("made as an object above") };
            write_table(out, definition, style, version, &Object(map), json.as_bytes(), headers);
        }
    }
}

/// A list in a form, written item by item.
pub(crate) fn list(definition: &Arc<ResourceDefinition>, form: Form, list: List) -> Pieces {
    let mut head = Vec::new();
    let metadata = list_metadata(&list);
    let tail = match form {
        Form::Table(style) => {
            table::write_head(&mut head, definition, style, &metadata, true);
            table::TAIL
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
            "]}"
        }
    };
    let definition = Arc::clone(definition);
    items(head, list.items, tail, move |out, stored| match form {
        Form::Object => out.extend_from_slice(&stored.json),
        Form::Partial(version) | Form::PartialList(version) => partial::write(out, &stored.json, version),
        Form::Table(style) => table::write_row(out, &definition, style, &stored.object(), &stored.json),
    })
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

/// `head`, then the items with commas between them, then `tail` and a line's end.
fn items(
    head: Vec<u8>,
    items: Vec<Arc<Stored>>,
    tail: &'static str,
    write: impl Fn(&mut Vec<u8>, &Stored) + Send + 'static,
) -> Pieces {
    let mut head = Some(head);
    let mut first = true;
    let mut items = items.into_iter();
    Box::new(move |out| {
        if let Some(head) = head.take() {
            out.extend_from_slice(&head);
        }
        let Some(item) = items.next() else {
            out.extend_from_slice(tail.as_bytes());
            out.push(b'\n');
            return false;
        };
        if !std::mem::replace(&mut first, false) {
            out.push(b',');
        }
        write(out, &item);
        true
    })
}

/// One object in a form, as a whole body.
pub(crate) fn object(definition: &ResourceDefinition, form: Form, stored: &Arc<Stored>) -> Pieces {
    if form == Form::Object {
        return body::once(stored.json.clone());
    }
    let mut out = Vec::new();
    write_object(&mut out, definition, form, stored, true);
    body::once(out)
}
