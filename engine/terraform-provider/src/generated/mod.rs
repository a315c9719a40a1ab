//! The messages of both protocols, which `cargo run -p xtask --example protos` writes from `proto/`.
#![allow(missing_docs, unreachable_pub, dead_code, reason = "generated code; the documentation is in the protos")]
#![allow(clippy::all, reason = "generated code")]

pub mod tfplugin5 {
    include!("tfplugin5/tfplugin5.rs");
}
pub mod tfplugin6 {
    include!("tfplugin6/tfplugin6.rs");
}
