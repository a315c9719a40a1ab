//! Packages of kpt: trees of files in, trees of files out.

mod files;
mod ignore;
pub mod merge;

pub use files::{
    File, IGNORE_FILE, KPTFILE, Limits, Mode, ResourceFile, Tree, TreeError, has_objects, package_of, packages,
    resource_files,
};
