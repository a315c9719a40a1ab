//! The types of the Kubernetes API machinery and what is computed from them, as `k8s.io/apimachinery` has them.
//!
//! Start at [`ResourceDefinition`](definition::ResourceDefinition), which describes a resource, and at
//! [`Object`](object::Object), which is one instance of it. [`schema`] decodes bodies and checks them, [`status`] has the
//! errors that clients get, and [`request`] is the context of a call.
//!
//! Patches are in [`patch`] and [`strategic_patch`], server-side apply is in [`managed_fields`]. [`authorizer`] is the
//! question of a permission, which strategies and admission ask.
//!
//! **Invariant:** nothing here opens a socket, reads a file or keeps state; every result follows from the arguments. The
//! crate depends on `stoa-log` for the fence of a request, and on `stoa-cel` for the rules of names.

pub mod authorizer;
pub mod content;
pub mod definition;
pub mod errors;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod json;
pub mod json_path;
pub mod managed_fields;
pub mod object;
pub mod openapi;
#[cfg(test)]
mod oracle;
pub mod patch;
pub mod protobuf;
pub mod request;
pub mod row;
pub mod scale;
pub mod schema;
pub mod selector;
pub mod service_account;
pub mod status;
pub mod strategic_patch;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
