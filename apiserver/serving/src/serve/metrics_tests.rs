use std::{collections::BTreeSet, time::Duration};

use http_body_util::BodyExt;
use stoa_meta::request::UserInfo;
use stoa_registry::metrics::Families;

use super::*;
use crate::serve::metrics::PROCESS_START_TIME;

async fn text(metrics: &Metrics) -> String {
    let bytes =
        metrics.written(&metrics.families.gather(), &HeaderMap::new()).into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new(&Families::default()).unwrap())
}

fn record(metrics: &Arc<Metrics>, method: Method, target: &str) -> Record {
    let uri: http::Uri = target.parse().unwrap();
    let info = RequestInfo::new(&method, &uri);
    let query = Query::parse(uri.query().unwrap_or(""));
    let long_running = info.verb == "watch";
    Record::new(metrics.clone(), &info, &method, &HeaderMap::new(), &query, long_running)
}

#[tokio::test]
async fn a_request_is_counted_with_upstreams_names_and_labels() {
    let metrics = metrics();
    let mut list = record(&metrics, Method::GET, "/apis/g.io/v1/namespaces/a/stacks?dryRun=All");
    list.answered(StatusCode::OK, false);
    list.sent(&[0; 2000]);
    drop(list);
    let text = text(&metrics).await;
    let labels = r#"component="apiserver",dry_run="All",group="g.io",resource="stacks",scope="namespace",subresource="",verb="LIST",version="v1""#;
    let total = format!("apiserver_request_total{{code=\"200\",{labels}}} 1\n");
    assert!(text.contains(&total), "{total}\n{text}");
    assert!(text.contains(&format!("apiserver_request_duration_seconds_count{{{labels}}} 1\n")), "{text}");
    assert!(text.contains("apiserver_response_sizes_sum{") && text.contains("} 2000\n"), "{text}");
    assert!(text.contains("process_resident_memory_bytes "), "{text}");
}

#[tokio::test]
async fn server_latency_excludes_webhooks_and_dry_runs() {
    let metrics = metrics();
    let mut create = record(&metrics, Method::POST, "/apis/g.io/v1/namespaces/a/stacks");
    create.answered(StatusCode::CREATED, false);
    for seconds in [3000, 2000] {
        create.waits.mutating(Duration::from_secs(seconds));
        create.waits.validating(Duration::from_secs(seconds));
    }
    assert_eq!(create.waits.total(), Duration::from_secs(8000));
    drop(create);
    let mut dry = record(&metrics, Method::POST, "/apis/g.io/v1/namespaces/a/stacks?dryRun=All");
    dry.answered(StatusCode::CREATED, false);
    drop(dry);
    let text = text(&metrics).await;
    let labels = r#"component="apiserver",group="g.io",resource="stacks",scope="resource",subresource="",verb="POST",version="v1""#;
    for line in ["count", "sum"].map(|part| format!("apiserver_request_sli_duration_seconds_{part}{{{labels}}} ")) {
        let found = text.lines().find_map(|text| text.strip_prefix(&line)).unwrap_or_else(|| panic!("{line}\n{text}"));
        assert_eq!(found, if line.contains("count") { "1" } else { "0" });
    }
}

