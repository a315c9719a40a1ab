//! Tables: what kubectl prints, one row of cells per object.
//!
//! Ages are what `k8s.io/apimachinery/pkg/util/duration.HumanDuration` makes of them.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{partial, query::IncludeObject};
use crate::{
    definition::{Cell, ResourceDefinition},
    object::Object,
};

/// What upstream says of the first column of every table.
const NAME_DESCRIPTION: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// How rows are written.
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
    let columns = if headers { column_definitions(definition) } else { Value::Null };
    let head = format!(
        r#"{{"kind":"Table","apiVersion":"meta.k8s.io/{}","metadata":{metadata},"columnDefinitions":{columns},"rows":["#,
        style.version
    );
    out.extend_from_slice(head.as_bytes());
}

/// What follows a table's rows.
pub(crate) const TAIL: &str = "]}";

fn column_definitions(definition: &ResourceDefinition) -> Value {
    let name =
        json!({"name": "Name", "type": "string", "format": "name", "description": NAME_DESCRIPTION, "priority": 0});
    let others = definition.columns.iter().map(|column| {
        json!({
            "name": column.name,
            "type": column.kind,
            "format": "",
            "description": column.description,
            "priority": column.priority,
        })
    });
    Value::Array(std::iter::once(name).chain(others).collect())
}

/// Appends the row of an object, given parsed and encoded.
pub(crate) fn write_row(
    out: &mut Vec<u8>,
    definition: &ResourceDefinition,
    style: RowStyle,
    object: &Object,
    json: &[u8],
) {
    let name = Value::from(object.name());
    let others = definition.columns.iter().map(|column| cell(column.cell, object, style.now));
    let cells = Value::Array(std::iter::once(name).chain(others).collect());
    out.extend_from_slice(format!(r#"{{"cells":{cells},"object":"#).as_bytes());
    match style.include {
        IncludeObject::None => out.extend_from_slice(b"null"),
        IncludeObject::Metadata => partial::write(out, json, style.version),
        IncludeObject::Object => out.extend_from_slice(json),
    }
    out.push(b'}');
}

fn cell(cell: Cell, object: &Object, now: Timestamp) -> Value {
    match cell {
        Cell::Compute(compute) => compute(object),
        Cell::Path(path) => match object.get_path(path) {
            None => Value::Null,
            // kubectl prints what is in a cell with Go's %v, which says little about lists and maps.
            Some(value @ (Value::Array(_) | Value::Object(_))) => Value::from(value.to_string()),
            Some(value) => value.clone(),
        },
        Cell::Age(path) => Value::from(match object.get_path(path).and_then(Value::as_str) {
            None | Some("") => "<unknown>".to_owned(),
            Some(text) => match text.parse::<Timestamp>() {
                Ok(since) => human_duration(now.duration_since(since)),
                Err(_) => "<invalid>".to_owned(),
            },
        }),
    }
}

/// A length of time in two or three digits, such as `5d3h`.
fn human_duration(duration: SignedDuration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let with_rest = |whole: i64, unit: &str, rest: i64, rest_unit: &str| {
        if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{rest_unit}") }
    };
    match () {
        // Clocks that differ by a second are forgiven.
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => with_rest(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => with_rest(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => with_rest(days, "d", hours % 24, "h"),
        () if hours < 24 * 365 * 2 => format!("{days}d"),
        () if hours < 24 * 365 * 8 => with_rest(years, "y", days % 365, "d"),
        () => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_kubectl_prints_them() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (9 * MINUTE + 59, "9m59s"),
            (10 * MINUTE + 30, "10m"),
            (179 * MINUTE, "179m"),
            (180 * MINUTE, "3h"),
            (7 * HOUR + 59 * MINUTE, "7h59m"),
            (8 * HOUR + 30 * MINUTE, "8h"),
            (47 * HOUR, "47h"),
            (48 * HOUR, "2d"),
            (5 * DAY + 3 * HOUR, "5d3h"),
            (8 * DAY + 3 * HOUR, "8d"),
            (729 * DAY, "729d"),
            (730 * DAY, "2y"),
            (731 * DAY, "2y1d"),
            (8 * 365 * DAY + DAY, "8y"),
        ] {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), expected, "{seconds}");
        }
    }

    #[test]
    fn cells_show_what_is_there() {
        let object = Object(
            json!({"spec": {"n": 3, "list": ["a"], "at": "2026-01-01T00:00:00Z", "bad": "yesterday"}})
                .as_object()
                .unwrap()
                .clone(),
        );
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        let show = |c| cell(c, &object, now);
        assert_eq!(show(Cell::Path(&["spec", "n"])), json!(3));
        assert_eq!(show(Cell::Path(&["spec", "list"])), json!("[\"a\"]"));
        assert_eq!(show(Cell::Path(&["spec", "none"])), Value::Null);
        assert_eq!(show(Cell::Age(&["spec", "at"])), json!("5m"));
        assert_eq!(show(Cell::Age(&["spec", "bad"])), json!("<invalid>"));
        assert_eq!(show(Cell::Age(&["spec", "none"])), json!("<unknown>"));
        assert_eq!(show(Cell::Compute(|_| json!(true))), json!(true));
    }
}
