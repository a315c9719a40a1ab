//! The gRPC contract between the API server and a function-runner.
//!
//! The source, with its documentation, is `proto/stoa/runner/v1/runner.proto`; nothing is
//! written by hand here: `cargo run -p xtask --example protos` writes the code anew.
#![allow(missing_docs, unreachable_pub, reason = "generated code; the documentation is in the proto")]
#![allow(clippy::all, reason = "generated code")]

include!("generated/stoa.runner.v1.rs");
