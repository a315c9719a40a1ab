//! The gRPC contract between the API server and a function-runner.
//!
//! The source, with its documentation, is `proto/stoa/runner/v1/runner.proto`; nothing is
//! written by hand here: `cargo run -p xtask --example protos` writes the code anew. [`renderer`] is the contract of
//! `function-runner/renderer/proto/renderer.proto`.
#![allow(missing_docs, unreachable_pub, reason = "generated code; the documentation is in the proto")]
#![allow(clippy::all, reason = "generated code")]

include!("generated/stoa.runner.v1.rs");

/// The contract between a function-runner and its renderer.
pub mod renderer {
    include!("renderer/stoa.renderer.v1.rs");
}
