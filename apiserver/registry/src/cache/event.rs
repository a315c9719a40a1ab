//! The events of a watch, as `k8s.io/apimachinery/pkg/watch` has them.

use std::sync::Arc;

use stoa_log::Version;
use stoa_meta::status::ApiError;

use super::Stored;

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum Event {
    /// The object is new to this watch.
    Added(Arc<Stored>),
    /// The object was changed.
    Modified(Arc<Stored>),
    /// The object is gone, for this watch at least: its last state, with the version of its going.
    Deleted(Arc<Stored>),
    /// Nothing before this version is left to tell.
    Bookmark {
        /// Where a next watch may begin.
        version: Version,
        /// Whether this is the one that ends the initial events, to be annotated with
        /// `k8s.io/initial-events-end`.
        initial_events_end: bool,
    },
    /// The watch failed; nothing comes after this.
    Error(ApiError),
}