#[tokio::test]
async fn paths_that_somebody_makes_up_are_no_series() {
    let metrics = metrics();
    for code in [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN, StatusCode::UNAUTHORIZED] {
        let mut made_up = record(&metrics, Method::GET, "/apis/made.up/v1/things/a");
        made_up.answered(code, false);
    }
    assert!(!text(&metrics).await.contains("made.up"));
    let mut real = record(&metrics, Method::GET, "/apis/g.io/v1/stacks/a");
    real.answered(StatusCode::OK, false);
    drop(real);
    let mut gone = record(&metrics, Method::GET, "/apis/g.io/v1/stacks/b");
    gone.answered(StatusCode::NOT_FOUND, false);
    drop(gone);
    let text = text(&metrics).await;
    assert!(
        text.contains(r#"apiserver_request_total{code="404",component="apiserver",dry_run="",group="g.io""#),
        "{text}"
    );
}

#[tokio::test]
async fn watch_metric_counts_events_across_frames() {
    let metrics = metrics();
    let mut watch = record(&metrics, Method::GET, "/apis/g.io/v1/stacks?watch=1");
    watch.answered(StatusCode::OK, true);
    for frame in ["{\"a\"", ":1}\n{}\n{", "}\n"] {
        watch.sent(frame.as_bytes());
    }
    let running = text(&metrics).await;
    let events = r#"{group="g.io",resource="stacks",version="v1"}"#;
    assert!(running.contains(&format!("apiserver_watch_events_total{events} 3\n")), "{running}");
    assert!(running.contains(&format!("apiserver_watch_events_sizes_sum{events} 14\n")), "{running}");
    assert!(
        running.lines().any(|l| l.starts_with("apiserver_longrunning_requests{") && l.ends_with("} 1")),
        "{running}"
    );
    drop(watch);
    let ended = text(&metrics).await;
    assert!(ended.lines().any(|l| l.starts_with("apiserver_longrunning_requests{") && l.ends_with("} 0")), "{ended}");
}

#[tokio::test]
async fn early_disconnect_counts_as_abort() {
    let metrics = metrics();
    drop(record(&metrics, Method::POST, "/apis/g.io/v1/stacks"));
    let text = text(&metrics).await;
    assert!(text.contains("apiserver_request_aborts_total{"), "{text}");
    assert!(!text.contains("apiserver_request_total{"), "{text}");
}

#[tokio::test]
async fn watch_metric_times_initial_events() {
    let metrics = metrics();
    let target = "/apis/g.io/v1/stacks?watch=1&sendInitialEvents=true&allowWatchBookmarks=true";
    let mut watch = record(&metrics, Method::GET, target);
    watch.answered(StatusCode::OK, true);
    watch.sent(b"{\"type\":\"ADDED\"}\n");
    let lists = |text: &str, count: &str| {
        let labels = r#"{group="g.io",resource="stacks",scope="cluster",version="v1"}"#;
        text.contains(&format!("apiserver_watch_list_duration_seconds_count{labels} {count}\n"))
    };
    let running = text(&metrics).await;
    assert!(lists(&running, "0"), "{running}");
    watch.sent(b"{\"type\":\"BOOKMARK\",\"object\":{}}\n{\"type\":\"BOOKMARK\"}\n");
    let marked = text(&metrics).await;
    assert!(lists(&marked, "1"), "{marked}");
}

#[tokio::test]
async fn field_validation_label_has_few_values() {
    let metrics = metrics();
    for query in ["", "fieldValidation=Strict", "fieldValidation=x", "fieldValidation=Warn&fieldValidation=Warn"] {
        let mut write = record(&metrics, Method::POST, &format!("/apis/g.io/v1/stacks?{query}"));
        write.answered(StatusCode::CREATED, false);
    }
    let text = text(&metrics).await;
    for (value, count) in [("", 1), ("Strict", 1), ("invalid", 2)] {
        let line = format!("field_validation_request_duration_seconds_count{{field_validation=\"{value}\"}} {count}\n");
        assert!(text.contains(&line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn they_are_compressed_for_those_who_would_rather() {
    let metrics = metrics();
    let encodings = [
        ("", false),
        ("gzip", true),
        ("deflate, gzip;q=0.5", true),
        (" gzip ,br", true),
        ("identity;q=0.1, gzip;q=0.2", true),
        ("identity, gzip", false),
        ("gzip;q=0", false),
        ("*", false),
        ("GZIP", false),
        ("zstd", false),
    ];
    for (accepted, expected) in encodings {
        let request = HeaderMap::from_iter([(header::ACCEPT_ENCODING, accepted.parse().unwrap())]);
        let response = metrics.written(&metrics.families.gather(), &request);
        assert_eq!(response.headers().contains_key(header::CONTENT_ENCODING), expected, "{accepted}");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(bytes.starts_with(&[0x1f, 0x8b]), expected, "{accepted}");
    }
    let response = metrics.written(&[], &HeaderMap::new());
    let started = &response.headers()[PROCESS_START_TIME];
    let text = text(&metrics).await;
    let told = text.lines().find_map(|line| line.strip_prefix("process_start_time_seconds ")).unwrap();
    // The header has whole seconds.
    assert_eq!(started.to_str().unwrap(), told.parse::<f64>().unwrap().trunc().to_string());
}

#[tokio::test]
async fn client_that_asks_for_protobuf_gets_text() {
    let metrics = metrics();
    let accepted = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let request = HeaderMap::from_iter([(header::ACCEPT, accepted.parse().unwrap())]);
    let response = metrics.written(&metrics.families.gather(), &request);
    let content_type = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
    assert_eq!(response.headers()[header::CONTENT_TYPE], content_type);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let line = b"\napiserver_tls_handshake_errors_total 0\n";
    assert!(body.windows(line.len()).any(|part| part == line));
}

#[tokio::test]
async fn probes_and_dry_runs_have_the_labels_of_upstream() {
    let metrics = metrics();
    for (method, target, code) in [
        (Method::GET, "/readyz?verbose", StatusCode::OK),
        (Method::GET, "/readyz/ping", StatusCode::OK),
        (Method::POST, "/apis/g.io/v1/stacks?dryRun=x", StatusCode::UNPROCESSABLE_ENTITY),
        (Method::POST, "/apis/g.io/v1/stacks?dryRun=All&dryRun=", StatusCode::UNPROCESSABLE_ENTITY),
        (Method::POST, "/apis/g.io/v1/stacks?dryRun=All&dryRun=All", StatusCode::CREATED),
    ] {
        record(&metrics, method, target).answered(code, false);
    }
    let text = text(&metrics).await;
    let nothing = r#"group="",resource="",scope="""#;
    let stacks = r#"group="g.io",resource="stacks",scope="resource",subresource="",verb="POST",version="v1""#;
    for (labels, count) in [
        (format!(r#"code="200",component="",dry_run="",{nothing},subresource="/readyz",verb="GET",version="""#), 1),
        (format!(r#"code="200",component="apiserver",dry_run="",{nothing},subresource="",verb="GET",version="""#), 1),
        (format!(r#"code="422",component="apiserver",dry_run="invalid",{stacks}"#), 2),
        (format!(r#"code="201",component="apiserver",dry_run="All",{stacks}"#), 1),
    ] {
        let line = format!("apiserver_request_total{{{labels}}} {count}\n");
        assert!(text.contains(&line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn counting_begins_anew_also_where_a_watch_goes_on() {
    let metrics = metrics();
    record(&metrics, Method::GET, "/apis/g.io/v1/stacks").answered(StatusCode::OK, false);
    let mut watch = record(&metrics, Method::GET, "/apis/g.io/v1/stacks?watch=1");
    watch.answered(StatusCode::OK, true);
    watch.sent(b"{}\n{");
    metrics.tls_handshake_errors.inc();
    let before = text(&metrics).await;
    for counted in ["apiserver_request_total{", "apiserver_longrunning_requests{", "apiserver_watch_events_total{"] {
        assert!(before.contains(counted), "{counted}\n{before}");
    }
    metrics.families.reset();
    let after = text(&metrics).await;
    for family in ["apiserver_request_total", "apiserver_longrunning_requests", "apiserver_watch_events_sizes"] {
        assert!(!after.contains(family), "{family}\n{after}");
    }
    assert!(after.contains("apiserver_tls_handshake_errors_total 0\n"), "{after}");
    watch.sent(b"}\n");
    let later = text(&metrics).await;
    let events = r#"{group="g.io",resource="stacks",version="v1"}"#;
    assert!(later.contains(&format!("apiserver_watch_events_total{events} 1\n")), "{later}");
    assert!(later.contains(&format!("apiserver_watch_events_sizes_sum{events} 3\n")), "{later}");
    drop(watch);
    let ended = text(&metrics).await;
    assert!(!ended.contains("apiserver_longrunning_requests{"), "{ended}");
}

#[tokio::test]
async fn sizes_are_those_of_reads_and_of_watches() {
    let metrics = metrics();
    for (method, target) in [(Method::GET, "stacks/a"), (Method::GET, "stacks"), (Method::GET, "stacks?watch=1")] {
        record(&metrics, method, &format!("/apis/g.io/v1/{target}")).answered(StatusCode::OK, false);
    }
    record(&metrics, Method::POST, "/apis/g.io/v1/stacks").answered(StatusCode::CREATED, false);
    let text = text(&metrics).await;
    let verb = |line: &str| {
        let labels = line.strip_prefix("apiserver_response_sizes_count{")?;
        labels.split("verb=\"").nth(1)?.split('"').next().map(str::to_owned)
    };
    let verbs: BTreeSet<_> = text.lines().filter_map(verb).collect();
    assert_eq!(verbs, ["GET", "LIST", "WATCH"].map(str::to_owned).into(), "{text}");
}

#[tokio::test]
async fn users_are_told_apart_as_upstream_tells_them() {
    let metrics = metrics();
    for name in ["kubelet", "ann", "ann@example.com", "system:serviceaccount:shop:web"] {
        let user = UserInfo { name: name.to_owned(), ..UserInfo::default() };
        metrics.authenticated(Ok(&user), Duration::ZERO);
    }
    let text = text(&metrics).await;
    for (name, count) in [("email_id", 1), ("kubelet", 1), ("other", 2)] {
        let line = format!("authenticated_user_requests{{username=\"{name}\"}} {count}\n");
        assert!(text.contains(&line), "{line}\n{text}");
    }
}
