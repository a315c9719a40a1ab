//! AssignmentPackage: the rendered manifests of an Assignment, computed when somebody asks.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use stoa_machinery::{
    ApiError, Object, ResourceDefinition, Version,
    definition::{Cell, Column},
    registry::{Computed, PageRequest},
    strategy::DefaultStrategy,
};
use stoa_types::{
    names,
    scheduler::{AssignmentPackage, AssignmentPackageSpec},
};

use super::{
    assignment::{metadata, object},
    fleets::Fleets,
    schedules::{Schedules, bases},
};
use crate::{
    computed::page,
    kind::{Kind, Surroundings},
    rights::{OBJECTS, READ, READERS, right},
};

/// The kind AssignmentPackage.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, fleets, .. }| {
        let packages = Packages { schedules: fleets.schedules(lookup), fleets };
        builder.register_computed(definition, DefaultStrategy::<AssignmentPackage>::default(), Arc::new(packages))
    },
    rights: &[right(READERS, OBJECTS, READ)],
    ..Kind::of::<AssignmentPackage>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<AssignmentPackage>()
        .columns(&[
            Column::new("Workload", Cell::Path(&["metadata", "labels", "workload"]), "The Workload."),
            Column::new("ClusterType", Cell::Path(&["metadata", "labels", "cluster-type"]), "The ClusterType."),
            Column::age(),
        ])
        .limited_to(READ)
}

#[derive(Debug)]
struct Packages {
    schedules: Schedules,
    fleets: Fleets,
}

impl Packages {
    /// The packages of assignments; those that cannot be rendered have none.
    async fn rendered(&self, namespace: &str, of: Vec<(Value, (String, String))>) -> Result<Vec<Object>, ApiError> {
        let (metadata, assignments): (Vec<_>, Vec<_>) = of.into_iter().unzip();
        if assignments.is_empty() {
            return Ok(Vec::new());
        }
        let packages = self.fleets.get()?.packages(namespace, &assignments).await?;
        let object = |(metadata, package): (Value, Option<AssignmentPackageSpec>)| {
            let kind = names::kind::<AssignmentPackage>();
            let spec = serde_json::to_value(package?).unwrap_or_default();
            Some(object(kind, metadata, spec, json!({})))
        };
        metadata.into_iter().zip(packages).filter_map(object).collect()
    }

    async fn of_namespace(&self, namespace: &str, after: Option<&str>, most: usize) -> Result<Vec<Object>, ApiError> {
        let schedule = self.schedules.of(namespace).await?;
        let mut after = after.map(str::to_owned);
        // One that cannot be rendered is left out, and the page is full all the same.
        let mut found = Vec::new();
        while found.len() < most {
            let left = most - found.len();
            let next: Vec<_> = schedule.after(after.as_deref(), left).collect();
            let is_last = next.len() < left;
            after = next.last().map(|last| last.name());
            let of = next.iter().map(|it| {
                let key = (it.cluster_type.name.clone(), it.target.name.clone());
                (metadata(names::kind::<AssignmentPackage>(), namespace, it), key)
            });
            let of = of.collect();
            found.extend(self.rendered(namespace, of).await?);
            if is_last {
                break;
            }
        }
        Ok(found)
    }
}

#[async_trait]
impl Computed for Packages {
    fn bases(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        bases()
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Object>, ApiError> {
        let schedule = self.schedules.of(namespace).await?;
        let Some(found) = schedule.get(name) else { return Ok(None) };
        let key = (found.cluster_type.name.clone(), found.target.name.clone());
        let of = vec![(metadata(names::kind::<AssignmentPackage>(), namespace, &found), key)];
        Ok(self.rendered(namespace, of).await?.pop())
    }

    async fn page(&self, request: PageRequest<'_>) -> Result<Vec<Object>, ApiError> {
        let of_namespace = move |namespace: String, after: Option<String>, most: usize| async move {
            self.of_namespace(&namespace, after.as_deref(), most).await
        };
        page(|| self.schedules.namespaces(), request, of_namespace).await
    }

    async fn remembers(&self, namespace: Option<&str>, version: Version) -> bool {
        self.schedules.are_same_since(namespace, version).await
    }
}
