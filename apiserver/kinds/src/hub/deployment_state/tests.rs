use futures_util::StreamExt as _;
use serde_json::{Value, json};
use stoa_machinery::{
    RequestContext,
    definition::Target,
    registry::{DeleteOptions, Event, List, Store, UpdateSource, WatchOptions},
};
use stoa_types::hub::DeploymentStatus;

use super::*;
use crate::testing::TestRegistry;

const NAMESPACE: &str = "fleet";

fn reconciler(endpoint: &str) -> Value {
    json!({
        "hostName": "drone", "reconcilerName": "web", "reconcilerType": "flux",
        "manifestsEndpoint": format!("https://git.example.com/web/dev/{endpoint}/"),
    })
}

fn descriptor(folder: &str, version: &str) -> Value {
    let manifests = json!({"repo": "https://git.example.com/web", "branch": "dev", "path": folder});
    json!({
        "workload": {
            "name": "web", "source": manifests, "application": {"name": "shop", "workspace": {"name": "team"}},
        },
        "deploymentTarget": {"name": folder, "environment": "dev", "manifests": manifests},
        "workloadVersion": {"version": version, "commit": "abc"},
    })
}

struct World(TestRegistry);

impl World {
    async fn new(reconcilers: usize) -> Self {
        let world = Self(TestRegistry::with_web().await);
        world.create("DeploymentDescriptor", "web-east", descriptor("east", "1.0")).await;
        for at in 0..reconcilers {
            world.create("Reconciler", &format!("r{at}"), reconciler("east")).await;
        }
        world
    }

    async fn create(&self, kind: &str, name: &str, spec: Value) {
        self.0.create_in(NAMESPACE, kind, name, spec).await;
    }

    fn store(&self, kind: &str) -> Arc<Store> {
        self.0.registry.stores().find(|store| store.definition().kind == kind).unwrap().clone()
    }

    /// Sets the commit that a Reconciler reports.
    async fn deploy(&self, name: &str, commit: &str) {
        let set = |reconciler: &mut Reconciler| {
            let since = MicroTime(jiff::Timestamp::UNIX_EPOCH);
            let (git_ops_commit_id, status_message) = (commit.to_owned(), String::new());
            let deployment = stoa_types::hub::ObservedDeployment {
                git_ops_commit_id,
                status: DeploymentStatus::Success,
                status_message,
                since,
            };
            reconciler.status.get_or_insert_default().deployment = Some(deployment);
        };
        self.0.registry.api::<Reconciler>().update_status_with(NAMESPACE, name, set).await.unwrap();
    }

    async fn page(&self, limit: u64, token: Option<String>) -> List {
        let options = ListOptions { limit: Some(limit), continue_token: token, ..ListOptions::default() };
        self.store("DeploymentState").list(Some(NAMESPACE), &options).await.unwrap()
    }

    /// The name and the commit of each state.
    async fn states(&self) -> Vec<String> {
        shown(&self.page(100, None).await)
    }
}

fn shown(list: &List) -> Vec<String> {
    let shown = |state: DeploymentState| {
        let status = state.status.clone().unwrap_or_default();
        format!("{} {}{}", state.name_any(), status.version, status.git_ops_commit_id)
    };
    list.items.iter().map(|stored| shown(stored.decode().unwrap())).collect()
}

#[tokio::test]
async fn pages_of_a_list_show_the_states_that_it_began_with() {
    let world = World::new(3).await;
    let first = world.page(2, None).await;
    assert_eq!(shown(&first), ["r0.web-east ", "r1.web-east "]);
    world.deploy("r2", "c1").await;
    world.create("Reconciler", "r3", reconciler("east")).await;
    let last = world.page(2, first.continue_token).await;
    assert_eq!((shown(&last), last.version), (vec!["r2.web-east ".to_owned()], first.version));
    assert_eq!(last.continue_token, None);
    assert_eq!(world.states().await, ["r0.web-east ", "r1.web-east ", "r2.web-east c1", "r3.web-east "]);
}

