//! The log's authored objects as files in a Git repository, and what people push there as writes.
//!
//! Start at [`GitProjector`]. What belongs in Git and where is told by [`Layout`], and pushed files
//! are applied through [`Ingest`]; both are the server's.
//!
//! The repository is bare, with everything on `main`. Each accepted write of an authored object becomes a
//! commit there, soon after the write and never in its way. Commits that others put on main, by a push
//! or otherwise, are applied as writes once, and projection goes on top of them. Elsewhere:
//! `session` goes from one failure to the next, and `retry` says how long to wait between, `project` turns records into commits,
//! `history` keeps what was authored at every version, `push` applies what was pushed and `waiting` what could not be applied at
//! once, `progress` is what survives a crash, and `invalid` the part of it about refused files, `sync` and `remote` keep to a
//! remote of record, `text` edits files. The others are Git: `repository`, which `kept` keeps open, with `draft` and `reader`, `trees`, `walk`, `blame` and
//! `fan_out`; `objects`, `packs`, `pack_file`, `pack_index` and `delta` write what is new; `repack` and `merge` keep that in few packs; `locks` keeps others out.
//!
//! With a remote of record main is the remote's, and the repository here a copy of it that may be lost.

mod blame;
mod delta;
mod draft;
mod fan_out;
mod history;
mod ids;
mod invalid;
mod kept;
mod layout;
mod locks;
mod merge;
mod objects;
mod pack_file;
mod pack_index;
mod packs;
mod past;
mod progress;
mod project;
mod projector;
mod push;
mod reader;
mod recorded;
mod remote;
mod repack;
mod repository;
mod retry;
mod session;
mod sync;
mod trees;
mod waiting;
mod walk;

use stoa_machinery::log::LogError;

pub use self::{
    invalid::InvalidFile,
    layout::{CommitInfo, Document, Ingest, IngestError, Layout, LayoutError, Location, PushedFile},
    past::GitHistory,
    progress::recorded_version,
    projector::{GitOptions, GitProjector, GitStatus},
    recorded::GitRecord,
    remote::{RemoteError, RemoteOptions},
    walk::Excess,
};

/// Why the projection stopped. It tries again by itself; see [`GitStatus::error`].
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The log failed.
    #[error("the log cannot be projected to Git")]
    Log(#[from] LogError),
    /// The repository failed.
    #[error("the control repository cannot be used")]
    Repository(#[from] git2::Error),
    /// The remote of record cannot be used for now.
    #[error("the remote of the control repository cannot be used")]
    Remote(#[from] RemoteError),
    /// Somebody else moves main of the repository, or holds its lock, whenever it is to be moved from here.
    #[error("main of the control repository is moved by somebody else, or locked, each time that it is to be moved")]
    Raced,
    /// What was pushed cannot be applied for now.
    #[error("what was pushed to the control repository is not applied yet")]
    Ingest(#[from] IngestError),
    /// The record of how far it got does not read back.
    #[error("the record of what is in Git does not decode")]
    Progress {
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A later version of this program wrote the record of how far it got, in a shape that is not known here. It is left as
    /// it is.
    #[error(
        "the record of what is in Git has schemaVersion {found}, and {known} is the newest known here: run the version of \
         Stoa that wrote it, or a later one"
    )]
    Newer {
        /// The version that it has.
        found: u64,
        /// The newest known here.
        known: u32,
    },
    /// There is more in a commit than is looked at.
    #[error("commit {commit} of the control repository has more than is looked at: {excess}")]
    TooMuch {
        /// Its id.
        commit: String,
        /// What is too much.
        excess: Excess,
    },
    /// A thread that worked on the repository ended without an answer.
    #[error("work on the control repository was interrupted")]
    Interrupted(#[from] tokio::task::JoinError),
}
