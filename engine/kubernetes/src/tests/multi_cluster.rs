//! Tests of Runs over several clusters, some of which may be unavailable.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use stoa_apply::{
    Abandoned, Execution, Intended, Interrupted, Observer, Options, Outcome, PlanError, Planned, Planning,
    ResourceOutcome, ResourceResult,
};
use stoa_engine::{Action, DigestKeys, OpenCall, Resource, ResourceId, Spec, State, StateResource};
use stoa_runtime::{Health, Runtime};
use tokio_util::sync::CancellationToken;

use crate::KindHealth;
use crate::testing::{Server, runtime_of, widget};

mod aggregated_apis;
mod changed_definitions;
mod cluster_aliases;
mod created_after_plan;
mod default_namespaces;
mod forgotten_clusters;
mod permanent_errors;
mod recovery;
mod recreated_objects;
mod served_versions;
mod terminating;
mod unavailable_clusters;

/// An observer that records everything, as the API server does.
#[derive(Debug, Default)]
struct RecordingObserver {
    records: Mutex<BTreeMap<ResourceId, StateResource>>,
    open: Mutex<BTreeMap<ResourceId, OpenCall>>,
    results: Mutex<Vec<(String, Action, ResourceOutcome)>>,
    /// It keeps no result any more.
    is_gone: AtomicBool,
}

#[async_trait]
impl Observer for RecordingObserver {
    async fn intent(&self, calls: &[Intended], action: Action) -> Result<(), Abandoned> {
        let open =
            |Intended { id, place }| (id.clone(), OpenCall { id, action, run: "run".to_owned(), place, retry: false });
        self.open.lock().unwrap().extend(calls.iter().cloned().map(open));
        Ok(())
    }

    async fn result(&self, result: ResourceResult) -> Result<(), Abandoned> {
        if self.is_gone.load(Ordering::SeqCst) {
            return Err(Abandoned);
        }
        let mut records = self.records.lock().unwrap();
        match (result.outcome, result.resource) {
            (ResourceOutcome::Done | ResourceOutcome::Failed, Some(record)) => {
                records.insert(result.id.clone(), record);
            }
            (ResourceOutcome::Done, None) => drop(records.remove(&result.id)),
            (ResourceOutcome::Failed | ResourceOutcome::Skipped | ResourceOutcome::Unknown, _) => {}
        }
        if result.outcome != ResourceOutcome::Unknown {
            self.open.lock().unwrap().remove(&result.id);
        }
        let short = result.id.0.trim_start_matches("example.com/v1:Widget:shop:").to_owned();
        self.results.lock().unwrap().push((short, result.action, result.outcome));
        Ok(())
    }

    async fn health(&self, _: &ResourceId, _: Health, _: &str) {}

    async fn health_timed_out(&self, _: &ResourceId, _: Health, _: &str) {}
}

/// A deployment to the clusters `main` and `east`.
struct Deployment {
    main: Server,
    east: Server,
    observer: Arc<RecordingObserver>,
    keys: DigestKeys,
    /// The policies of its workspace.
    policies: Vec<KindHealth>,
    /// Forgotten clusters of its runs.
    forget: Vec<String>,
}

impl Deployment {
    fn new() -> Self {
        Self::over(Server::default(), Server::default())
    }

    /// To one server that has two names.
    fn to_one_server() -> Self {
        let server = Server::default();
        Self::over(server.clone(), server)
    }

    fn over(main: Server, east: Server) -> Self {
        let (observer, policies, forget) = Default::default();
        Self { main, east, observer, keys: DigestKeys::new(&[7; 32], &[]), policies, forget }
    }

    fn state(&self) -> State {
        let (records, open) = (self.observer.records.lock().unwrap(), self.observer.open.lock().unwrap());
        State { resources: records.values().cloned().collect(), open: open.values().cloned().collect() }
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        let runtime = runtime_of(&[("main", &self.main), ("east", &self.east)]);
        Arc::new(runtime.with_health_policies(&self.policies).unwrap())
    }

    async fn plan(&self, spec: &Spec) -> Result<Planned, PlanError> {
        self.planned_to(spec, false).await
    }

    async fn planned_to(&self, spec: &Spec, refresh: bool) -> Result<Planned, PlanError> {
        let state = self.state();
        let planning = Planning {
            spec,
            spec_digest: "digest",
            state: &state,
            destroy: false,
            refresh,
            keys: &self.keys,
            forget_clusters: &self.forget,
            hooks: None,
        };
        stoa_apply::plan(self.runtime(), &planning).await
    }

