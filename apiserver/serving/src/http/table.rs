//! Tables: what kubectl prints, one row of cells per object.

use jiff::Timestamp;
use serde::Serialize;
use stoa_meta::{
    definition::{Column, ResourceDefinition},
    json,
    row::{self, Row},
};
use stoa_registry::cache::Encoded;

use super::{partial, query::IncludeObject};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowStyle {
    /// The version of group `meta.k8s.io`.
    pub(crate) version: &'static str,
    /// What rows carry beside their cells.
    pub(crate) include: IncludeObject,
    /// What ages are counted to.
    pub(crate) now: Timestamp,
}

/// Appends a table up to its rows. `metadata` is the list's, encoded; without `headers`, the
/// columns are null, as in every event of a watch but the first.
pub(crate) fn write_head(
    out: &mut Vec<u8>,
    definition: &ResourceDefinition,
    style: RowStyle,
    metadata: &str,
    headers: bool,
) {
    let columns = if headers { column_definitions(definition) } else { "null".to_owned() };
    let head = format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/{}","metadata":{metadata},"columnDefinitions":{columns},"rows":["#,
        style.version
    );
    out.extend_from_slice(head.as_bytes());
}

/// What follows a table's rows.
pub(crate) const TAIL: &str = "]}";

/// `metav1.TableColumnDefinition`, in the order of its fields.
#[derive(Serialize)]
struct ColumnDefinition<'a> {
    name: &'a str,
    r#type: &'a str,
    format: &'a str,
    description: &'a str,
    priority: i32,
}

fn column_definitions(definition: &ResourceDefinition) -> String {
    let first = row::name_comes_first(&definition.columns).then(Column::name);
    let all = first.iter().chain(&definition.columns).map(|column| ColumnDefinition {
        name: column.name,
        r#type: column.kind,
        format: column.format,
        description: column.description,
        priority: column.priority,
    });
    json::text(&all.collect::<Vec<_>>())
}

/// Appends a row: its cells, and of the object what the style asks for, of which the metadata and the whole are given
/// encoded.
pub(crate) fn write_row(out: &mut Vec<u8>, style: RowStyle, row: &Row, metadata: Encoded<'_>, json: Encoded<'_>) {
    out.extend_from_slice(br#"{"cells":"#);
    row.write(out, style.now);
    out.extend_from_slice(br#","object":"#);
    match style.include {
        IncludeObject::None => out.extend_from_slice(b"null"),
        IncludeObject::Metadata => partial::write(out, metadata, style.version),
        IncludeObject::Object => json.write(out),
    }
    out.push(b'}');
}
