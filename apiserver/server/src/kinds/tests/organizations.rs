//! Organizations: what it takes to have theirs destroyed.

use parking_lot::Mutex;
use stoa_types::{DeletionPolicy, Organization, Project, Stack};

use super::*;

/// Allows what is listed, and keeps what was asked.
#[derive(Debug)]
struct Asked {
    allow: Allow,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Authorizer for Asked {
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let asked = format!("{} {} {}", attributes.verb, attributes.resource, attributes.name);
        self.asked.lock().push(asked);
        self.allow.authorize(user, attributes).await
    }
}

#[tokio::test]
async fn who_may_destroy_all_stacks_is_asked_about_once_and_otherwise_about_each() {
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
        let asked = Arc::new(Asked { allow: Allow([allowed, &USE].concat()), asked: Mutex::default() });
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
async fn who_has_an_organization_destroy_its_stacks_may_destroy_them() {
    const ALL: [&str; 3] = ["create stacks/destroy web", "use workspaces dev", "use backends default"];
    let world = World::with_stack().await;
    let config = "config.stoa.dev/v1alpha1";
    let named = |name: &str, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
    world.make(config, "Organization", "", named("bank", json!({}))).await.unwrap();
    world.make("v1", "Namespace", "", json!({ "metadata": { "name": "bank" } })).await.unwrap();
    world.make(config, "Project", "bank", named("web", json!({ "source": { "name": "config" } }))).await.unwrap();
    world
        .make(config, "Stack", "bank", named("web", json!({ "project": "web", "workspaces": ["dev"] })))
        .await
        .unwrap();
    let organizations =
        |allowed: &[&'static str]| world.registry.api::<Organization>().with_context(by("ann", allowed));
    let destroy = |organization: &mut Organization| organization.spec.deletion_policy = DeletionPolicy::Destroy;
    let refuse = |organization: &mut Organization| organization.spec.deletion_policy = DeletionPolicy::Refuse;
    // Nothing is live yet.
    organizations(&[]).update_with("", "bank", destroy).await.unwrap();
    let deploy = deploying(json!([{ "workspace": "dev", "resources": 1 }]));
    world.registry.api::<Stack>().update_status_with("bank", "web", deploy).await.unwrap();
    for count in 0..ALL.len() {
        let error = organizations(&ALL[..count]).delete("", "bank", &Default::default()).await.unwrap_err();
        assert_eq!(error.code(), 403, "{error}");
    }
    organizations(&[]).update_with("", "bank", refuse).await.unwrap();
    let error = organizations(&ALL).delete("", "bank", &Default::default()).await.unwrap_err();
    assert!(error.message().contains("deletionPolicy is Refuse"), "{error}");
    for count in 0..ALL.len() {
        let error = organizations(&ALL[..count]).update_with("", "bank", destroy).await.unwrap_err();
        assert_eq!(error.code(), 403, "{error}");
    }
    organizations(&ALL).update_with("", "bank", destroy).await.unwrap();
    organizations(&ALL).delete("", "bank", &Default::default()).await.unwrap();
}
