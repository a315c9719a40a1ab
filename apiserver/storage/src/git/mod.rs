//! The log's authored objects as files in a Git repository, and what people push there as writes.

mod layout;

pub use self::layout::{CommitInfo, Ingest, IngestError, Layout};
