//! The families of metrics of all crates below, compared with upstream's.

use std::collections::BTreeMap;

use stoa_registry::{admission, metrics::Families, registry};

use crate::{
    audit::{Auditor, LogFile, LogOptions, Policy},
    auth::{self, Impersonation},
    serve,
};

/// What upstream says of how stable its families are, of those that this crate has.
const LEVELS: [(&str, &[&str]); 3] = [
    (
        "STABLE",
        &[
            "apiserver_admission_controller_admission_duration_seconds",
            "apiserver_admission_step_admission_duration_seconds",
            "apiserver_admission_webhook_admission_duration_seconds",
            "apiserver_current_inflight_requests",
            "apiserver_longrunning_requests",
            "apiserver_request_duration_seconds",
            "apiserver_request_total",
            "apiserver_response_sizes",
            "apiserver_storage_objects",
        ],
    ),
    (
        "BETA",
        &[
            "apiserver_validating_admission_policy_check_duration_seconds",
            "apiserver_validating_admission_policy_check_total",
            "apiserver_watch_list_duration_seconds",
        ],
    ),
    (
        "ALPHA",
        &[
            "apiserver_admission_match_condition_evaluation_errors_total",
            "apiserver_admission_match_condition_evaluation_seconds",
            "apiserver_admission_match_condition_exclusions_total",
            "apiserver_admission_webhook_fail_open_count",
            "apiserver_admission_webhook_rejection_count",
            "apiserver_admission_webhook_request_total",
            "apiserver_audit_error_total",
            "apiserver_audit_event_total",
            "apiserver_audit_level_total",
            "apiserver_audit_requests_rejected_total",
            "apiserver_cache_list_fetched_objects_total",
            "apiserver_cache_list_returned_objects_total",
            "apiserver_cache_list_total",
            "apiserver_client_certificate_expiration_seconds",
            "apiserver_delegated_authn_request_duration_seconds",
            "apiserver_delegated_authn_request_total",
            "apiserver_delegated_authz_request_duration_seconds",
            "apiserver_delegated_authz_request_total",
            "apiserver_impersonation_attempts_duration_seconds",
            "apiserver_impersonation_attempts_total",
            "apiserver_impersonation_authorization_attempts_duration_seconds",
            "apiserver_impersonation_authorization_attempts_total",
            "apiserver_init_events_total",
            "apiserver_mutating_admission_policy_check_duration_seconds",
            "apiserver_mutating_admission_policy_check_total",
            "apiserver_request_aborts_total",
            "apiserver_request_body_size_bytes",
            "apiserver_request_filter_duration_seconds",
            "apiserver_request_sli_duration_seconds",
            "apiserver_request_terminations_total",
            "apiserver_request_timestamp_comparison_time",
            "apiserver_resource_objects",
            "apiserver_resource_size_estimate_bytes",
            "apiserver_storage_decode_errors_total",
            "apiserver_storage_list_evaluated_objects_total",
            "apiserver_storage_list_fetched_objects_total",
            "apiserver_storage_list_returned_objects_total",
            "apiserver_storage_list_total",
            "apiserver_terminated_watchers_total",
            "apiserver_tls_handshake_errors_total",
            "apiserver_watch_cache_consistent_read_total",
            "apiserver_watch_cache_events_dispatched_total",
            "apiserver_watch_cache_events_received_total",
            "apiserver_watch_cache_initializations_total",
            "apiserver_watch_cache_read_wait_seconds",
            "apiserver_watch_cache_resource_version",
            "apiserver_watch_events_sizes",
            "apiserver_watch_events_total",
            "authenticated_user_requests",
            "authentication_attempts",
            "authentication_duration_seconds",
            "authentication_token_cache_active_fetch_count",
            "authentication_token_cache_fetch_total",
            "authentication_token_cache_request_duration_seconds",
            "authentication_token_cache_request_total",
            "authorization_attempts_total",
            "authorization_duration_seconds",
            "field_validation_request_duration_seconds",
            "watch_cache_capacity",
        ],
    ),
];

/// Those that upstream gives no help.
const WITHOUT_HELP: &str = "authentication_token_cache_";

#[test]
fn families_are_upstreams_and_say_how_stable_they_are() {
    let families = Families::default();
    let folder = tempfile::tempdir().unwrap();
    let log = LogFile::open(LogOptions { path: folder.path().join("audit.log"), ..LogOptions::default() }).unwrap();
    let policy = Policy::parse(b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]").unwrap();
    Auditor::new(policy, log, &families).unwrap();
    admission::Metrics::new(&families).unwrap();
    auth::Metrics::new(&families).unwrap();
    Impersonation::counted(&families).unwrap();
    registry::Metrics::new(&families).unwrap();
    serve::Metrics::new(&families).unwrap();

    let described: BTreeMap<_, _> = families.take_described().into_iter().collect();
    let mut ours: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, help) in &described {
        if name.starts_with("stoa_") {
            continue;
        }
        let (level, text) = help.strip_prefix('[').and_then(|help| help.split_once("] ")).expect(name);
        assert_eq!(text.is_empty(), name.starts_with(WITHOUT_HELP), "{name}: {help}");
        ours.insert(name, level);
    }
    let levels = LEVELS.iter().flat_map(|(level, names)| names.iter().map(move |name| (*name, *level)));
    assert_eq!(ours, levels.collect());
}
