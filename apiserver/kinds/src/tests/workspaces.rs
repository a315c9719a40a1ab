//! Workspaces: what is deployed and kept by them is found where they lead.

use stoa_machinery::strategy::Strategy as _;
use stoa_types::{
    Release, Run, Stack, Workspace,
    delivery::RunPhase,
    platform::{Cluster, CommitMode, KubernetesTarget, PullRequests},
};

use super::*;
use crate::workspace::WorkspaceStrategy;

impl World {
    /// So many resources of the stack are live in the workspace.
    async fn deploy(&self, resources: u64) {
        let set = deploying(json!([{ "workspace": "dev", "resources": resources }]));
        self.registry.api::<Stack>().update_status_with("shop", "web-dev", set).await.unwrap();
    }

    /// Changes the workspace; what it is refused with, if it is.
    async fn lead(&self, change: fn(&mut Workspace)) -> Option<String> {
        let changed = self.registry.api::<Workspace>().update_with("", "dev", change).await;
        let error = changed.err()?;
        assert_eq!(error.code(), 409, "{error}");
        let begin = r#"Operation cannot be fulfilled on workspaces.platform.stoa.dev "dev": "#;
        Some(error.message().strip_prefix(begin).unwrap().to_owned())
    }
}

fn to_a_cluster(workspace: &mut Workspace) {
    let clusters = vec![Cluster { name: "main".to_owned(), in_cluster: true, ..Cluster::default() }];
    workspace.spec.kubernetes = Some(KubernetesTarget { clusters, ..KubernetesTarget::default() });
    workspace.spec.gitops = None;
}

fn to_a_repository(workspace: &mut Workspace) {
    let gitops = json!({ "repository": "file:///deploy.git" });
    workspace.spec.gitops = serde_json::from_value(gitops).unwrap();
    workspace.spec.kubernetes = None;
}

fn elsewhere(workspace: &mut Workspace) {
    let gitops = workspace.spec.gitops.as_mut().unwrap();
    gitops.repository = "file:///other.git".to_owned();
    gitops.branch = "other".to_owned();
}

fn to_a_folder(workspace: &mut Workspace) {
    workspace.spec.gitops.as_mut().unwrap().directory = "stage".to_owned();
}

fn to_nowhere(workspace: &mut Workspace) {
    workspace.spec.gitops = None;
}

/// What is changed leads to the same place.
fn otherwise(workspace: &mut Workspace) {
    workspace.spec.description = Some("Changed".to_owned());
    if let Some(gitops) = &mut workspace.spec.gitops {
        gitops.mode = CommitMode::PullRequest;
        gitops.repository = "https://git.example.com/shop/deploy.git".to_owned();
        gitops.pull_request = Some(PullRequests::default());
    }
    if let Some(kubernetes) = &mut workspace.spec.kubernetes {
        kubernetes.clusters.push(Cluster { name: "more".to_owned(), in_cluster: true, ..Cluster::default() });
    }
}

const DEPLOYED: &str = "stack shop/web-dev is deployed in workspace dev; destroy it first";

#[tokio::test]
async fn deployed_workspace_rejects_target_change() {
    let world = World::with_stack().await;
    world.deploy(1).await;
    let refused = |fields: &str| Some(format!("{fields}: {DEPLOYED}"));
    assert_eq!(world.lead(elsewhere).await, refused("spec.gitops.repository, spec.gitops.branch"));
    assert_eq!(world.lead(to_a_folder).await, refused("spec.gitops.directory"));
    assert_eq!(world.lead(to_a_cluster).await, refused("spec.gitops"));
    assert_eq!(world.lead(to_nowhere).await, refused("spec.gitops"));

    world.deploy(0).await;
    assert_eq!(world.lead(to_a_folder).await, None);
    assert_eq!(world.lead(to_a_cluster).await, None);
    world.deploy(1).await;
    assert_eq!(world.lead(to_a_repository).await, refused("spec.kubernetes"));
    assert_eq!(world.lead(otherwise).await, None, "clusters are known by their names");
}

#[tokio::test]
async fn deployed_workspace_accepts_change_with_same_target() {
    let world = World::with_stack().await;
    // The server of pull requests has to be known, which is where the repository is.
    let remote = |workspace: &mut Workspace| {
        workspace.spec.gitops.as_mut().unwrap().repository = "https://git.example.com/shop/deploy.git".to_owned();
    };
    assert_eq!(world.lead(remote).await, None);
    world.deploy(1).await;
    assert_eq!(world.lead(otherwise).await, None);
}

