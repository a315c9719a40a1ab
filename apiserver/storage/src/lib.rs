//! Durable storage: the log on local files or on etcd, and documents.
//!
//! * [`local`] implements [`stoa_machinery::Log`] on append-only segment files.
//! * [`etcd`] implements it on an etcd cluster, for many replicas.
//! * [`documents`] stores large, immutable bodies by their digest.
//!
//! This crate knows keys, versions and bytes, and no kind of object. Elsewhere: `stoa-control-repo` writes the log into a Git
//! repository.

pub mod clock;
pub mod documents;
pub mod etcd;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod local;

pub use clock::{Clock, SystemClock};
pub use documents::{Digest, DocumentStore};
pub use etcd::EtcdLog;
pub use local::LocalLog;
