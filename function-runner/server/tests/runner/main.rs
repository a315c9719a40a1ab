//! The runner as a process, called the way the API server calls it: gRPC over mutual TLS.

#![expect(clippy::unwrap_used, reason = "the lint knows tests, not their helpers")]

mod artifacts;
mod awaited;
mod bed;
mod caller;
mod delivery;
mod drain;
mod faults;
mod functions;
mod grants;
mod idle;
mod input;
mod kcl;
mod modules;
mod ownership;
mod packages;
mod process;
mod proposals;
mod render;
mod repositories;
mod rotation;
mod sources;
mod terraform;
#[cfg(debug_assertions)]
mod workers;
mod working_copies;
