//! Facts about KCL's library, each with a program, on the real library (`STOA_TEST_KCL`).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod agreement;
mod entries;
mod errors;
mod konfig;
mod library;
mod options;
mod support;
mod values;
