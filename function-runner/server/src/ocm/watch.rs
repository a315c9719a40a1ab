//! Watches of PlacementDecisions and ManagedClusters. Start at [`watch`], one for each of [`KINDS`].

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::sync::watch::Sender;

use super::placements::{OcmKind, Placements};
use crate::cluster_access::is_missing;

/// The group of the kinds.
const GROUP: &str = "cluster.open-cluster-management.io";

/// The kinds that are watched.
pub(super) const KINDS: [OcmKind; 2] = [OcmKind::PlacementDecision, OcmKind::ManagedCluster];

impl OcmKind {
    fn resource(self) -> ApiResource {
        let (version, kind) = match self {
            Self::PlacementDecision => ("v1beta1", "PlacementDecision"),
            Self::ManagedCluster => ("v1", "ManagedCluster"),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, kind))
    }
}

/// Takes all changes of a kind to the placements, without end.
pub(super) async fn watch(client: Client, kind: OcmKind, placements: Arc<Sender<Placements>>) {
    let resource = kind.resource();
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let mut events = pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.push(object),
            Ok(Event::InitDone) => {
                let objects = std::mem::take(&mut listed);
                placements.send_modify(|placements| placements.list(kind, &objects));
            }
            Ok(Event::Apply(object)) => placements.send_modify(|placements| placements.apply(kind, &object)),
            Ok(Event::Delete(object)) => placements.send_modify(|placements| placements.remove(kind, &object)),
            Err(error) => {
                let is_missing = is_missing(&error);
                let why = match is_missing {
                    true => {
                        format!("the cluster has no kind {} of {GROUP}; install Open Cluster Management", resource.kind)
                    }
                    false => format!("the {} cannot be watched: {error}", resource.plural),
                };
                tracing::warn!(%why, "retrying");
                placements.send_modify(|placements| placements.fail(kind, why, is_missing));
            }
        }
    }
}
