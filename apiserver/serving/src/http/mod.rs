//! The Kubernetes API on the wire: everything between a request that has been let in and the
//! [`Store`](stoa_registry::registry::Store) that answers it.
//!
//! Start at [`ApiHandler::handle`]. What a path means is in [`request_info`], where it leads in
//! `router`, and what is done there in `reads` and `writes`. The filters in front of this
//! (authentication, authorization, limits) call [`response::error`] for what they refuse.

pub mod body;
pub(crate) mod configuration;
pub(crate) mod encoding;
pub(crate) mod negotiate;
mod partial;
pub(crate) mod query;
mod reads;
mod render;
pub mod request_info;
pub mod response;
mod router;
pub(crate) mod segments;
mod subresource;
mod table;
#[cfg(test)]
mod tests;
mod watch;
pub(crate) mod websocket;
mod writes;

pub use body::Body;
pub use request_info::RequestInfo;
pub use router::ApiHandler;
pub use subresource::SubresourceCallExt;
