//! The cluster around the server: namespaces, role bindings, Secrets and Events, which are no kinds of Stoa.
//!
//! In a cluster kube-apiserver serves them ([`kubernetes`]); a standalone server serves them itself
//! ([`standalone`]). All other code sees only [`Cluster`].

pub mod kubernetes;
pub mod standalone;

use std::collections::BTreeMap;

use async_trait::async_trait;
use k8s_openapi::api::{
    core::v1::{Namespace, Secret},
    rbac::v1::RoleBinding,
};
use kube::ResourceExt as _;
use stoa_controller::events::EventSink;
use stoa_machinery::ApiError;
use stoa_types::{Organization, labels};

/// A namespace, as far as Stoa cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceInfo {
    /// Its uid.
    pub uid: String,
    /// The uid of the Organization that it was created for, if it was.
    pub organization_uid: Option<String>,
    /// Whether it is being deleted.
    pub terminating: bool,
}

impl From<&Namespace> for NamespaceInfo {
    fn from(namespace: &Namespace) -> Self {
        Self {
            uid: namespace.uid().unwrap_or_default(),
            organization_uid: namespace.annotations().get(labels::ORGANIZATION_UID).cloned(),
            terminating: namespace.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// Whether a namespace is being deleted or gone: whoever empties it takes everything.
///
/// # Errors
///
/// When the namespace cannot be read.
pub async fn is_emptied(cluster: &dyn Cluster, namespace: &str) -> Result<bool, ApiError> {
    Ok(cluster.namespace(namespace).await?.is_none_or(|namespace| namespace.terminating))
}

/// Lets whoever empties a namespace that is being deleted do without what it takes elsewhere to delete something: whoever
/// deleted the namespace decided about all that is in it.
///
/// # Errors
///
/// The refusal elsewhere, and when the namespace cannot be read.
pub(crate) async fn unless_emptied(
    cluster: &dyn Cluster,
    namespace: &str,
    decided: Result<(), ApiError>,
) -> Result<(), ApiError> {
    let is_refused = decided.as_ref().is_err_and(|error| error.code() == 403);
    if is_refused && is_emptied(cluster, namespace).await? {
        return Ok(());
    }
    decided
}

/// The namespace that an organization is to own.
fn namespace_of(organization: &Organization) -> Namespace {
    let name = organization.name_any();
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.clone());
    namespace.labels_mut().insert(labels::ORGANIZATION.to_owned(), name);
    namespace.annotations_mut().insert(labels::ORGANIZATION_UID.to_owned(), organization.uid().unwrap_or_default());
    namespace
}

/// The namespace of an environment.
fn environment_namespace(name: &str, environment: &str) -> Namespace {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    namespace.labels_mut().insert(labels::ENVIRONMENT.to_owned(), environment.to_owned());
    namespace
}

/// Puts what a Secret is to have into the one that is there.
///
/// # Errors
///
/// 409 `AlreadyExists` when that is not ours.
fn renew_secret(there: &mut Secret, wanted: &Secret) -> Result<(), ApiError> {
    if wanted.labels().iter().any(|(key, value)| there.labels().get(key) != Some(value)) {
        return Err(ApiError::already_exists("", "secrets", &wanted.name_any()));
    }
    there.data.clone_from(&wanted.data);
    Ok(())
}

/// 404 for a kind of a cluster, where there is none.
fn not_served(api_version: &str, kind: &str) -> ApiError {
    let why = format!("a standalone server serves no {kind} of {api_version}; name a kind of Stoa");
    ApiError::new(404, "NotFound", why)
}

/// What Stoa needs of the cluster around it.
#[async_trait]
pub trait Cluster: EventSink {
    /// Reads a namespace.
    async fn namespace(&self, name: &str) -> Result<Option<NamespaceInfo>, ApiError>;

    /// Creates the namespace of an organization.
    ///
    /// # Errors
    ///
    /// 409 `AlreadyExists` when there is one of that name, whoever's it is.
    async fn create_namespace(&self, organization: &Organization) -> Result<NamespaceInfo, ApiError>;

    /// Creates the namespace of an environment, unless there is one of that name.
    async fn ensure_namespace(&self, name: &str, environment: &str) -> Result<(), ApiError>;

    /// Begins to delete a namespace, if it still has this uid.
    async fn delete_namespace(&self, name: &str, uid: &str) -> Result<(), ApiError>;

    /// The role bindings that were made for the organization of this name; nothing where there is no RBAC.
    async fn role_bindings(&self, organization: &str) -> Result<Option<Vec<RoleBinding>>, ApiError>;

    /// Creates a role binding, or replaces the one whose `resourceVersion` it has.
    ///
    /// # Errors
    ///
    /// 409 `AlreadyExists` when somebody else made one of that name.
    async fn write_role_binding(&self, binding: &RoleBinding) -> Result<(), ApiError>;

    /// Deletes a role binding; one that is gone already is no error.
    async fn delete_role_binding(&self, namespace: &str, name: &str) -> Result<(), ApiError>;

    /// Reads the keys of a Secret.
    async fn secret(&self, namespace: &str, name: &str) -> Result<Option<BTreeMap<String, Vec<u8>>>, ApiError>;

    /// Reads the texts of a ConfigMap.
    ///
    /// # Errors
    ///
    /// 400 where the cluster has no ConfigMaps, as a standalone server.
    async fn config_map(&self, _namespace: &str, _name: &str) -> Result<Option<BTreeMap<String, String>>, ApiError> {
        Err(ApiError::bad_request("a standalone server has no ConfigMaps; use a Secret"))
    }

    /// The objects of a kind in a namespace, by label.
    ///
    /// # Errors
    ///
    /// 404 for a kind that the cluster does not serve, 403 where the server may not list it.
    async fn objects(
        &self,
        _namespace: &str,
        api_version: &str,
        kind: &str,
        _label_selector: &str,
    ) -> Result<Vec<serde_json::Value>, ApiError> {
        Err(not_served(api_version, kind))
    }

    /// The plural noun of a kind, by which permissions name it.
    ///
    /// # Errors
    ///
    /// 404 for a kind that the cluster does not serve.
    async fn plural(&self, api_version: &str, kind: &str) -> Result<String, ApiError> {
        Err(not_served(api_version, kind))
    }

    /// Creates a Secret of our own, or puts what it has into the one that is there.
    ///
    /// # Errors
    ///
    /// 409 `AlreadyExists` when somebody else made one of that name: it lacks a label of ours.
    async fn write_secret(&self, secret: &Secret) -> Result<(), ApiError>;
}
