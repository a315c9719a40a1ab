//! Admission through the registry: webhooks over TLS, and policies.

mod mutations;
mod owners;
mod policies;
mod sight;
mod support;
mod webhooks;
