//! Workspace: counts the stacks that are deployed to it and looks for its Backend, its Secrets, its repository and branch.
//!
//! The question about the repository is in [`repositories`].

mod repositories;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use stoa_controller::{
    index::{GATHER, Index, Member, Moved},
    object::ObjectKey,
    probes::Requeue,
    queue::{self, Trigger},
};
use stoa_kinds::{
    module,
    stack::live_among,
    workspace::{
        self,
        referents::{self, Referents},
    },
};
use stoa_machinery::ApiError;
use stoa_runs::Services;
use stoa_types::{
    Backend, Module, Stack, Workspace,
    config::StackStatus,
    platform::{ModuleSpec, WorkspaceSpec},
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::repositories::Repositories;

/// How often to look for the Secrets that a workspace names: those of a cluster nobody tells of.
const LOOK: Duration = Duration::from_secs(60);
/// The same as long as one is missing, or nobody knows.
const SOON: Duration = Duration::from_secs(10);
/// How long the Secrets of one may take to be read.
const PATIENCE: Duration = Duration::from_secs(20);
/// So many workspaces are looked at at once: one whose Secrets nobody answers for is to keep no other waiting.
const AT_ONCE: usize = 64;

/// The last result about the Secrets of each workspace, without their values.
#[derive(Clone, Debug, Default)]
struct Looks(Arc<Mutex<HashMap<String, Look>>>);

#[derive(Debug)]
struct Look {
    uid: Option<String>,
    generation: Option<i64>,
    at: Instant,
    found: Referents,
}

impl Looks {
    /// What was found of this workspace as it is, unless it is time to look again, and how long until then.
    fn get(&self, workspace: &Workspace) -> Option<(Referents, Duration)> {
        let looks = self.0.lock();
        let look = looks.get(&workspace.name_any())?;
        let is_of_it = look.uid == workspace.uid() && look.generation == workspace.metadata.generation;
        let left = term(&look.found).saturating_sub(look.at.elapsed());
        (is_of_it && !left.is_zero()).then(|| (look.found.clone(), left))
    }

    fn insert(&self, workspace: &Workspace, found: Referents) {
        let (uid, generation) = (workspace.uid(), workspace.metadata.generation);
        let look = Look { uid, generation, at: Instant::now(), found };
        self.0.lock().insert(workspace.name_any(), look);
    }

    fn remove(&self, name: &str) {
        self.0.lock().remove(name);
    }
}

/// How long that counts which was found.
fn term(found: &Referents) -> Duration {
    if matches!(found, Referents::Found) { LOOK } else { SOON }
}

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(registry) = services.lookup.registry() else { return };
    let lookup = services.lookup.clone();
    let by_workspace = Index::default();
    let deployed = by_workspace.follow(&registry.api::<Stack>(), |s: &Member<IgnoredAny, StackStatus>| {
        let deployments = s.status.iter().flat_map(|status| &status.deployments);
        live_among(deployments).map(|workspace| (String::new(), workspace.to_owned())).collect()
    });
    let (requeue, answered) = Requeue::triggering();
    let repositories = Repositories::new(requeue);
    let mut triggers = vec![
        answered,
        Trigger::on(&registry.api::<Workspace>(), |w| vec![queue::key_of(w)]),
        Trigger::new(deployed.map(|moved| moved.groups).boxed()).within(GATHER),
        Trigger::on(&registry.api::<Backend>(), move |b: &Backend| {
            lookup.cached_keys::<Workspace>("", "spec.backend.name", &b.name_any())
        }),
    ];
    let looks = Looks::default();
    let by_module = Index::default();
    let named = by_module.follow(&registry.api::<Workspace>(), |w: &Member<WorkspaceSpec, IgnoredAny>| {
        module::named_in(&w.spec).into_iter().map(|named| named.module).collect()
    });
    // The index has to be read; the workspaces themselves trigger already.
    triggers.push(Trigger::new(named.map(|_: Moved<String>| Vec::new()).boxed()));
    triggers.push(Trigger::on_change(&registry.api::<Module>(), move |m: &Member<ModuleSpec, IgnoredAny>| {
        by_module.members(&m.key().1)
    }));
    queue::drive_some(services.queues.of("workspaces"), AT_ONCE, triggers, end, |key| {
        look(services.clone(), by_workspace.clone(), looks.clone(), &repositories, key)
    })
    .await;
}

