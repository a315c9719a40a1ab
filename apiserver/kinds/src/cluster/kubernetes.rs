//! The cluster behind a kube-apiserver.

use std::collections::BTreeMap;

use async_trait::async_trait;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Event, Namespace, Secret},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{
        DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams, Preconditions,
        TypeMeta,
    },
    discovery::ApiResource,
};
use stoa_controller::events::EventSink;
use stoa_machinery::{ApiError, status::api_error};
use stoa_types::{Organization, labels};

use super::{Cluster, NamespaceInfo, environment_namespace, namespace_of, renew_secret};

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

    /// The resource of a kind.
    async fn resource(&self, api_version: &str, kind: &str) -> Result<ApiResource, ApiError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let wanted = GroupVersionKind::gvk(group, version, kind);
        match kube::discovery::pinned_kind(&self.client, &wanted).await {
            Ok((resource, _)) => Ok(resource),
            // The cluster answers, and its group has no such kind.
            Err(kube::Error::Discovery(_)) => {
                let why = format!("the cluster serves no {kind} of {api_version}; install it, or name another kind");
                Err(ApiError::new(404, "NotFound", why))
            }
            Err(error) => Err(api_error(error)),
        }
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

    async fn ensure_namespace(&self, name: &str, environment: &str) -> Result<(), ApiError> {
        if self.namespace(name).await?.is_some() {
            return Ok(());
        }
        match self.namespaces().create(&PostParams::default(), &environment_namespace(name, environment)).await {
            Ok(_) => Ok(()),
            Err(error) => match api_error(error) {
                error if error.code() == 409 => Ok(()),
                error => Err(error),
            },
        }
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

    async fn config_map(&self, namespace: &str, name: &str) -> Result<Option<BTreeMap<String, String>>, ApiError> {
        let config_maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let found = config_maps.get_opt(name).await.map_err(api_error)?;
        Ok(found.map(|config_map| config_map.data.unwrap_or_default()))
    }

    async fn objects(
        &self,
        namespace: &str,
        api_version: &str,
        kind: &str,
        label_selector: &str,
    ) -> Result<Vec<serde_json::Value>, ApiError> {
        let resource = self.resource(api_version, kind).await?;
        let objects: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let list = objects.list(&ListParams::default().labels(label_selector)).await.map_err(api_error)?;
        let object = |mut object: DynamicObject| {
            object.types.get_or_insert_with(|| TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            });
            serde_json::to_value(object).map_err(ApiError::internal)
        };
        list.items.into_iter().map(object).collect()
    }

    async fn plural(&self, api_version: &str, kind: &str) -> Result<String, ApiError> {
        Ok(self.resource(api_version, kind).await?.plural)
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
