//! Workspace: counts the stacks that are deployed to it and looks for its Backend and its Secrets.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde::{Deserialize, de::IgnoredAny};
use stoa_machinery::ApiError;
use stoa_types::{Backend, Stack, Workspace, config::Deployment};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    groups::{GATHER, Groups, Member},
    queue::{self, ObjectKey, Trigger},
};
use crate::{
    kinds::{
        stack::live_among,
        workspace::{
            self,
            secrets::{self, Secrets},
        },
    },
    runs::Services,
};

/// How often to look for the Secrets that a workspace names: those of a cluster nobody tells of.
const LOOK: Duration = Duration::from_secs(60);
/// The same as long as one is missing, or nobody knows.
const SOON: Duration = Duration::from_secs(10);

/// What was last found of the Secrets of each workspace, by its name: there are more looks, as for each stack that is deployed,
/// than Secrets are read. Of these nothing is kept.
#[derive(Clone, Debug, Default)]
struct Looks(Arc<Mutex<HashMap<String, Look>>>);

#[derive(Debug)]
struct Look {
    uid: Option<String>,
    generation: Option<i64>,
    at: Instant,
    found: Secrets,
}

impl Looks {
    /// What was found of this workspace as it is, unless it is time to look again, and how long until then.
    fn get(&self, workspace: &Workspace) -> Option<(Secrets, Duration)> {
        let looks = self.0.lock();
        let look = looks.get(&workspace.name_any())?;
        let is_of_it = look.uid == workspace.uid() && look.generation == workspace.metadata.generation;
        let left = term(&look.found).saturating_sub(look.at.elapsed());
        (is_of_it && !left.is_zero()).then(|| (look.found.clone(), left))
    }

    fn insert(&self, workspace: &Workspace, found: Secrets) {
        let (uid, generation) = (workspace.uid(), workspace.metadata.generation);
        let look = Look { uid, generation, at: Instant::now(), found };
        self.0.lock().insert(workspace.name_any(), look);
    }

    fn remove(&self, name: &str) {
        self.0.lock().remove(name);
    }
}

/// How long that counts which was found.
fn term(found: &Secrets) -> Duration {
    if matches!(found, Secrets::Found) { LOOK } else { SOON }
}

/// What of a stack says where it is live.
#[derive(Deserialize)]
struct Deployments {
    #[serde(default)]
    deployments: Vec<Deployment>,
}

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let (Ok(workspaces), Ok(stacks), Ok(backends)) =
        (services.lookup.api::<Workspace>(), services.lookup.api::<Stack>(), services.lookup.api::<Backend>())
    else {
        return;
    };
    let lookup = services.lookup.clone();
    let by_workspace = Groups::default();
    let deployed = by_workspace.follow(&stacks, |s: &Member<IgnoredAny, Deployments>| {
        let deployments = s.status.iter().flat_map(|status| &status.deployments);
        live_among(deployments).map(|workspace| (String::new(), workspace.to_owned())).collect()
    });
    let triggers = vec![
        Trigger::on(&workspaces, |w| vec![queue::key_of(w)]),
        Trigger::new(deployed.map(|moved| moved.groups).boxed()).within(GATHER),
        Trigger::on(&backends, move |b: &Backend| {
            lookup.cached_keys::<Workspace>("", "spec.backend.name", &b.name_any())
        }),
    ];
    let looks = Looks::default();
    queue::drive(services.queues.of("workspaces"), triggers, end, |key| {
        look(services.clone(), by_workspace.clone(), looks.clone(), key)
    })
    .await;
}

