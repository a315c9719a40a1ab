//! Organizations: what it takes to have theirs destroyed.

use parking_lot::Mutex;
use stoa_types::{DeletionPolicy, Organization, Project, Stack};

use super::*;

/// Allows what is listed, and keeps what was asked.
#[derive(Debug)]
struct RecordingAuthorizer {
    allow: Allow,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Authorizer for RecordingAuthorizer {
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let asked = format!("{} {} {}", attributes.verb, attributes.resource, attributes.name);
        self.asked.lock().push(asked);
        self.allow.authorize(user, attributes).await
    }
}

#[tokio::test]
async fn authorizer_checks_destroy_of_all_stacks_first() {
    const USE: [&str; 2] = ["use workspaces dev", "use backends default"];
    let world = World::with_stack().await;
    let config = "config.stoa.dev/v1alpha1";
    let organization = json!({ "metadata": { "name": "bank" }, "spec": { "deletionPolicy": "Destroy" } });
    world.make(config, "Organization", "", organization).await.unwrap();
    world.make("v1", "Namespace", "", json!({ "metadata": { "name": "bank" } })).await.unwrap();
    let project = json!({ "source": { "name": "config" }, "deletionPolicy": "Destroy" });
    let project = json!({ "metadata": { "name": "web" }, "spec": project });
    world.make(config, "Project", "bank", project).await.unwrap();
    let deployed = json!([{ "workspace": "dev", "resources": 1 }]);
    for name in ["a", "b", "c"] {
        let stack = json!({ "metadata": { "name": name }, "spec": { "project": "web", "workspaces": ["dev"] } });
        world.make(config, "Stack", "bank", stack).await.unwrap();
        let deploy = deploying(deployed.clone());
        world.registry.api::<Stack>().update_status_with("bank", name, deploy).await.unwrap();
    }
    let deleted = async |allowed: &[&'static str], is_project: bool| {
        let asked = Arc::new(RecordingAuthorizer { allow: Allow([allowed, &USE].concat()), asked: Mutex::default() });
        let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
        let mut context = RequestContext::new(user, asked.clone());
        context.dry_run = true;
        let result = if is_project {
            world.registry.api::<Project>().with_context(context).delete("bank", "web", &Default::default()).await
        } else {
            world.registry.api::<Organization>().with_context(context).delete("", "bank", &Default::default()).await
        };
        let asked = asked.asked.lock().clone();
        (result.map(drop).map_err(|error| error.code()), asked)
    };
    for is_project in [false, true] {
        let once = ["create stacks ", USE[0], USE[1]].map(str::to_owned).to_vec();
        assert_eq!(deleted(&["create stacks/destroy "], is_project).await, (Ok(()), once));
        let each = ["create stacks/destroy a", "create stacks/destroy b", "create stacks/destroy c"];
        assert_eq!(deleted(&each, is_project).await.0, Ok(()));
        assert_eq!(deleted(&each[1..], is_project).await.0, Err(403));
    }
}

