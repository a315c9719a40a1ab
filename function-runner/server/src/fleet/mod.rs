//! Kalypso's fleets: commits of their files.
//!
//! [`propose`] is the work of a source process (`source::job`), which has the cache of the repository. `service::fleet` is the gRPC
//! service. The renderer executes templates in its sandbox (`generate::renderer`).

pub(crate) mod propose;
