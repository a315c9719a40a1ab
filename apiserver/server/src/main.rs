//! The Stoa API server.
mod cluster;
mod controllers;
mod events;
mod kinds;
mod runs;
mod subresources;
fn main() {}
