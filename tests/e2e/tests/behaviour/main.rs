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
mod clusters;
mod compliance;
mod control_repository;
mod custom_resources;
mod drift;
mod faults;
mod guide;
mod health;
mod imports;
mod kcl;
mod kinds;
mod notifications;
mod organizations;
mod oss;
mod ownership;
mod permissions;
mod plans;
mod profiles;
mod pull_requests;
mod records;
mod references;
mod releases;
mod rendering;
mod retention;
mod rollouts;
mod secrets;
mod topology;
mod triggers;
mod unanswered;
mod values;
mod workflows;
mod writes;

use std::time::Duration;

/// Longer than anything here takes on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);
