//! Building blocks of controllers, for any kind: work queue, indexes, leader election, leases and Events.
//!
//! Start at [`queue::drive`], the loop of a controller, as `controller-runtime` and client-go's `workqueue` have it.
//!
//! - [`queue`]: objects that are due, one at a time or several, with backoff; [`index`]: objects by an attribute, such as
//!   stacks by project, kept from watches;
//! - [`leader`]: which replica runs the controllers; [`lease`]: a lease of the log, kept while its holder works;
//! - [`events`]: Events of the core group; [`conditions`]: conditions of a status;
//! - [`finalizers`]: writes of an object as it was read; [`object`]: kinds as Rust types and the keys of their objects;
//! - [`probes`]: questions to remote services that may not answer;
//! - [`blocking`], [`memory_budget`]: threads and memory for large documents.
//!
//! This crate knows no kind of Stoa.

pub mod blocking;
pub mod conditions;
pub mod events;
pub mod finalizers;
pub mod index;
pub mod leader;
pub mod lease;
pub mod memory_budget;
pub mod object;
pub mod probes;
pub mod queue;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