async fn look(
    services: Services,
    stacks: Index<ObjectKey>,
    looks: Looks,
    repositories: &Repositories,
    key: ObjectKey,
) -> Result<Option<Duration>, ApiError> {
    let name = &key.1;
    let workspaces = services.lookup.api::<Workspace>()?;
    let Some(workspace) = workspaces.get_opt("", name).await? else {
        looks.remove(name);
        repositories.forget(&key);
        return Ok(None);
    };
    let Some(stacks) = stacks.count(&key) else { return Ok(Some(GATHER)) };
    let (secrets, again) = secrets_of(&services, &looks, &workspace).await;
    let repository = workspace.spec.gitops.as_ref().filter(|_| workspace.spec.kubernetes.is_none());
    let (found, again) = match repository {
        Some(gitops) if matches!(secrets, Referents::Found) => {
            let (found, sooner) = repositories::find(repositories, &services, &workspace, gitops);
            (found, again.min(sooner))
        }
        _ => {
            repositories.forget(&key);
            (secrets, again)
        }
    };
    workspaces
        .update_status_with("", name, |w: &mut Workspace| {
            w.status.get_or_insert_default().stacks = i64::try_from(stacks).unwrap_or(i64::MAX);
            // What was found is of the workspace as it was, and this one is looked at next.
            if w.spec == workspace.spec {
                workspace::observe(&services.lookup, w, &found);
            }
        })
        .await?;
    Ok(referents::has_referents(&workspace.spec).then_some(again))
}

