//! A deployment on real providers, whose state is recorded as the API server does.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use stoa_apply::{
    Abandoned, Execution, Grant, Intended, Observer, Options, Outcome, PlanError, Planned, Planning, ResourceOutcome,
    ResourceResult,
};
use stoa_engine::{
    Action, DigestKeys, OpenCall, Owner, PlannedAction, Problem, ResourceId, ResourceType, Spec, State, StateResource,
};
use stoa_runtime::fake::FakeCloud;
use stoa_runtime::{Health, Runtime, RuntimeError, RuntimeSet};
use stoa_runtime_terraform::{ProviderRequest, Providers, TerraformRuntime};
use stoa_terraform_provider::pool::{Lease, Pool, PoolOptions, ProviderSpec};
use stoa_terraform_provider::process::{DirectLauncher, Network};
use stoa_terraform_provider::testing::executable;
use tokio_util::sync::CancellationToken;

/// Providers without a mirror: executables by the type in their address.
#[derive(Debug)]
struct Executables {
    pool: Pool,
    known: HashMap<&'static str, (PathBuf, [u8; 32])>,
    /// The configuration of all providers, such as a folder.
    configuration: Map<String, Value>,
}

#[async_trait]
impl Providers for Executables {
    async fn get(&self, request: &ProviderRequest<'_>) -> Result<Lease, RuntimeError> {
        let missing = || RuntimeError::Invalid { message: format!("no {}", request.address), field: None };
        let (executable, digest) = self.known.get(request.address.kind.as_str()).ok_or_else(missing)?;
        let mut configuration = match request.address.kind.as_str() {
            "frame" | "legacy" => self.configuration.clone(),
            _ => Map::new(),
        };
        configuration.extend(request.configuration.cloned().unwrap_or_default());
        let spec = ProviderSpec {
            tenant: "test".into(),
            network: Network::Allow,
            executable: executable.clone(),
            digest: *digest,
            environment: Vec::new(),
            configuration: (&Value::Object(configuration)).into(),
        };
        self.pool.get(&spec).await.map_err(|error| RuntimeError::Unread { message: error.to_string() })
    }

    fn destination(&self) -> String {
        "executables".to_owned()
    }
}

/// One stack in one workspace.
#[derive(Debug)]
pub(crate) struct Deployment {
    providers: Arc<Executables>,
    pub(crate) cloud: FakeCloud,
    pub(crate) recorder: Arc<Recorder>,
    keys: DigestKeys,
    /// The folder of the objects of our own providers.
    pub(crate) folder: tempfile::TempDir,
    /// Whether Kubernetes' objects are files of a commit.
    pub(crate) in_git: bool,
}

