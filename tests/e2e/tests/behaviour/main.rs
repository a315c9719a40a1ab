//! What users rely on, one behaviour per test, against both forms of the server.
//!
//! Each test works in an organization of its own, so that all of them run side by side.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod admission;
mod applies;
mod approvals;
mod artifacts;
mod audit;
mod backends;
mod bad_input;
mod bundles;
mod clusters;
mod compliance;
mod control_repository;
mod custom_resources;
mod drift;
mod faults;
mod fleet;
mod fleet_journeys;
mod guide;
mod health;
mod hooks;
mod hub;
mod imports;
mod kcl;
mod kinds;
mod modules;
mod notifications;
mod organizations;
mod oss;
mod ownership;
mod package_access;
mod package_functions;
mod package_lifecycle;
mod package_operations;
mod package_registries;
mod package_repositories;
mod package_scale;
mod package_stacks;
mod package_upstreams;
mod package_variants;
mod permissions;
mod plans;
mod porchctl;
mod profiles;
mod promotions;
mod pull_requests;
mod records;
mod references;
mod releases;
mod rendering;
mod retention;
mod rollouts;
mod schedulers;
mod secrets;
mod signatures;
mod sops;
mod topology;
mod triggers;
mod unanswered;
mod values;
mod workflows;
mod working_copies;
mod writes;

use std::time::Duration;

/// Longer than anything here takes on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);