#[tokio::test]
async fn states_are_folded_in_their_order() {
    let world = World::new(3).await;
    world.deploy("r1", "c1").await;
    let add = |names: &mut Vec<String>, state: DeploymentState| {
        names.push(format!("{} {}", state.name_any(), state.status.unwrap_or_default().state));
    };
    let names = Hub::default().fold_states(&world.0.lookup, NAMESPACE, Vec::new(), add).await.unwrap();
    assert_eq!(names, ["r0.web-east unknown", "r1.web-east success", "r2.web-east unknown"]);
}

#[tokio::test]
async fn states_follow_changes_of_both_kinds() {
    let world = World::new(2).await;
    assert_eq!(world.states().await, ["r0.web-east ", "r1.web-east "]);
    // Another folder has no descriptor yet.
    world.create("Reconciler", "r2", reconciler("west")).await;
    assert_eq!(world.states().await.len(), 2);
    world.create("DeploymentDescriptor", "web-west", descriptor("west", "2.0")).await;
    assert_eq!(world.states().await, ["r0.web-east ", "r1.web-east ", "r2.web-west "]);
    // The descriptor that has the reported commit counts.
    world.create("DeploymentDescriptor", "web-east-2", descriptor("east", "1.1")).await;
    world.deploy("r0", "c2").await;
    let annotate = |descriptor: &mut DeploymentDescriptor| {
        let annotations = descriptor.metadata.annotations.get_or_insert_default();
        annotations.insert(stoa_types::labels::GITOPS_COMMIT_ID.to_owned(), "c2".to_owned());
    };
    let descriptors = world.0.registry.api::<DeploymentDescriptor>();
    descriptors.update_with(NAMESPACE, "web-east", annotate).await.unwrap();
    let states = world.states().await;
    assert!(states.contains(&"r0.web-east 1.0c2".to_owned()), "{states:?}");
    assert_eq!(states.len(), 3);
    // An object that is deleted takes its states along.
    let context = RequestContext::internal("test");
    for (kind, name) in [("Reconciler", "r2"), ("DeploymentDescriptor", "web-east-2")] {
        world.store(kind).delete(&context, NAMESPACE, name, &DeleteOptions::default()).await.unwrap();
    }
    assert_eq!(world.states().await, ["r0.web-east 1.0c2", "r1.web-east "]);
    // A reconciler that moves to another folder has another state.
    let mut moved = world.store("Reconciler").get(NAMESPACE, "r1", None).await.unwrap().object();
    moved.0["spec"]["manifestsEndpoint"] = "https://git.example.com/web/dev/west".into();
    let change = UpdateSource::Object(moved);
    world.store("Reconciler").update(&context, NAMESPACE, "r1", Target::Main, change).await.unwrap();
    assert_eq!(world.states().await, ["r0.web-east 1.0c2", "r1.web-west "]);
}

#[tokio::test]
async fn watch_of_all_namespaces_misses_no_namespace() {
    let world = World::new(1).await;
    let list = async || world.store("DeploymentState").list(None, &ListOptions::default()).await.unwrap().version;
    let watch = async |version: Version| {
        let options = WatchOptions { resource_version: Some(version.to_string()), ..WatchOptions::default() };
        world.store("DeploymentState").watch(None, &options).await.unwrap().next().await
    };
    let version = list().await;
    world.deploy("r0", "c1").await;
    let event = watch(version).await;
    assert!(matches!(&event, Some(Event::Modified(state)) if state.name() == "r0.web-east"), "{event:?}");

    // A list from before a namespace cannot say what is new in it.
    let version = list().await;
    world.0.create_in("other", "DeploymentDescriptor", "web-east", descriptor("east", "1.0")).await;
    world.0.create_in("other", "Reconciler", "r0", reconciler("east")).await;
    let event = watch(version).await;
    assert!(matches!(&event, Some(Event::Error(error)) if error.code() == 410), "{event:?}");

    // Nor can one whose namespace has no reconcilers any more.
    let version = list().await;
    let context = RequestContext::internal("test");
    world.store("Reconciler").delete(&context, "other", "r0", &DeleteOptions::default()).await.unwrap();
    let event = watch(version).await;
    assert!(matches!(&event, Some(Event::Error(error)) if error.code() == 410), "{event:?}");
}
