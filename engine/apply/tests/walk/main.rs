//! Tests of plans and walks against the in-memory runtime.

#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

mod call_leases;
mod changed_ids;
mod custom_resources;
mod deferred;
mod deletions;
mod drift;
mod failures;
mod fixtures;
mod foreign_contents;
mod health;
mod hooks;
mod ignored_fields;
mod import;
mod missing_namespaces;
mod moves;
mod order;
mod ownership;
mod permits;
mod planning;
mod provider_failures;
mod providers;
mod providers_in_git;
mod records;
mod recovery;
mod references;
mod replacements;
mod resumption;
mod stalled_reads;
mod terminating;
mod validation;
