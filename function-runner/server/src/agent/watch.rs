//! Watches of the GitOps objects of the cluster.
//!
//! Start at [`watch`], one for each of [`KINDS`]. A kind that the cluster does not have is searched again every minute.

use std::fmt::Display;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::error::DiscoveryError;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use stoa_runtime_gitops::Deployment;
use tokio::sync::mpsc::Sender;

use super::queue::ObjectId;
use crate::cluster_access::is_missing;

/// The interval to search a kind that the cluster does not have.
const DISCOVERY: Duration = Duration::from_secs(60);

/// A kind of GitOps objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct GitOpsKind {
    pub(super) group: &'static str,
    pub(super) kind: &'static str,
    read: fn(&Map<String, Value>) -> Option<Deployment>,
}

/// The kinds of Flux and Argo CD that deploy something.
pub(super) const KINDS: [GitOpsKind; 3] = [
    GitOpsKind { group: "kustomize.toolkit.fluxcd.io", kind: "Kustomization", read: Deployment::kustomization },
    GitOpsKind { group: "helm.toolkit.fluxcd.io", kind: "HelmRelease", read: Deployment::helm_release },
    GitOpsKind { group: "argoproj.io", kind: "Application", read: Deployment::application },
];

/// A change of the GitOps objects of the cluster. An object without a deployment repeats the one before.
#[derive(Debug)]
pub(super) enum Change {
    /// All objects of a kind.
    Listed(&'static str, Vec<(ObjectId, Option<Deployment>)>),
    /// An object was created or updated.
    Applied(ObjectId, Option<Deployment>),
    /// An object was deleted.
    Deleted(ObjectId),
    /// The objects of a kind cannot be watched at present.
    Failed(&'static str),
}

impl GitOpsKind {
    fn id(&self, object: &DynamicObject) -> ObjectId {
        ObjectId {
            kind: self.kind.to_owned(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }

    /// An object and its deployment.
    pub(super) fn read(&self, object: DynamicObject) -> (ObjectId, Option<Deployment>) {
        let id = self.id(&object);
        let Value::Object(mut content) = object.data else { return (id, None) };
        content.insert("metadata".to_owned(), json!({"generation": object.metadata.generation}));
        let deployment = (self.read)(&content);
        (id, deployment)
    }

    /// The resource in the version that the cluster prefers; `None` where it does not have the kind.
    async fn resource(&self, client: &Client) -> Result<Option<ApiResource>, kube::Error> {
        match kube::discovery::group(client, self.group).await {
            Ok(group) => Ok(group.recommended_kind(self.kind).map(|(resource, _)| resource)),
            Err(kube::Error::Discovery(DiscoveryError::MissingApiGroup(_))) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn warn(kind: GitOpsKind, error: &dyn Display) {
    tracing::warn!(kind = kind.kind, group = kind.group, %error, "the cluster's objects cannot be watched; retrying");
}

/// Sends all changes of a kind until the receiver ends.
pub(super) async fn watch(client: Client, kind: GitOpsKind, changes: Sender<Change>) {
    while !changes.is_closed() {
        match kind.resource(&client).await {
            Ok(Some(resource)) => follow(Api::all_with(client.clone(), &resource), kind, &changes).await,
            Ok(None) => tracing::debug!(kind = kind.kind, group = kind.group, "the cluster does not have this kind"),
            Err(error) => {
                warn(kind, &error);
                let _ = changes.send(Change::Failed(kind.kind)).await;
            }
        }
        tokio::time::sleep(DISCOVERY).await;
    }
}

/// Sends the changes of a resource until it disappears or the receiver ends.
async fn follow(api: Api<DynamicObject>, kind: GitOpsKind, changes: &Sender<Change>) {
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.push(kind.read(object));
                continue;
            }
            Ok(Event::InitDone) => Change::Listed(kind.kind, std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => {
                let (id, deployment) = kind.read(object);
                Change::Applied(id, deployment)
            }
            Ok(Event::Delete(object)) => Change::Deleted(kind.id(&object)),
            Err(error) if is_missing(&error) => {
                let _ = changes.send(Change::Listed(kind.kind, Vec::new())).await;
                return;
            }
            Err(error) => {
                warn(kind, &error);
                Change::Failed(kind.kind)
            }
        };
        if changes.send(change).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use stoa_runtime_gitops::Progress;

    use super::*;

    #[test]
    fn object_is_read_with_its_generation() {
        let read = |observed: i64| {
            let object = json!({
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
                "metadata": {"namespace": "flux-system", "name": "web", "generation": 2},
                "status": {
                    "observedGeneration": observed, "lastAppliedRevision": "main@sha1:c1",
                    "lastAttemptedRevision": "main@sha1:c1",
                    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T12:00:00Z"}],
                },
            });
            KINDS[0].read(serde_json::from_value(object).unwrap())
        };
        let (id, deployment) = read(2);
        assert_eq!(id.to_string(), "Kustomization flux-system/web");
        assert_eq!(deployment.unwrap().progress, Progress::Ready);
        assert_eq!(read(1).1, None);
    }
}
