//! All kinds that a cluster serves, each in the preferred version of its group.
//!
//! Start at [`all`]. Since Kubernetes 1.27 one document for `/api` and one for `/apis` list them (aggregated
//! discovery). kube's `discovery` does the same, but without the limits and retries of [`Cluster`].
//!
//! Elsewhere: `discovery` has the details of one kind.

use std::collections::{BTreeSet, HashSet};

use serde::{Deserialize, Deserializer};

use crate::cluster::{Cluster, decode};
use crate::discovery::unanswered;
use crate::error::CallError;
use crate::target::{Api, Gvk};

/// Everything that is served, in one document each for `/api` and `/apis`.
const SERVED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) gvk: Gvk,
    pub(crate) api: Api,
    verbs: HashSet<String>,
}

impl Served {
    /// Whether the kind supports all of these verbs.
    pub(crate) fn has(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.contains(*verb))
    }
}

/// The kinds of a cluster.
///
/// # Errors
///
/// Also when one version of a group does not answer, so that its kinds are unknown.
pub(crate) async fn all(cluster: &Cluster) -> Result<Vec<Served>, CallError> {
    let mut kinds = Vec::new();
    for path in ["/api", "/apis"] {
        kinds.extend(together(document(cluster, path).await?)?);
    }
    let mut seen = HashSet::new();
    kinds.retain(|served| seen.insert((served.gvk.group.clone(), served.api.plural.clone())));
    Ok(kinds)
}

/// The APIs of a cluster, sorted: each group and version, and each kind of it. The kinds of a version that does not answer are
/// missing.
pub(crate) async fn api_versions(cluster: &Cluster) -> Result<Vec<String>, CallError> {
    let mut apis = BTreeSet::new();
    for path in ["/api", "/apis"] {
        for GroupDiscovery { metadata: Named { name: group }, versions } in document(cluster, path).await? {
            for VersionDiscovery { version, resources, .. } in versions {
                let api = if group.is_empty() { version } else { format!("{group}/{version}") };
                let kinds = resources.into_iter().map(|it| it.response_kind.kind).filter(|kind| !kind.is_empty());
                apis.extend(kinds.map(|kind| format!("{api}/{kind}")));
                apis.insert(api);
            }
        }
    }
    Ok(apis.into_iter().collect())
}

async fn document(cluster: &Cluster, path: &str) -> Result<Vec<GroupDiscovery>, CallError> {
    let Document { kind, items } = decode(&cluster.get_as(SERVED, path).await?)?;
    if kind != "APIGroupDiscoveryList" {
        let message = format!("the answer to GET {path} is not a discovery document of Kubernetes 1.27 or later");
        return Err(CallError::Unreachable(message));
    }
    Ok(items)
}

/// The kinds of one aggregated document.
fn together(groups: Vec<GroupDiscovery>) -> Result<Vec<Served>, CallError> {
    let mut kinds = Vec::new();
    for GroupDiscovery { metadata: Named { name: group }, versions } in groups {
        for VersionDiscovery { version, freshness, resources } in versions {
            if freshness == "Stale" && resources.is_empty() {
                return Err(unanswered(&Gvk { group, version, kind: String::new() }, None));
            }
            kinds.extend(resources.into_iter().map(|it| {
                let gvk = Gvk { group: group.clone(), version: version.clone(), kind: it.response_kind.kind };
                let api = Api { plural: it.resource, namespaced: it.scope == "Namespaced" };
                Served { gvk, api, verbs: it.verbs }
            }));
        }
    }
    Ok(kinds)
}

/// Go writes empty lists as null, such as the verbs of an API with subresources only.
fn or_null<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// The document at `/api` or `/apis`.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    kind: String,
    #[serde(default, deserialize_with = "or_null")]
    items: Vec<GroupDiscovery>,
}

#[derive(Deserialize)]
struct GroupDiscovery {
    #[serde(default)]
    metadata: Named,
    #[serde(default, deserialize_with = "or_null")]
    versions: Vec<VersionDiscovery>,
}

#[derive(Deserialize, Default)]
struct Named {
    /// Empty for core.
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct VersionDiscovery {
    version: String,
    #[serde(default)]
    freshness: String,
    #[serde(default, deserialize_with = "or_null")]
    resources: Vec<ResourceDiscovery>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceDiscovery {
    resource: String,
    scope: String,
    #[serde(default, deserialize_with = "or_null")]
    verbs: HashSet<String>,
    #[serde(default, deserialize_with = "or_null")]
    response_kind: Kind,
}

#[derive(Deserialize, Default)]
struct Kind {
    #[serde(default)]
    kind: String,
}