    /// What is planned: actions by id.
    async fn planned(&self, spec: &Spec) -> Vec<(String, Action, Option<String>)> {
        let planned = self.plan(spec).await.unwrap();
        let short = |id: &ResourceId| id.0.trim_start_matches("example.com/v1:Widget:shop:").to_owned();
        let mut actions: Vec<_> =
            planned.plan.actions.into_iter().map(|it| (short(&it.id), it.action, it.unverified)).collect();
        actions.sort_by(|a, b| a.0.cmp(&b.0));
        actions
    }

    /// Plans and applies; returns the result of each resource, in order.
    async fn apply(&self, spec: &Spec) -> (Outcome, Vec<(String, Action, ResourceOutcome)>) {
        let planned = self.plan(spec).await.unwrap();
        self.carry_out(spec, &planned).await
    }

    /// Plans and makes the calls without recording a result.
    async fn crash(&self, spec: &Spec) {
        let planned = self.plan(spec).await.unwrap();
        self.observer.is_gone.store(true, Ordering::SeqCst);
        assert_eq!(self.execute(spec, &planned).await, Err(Abandoned.into()));
        self.observer.is_gone.store(false, Ordering::SeqCst);
    }

    /// Plans and applies what has to succeed and leave no call open; the actions by id.
    async fn brings(&self, spec: &Spec) -> Vec<(String, Action)> {
        let (outcome, results) = self.apply(spec).await;
        assert!(outcome.succeeded, "{outcome:?}");
        assert_eq!(self.state().open, []);
        let mut actions: Vec<_> = results.into_iter().map(|(id, action, _)| (id, action)).collect();
        actions.sort();
        actions
    }

    /// In which clusters the open call for an object may have left something.
    fn open(&self) -> Vec<String> {
        let [open] = &self.state().open[..] else { panic!("one call is open: {:?}", self.state().open) };
        open.place.clusters.clone()
    }

    async fn carry_out(&self, spec: &Spec, planned: &Planned) -> (Outcome, Vec<(String, Action, ResourceOutcome)>) {
        self.observer.results.lock().unwrap().clear();
        let outcome = self.execute(spec, planned).await.unwrap();
        (outcome, self.observer.results.lock().unwrap().clone())
    }

    async fn execute(&self, spec: &Spec, planned: &Planned) -> Result<Outcome, Interrupted> {
        let state = self.state();
        let execution = Execution {
            spec,
            spec_digest: "digest",
            plan: &planned.plan,
            state: &state,
            done: &[],
            failed_hooks: &[],
            owed: &[],
            keys: &self.keys,
            import: None,
            run: "run",
        };
        let (observer, cancel) = (self.observer.clone() as Arc<dyn Observer>, CancellationToken::new());
        stoa_apply::execute(execution, self.runtime(), observer, &Options::default(), cancel).await
    }

    fn uid(&self, name: &str) -> Value {
        self.main.object("shop", name).unwrap()["metadata"]["uid"].clone()
    }

    /// The values of an object in each cluster, if it is there.
    fn values(&self, name: &str) -> [Option<Value>; 2] {
        [&self.main, &self.east].map(|server| server.object("shop", name).map(|object| object["spec"]["value"].clone()))
    }
}

/// A widget of a cluster, with its name in the id where there is one of that name in another.
fn in_cluster(cluster: &str, name: &str, value: &str, is_twin: bool) -> Resource {
    let mut resource = widget("shop", name);
    resource.attributes.insert("spec".to_owned(), json!({ "value": value }));
    if !cluster.is_empty() {
        resource.extensions.insert("cluster".to_owned(), cluster.into());
    }
    if is_twin {
        resource.id.0.push_str(&format!("/{cluster}"));
    }
    resource
}

fn spec(resources: Vec<Resource>) -> Spec {
    Spec { resources, ..Spec::default() }
}

