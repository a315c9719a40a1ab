//! What was counted as who reads it wants it: Prometheus' text, or protobuf.
//!
//! Follows `Negotiate`, `NewEncoder` and `MetricFamilyToText` of `github.com/prometheus/common/expfmt`. OpenMetrics is not
//! among the formats, as upstream's handler does not offer it.

use http::{HeaderMap, HeaderValue};
use prometheus::proto::{Metric, MetricFamily, MetricType};
use stoa_cel::go::text::shortest;

use crate::{
    document,
    http::negotiate::{self, Clause},
};

mod protobuf;

/// The ways to escape names of metrics that are known.
const ESCAPINGS: [&str; 4] = ["allow-utf-8", "underscores", "dots", "values"];

/// How metrics are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// Prometheus' text.
    Text,
    /// Messages of protobuf, each after its length.
    Delimited,
    /// Messages of protobuf as text, a line for each field.
    Lines,
    /// Messages of protobuf as text, a line for each.
    Compact,
}

impl Encoding {
    const OF_PROTOBUF: [Self; 3] = [Self::Delimited, Self::Lines, Self::Compact];

    /// What a clause of an `Accept` header asks for, if it is one of them.
    fn of(clause: &Clause<'_>) -> Option<Self> {
        if clause.names("text", "plain") && clause.param("version").is_none_or(|version| version == "0.0.4") {
            return Some(Self::Text);
        }
        let of_protobuf = clause.names("application", "vnd.google.protobuf")
            && clause.param("proto") == Some("io.prometheus.client.MetricFamily");
        let asked = clause.param("encoding").filter(|_| of_protobuf);
        Self::OF_PROTOBUF.into_iter().find(|encoding| asked == Some(encoding.name()))
    }

    /// What protobuf's are called.
    fn name(self) -> &'static str {
        match self {
            Self::Text => "",
            Self::Delimited => "delimited",
            Self::Lines => "text",
            Self::Compact => "compact-text",
        }
    }
}

/// How metrics are written, and what is said of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    encoding: Encoding,
    /// How names are escaped. No name here needs that, so that all ways come to the same.
    escaping: &'static str,
}

impl Format {
    /// What a client asks for.
    pub(super) fn wanted(request: &HeaderMap) -> Self {
        let mut escaping = "underscores";
        for clause in negotiate::clauses(document::accept(request)) {
            let asked = clause.param("escaping");
            escaping = ESCAPINGS.into_iter().find(|known| asked == Some(*known)).unwrap_or(escaping);
            if let Some(encoding) = Encoding::of(&clause) {
                return Self { encoding, escaping };
            }
        }
        Self { encoding: Encoding::Text, escaping }
    }

    pub(super) fn content_type(self) -> HeaderValue {
        let Self { encoding, escaping } = self;
        let text = match encoding {
            Encoding::Text => format!("text/plain; version=0.0.4; charset=utf-8; escaping={escaping}"),
            Encoding::Delimited | Encoding::Lines | Encoding::Compact => format!(
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding={}; \
                 escaping={escaping}",
                encoding.name()
            ),
        };
        HeaderValue::try_from(text).expect("its parts are ASCII")
    }

    pub(super) fn encode(self, families: &[MetricFamily]) -> Vec<u8> {
        match self.encoding {
            Encoding::Text => {
                let mut out = String::new();
                families.iter().for_each(|family| write_family(&mut out, family));
                out.into_bytes()
            }
            Encoding::Delimited => protobuf::delimited(families),
            Encoding::Lines => protobuf::text(families, protobuf::Layout::Lines).into_bytes(),
            Encoding::Compact => protobuf::text(families, protobuf::Layout::Compact).into_bytes(),
        }
    }
}

fn write_family(out: &mut String, family: &MetricFamily) {
    let (name, kind) = (family.name(), family.get_field_type());
    out.extend(["# HELP ", name, " "]);
    escape(out, family.help(), false);
    out.extend(["\n# TYPE ", name, " ", &type_name(kind).to_lowercase(), "\n"]);
    for metric in family.get_metric() {
        let mut sample = |suffix, bound, value| write_sample(out, (name, suffix), metric, bound, value);
        match kind {
            MetricType::COUNTER => sample("", None, metric.get_counter().get_value()),
            MetricType::GAUGE => sample("", None, metric.get_gauge().get_value()),
            MetricType::SUMMARY => {
                let summary = metric.get_summary();
                for quantile in summary.get_quantile() {
                    sample("", Some(("quantile", quantile.quantile())), quantile.value());
                }
                sample("_sum", None, summary.sample_sum());
                sample("_count", None, summary.sample_count() as f64);
            }
            MetricType::HISTOGRAM => {
                let histogram = metric.get_histogram();
                let count = histogram.get_sample_count() as f64;
                for bucket in histogram.get_bucket() {
                    sample("_bucket", Some(("le", bucket.upper_bound())), bucket.cumulative_count() as f64);
                }
                sample("_bucket", Some(("le", f64::INFINITY)), count);
                sample("_sum", None, histogram.get_sample_sum());
                sample("_count", None, count);
            }
            // Nothing is counted in one.
            MetricType::UNTYPED => {}
        }
    }
}

/// What protobuf calls a type of metrics; text has it in small letters.
fn type_name(kind: MetricType) -> &'static str {
    match kind {
        MetricType::COUNTER => "COUNTER",
        MetricType::GAUGE => "GAUGE",
        MetricType::SUMMARY => "SUMMARY",
        MetricType::UNTYPED => "UNTYPED",
        MetricType::HISTOGRAM => "HISTOGRAM",
    }
}

