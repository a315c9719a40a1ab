use std::fs;

use clap::Parser;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::auth::{ALWAYS_ALLOWED_PATHS, Metrics};

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    server: RecommendedOptions,
}

fn parse(flags: &[&str]) -> RecommendedOptions {
    let needed = ["server", "--tls-cert-file=tls.crt", "--tls-private-key-file=tls.key"];
    Flags::try_parse_from(needed.iter().chain(flags)).unwrap().server
}

#[test]
fn default_server_listens_everywhere_without_audit() {
    let options = parse(&[]);
    assert_eq!(options.secure_serving.address().to_string(), "0.0.0.0:6443");
    let limits = options.limits();
    assert_eq!((limits.shutdown_delay, limits.reading, limits.mutating), (Duration::ZERO, 400, 200));
    assert!(options.features.profiling && options.audit.open().unwrap().is_none());
}

#[test]
fn flags_say_where_it_listens_and_what_it_serves() {
    let flags = ["--bind-address=::1", "--secure-port=443", "--shutdown-delay-duration=1m7s", "--profiling=false"];
    let options = parse(&flags);
    assert_eq!(options.secure_serving.address().to_string(), "[::1]:443");
    assert_eq!(options.limits().shutdown_delay, Duration::from_secs(67));
    assert!(!options.features.profiling);
    let plugins = parse(&["--disable-admission-plugins=NamespaceLifecycle,ValidatingAdmissionWebhook"]).admission;
    assert_eq!(plugins.disable_admission_plugins, ["NamespaceLifecycle", "ValidatingAdmissionWebhook"]);
}

#[test]
fn flags_set_concurrent_request_limits() {
    let limits = parse(&["--max-requests-inflight=7", "--max-mutating-requests-inflight=3"]).limits();
    assert_eq!((limits.reading, limits.mutating), (7, 3));
    let limits = parse(&["--max-requests-inflight=0", "--max-mutating-requests-inflight=0"]).limits();
    assert_eq!((limits.reading, limits.mutating), (usize::MAX, usize::MAX));
}

#[test]
fn flags_say_how_long_the_cluster_is_believed() {
    let (ten, half, five) = (Duration::from_secs(10), Duration::from_millis(500), Duration::from_secs(300));
    let delegating = parse(&[]).delegating;
    assert_eq!(delegating.authentication_token_webhook_cache_ttl, ten);
    assert_eq!(delegating.authorization_webhook_cache_authorized_ttl, ten);
    assert_eq!(delegating.authorization_webhook_cache_unauthorized_ttl, ten);
    assert_eq!(delegating.authorization_always_allow_paths, ALWAYS_ALLOWED_PATHS);
    let delegating = parse(&[
        "--authentication-token-webhook-cache-ttl=500ms",
        "--authorization-webhook-cache-authorized-ttl=5m0s",
        "--authorization-webhook-cache-unauthorized-ttl=0",
        "--authorization-always-allow-paths=/healthz,/public/*",
    ])
    .delegating;
    assert_eq!(delegating.authentication_token_webhook_cache_ttl, half);
    assert_eq!(delegating.authorization_webhook_cache_authorized_ttl, five);
    assert_eq!(delegating.authorization_webhook_cache_unauthorized_ttl, Duration::ZERO);
    assert_eq!(delegating.authorization_always_allow_paths, ["/healthz", "/public/*"]);
}

#[test]
fn a_duration_without_a_unit_is_refused() {
    let flags = ["server", "--tls-cert-file=a", "--tls-private-key-file=b", "--request-timeout=30"];
    let refused = Flags::try_parse_from(flags).unwrap_err().to_string();
    assert!(refused.contains("--request-timeout") && refused.contains("missing unit in duration \"30\""), "{refused}");
}

#[test]
fn audit_log_requires_usable_policy() {
    let folder = tempfile::tempdir().unwrap();
    let (policy, log) = (folder.path().join("policy.yaml"), folder.path().join("audit.log"));
    let open = |with_policy: bool, with_log: bool| {
        let mut flags = Vec::new();
        flags.extend(with_policy.then(|| format!("--audit-policy-file={}", policy.display())));
        flags.extend(with_log.then(|| format!("--audit-log-path={}", log.display())));
        parse(&flags.iter().map(String::as_str).collect::<Vec<_>>()).audit.open()
    };
    assert!(matches!(open(false, true), Err(OptionsError::NoAuditPolicy)));
    assert!(matches!(open(true, true), Err(OptionsError::AuditPolicy { path, .. }) if path == policy));
    fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]").unwrap();
    assert!(open(true, false).unwrap().is_none());
    assert!(open(true, true).unwrap().is_some() && log.exists());
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    assert!(matches!(open(true, true), Err(OptionsError::AuditLog(_))));
}

#[tokio::test]
async fn a_kubeconfig_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("kubeconfig");
    let options = parse(&[&format!("--authorization-kubeconfig={}", missing.display()), "--kubeconfig=none"]);
    let error = options.delegating.connect(&CancellationToken::new(), &Metrics::default()).await.unwrap_err();
    assert!(matches!(&error, OptionsError::Kubeconfig { path, .. } if path.as_os_str() == "none"), "{error}");
}