async fn look(
    services: Services,
    stacks: Groups<ObjectKey>,
    looks: Looks,
    (_, name): ObjectKey,
) -> Result<Option<Duration>, ApiError> {
    let workspaces = services.lookup.api::<Workspace>()?;
    let Some(workspace) = workspaces.get_opt("", &name).await? else {
        looks.remove(&name);
        return Ok(None);
    };
    let Some(stacks) = stacks.count(&(String::new(), name.clone())) else { return Ok(Some(GATHER)) };
    let (found, again) = if let Some(known) = looks.get(&workspace) {
        known
    } else {
        let found = secrets::look(&*services.cluster, &workspace.spec).await.unwrap_or_else(|error| {
            tracing::warn!(%error, workspace = name, "it is not known whether the Secrets of a workspace are there");
            workspace::known_secrets(&workspace, Some(&workspace))
        });
        looks.insert(&workspace, found.clone());
        let again = term(&found);
        (found, again)
    };
    workspaces
        .update_status_with("", &name, |w: &mut Workspace| {
            w.status.get_or_insert_default().stacks = i64::try_from(stacks).unwrap_or(i64::MAX);
            // What was found is of the workspace as it was, and this one is looked at next.
            if w.spec == workspace.spec {
                workspace::observe(&services.lookup, w, &found);
            }
        })
        .await?;
    Ok(secrets::are_named(&workspace.spec).then_some(again))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;
    use stoa_types::{common::condition, reason};

    use super::*;
    use crate::{controllers::runs::tests::World, kinds::check::set_condition};

    fn secret(key: &str) -> Secret {
        let metadata = json!({"name": "edge", "namespace": "shop"});
        let data = json!({key: "a2V5"});
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}))
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_counts_for_a_while_and_for_the_workspace_as_it_was() {
        let metadata = json!({"name": "edge", "uid": "u1", "generation": 1});
        let spec = json!({"backend": {"name": "default"}});
        let workspace: Workspace = serde_json::from_value(json!({
            "apiVersion": "platform.stoa.dev/v1alpha1", "kind": "Workspace", "metadata": metadata, "spec": spec,
        }))
        .unwrap();
        let looks = Looks::default();
        let left = |of: &Workspace| looks.get(of).map(|(_, left)| left);
        assert_eq!(left(&workspace), None);
        looks.insert(&workspace, Secrets::Found);
        tokio::time::advance(SOON).await;
        assert_eq!(left(&workspace), Some(LOOK - SOON));
        let mut another = workspace.clone();
        another.metadata.uid = Some("u2".to_owned());
        assert_eq!(left(&another), None);
        let mut changed = workspace.clone();
        changed.metadata.generation = Some(2);
        assert_eq!(left(&changed), None);
        tokio::time::advance(LOOK - SOON).await;
        assert_eq!(left(&workspace), None);
        looks.insert(&workspace, Secrets::Missing("it is gone".to_owned()));
        assert_eq!(left(&workspace), Some(SOON));
        tokio::time::advance(SOON).await;
        assert_eq!(left(&workspace), None, "it may be there by now");
        looks.insert(&workspace, Secrets::Found);
        looks.remove("edge");
        assert_eq!(left(&workspace), None);
    }

    #[tokio::test(start_paused = true)]
    async fn workspace_is_ready_once_the_secrets_that_it_names_are_there() {
        let world = World::with_secrets().await;
        let ready = |backend: &mut Backend| {
            let conditions = &mut backend.status.get_or_insert_default().conditions;
            set_condition(conditions, reason::READY, true, reason::AVAILABLE, "", None);
        };
        let backends = world.registry.api::<Backend>();
        backends.update_status_with("", "default", ready).await.unwrap();
        assert!(backends.get_opt("", "default").await.unwrap().is_some());
        let kubeconfig = json!({"namespace": "shop", "name": "edge", "key": "kubeconfig"});
        let clusters = json!([{"name": "edge", "kubeconfigSecretRef": kubeconfig}]);
        let spec = json!({"backend": {"name": "default"}, "kubernetes": {"clusters": clusters}});
        world.create("Workspace", "edge", spec).await;
        let workspaces = world.registry.api::<Workspace>();
        let told = async || {
            let status = workspaces.get("", "edge").await.unwrap().status.unwrap_or_default();
            let ready = condition(&status.conditions, reason::READY).unwrap();
            format!("{} {}: {}", ready.status, ready.reason, ready.message)
        };
        assert_eq!(told().await, "Unknown Progressing: the Secrets that it names are not looked for yet");

        let end = CancellationToken::new();
        let driven = tokio::spawn(run(world.services.clone(), end.clone()));
        let until = async |expected: &str| {
            let is_told = async {
                while told().await != expected {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(600), is_told).await.expect("it gets there");
        };
        let missing = "False SecretNotFound: secret shop/edge does not exist";
        until(missing).await;
        let describe = |workspace: &mut Workspace| workspace.spec.description = Some("At the edge".to_owned());
        let described = workspaces.update_with("", "edge", describe).await.unwrap();
        let conditions = described.status.unwrap_or_default().conditions;
        let kept = condition(&conditions, reason::READY).unwrap();
        assert_eq!(kept.reason, reason::SECRET_NOT_FOUND, "a write that is of something else keeps what was found");
        let rename = |to: &'static str| {
            move |workspace: &mut Workspace| {
                let clusters = workspace.spec.kubernetes.iter_mut().flat_map(|kubernetes| &mut kubernetes.clusters);
                for secret in clusters.filter_map(|cluster| cluster.kubeconfig_secret_ref.as_mut()) {
                    secret.name = to.to_owned();
                }
            }
        };
        for name in ["elsewhere", "edge"] {
            let renamed = workspaces.update_with("", "edge", rename(name)).await.unwrap();
            let conditions = renamed.status.unwrap_or_default().conditions;
            let kept = condition(&conditions, reason::READY).unwrap();
            assert_eq!((kept.status.as_str(), kept.reason.as_str()), ("False", reason::PROGRESSING), "it is not ready");
        }
        until(missing).await;
        let secrets = world.registry.api::<Secret>();
        secrets.create(&secret("other")).await.unwrap();
        until("False SecretNotFound: secret shop/edge has no key \"kubeconfig\"").await;
        let put = |it: &mut Secret| it.data = secret("kubeconfig").data;
        secrets.update_with("shop", "edge", put).await.unwrap();
        until("True Available: the backend is ready").await;
        end.cancel();
        driven.await.unwrap();
    }
}
