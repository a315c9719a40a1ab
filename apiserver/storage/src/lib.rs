//! Keeps what Stoa must not lose: the log on local files or on etcd, its projection into Git, documents.
//!
//! * [`local`] implements [`stoa_machinery::Log`] on append-only segment files.
//! * [`etcd`] implements it on an etcd cluster, for many replicas.
//! * [`git`] writes the log into a repository that people read, and reads what they push there.
//! * [`documents`] keeps large, immutable bodies by their digest.
//!
//! This crate knows keys, versions and bytes, and no kind of object: what a file in Git means is
//! told to it through [`git::Layout`] and [`git::Ingest`].

pub mod clock;
pub mod documents;
pub mod etcd;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod git;
pub mod local;

pub use clock::{Clock, SystemClock};
pub use documents::{Digest, DocumentStore};
pub use etcd::EtcdLog;
pub use local::LocalLog;
