//! The Secrets and the repository that a Workspace refers to, and whether they exist.
//!
//! Start at [`find_secrets`]. The controller of Workspaces calls it.

use std::time::Duration;

use serde_json::Value;
use stoa_types::{
    SecretReference,
    platform::{SecretStore, WorkspaceSpec},
    reason,
};
use tokio::time::{Instant, timeout_at};

use super::{clusters, terraform};
use crate::{cluster::Cluster, text::cut};

/// How each sentence about a Secret begins.
const SECRET: &str = "secret ";
/// What is between sentences about what is missing.
pub(super) const BETWEEN: &str = "; ";
/// So many characters are told of why a Secret cannot be read.
const LONGEST: usize = 512;

/// The reasons of a workspace that cannot use its repository.
pub(super) const UNUSABLE: [&str; 3] =
    [reason::BRANCH_NOT_FOUND, reason::REPOSITORY_NOT_FOUND, reason::REPOSITORY_REFUSED];

/// A Secret that has to be there, and a key that it has to have, if one is named.
#[derive(Debug, PartialEq, Eq)]
struct Needed<'s> {
    namespace: &'s str,
    name: &'s str,
    key: Option<&'s str>,
}

/// What is known of the Secrets and the repository that a workspace names.
#[derive(Clone, Debug)]
pub enum Referents {
    /// They exist, or it names none.
    Found,
    /// Those that are not, or that lack a key, in sentences with `; ` between them.
    Missing(String),
    /// The first that cannot be read, and why, in a sentence.
    Unread(String),
    /// The repository or its branch does not exist, or the repository refuses Stoa: a reason of `UNUSABLE`, and a sentence.
    Unusable(&'static str, String),
    /// Why the repository cannot be reached, in a sentence.
    Unreachable(String),
    /// Nobody has looked yet.
    Unseen,
}

/// Why a Secret cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Which, and why, in a sentence.
    pub why: String,
    /// It was refused. Otherwise nobody said anything.
    pub is_refused: bool,
}

/// Finds out whether the Secrets that a workspace names exist, within a time.
///
/// # Errors
///
/// When one cannot be read.
pub async fn find_secrets(
    cluster: &dyn Cluster,
    spec: &WorkspaceSpec,
    patience: Duration,
) -> Result<Referents, Unread> {
    let deadline = Instant::now() + patience;
    let mut missing = Vec::new();
    for Needed { namespace, name, key } in needed(spec) {
        let unread = |why: &str, is_refused| {
            let why = cut(why, LONGEST);
            Unread { why: format!("secret {namespace}/{name} cannot be read: {why}"), is_refused }
        };
        let found = timeout_at(deadline, cluster.secret(namespace, name)).await;
        let found = found.map_err(|_| unread(&format!("there was no answer in {patience:?}"), false))?;
        let found = found.map_err(|error| unread(error.message(), matches!(error.code(), 401 | 403)))?;
        match (found, key) {
            (None, _) => missing.push(format!("{SECRET}{namespace}/{name} does not exist")),
            (Some(keys), Some(key)) if !keys.contains_key(key) => {
                missing.push(format!("{SECRET}{namespace}/{name} has no key {key:?}"));
            }
            (Some(_), _) => {}
        }
    }
    missing.dedup();
    Ok(if missing.is_empty() { Referents::Found } else { Referents::Missing(missing.join(BETWEEN)) })
}

/// Those sentences of a message about what is missing that are about Secrets.
pub(super) fn missing_in(message: &str) -> Referents {
    let sentences: Vec<&str> = message.split(BETWEEN).filter(|sentence| sentence.starts_with(SECRET)).collect();
    if sentences.is_empty() { Referents::Unseen } else { Referents::Missing(sentences.join(BETWEEN)) }
}

/// Whether a workspace names a Secret or a repository.
pub fn has_referents(spec: &WorkspaceSpec) -> bool {
    spec.gitops.is_some() || !needed(spec).is_empty()
}

/// Whether two specs name the same Secrets, repository and branch.
pub(super) fn have_same_referents(new: &WorkspaceSpec, old: &WorkspaceSpec) -> bool {
    let branch = |spec: &WorkspaceSpec| {
        let gitops = spec.gitops.as_ref();
        gitops.map(|it| (it.repository.clone(), it.branch.clone(), it.create_branch))
    };
    needed(new) == needed(old) && branch(new) == branch(old)
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
    let of_sops = spec.sops.iter().map(|sops| whole(&sops.age_key_secret_ref));
    let of_store = of_secret_store(spec).into_iter().chain(of_named_stores(spec)).chain(of_sops);
    kubeconfigs.chain(of_repository.chain(terraform::referenced(spec)).map(whole)).chain(of_store).collect()
}

/// The Secret with the credentials of the secret store; validation has read the reference. Vault's has a token.
fn of_secret_store(spec: &WorkspaceSpec) -> Option<Needed<'_>> {
    let reference = spec.secret_store.get("secretRef")?;
    let is_vault = spec.secret_store.get("provider").and_then(|provider| provider.get("vault"));
    Some(Needed {
        namespace: reference.get("namespace").and_then(Value::as_str).unwrap_or_default(),
        name: reference.get("name").and_then(Value::as_str)?,
        key: is_vault.filter(|vault| !vault.is_null()).map(|_| "token"),
    })
}

/// The Secrets with the credentials of the stores that have names.
fn of_named_stores(spec: &WorkspaceSpec) -> impl Iterator<Item = Needed<'_>> {
    spec.secret_stores.iter().filter_map(|SecretStore { provider, secret_ref, .. }| {
        let secret = secret_ref.as_ref()?;
        let keys = [
            (provider.vault.is_some(), "token"),
            (provider.aws.is_some(), "secretKey"),
            (provider.azure.is_some(), "clientSecret"),
            (provider.alicloud.is_some(), "accessKeySecret"),
        ];
        let key = keys.into_iter().find_map(|(is_set, key)| is_set.then_some(key));
        Some(Needed { key, ..whole(secret) })
    })
}

fn whole(of: &SecretReference) -> Needed<'_> {
    Needed { namespace: of.namespace.as_deref().unwrap_or_default(), name: &of.name, key: None }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secret_of_store_is_needed() {
        let of = |provider: Value| {
            let store = json!({"provider": provider, "secretRef": {"namespace": "platform", "name": "vault"}});
            let spec = json!({"backend": {"name": "b"}, "secretStore": store});
            let spec: WorkspaceSpec = serde_json::from_value(spec).unwrap();
            needed(&spec).iter().map(|it| format!("{}/{} {:?}", it.namespace, it.name, it.key)).collect::<Vec<_>>()
        };
        assert_eq!(of(json!({"vault": {"server": "https://vault"}})), ["platform/vault Some(\"token\")"]);
        assert_eq!(of(json!({"kubernetes": {}})), ["platform/vault None"]);
    }

    #[test]
    fn secrets_of_named_stores_are_needed_with_their_key() {
        let store = |name: &str, provider: Value| json!({"name": name, "provider": provider, "secretRef": {"namespace": "p", "name": name}});
        let stores = json!([
            store("aws", json!({"aws": {"region": "x"}})),
            store("file", json!({"file": {"path": "x"}})),
            {"name": "k", "provider": {"kubernetes": {}}},
        ]);
        let spec = json!({"backend": {"name": "b"}, "secretStores": stores});
        let spec: WorkspaceSpec = serde_json::from_value(spec).unwrap();
        let found: Vec<String> = needed(&spec).iter().map(|it| format!("{} {:?}", it.name, it.key)).collect();
        assert_eq!(found, ["aws Some(\"secretKey\")", "file None"]);
    }
}
