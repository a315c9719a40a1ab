//! Fixtures of tests: a registry of all kinds in memory, and the objects that a Run needs.

use std::sync::Arc;

use serde_json::{Value, json};
use stoa_machinery::{
    Key, Log, Object, Registry, RequestContext, ResourceDefinition,
    definition::Scope,
    log::{Change, Expect, MemoryLog, Write},
    registry::RegistryBuilder,
};
use stoa_types::Stack;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    cluster::{Cluster, standalone::StandaloneCluster},
    hub::memory::Hub,
    kind::{Kind, Surroundings},
    lookup::Lookup,
    package_repositories::Packages,
    register,
    scheduler::fleets::Fleets,
};

/// The registry of a standalone server.
#[derive(Debug)]
pub struct TestRegistry {
    /// The objects.
    pub registry: Arc<Registry>,
    /// The lookup that its strategies use.
    pub lookup: Lookup,
    /// The cluster that the server is to itself.
    pub cluster: Arc<dyn Cluster>,
    /// Ends with the fixture.
    pub end: CancellationToken,
    _guard: DropGuard,
}

impl TestRegistry {
    /// An empty registry over a log; `more` registers further kinds.
    pub async fn over(log: Arc<dyn Log>, more: impl FnOnce(RegistryBuilder) -> RegistryBuilder) -> Self {
        Self::completed(log, more, |_, _| |_, definition| definition).await
    }

    /// The same with subresources: `complete` makes the function that adds them to each definition.
    pub async fn completed<C: Fn(&'static Kind, ResourceDefinition) -> ResourceDefinition>(
        log: Arc<dyn Log>,
        more: impl FnOnce(RegistryBuilder) -> RegistryBuilder,
        complete: impl FnOnce(&Surroundings, &CancellationToken) -> C,
    ) -> Self {
        let end = CancellationToken::new();
        let lookup = Lookup::default();
        let cluster: Arc<dyn Cluster> = Arc::new(StandaloneCluster { lookup: lookup.clone() });
        let packages = Packages::default();
        let surroundings = Surroundings {
            lookup: lookup.clone(),
            cluster: cluster.clone(),
            packages,
            fleets: Fleets::default(),
            hub: Hub::default(),
        };
        let complete = complete(&surroundings, &end);
        let builder = Registry::builder(log).end_with(end.clone());
        let builder = more(register(builder, &surroundings, complete));
        let registry = lookup.build(builder).await.expect("the log is in memory");
        let _guard = end.clone().drop_guard();
        Self { registry, lookup, cluster, end, _guard }
    }

    /// A registry in memory with the objects of [`create_web`](Self::create_web).
    pub async fn with_web() -> Self {
        let this = Self::over(Arc::new(MemoryLog::new()), |builder| builder).await;
        this.create_web().await;
        this
    }

    /// Creates the Stack `web` in the namespace `shop`, and all that a Run of it in the Workspace `dev` refers to.
    pub async fn create_web(&self) {
        for (kind, name, spec) in [
            ("Backend", "default", json!({"type": "Local"})),
            (
                "Workspace",
                "dev",
                json!({"backend": {"name": "default"}, "gitops": {"repository": "file:///deploy.git"}}),
            ),
            ("Source", "config", json!({"remote": "file:///config.git"})),
            ("Project", "web", json!({"source": {"name": "config"}})),
            ("Stack", "web", json!({"project": "web"})),
        ] {
            self.create(kind, name, spec).await;
        }
    }

    /// Creates an object, in the namespace `shop` where its kind has namespaces.
    pub async fn create(&self, kind: &str, name: &str, spec: Value) {
        self.create_in("shop", kind, name, spec).await;
    }

    /// Creates an object in a namespace, where its kind has namespaces.
    ///
    /// # Panics
    ///
    /// When the object is rejected.
    pub async fn create_in(&self, namespace: &str, kind: &str, name: &str, spec: Value) {
        let store = self.registry.stores().find(|store| store.definition().kind == kind).expect("a registered kind");
        let namespace = if store.definition().scope == Scope::Cluster { "" } else { namespace };
        let Value::Object(object) = json!({"metadata": {"name": name}, "spec": spec}) else { unreachable!("a map") };
        let created = store.create(&RequestContext::internal("test"), namespace, Object(object)).await;
        created.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
    }

    /// Deletes an object from the log, whatever refers to it.
    ///
    /// # Panics
    ///
    /// When the log fails.
    pub async fn lose(&self, key: &str) {
        let write = Write::new(Key::new(key), Expect::Any, Change::Delete);
        self.registry.log().append(write).await.expect("the log takes it");
    }
}

/// Sets the deployments in the status of a Stack.
///
/// # Panics
///
/// When they are no deployments.
pub fn deploying(deployments: Value) -> impl Fn(&mut Stack) + Send {
    move |stack| {
        let deployments = serde_json::from_value(deployments.clone()).expect("deployments");
        stack.status.get_or_insert_default().deployments = deployments;
    }
}

/// A record of a run, which destroyed these resources of stack `web` in workspace `dev`.
pub fn destroyed(run: &str, ids: &[&str]) -> crate::destroyed::Destroyed {
    let mut destroyed = crate::destroyed::Destroyed {
        stack: "web".to_owned(),
        stack_uid: "u1".to_owned(),
        project: "web".to_owned(),
        workspace: "dev".to_owned(),
        release: 3,
        run: run.to_owned(),
        run_uid: format!("uid of {run}"),
        requested_by: "system:stoa:stacks".to_owned(),
        caused_by: vec!["ann".to_owned()],
        time: jiff::Timestamp::UNIX_EPOCH,
        resources: Vec::new(),
        more: None,
    };
    destroyed.set_resources(ids.iter().map(|id| (*id).to_owned()).collect());
    destroyed
}
