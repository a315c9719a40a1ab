//! The row of an object in a table: its cells, encoded once, without the ages, which change as time goes by.

use std::{fmt, io::Write as _};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    definition::{Cell, Column},
    json,
    object::Object,
};

/// The cells of one object.
#[derive(Clone, Debug)]
pub struct Row {
    /// The cells as a JSON list, with nothing where the ages belong.
    text: Box<str>,
    /// Where the ages belong in `text`, in order, and since when they count.
    ages: Box<[(usize, Timestamp)]>,
}

impl Row {
    /// The cells of an object: its name, unless a column has that, and then the columns.
    pub fn new(columns: &[Column], object: &Object) -> Self {
        let mut text = "[".to_owned();
        let mut ages = Vec::new();
        let name = name_comes_first(columns).then(Column::name);
        for (index, column) in name.iter().chain(columns).enumerate() {
            if index > 0 {
                text.push(',');
            }
            match cell(column, object) {
                Shown::Always(value) => {
                    text.push_str(&json::text(&value));
                }
                Shown::Age(since) => {
                    text.push('"');
                    ages.push((text.len(), since));
                    text.push('"');
                }
            }
        }
        text.push(']');
        Self { text: text.into(), ages: ages.into() }
    }

    /// The number of bytes of the cells without ages.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    /// The ages at `now`, in order.
    pub fn ages(&self, now: Timestamp) -> impl Iterator<Item = Age> {
        self.ages.iter().map(move |(_, since)| Age::of(now.duration_since(*since)))
    }

    /// Appends the cells as a JSON list.
    pub fn write(&self, out: &mut Vec<u8>, now: Timestamp) {
        let mut written = 0;
        for ((at, _), age) in self.ages.iter().zip(self.ages(now)) {
            out.extend_from_slice(&self.text.as_bytes()[written..*at]);
            let _ = write!(out, "{age}");
            written = *at;
        }
        out.extend_from_slice(&self.text.as_bytes()[written..]);
    }
}

/// Whether the name comes before all columns.
pub fn name_comes_first(columns: &[Column]) -> bool {
    !columns.iter().any(|column| matches!(column.cell, Cell::Name))
}

enum Shown {
    Always(Value),
    Age(Timestamp),
}

fn cell(column: &Column, object: &Object) -> Shown {
    Shown::Always(match column.cell {
        Cell::Name => Value::from(object.name()),
        Cell::Compute(compute) => compute(object),
        Cell::Path(path) => match object.get_path(path) {
            None => Value::Null,
            // kubectl prints what is in a cell with Go's %v, which says little about lists and maps.
            Some(value @ (Value::Array(_) | Value::Object(_))) => Value::from(value.to_string()),
            Some(value) => value.clone(),
        },
        Cell::Age(path) => return age_of(object.get_path(path).and_then(Value::as_str)),
        Cell::Since(find) => return age_of(find(object)),
        Cell::JsonPath(path) => match (column.kind, path.first(&object.0)) {
            (_, None | Some(Value::Null)) => Value::Null,
            ("date", Some(Value::String(text))) => return age(text),
            (kind, Some(value)) => of_type(kind, value),
        },
    })
}

/// The time since a timestamp, if there is one.
fn age_of(timestamp: Option<&str>) -> Shown {
    match timestamp {
        None | Some("") => Shown::Always("<unknown>".into()),
        Some(text) => age(text),
    }
}

fn age(timestamp: &str) -> Shown {
    timestamp.parse().map_or_else(|_| Shown::Always("<invalid>".into()), Shown::Age)
}

/// A value as a column of a type shows it: anything as text, everything else only where the type is its own.
///
/// Follows `cellForJSONValue` in `k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor`.
fn of_type(kind: &str, value: &Value) -> Value {
    match (kind, value) {
        ("string", Value::String(_)) | ("boolean", Value::Bool(_)) | ("number", Value::Number(_)) => value.clone(),
        ("string", other) => Value::from(other.to_string()),
        ("integer", Value::Number(number)) => {
            #[expect(clippy::cast_possible_truncation, reason = "Go cuts what is behind the point, too")]
            let cut = || number.as_f64().map(|float| float as i64);
            number.as_i64().or_else(cut).into()
        }
        _ => Value::Null,
    }
}

/// A length of time in two or three digits, such as `5d3h`.
///
/// Follows `HumanDuration` in `k8s.io/apimachinery/pkg/util/duration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Age {
    /// It begins in the future.
    Invalid,
    /// A number of one unit.
    One(i64, char),
    /// A number of one unit and what is left in the next.
    Two(i64, char, i64, char),
}