/// A line: a metric's labels, one more, and a value.
fn write_sample(
    out: &mut String,
    (name, suffix): (&str, &str),
    metric: &Metric,
    bound: Option<(&str, f64)>,
    value: f64,
) {
    out.extend([name, suffix]);
    let mut separator = "{";
    for label in metric.get_label() {
        out.extend([separator, label.name(), "=\""]);
        escape(out, label.value(), true);
        out.push('"');
        separator = ",";
    }
    if let Some((label, bound)) = bound {
        out.extend([separator, label, "=\"", &number(bound), "\""]);
        separator = ",";
    }
    if separator == "," {
        out.push('}');
    }
    out.extend([" ", &number(value), "\n"]);
}

fn number(value: f64) -> String {
    // Also of less than nothing.
    if value == 0.0 { "0".to_owned() } else { shortest(value) }
}

fn escape(out: &mut String, text: &str, quoted: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quoted => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;
    use crate::metrics::Families;

    fn written(encoding: Encoding, families: &Families) -> Vec<u8> {
        Format { encoding, escaping: "dots" }.encode(&families.gather())
    }

    fn text(encoding: Encoding, families: &Families) -> String {
        String::from_utf8(written(encoding, families)).unwrap()
    }

    /// A counter with a label.
    fn counter() -> Families {
        let families = Families::default();
        let counted = families.counters("a_total", "Counts \"a\".".to_owned(), &["l"]).unwrap();
        counted.with_label_values(&["x\n\"y"]).inc();
        families
    }

    /// A histogram without labels, of one large value.
    fn histogram() -> Families {
        let families = Families::default();
        families.histogram("b_bytes", "h\\".to_owned(), &[1e3, 1e6]).unwrap().observe(2e6);
        families
    }

    #[test]
    fn text_is_as_go_writes_it() {
        let expected = "# HELP a_total Counts \"a\".\n# TYPE a_total counter\na_total{l=\"x\\n\\\"y\"} 1\n";
        assert_eq!(text(Encoding::Text, &counter()), expected);
        let expected = r#"# HELP b_bytes h\\
# TYPE b_bytes histogram
b_bytes_bucket{le="1000"} 0
b_bytes_bucket{le="1e+06"} 0
b_bytes_bucket{le="+Inf"} 1
b_bytes_sum 2e+06
b_bytes_count 1
"#;
        assert_eq!(text(Encoding::Text, &histogram()), expected);
    }

    #[test]
    fn messages_stand_behind_their_lengths() {
        let mut expected = b"\x30\x0a\x07a_total\x12\x0bCounts \"a\".\x18\x00\x22\x16".to_vec();
        expected.extend(b"\x0a\x09\x0a\x01l\x12\x04x\n\"y\x1a\x09\x09");
        expected.extend(1_f64.to_le_bytes());
        assert_eq!(written(Encoding::Delimited, &counter()), expected);
    }

    #[test]
    fn messages_are_told_as_text() {
        let expected = "name:\"a_total\" help:\"Counts \\\"a\\\".\" type:COUNTER \
                        metric:{label:{name:\"l\" value:\"x\\n\\\"y\"} counter:{value:1}}\n";
        assert_eq!(text(Encoding::Compact, &counter()), expected);
        let expected = r#"name: "b_bytes"
help: "h\\"
type: HISTOGRAM
metric: {
  histogram: {
    sample_count: 1
    sample_sum: 2e+06
    bucket: {
      cumulative_count: 0
      upper_bound: 1000
    }
    bucket: {
      cumulative_count: 0
      upper_bound: 1e+06
    }
  }
}

"#;
        assert_eq!(text(Encoding::Lines, &histogram()), expected);
    }

    #[test]
    fn client_gets_the_format_and_the_escaping_that_it_asks_for() {
        let protobuf = |encoding: &str| {
            let media = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily";
            format!("{media};encoding={encoding};escaping=dots;q=0.6,text/plain;escaping=values;q=0.4")
        };
        let [delimited, lines, compact, other] = ["delimited", "text", "compact-text", "other"].map(protobuf);
        for (accepted, encoding, escaping) in [
            ("", Encoding::Text, "underscores"),
            ("text/plain;version=0.0.4;escaping=allow-utf-8", Encoding::Text, "allow-utf-8"),
            ("text/plain; escaping = dots ", Encoding::Text, "dots"),
            ("text/plain;escaping=others", Encoding::Text, "underscores"),
            ("text/html;escaping=values", Encoding::Text, "values"),
            // Only up to the first that is understood, of which Prometheus names a few.
            ("text/plain,text/html;escaping=values", Encoding::Text, "underscores"),
            ("text/plain;version=1.0.0,text/html;escaping=values", Encoding::Text, "values"),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.4",
                Encoding::Text,
                "allow-utf-8",
            ),
            ("application/vnd.google.protobuf;encoding=delimited", Encoding::Text, "underscores"),
            (delimited.as_str(), Encoding::Delimited, "dots"),
            (lines.as_str(), Encoding::Lines, "dots"),
            (compact.as_str(), Encoding::Compact, "dots"),
            (other.as_str(), Encoding::Text, "values"),
        ] {
            let request = HeaderMap::from_iter([(header::ACCEPT, accepted.parse().unwrap())]);
            assert_eq!(Format::wanted(&request), Format { encoding, escaping }, "{accepted}");
        }
        for (encoding, content_type) in [
            (Encoding::Text, "text/plain; version=0.0.4; charset=utf-8; escaping=dots"),
            (
                Encoding::Compact,
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=compact-text; \
                 escaping=dots",
            ),
        ] {
            assert_eq!(Format { encoding, escaping: "dots" }.content_type(), content_type);
        }
    }
}
