//! The cluster of a standalone server, which is the server itself.

use std::collections::BTreeMap;

use async_trait::async_trait;
use k8s_openapi::api::{
    core::v1::{Event, Namespace, Secret},
    rbac::v1::RoleBinding,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Preconditions;
use kube::ResourceExt as _;
use stoa_controller::events::EventSink;
use stoa_machinery::{ApiError, registry::DeleteOptions};
use stoa_types::Organization;

use super::{Cluster, NamespaceInfo, environment_namespace, namespace_of, renew_secret};
use crate::lookup::Lookup;

/// The namespaces, Secrets and Events that this server serves.
#[derive(Clone, Debug)]
pub struct StandaloneCluster {
    /// The objects of this server.
    pub lookup: Lookup,
}

#[async_trait]
impl Cluster for StandaloneCluster {
    async fn namespace(&self, name: &str) -> Result<Option<NamespaceInfo>, ApiError> {
        let found = self.lookup.api::<Namespace>()?.get_opt("", name).await?;
        Ok(found.as_ref().map(NamespaceInfo::from))
    }

    async fn create_namespace(&self, organization: &Organization) -> Result<NamespaceInfo, ApiError> {
        let created = self.lookup.api::<Namespace>()?.create(&namespace_of(organization)).await?;
        Ok(NamespaceInfo::from(&created))
    }

    async fn ensure_namespace(&self, name: &str, environment: &str) -> Result<(), ApiError> {
        let namespaces = self.lookup.api::<Namespace>()?;
        if namespaces.get_opt("", name).await?.is_some() {
            return Ok(());
        }
        match namespaces.create(&environment_namespace(name, environment)).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == 409 => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn delete_namespace(&self, name: &str, uid: &str) -> Result<(), ApiError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
        let options = DeleteOptions { preconditions: Some(preconditions), ..DeleteOptions::default() };
        match self.lookup.api::<Namespace>()?.delete("", name, &options).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn role_bindings(&self, _: &str) -> Result<Option<Vec<RoleBinding>>, ApiError> {
        Ok(None)
    }

    async fn write_role_binding(&self, binding: &RoleBinding) -> Result<(), ApiError> {
        Err(ApiError::not_found("rbac.authorization.k8s.io", "rolebindings", &binding.name_any()))
    }

    async fn delete_role_binding(&self, _: &str, _: &str) -> Result<(), ApiError> {
        Ok(())
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<BTreeMap<String, Vec<u8>>>, ApiError> {
        let found = self.lookup.api::<Secret>()?.get_opt(namespace, name).await?;
        Ok(found.map(|s| s.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect()))
    }

    async fn write_secret(&self, secret: &Secret) -> Result<(), ApiError> {
        let secrets = self.lookup.api::<Secret>()?;
        let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
        let Some(mut there) = secrets.get_opt(&namespace, &name).await? else {
            return secrets.create(secret).await.map(drop);
        };
        renew_secret(&mut there, secret)?;
        secrets.update_with(&namespace, &name, |current| current.data.clone_from(&there.data)).await.map(drop)
    }
}

#[async_trait]
impl EventSink for StandaloneCluster {
    async fn record(&self, event: Event) -> Result<(), ApiError> {
        let events = self.lookup.api::<Event>()?;
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        if event.count.unwrap_or(1) <= 1 {
            return events.create(&event).await.map(|_| ());
        }
        let update = |current: &mut Event| {
            current.count = event.count;
            current.last_timestamp.clone_from(&event.last_timestamp);
            current.message.clone_from(&event.message);
        };
        events.update_with(&namespace, &event.name_any(), update).await.map(|_| ())
    }
}
