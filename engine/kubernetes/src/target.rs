//! The target of a resource: cluster, kind, namespace and name.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};
use stoa_engine::{Resource, StateResource, cluster, unsupported::is_path_of_kubeconfig};
use stoa_runtime::{KubernetesObject, RuntimeError};

/// Characters that need an escape in a segment of a URL's path (RFC 3986).
const IN_SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=');

/// Group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Gvk {
    /// Empty for core.
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

impl Gvk {
    /// `group/version`, or just the version for core.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path that serves this group and version: `/api/v1` or `/apis/<group>/<version>`.
    pub(crate) fn base_path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    pub(crate) fn is(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }
}

/// How a server serves a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Api {
    /// The resource's plural name, as in URLs.
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

/// One object in one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The cluster's name; empty for the workspace's first.
    pub(crate) cluster: String,
    pub(crate) gvk: Gvk,
    /// As written; an object of a namespaced kind without one goes to the cluster's default.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl Target {
    pub(crate) fn of_desired(desired: &Resource) -> Result<Self, RuntimeError> {
        Self::of_object(&desired.attributes, named_cluster(&desired.extensions)?)
    }

    pub(crate) fn of_prior(prior: &StateResource) -> Result<Self, RuntimeError> {
        // A resource without an apply is at its wanted location.
        let cluster = if prior.cluster.is_empty() { named_cluster(&prior.extensions)? } else { &prior.cluster };
        let target = Self::of_object(&prior.attributes, cluster)?;
        // An object without a namespace is where it was applied, whatever the default is now.
        let Some(namespace) = prior.default_namespace() else { return Ok(target) };
        check_segment(namespace, "live.metadata.namespace")?;
        Ok(Self { namespace: Some(namespace.to_owned()), ..target })
    }

    pub(crate) fn called(object: &KubernetesObject) -> Self {
        let KubernetesObject { cluster, group, version, kind, namespace, name, uid: _ } = object.clone();
        let namespace = (!namespace.is_empty()).then_some(namespace);
        Self { cluster, gvk: Gvk { group, version, kind }, namespace, name }
    }

    fn of_object(object: &Map<String, Value>, cluster: &str) -> Result<Self, RuntimeError> {
        let api_version = text(object.get("apiVersion"), "attributes.apiVersion")?;
        let kind = text(object.get("kind"), "attributes.kind")?;
        let metadata = object.get("metadata");
        let name = text(metadata.and_then(|m| m.get("name")), "attributes.metadata.name")?;
        let namespace = match metadata.and_then(|m| m.get("namespace")) {
            None | Some(Value::Null) => None,
            Some(value) => Some(text(Some(value), "attributes.metadata.namespace")?),
        };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        for (value, field) in [
            (group, "attributes.apiVersion"),
            (version, "attributes.apiVersion"),
            (namespace.unwrap_or(""), "attributes.metadata.namespace"),
        ] {
            check_segment(value, field)?;
        }
        check_name(name)?;
        Ok(Self {
            cluster: cluster.to_owned(),
            gvk: Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() },
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        })
    }

    /// The namespace it lives in where `api` serves it.
    pub(crate) fn namespace_in<'a>(&'a self, api: &Api, default: &'a str) -> Option<&'a str> {
        api.namespaced.then(|| self.namespace.as_deref().unwrap_or(default))
    }
}

/// The cluster that extensions name; empty when they name none.
fn named_cluster(extensions: &Map<String, Value>) -> Result<&str, RuntimeError> {
    if is_path_of_kubeconfig(extensions) {
        let message = "must not be the path of a file; name one of the workspace's clusters, or leave it out for the \
                       first";
        return Err(invalid(message, "extensions.kubeConfig"));
    }
    cluster::named(extensions).map_err(|field| invalid("the cluster's name must be a string", &field))
}

/// The path of a collection, in a namespace or of the whole cluster.
pub(crate) fn collection_path(gvk: &Gvk, api: &Api, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("{}/namespaces/{namespace}/{}", gvk.base_path(), api.plural),
        None => format!("{}/{}", gvk.base_path(), api.plural),
    }
}

pub(crate) fn named_path(collection: &str, name: &str) -> String {
    format!("{collection}/{}", name_segment(name))
}

