//! Plans and walks against the in-memory runtime.

#![expect(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

mod custom;
mod deferred;
mod deletions;
mod drift;
mod failures;
mod going;
mod grants;
mod health;
mod held;
mod ignored;
mod import;
mod lost;
mod order;
mod ownership;
mod planning;
mod records;
mod references;
mod renamed;
mod replaced;
mod resumption;
mod support;
mod unmade;
mod validation;
mod waiting;
