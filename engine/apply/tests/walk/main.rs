//! Plans and walks against the in-memory runtime.

mod deferred;
mod failures;
mod health;
mod order;
mod planning;
mod records;
mod resumption;
mod support;