#[tokio::test(start_paused = true)]
async fn run_applies_across_two_clusters() {
    let deployment = Deployment::new();
    let first = in_cluster("", "first", "a", false);
    let mut second =
        in_cluster("east", "second", "uid is ${kusion_path.example.com/v1:Widget:shop:first.metadata.uid}", false);
    second.depends_on.clear();
    let mut third = in_cluster("main", "third", "$kusion_path.example.com/v1:Widget:shop:second.spec.value", false);
    third.depends_on.push(second.id.clone());
    let spec = spec(vec![third, second, first]);
    let (outcome, results) = deployment.apply(&spec).await;
    assert!(outcome.succeeded, "{outcome:?}");
    let order: Vec<&str> = results.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(order, ["first", "second", "third"]);
    let uid = deployment.main.object("shop", "first").unwrap()["metadata"]["uid"].clone();
    let value = Some(json!(format!("uid is {}", uid.as_str().unwrap())));
    assert_eq!(deployment.values("second"), [None, value.clone()]);
    assert_eq!(deployment.values("third"), [value, None]);
    let clusters: Vec<String> = deployment.state().resources.into_iter().map(|record| record.cluster).collect();
    assert_eq!(clusters, ["main", "east", "main"]);
    assert!(deployment.planned(&spec).await.iter().all(|(_, action, _)| *action == Action::Unchanged));
}

#[tokio::test(start_paused = true)]
async fn same_name_in_two_clusters_is_two_objects() {
    let deployment = Deployment::new();
    let twins = || vec![in_cluster("", "web", "here", false), in_cluster("east", "web", "there", true)];
    assert!(deployment.apply(&spec(twins())).await.0.succeeded);
    assert_eq!(deployment.values("web"), [Some(json!("here")), Some(json!("there"))]);
    assert_eq!(deployment.state().resources.len(), 2);

    // Somebody else's object of that name in another cluster is not looked at.
    let (outcome, results) = deployment.apply(&spec(twins()[1..].to_vec())).await;
    assert!(outcome.succeeded);
    assert!(results.contains(&("web".to_owned(), Action::Delete, ResourceOutcome::Done)), "{results:?}");
    assert_eq!(deployment.values("web"), [None, Some(json!("there"))]);
    let (outcome, _) = deployment.apply(&spec(twins()[..1].to_vec())).await;
    assert!(outcome.succeeded);
    assert_eq!(deployment.values("web"), [Some(json!("here")), None]);
    assert_eq!(deployment.state().resources[0].cluster, "main");
}

#[tokio::test(start_paused = true)]
async fn object_moves_to_another_cluster() {
    let deployment = Deployment::new();
    assert!(deployment.apply(&spec(vec![in_cluster("", "web", "a", false)])).await.0.succeeded);
    let moved = spec(vec![in_cluster("east", "web", "a", false)]);
    let planned = deployment.plan(&moved).await.unwrap();
    let action = &planned.plan.actions[0];
    assert_eq!((action.action, action.changes[0].path.as_str()), (Action::Replace, "cluster"));
    assert_eq!((&action.changes[0].before, &action.changes[0].after), (&Some(json!("main")), &Some(json!("east"))));
    let (outcome, _) = deployment.carry_out(&moved, &planned).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(deployment.values("web"), [None, Some(json!("a"))]);
    assert_eq!(deployment.planned(&moved).await, [("web".to_owned(), Action::Unchanged, None)]);

    // The workspace's first cluster by its name, or by none, is the same place.
    assert!(deployment.apply(&spec(vec![in_cluster("", "web", "a", false)])).await.0.succeeded);
    let named = spec(vec![in_cluster("main", "web", "a", false)]);
    assert_eq!(deployment.planned(&named).await, [("web".to_owned(), Action::Unchanged, None)]);
    let both = spec(vec![in_cluster("", "web", "a", false), in_cluster("main", "web", "b", true)]);
    let Err(PlanError::Problems(problems)) = deployment.plan(&both).await else { panic!("one object twice") };
    assert!(problems[0].message.contains("the same object as"), "{problems:?}");
}

#[tokio::test(start_paused = true)]
async fn refresh_reads_recorded_cluster() {
    let deployment = Deployment::new();
    let released = spec(vec![in_cluster("", "web", "a", false)]);
    deployment.brings(&released).await;
    // As a run does that fails after that.
    deployment.brings(&spec(vec![in_cluster("east", "web", "b", false)])).await;
    let looked = async || {
        let planned = deployment.planned_to(&released, true).await.unwrap();
        let action = &planned.plan.actions[0];
        (action.action, action.drift, action.unverified.is_some())
    };
    assert_eq!(looked().await, (Action::Unchanged, false, false));
    deployment.east.be_away(true);
    assert_eq!(looked().await, (Action::Update, false, true));
    deployment.east.be_away(false);
    deployment.east.remove("shop", "web");
    assert_eq!(looked().await, (Action::Create, true, false));
}

