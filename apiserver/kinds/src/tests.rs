//! The rules of the kinds, through a registry as the server has it.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use stoa_machinery::{
    ApiError, Object, RequestContext,
    auth::{Attributes, Authorizer, Decision},
    log::{self, MemoryLog},
    registry::{Registry, Target, UpdateSource},
    request::UserInfo,
    strategy::Strategy as _,
};

use super::{lookup::Lookup, register, testing::deploying};
use crate::{
    cluster::standalone::StandaloneCluster, core_v1, hub::memory::Hub, kind::Surroundings,
    package_repositories::Packages, scheduler::fleets::Fleets,
};

mod access;
mod api;
mod approval;
mod backends;
mod behalf;
mod cascade;
mod compliance;
mod core_kinds;
mod fields;
mod fleets;
mod git_paths;
mod hub;
mod imports;
mod live;
mod modules;
mod notification_sinks;
mod organizations;
mod packages;
mod references;
mod runs;
mod schemas;
mod sources;
mod terraform;
mod variable_sets;
mod workflows;
mod workspaces;

/// Allows what is listed, as `verb resource/subresource name`.
#[derive(Debug, Default)]
struct Allow(Vec<&'static str>);

#[async_trait]
impl Authorizer for Allow {
    async fn authorize(&self, _: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        let resource = match attributes.subresource.as_str() {
            "" => attributes.resource.clone(),
            subresource => format!("{}/{subresource}", attributes.resource),
        };
        let asked = format!("{} {resource} {}", attributes.verb, attributes.name);
        let is_allowed = self.0.iter().any(|allowed| *allowed == asked);
        Ok(if is_allowed { Decision::Allow(String::new()) } else { Decision::Deny(String::new()) })
    }
}

struct World {
    registry: Arc<Registry>,
}

impl World {
    /// A standalone server's registry with an organization `shop` and what a run needs.
    async fn new() -> Self {
        let lookup = Lookup::default();
        let cluster: Arc<dyn crate::cluster::Cluster> = Arc::new(StandaloneCluster { lookup: lookup.clone() });
        let builder = Registry::builder(Arc::new(MemoryLog::default()));
        let surroundings = Surroundings {
            lookup: lookup.clone(),
            cluster,
            packages: Packages::default(),
            fleets: Fleets::default(),
            hub: Hub::default(),
        };
        let builder = register(builder, &surroundings, |_, definition| definition);
        let builder = core_v1::register(builder).namespaces_in("", "v1", "namespaces");
        let registry = lookup.build(builder).await.unwrap();
        let world = Self { registry };
        world.make("v1", "Namespace", "", json!({ "metadata": { "name": "shop" } })).await.unwrap();
        world
    }

    async fn with_stack() -> Self {
        let world = Self::new().await;
        let named = |name: &str, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
        let config = "config.stoa.dev/v1alpha1";
        let platform = "platform.stoa.dev/v1alpha1";
        world.make(platform, "Backend", "", named("default", json!({ "type": "Local" }))).await.unwrap();
        let workspace = json!({ "backend": { "name": "default" }, "gitops": { "repository": "file:///deploy.git" } });
        world.make(platform, "Workspace", "", named("dev", workspace)).await.unwrap();
        let project = json!({ "source": { "name": "config" }, "path": "apps/web" });
        world.make(config, "Project", "shop", named("web", project)).await.unwrap();
        let stack = json!({ "project": "web", "workspaces": ["dev"] });
        world.make(config, "Stack", "shop", named("web-dev", stack)).await.unwrap();
        world
    }

    /// Takes an object out of the log, whatever refers to it.
    async fn lose(&self, key: &str) {
        let write = log::Write::new(log::Key::new(key), log::Expect::Any, log::Change::Delete);
        self.registry.log().append(write).await.unwrap();
    }

    async fn make(&self, api_version: &str, kind: &str, namespace: &str, object: Value) -> Result<Object, ApiError> {
        self.make_as(&RequestContext::internal("tests"), api_version, kind, namespace, object).await
    }

    async fn make_as(
        &self,
        context: &RequestContext,
        api_version: &str,
        kind: &str,
        namespace: &str,
        object: Value,
    ) -> Result<Object, ApiError> {
        let Value::Object(mut object) = object else { panic!("an object") };
        object.insert("apiVersion".to_owned(), api_version.into());
        object.insert("kind".to_owned(), kind.into());
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let plural = format!("{}s", kind.to_lowercase());
        let store = self.registry.store(group, version, &plural).unwrap();
        // The schema's defaults, as the HTTP layer sets them.
        let decoder = stoa_machinery::schema::Decoder::new(store.definition()).unwrap();
        let body = serde_json::to_vec(&Value::Object(object)).unwrap();
        let decoded = decoder.decode(&body, stoa_machinery::schema::Format::Json, Default::default())?;
        Ok(store.create(context, namespace, decoded.object).await?.object())
    }

    async fn run(&self, allowed: &[&'static str], spec: Value) -> Result<Object, ApiError> {
        let user = UserInfo { name: "ann".to_owned(), groups: vec!["devs".to_owned()], ..UserInfo::default() };
        let context = RequestContext::new(user, Arc::new(Allow(allowed.to_vec())));
        let run = json!({ "metadata": { "generateName": "web-dev-" }, "spec": spec });
        self.make_as(&context, "delivery.stoa.dev/v1alpha1", "Run", "shop", run).await
    }
}

fn causes(error: &ApiError) -> Vec<String> {
    let causes = error.0.details.as_ref().and_then(|d| d.causes.clone()).unwrap_or_default();
    causes
        .iter()
        .map(|c| format!("{}: {}", c.field.as_deref().unwrap_or(""), c.message.as_deref().unwrap_or("")))
        .collect()
}

#[tokio::test]
async fn run_creation_checks_permissions_in_order() {
    let world = World::with_stack().await;
    let spec = json!({ "stack": "web-dev", "operation": "Apply" });
    let steps: [(&[&str], &str); 3] = [
        (
            &[],
            r#"stacks.config.stoa.dev "web-dev" is forbidden: User "ann" cannot create resource "stacks/apply" in API group "config.stoa.dev" in the namespace "shop""#,
        ),
        (
            &["create stacks/apply web-dev"],
            r#"workspaces.platform.stoa.dev "dev" is forbidden: User "ann" cannot use resource "workspaces" in API group "platform.stoa.dev" at the cluster scope"#,
        ),
        (
            &["create stacks/apply web-dev", "use workspaces dev"],
            r#"backends.platform.stoa.dev "default" is forbidden: User "ann" cannot use resource "backends" in API group "platform.stoa.dev" at the cluster scope"#,
        ),
    ];
    for (allowed, refusal) in steps {
        let error = world.run(allowed, spec.clone()).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (403, refusal));
    }
    let all = ["create stacks/apply web-dev", "use workspaces dev", "use backends default"];
    let run = world.run(&all, spec).await.unwrap();
    assert_eq!(run.get_path(&["status", "requester", "username"]), Some(&json!("ann")));
    assert_eq!(run.get_path(&["status", "phase"]), Some(&json!("Pending")));
    assert_eq!(run.get_path(&["spec", "workspace"]), Some(&json!("dev")), "the stack's only workspace");
    assert_eq!(
        run.get_path(&["metadata", "labels"]),
        Some(&json!({ "stoa.dev/stack": "web-dev", "stoa.dev/workspace": "dev", "stoa.dev/project": "web" }))
    );
}

#[tokio::test]
async fn who_may_not_start_runs_learns_nothing_of_stacks() {
    let world = World::with_stack().await;
    let error = world.run(&[], json!({ "stack": "nothing", "operation": "Preview" })).await.unwrap_err();
    assert_eq!(error.code(), 403);
    let may = ["create stacks/preview nothing"];
    let error = world.run(&may, json!({ "stack": "nothing", "operation": "Preview" })).await.unwrap_err();
    assert_eq!((error.code(), causes(&error)), (422, vec![r#"spec.stack: Not found: "nothing""#.to_owned()]));
}

#[tokio::test]
async fn run_spec_permits_only_one_cancellation() {
    let world = World::with_stack().await;
    let context = RequestContext::internal("tests");
    let run = world
        .run(
            &["create stacks/preview web-dev", "use workspaces dev", "use backends default"],
            json!({ "stack": "web-dev", "operation": "Preview" }),
        )
        .await
        .unwrap();
    let store = world.registry.store("delivery.stoa.dev", "v1alpha1", "runs").unwrap();
    let set = |field: &'static str, value: Value| {
        let name = run.name().to_owned();
        let context = context.clone();
        async move {
            let change = UpdateSource::transform(move |current| {
                let mut new = current.clone();
                new.0["spec"][field] = value.clone();
                Ok(new)
            });
            store.update(&context, "shop", &name, Target::Main, change).await.map(|_| ())
        }
    };
    let error = set("stack", json!("other")).await.unwrap_err();
    assert_eq!(causes(&error), ["spec: Forbidden: a run is immutable, except that cancel may become true"]);
    set("cancel", json!(true)).await.unwrap();
    let error = set("cancel", json!(false)).await.unwrap_err();
    assert_eq!(causes(&error), ["spec.cancel: Forbidden: may not become false again"]);
}

/// A request of a user who may do no more than this.
fn by(name: &str, allowed: &[&'static str]) -> RequestContext {
    let user = UserInfo { name: name.to_owned(), ..UserInfo::default() };
    RequestContext::new(user, Arc::new(Allow(allowed.to_vec())))
}

#[tokio::test]
async fn deployed_workspace_rejects_backend_change() {
    use stoa_types::{DeletionPolicy, Stack, Workspace};
    let world = World::with_stack().await;
    let workspaces = world.registry.api::<Workspace>();
    let moved = |workspace: &mut Workspace| workspace.spec.backend.name = "elsewhere".to_owned();
    let live = |resources: u64| deploying(json!([{ "workspace": "dev", "resources": resources }]));
    let stacks = world.registry.api::<Stack>();
    stacks.update_status_with("shop", "web-dev", live(1)).await.unwrap();
    for policy in [DeletionPolicy::Refuse, DeletionPolicy::Orphan] {
        stacks
            .update_with("shop", "web-dev", |stack: &mut Stack| stack.spec.deletion_policy = Some(policy))
            .await
            .unwrap();
        assert_eq!(workspaces.update_with("", "dev", moved).await.unwrap_err().code(), 409, "{policy:?}");
    }
    stacks.update_status_with("shop", "web-dev", live(0)).await.unwrap();
    workspaces.update_with("", "dev", moved).await.unwrap();
}

#[tokio::test]
async fn rollback_leads_to_a_release_that_is_kept() {
    let world = World::with_stack().await;
    let uid = world.registry.api::<stoa_types::Stack>().get("shop", "web-dev").await.unwrap().metadata.uid.unwrap();
    for (revision, uid, tombstone) in [(1, "before", false), (2, uid.as_str(), false), (3, uid.as_str(), true)] {
        let spec = json!({ "stack": "web-dev", "stackUID": uid, "workspace": "dev", "revision": revision, "run": "r",
            "planDigest": "p", "specDigest": "s", "stateDigest": "t", "tombstone": tombstone });
        let name = format!("web-dev.dev.{revision}");
        let release = json!({ "metadata": { "name": name }, "spec": spec });
        world.make("delivery.stoa.dev/v1alpha1", "Release", "shop", release).await.unwrap();
    }
    let allowed = ["create stacks/rollback web-dev", "use workspaces dev", "use backends default"];
    let back = |release: i64| {
        let spec = json!({ "stack": "web-dev", "operation": "Rollback", "release": release });
        world.run(&allowed, spec)
    };
    for (release, why) in [(1, "an earlier stack"), (3, "everything was removed"), (4, "retention removed it")] {
        let error = back(release).await.unwrap_err();
        assert_eq!(error.code(), 422);
        let causes = causes(&error);
        assert!(causes[0].starts_with("spec.release: ") && causes[0].contains(why), "{causes:?}");
    }
    back(2).await.unwrap();
}

#[tokio::test]
async fn an_organization_adopts_no_namespace() {
    let world = World::new().await;
    let shop = json!({ "metadata": { "name": "shop" }, "spec": {} });
    let error = world.make("config.stoa.dev/v1alpha1", "Organization", "", shop).await.unwrap_err();
    assert_eq!(error.code(), 409);
    assert!(error.message().starts_with(r#"namespaces "shop" already exists"#), "{error}");
}

#[tokio::test]
async fn organization_rejects_new_unbindable_service_accounts() {
    use stoa_types::Organization;
    let world = World::new().await;
    let account =
        |name: &str, namespace: &str| json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace });
    let with = |owner: Value, member: Value| {
        let spec = json!({ "owners": [owner], "members": [{ "subject": member, "role": "viewer" }] });
        json!({ "apiVersion": "config.stoa.dev/v1alpha1", "kind": "Organization", "metadata": { "name": "acme" }, "spec": spec })
    };
    let good = with(account("ci.bot", "ci"), json!({ "kind": "User", "name": "Ann of acme" }));
    let bad = with(account("CI bot", "ci"), account("ci", "a.b"));
    let make = |object: Value| world.make("config.stoa.dev/v1alpha1", "Organization", "", object);
    let complaints = causes(&make(bad.clone()).await.unwrap_err());
    let fields: Vec<&str> = complaints.iter().filter_map(|cause| cause.split(": ").next()).collect();
    assert_eq!(fields, ["spec.owners[0].name", "spec.members[0].subject.namespace"], "{complaints:?}");
    make(good.clone()).await.unwrap();
    let organizations = world.registry.api::<Organization>();
    let [good, bad]: [Organization; 2] = [good, bad].map(|object| serde_json::from_value(object).unwrap());
    let change = |organization: &mut Organization| organization.spec.clone_from(&bad.spec);
    assert_eq!(causes(&organizations.update_with("", "acme", change).await.unwrap_err()), complaints);
    // It was so before this was refused.
    let strategy = super::organization::OrganizationStrategy {
        lookup: Lookup::default(),
        cluster: Arc::new(StandaloneCluster { lookup: Lookup::default() }),
    };
    let found = |new: &Organization, old: &Organization| strategy.validate_update(new, old).len();
    assert_eq!([found(&bad, &bad), found(&bad, &good), found(&good, &bad)], [0, 2, 0]);
}

#[tokio::test]
async fn releases_and_resources_are_written_by_the_server_alone() {
    let world = World::with_stack().await;
    let user = UserInfo { name: "system:stoa:controller".to_owned(), ..UserInfo::default() };
    let context = RequestContext::new(user, Arc::new(stoa_machinery::auth::AllowAll));
    let release = json!({ "metadata": { "name": "r" }, "spec": {
        "stack": "web-dev", "stackUID": "u", "workspace": "dev", "revision": 1, "run": "r",
        "planDigest": "p", "specDigest": "s", "stateDigest": "t" } });
    let error = world.make_as(&context, "delivery.stoa.dev/v1alpha1", "Release", "shop", release).await.unwrap_err();
    assert_eq!(error.code(), 403, "a name does not make a call the server's own: {error}");
}
