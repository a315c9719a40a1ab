//! Projects with `access: Owners`: who writes them and their stacks.

use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::ResourceExt as _;
use stoa_types::{DeletionPolicy, Project, Stack, Subject, config::Access};

use super::*;

/// What cluster roles have to grant by name.
const EDIT: [&str; 1] = ["edit projects web"];

fn restrict(project: &mut Project) {
    let owner = Subject { kind: "User".to_owned(), name: "olga".to_owned(), ..Subject::default() };
    project.spec.access = Access::Owners;
    project.spec.owners = vec![owner];
}

fn describe(stack: &mut Stack) {
    let before = stack.spec.description.take().unwrap_or_default();
    stack.spec.description = Some(format!("{before}."));
}

impl World {
    async fn of_owners() -> Self {
        let world = Self::with_stack().await;
        world.registry.api::<Project>().update_with("shop", "web", restrict).await.unwrap();
        world
    }

    async fn writes_stacks(&self, who: &str, allowed: &[&'static str]) -> Result<(), ApiError> {
        let stacks = self.registry.api::<Stack>().with_context(by(who, allowed));
        stacks.update_with("shop", "web-dev", describe).await?;
        let another = json!({ "metadata": { "generateName": "web-" }, "spec": { "project": "web" } });
        let config = "config.stoa.dev/v1alpha1";
        let made = self.make_as(&by(who, allowed), config, "Stack", "shop", another).await?;
        stacks.delete("shop", made.name(), &Default::default()).await.map(drop)
    }

    async fn changes_project(
        &self,
        who: &str,
        allowed: &[&'static str],
        change: fn(&mut Project),
    ) -> Result<(), ApiError> {
        let projects = self.registry.api::<Project>().with_context(by(who, allowed));
        projects.update_with("shop", "web", change).await.map(drop)
    }
}

#[track_caller]
fn assert_refused(refused: Result<(), ApiError>, who: &str) {
    let expected = format!(
        "projects.config.stoa.dev \"web\" is forbidden: User \"{who}\" cannot edit resource \"projects\" in API group \
         \"config.stoa.dev\" in the namespace \"shop\""
    );
    let error = refused.unwrap_err();
    assert_eq!((error.code(), error.message()), (403, expected.as_str()));
}

#[tokio::test]
async fn owners_and_editors_write_restricted_project_stacks() {
    let world = World::of_owners().await;
    assert_refused(world.writes_stacks("ann", &[]).await, "ann");
    world.writes_stacks("ann", &EDIT).await.unwrap();
    world.writes_stacks("olga", &[]).await.unwrap();
    let stacks = world.registry.api::<Stack>().with_context(by("ann", &[]));
    assert_refused(stacks.delete("shop", "web-dev", &Default::default()).await.map(drop), "ann");
    stacks.get("shop", "web-dev").await.unwrap();
}

#[tokio::test]
async fn non_editor_cannot_lift_owner_access() {
    let world = World::of_owners().await;
    let changes: [fn(&mut Project); 4] = [
        |project| project.spec.access = Access::Organization,
        |project| project.spec.owners[0].name = "ann".to_owned(),
        |project| project.spec.path = "elsewhere".to_owned(),
        |project| project.spec.deletion_policy = Some(DeletionPolicy::Orphan),
    ];
    for change in changes {
        assert_refused(world.changes_project("ann", &[], change).await, "ann");
    }
    let projects = world.registry.api::<Project>().with_context(by("ann", &[]));
    assert_refused(projects.delete("shop", "web", &Default::default()).await.map(drop), "ann");
    // What is no part of its spec is as free as that of other projects.
    let label = |project: &mut Project| {
        project.metadata.labels.get_or_insert_default().insert("tier".to_owned(), "front".to_owned());
    };
    world.changes_project("ann", &[], label).await.unwrap();

    world.changes_project("olga", &[], changes[2]).await.unwrap();
    world.changes_project("ann", &EDIT, changes[3]).await.unwrap();
    world.changes_project("olga", &[], changes[0]).await.unwrap();
    world.writes_stacks("ann", &[]).await.unwrap();
}

#[tokio::test]
async fn nobody_shuts_themselves_out_of_a_project() {
    let world = World::with_stack().await;
    assert_refused(world.changes_project("ann", &[], restrict).await, "ann");
    world.changes_project("ann", &EDIT, restrict).await.unwrap();
    let owners = json!([{ "kind": "Group", "name": "leads" }]);
    let spec = json!({ "source": { "name": "config" }, "access": "Owners", "owners": owners });
    let project = json!({ "metadata": { "name": "other" }, "spec": spec });
    let make = |context: RequestContext| {
        let (world, project) = (&world, project.clone());
        async move { world.make_as(&context, "config.stoa.dev/v1alpha1", "Project", "shop", project).await }
    };
    assert_eq!(make(by("ann", &[])).await.unwrap_err().code(), 403);
    let user = UserInfo { name: "ann".to_owned(), groups: vec!["leads".to_owned()], ..UserInfo::default() };
    make(RequestContext::new(user, Arc::new(Allow::default()))).await.unwrap();
}

#[tokio::test]
async fn namespace_deletion_removes_projects_of_any_owner() {
    let world = World::of_owners().await;
    let none = Default::default();
    let stacks = world.registry.api::<Stack>().with_context(by("namespace-controller", &[]));
    assert_refused(stacks.delete("shop", "web-dev", &none).await.map(drop), "namespace-controller");
    world.registry.api::<Namespace>().delete("", "shop", &none).await.unwrap();
    stacks.delete("shop", "web-dev", &none).await.unwrap();
    let projects = world.registry.api::<Project>().with_context(by("namespace-controller", &[]));
    projects.delete("shop", "web", &none).await.unwrap();
}

#[tokio::test]
async fn namespace_deletion_applies_stack_deletion_policy() {
    const ALL: [&str; 3] = ["create stacks/destroy web-dev", "use workspaces dev", "use backends default"];
    let world = World::with_stack().await;
    let none = Default::default();
    let set = |policy: DeletionPolicy| move |stack: &mut Stack| stack.spec.deletion_policy = Some(policy);
    let deploy = deploying(json!([{ "workspace": "dev", "resources": 1 }]));
    let all = world.registry.api::<Stack>();
    all.update_status_with("shop", "web-dev", deploy).await.unwrap();
    all.update_with("shop", "web-dev", set(DeletionPolicy::Destroy)).await.unwrap();
    let stacks = world.registry.api::<Stack>().with_context(by("namespace-controller", &[]));
    let projects = world.registry.api::<Project>().with_context(by("namespace-controller", &[]));
    let error = stacks.delete("shop", "web-dev", &none).await.unwrap_err();
    assert!(error.code() == 403 && error.message().contains("stacks/destroy"), "{error}");
    let error = projects.delete("shop", "web", &none).await.unwrap_err();
    assert!(
        error.code() == 403 && error.message().contains("has deletionPolicy Refuse and 1 live stack (web-dev)"),
        "{error}"
    );

    world.registry.api::<Namespace>().delete("", "shop", &none).await.unwrap();
    all.update_with("shop", "web-dev", set(DeletionPolicy::Refuse)).await.unwrap();
    projects.delete("shop", "web", &none).await.unwrap();
    let error = stacks.delete("shop", "web-dev", &none).await.unwrap_err();
    assert!(error.code() == 403 && error.message().contains("its deletionPolicy is Refuse"), "{error}");
    // To have it destroyed is still for those who may.
    let change = |allowed: &[&'static str]| world.registry.api::<Stack>().with_context(by("ann", allowed));
    let refused = change(&[]).update_with("shop", "web-dev", set(DeletionPolicy::Destroy)).await;
    assert_eq!(refused.unwrap_err().code(), 403);
    change(&ALL).update_with("shop", "web-dev", set(DeletionPolicy::Destroy)).await.unwrap();
    stacks.delete("shop", "web-dev", &none).await.unwrap();
    assert!(all.get("shop", "web-dev").await.unwrap().metadata.deletion_timestamp.is_some());
}

#[tokio::test]
async fn collector_unblocks_restricted_stack_without_deleting_it() {
    let world = World::of_owners().await;
    let all = world.registry.api::<Stack>();
    let owner = |uid: &str| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: "owner".to_owned(),
        uid: uid.to_owned(),
        block_owner_deletion: Some(true),
        ..OwnerReference::default()
    };
    let owned = |stack: &mut Stack| {
        stack.owner_references_mut().push(owner("u"));
        stack.finalizers_mut().extend(["foregroundDeletion", "example.com/held"].map(str::to_owned));
    };
    all.update_with("shop", "web-dev", owned).await.unwrap();
    let changes: [&(dyn Fn(&mut Stack) + Sync); 5] = [
        &|stack| stack.owner_references_mut().push(owner("other")),
        &|stack| stack.owner_references_mut()[0].uid = "other".to_owned(),
        &|stack| stack.finalizers_mut().retain(|finalizer| finalizer != "example.com/held"),
        &|stack| stack.finalizers_mut().push("example.com/for-good".to_owned()),
        &|stack| drop(stack.labels_mut().insert("tier".to_owned(), "front".to_owned())),
    ];
    for change in changes {
        let anns = world.registry.api::<Stack>().with_context(by("ann", &[]));
        assert_refused(anns.update_with("shop", "web-dev", change).await.map(drop), "ann");
    }
    let collector = world.registry.api::<Stack>().with_context(by("garbage-collector", &[]));
    let unblock = |stack: &mut Stack| stack.owner_references_mut()[0].block_owner_deletion = Some(false);
    collector.update_with("shop", "web-dev", unblock).await.unwrap();
    let forget = |stack: &mut Stack| stack.owner_references_mut().clear();
    collector.update_with("shop", "web-dev", forget).await.unwrap();
    let finish = |stack: &mut Stack| stack.finalizers_mut().retain(|finalizer| finalizer != "foregroundDeletion");
    let stack = collector.update_with("shop", "web-dev", finish).await.unwrap();
    assert_eq!(stack.finalizers(), ["stoa.dev/infrastructure", "example.com/held"]);
    // Its deletion is decided by whoever gave the stack its owner, for which the collector has to be let edit the project.
    let none = Default::default();
    assert_refused(collector.delete("shop", "web-dev", &none).await.map(drop), "garbage-collector");
    let collector = world.registry.api::<Stack>().with_context(by("garbage-collector", &EDIT));
    collector.delete("shop", "web-dev", &none).await.unwrap();

    let projects = world.registry.api::<Project>().with_context(by("ann", &[]));
    let give_away = |project: &mut Project| project.owner_references_mut().push(owner("u"));
    assert_refused(projects.update_with("shop", "web", give_away).await.map(drop), "ann");
    let hold = |project: &mut Project| project.finalizers_mut().push("example.com/held".to_owned());
    assert_refused(projects.update_with("shop", "web", hold).await.map(drop), "ann");
}

#[tokio::test]
async fn status_writer_cannot_hide_live_resources() {
    let world = World::with_stack().await;
    let stacks = world.registry.api::<Stack>();
    let set = |deployments: Value| {
        move |stack: &mut Stack| {
            stack.status.get_or_insert_default().deployments = serde_json::from_value(deployments.clone()).unwrap();
        }
    };
    let live = json!([{ "workspace": "dev", "resources": 1, "phase": "Succeeded" }]);
    stacks.update_status_with("shop", "web-dev", set(live)).await.unwrap();
    let anns = stacks.clone().with_context(by("ann", &[]));
    for forged in [json!([]), json!([{ "workspace": "dev", "resources": 0, "phase": "Succeeded" }])] {
        let error = anns.update_status_with("shop", "web-dev", set(forged)).await.unwrap_err();
        assert!(
            error.code() == 403 && error.message().contains("status.deployments are written by Stoa alone"),
            "{error}"
        );
    }
    let error = anns.delete("shop", "web-dev", &Default::default()).await.unwrap_err();
    assert!(error.message().contains("its deletionPolicy is Refuse"), "{error}");
    let observe = |stack: &mut Stack| stack.status.get_or_insert_default().observed_commit = Some("abc".to_owned());
    anns.update_status_with("shop", "web-dev", observe).await.expect("what nothing goes by");
}
