//! All kinds that a cluster serves, each in the preferred version of its group.
//!
//! Start at [`all`]. Since Kubernetes 1.27 one document for `/api` and one for `/apis` list them (aggregated
//! discovery). An older server, or one without that feature, answers both with the former documents, and is asked for
//! each group and version. kube's `discovery` does the same, but without the limits and retries of [`Cluster`].
//!
//! Elsewhere: `discovery` has the details of one kind.

use std::collections::HashSet;

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::Method;
use serde::{Deserialize, Deserializer};

use crate::cluster::{Cluster, decode};
use crate::discovery::unanswered;
use crate::error::CallError;
use crate::target::{Api, Gvk};

/// Requests in flight at once.
const PARALLEL: usize = 16;
/// Everything that is served, in one document each for `/api` and `/apis`.
const SERVED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// One kind.
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
        let Document { kind, items, versions, groups } = decode(&cluster.get_as(SERVED, path).await?)?;
        kinds.extend(match kind.as_str() {
            "APIGroupDiscoveryList" => together(items)?,
            "APIVersions" => each(cluster, versions.into_iter().map(|version| (String::new(), version))).await?,
            "APIGroupList" => {
                let versions =
                    |group: Group| group.versions.into_iter().map(move |it| (group.name.clone(), it.version));
                each(cluster, groups.into_iter().flat_map(versions)).await?
            }
            _ => {
                return Err(CallError::Unreachable(format!("the answer to GET {path} is not a discovery document")));
            }
        });
    }
    let mut seen = HashSet::new();
    kinds.retain(|served| seen.insert((served.gvk.group.clone(), served.api.plural.clone())));
    Ok(kinds)
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

/// The kinds of each of these groups and versions, in the same order.
async fn each(cluster: &Cluster, versions: impl Iterator<Item = (String, String)>) -> Result<Vec<Served>, CallError> {
    let asked = stream::iter(versions.collect::<Vec<_>>()).map(async |(group, version)| {
        let gvk = Gvk { group, version, kind: String::new() };
        let body = match cluster.call(Method::GET, &gvk.base_path(), None).await {
            // A listed version that is missing is being removed or added.
            Err(CallError::Status(failure)) if matches!(failure.code, 404 | 503) => {
                return Err(unanswered(&gvk, None));
            }
            body => body?,
        };
        let list: ResourceList = decode(&body)?;
        // The names of subresources contain a slash.
        let kinds = list.resources.into_iter().filter(|it| !it.name.contains('/'));
        let served = kinds.map(|it| {
            let gvk = Gvk { kind: it.kind, ..gvk.clone() };
            Served { gvk, api: Api { plural: it.name, namespaced: it.namespaced }, verbs: it.verbs }
        });
        Ok::<_, CallError>(served.collect::<Vec<_>>())
    });
    let all: Vec<Vec<Served>> = asked.buffered(PARALLEL).try_collect().await?;
    Ok(all.into_iter().flatten().collect())
}

/// Go writes empty lists as null, such as the verbs of an API with subresources only.
fn or_null<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

/// The document at `/api` or `/apis`: `APIGroupDiscoveryList` has items, `APIVersions` versions, and `APIGroupList`
/// groups.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    kind: String,
    #[serde(default, deserialize_with = "or_null")]
    items: Vec<GroupDiscovery>,
    #[serde(default, deserialize_with = "or_null")]
    versions: Vec<String>,
    #[serde(default, deserialize_with = "or_null")]
    groups: Vec<Group>,
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

#[derive(Deserialize)]
struct Group {
    name: String,
    /// The preferred one first.
    #[serde(default, deserialize_with = "or_null")]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    version: String,
}

/// The document of a group and version.
#[derive(Deserialize)]
struct ResourceList {
    #[serde(default, deserialize_with = "or_null")]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    namespaced: bool,
    kind: String,
    #[serde(default, deserialize_with = "or_null")]
    verbs: HashSet<String>,
}
