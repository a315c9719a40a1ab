//! Kalypso's control plane: objects of a repository in, files of the GitOps repository out.
//!
//! Start at [`ControlPlane::read`], which reads the branch of an environment with its base and workload repositories. Its
//! [`Inputs`] become a [`Fleet`], which [`render`](render::render) turns into files. [`changed`](changed::changed) compares
//! two fleets and renders only the files that may differ. [`results`] checks the files by the
//! schemas of the projects that read them, and [`bundle`] packs a folder for clusters without a network.
//!
//! The crate knows no cluster, Git, file or process. Templates are executed by a [`Renderer`](templates::Renderer) of the
//! caller. Follows `github.com/microsoft/kalypso-scheduler` at commit 1f5fef0; `docs/design/fleet.md` has the differences.

mod builtin;
pub mod bundle;
pub mod changed;
pub mod config;
mod control_plane;
mod fleet;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod objects;
mod overrides;
mod problem;
mod reading;
pub mod render;
pub mod results;
pub mod schedule;
mod schemas;
mod selectors;
pub mod templates;
#[cfg(test)]
mod testing;
mod values;

pub use control_plane::{ControlPlane, Served, Sources, folder, within};
pub use fleet::{Fleet, Inputs};
pub use problem::{Origin, Problem, Severity};
pub use reading::{Files, Reading};
pub use schemas::Violation;
pub use selectors::{Selector, SelectorError};