impl Deployment {
    /// A deployment with these providers; `None` where one of them is not there.
    pub(crate) fn with(providers: &[&'static str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let configuration = json!({"folder": folder.path()}).as_object().unwrap().clone();
        Self::configured(providers, folder, configuration)
    }

    /// The same where every object of our own providers exists.
    pub(crate) fn without_folder(providers: &[&'static str]) -> Option<Self> {
        Self::configured(providers, tempfile::tempdir().unwrap(), Map::new())
    }

    fn configured(
        providers: &[&'static str],
        folder: tempfile::TempDir,
        configuration: Map<String, Value>,
    ) -> Option<Self> {
        let mut known = HashMap::new();
        for provider in providers {
            let executable = executable(provider)?;
            let digest = stoa_terraform_provider::package::digest(&executable).unwrap();
            known.insert(*provider, (executable, digest));
        }
        let pool = Pool::new(PoolOptions::new(Arc::new(DirectLauncher)));
        Some(Self {
            providers: Arc::new(Executables { pool, known, configuration }),
            cloud: FakeCloud::default(),
            recorder: Arc::default(),
            keys: DigestKeys::new(&[7; 32], &[]),
            folder,
            in_git: false,
        })
    }

    pub(crate) fn terraform(&self, owner: Owner) -> TerraformRuntime {
        TerraformRuntime::new(owner, self.providers.clone())
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        let kubernetes = if self.in_git { self.cloud.runtime().deferred() } else { self.cloud.runtime() };
        let owner: Owner = kubernetes.owner().clone();
        let terraform = TerraformRuntime::new(owner.clone(), self.providers.clone());
        let set = RuntimeSet::new(owner).with(ResourceType::Kubernetes, Arc::new(kubernetes));
        Arc::new(set.with(ResourceType::Terraform, Arc::new(terraform)))
    }

    async fn planned(&self, spec: &Spec, [destroy, refresh]: [bool; 2]) -> Result<Planned, PlanError> {
        let state = self.recorder.state();
        let planning = Planning {
            spec,
            spec_digest: &spec.digest(),
            state: &state,
            destroy,
            refresh,
            keys: &self.keys,
            forget_clusters: &[],
            hooks: None,
        };
        stoa_apply::plan(self.runtime(), &planning).await
    }

    pub(crate) async fn plan(&self, spec: &Spec) -> Planned {
        self.planned(spec, [false, false]).await.unwrap()
    }

    pub(crate) async fn refresh(&self, spec: &Spec) -> Planned {
        self.planned(spec, [false, true]).await.unwrap()
    }

    /// The problems of a plan.
    pub(crate) async fn refusal(&self, spec: &Spec) -> Vec<Problem> {
        match self.planned(spec, [false, false]).await {
            Err(PlanError::Problems(problems)) => problems,
            other => panic!("{other:?} instead of problems"),
        }
    }

    pub(crate) async fn execute(&self, spec: &Spec, planned: &Planned) -> Outcome {
        let state = self.recorder.state();
        let execution = Execution {
            spec,
            spec_digest: &spec.digest(),
            plan: &planned.plan,
            state: &state,
            done: &[],
            failed_hooks: &[],
            owed: &[],
            keys: &self.keys,
            import: None,
            run: "run",
        };
        let options = Options {
            parallelism: 4,
            resource_timeout: Duration::from_secs(60),
            provider_timeout: Duration::from_secs(60),
            health_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(10),
            grant: Grant::unlimited(),
            ..Options::default()
        };
        let observer: Arc<dyn Observer> = self.recorder.clone();
        stoa_apply::execute(execution, self.runtime(), observer, &options, CancellationToken::new()).await.unwrap()
    }

    /// Plans and applies, which succeeds.
    pub(crate) async fn apply(&self, spec: &Spec) -> Planned {
        let planned = self.plan(spec).await;
        let outcome = self.execute(spec, &planned).await;
        assert!(outcome.succeeded, "{:?}", outcome.problems);
        planned
    }

    pub(crate) async fn destroy(&self) -> Planned {
        let spec = Spec::default();
        let planned = self.planned(&spec, [true, false]).await.unwrap();
        let outcome = self.execute(&spec, &planned).await;
        assert!(outcome.succeeded, "{:?}", outcome.problems);
        planned
    }

    /// The attributes in the record's state of a provider, if it is recorded.
    pub(crate) fn attributes(&self, id: &str) -> Option<Map<String, Value>> {
        let is_recorded = self.recorder.state().resources.iter().any(|record| record.id.0 == id);
        is_recorded.then(|| self.provider_state(id)["attributes"].as_object().unwrap().clone())
    }

    /// The text in the record's state of a provider.
    pub(crate) fn provider_state(&self, id: &str) -> Value {
        let record = self.recorder.record(id);
        serde_json::from_str(record.provider_state.as_ref().unwrap().open().unwrap()).unwrap()
    }
}

/// Everything that was recorded.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    records: Mutex<BTreeMap<ResourceId, StateResource>>,
    open: Mutex<BTreeMap<ResourceId, OpenCall>>,
    pub(crate) results: Mutex<Vec<ResourceResult>>,
}

impl Recorder {
    pub(crate) fn state(&self) -> State {
        let open = self.open.lock().unwrap().values().cloned().collect();
        State { resources: self.records.lock().unwrap().values().cloned().collect(), open }
    }

    pub(crate) fn record(&self, id: &str) -> StateResource {
        self.records.lock().unwrap()[id].clone()
    }

    /// A user confirms that the open calls left nothing behind.
    pub(crate) fn retry(&self) {
        self.open.lock().unwrap().values_mut().for_each(|call| call.retry = true);
    }

    /// Everything that anybody may see, without the states of providers.
    pub(crate) fn shown(&self) -> String {
        let mut state = self.state();
        state.resources.iter_mut().for_each(|record| record.provider_state = None);
        let results = self.results.lock().unwrap();
        let messages: Vec<_> = results.iter().map(|it| (it.message.clone(), it.problem.clone())).collect();
        format!("{} {messages:?}", serde_json::to_string(&state).unwrap())
    }
}

#[async_trait]
impl Observer for Recorder {
    async fn intent(&self, calls: &[Intended], action: Action) -> Result<(), Abandoned> {
        for Intended { id, place } in calls.iter().cloned() {
            let call = OpenCall { id: id.clone(), action, run: "run".to_owned(), place, retry: false };
            self.open.lock().unwrap().insert(id, call);
        }
        Ok(())
    }

    async fn result(&self, result: ResourceResult) -> Result<(), Abandoned> {
        let mut records = self.records.lock().unwrap();
        match (result.outcome, &result.resource) {
            (ResourceOutcome::Done | ResourceOutcome::Failed, Some(record)) => {
                // As it is sent and stored.
                let stored = serde_json::to_value(record).unwrap();
                records.insert(result.id.clone(), serde_json::from_value(stored).unwrap());
            }
            (ResourceOutcome::Done, None) => drop(records.remove(&result.id)),
            (ResourceOutcome::Failed | ResourceOutcome::Skipped | ResourceOutcome::Unknown, _) => {}
        }
        if result.outcome != ResourceOutcome::Unknown {
            self.open.lock().unwrap().remove(&result.id);
        }
        self.results.lock().unwrap().push(result);
        Ok(())
    }

    async fn health(&self, _: &ResourceId, _: Health, _: &str) {}

    async fn health_timed_out(&self, _: &ResourceId, _: Health, _: &str) {}
}

pub(crate) fn spec(resources: Vec<Value>) -> Spec {
    serde_json::from_value(json!({ "resources": resources })).unwrap()
}

/// A resource of a provider, whose type begins with the provider's.
pub(crate) fn resource(kind: &str, name: &str, attributes: Value) -> Value {
    let provider = kind.split('_').next().unwrap();
    json!({
        "id": id(kind, name),
        "type": "Terraform",
        "attributes": attributes,
        "extensions": {"provider": format!("hashicorp/{provider}/1.0.0"), "resourceType": kind},
    })
}

/// A data source of a provider. Its id differs from that of a resource of the same type and name.
pub(crate) fn data(kind: &str, name: &str, attributes: Value) -> Value {
    let mut data = resource(kind, name, attributes);
    data["id"] = data_id(kind, name).into();
    data["extensions"]["mode"] = "data".into();
    data
}

/// An ephemeral resource of a provider.
pub(crate) fn ephemeral(kind: &str, name: &str, attributes: Value) -> Value {
    let mut ephemeral = resource(kind, name, attributes);
    ephemeral["extensions"]["mode"] = "ephemeral".into();
    ephemeral
}

pub(crate) fn data_id(kind: &str, name: &str) -> String {
    format!("{}:data", id(kind, name))
}

pub(crate) fn id(kind: &str, name: &str) -> String {
    format!("hashicorp:{}:{kind}:{name}", kind.split('_').next().unwrap())
}

/// A reference to an attribute of a resource.
pub(crate) fn of(kind: &str, name: &str, path: &str) -> String {
    format!("$kusion_path.{}.{path}", id(kind, name))
}

pub(crate) fn object(kind: &str, name: &str, content: Value) -> Value {
    let mut attributes = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"}});
    attributes.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
    json!({"id": format!("v1:{kind}:shop:{name}"), "type": "Kubernetes", "attributes": attributes})
}

pub(crate) fn action<'p>(planned: &'p Planned, id: &str) -> &'p PlannedAction {
    planned.plan.actions.iter().find(|action| action.id.0 == id).unwrap()
}
