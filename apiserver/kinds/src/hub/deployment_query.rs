//! DeploymentQuery: the questions that the history of deployments answers. Each namespace has the same ones.
//!
//! Elsewhere: `stoa-apiserver` answers the subresource `rows`.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stoa_machinery::{
    ApiError, Object, ResourceDefinition,
    definition::{Cell, Column},
    registry::{Computed, PageRequest},
    strategy::DefaultStrategy,
};
use stoa_types::{
    hub::{DeploymentQuery, DeploymentQuerySpec, QueryParameter, Reconciler},
    names,
};

use crate::{
    computed::page,
    kind::{Kind, Surroundings},
    lookup::Lookup,
    rights::{OBJECTS, READ, READERS, right},
    scheduler::assignment::uid,
};

/// The numbers of deployments in each state.
pub const COUNTS: &str = "counts";
/// The transitions of reconcilers.
pub const HISTORY: &str = "history";
/// The versions of two environments.
pub const DIFFERENCES: &str = "differences";
/// The rollouts of commits.
pub const LAG: &str = "lag";

/// A parameter of a query, and its meaning.
type Parameter = (&'static str, &'static str);

/// The queries in the order of their names, each with its content and its parameters.
const QUERIES: [(&str, &str, &[Parameter]); 4] = [
    (
        COUNTS,
        "The number of deployments of each workload in an environment, by state.",
        &[("environment", "The environment."), ("workload", "The workload.")],
    ),
    (
        DIFFERENCES,
        "The versions of each workload in two environments.",
        &[("environment", "The first environment. Required."), ("with", "The second environment. Required.")],
    ),
    (
        HISTORY,
        "The transitions of reconcilers, the newest first.",
        &[SINCE, UNTIL, ("host", "The host."), ("reconciler", "The Reconciler."), LIMIT],
    ),
    (
        LAG,
        "The rollouts of commits, the newest first: the seconds from the first report of a commit to its success.",
        &[SINCE, UNTIL, ("environment", "The environment."), ("workload", "The workload."), LIMIT],
    ),
];

const SINCE: Parameter = ("since", "The beginning: a time, or a duration before now such as 30d or 12h. Default: 7d.");
const UNTIL: Parameter = ("until", "The end, as since. Default: now.");
const LIMIT: Parameter = ("limit", "The most rows, from 1 to 100000. Default: 1000.");

/// The kind DeploymentQuery.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, .. }| {
        let strategy = DefaultStrategy::<DeploymentQuery>::default();
        builder.register_computed(definition, strategy, Arc::new(Queries { lookup }))
    },
    rights: &[right(READERS, OBJECTS, READ), right(READERS, &["rows"], &["get"])],
    ..Kind::of::<DeploymentQuery>()
};

fn definition() -> ResourceDefinition {
    let mut definition = ResourceDefinition::of::<DeploymentQuery>().columns(&[Column::new(
        "Description",
        Cell::Path(&["spec", "description"]),
        "The content of the table.",
    )]);
    definition.verbs = READ.to_vec();
    definition
}

/// Whether there is a query of a name.
pub fn exists(name: &str) -> bool {
    QUERIES.iter().any(|(of, ..)| *of == name)
}

/// Whether a query takes a parameter of a name.
pub fn has_parameter(query: &str, parameter: &str) -> bool {
    QUERIES.iter().any(|(of, _, parameters)| *of == query && parameters.iter().any(|(name, _)| *name == parameter))
}

/// The namespaces with reconcilers, in order.
pub(super) fn namespaces(lookup: &Lookup) -> Result<Vec<String>, ApiError> {
    Ok(lookup.api::<Reconciler>()?.store().namespaces())
}

#[derive(Debug)]
struct Queries {
    lookup: Lookup,
}

impl Queries {
    fn object(
        namespace: &str,
        (name, description, parameters): (&str, &str, &[(&str, &str)]),
    ) -> Result<Object, ApiError> {
        let parameter = |(name, description): &(&str, &str)| QueryParameter {
            name: (*name).to_owned(),
            description: (*description).to_owned(),
        };
        let spec = DeploymentQuerySpec {
            description: description.to_owned(),
            parameters: parameters.iter().map(parameter).collect(),
        };
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            uid: Some(uid(&[names::kind::<DeploymentQuery>(), namespace, name])),
            ..ObjectMeta::default()
        };
        Object::from_typed(&DeploymentQuery { metadata, spec }).map_err(ApiError::internal)
    }
}

#[async_trait]
impl Computed for Queries {
    fn bases(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        // The queries of all namespaces follow from the namespaces with reconcilers.
        vec![(names::group::<Reconciler>(), names::version::<Reconciler>(), names::plural::<Reconciler>())]
    }

    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Object>, ApiError> {
        let found = QUERIES.into_iter().find(|(of, ..)| *of == name);
        found.map(|query| Self::object(namespace, query)).transpose()
    }

    async fn page(&self, request: PageRequest<'_>) -> Result<Vec<Object>, ApiError> {
        let of_namespace = |namespace: String, after: Option<String>, most: usize| async move {
            let left = QUERIES.into_iter().filter(|(name, ..)| after.as_deref().is_none_or(|after| *name > after));
            left.take(most).map(|query| Self::object(&namespace, query)).collect()
        };
        page(|| namespaces(&self.lookup), request, of_namespace).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_in_the_order_of_their_names() {
        assert!(QUERIES.is_sorted_by_key(|(name, ..)| *name));
        assert!(exists(COUNTS) && exists(HISTORY) && exists(DIFFERENCES) && exists(LAG) && !exists("rows"));
    }
}
