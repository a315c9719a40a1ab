//! The control repository: authored objects of the log as files in Git, and pushed files as writes.
//!
//! Start at [`GitProjector`]. The server gives the list of kinds as [`GitPath`] values, which [`KindLayout`] lays out, and applies
//! pushed files through [`Ingest`]. This crate knows no kind.
//!
//! The repository is bare, and `main` has all files. Each write of an authored object becomes a commit soon after the write, and
//! no write waits for it. Commits of others on main are applied as writes once, and the projection goes on top of them. With a
//! remote of record main is the remote's, and the repository here is a copy that may be lost.
//!
//! | modules | subject |
//! |---|---|
//! | `projector`, `session`, `retry` | the loop: from one failure to the next |
//! | `project`, `commit_builder` | records to commits |
//! | `history`, `past` | every version of the authored objects |
//! | `push`, `blocked`, `invalid` | pushed files to writes |
//! | `progress`, `projection_state` | the state that survives a crash |
//! | `sync`, `remote` | a remote of record |
//! | `layout`, `kind_layout`, `object_file`, `complaint`, `changed_fields` | objects as files |
//! | `repository`, `repo_pool`, `reader`, `trees`, `walk`, `blame`, `fan_out`, `locks` | Git: reading, refs and trees |
//! | `objects`, `packs`, `pack_file`, `pack_index`, `delta`, `repack`, `merge` | Git: writing objects and packs |

mod blame;
mod blocked;
mod changed_fields;
mod commit_builder;
mod complaint;
mod delta;
mod fan_out;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod history;
mod invalid;
mod kind_layout;
mod layout;
mod locks;
mod merge;
mod object_file;
mod objects;
mod pack_file;
mod pack_index;
mod packs;
mod past;
mod progress;
mod project;
mod projection_state;
mod projector;
mod push;
mod reader;
mod remote;
mod repack;
mod repo_pool;
mod repository;
mod retry;
mod session;
mod sync;
mod trees;
mod walk;

use stoa_machinery::log::LogError;

pub use self::{
    complaint::{Complaint, complaints, explain},
    invalid::InvalidFile,
    kind_layout::KindLayout,
    layout::{CommitInfo, Ingest, IngestError, Layout, Location, PushedFile},
    object_file::{read_file, read_leniently},
    past::GitHistory,
    progress::recorded_version,
    projection_state::ProjectionState,
    projector::{GitOptions, GitProjector, GitStatus},
    remote::{RemoteError, RemoteOptions},
    walk::Excess,
};
pub use stoa_git_path::{Document, GitPath, GitPaths, Identity, LayoutError, ObjectPath, ReadDocument, document};

/// Why the projection stopped. It tries again by itself; see [`GitStatus::error`].
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The log failed.
    #[error("the log cannot be projected to Git")]
    Log(#[from] LogError),
    /// The repository failed.
    #[error("the control repository cannot be used")]
    Repository(#[from] git2::Error),
    /// The remote of record cannot be used at present.
    #[error("the remote of the control repository cannot be used")]
    Remote(#[from] RemoteError),
    /// Another process moves main of the repository, or has its lock, at each attempt to move it from here.
    #[error("main of the control repository is moved by somebody else, or locked, each time that it is to be moved")]
    Raced,
    /// A push cannot be applied at present.
    #[error("what was pushed to the control repository is not applied yet")]
    Ingest(#[from] IngestError),
    /// The record of the progress does not decode.
    #[error(
        "the record of what is in Git does not decode: run the version of Stoa that wrote it, or restore a backup of the log"
    )]
    Progress {
        /// Why it does not decode.
        source: serde_json::Error,
    },
    /// A later version of Stoa wrote the record of the progress, in an unknown form. The record stays unchanged.
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
    /// A commit exceeds the limits of a walk.
    #[error("commit {commit} of the control repository has more than is looked at: {excess}")]
    TooMuch {
        /// Its id.
        commit: String,
        /// The limit that it exceeds.
        excess: Excess,
    },
    /// A thread that worked on the repository ended without a result.
    #[error("work on the control repository was interrupted")]
    Interrupted(#[from] tokio::task::JoinError),
}
