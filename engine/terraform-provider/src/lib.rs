//! A client of Terraform's provider plugin protocol, versions 5 and 6.
#![forbid(unsafe_code)]

#[cfg(feature = "fuzzing")]
pub use msgpack::fuzzing;

pub mod change;
pub mod checks;
mod generated;
pub mod msgpack;
pub mod package;
pub mod pool;
pub mod process;
pub mod proposed;
pub mod protocol;
pub mod schema;
pub mod value;
