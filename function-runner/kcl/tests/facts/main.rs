//! Facts about KCL's library, each with a program, on the real library (`STOA_TEST_KCL`).

mod entries;
mod errors;
mod konfig;
mod library;
mod options;
mod support;
mod values;
