//! The list of plugins for a server behind a kube-apiserver, in upstream's order.

use std::sync::Arc;

use kube::Client;
use stoa_registry::admission::{AdmissionPlugin, Chain, NamespaceLifecycle};
use tokio_util::sync::CancellationToken;

use super::{
    cluster::{ClusterServices, ServiceResolver},
    policy::{MutatingPolicies, ValidatingPolicies},
    webhook::{MutatingWebhooks, ValidatingWebhooks, follow_mutating, follow_validating},
};
use crate::cluster_namespaces::ClusterNamespaces;

/// The plugins there are, in the order in which they run; the order is upstream's.
pub const PLUGINS: [&str; 5] = [
    "NamespaceLifecycle",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
];

/// The name of a plugin that there is not.
#[derive(Debug, thiserror::Error)]
#[error("admission plugin {name:?} is unknown; there are {}", PLUGINS.join(", "))]
pub struct UnknownPlugin {
    /// What it was called.
    name: String,
}

/// All plugins but those that are disabled, reading the cluster behind `client` until `end`. Fails with
/// [`UnknownPlugin`] when a name in `enabled` or `disabled` is none of [`PLUGINS`].
pub fn of_cluster(
    client: &Client,
    enabled: &[String],
    disabled: &[String],
    end: &CancellationToken,
) -> Result<Chain, UnknownPlugin> {
    if let Some(unknown) = enabled.iter().chain(disabled).find(|name| !PLUGINS.contains(&name.as_str())) {
        return Err(UnknownPlugin { name: unknown.clone() });
    }
    // What is named in both is disabled, as upstream's later list wins.
    let wanted = PLUGINS.into_iter().filter(|name| !disabled.iter().any(|other| other == name));
    let namespaces = ClusterNamespaces::start(client.clone(), end.clone());
    let services: Arc<dyn ServiceResolver> = Arc::new(ClusterServices::new(client.clone()));
    let plugins = wanted.map(|name| -> Arc<dyn AdmissionPlugin> {
        match name {
            "MutatingAdmissionPolicy" => Arc::new(MutatingPolicies::follow(client, namespaces.clone(), end)),
            "MutatingAdmissionWebhook" => {
                let hooks = follow_mutating(client.clone(), services.clone(), end.clone());
                Arc::new(MutatingWebhooks::new(hooks, namespaces.clone()))
            }
            "ValidatingAdmissionPolicy" => Arc::new(ValidatingPolicies::follow(client, namespaces.clone(), end)),
            "ValidatingAdmissionWebhook" => {
                let hooks = follow_validating(client.clone(), services.clone(), end.clone());
                Arc::new(ValidatingWebhooks::new(hooks, namespaces.clone()))
            }
            _ => Arc::new(NamespaceLifecycle::new(namespaces.clone())),
        }
    });
    Ok(Chain::new(plugins.collect()))
}
