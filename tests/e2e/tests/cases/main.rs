//! Inputs that users of other tools reported, deployed to the test bed's cluster.
//!
//! Each module has the name of a folder in `tests/data/cases`, names the reports, and shows what must hold. The inputs
//! name their own namespaces, so that each case has one test, and each test destroys what it deployed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod harness;

mod admission_prerequisites;
mod adopt_client_side_apply;
mod aggregated_clusterrole;
mod api_version_bump;
mod cluster_scoped_with_namespace;
mod crd_stored_versions;
mod exported_manifest;
mod gitops_yaml_quoting;
mod job_with_ttl;
mod list_kinds;
mod mutating_policy;
mod nulls;
mod prune_when_create_fails;
mod same_port_two_protocols;
mod too_large_for_etcd;
mod watch_list;
mod webhook_configuration_last;
mod yaml_read_as_kubectl;