#[tokio::test(start_paused = true)]
async fn imported_object_stays_in_former_cluster() {
    let deployment = Deployment::new();
    let imported = |cluster: &str| {
        let mut resource = in_cluster(cluster, "web", "a", false);
        resource.extensions.insert("kusionstack.io/import-id".to_owned(), json!("shop/web"));
        spec(vec![resource])
    };
    assert!(deployment.apply(&imported("")).await.0.succeeded);
    let (outcome, _) = deployment.apply(&imported("east")).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(deployment.values("web"), [Some(json!("a")), Some(json!("a"))]);
}

#[tokio::test(start_paused = true)]
async fn renamed_cluster_keeps_objects_and_missing_is_reported() {
    let mut deployment = Deployment::new();
    assert!(deployment.apply(&spec(vec![in_cluster("", "web", "a", false)])).await.0.succeeded);
    let rename = |deployment: &Deployment| {
        for record in deployment.observer.records.lock().unwrap().values_mut() {
            record.cluster = "before".to_owned();
        }
    };
    rename(&deployment);
    assert_eq!(
        deployment.planned(&spec(vec![in_cluster("", "web", "a", false)])).await,
        [("web".to_owned(), Action::Unchanged, None)]
    );
    // Another server under that name has no such object.
    deployment.main = Server::default();
    rename(&deployment);
    let Err(PlanError::Problems(problems)) = deployment.plan(&spec(vec![in_cluster("", "web", "a", false)])).await
    else {
        panic!("what is in a cluster that nobody knows cannot be removed")
    };
    assert!(problems[0].message.contains("cluster before, which the workspace does not have"), "{problems:?}");
}

#[tokio::test(start_paused = true)]
async fn unavailable_cluster_fails_its_resources_only() {
    let deployment = Deployment::new();
    let resources = |value: &str| {
        let mut after = in_cluster("", "after", value, false);
        after.depends_on.push(in_cluster("east", "there", value, false).id);
        vec![in_cluster("", "here", value, false), in_cluster("east", "there", value, false), after]
    };
    let first = spec(resources("a"));
    assert!(deployment.apply(&first).await.0.succeeded);

    // Before the plan: what is there cannot be looked at, and the rest is done.
    deployment.east.be_away(true);
    let second = spec(resources("b"));
    let unknown = Some("cluster east does not answer".to_owned());
    assert_eq!(
        deployment.planned(&second).await,
        [
            ("after".to_owned(), Action::Update, None),
            ("here".to_owned(), Action::Update, None),
            ("there".to_owned(), Action::Update, unknown),
        ]
    );
    let (outcome, mut results) = deployment.apply(&second).await;
    results.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(!outcome.succeeded);
    assert_eq!(
        results,
        [
            ("after".to_owned(), Action::Update, ResourceOutcome::Skipped),
            ("here".to_owned(), Action::Update, ResourceOutcome::Done),
            ("there".to_owned(), Action::Update, ResourceOutcome::Failed),
        ]
    );
    assert_eq!(deployment.values("here"), [Some(json!("b")), None]);
    assert_eq!(deployment.values("after"), [Some(json!("a")), None]);

    // Nothing was asked for there, and nothing else is held up the next time either.
    assert_eq!(deployment.state().open, []);
    let third = spec(resources("c"));
    let (outcome, _) = deployment.apply(&third).await;
    assert!(!outcome.succeeded);
    assert_eq!(
        (deployment.values("here"), deployment.values("after")),
        ([Some(json!("c")), None], [Some(json!("a")), None])
    );
    // Back again, everything comes to what is wanted.
    deployment.east.be_away(false);
    let (outcome, _) = deployment.apply(&third).await;
    assert!(outcome.succeeded, "{outcome:?}");
    assert_eq!(
        (deployment.values("there"), deployment.values("after")),
        ([None, Some(json!("c"))], [Some(json!("c")), None])
    );
}

