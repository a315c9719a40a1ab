//! Packages of kpt: trees of files in, trees of files out.

pub mod builtins;
pub mod clone;
pub mod diff;
pub mod evaluate;
mod files;
pub mod function;
pub mod function_metadata;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod git_layout;
mod identity;
mod ignore;
pub mod kptfile;
pub mod merge;
pub mod rebase;
pub mod render;
pub mod resource_list;
pub mod resources;
pub mod results;
mod run;
pub mod selectors;
mod shown;
mod text;
pub mod update;
pub mod variant;

pub use files::{
    File, IGNORE_FILE, KPTFILE, Limits, Mode, ResourceFile, Tree, TreeError, has_objects, package_of, packages,
    resource_files,
};
pub use identity::ObjectId;
pub use run::{FunctionError, Functions};
pub use text::TextError;
