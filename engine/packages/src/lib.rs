//! Packages of kpt: trees of files in, trees of files out.

mod files;
mod identity;
mod ignore;
pub mod kptfile;
pub mod merge;
pub mod resources;
mod text;

pub use files::{
    File, IGNORE_FILE, KPTFILE, Limits, Mode, ResourceFile, Tree, TreeError, has_objects, package_of, packages,
    resource_files,
};
pub use identity::ObjectId;
pub use text::TextError;
