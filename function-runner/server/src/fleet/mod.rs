//! Kalypso's fleets: the gRPC service `Fleet`.
//!
//! Start at [`FleetService`]. The renderer executes templates in its sandbox (`generate::renderer`). [`propose`] is the work of a
//! source process (`source::job`), which has the cache of the repository.

pub(crate) mod propose;
mod service;

pub(crate) use service::FleetService;
