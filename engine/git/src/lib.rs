//! Access to Git for sources, GitOps and packages: bounded reads, commits and atomic pushes.
//!
//! [`bounded`] reads objects up to limits. [`files`] lists a folder and recognizes text. [`commit`] makes a
//! commit that replaces one folder. [`push`] moves several refs at once, over HTTP, SSH and to folders. Fetches are libgit2's;
//! [`remote`] lists refs where libgit2 cannot show a bearer token.
//!
//! Callers run all of it in a process with limits: bytes of servers are parsed here.

pub mod bounded;
pub mod commit;
pub mod files;
mod folder;
mod http;
mod packet;
pub mod push;
pub mod remote;
mod ssh;

pub use git2;
