//! The history of deployments: transitions of reconcilers, their columnar segments, and tables that are computed from them.
//!
//! Start at [`Transition`]. [`segment`] writes transitions to files in the format Parquet and reads them; [`tables`] computes
//! histories and rollouts from transitions. All of it is pure: bytes and values in, bytes and values out.
//!
//! Elsewhere: `stoa-apiserver` receives the reports, stores the segments and answers queries.

pub mod segment;
pub mod tables;

pub use tables::Collector;

use std::sync::Arc;

/// A change of the commit or the status of a reconciler. The order is that of the rows of a segment: by host, reconciler, time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Transition {
    /// The host, such as a cluster.
    pub host: Arc<str>,
    /// The name of the Reconciler.
    pub reconciler: Arc<str>,
    /// The time by the clock of the host, in microseconds since the Unix epoch.
    pub time: i64,
    /// The endpoint of the manifests.
    pub endpoint: Arc<str>,
    /// The commit of the manifests.
    pub commit: Arc<str>,
    /// The status: in_progress, success or failure.
    pub status: Arc<str>,
    /// The message of the reconciler; may be empty.
    pub message: Arc<str>,
}

impl Transition {
    /// The bytes of the texts.
    fn text_bytes(&self) -> usize {
        let Self { host, reconciler, time: _, endpoint, commit, status, message } = self;
        [host, reconciler, endpoint, commit, status, message].into_iter().map(|text| text.len()).sum()
    }
}
