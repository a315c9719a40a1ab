//! The Secrets that a workspace names, and whether they are there.

use stoa_machinery::ApiError;
use stoa_types::{SecretReference, platform::WorkspaceSpec};

use super::clusters;
use crate::cluster::Cluster;

/// A Secret that has to be there, and a key that it has to have, if one is named.
#[derive(Debug, PartialEq, Eq)]
struct Needed<'s> {
    namespace: &'s str,
    name: &'s str,
    key: Option<&'s str>,
}

/// What is known of the Secrets that a workspace names.
#[derive(Clone, Debug)]
pub(crate) enum Secrets {
    /// They are there, or it names none.
    Found,
    /// The first that is not, or that lacks a key, in a sentence.
    Missing(String),
    /// Nobody has looked yet, or they cannot be read.
    Unseen,
}

/// Looks for the Secrets that a workspace names.
///
/// # Errors
///
/// When one cannot be read.
pub(crate) async fn look(cluster: &dyn Cluster, spec: &WorkspaceSpec) -> Result<Secrets, ApiError> {
    for Needed { namespace, name, key } in needed(spec) {
        let Some(keys) = cluster.secret(namespace, name).await? else {
            return Ok(Secrets::Missing(format!("secret {namespace}/{name} does not exist")));
        };
        if let Some(key) = key.filter(|key| !keys.contains_key(*key)) {
            return Ok(Secrets::Missing(format!("secret {namespace}/{name} has no key {key:?}")));
        }
    }
    Ok(Secrets::Found)
}

/// Whether a workspace names any.
pub(crate) fn are_named(spec: &WorkspaceSpec) -> bool {
    !needed(spec).is_empty()
}

/// Whether two specs name the same.
pub(super) fn are_same(new: &WorkspaceSpec, old: &WorkspaceSpec) -> bool {
    needed(new) == needed(old)
}

fn needed(spec: &WorkspaceSpec) -> Vec<Needed<'_>> {
    let kubeconfigs = clusters::kubeconfigs(spec).map(|(_, of)| Needed {
        namespace: &of.namespace,
        name: &of.name,
        key: Some(of.key.as_str()),
    });
    let pull_requests = spec.gitops.iter().filter_map(|gitops| gitops.pull_request.as_ref());
    let of_repository = spec.gitops.iter().filter_map(|gitops| gitops.secret_ref.as_ref());
    let of_repository = of_repository.chain(pull_requests.filter_map(|pulls| pulls.secret_ref.as_ref()));
    kubeconfigs.chain(of_repository.map(whole)).collect()
}

fn whole(of: &SecretReference) -> Needed<'_> {
    Needed { namespace: of.namespace.as_deref().unwrap_or_default(), name: &of.name, key: None }
}
