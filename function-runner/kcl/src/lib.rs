//! Programs in KCL, run by KCL's own library without Python.
//!
//! Start at [`Compiler`], which runs a [`Program`]. `library` is the C interface of the shared object, and the only unsafe code.
//! `object_file` makes the object of the Python package loadable without Python, `release` knows its checksums. `diagnostics` reads the
//! library's errors, `scan` finds in the sources what the library does not report,
//! `imports` the files that a program reads, `value` is a result with its order.
//!
//! The library accepts some programs and returns surprising results. This crate reports such a result and never changes it.
//!
//! **Invariant:** the caller is a worker in a sandbox. The library has no timeout, may end its process, and reads and writes files for
//! programs.

mod compiler;
mod diagnostics;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod imports;
mod library;
mod messages;
mod object_file;
mod options;
mod outcome;
mod program;
mod release;
mod scan;
mod value;

pub use compiler::Compiler;
pub use library::LoadError;
pub use object_file::{ObjectError, without_python};
pub use outcome::{Error, Export, Output, Problem, code};
pub use program::{Package, Parameter, Program, Settings, normalized};
pub use release::{Kind, Release, VERSION, object_in, release};
pub use value::{Map, Value};