impl Age {
    fn of(duration: SignedDuration) -> Self {
        let seconds = duration.as_secs();
        let (minutes, hours) = (seconds / 60, seconds / 3600);
        let (days, years) = (hours / 24, hours / 24 / 365);
        let with_rest = |whole: i64, unit: char, rest: i64, rest_unit: char| {
            if rest == 0 { Self::One(whole, unit) } else { Self::Two(whole, unit, rest, rest_unit) }
        };
        match () {
            // Clocks that differ by a second are forgiven.
            () if seconds < -1 => Self::Invalid,
            () if seconds < 0 => Self::One(0, 's'),
            () if seconds < 120 => Self::One(seconds, 's'),
            () if minutes < 10 => with_rest(minutes, 'm', seconds % 60, 's'),
            () if minutes < 180 => Self::One(minutes, 'm'),
            () if hours < 8 => with_rest(hours, 'h', minutes % 60, 'm'),
            () if hours < 48 => Self::One(hours, 'h'),
            () if hours < 24 * 8 => with_rest(days, 'd', hours % 24, 'h'),
            () if hours < 24 * 365 * 2 => Self::One(days, 'd'),
            () if hours < 24 * 365 * 8 => with_rest(years, 'y', days % 365, 'd'),
            () => Self::One(years, 'y'),
        }
    }
}

impl fmt::Display for Age {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid => f.write_str("<invalid>"),
            Self::One(whole, unit) => write!(f, "{whole}{unit}"),
            Self::Two(whole, unit, rest, rest_unit) => write!(f, "{whole}{unit}{rest}{rest_unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::json_path::JsonPath;

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
            assert_eq!(Age::of(SignedDuration::from_secs(seconds)).to_string(), expected, "{seconds}");
        }
    }

    #[test]
    fn columns_of_custom_resources_show_values_of_their_type() {
        let spec =
            json!({"text": "a", "whole": 3, "float": 2.5, "yes": true, "list": ["a"], "at": "2026-01-01T00:00:00Z"});
        let object = Object(json!({"metadata": {"name": "web"}, "spec": spec}).as_object().unwrap().clone());
        let shown = |kind: &'static str, field: &str| {
            let path = Box::leak(Box::new(JsonPath::parse(&format!(".spec.{field}")).unwrap()));
            let row = Row::new(&[Column::new("Any", Cell::JsonPath(path), "").kind(kind)], &object);
            let mut out = Vec::new();
            row.write(&mut out, "2026-01-01T00:05:00Z".parse().unwrap());
            serde_json::from_slice::<Value>(&out).unwrap()[1].take()
        };
        for (kind, expected) in [
            ("string", [json!("a"), json!("3"), json!("2.5"), json!("true"), json!("[\"a\"]"), json!(null)]),
            ("integer", [json!(null), json!(3), json!(2), json!(null), json!(null), json!(null)]),
            ("number", [json!(null), json!(3), json!(2.5), json!(null), json!(null), json!(null)]),
            ("boolean", [json!(null), json!(null), json!(null), json!(true), json!(null), json!(null)]),
            ("date", [json!("<invalid>"), json!(null), json!(null), json!(null), json!(null), json!(null)]),
        ] {
            let fields = ["text", "whole", "float", "yes", "list", "none"];
            assert_eq!(fields.map(|field| shown(kind, field)), expected, "{kind}");
        }
        assert_eq!(shown("date", "at"), json!("5m"));
    }

    #[test]
    fn cells_show_what_is_there() {
        let object = Object(
            json!({"metadata": {"name": "web"}, "spec": {"n": 3, "list": ["a"], "at": "2026-01-01T00:00:00Z", "bad": "yesterday"}})
                .as_object()
                .unwrap()
                .clone(),
        );
        let now = "2026-01-01T00:05:00Z".parse().unwrap();
        let cells = [
            Cell::Path(&["spec", "n"]),
            Cell::Path(&["spec", "list"]),
            Cell::Path(&["spec", "none"]),
            Cell::Age(&["spec", "at"]),
            Cell::Age(&["spec", "bad"]),
            Cell::Age(&["spec", "none"]),
            Cell::Since(|object| object.get_path(&["spec", "at"])?.as_str()),
            Cell::Since(|_| None),
            Cell::Compute(|_| json!(true)),
        ];
        let row = Row::new(&cells.map(|cell| Column::new("Any", cell, "")), &object);
        let mut out = Vec::new();
        row.write(&mut out, now);
        let expected = json!(["web", 3, "[\"a\"]", null, "5m", "<invalid>", "<unknown>", "5m", "<unknown>", true]);
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), expected);
        assert_eq!(out.len(), row.text_len() + 2 * "5m".len());
    }

    #[test]
    fn name_is_where_its_column_is() {
        let object = Object(json!({"metadata": {"name": "web"}}).as_object().unwrap().clone());
        let row = Row::new(&[Column::new("Any", Cell::Compute(|_| json!(1)), ""), Column::name().wide()], &object);
        let mut out = Vec::new();
        row.write(&mut out, "2026-01-01T00:05:00Z".parse().unwrap());
        assert_eq!(out, br#"[1,"web"]"#);
    }
}
