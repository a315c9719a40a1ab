//! The main job, end to end: a Spec in Git becomes commits in a GitOps repository.

use std::path::PathBuf;

use serde_json::json;
use stoa_engine::Spec;
use stoa_proto::{PlanResponse, Summary};

use crate::bed::{Bed, Origin};
use crate::caller::Caller;

/// A runner, a source, and a repository to deliver to.
pub(crate) struct Scene {
    pub(crate) bed: Bed,
    pub(crate) origin: Origin,
    pub(crate) deploy: PathBuf,
    pub(crate) caller: Caller,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with more arguments of the runner.
    pub(crate) async fn start_with(arguments: &[&str]) -> Self {
        let bed = Bed::start_with(arguments);
        let origin = Origin::new(&bed.path("origin"));
        let deploy = bed.path("deploy.git");
        git2::Repository::init_bare(&deploy).unwrap();
        let workspace = json!({"gitops": {
            "repository": format!("file://{}", deploy.display()), "branch": "main", "createBranch": true, "directory": "dev", "mode": "Commit"
        }});
        let caller = Caller::new(bed.client().await, &workspace);
        Self { bed, origin, deploy, caller }
    }

    pub(crate) async fn spec(&mut self, replicas: u32) -> Spec {
        let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
        let deployment = format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web, namespace: shop}}\nspec:\n  replicas: {replicas}\n  \
             selector: {{matchLabels: {{app: web}}}}\n  template:\n    metadata: {{labels: {{app: web}}}}\n    \
             spec: {{containers: [{{name: web, image: \"web:1\"}}]}}\n"
        );
        let service =
            "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: shop}\nspec: {ports: [{port: 80}]}\n";
        let files = [("s/ns.yaml", namespace), ("s/web.yaml", &deployment), ("s/svc.yaml", service)];
        let commit = self.origin.commit(&files);
        self.caller.generate(&self.origin.remote(), &commit, "s").await.unwrap()
    }

    /// The commits that were delivered, newest first.
    pub(crate) fn commits(&self) -> Vec<String> {
        let repository = git2::Repository::open_bare(&self.deploy).unwrap();
        let Ok(head) = repository.refname_to_id("refs/heads/main") else { return Vec::new() };
        let mut walk = repository.revwalk().unwrap();
        walk.push(head).unwrap();
        walk.map(|oid| oid.unwrap().to_string()).collect()
    }

    /// Has somebody change a file on the branch, who replaces a text in it.
    fn edit(&self, path: &str, from: &str, to: &str) {
        let repository = git2::Repository::open_bare(&self.deploy).unwrap();
        let parent = repository.find_reference("refs/heads/main").unwrap().peel_to_commit().unwrap();
        let tree = parent.tree().unwrap();
        let entry = tree.get_path(std::path::Path::new(path)).unwrap();
        let text = String::from_utf8(repository.find_blob(entry.id()).unwrap().content().to_vec()).unwrap();
        assert!(text.contains(from), "{text}");
        let blob = repository.blob(text.replace(from, to).as_bytes()).unwrap();
        let mut update = git2::build::TreeUpdateBuilder::new();
        update.upsert(path, blob, git2::FileMode::Blob);
        let tree = repository.find_tree(update.create_updated(&repository, &tree).unwrap()).unwrap();
        let bob = git2::Signature::now("Bob", "bob@example.com").unwrap();
        repository.commit(Some("refs/heads/main"), &bob, &bob, "by hand", &tree, &[&parent]).unwrap();
    }

    /// The text of all files on the branch.
    pub(crate) fn delivered(&self) -> Vec<String> {
        let repository = git2::Repository::open_bare(&self.deploy).unwrap();
        let Ok(head) = repository.refname_to_id("refs/heads/main") else { return Vec::new() };
        let tree = repository.find_commit(head).unwrap().tree().unwrap();
        let mut texts = Vec::new();
        tree.walk(git2::TreeWalkMode::PreOrder, |_, entry| {
            if entry.kind() == Some(git2::ObjectType::Blob) {
                let blob = repository.find_blob(entry.id()).unwrap();
                texts.push(String::from_utf8(blob.content().to_vec()).unwrap());
            }
            git2::TreeWalkResult::Ok
        })
        .unwrap();
        texts
    }
}

fn actions(plan: &PlanResponse) -> Vec<(&str, &str)> {
    plan.resources.iter().map(|resource| (resource.id.as_str(), resource.action.as_str())).collect()
}

const NAMESPACE: &str = "v1:Namespace:shop";
const DEPLOYMENT: &str = "apps/v1:Deployment:shop:web";
const SERVICE: &str = "v1:Service:shop:web";

#[tokio::test]
async fn stack_is_delivered_changed_and_destroyed() {
    let mut scene = Scene::new().await;
    let spec = scene.spec(1).await;
    let plan = scene.caller.plan(&spec, false).await.unwrap();
    assert_eq!(plan.summary, Some(Summary { create: 3, ..Summary::default() }));
    assert_eq!(plan.resources[0].id, NAMESPACE, "a namespace comes before what is in it");
    let service = plan.resources.iter().find(|resource| resource.id == SERVICE).unwrap();
    assert_eq!(service.depends_on, [NAMESPACE]);
    assert!(plan.digest.starts_with("sha256:") && plan.table.contains(DEPLOYMENT), "{}", plan.table);

    let applied = scene.caller.apply(&spec, &plan).await;
    let finished = applied.finished();
    assert!(finished.succeeded && !finished.canceled && finished.problems.is_empty(), "{applied:?}");
    assert_eq!(scene.commits(), std::slice::from_ref(&finished.gitops_commit), "one run is one commit");
    assert_eq!(applied.results.len(), 3);
    assert!(applied.results.iter().all(|result| result.outcome == "Done"), "{applied:?}");
    let deployment = applied.results.iter().find(|result| result.id == DEPLOYMENT).unwrap();
    let object = deployment.kubernetes.clone().unwrap();
    assert_eq!((object.group.as_str(), object.kind.as_str(), object.name.as_str()), ("apps", "Deployment", "web"));
    assert!(scene.delivered().iter().any(|text| text.contains("kind: Deployment") && text.contains("replicas: 1")));

    scene.caller.next_run("web-dev-2");
    let again = scene.caller.plan(&spec, false).await.unwrap();
    assert_eq!(again.summary, Some(Summary { unchanged: 3, ..Summary::default() }), "{}", again.table);
    let applied = scene.caller.apply(&spec, &again).await;
    assert!(applied.finished().succeeded);
    assert_eq!(scene.commits().len(), 1, "nothing to do is no commit");

    scene.caller.next_run("web-dev-3");
    let changed = scene.spec(2).await;
    let plan = scene.caller.plan(&changed, false).await.unwrap();
    assert_eq!(plan.summary, Some(Summary { update: 1, unchanged: 2, ..Summary::default() }), "{}", plan.table);
    assert!(plan.table.contains("spec.replicas"), "{}", plan.table);
    assert!(scene.caller.apply(&changed, &plan).await.finished().succeeded);
    assert_eq!(scene.commits().len(), 2);
    assert!(scene.delivered().iter().any(|text| text.contains("replicas: 2")));

    scene.caller.next_run("web-dev-4");
    let plan = scene.caller.plan(&Spec::default(), true).await.unwrap();
    assert_eq!(plan.summary, Some(Summary { delete: 3, ..Summary::default() }), "{}", plan.table);
    assert_eq!(actions(&plan).last(), Some(&(NAMESPACE, "Delete")), "the reverse order");
    assert!(scene.caller.apply(&Spec::default(), &plan).await.finished().succeeded);
    assert!(scene.caller.state.is_empty(), "{:?}", scene.caller.state);
    assert!(!scene.delivered().iter().any(|text| text.contains("kind: Deployment")));
}

#[tokio::test]
async fn edit_since_the_plan_refuses_the_apply() {
    let mut scene = Scene::new().await;
    let spec = scene.spec(1).await;
    let plan = scene.caller.plan(&spec, false).await.unwrap();
    assert!(scene.caller.apply(&spec, &plan).await.finished().succeeded);
    scene.caller.next_run("web-dev-2");
    let changed = scene.spec(2).await;
    let plan = scene.caller.plan(&changed, false).await.unwrap();
    scene.edit("dev/shop/deployment-web.yaml", "replicas: 1", "replicas: 5");
    let applied = scene.caller.apply(&changed, &plan).await;
    let finished = applied.finished();
    let told: Vec<_> = finished.problems.iter().map(|it| (it.reason.as_str(), it.message.as_str())).collect();
    let why = "since the plan was made, dev/shop/deployment-web.yaml was changed by others: spec.replicas; nothing was \
               written, plan again";
    assert_eq!(told, [("StalePlan", why)]);
    assert!(!finished.succeeded && scene.commits().len() == 2, "{applied:?}");
    assert!(scene.delivered().iter().any(|text| text.contains("replicas: 5")));

    // What is planned anew is what is there, and is carried out.
    scene.caller.next_run("web-dev-3");
    let plan = scene.caller.plan(&changed, false).await.unwrap();
    assert!(scene.caller.apply(&changed, &plan).await.finished().succeeded);
    assert!(scene.delivered().iter().any(|text| text.contains("replicas: 2")));
}

#[tokio::test]
async fn repeated_plan_has_the_same_digest() {
    let mut scene = Scene::new().await;
    let spec = scene.spec(1).await;
    let first = scene.caller.plan(&spec, false).await.unwrap();
    let second = scene.caller.plan(&spec, false).await.unwrap();
    assert_eq!(first.digest, second.digest);
    let other = scene.spec(2).await;
    assert_ne!(scene.caller.plan(&other, false).await.unwrap().digest, first.digest);
}