#[tokio::test]
async fn organization_destroy_policy_requires_destroy_permission() {
    const ALL: [&str; 3] = ["create stacks/destroy web", "use workspaces dev", "use backends default"];
    let world = with_stacks(&["web"]).await;
    let organizations =
        |allowed: &[&'static str]| world.registry.api::<Organization>().with_context(by("ann", allowed));
    let destroy = |organization: &mut Organization| organization.spec.deletion_policy = Some(DeletionPolicy::Destroy);
    let refuse = |organization: &mut Organization| organization.spec.deletion_policy = Some(DeletionPolicy::Refuse);
    // Nothing is live yet.
    organizations(&[]).update_with("", "bank", destroy).await.unwrap();
    deploy(&world, "web").await;
    for count in 0..ALL.len() {
        let error = organizations(&ALL[..count]).delete("", "bank", &Default::default()).await.unwrap_err();
        assert_eq!(error.code(), 403, "{error}");
    }
    organizations(&[]).update_with("", "bank", refuse).await.unwrap();
    let error = organizations(&ALL).delete("", "bank", &Default::default()).await.unwrap_err();
    assert!(error.message().contains("1 live stack with deletionPolicy Refuse (web)"), "{error}");
    for count in 0..ALL.len() {
        let error = organizations(&ALL[..count]).update_with("", "bank", destroy).await.unwrap_err();
        assert_eq!(error.code(), 403, "{error}");
    }
    organizations(&ALL).update_with("", "bank", destroy).await.unwrap();
    organizations(&ALL).delete("", "bank", &Default::default()).await.unwrap();
}

/// A world with organization `bank` and these stacks of its project `web`.
async fn with_stacks(names: &[&str]) -> World {
    let world = World::with_stack().await;
    let config = "config.stoa.dev/v1alpha1";
    let named = |name: &str, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
    world.make(config, "Organization", "", named("bank", json!({}))).await.unwrap();
    world.make("v1", "Namespace", "", json!({ "metadata": { "name": "bank" } })).await.unwrap();
    world.make(config, "Project", "bank", named("web", json!({ "source": { "name": "config" } }))).await.unwrap();
    for name in names {
        let stack = json!({ "project": "web", "workspaces": ["dev"] });
        world.make(config, "Stack", "bank", named(name, stack)).await.unwrap();
    }
    world
}

/// A world whose stacks `web`, `api` and `db` are live.
async fn with_live_stacks() -> World {
    let names = ["web", "api", "db"];
    let world = with_stacks(&names).await;
    for name in names {
        deploy(&world, name).await;
    }
    world
}

async fn deploy(world: &World, name: &str) {
    let deploy = deploying(json!([{ "workspace": "dev", "resources": 1 }]));
    world.registry.api::<Stack>().update_status_with("bank", name, deploy).await.unwrap();
}

#[tokio::test]
async fn refuse_of_stacks_wins_over_their_owners() {
    let world = with_live_stacks().await;
    let (organizations, projects) = (world.registry.api::<Organization>(), world.registry.api::<Project>());
    let stacks = world.registry.api::<Stack>();
    for name in ["api", "db"] {
        let refuse = |stack: &mut Stack| stack.spec.deletion_policy = Some(DeletionPolicy::Refuse);
        stacks.update_with("bank", name, refuse).await.unwrap();
    }
    for policy in [DeletionPolicy::Destroy, DeletionPolicy::Orphan] {
        let set = |organization: &mut Organization| organization.spec.deletion_policy = Some(policy);
        organizations.update_with("", "bank", set).await.unwrap();
        let error = organizations.delete("", "bank", &Default::default()).await.unwrap_err();
        let expected =
            "organization \"bank\" has 2 live stacks with deletionPolicy Refuse (api, db); destroy them first";
        assert!(error.code() == 403 && error.message().contains(expected), "{error}");
        let error = projects.delete("bank", "web", &Default::default()).await.unwrap_err();
        assert!(error.message().contains("project \"web\" has 2 live stacks"), "{error}");
    }
}

#[tokio::test]
async fn policy_left_out_is_that_of_the_nearest_owner() {
    let world = with_live_stacks().await;
    let (organizations, projects) = (world.registry.api::<Organization>(), world.registry.api::<Project>());
    let refused = async || {
        let error = world.registry.api::<Stack>().delete("bank", "web", &Default::default()).await.unwrap_err();
        error.message().split("deletionPolicy is ").nth(1).unwrap().split(';').next().unwrap().to_owned()
    };
    assert_eq!(refused().await, "Refuse (the default)");
    let set = |organization: &mut Organization| organization.spec.deletion_policy = Some(DeletionPolicy::Refuse);
    organizations.update_with("", "bank", set).await.unwrap();
    assert_eq!(refused().await, "Refuse (set by organization \"bank\")");
    let orphan = |organization: &mut Organization| organization.spec.deletion_policy = Some(DeletionPolicy::Orphan);
    organizations.update_with("", "bank", orphan).await.unwrap();
    let refuse = |project: &mut Project| project.spec.deletion_policy = Some(DeletionPolicy::Refuse);
    projects.update_with("bank", "web", refuse).await.unwrap();
    assert_eq!(refused().await, "Refuse (set by project \"web\")");
    let stack = world.registry.api::<Stack>().get("bank", "web").await.unwrap();
    assert_eq!(serde_json::to_value(&stack.spec).unwrap().get("deletionPolicy"), None, "no default is stored");
    let none = |project: &mut Project| project.spec.deletion_policy = None;
    projects.update_with("bank", "web", none).await.unwrap();
    world.registry.api::<Stack>().delete("bank", "web", &Default::default()).await.unwrap();
}

#[tokio::test]
async fn leaving_a_policy_out_takes_leave_to_destroy() {
    const ALL: [&str; 3] = ["create stacks/destroy web", "use workspaces dev", "use backends default"];
    let world = with_live_stacks().await;
    let stacks = |allowed: &[&'static str]| world.registry.api::<Stack>().with_context(by("ann", allowed));
    let refuse = |stack: &mut Stack| stack.spec.deletion_policy = Some(DeletionPolicy::Refuse);
    let none = |stack: &mut Stack| stack.spec.deletion_policy = None;
    stacks(&[]).update_with("bank", "web", refuse).await.unwrap();
    stacks(&[]).update_with("bank", "web", none).await.unwrap();
    stacks(&[]).update_with("bank", "web", refuse).await.unwrap();
    let destroy = |organization: &mut Organization| organization.spec.deletion_policy = Some(DeletionPolicy::Destroy);
    world.registry.api::<Organization>().update_with("", "bank", destroy).await.unwrap();
    assert_eq!(stacks(&[]).update_with("bank", "web", none).await.unwrap_err().code(), 403);
    stacks(&ALL).update_with("bank", "web", none).await.unwrap();
}
