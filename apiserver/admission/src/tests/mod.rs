//! Admission through the registry: webhooks over TLS, and policies.

mod mutations;
mod owners;
mod policies;
mod support;
mod visibility;
mod webhooks;
