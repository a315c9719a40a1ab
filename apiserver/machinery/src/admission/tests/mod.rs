//! Admission through the registry: webhooks over TLS, and policies.

mod policies;
mod support;
mod webhooks;
