//! Metrics in protobuf, as bytes and as text.
//!
//! Fields are numbered and named as in `io/prometheus/client/metrics.proto` of `github.com/prometheus/client_model`. When something
//! was first counted is not known here, and left out. Of the text, blanks aside, `encoding/prototext` of
//! `google.golang.org/protobuf` writes the same; how many those are it leaves open.

use prometheus::proto::{Metric, MetricFamily, MetricType};
use stoa_cel::go::text::shortest;

use super::type_name;
use crate::protobuf::Message;

/// A field of a message.
struct Field<'a> {
    number: u64,
    name: &'static str,
    value: Value<'a>,
}

enum Value<'a> {
    Text(&'a str),
    Number(f64),
    Count(u64),
    /// One of several, by its number and its name.
    Choice(u64, &'static str),
    Message(Fields<'a>),
}

/// A message: its fields in the order of their numbers.
type Fields<'a> = Vec<Field<'a>>;

/// How text is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A line for each field.
    Lines,
    /// A line for each message.
    Compact,
}

/// Each message after its length.
pub(super) fn delimited(families: &[MetricFamily]) -> Vec<u8> {
    let mut out = Message::default();
    for family in families {
        out.delimited(&encoded(&fields_of(family)).0);
    }
    out.0
}

/// Messages as text, each with a line's end behind it.
pub(super) fn text(families: &[MetricFamily], layout: Layout) -> String {
    let mut out = String::new();
    for family in families {
        write(&mut out, &fields_of(family), layout, 0);
        out.push('\n');
    }
    out
}

fn field<'a>(number: u64, name: &'static str, value: Value<'a>) -> Field<'a> {
    Field { number, name, value }
}

fn fields_of(family: &MetricFamily) -> Fields<'_> {
    let kind = family.get_field_type();
    let number = match kind {
        MetricType::COUNTER => 0,
        MetricType::GAUGE => 1,
        MetricType::SUMMARY => 2,
        MetricType::UNTYPED => 3,
        MetricType::HISTOGRAM => 4,
    };
    let mut fields = vec![
        field(1, "name", Value::Text(family.name())),
        field(2, "help", Value::Text(family.help())),
        field(3, "type", Value::Choice(number, type_name(kind))),
    ];
    let metrics = family.get_metric().iter();
    fields.extend(metrics.map(|metric| field(4, "metric", Value::Message(fields_of_metric(kind, metric)))));
    fields
}

fn fields_of_metric(kind: MetricType, metric: &Metric) -> Fields<'_> {
    let labels = metric.get_label().iter().map(|label| {
        let pair = vec![field(1, "name", Value::Text(label.name())), field(2, "value", Value::Text(label.value()))];
        field(1, "label", Value::Message(pair))
    });
    let mut fields: Fields<'_> = labels.collect();
    let one = |value| vec![field(1, "value", Value::Number(value))];
    let (number, name, value) = match kind {
        MetricType::GAUGE => (2, "gauge", one(metric.get_gauge().get_value())),
        MetricType::COUNTER => (3, "counter", one(metric.get_counter().get_value())),
        MetricType::SUMMARY => {
            let summary = metric.get_summary();
            let mut value = vec![
                field(1, "sample_count", Value::Count(summary.sample_count())),
                field(2, "sample_sum", Value::Number(summary.sample_sum())),
            ];
            value.extend(summary.get_quantile().iter().map(|quantile| {
                let told = vec![
                    field(1, "quantile", Value::Number(quantile.quantile())),
                    field(2, "value", Value::Number(quantile.value())),
                ];
                field(3, "quantile", Value::Message(told))
            }));
            (4, "summary", value)
        }
        // Nothing is counted in one.
        MetricType::UNTYPED => (5, "untyped", Vec::new()),
        MetricType::HISTOGRAM => {
            let histogram = metric.get_histogram();
            let mut value = vec![
                field(1, "sample_count", Value::Count(histogram.get_sample_count())),
                field(2, "sample_sum", Value::Number(histogram.get_sample_sum())),
            ];
            value.extend(histogram.get_bucket().iter().map(|bucket| {
                let told = vec![
                    field(1, "cumulative_count", Value::Count(bucket.cumulative_count())),
                    field(2, "upper_bound", Value::Number(bucket.upper_bound())),
                ];
                field(3, "bucket", Value::Message(told))
            }));
            (7, "histogram", value)
        }
    };
    fields.push(field(number, name, Value::Message(value)));
    fields
}

fn encoded(fields: &[Field<'_>]) -> Message {
    let mut message = Message::default();
    for Field { number, name: _, value } in fields {
        match value {
            Value::Text(text) => message.bytes(*number, text.as_bytes()),
            Value::Number(value) => message.number(*number, *value),
            Value::Count(value) | Value::Choice(value, _) => message.count(*number, *value),
            Value::Message(fields) => message.message(*number, encoded(fields)),
        }
    }
    message
}

fn write(out: &mut String, fields: &[Field<'_>], layout: Layout, depth: usize) {
    let in_lines = layout == Layout::Lines;
    let indent = |out: &mut String| (0..depth).for_each(|_| out.push_str("  "));
    for (place, Field { number: _, name, value }) in fields.iter().enumerate() {
        if in_lines {
            indent(out);
        } else if place > 0 {
            out.push(' ');
        }
        out.extend([*name, if in_lines { ": " } else { ":" }]);
        match value {
            Value::Text(text) => quote(out, text),
            Value::Number(value) => out.push_str(&written(*value)),
            Value::Count(value) => out.push_str(&value.to_string()),
            Value::Choice(_, name) => out.push_str(name),
            Value::Message(fields) => {
                out.push_str(if in_lines { "{\n" } else { "{" });
                write(out, fields, layout, depth + 1);
                if in_lines {
                    indent(out);
                }
                out.push('}');
            }
        }
        if in_lines {
            out.push('\n');
        }
    }
}

fn written(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    shortest(value)
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\x1f' | '\x7f' => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            '\u{80}'..='\u{9f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_text_cannot_hold_is_escaped() {
        let mut out = String::new();
        quote(&mut out, "\u{1}\t\u{7f}\u{85}\u{e9}");
        assert_eq!(out, "\"\\x01\\t\\x7f\\u0085\u{e9}\"");
    }

    #[test]
    fn numbers_without_an_end_have_names() {
        let told = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e-9, 2.5].map(written);
        assert_eq!(told, ["nan", "inf", "-inf", "1e-09", "2.5"]);
    }
}
