//! Namespace, Secret, ConfigMap and Event of the core group, as a standalone server serves them.
//!
//! Elsewhere: `data` validates ConfigMaps and Secrets, `event_columns` has the table columns of Events.

mod data;
mod event_columns;

use std::collections::BTreeMap;

use async_trait::async_trait;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Event, Namespace, NamespaceStatus, Secret},
};
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition, content,
    definition::{Cell, Column, SelectableField},
    object::Object,
    registry::RegistryBuilder,
    status::FieldError,
    strategy::{Admission, DefaultStrategy, Strategy},
};

use crate::validation;

/// The finalizer that keeps a namespace until it is empty.
pub const NAMESPACE_FINALIZER: &str = "stoa.dev/namespace-content";

/// Registers Namespace, Secret, ConfigMap and Event of the core group.
pub fn register(builder: RegistryBuilder) -> RegistryBuilder {
    let data = Column::new("Data", Cell::Compute(data_len), "The number of keys.").kind("integer");
    builder
        .register(namespaces(), NamespaceStrategy)
        .register(
            ResourceDefinition::built_in::<Secret>()
                .reads_protobuf::<Secret>()
                .columns(&[
                    Column::new("Type", Cell::Path(&["type"]), "The type of the Secret."),
                    data.clone(),
                    Column::age(),
                ])
                .selectable(&[SelectableField { name: "type", path: &["type"] }]),
            SecretStrategy,
        )
        .register(
            ResourceDefinition::built_in::<ConfigMap>()
                .reads_protobuf::<ConfigMap>()
                .short_names(&["cm"])
                .columns(&[data, Column::age()]),
            ConfigMapStrategy,
        )
        .register(
            ResourceDefinition::built_in::<Event>()
                .reads_protobuf::<Event>()
                .short_names(&["ev"])
                .columns(&event_columns::ALL)
                .selectable(EVENT_FIELDS),
            DefaultStrategy::<Event>::default(),
        )
}

/// Namespaces are not deleted together, as by kube-apiserver: `kubectl delete --all` does so one by one.
fn namespaces() -> ResourceDefinition {
    let mut definition = ResourceDefinition::built_in::<Namespace>()
        .reads_protobuf::<Namespace>()
        .short_names(&["ns"])
        .with_status()
        .columns(&[Column::new("Status", Cell::Path(&["status", "phase"]), "Active or Terminating."), Column::age()])
        .selectable(&[SelectableField { name: "status.phase", path: &["status", "phase"] }]);
    definition.verbs.retain(|verb| *verb != "deletecollection");
    definition
}

/// What `kubectl describe` and `kubectl get events --for` select by.
const EVENT_FIELDS: &[SelectableField] = &[
    SelectableField { name: "involvedObject.kind", path: &["involvedObject", "kind"] },
    SelectableField { name: "involvedObject.namespace", path: &["involvedObject", "namespace"] },
    SelectableField { name: "involvedObject.name", path: &["involvedObject", "name"] },
    SelectableField { name: "involvedObject.uid", path: &["involvedObject", "uid"] },
    SelectableField { name: "involvedObject.apiVersion", path: &["involvedObject", "apiVersion"] },
    SelectableField { name: "involvedObject.resourceVersion", path: &["involvedObject", "resourceVersion"] },
    SelectableField { name: "involvedObject.fieldPath", path: &["involvedObject", "fieldPath"] },
    SelectableField { name: "reason", path: &["reason"] },
    SelectableField { name: "reportingComponent", path: &["reportingComponent"] },
    SelectableField { name: "source", path: &["source", "component"] },
    SelectableField { name: "type", path: &["type"] },
];

fn data_len(object: &Object) -> serde_json::Value {
    let len = |field: &str| object.0.get(field).and_then(|d| d.as_object()).map_or(0, serde_json::Map::len);
    (len("data") + len("binaryData")).into()
}

/// The namespaces that stay, as with kube-apiserver.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// A namespace starts Active. What ends it is the controller, see `controllers::namespaces`.
#[derive(Debug)]
struct NamespaceStrategy;

#[async_trait]
impl Strategy for NamespaceStrategy {
    type Object = Namespace;

    fn set_defaults(&self, object: &mut Namespace) {
        if let Some(name) = object.metadata.name.clone() {
            object.labels_mut().insert("kubernetes.io/metadata.name".to_owned(), name);
        }
    }

    fn prepare_for_create(&self, _: &RequestContext, object: &mut Namespace) {
        object.status = Some(NamespaceStatus { phase: Some("Active".to_owned()), ..NamespaceStatus::default() });
        validation::keep_finalizer(object, NAMESPACE_FINALIZER);
    }

    fn prepare_for_update(&self, _: &RequestContext, new: &mut Namespace, _: &Namespace) {
        validation::keep_finalizer(new, NAMESPACE_FINALIZER);
    }

    fn validate(&self, object: &Namespace) -> Vec<FieldError> {
        let name = object.name_any();
        if !content::dns_subdomain(&name).is_empty() {
            // That is told of every kind.
            return Vec::new();
        }
        content::dns_label(&name).iter().map(|text| FieldError::invalid("metadata.name", &name, text)).collect()
    }

    async fn admit(&self, _: &RequestContext, change: Admission<'_, Namespace>) -> Result<(), ApiError> {
        match change {
            Admission::Delete(namespace) if IMMORTAL.contains(&namespace.name_any().as_str()) => {
                Err(ApiError::forbidden("", "namespaces", &namespace.name_any(), "this namespace may not be deleted"))
            }
            Admission::Create(_) | Admission::Update { .. } | Admission::Delete(_) => Ok(()),
        }
    }
}

#[derive(Debug)]
struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
    type Object = ConfigMap;

    fn validate(&self, object: &ConfigMap) -> Vec<FieldError> {
        data::of_config_map(object)
    }

    fn validate_update(&self, new: &ConfigMap, old: &ConfigMap) -> Vec<FieldError> {
        let fields = [("data", new.data == old.data), ("binaryData", new.binary_data == old.binary_data)];
        data::immutable((new.immutable, old.immutable), &fields)
    }
}

/// A Secret's `stringData` becomes part of its `data`, as in Kubernetes.
#[derive(Debug)]
struct SecretStrategy;

impl Strategy for SecretStrategy {
    type Object = Secret;

    fn set_defaults(&self, object: &mut Secret) {
        if let Some(strings) = object.string_data.take() {
            let data = object.data.get_or_insert_with(BTreeMap::new);
            data.extend(strings.into_iter().map(|(key, text)| (key, ByteString(text.into_bytes()))));
        }
        if object.type_.as_deref().unwrap_or_default().is_empty() {
            object.type_ = Some("Opaque".to_owned());
        }
    }

    fn validate(&self, object: &Secret) -> Vec<FieldError> {
        data::of_secret(object)
    }

    fn validate_update(&self, new: &Secret, old: &Secret) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validation::immutable("type", &new.type_, &old.type_, &mut errors);
        errors.extend(data::immutable((new.immutable, old.immutable), &[("data", new.data == old.data)]));
        errors
    }
}
