//! The admission plugins that call webhooks: servers that a cluster's administrators configure.
//!
//! Start at [`MutatingWebhooks`] and [`ValidatingWebhooks`]. Mutating webhooks are called one after the other, each
//! with what the one before it made of the object; validating ones all at once. Follows
//! `pkg/admission/plugin/webhook` of `k8s.io/apiserver`, whose sentences clients know.
//!
//! Submodules: `hook` is one webhook and whether it is asked, `review` the question and the answer, `client` the way
//! there.

use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::Client;
use stoa_meta::{object::Object, status::ApiError};
use stoa_registry::admission::Attributes;
use tokio_util::sync::CancellationToken;

use super::cluster::{Namespaces, ServiceResolver, Watched};

mod client;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod hook;
mod mutating;
pub(super) mod review;
mod validating;

pub use hook::Hook;
pub(super) use hook::in_selected_namespace;
pub use mutating::MutatingWebhooks;
pub use validating::ValidatingWebhooks;

/// The webhooks of one kind, as they are configured now.
pub type Hooks = Arc<Watched<Vec<Arc<Hook>>>>;

/// What both plugins need.
#[derive(Clone, Debug)]
struct Webhooks {
    hooks: Hooks,
    namespaces: Arc<dyn Namespaces>,
}

impl Webhooks {
    fn handles(&self, attributes: &Attributes<'_>) -> bool {
        if attributes.definition.group == "admissionregistration.k8s.io" {
            // A configuration must not be able to forbid its own repair.
            return false;
        }
        // While nobody knows what is configured, anything may be.
        !self.hooks.is_ready() || self.hooks.current().iter().any(|hook| hook.has_rule_for(attributes))
    }

    async fn current(
        &self,
        attributes: &Attributes<'_>,
        object: Option<&Object>,
    ) -> Result<Arc<Vec<Arc<Hook>>>, ApiError> {
        let hooks = self.hooks.get().await;
        hooks.ok_or_else(|| attributes.forbidden(object, "not yet ready to handle request"))
    }
}

/// Watches the cluster's `MutatingWebhookConfiguration`s until `end`.
pub fn follow_mutating(client: Client, resolver: Arc<dyn ServiceResolver>, end: CancellationToken) -> Hooks {
    Watched::follow(client, end, move |found: Vec<Arc<MutatingWebhookConfiguration>>| {
        Hook::of_mutating(found, &resolver)
    })
}

/// Watches the cluster's `ValidatingWebhookConfiguration`s until `end`.
pub fn follow_validating(client: Client, resolver: Arc<dyn ServiceResolver>, end: CancellationToken) -> Hooks {
    Watched::follow(client, end, move |found: Vec<Arc<ValidatingWebhookConfiguration>>| {
        Hook::of_validating(found, &resolver)
    })
}
