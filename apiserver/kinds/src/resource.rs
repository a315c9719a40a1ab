//! Resource: one deployed resource, written by Stoa alone.

use async_trait::async_trait;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    object::Object,
    strategy::{Admission, Strategy},
};
use stoa_types::Resource;

use super::records::Records;
use crate::{
    kind::Kind,
    rights::{OBJECTS, READ, READERS, right},
    validation,
};

/// The kind Resource.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, surroundings| {
        builder.register(definition, ResourceStrategy { records: Records(surroundings) })
    },
    rights: &[right(READERS, OBJECTS, READ)],
    ..Kind::of::<Resource>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Resource>()
        .columns(&[
            Column::new("Stack", Cell::Path(&["spec", "stack"]), "The stack that deployed the resource."),
            Column::new("Workspace", Cell::Path(&["spec", "workspace"]), "The workspace of the resource."),
            Column::new("Kind", Cell::Compute(kind), "The kind in the infrastructure."),
            Column::new("Object", Cell::Compute(object), "The name in the infrastructure."),
            Column::new("Phase", Cell::Path(&["status", "phase"]), "The result of the last operation."),
            Column::new("Health", Cell::Path(&["status", "health"]), "The health after the last operation."),
            Column::age(),
            Column::new("Id", Cell::Path(&["spec", "id"]), "The engine's id.").wide(),
            Column::new("Cluster", Cell::Path(&["spec", "kubernetes", "cluster"]), "The cluster in the workspace.")
                .wide(),
            Column::new("Release", Cell::Path(&["spec", "release"]), "The release that last changed the resource.")
                .kind("integer")
                .wide(),
        ])
        .selectable(&[
            SelectableField { name: "spec.stack", path: &["spec", "stack"] },
            SelectableField { name: "spec.workspace", path: &["spec", "workspace"] },
            SelectableField { name: "spec.id", path: &["spec", "id"] },
            SelectableField { name: "spec.type", path: &["spec", "type"] },
            SelectableField { name: "spec.module", path: &["spec", "module"] },
            SelectableField { name: "spec.appConfiguration", path: &["spec", "appConfiguration"] },
            SelectableField { name: "spec.kubernetes.cluster", path: &["spec", "kubernetes", "cluster"] },
            SelectableField { name: "spec.kubernetes.group", path: &["spec", "kubernetes", "group"] },
            SelectableField { name: "spec.kubernetes.kind", path: &["spec", "kubernetes", "kind"] },
            SelectableField { name: "spec.kubernetes.namespace", path: &["spec", "kubernetes", "namespace"] },
            SelectableField { name: "spec.kubernetes.name", path: &["spec", "kubernetes", "name"] },
            SelectableField { name: "spec.kubernetes.uid", path: &["spec", "kubernetes", "uid"] },
            SelectableField { name: "spec.cloud.provider", path: &["spec", "cloud", "provider"] },
            SelectableField { name: "spec.cloud.resourceType", path: &["spec", "cloud", "resourceType"] },
            SelectableField { name: "spec.cloud.id", path: &["spec", "cloud", "id"] },
            SelectableField { name: "spec.cloud.arn", path: &["spec", "cloud", "arn"] },
            SelectableField { name: "status.phase", path: &["status", "phase"] },
        ])
}

fn kind(o: &Object) -> Value {
    let kubernetes = o.get_path(&["spec", "kubernetes", "kind"]);
    kubernetes.or_else(|| o.get_path(&["spec", "cloud", "resourceType"])).cloned().unwrap_or(Value::Null)
}

fn object(o: &Object) -> Value {
    let text = |path: &[&str]| o.get_path(path).and_then(Value::as_str).unwrap_or("").to_owned();
    let name = text(&["spec", "kubernetes", "name"]);
    if name.is_empty() {
        return text(&["spec", "cloud", "id"]).into();
    }
    let namespace = text(&["spec", "kubernetes", "namespace"]);
    if namespace.is_empty() { name.into() } else { format!("{namespace}/{name}").into() }
}

#[derive(Debug)]
pub(crate) struct ResourceStrategy {
    pub records: Records,
}

#[async_trait]
impl Strategy for ResourceStrategy {
    type Object = Resource;

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Resource>) -> Result<(), ApiError> {
        let name = match &change {
            Admission::Create(new) => new.name_any(),
            Admission::Update { new, old, .. } if new.spec != old.spec || new.status != old.status => new.name_any(),
            Admission::Update { .. } => return Ok(()),
            Admission::Delete(old) => {
                let is_gone = old.status.as_ref().is_some_and(|status| status.phase.is_gone());
                if is_gone {
                    return Ok(());
                }
                return self.records.check_delete(context, *old, (&old.spec.stack, None)).await;
            }
        };
        validation::written_by_server::<Resource>(context, &name)
    }
}
