//! The gRPC contract between the API server and a function-runner.
//!
//! The sources, with their documentation, are `runner.proto`, `packages.proto` and `fleet.proto` in `proto/stoa/runner/v1`; nothing is
//! written by hand here: `cargo run -p xtask --example protos` writes the code anew. [`scheduler`] is
//! the contract of `stoa/scheduler/v1/scheduler.proto`, and [`renderer`] that of
//! `function-runner/renderer/proto/renderer.proto`.
#![allow(missing_docs, unreachable_pub, reason = "generated code; the documentation is in the proto")]
#![allow(clippy::all, reason = "generated code")]

include!("generated/stoa.runner.v1.rs");

/// The contract between the API server and external schedulers of fleets.
pub mod scheduler {
    include!("scheduler/stoa.scheduler.v1.rs");
}

/// The contract between a function-runner and its renderer.
pub mod renderer {
    include!("renderer/stoa.renderer.v1.rs");
}

/// The service of Porch's function runner.
pub mod evaluator {
    include!("evaluator/evaluator.rs");
}
