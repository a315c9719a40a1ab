//! The Kubernetes API on the wire: everything between a request that has been let in and the
//! store that answers it.
//!
//! What a path means is in [`request_info`]. The filters in front of this (authentication,
//! authorization, limits) call [`response::error`] for what they refuse.

pub mod body;
mod negotiate;
mod partial;
pub(crate) mod query;
pub mod request_info;
pub mod response;
mod table;

pub use body::Body;
pub use request_info::RequestInfo;
