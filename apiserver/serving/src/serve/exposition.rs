//! Metrics in Prometheus' text format 0.0.4, which every scraper takes.
//!
//! Follows `Negotiate` of `github.com/prometheus/common/expfmt`, without protobuf: upstream's handler offers that as well.

use http::{HeaderMap, HeaderValue};
use prometheus::{TextEncoder, proto::MetricFamily};

use crate::{
    document,
    http::negotiate::{self, Clause},
};

/// The names of known ways to escape the names of metrics, each with the content type that says so. No name here needs
/// escaping.
const CONTENT_TYPES: [(&str, HeaderValue); 4] = [
    ("underscores", HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=underscores")),
    ("allow-utf-8", HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8")),
    ("dots", HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=dots")),
    ("values", HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8; escaping=values")),
];

/// The content type of the answer to a request: it repeats the way of escaping that the client prefers.
pub(super) fn content_type(request: &HeaderMap) -> HeaderValue {
    let [(_, mut content_type), ..] = CONTENT_TYPES;
    for clause in negotiate::clauses(document::accept(request)) {
        let asked = clause.param("escaping");
        if let Some((_, known)) = CONTENT_TYPES.into_iter().find(|(name, _)| asked == Some(name)) {
            content_type = known;
        }
        if is_text(&clause) {
            break;
        }
    }
    content_type
}

fn is_text(clause: &Clause<'_>) -> bool {
    clause.names("text", "plain") && clause.param("version").is_none_or(|version| version == "0.0.4")
}

pub(super) fn encode(families: &[MetricFamily]) -> String {
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.get_metric().is_empty()) {
        let written = TextEncoder::new().encode_utf8(std::slice::from_ref(family), &mut text);
        written.expect("a family with a name and a metric can be written");
    }
    text
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;
    use crate::metrics::Families;

    #[test]
    fn text_has_escaped_labels_and_cumulative_buckets() {
        let families = Families::default();
        let counted = families.counters("a_total", "Counts \"a\".".to_owned(), &["l"]).unwrap();
        families.counters("empty_total", "Nothing.".to_owned(), &["l"]).unwrap();
        counted.with_label_values(&["x\n\"y"]).inc();
        families.histogram("b_bytes", "h\\".to_owned(), &[1e3, 1e6]).unwrap().observe(2e6);
        let expected = r#"# HELP a_total Counts "a".
# TYPE a_total counter
a_total{l="x\n\"y"} 1
# HELP b_bytes h\\
# TYPE b_bytes histogram
b_bytes_bucket{le="1000"} 0
b_bytes_bucket{le="1000000"} 0
b_bytes_bucket{le="+Inf"} 1
b_bytes_sum 2000000
b_bytes_count 1
"#;
        assert_eq!(encode(&families.gather()), expected);
        assert_eq!(encode(&[MetricFamily::default()]), "");
    }

    #[test]
    fn answer_repeats_the_escaping_that_the_client_prefers() {
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;\
                        escaping=dots;q=0.6,text/plain;q=0.4";
        for (accepted, escaping) in [
            ("", "underscores"),
            ("text/plain;version=0.0.4;escaping=allow-utf-8", "allow-utf-8"),
            ("text/plain; escaping = dots ", "dots"),
            ("text/plain;escaping=others", "underscores"),
            ("text/html;escaping=values", "values"),
            // Only up to the first that is understood, of which Prometheus names a few.
            ("text/plain,text/html;escaping=values", "underscores"),
            ("text/plain;version=1.0.0,text/html;escaping=values", "values"),
            ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.4", "allow-utf-8"),
            (protobuf, "dots"),
        ] {
            let request = HeaderMap::from_iter([(header::ACCEPT, accepted.parse().unwrap())]);
            let expected = format!("text/plain; version=0.0.4; charset=utf-8; escaping={escaping}");
            assert_eq!(content_type(&request), expected, "{accepted}");
        }
    }
}