#[tokio::test]
async fn stored_documents_prevent_workspace_backend_change() {
    let world = World::with_stack().await;
    let moved = |workspace: &mut Workspace| workspace.spec.backend.name = "elsewhere".to_owned();
    world.deploy(1).await;
    assert_eq!(world.lead(moved).await, Some(format!("spec.backend: {DEPLOYED}")));
    world.deploy(0).await;

    let spec = json!({ "stack": "web-dev", "workspace": "dev", "operation": "Preview" });
    let run = json!({ "metadata": { "name": "web-dev-1" }, "spec": spec });
    world.make("delivery.stoa.dev/v1alpha1", "Run", "shop", run).await.unwrap();
    let expected = "spec.backend: run shop/web-dev-1 is under way; wait for its end, or cancel it first";
    assert_eq!(world.lead(moved).await.as_deref(), Some(expected));
    let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Failed;
    world.registry.api::<Run>().update_status_with("shop", "web-dev-1", end).await.unwrap();

    let spec = |workspace: &str| {
        json!({ "stack": "web-dev", "stackUID": "u", "workspace": workspace, "revision": 1, "run": "r",
            "planDigest": "p", "specDigest": "s", "stateDigest": "t", "tombstone": true })
    };
    for workspace in ["other", "dev"] {
        let name = format!("web-dev.{workspace}.1");
        let release = json!({ "metadata": { "name": name }, "spec": spec(workspace) });
        world.make("delivery.stoa.dev/v1alpha1", "Release", "shop", release).await.unwrap();
    }
    let expected = "spec.backend: release shop/web-dev.dev.1 has documents in the present backend; delete its stack \
                    and then the release first";
    assert_eq!(world.lead(moved).await.as_deref(), Some(expected));
    world.registry.api::<Release>().delete("shop", "web-dev.dev.1", &Default::default()).await.unwrap();
    assert_eq!(world.lead(moved).await, None);
}

fn with_clusters(name: &str, clusters: Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "backend": { "name": "default" }, "kubernetes": { "clusters": clusters } } })
}

/// What is wrong with a workspace that is made so.
async fn wrong(name: &str, clusters: Value) -> Vec<String> {
    let workspace = with_clusters(name, clusters);
    match World::new().await.make("platform.stoa.dev/v1alpha1", "Workspace", "", workspace).await {
        Ok(_) => Vec::new(),
        Err(error) => causes(&error),
    }
}

#[tokio::test]
async fn validation_restricts_workspace_and_cluster_names() {
    let secret = |key: &str| json!({ "namespace": "platform", "name": "east", "key": key });
    let right = json!([{ "name": "east-1", "kubeconfigSecretRef": secret("kubeconfig") }]);
    assert_eq!(wrong("eu-prod", right.clone()).await, [""; 0]);
    let found = wrong("eu.prod", right).await;
    assert!(
        found.len() == 1 && found[0].starts_with("metadata.name: Invalid value: \"eu.prod\": must not"),
        "{found:?}"
    );
    for name in ["east/1", "east:1", "East", "east.1", "-east", &"e".repeat(64)] {
        let found = wrong("dev", json!([{ "name": name, "inCluster": true }])).await;
        let begin = format!("spec.kubernetes.clusters[0].name: Invalid value: {name:?}: ");
        assert!(found.len() == 1 && found[0].starts_with(&begin), "{name}: {found:?}");
    }
    let found = wrong("dev", json!([{ "name": "east", "kubeconfigSecretRef": secret("") }])).await;
    assert_eq!(found, ["spec.kubernetes.clusters[0].kubeconfigSecretRef.key: Required value"]);
}

#[tokio::test]
async fn git_file_recreates_workspace_older_than_rule() {
    let world = World::new().await;
    let old =
        json!([{ "name": "east/1", "kubeconfigSecretRef": { "namespace": "platform", "name": "east", "key": "" } }]);
    let make = async |user: &str| {
        let user = UserInfo { name: user.to_owned(), ..UserInfo::default() };
        let context = RequestContext::new(user, Arc::new(stoa_machinery::auth::AllowAll));
        let workspace = with_clusters("eu.prod", old.clone());
        world.make_as(&context, "platform.stoa.dev/v1alpha1", "Workspace", "", workspace).await
    };
    let mut fields = causes(&make("ann").await.unwrap_err());
    fields.retain(|told| told.starts_with("metadata.name") || told.starts_with("spec.kubernetes.clusters[0]"));
    assert_eq!(fields.len(), 3, "{fields:?}");
    make("stoa:git:control").await.unwrap();
}

#[test]
fn workspace_older_than_rule_accepts_other_changes() {
    let workspace = |name: &str, clusters: Value| -> Workspace {
        let mut workspace = with_clusters(name, clusters);
        workspace["apiVersion"] = "platform.stoa.dev/v1alpha1".into();
        workspace["kind"] = "Workspace".into();
        serde_json::from_value(workspace).unwrap()
    };
    let cluster = |name: &str, secret: &str| {
        let reference = json!({ "namespace": "platform", "name": secret, "key": "" });
        json!({ "name": name, "kubeconfigSecretRef": reference })
    };
    let strategy = WorkspaceStrategy { lookup: Lookup::default() };
    let old = workspace("eu.prod", json!([cluster("west", "a"), cluster("east/1", "b")]));
    let told = |new: &Workspace| -> Vec<String> {
        let errors = [strategy.validate(new), strategy.validate_update(new, &old)].concat();
        errors.into_iter().map(|error| error.field).collect()
    };
    let mut described = old.clone();
    described.spec.description = Some("Of old".to_owned());
    assert_eq!(told(&described), [""; 0]);
    assert_eq!(told(&workspace("eu.prod", json!([cluster("east/1", "b")]))), [""; 0], "in another place of the list");
    let more = workspace("eu.prod", json!([cluster("east/1", "b"), cluster("east/2", "c")]));
    assert_eq!(
        told(&more),
        ["spec.kubernetes.clusters[1].name", "spec.kubernetes.clusters[1].kubeconfigSecretRef.key"]
    );
}
