//! The resources of an API server over one log, as Go's generic registry has them.
//!
//! Start at [`registry::Registry`]. A [`registry::Store`] serves one resource: it reads from the watch [`cache`] and writes to
//! the log, by the rules of the kind's [`strategy::Strategy`] and of [`admission`]. Follows
//! `k8s.io/apiserver/pkg/registry`, `pkg/storage/cacher` and `pkg/admission`.
//!
//! Elsewhere: `stoa-log` is the log, `stoa-meta` has the types, `stoa-admission` has the plugins that a cluster configures,
//! and `stoa-serving` puts a registry on the wire. [`metrics`] and [`stream_timers`] are here because this is the lowest
//! crate that counts and that has streams.
//!
//! **Invariant:** this crate knows no HTTP, no TLS and no client of a cluster.

pub mod admission;
pub mod cache;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod metrics;
pub mod registry;
pub mod strategy;
pub mod stream_timers;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