#[tokio::test(start_paused = true)]
async fn cluster_lost_after_plan_delays_no_other() {
    let deployment = Deployment::new();
    let many =
        |cluster: &str| (0..64).map(|n| in_cluster(cluster, &format!("{cluster}-{n}"), "a", false)).collect::<Vec<_>>();
    let spec = spec(many("east").into_iter().chain(many("main")).collect());
    let planned = deployment.plan(&spec).await.unwrap();
    deployment.east.be_away(true);
    let began = tokio::time::Instant::now();
    let (outcome, results) = deployment.carry_out(&spec, &planned).await;
    assert!(!outcome.succeeded);
    let done = results.iter().filter(|(id, _, outcome)| id.starts_with("main-") && *outcome == ResourceOutcome::Done);
    assert_eq!(done.count(), 64);
    assert!(results.iter().all(|(id, _, outcome)| id.starts_with("main-") || *outcome != ResourceOutcome::Done));
    // What is asked first is tried for a while; then the cluster is given up.
    let took = began.elapsed();
    assert!(took.as_secs() < 180, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn unavailability_of_all_clusters_is_retryable() {
    let deployment = Deployment::new();
    deployment.main.be_away(true);
    deployment.east.be_away(true);
    let spec = spec(vec![in_cluster("", "a", "a", false), in_cluster("east", "b", "b", false)]);
    let Err(PlanError::Runtime(error)) = deployment.plan(&spec).await else { panic!("nothing can be planned") };
    assert!(error.is_retryable(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn recorded_health_policy_is_used() {
    let deployment = Deployment::new();
    let mut web = in_cluster("east", "web", "a", false);
    let policy = json!({"cel": {"current": "status.phase == 'Running'", "failed": "status.phase == 'Broken'"}});
    web.extensions.insert("healthPolicy".to_owned(), policy);
    let spec = spec(vec![web, in_cluster("", "other", "a", false)]);
    let run = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(deployment.state().resources.len() == 2, "it was applied, and is waited for");
        deployment.east.set("shop", "web", json!({"phase": "Running"}));
    };
    let ((outcome, _), ()) = tokio::join!(deployment.apply(&spec), run);
    assert!(outcome.succeeded, "{outcome:?}");
    let runtime = deployment.runtime();
    assert_eq!(stoa_apply::unhealthy(&*runtime, &deployment.state()).await.unwrap(), []);
    // By the conventions both would be healthy.
    for (phase, says) in [("Broken", "it is Failed"), ("Starting", "it is InProgress")] {
        deployment.east.set("shop", "web", json!({ "phase": phase }));
        let found = stoa_apply::unhealthy(&*runtime, &deployment.state()).await.unwrap();
        let told: Vec<_> = found.iter().map(|it| (it.id.0.as_str(), it.message.as_str())).collect();
        assert_eq!(told, [("example.com/v1:Widget:shop:web", says)]);
    }
}

#[tokio::test(start_paused = true)]
async fn workspace_health_policy_is_used() {
    let of_kind = |api_version: &str, current: &str| KindHealth {
        api_version: api_version.to_owned(),
        kind: "Widget".to_owned(),
        current: current.to_owned(),
        failed: Some("status.phase == 'Broken'".to_owned()),
        ..KindHealth::default()
    };
    // Of whatever version of the group, and of no other group.
    let policies = vec![of_kind("other.com/v1", "false"), of_kind("example.com/v9", "status.phase == 'Running'")];
    let deployment = Deployment { policies, ..Deployment::new() };
    let (mut own, mut noted) = (in_cluster("", "own", "a", false), in_cluster("", "noted", "a", false));
    own.extensions.insert("healthPolicy".to_owned(), json!({"cel": {"current": "status.phase == 'Own'"}}));
    let annotations = json!({"stoa.dev/health-current": "status.phase == 'Noted'"});
    noted.attributes["metadata"]["annotations"] = annotations;
    let spec = spec(vec![own, noted, in_cluster("east", "plain", "a", false)]);
    let run = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(deployment.state().resources.len() == 3, "all are applied, and waited for");
        deployment.main.set("shop", "own", json!({"phase": "Own"}));
        deployment.main.set("shop", "noted", json!({"phase": "Noted"}));
        deployment.east.set("shop", "plain", json!({"phase": "Running"}));
    };
    let ((outcome, _), ()) = tokio::join!(deployment.apply(&spec), run);
    assert!(outcome.succeeded, "{outcome:?}");
    let runtime = deployment.runtime();
    assert_eq!(stoa_apply::unhealthy(&*runtime, &deployment.state()).await.unwrap(), []);
    deployment.main.set("shop", "own", json!({"phase": "Broken"}));
    deployment.east.set("shop", "plain", json!({"phase": "Broken"}));
    let found = stoa_apply::unhealthy(&*runtime, &deployment.state()).await.unwrap();
    let told: Vec<_> = found.iter().map(|it| (it.id.0.as_str(), it.message.as_str())).collect();
    let expected =
        [("example.com/v1:Widget:shop:own", "it is InProgress"), ("example.com/v1:Widget:shop:plain", "it is Failed")];
    assert_eq!(told, expected);
}
