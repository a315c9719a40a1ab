//! Renders compared with kpt: with its program on packages of our own, and with the test cases of its module.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop anywhere, and prints differences")]

mod cases;
mod kpt;
mod process;