fn text<'a>(value: Option<&'a Value>, field: &str) -> Result<&'a str, RuntimeError> {
    match value {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        None | Some(Value::Null | Value::String(_)) => Err(invalid("is required", field)),
        Some(_) => Err(invalid("must be a string", field)),
    }
}

/// A name as a segment of a URL: roles may be called by anything that is no path (`IsValidPathSegmentName` of
/// `k8s.io/apimachinery/pkg/api/validation/path`), spaces and quotes too.
fn name_segment(name: &str) -> Cow<'_, str> {
    utf8_percent_encode(name, IN_SEGMENT).into()
}

/// The name at the end of a path.
pub(crate) fn segment_name(segment: &str) -> Cow<'_, str> {
    percent_decode_str(segment).decode_utf8_lossy()
}

fn check_name(name: &str) -> Result<(), RuntimeError> {
    if matches!(name, "." | "..") || name.contains(['/', '%']) {
        return Err(invalid(&format!("{name:?} cannot be the name of an object"), "attributes.metadata.name"));
    }
    Ok(())
}

/// Checks that a text needs no escape in a URL segment.
fn check_segment(value: &str, field: &str) -> Result<(), RuntimeError> {
    if value == "." || value == ".." || name_segment(value) != value {
        return Err(invalid(&format!("{value:?} cannot be part of a URL"), field));
    }
    Ok(())
}

pub(crate) fn invalid(message: &str, field: &str) -> RuntimeError {
    RuntimeError::Invalid { message: format!("{field}: {message}"), field: Some(field.to_owned()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(object: Value) -> Result<Target, RuntimeError> {
        Target::of_object(object.as_object().unwrap(), "")
    }

    #[test]
    fn missing_name_is_reported_by_field() {
        let err = target(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})).unwrap_err();
        assert!(
            matches!(&err, RuntimeError::Invalid { field: Some(f), .. } if f == "attributes.metadata.name"),
            "{err:?}"
        );
    }

    #[test]
    fn recorded_object_keeps_live_namespace() {
        let record = |id: &str, namespace: &str| {
            let live = json!({"metadata": {"namespace": namespace}});
            StateResource::named_by(&id.into()).unwrap().found(live.as_object().unwrap(), "main".to_owned())
        };
        let namespace = |record| Target::of_prior(&record).unwrap().namespace;
        assert_eq!(namespace(record("v1:ConfigMap:a", "shop")).as_deref(), Some("shop"));
        assert_eq!(namespace(record("v1:ConfigMap:named:a", "shop")).as_deref(), Some("named"));
        assert_eq!(namespace(StateResource::named_by(&"v1:ConfigMap:a".into()).unwrap()), None);
        Target::of_prior(&record("v1:ConfigMap:a", "../a")).unwrap_err();
    }

    #[test]
    fn kubeconfig_path_is_not_cluster() {
        let extensions = json!({"kubeConfig": "/home/deployer/.kube/config"});
        let err = named_cluster(extensions.as_object().unwrap()).unwrap_err();
        assert!(err.to_string().starts_with("extensions.kubeConfig: must not be the path of a file"), "{err}");
        assert_eq!(named_cluster(json!({"kubeConfig": "edge"}).as_object().unwrap()).unwrap(), "edge");
    }

    #[test]
    fn name_stays_in_its_url_segment() {
        let named = |name: &str| target(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}));
        for name in ["../x", "a/b", "..", "a%2fb"] {
            named(name).unwrap_err();
        }
        for (name, segment) in [("a?b", "a%3Fb"), ("a#b", "a%23b"), ("its \"own\"", "its%20%22own%22"), ("a:b", "a:b")]
        {
            let target = named(name).unwrap();
            assert_eq!((&*name_segment(&target.name), &*segment_name(segment)), (segment, name));
        }
        target(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "system:x"}}))
            .unwrap();
    }

    #[test]
    fn paths_match_api() {
        let role = target(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r", "namespace": "n"}
        }))
        .unwrap();
        let api = Api { plural: "roles".to_owned(), namespaced: true };
        let namespace = role.namespace_in(&api, "default");
        assert_eq!(
            collection_path(&role.gvk, &api, namespace),
            "/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles"
        );
        let node = target(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}})).unwrap();
        let api = Api { plural: "nodes".to_owned(), namespaced: false };
        assert_eq!(collection_path(&node.gvk, &api, node.namespace_in(&api, "default")), "/api/v1/nodes");
    }
}