/// Whether the Secrets of a workspace exist, and when to ask again.
async fn secrets_of(services: &Services, looks: &Looks, workspace: &Workspace) -> (Referents, Duration) {
    if let Some(known) = looks.get(workspace) {
        return known;
    }
    let found = referents::find_secrets(&*services.cluster, &workspace.spec, PATIENCE).await;
    let found = found.unwrap_or_else(|unread| {
        let (why, workspace_name) = (&unread.why, workspace.name_any());
        tracing::warn!(why, workspace = workspace_name, "the Secrets of a workspace cannot be read");
        match workspace::known_referents(workspace, Some(workspace)) {
            _ if unread.is_refused => Referents::Unread(unread.why),
            Referents::Missing(what) => Referents::Missing(what),
            // The controller asks for the repository once the Secrets are found.
            Referents::Found | Referents::Unusable(..) | Referents::Unreachable(_) => Referents::Found,
            Referents::Unread(_) | Referents::Unseen => Referents::Unread(unread.why),
        }
    });
    looks.insert(workspace, found.clone());
    let again = term(&found);
    (found, again)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use stoa_controller::events::EventSink;

    use async_trait::async_trait;
    use k8s_openapi::api::{
        core::v1::{Event, Secret},
        rbac::v1::RoleBinding,
    };
    use serde_json::json;
    use stoa_controller::conditions::set_condition;
    use stoa_kinds::cluster::{Cluster, NamespaceInfo};
    use stoa_types::{Organization, common::condition, reason};

    use super::*;
    use crate::testing::TestServer;

    /// A cluster that refuses the Secrets of some namespaces, and does not answer about those of others.
    #[derive(Debug)]
    struct Secretive {
        rest: Arc<dyn Cluster>,
        /// Whether it answers at all.
        answers: Mutex<bool>,
    }

    #[async_trait]
    impl Cluster for Secretive {
        async fn namespace(&self, name: &str) -> Result<Option<NamespaceInfo>, ApiError> {
            self.rest.namespace(name).await
        }

        async fn create_namespace(&self, organization: &Organization) -> Result<NamespaceInfo, ApiError> {
            self.rest.create_namespace(organization).await
        }

        async fn ensure_namespace(&self, name: &str, environment: &str) -> Result<(), ApiError> {
            self.rest.ensure_namespace(name, environment).await
        }

        async fn delete_namespace(&self, name: &str, uid: &str) -> Result<(), ApiError> {
            self.rest.delete_namespace(name, uid).await
        }

        async fn role_bindings(&self, organization: &str) -> Result<Option<Vec<RoleBinding>>, ApiError> {
            self.rest.role_bindings(organization).await
        }

        async fn write_role_binding(&self, binding: &RoleBinding) -> Result<(), ApiError> {
            self.rest.write_role_binding(binding).await
        }

        async fn delete_role_binding(&self, namespace: &str, name: &str) -> Result<(), ApiError> {
            self.rest.delete_role_binding(namespace, name).await
        }

        async fn secret(&self, namespace: &str, name: &str) -> Result<Option<BTreeMap<String, Vec<u8>>>, ApiError> {
            let answers = *self.answers.lock();
            match namespace {
                "silent" => std::future::pending().await,
                "refused" => Err(ApiError::forbidden("", "secrets", name, "not for stoa")),
                _ if !answers => Err(ApiError::service_unavailable("it is away")),
                _ => Ok(Some(BTreeMap::from([("kubeconfig".to_owned(), Vec::new())]))),
            }
        }

        async fn write_secret(&self, secret: &Secret) -> Result<(), ApiError> {
            self.rest.write_secret(secret).await
        }
    }

    #[async_trait]
    impl EventSink for Secretive {
        async fn record(&self, event: Event) -> Result<(), ApiError> {
            self.rest.record(event).await
        }
    }

    /// Says that the Backend is ready.
    pub(super) async fn with_backend(world: &TestServer) {
        let ready = |backend: &mut Backend| {
            let conditions = &mut backend.status.get_or_insert_default().conditions;
            set_condition(conditions, reason::READY, true, reason::AVAILABLE, "", None);
        };
        let backends = world.registry.api::<Backend>();
        backends.update_status_with("", "default", ready).await.unwrap();
        assert!(backends.get_opt("", "default").await.unwrap().is_some());
    }

    /// A workspace with a cluster whose kubeconfig is in this namespace.
    async fn with_workspace(world: &TestServer, name: &str, namespace: &str) {
        let kubeconfig = json!({"namespace": namespace, "name": "edge", "key": "kubeconfig"});
        let clusters = json!([{"name": "edge", "kubeconfigSecretRef": kubeconfig}]);
        let spec = json!({"backend": {"name": "default"}, "kubernetes": {"clusters": clusters}});
        world.create("Workspace", name, spec).await;
    }

    pub(super) async fn told(world: &TestServer, workspace: &str) -> String {
        let status = world.registry.api::<Workspace>().get("", workspace).await.unwrap().status.unwrap_or_default();
        let ready = condition(&status.conditions, reason::READY).unwrap();
        format!("{} {}: {}", ready.status, ready.reason, ready.message)
    }

    pub(super) async fn until(world: &TestServer, workspace: &str, expected: &str) {
        let is_told = async {
            while told(world, workspace).await != expected {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(600), is_told).await.is_err() {
            panic!("{workspace} says {}", told(world, workspace).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn unreadable_secrets_block_no_other_workspace() {
        let mut world = TestServer::with_secrets().await;
        with_backend(&world).await;
        let rest = world.services.cluster.clone();
        let cluster = Arc::new(Secretive { rest, answers: Mutex::new(true) });
        world.services.cluster = cluster.clone();
        for (name, namespace) in [("a", "silent"), ("b", "refused"), ("c", "shop")] {
            with_workspace(&world, name, namespace).await;
        }
        let end = CancellationToken::new();
        let driven = tokio::spawn(run(world.services.clone(), end.clone()));
        until(&world, "c", "True Available: the backend is ready").await;
        assert!(told(&world, "a").await.starts_with("Unknown Progressing: "), "nobody waited for it");
        let silent = "Unknown UnreadableSecret: secret silent/edge cannot be read: there was no answer in 20s";
        until(&world, "a", silent).await;
        let refused = "Unknown UnreadableSecret: secret refused/edge cannot be read: secrets \"edge\" is forbidden: not \
                       for stoa";
        until(&world, "b", refused).await;
        // What was found counts until somebody says otherwise.
        *cluster.answers.lock() = false;
        tokio::time::sleep(3 * LOOK).await;
        assert_eq!(told(&world, "c").await, "True Available: the backend is ready");
        end.cancel();
        driven.await.unwrap();
    }

    fn secret(key: &str) -> Secret {
        let metadata = json!({"name": "edge", "namespace": "shop"});
        let data = json!({key: "a2V5"});
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}))
            .unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn lookup_cache_expires_by_time_and_workspace_change() {
        let metadata = json!({"name": "edge", "uid": "u1", "generation": 1});
        let spec = json!({"backend": {"name": "default"}});
        let workspace: Workspace = serde_json::from_value(json!({
            "apiVersion": "platform.stoa.dev/v1alpha1", "kind": "Workspace", "metadata": metadata, "spec": spec,
        }))
        .unwrap();
        let looks = Looks::default();
        let left = |of: &Workspace| looks.get(of).map(|(_, left)| left);
        assert_eq!(left(&workspace), None);
        looks.insert(&workspace, Referents::Found);
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
        looks.insert(&workspace, Referents::Missing("it is gone".to_owned()));
        assert_eq!(left(&workspace), Some(SOON));
        tokio::time::advance(SOON).await;
        assert_eq!(left(&workspace), None, "it may be there by now");
        looks.insert(&workspace, Referents::Found);
        looks.remove("edge");
        assert_eq!(left(&workspace), None);
    }

    #[tokio::test(start_paused = true)]
    async fn workspace_becomes_ready_once_secrets_exist() {
        let world = TestServer::with_secrets().await;
        with_backend(&world).await;
        with_workspace(&world, "edge", "shop").await;
        let workspaces = world.registry.api::<Workspace>();
        let unseen = "Unknown Progressing: Stoa has not checked the Secrets yet";
        assert_eq!(told(&world, "edge").await, unseen);

        let end = CancellationToken::new();
        let driven = tokio::spawn(run(world.services.clone(), end.clone()));
        let until = async |expected: &str| until(&world, "edge", expected).await;
        let missing = "False ReferenceNotFound: secret shop/edge does not exist";
        until(missing).await;
        let describe = |workspace: &mut Workspace| workspace.spec.description = Some("At the edge".to_owned());
        let described = workspaces.update_with("", "edge", describe).await.unwrap();
        let conditions = described.status.unwrap_or_default().conditions;
        let kept = condition(&conditions, reason::READY).unwrap();
        assert_eq!(kept.reason, reason::REFERENCE_NOT_FOUND, "a write that is of something else keeps what was found");
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
        until("False ReferenceNotFound: secret shop/edge has no key \"kubeconfig\"").await;
        let put = |it: &mut Secret| it.data = secret("kubeconfig").data;
        secrets.update_with("shop", "edge", put).await.unwrap();
        until("True Available: the backend is ready").await;
        end.cancel();
        driven.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn terraform_workspace_needs_its_secrets() {
        let world = TestServer::with_secrets().await;
        with_backend(&world).await;
        let secret_ref = |name: &str| json!({"namespace": "shop", "name": name});
        let aws = json!({"name": "aws", "source": "hashicorp/aws", "environmentSecretRef": secret_ref("environment"),
            "configurationSecretRef": secret_ref("configuration")});
        let mirror = json!({"url": "https://mirror.example.com/", "secretRef": secret_ref("mirror")});
        let terraform = json!({"mirror": mirror, "lock": "# none", "providers": [aws]});
        world.create("Workspace", "cloud", json!({"backend": {"name": "default"}, "terraform": terraform})).await;
        let end = CancellationToken::new();
        let driven = tokio::spawn(run(world.services.clone(), end.clone()));
        let missing = ["mirror", "environment", "configuration"].map(|it| format!("secret shop/{it} does not exist"));
        until(&world, "cloud", &format!("False ReferenceNotFound: {}", missing.join("; "))).await;
        let workspace = world.registry.api::<Workspace>().get("", "cloud").await.unwrap();
        stoa_runs::target::workspace(&world.services, &workspace).await.unwrap_err();

        let secrets = world.registry.api::<Secret>();
        for name in ["mirror", "environment", "configuration"] {
            let mut secret = secret(name);
            secret.metadata.name = Some(name.to_owned());
            secrets.create(&secret).await.unwrap();
        }
        until(&world, "cloud", "True Available: the backend is ready").await;
        let sent = stoa_runs::target::workspace(&world.services, &workspace).await.unwrap();
        let values = |key: &str| HashMap::from([(key.to_owned(), bytes::Bytes::from("key"))]);
        assert_eq!(sent.mirror_credentials, values("mirror"));
        let aws = &sent.provider_secrets["aws"];
        assert_eq!((&aws.environment, &aws.configuration), (&values("environment"), &values("configuration")));
        assert!(!String::from_utf8_lossy(&sent.spec).contains("a2V5"), "secrets are in it by reference only");
        end.cancel();
        driven.await.unwrap();
    }
}
