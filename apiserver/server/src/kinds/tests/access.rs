//! Projects with `access: Owners`: who writes them and their stacks.

use k8s_openapi::api::core::v1::Namespace;
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
async fn stacks_of_a_project_with_access_for_owners_are_written_by_them_and_by_who_may_edit_it() {
    let world = World::of_owners().await;
    assert_refused(world.writes_stacks("ann", &[]).await, "ann");
    world.writes_stacks("ann", &EDIT).await.unwrap();
    world.writes_stacks("olga", &[]).await.unwrap();
    let stacks = world.registry.api::<Stack>().with_context(by("ann", &[]));
    assert_refused(stacks.delete("shop", "web-dev", &Default::default()).await.map(drop), "ann");
    stacks.get("shop", "web-dev").await.unwrap();
}

#[tokio::test]
async fn who_may_not_edit_a_project_with_access_for_owners_does_not_lift_that() {
    let world = World::of_owners().await;
    let changes: [fn(&mut Project); 4] = [
        |project| project.spec.access = Access::Organization,
        |project| project.spec.owners[0].name = "ann".to_owned(),
        |project| project.spec.path = "elsewhere".to_owned(),
        |project| project.spec.deletion_policy = DeletionPolicy::Orphan,
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
async fn namespace_that_is_deleted_is_emptied_whoever_owns_its_projects() {
    let world = World::of_owners().await;
    let none = Default::default();
    let stacks = world.registry.api::<Stack>().with_context(by("namespace-controller", &[]));
    assert_refused(stacks.delete("shop", "web-dev", &none).await.map(drop), "namespace-controller");
    world.registry.api::<Namespace>().delete("", "shop", &none).await.unwrap();
    stacks.delete("shop", "web-dev", &none).await.unwrap();
    let projects = world.registry.api::<Project>().with_context(by("namespace-controller", &[]));
    projects.delete("shop", "web", &none).await.unwrap();
}
