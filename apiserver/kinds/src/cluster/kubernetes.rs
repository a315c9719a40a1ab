//! The cluster behind a kube-apiserver.

use std::collections::BTreeMap;

use async_trait::async_trait;
use k8s_openapi::api::{
    core::v1::{Event, Namespace, Secret},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions},
};
use stoa_controller::events::EventSink;
use stoa_machinery::{ApiError, status::api_error};
use stoa_types::{Organization, labels};

use super::{Cluster, NamespaceInfo, namespace_of, renew_secret};

/// A real cluster.
#[derive(Clone, educe::Educe)]
#[educe(Debug)]
pub struct KubernetesCluster {
    #[educe(Debug(ignore))]
    client: Client,
}

impl KubernetesCluster {
    /// The cluster that a client reaches.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }
}

/// What is gone already has been deleted.
fn deleted(result: Result<(), kube::Error>) -> Result<(), ApiError> {
    match result.map_err(api_error) {
        Err(error) if error.code() == 404 => Ok(()),
        other => other,
    }
}

#[async_trait]
impl Cluster for KubernetesCluster {
    async fn namespace(&self, name: &str) -> Result<Option<NamespaceInfo>, ApiError> {
        let found = self.namespaces().get_opt(name).await.map_err(api_error)?;
        Ok(found.as_ref().map(NamespaceInfo::from))
    }

    async fn create_namespace(&self, organization: &Organization) -> Result<NamespaceInfo, ApiError> {
        let created = self.namespaces().create(&PostParams::default(), &namespace_of(organization)).await;
        Ok(NamespaceInfo::from(&created.map_err(api_error)?))
    }

    async fn delete_namespace(&self, name: &str, uid: &str) -> Result<(), ApiError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        deleted(self.namespaces().delete(name, &params).await.map(drop))
    }

    async fn role_bindings(&self, organization: &str) -> Result<Option<Vec<RoleBinding>>, ApiError> {
        let made_for = ListParams::default().labels(&format!("{}={organization}", labels::ORGANIZATION));
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), organization);
        Ok(Some(bindings.list(&made_for).await.map_err(api_error)?.items))
    }

    async fn write_role_binding(&self, binding: &RoleBinding) -> Result<(), ApiError> {
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), &binding.namespace().unwrap_or_default());
        let written = match binding.resource_version() {
            None => bindings.create(&PostParams::default(), binding).await,
            Some(_) => bindings.replace(&binding.name_any(), &PostParams::default(), binding).await,
        };
        written.map(drop).map_err(api_error)
    }

    async fn delete_role_binding(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), namespace);
        deleted(bindings.delete(name, &DeleteParams::default()).await.map(drop))
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<BTreeMap<String, Vec<u8>>>, ApiError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let found = secrets.get_opt(name).await.map_err(api_error)?;
        Ok(found.map(|s| s.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()))
    }

    async fn write_secret(&self, secret: &Secret) -> Result<(), ApiError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &secret.namespace().unwrap_or_default());
        let written = match secrets.get_opt(&secret.name_any()).await.map_err(api_error)? {
            None => secrets.create(&PostParams::default(), secret).await,
            Some(mut there) => {
                renew_secret(&mut there, secret)?;
                secrets.replace(&secret.name_any(), &PostParams::default(), &there).await
            }
        };
        written.map(drop).map_err(api_error)
    }
}

#[async_trait]
impl EventSink for KubernetesCluster {
    async fn record(&self, event: Event) -> Result<(), ApiError> {
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        if event.count.unwrap_or(1) <= 1 {
            return events.create(&PostParams::default(), &event).await.map(|_| ()).map_err(api_error);
        }
        let patch = serde_json::json!({
            "count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message,
        });
        events
            .patch(&event.name_any(), &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(|_| ())
            .map_err(api_error)
    }
}
