//! The table columns of Events: the time comes first, the name last.
//!
//! Follows `printEvent` in `k8s.io/kubernetes/pkg/printers/internalversion/printers.go`.

use serde_json::Value;
use stoa_machinery::{
    definition::{Cell, Column},
    object::Object,
};

pub(super) const ALL: [Column; 10] = [
    Column::new("Last Seen", Cell::Since(last_seen), "The time of the last occurrence."),
    Column::new("Type", Cell::Path(&["type"]), "Normal or Warning."),
    Column::new("Reason", Cell::Path(&["reason"]), "The reason, in one word."),
    Column::new("Object", Cell::Compute(involved), "The object of the event."),
    Column::new("Subobject", Cell::Compute(part), "The part of the object.").wide(),
    Column::new("Source", Cell::Compute(source), "The reporter of the event.").wide(),
    Column::new("Message", Cell::Compute(message), "The message."),
    Column::new("First Seen", Cell::Since(first_seen), "The time of the first occurrence.").wide(),
    Column::new("Count", Cell::Compute(count), "The number of occurrences.").wide(),
    Column::name().wide(),
];

/// A text, or the empty one.
fn text<'a>(object: &'a Object, path: &[&str]) -> &'a str {
    object.get_path(path).and_then(Value::as_str).unwrap_or_default()
}

/// The first of the texts that is not empty.
fn first_of<'a>(object: &'a Object, paths: &[&[&str]]) -> Option<&'a str> {
    paths.iter().map(|path| text(object, path)).find(|text| !text.is_empty())
}

fn series(object: &Object) -> Option<&Value> {
    object.get_path(&["series"]).filter(|series| series.is_object())
}

fn last_seen(object: &Object) -> Option<&str> {
    match series(object) {
        Some(series) => series["lastObservedTime"].as_str(),
        None => first_of(object, &[&["lastTimestamp"]]).or_else(|| first_seen(object)),
    }
}

fn first_seen(object: &Object) -> Option<&str> {
    first_of(object, &[&["firstTimestamp"], &["eventTime"]])
}

fn count(object: &Object) -> Value {
    let times = match series(object) {
        Some(series) => series["count"].as_i64().unwrap_or_default(),
        None => object.get_path(&["count"]).and_then(Value::as_i64).filter(|count| *count != 0).unwrap_or(1),
    };
    times.into()
}

fn involved(object: &Object) -> Value {
    let kind = text(object, &["involvedObject", "kind"]).to_lowercase();
    match text(object, &["involvedObject", "name"]) {
        "" => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

fn part(object: &Object) -> Value {
    text(object, &["involvedObject", "fieldPath"]).into()
}

fn source(object: &Object) -> Value {
    let component = first_of(object, &[&["source", "component"], &["reportingComponent"]]).unwrap_or_default();
    match first_of(object, &[&["source", "host"], &["reportingInstance"]]) {
        None => component.into(),
        Some(instance) => format!("{component}, {instance}").into(),
    }
}

fn message(object: &Object) -> Value {
    text(object, &["message"]).trim().into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is shown of an Event, with times as they are written.
    fn shown(event: Value) -> Vec<Value> {
        let Value::Object(event) = event else { unreachable!("a map") };
        let object = Object(event);
        let cell = |column: &Column| match column.cell {
            Cell::Name => object.name().into(),
            Cell::Path(path) => object.get_path(path).cloned().unwrap_or_default(),
            Cell::Since(find) => find(&object).into(),
            Cell::Compute(compute) => compute(&object),
            Cell::Age(_) | Cell::JsonPath(_) => unreachable!("there is none"),
        };
        ALL.iter().map(cell).collect()
    }

    #[test]
    fn columns_are_those_of_kube_apiserver() {
        let headings = |is_wide: bool| -> Vec<&str> {
            ALL.iter().filter(|column| is_wide || column.priority == 0).map(|column| column.name).collect()
        };
        assert_eq!(headings(false), ["Last Seen", "Type", "Reason", "Object", "Message"]);
        let wide =
            ["Last Seen", "Type", "Reason", "Object", "Subobject", "Source", "Message", "First Seen", "Count", "Name"];
        assert_eq!(headings(true), wide);
    }

    #[test]
    fn event_columns_show_time_and_count() {
        let old = json!({
            "metadata": {"name": "web.1"}, "type": "Normal", "reason": "Applied", "message": " it is there\n",
            "involvedObject": {"kind": "Stack", "name": "web", "fieldPath": "spec"}, "source": {"component": "stoa"},
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:05:00Z", "count": 3,
        });
        let expected = json!([
            "2026-01-01T00:05:00Z",
            "Normal",
            "Applied",
            "stack/web",
            "spec",
            "stoa",
            "it is there",
            "2026-01-01T00:00:00Z",
            3,
            "web.1",
        ]);
        assert_eq!(Value::from(shown(old)), expected);
        let new = json!({
            "metadata": {"name": "web.2"}, "type": "Warning", "reason": "Failed", "message": "no",
            "involvedObject": {"kind": "Stack"}, "reportingComponent": "stoa", "reportingInstance": "a",
            "firstTimestamp": null, "lastTimestamp": null, "eventTime": "2026-01-01T00:00:00.000000Z",
        });
        let mut repeated = new.clone();
        repeated["series"] = json!({"count": 5, "lastObservedTime": "2026-01-01T00:07:00.000000Z"});
        let of_new = |last: &str, count: i64| {
            let first = "2026-01-01T00:00:00.000000Z";
            json!([last, "Warning", "Failed", "stack", "", "stoa, a", "no", first, count, "web.2"])
        };
        assert_eq!(Value::from(shown(new)), of_new("2026-01-01T00:00:00.000000Z", 1));
        assert_eq!(Value::from(shown(repeated)), of_new("2026-01-01T00:07:00.000000Z", 5));
        assert_eq!(shown(json!({}))[0], Value::Null, "nobody knows when");
    }
}
