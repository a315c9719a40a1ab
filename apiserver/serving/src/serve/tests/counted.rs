//! What `/metrics` says of requests to a server behind a fake of a cluster, and what a reset makes of it.

use stoa_log::MemoryLog;
use stoa_meta::definition::ResourceDefinition;
use stoa_registry::strategy::DefaultStrategy;

use super::{
    extension::{NETS, Net, flags, net},
    fake_cluster::FakeCluster,
    *,
};
use crate::extension::ExtensionServer;

const OF_NETS: &str = r#"group="fleet.example.com",resource="nets""#;

/// The metrics as a client reads them.
struct MetricsText(String);

impl MetricsText {
    async fn to(client: &mut Client) -> Self {
        Self(client.get("/metrics").await.text)
    }

    /// The value of a series, if it is told.
    fn value(&self, series: &str) -> Option<f64> {
        let of = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
        self.0.lines().find_map(of)
    }

    fn check(&self, wanted: &[(&str, Option<f64>)]) {
        for (series, value) in wanted {
            let series = series.replace("NETS", OF_NETS);
            assert_eq!(self.value(&series), *value, "{series}\n{}", self.0);
        }
    }
}

#[tokio::test]
async fn metrics_count_requests_before_and_after_reset() {
    let cluster = FakeCluster::start(|spec| spec["user"] != "bob").await;
    cluster.state.tokens.lock().insert("secret".to_owned(), json!({"username": "ann@example.com"}));
    let (folder, cas) = (tempfile::tempdir().unwrap(), Cas::new());
    let trusted = [("client-ca-file".to_owned(), cas.client.certificate_pem().to_owned())];
    cluster.state.set_config_map(trusted.into());
    let extension = ExtensionServer::connect(&flags(folder.path(), &cas, &cluster)).await.unwrap();
    let registry = extension
        .registry(Arc::new(MemoryLog::new()))
        .register(ResourceDefinition::of::<Net>(), DefaultStrategy::<Net>::default())
        .build()
        .await
        .unwrap();
    let api = registry.api::<Net>();
    for name in ["seine", "trawl"] {
        api.create(&net(name, 40)).await.unwrap();
    }
    for mesh in [50, 50] {
        let mut trawl = api.get("shop", "trawl").await.unwrap();
        trawl.spec.mesh = mesh;
        api.replace(&trawl).await.unwrap();
    }

    let running = Running::of(extension.builder(&registry).bind().await.unwrap(), &cas, Arc::default());
    let mut nobody = running.connect(Identity::Nobody).await;
    for (token, code) in [("secret", 200), ("secret", 200), ("wrong", 401)] {
        let answer = nobody.get_with(NETS, &[("Authorization", &format!("Bearer {token}"))]).await;
        assert_eq!(answer.code, code, "{answer:?}");
    }
    let (eve, bob) = (cas.client("eve"), cas.client("bob"));
    let mut client = running.connect(Identity::Certificate(&eve)).await;
    let as_ann = [("Impersonate-User", "ann")];
    assert_eq!(client.get(&format!("{NETS}?limit=1")).await.json()["items"].as_array().unwrap().len(), 1);
    assert_eq!(client.get_with(NETS, &as_ann).await.code, StatusCode::OK);
    let mut others = running.connect(Identity::Certificate(&bob)).await;
    assert_eq!(others.get_with(NETS, &as_ann).await.code, StatusCode::FORBIDDEN);
    let watch = "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    let watched = client.get(&format!("{NETS}?{watch}&allowWatchBookmarks=true")).await;
    assert_eq!(watched.text.matches(r#""type":"ADDED""#).count(), 2, "{watched:?}");
    let deleted = read(client.send(Method::DELETE, &format!("{NETS}/seine"), &[]).await.unwrap()).await;
    assert_eq!(deleted.code, StatusCode::OK, "{deleted:?}");

    let told = MetricsText::to(&mut client).await;
    told.check(&[
        // Whose the tokens are, and what everybody may do.
        (r#"apiserver_delegated_authn_request_total{code="200"}"#, Some(2.0)),
        (r#"apiserver_delegated_authn_request_duration_seconds_count{code="200"}"#, Some(2.0)),
        (r#"authentication_token_cache_request_total{status="hit"}"#, Some(1.0)),
        (r#"authentication_token_cache_request_total{status="miss"}"#, Some(2.0)),
        (r#"authentication_token_cache_request_duration_seconds_count{status="miss"}"#, Some(2.0)),
        (r#"authentication_token_cache_fetch_total{status="ok"}"#, Some(1.0)),
        (r#"authentication_token_cache_fetch_total{status="error"}"#, Some(1.0)),
        (r#"authentication_token_cache_active_fetch_count{status="in_flight"}"#, Some(0.0)),
        (r#"authentication_token_cache_active_fetch_count{status="blocked"}"#, Some(0.0)),
        (r#"authenticated_user_requests{username="email_id"}"#, Some(2.0)),
        (r#"apiserver_client_certificate_expiration_seconds_count"#, Some(6.0)),
        (r#"apiserver_impersonation_attempts_total{decision="allowed",mode="user-info"}"#, Some(1.0)),
        (r#"apiserver_impersonation_attempts_total{decision="denied",mode=""}"#, Some(1.0)),
        (r#"apiserver_impersonation_authorization_attempts_total{decision="denied",mode="legacy"}"#, Some(1.0)),
        // What is kept.
        (r#"apiserver_resource_objects{NETS}"#, Some(1.0)),
        (r#"apiserver_storage_objects{resource="nets.fleet.example.com"}"#, Some(1.0)),
        (r#"apiserver_watch_cache_resource_version{NETS}"#, Some(4.0)),
        (r#"watch_cache_capacity{NETS}"#, Some(10_000.0)),
        (r#"apiserver_watch_cache_initializations_total{NETS}"#, Some(1.0)),
        (r#"apiserver_storage_list_total{NETS}"#, Some(1.0)),
        (r#"apiserver_storage_list_returned_objects_total{NETS}"#, Some(0.0)),
        (r#"apiserver_storage_decode_errors_total{NETS}"#, Some(0.0)),
        (r#"apiserver_watch_cache_events_received_total{NETS}"#, Some(4.0)),
        (r#"apiserver_watch_cache_events_dispatched_total{NETS}"#, Some(4.0)),
        // What is read and changed.
        (r#"apiserver_cache_list_total{group="fleet.example.com",index="",resource="nets"}"#, Some(4.0)),
        (r#"apiserver_cache_list_fetched_objects_total{group="fleet.example.com",index="",resource="nets"}"#, Some(8.0)),
        (r#"apiserver_cache_list_returned_objects_total{NETS}"#, Some(7.0)),
        (
            r#"apiserver_watch_cache_consistent_read_total{fallback="false",group="fleet.example.com",resource="nets",success="true"}"#,
            Some(4.0),
        ),
        (r#"apiserver_init_events_total{NETS}"#, Some(2.0)),
        (r#"apiserver_terminated_watchers_total{NETS}"#, Some(0.0)),
        (r#"apiserver_request_body_size_bytes_count{NETS,verb="delete"}"#, Some(1.0)),
        (r#"apiserver_request_timestamp_comparison_time_count{code_path="equal_objects"}"#, Some(1.0)),
        // Among those that got through is this request.
        (r#"apiserver_request_filter_duration_seconds_count{filter="authentication"}"#, Some(9.0)),
        (r#"apiserver_request_filter_duration_seconds_count{filter="audit"}"#, Some(8.0)),
        (r#"apiserver_request_filter_duration_seconds_count{filter="constrainedimpersonation"}"#, Some(7.0)),
        (r#"apiserver_request_filter_duration_seconds_count{filter="authorization"}"#, Some(7.0)),
        (r#"apiserver_current_inflight_requests{request_kind="mutating"}"#, Some(1.0)),
    ]);
    let size = told.value(&format!("apiserver_resource_size_estimate_bytes{{{OF_NETS}}}")).unwrap();
    assert!((100.0..1000.0).contains(&size), "one net takes {size} bytes");
    let waits = told.value(&format!("apiserver_watch_cache_read_wait_seconds_count{{{OF_NETS}}}")).unwrap();
    assert!(waits >= 5.0, "four lists and a watch waited {waits} times");

    let reset = read(client.send(Method::DELETE, "/metrics", &[]).await.unwrap()).await;
    assert_eq!(reset.text, "metrics reset\n");
    assert_eq!(client.get(NETS).await.code, StatusCode::OK);
    MetricsText::to(&mut client).await.check(&[
        (r#"apiserver_delegated_authn_request_total{code="200"}"#, None),
        (r#"authentication_token_cache_request_total{status="hit"}"#, None),
        (r#"apiserver_impersonation_attempts_total{decision="allowed",mode="user-info"}"#, None),
        (r#"apiserver_request_body_size_bytes_count{NETS,verb="delete"}"#, None),
        (r#"apiserver_cache_list_total{group="fleet.example.com",index="",resource="nets"}"#, Some(1.0)),
        (r#"apiserver_cache_list_returned_objects_total{NETS}"#, Some(1.0)),
        (r#"apiserver_watch_cache_events_received_total{NETS}"#, Some(0.0)),
        (r#"apiserver_watch_cache_read_wait_seconds_count{NETS}"#, Some(1.0)),
        (r#"apiserver_request_filter_duration_seconds_count{filter="authorization"}"#, Some(2.0)),
        (r#"apiserver_resource_objects{NETS}"#, Some(1.0)),
        (r#"apiserver_audit_requests_rejected_total"#, Some(0.0)),
        // What has no labels goes on.
        (r#"apiserver_client_certificate_expiration_seconds_count"#, Some(9.0)),
    ]);
    running.end().await;
}
