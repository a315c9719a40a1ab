//! The rules of the kinds, through a registry as the server has it.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use stoa_machinery::{
    ApiError, Object, RequestContext,
    auth::{Attributes, Authorizer, Decision},
    log::MemoryLog,
    registry::{Registry, Target, UpdateSource},
    request::UserInfo,
    strategy::Strategy as _,
};

use super::{core, lookup::Lookup, register};
use crate::{cluster::standalone::StandaloneCluster, subresources::Subresources};

mod access;
mod api;
mod approval;
mod backends;
mod compliance;
mod core_kinds;
mod imports;
mod notification_sinks;
mod organizations;
mod runs;
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
        let builder = register(builder, &lookup, &cluster, &Subresources::default());
        let registry = core::register(builder).namespaces_in("", "v1", "namespaces").build().await.unwrap();
        lookup.set(registry.clone());
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
async fn permission_to_start_a_run_is_asked_for_one_after_the_other() {
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
async fn a_run_does_not_change_but_can_be_cancelled_once() {
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
    assert_eq!(causes(&error), ["spec: Forbidden: a run does not change, except that cancel may become true"]);
    set("cancel", json!(true)).await.unwrap();
    let error = set("cancel", json!(false)).await.unwrap_err();
    assert_eq!(causes(&error), ["spec.cancel: Forbidden: may not become false again"]);
}

#[tokio::test]
async fn what_is_wrong_with_an_object_is_told_field_by_field() {
    let world = World::new().await;
    let config = "config.stoa.dev/v1alpha1";
    let cases = [
        (
            config,
            "Organization",
            "",
            json!({ "metadata": { "name": "kube-x" }, "spec": { "owners": [{ "kind": "Robot", "name": "" }] } }),
        ),
        (config, "Organization", "", json!({ "metadata": { "name": "a.b" }, "spec": {} })),
        (
            config,
            "Source",
            "shop",
            json!({ "metadata": { "name": "s" }, "spec": { "remote": "https://ann:secret@git.example.com/x.git", "pollInterval": "soon" } }),
        ),
        (
            config,
            "Source",
            "shop",
            json!({ "metadata": { "name": "s" }, "spec": { "remote": "/srv/config.git", "pullRequests": { "provider": "Gitea", "secretRef": { "name": "", "namespace": "x" } } } }),
        ),
        (
            config,
            "Source",
            "shop",
            json!({ "metadata": { "name": "s" }, "spec": { "remote": "git@git.example.com:shop/config.git", "pullRequests": { "provider": "Gitea", "url": "HTTP://localhost:3000" } } }),
        ),
        (
            config,
            "Source",
            "shop",
            json!({ "metadata": { "name": "s".repeat(64) }, "spec": { "remote": "https://git.example.com/config.git", "pullRequests": { "provider": "GitHub" } } }),
        ),
        (
            config,
            "Project",
            "shop",
            json!({ "metadata": { "name": "p" }, "spec": { "source": { "name": "" }, "path": "../up" } }),
        ),
        (
            config,
            "Stack",
            "shop",
            json!({ "metadata": { "name": "s" }, "spec": { "project": "none", "workspaces": ["a", "a"], "driftInterval": "1s", "trigger": "Apply" } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Workspace",
            "",
            json!({ "metadata": { "name": "w" }, "spec": { "backend": { "name": "b" }, "kubernetes": { "clusters": [{ "name": "a" }, { "name": "a", "inCluster": true }] } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Workspace",
            "",
            json!({ "metadata": { "name": "w" }, "spec": { "backend": { "name": "b" }, "kubernetes": { "clusters": [{ "name": "a", "inCluster": true }] },
                "gitops": { "repository": "file:///deploy.git" } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Workspace",
            "",
            json!({ "metadata": { "name": "w" }, "spec": { "backend": { "name": "b" }, "kubernetes": { "clusters": [{ "name": "a", "inCluster": true }] }, "healthPolicies": [
                { "apiVersion": "example.com/v1", "kind": "Widget", "current": "status.phase == 'Running'" },
                { "apiVersion": "example.com/v2", "kind": "Widget", "current": " ", "failed": "request.name" },
                { "apiVersion": "", "kind": "", "current": "status.", "inProgress": "true" },
                { "apiVersion": "example.com", "kind": "Widget", "current": "true" },
            ] } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "S3", "local": { "directory": "a/../b" } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "S3", "s3": { "bucket": "A", "prefix": "/a/../b", "region": "here?", "endpoint": "http://s3.example.com/docs" } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "OSS", "s3": { "bucket": "a.b", "credentialsSecretRef": { "name": "s3" } } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "OSS", "s3": { "bucket": "docs", "endpoint": "https://docs.oss-cn-hangzhou.aliyuncs.com", "credentialsSecretRef": { "namespace": "a", "name": "b" } } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "OSS", "s3": { "bucket": "docs", "endpoint": "http://127.0.0.1:9000", "credentialsSecretRef": { "namespace": "a", "name": "b" } } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "Local", "s3": { "bucket": "docs" } } }),
        ),
        (
            "platform.stoa.dev/v1alpha1",
            "Backend",
            "",
            json!({ "metadata": { "name": "b" }, "spec": { "type": "S3", "s3": { "bucket": "docs", "endpoint": "https://ann:secret@s3.example.com", "credentialsSecretRef": { "namespace": "a", "name": "b" } } } }),
        ),
    ];
    let mut told = Vec::new();
    for (api_version, kind, namespace, object) in cases {
        let error = world.make(api_version, kind, namespace, object).await.unwrap_err();
        assert_eq!(error.code(), 422, "{kind}: {error}");
        assert!(!error.message().contains("secret@"), "a password must not be repeated: {error}");
        told.extend(causes(&error).into_iter().map(|cause| format!("{kind} {cause}")));
    }
    insta::assert_snapshot!(told.join("\n"), @r#"
    Organization metadata.name: Invalid value: "kube-x": the name is reserved
    Organization spec.owners[0].name: Required value
    Organization spec.owners[0].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"
    Organization metadata.name: Invalid value: "a.b": must be usable as the name of a namespace: at most 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit
    Source spec.remote: Forbidden: the address must not contain a password; use secretRef
    Source spec.pollInterval: Invalid value: "soon": "soon" is not a duration such as 30s or 1h30m
    Source spec.pullRequests.url: Required value: the repository's address names no server; name its URL
    Source spec.pullRequests.secretRef.name: Required value
    Source spec.pullRequests.secretRef.namespace: Forbidden: the Secret must be in the object's own namespace
    Source spec.pullRequests.url: Forbidden: must be https
    Source metadata.name: Invalid value: "ssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssssss": must be no more than 63 characters where pullRequests is set
    Source spec.remote: Forbidden: the repository's address does not end in <owner>/<name>, which spec.pullRequests needs
    Project spec.source.name: Required value
    Project spec.path: Invalid value: "../up": must be a relative path with '/' between its parts and without '..' and '.git'
    Stack spec.workspaces[1]: Duplicate value: "a"
    Stack spec.driftInterval: Invalid value: "1s": must be 0s, for never, or at least 10s
    Workspace spec.kubernetes.clusters[1]: Duplicate value: {"name":"a"}
    Workspace spec.kubernetes.clusters[0].kubeconfigSecretRef: Required value: either this or inCluster
    Workspace spec.gitops: Forbidden: may not be set together with kubernetes: a workspace leads to clusters or to a repository
    Workspace spec.healthPolicies[1]: Duplicate value: "Widget"
    Workspace spec.healthPolicies[1].current: Required value: an expression in CEL
    Workspace spec.healthPolicies[1].failed: Invalid value: "request.name": compilation failed: ERROR: <input>:1:1: undeclared reference to 'request' (in container '')
     | request.name
     | ^
    Workspace spec.healthPolicies[2].apiVersion: Required value
    Workspace spec.healthPolicies[2].kind: Required value
    Workspace spec.healthPolicies[2].current: Invalid value: "status.": compilation failed: ERROR: <input>:1:8: Syntax error: no viable alternative at input '.'
     | status.
     | .......^
    Workspace spec.healthPolicies[3].apiVersion: Invalid value: "example.com": must be <group>/<version>, or <version> for kinds without a group
    Backend spec.s3: Required value: the bucket, when type is S3 or OSS
    Backend spec.local: Forbidden: may only be set when type is Local
    Backend spec.local.directory: Invalid value: "a/../b": must not contain '..'
    Backend spec.s3.bucket: Invalid value: "A": must be 3 to 63 characters of a-z, 0-9, '-' and '.', beginning and ending with a letter or digit
    Backend spec.s3.prefix: Invalid value: "/a/../b": must be segments of letters, digits, '-', '_' and '.' with '/' in between, none beginning with '.'
    Backend spec.s3.region: Invalid value: "here?": must be made of a-z, 0-9 and '-'
    Backend spec.s3.endpoint: Invalid value: "http://s3.example.com/docs": must not have a path, as the bucket and the prefix are set apart
    Backend spec.s3.endpoint: Invalid value: "http://s3.example.com/docs": must be https, unless it is a loopback address
    Backend spec.s3.credentialsSecretRef: Required value
    Backend spec.s3.region: Required value: either this or endpoint
    Backend spec.s3.bucket: Invalid value: "a.b": must not contain '.' when type is OSS
    Backend spec.s3.credentialsSecretRef.namespace: Required value
    Backend spec.s3.endpoint: Invalid value: "https://docs.oss-cn-hangzhou.aliyuncs.com": must be without the bucket, which goes before the host unless addressing is CustomDomain
    Backend spec.s3.endpoint: Invalid value: "http://127.0.0.1:9000": must not be an address, as the bucket goes before the host unless addressing is CustomDomain
    Backend spec.s3: Forbidden: may only be set when type is S3 or OSS
    Backend spec.s3.endpoint: Forbidden: must not contain credentials; use credentialsSecretRef
    "#);
}

#[tokio::test]
async fn names_that_make_no_label_are_refused() {
    let world = World::new().await;
    let name = "n".repeat(64);
    let expected = format!("metadata.name: Invalid value: \"{name}\": must be no more than 63 characters");
    let kinds = [
        ("config.stoa.dev/v1alpha1", "Project", "shop", json!({ "source": { "name": "main" }, "path": "p" })),
        ("config.stoa.dev/v1alpha1", "Stack", "shop", json!({ "project": "p" })),
        ("platform.stoa.dev/v1alpha1", "Workspace", "", json!({ "backend": { "name": "b" } })),
        ("platform.stoa.dev/v1alpha1", "Backend", "", json!({ "type": "Local", "local": { "directory": "d" } })),
    ];
    for (api_version, kind, namespace, spec) in kinds {
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        let error = world.make(api_version, kind, namespace, object).await.unwrap_err();
        assert_eq!(error.code(), 422, "{kind}: {error}");
        assert!(causes(&error).contains(&expected), "{kind}: {error}");
    }
}

/// A request of a user who may do no more than this.
fn by(name: &str, allowed: &[&'static str]) -> RequestContext {
    let user = UserInfo { name: name.to_owned(), ..UserInfo::default() };
    RequestContext::new(user, Arc::new(Allow(allowed.to_vec())))
}

#[tokio::test]
async fn who_has_the_server_ask_itself_for_pull_requests_may_use_that_host() {
    use stoa_types::Source;
    let world = World::new().await;
    let make = async |allowed: &[&'static str], name: &str, remote: &str, pulls: Value| {
        let source = json!({ "metadata": { "name": name }, "spec": { "remote": remote, "pullRequests": pulls } });
        world.make_as(&by("ann", allowed), "config.stoa.dev/v1alpha1", "Source", "shop", source).await
    };
    let gitea = json!({ "provider": "Gitea" });
    let named = json!({ "provider": "Gitea", "url": "https://127.0.0.1:6443" });
    for (remote, pulls) in [
        ("http://127.0.0.1:2379/shop/config.git", &gitea),
        ("https://localhost:6443/shop/config.git", &gitea),
        ("git@git.example.com:shop/config.git", &named),
    ] {
        let error = make(&[], "config", remote, pulls.clone()).await.unwrap_err();
        assert!(error.code() == 403 && error.message().contains("cannot use resource \"hookhosts\""), "{error}");
    }
    make(&["use hookhosts 127.0.0.1:2379"], "config", "http://127.0.0.1:2379/shop/config.git", gitea.clone())
        .await
        .unwrap();
    make(&[], "elsewhere", "https://git.example.com/shop/config.git", gitea).await.unwrap();
    let sources = |allowed: &[&'static str]| world.registry.api::<Source>().with_context(by("ann", allowed));
    let lead = |source: &mut Source| source.spec.remote = "http://127.0.0.1:2379/shop/config.git".to_owned();
    assert_eq!(sources(&[]).update_with("shop", "elsewhere", lead).await.unwrap_err().code(), 403);
    sources(&["use hookhosts 127.0.0.1:2379"]).update_with("shop", "elsewhere", lead).await.unwrap();
}

#[tokio::test]
async fn who_has_a_secret_shown_to_a_server_may_use_it() {
    use stoa_types::Source;
    let world = World::new().await;
    let make = async |allowed: &[&'static str], name: &str, spec: Value| {
        let source = json!({ "metadata": { "name": name }, "spec": spec });
        world.make_as(&by("ann", allowed), "config.stoa.dev/v1alpha1", "Source", "shop", source).await
    };
    let remote = "https://git.example.com/shop/config.git";
    let of_pulls =
        json!({ "remote": remote, "pullRequests": { "provider": "Gitea", "secretRef": { "name": "forge" } } });
    for (spec, use_of) in [
        (json!({ "remote": remote, "secretRef": { "name": "git" } }), "use secrets git"),
        (of_pulls, "use secrets forge"),
    ] {
        let error = make(&[], "private", spec.clone()).await.unwrap_err();
        assert!(error.code() == 403 && error.message().contains("cannot use resource \"secrets\""), "{error}");
        make(&[use_of], use_of.rsplit(' ').next().unwrap(), spec).await.unwrap();
    }
    let sources = |allowed: &[&'static str]| world.registry.api::<Source>().with_context(by("ann", allowed));
    let elsewhere = |source: &mut Source| source.spec.remote = "https://elsewhere.example.com/a.git".to_owned();
    let often = |source: &mut Source| source.spec.poll_interval = "1s".into();
    assert_eq!(sources(&[]).update_with("shop", "git", elsewhere).await.unwrap_err().code(), 403);
    sources(&[]).update_with("shop", "git", often).await.unwrap();
    sources(&["use secrets git"]).update_with("shop", "git", elsewhere).await.unwrap();
    let open = |source: &mut Source| source.spec.secret_ref = None;
    sources(&[]).update_with("shop", "git", open).await.unwrap();
}

#[tokio::test]
async fn who_has_a_project_destroy_its_stacks_may_destroy_them() {
    use stoa_types::{DeletionPolicy, Project, Stack};
    const ALL: [&str; 3] = ["create stacks/destroy web-dev", "use workspaces dev", "use backends default"];
    let world = World::with_stack().await;
    let deployed = json!([{ "workspace": "dev", "resources": 1 }]);
    let deploy = |stack: &mut Stack| {
        stack.status.get_or_insert_default().deployments = serde_json::from_value(deployed.clone()).unwrap();
    };
    world.registry.api::<Stack>().update_status_with("shop", "web-dev", deploy).await.unwrap();
    let projects = |allowed: &[&'static str]| world.registry.api::<Project>().with_context(by("ann", allowed));
    let orphan = |project: &mut Project| project.spec.deletion_policy = DeletionPolicy::Orphan;
    let destroy = |project: &mut Project| project.spec.deletion_policy = DeletionPolicy::Destroy;
    projects(&[]).update_with("shop", "web", orphan).await.unwrap();
    projects(&[]).delete("shop", "web", &Default::default()).await.unwrap();
    assert_eq!(projects(&[]).update_with("shop", "web", destroy).await.unwrap_err().code(), 403);
    projects(&ALL).update_with("shop", "web", destroy).await.unwrap();
    let late = json!({ "metadata": { "name": "late" }, "spec": { "project": "web" } });
    let error = world.make("config.stoa.dev/v1alpha1", "Stack", "shop", late).await.unwrap_err();
    assert!(error.code() == 403 && error.message().contains("project \"web\" is being deleted"), "{error}");
}

#[tokio::test]
async fn workspace_stays_with_the_backend_that_has_what_it_needs() {
    use stoa_types::{DeletionPolicy, Stack, Workspace};
    let world = World::with_stack().await;
    let workspaces = world.registry.api::<Workspace>();
    let moved = |workspace: &mut Workspace| workspace.spec.backend.name = "elsewhere".to_owned();
    let live = |resources: u64| {
        let deployed = json!([{ "workspace": "dev", "resources": resources }]);
        move |stack: &mut Stack| {
            stack.status.get_or_insert_default().deployments = serde_json::from_value(deployed.clone()).unwrap();
        }
    };
    let stacks = world.registry.api::<Stack>();
    stacks.update_status_with("shop", "web-dev", live(1)).await.unwrap();
    for policy in [DeletionPolicy::Refuse, DeletionPolicy::Orphan] {
        stacks.update_with("shop", "web-dev", |stack: &mut Stack| stack.spec.deletion_policy = policy).await.unwrap();
        assert_eq!(workspaces.update_with("", "dev", moved).await.unwrap_err().code(), 409, "{policy:?}");
    }
    stacks.update_status_with("shop", "web-dev", live(0)).await.unwrap();
    workspaces.update_with("", "dev", moved).await.unwrap();
}

#[tokio::test]
async fn who_decides_what_is_started_by_itself_may_start_it() {
    use stoa_types::{Project, Source, Stack, config::Trigger};
    const ALL: [&str; 4] =
        ["create runs ", "create stacks/apply web-dev", "use workspaces dev", "use backends default"];
    let world = World::with_stack().await;
    let source = json!({ "metadata": { "name": "config" }, "spec": { "remote": "file:///config.git" } });
    world.make("config.stoa.dev/v1alpha1", "Source", "shop", source).await.unwrap();
    let stacks = |allowed: &[&'static str]| world.registry.api::<Stack>().with_context(by("ann", allowed));
    let apply = |stack: &mut Stack| stack.spec.trigger = Trigger::Apply;
    for count in 0..ALL.len() {
        let error = stacks(&ALL[..count]).update_with("shop", "web-dev", apply).await.unwrap_err();
        assert_eq!(error.code(), 403, "{error}");
    }
    let set = stacks(&ALL).update_with("shop", "web-dev", apply).await.unwrap();
    assert_eq!(set.status.unwrap().trigger.unwrap().set_by, "ann");

    // What the stack deploys is decided by whoever changes that.
    let describe = |stack: &mut Stack| stack.spec.description = Some("Web".to_owned());
    stacks(&[]).update_with("shop", "web-dev", describe).await.unwrap();
    let version = |stack: &mut Stack| stack.spec.desired_version = "v2".to_owned();
    assert_eq!(stacks(&ALL[..3]).update_with("shop", "web-dev", version).await.unwrap_err().code(), 403);
    let owned = |stack: &mut Stack| stack.status.get_or_insert_default().trigger = None;
    assert_eq!(stacks(&ALL).update_status_with("shop", "web-dev", owned).await.unwrap_err().code(), 403);
    let sources = |allowed: &[&'static str]| world.registry.api::<Source>().with_context(by("ann", allowed));
    let elsewhere = |source: &mut Source| source.spec.remote = "https://git.example.com/shop/other.git".to_owned();
    let planned = |source: &mut Source| source.spec.pull_requests = Some(Default::default());
    let often = |source: &mut Source| source.spec.poll_interval = "1s".into();
    sources(&[]).update_with("shop", "config", often).await.unwrap();
    assert_eq!(sources(&[]).update_with("shop", "config", elsewhere).await.unwrap_err().code(), 403);
    let led = world.registry.api::<Source>().with_context(by("eve", &ALL));
    led.update_with("shop", "config", elsewhere).await.unwrap();
    let forgotten = |source: &mut Source| source.status = None;
    assert_eq!(led.update_status_with("shop", "config", forgotten).await.unwrap_err().code(), 403);
    // Nobody of them is to approve alone what comes of it.
    let stack = world.registry.api::<Stack>().get("shop", "web-dev").await.unwrap();
    let of_project = |project: &mut Project| project.status.get_or_insert_default().set_by = "bob".to_owned();
    world.registry.api::<Project>().update_status_with("shop", "web", of_project).await.unwrap();
    let lookup = Lookup::default();
    lookup.set(world.registry.clone());
    assert_eq!(super::trigger::Deciders::of(&lookup, &stack).await.unwrap().last, ["ann", "bob", "eve"]);
    assert_eq!(sources(&[]).update_with("shop", "config", planned).await.unwrap_err().code(), 403);
    sources(&ALL).update_with("shop", "config", planned).await.unwrap();
    let found = |source: &mut Source| source.status.get_or_insert_default().observed_commit = Some("a".repeat(40));
    assert_eq!(sources(&ALL).update_status_with("shop", "config", found).await.unwrap_err().code(), 403);
    sources(&[]).delete("shop", "config", &Default::default()).await.unwrap();
    let made_anew = json!({ "metadata": { "name": "config" }, "spec": { "remote": "file:///other.git" } });
    let make = |allowed: &[&'static str]| {
        let (context, source) = (by("ann", allowed), made_anew.clone());
        let world = &world;
        async move { world.make_as(&context, "config.stoa.dev/v1alpha1", "Source", "shop", source).await }
    };
    assert_eq!(make(&[]).await.unwrap_err().code(), 403);
    make(&ALL).await.unwrap();
    let anew = world.registry.api::<Source>().get("shop", "config").await.unwrap();
    assert_eq!(anew.status.unwrap().set_by, "ann");
    let projects = |allowed: &[&'static str]| world.registry.api::<Project>().with_context(by("ann", allowed));
    let path = |project: &mut Project| project.spec.path = "elsewhere".to_owned();
    assert_eq!(projects(&[]).update_with("shop", "web", path).await.unwrap_err().code(), 403);
    projects(&ALL).update_with("shop", "web", path).await.unwrap();

    // Nor does it take less to make anew what leads there.
    let orphan = |project: &mut Project| project.spec.deletion_policy = stoa_types::DeletionPolicy::Orphan;
    projects(&[]).update_with("shop", "web", orphan).await.unwrap();
    projects(&[]).delete("shop", "web", &Default::default()).await.unwrap();
    let let_go = |project: &mut Project| project.metadata.finalizers = None;
    projects(&[]).update_with("shop", "web", let_go).await.unwrap();
    let made_anew = json!({ "metadata": { "name": "web" }, "spec": { "source": { "name": "elsewhere" } } });
    let make = |allowed: &[&'static str]| {
        let (context, project) = (by("ann", allowed), made_anew.clone());
        let world = &world;
        async move { world.make_as(&context, "config.stoa.dev/v1alpha1", "Project", "shop", project).await }
    };
    assert_eq!(make(&[]).await.unwrap_err().code(), 403);
    make(&ALL).await.unwrap();
    let anew = world.registry.api::<Project>().get("shop", "web").await.unwrap();
    assert_eq!(anew.status.unwrap().set_by, "ann");

    // To have it not started takes nothing.
    let manual = |stack: &mut Stack| stack.spec.trigger = Trigger::Manual;
    stacks(&[]).update_with("shop", "web-dev", manual).await.unwrap();
    projects(&[])
        .update_with("shop", "web", |project: &mut Project| project.spec.path = "apps".to_owned())
        .await
        .unwrap();
}

#[tokio::test]
async fn everybody_who_decided_what_is_started_by_itself_is_kept_and_not_the_last_alone() {
    use stoa_types::{
        Project, Source, Stack,
        config::{SeenChanges, Trigger},
    };
    const ALL: [&str; 4] =
        ["create runs ", "create stacks/apply web-dev", "use workspaces dev", "use backends default"];
    let world = World::with_stack().await;
    let source = json!({ "metadata": { "name": "config" }, "spec": { "remote": "file:///config.git" } });
    world.make("config.stoa.dev/v1alpha1", "Source", "shop", source).await.unwrap();
    let stacks = |name: &str| world.registry.api::<Stack>().with_context(by(name, &ALL));
    let sources = |name: &str| world.registry.api::<Source>().with_context(by(name, &ALL));
    let projects = |name: &str| world.registry.api::<Project>().with_context(by(name, &ALL));
    let apply = |stack: &mut Stack| stack.spec.trigger = Trigger::Apply;
    stacks("eve").update_with("shop", "web-dev", apply).await.unwrap();
    let version = |stack: &mut Stack| stack.spec.desired_version = "v2".to_owned();
    let stack = stacks("ann").update_with("shop", "web-dev", version).await.unwrap();
    let trigger = stack.status.clone().unwrap().trigger.unwrap();
    assert_eq!(trigger.since.as_ref(), Some(&trigger.changed_by[0].time), "it was set once, by eve");
    for name in ["bob", "dan"] {
        let elsewhere = |source: &mut Source| source.spec.reference = format!("of-{name}");
        sources(name).update_with("shop", "config", elsewhere).await.unwrap();
        let path = |project: &mut Project| project.spec.path = format!("apps/of-{name}");
        projects(name).update_with("shop", "web", path).await.unwrap();
    }
    let lookup = Lookup::default();
    lookup.set(world.registry.clone());
    let deciders = super::trigger::Deciders::of(&lookup, &stack).await.unwrap();
    assert_eq!(deciders.last, ["ann", "dan", "dan"]);
    assert_eq!(deciders.after(&SeenChanges::default()), ["ann", "eve", "dan", "bob", "dan", "bob"]);
    assert_eq!(deciders.after(&deciders.seen()), [""; 0]);
    // Nobody takes themselves out.
    let of_source = |source: &mut Source| source.status.get_or_insert_default().changed_by.clear();
    assert_eq!(sources("bob").update_status_with("shop", "config", of_source).await.unwrap_err().code(), 403);
    let of_project = |project: &mut Project| project.status.get_or_insert_default().changed_by.clear();
    assert_eq!(projects("bob").update_status_with("shop", "web", of_project).await.unwrap_err().code(), 403);
    let of_stack = |stack: &mut Stack| {
        stack.status.get_or_insert_default().trigger.get_or_insert_default().changed_by.clear();
    };
    assert_eq!(stacks("eve").update_status_with("shop", "web-dev", of_stack).await.unwrap_err().code(), 403);
}

#[tokio::test]
async fn who_has_a_stack_deleted_is_kept_with_it_whoever_deletes_it_for_them() {
    let world = World::with_stack().await;
    let hold = |stack: &mut stoa_types::Stack| stack.metadata.finalizers = Some(vec!["example.com/held".to_owned()]);
    world.registry.api::<stoa_types::Stack>().update_with("shop", "web-dev", hold).await.unwrap();
    let on_behalf = super::trigger::on_behalf_of("projects", vec!["eve".to_owned()]);
    let stacks = world.registry.api::<stoa_types::Stack>().with_context(on_behalf);
    stacks.delete("shop", "web-dev", &Default::default()).await.unwrap();
    let going = stacks.get("shop", "web-dev").await.unwrap();
    assert!(going.metadata.deletion_timestamp.is_some());
    assert_eq!(going.status.unwrap().deleted_by, "eve");
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
    for (release, why) in [(1, "an earlier stack"), (3, "nothing to go back to"), (4, "not kept any more")] {
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
async fn accounts_that_no_role_can_be_bound_to_are_refused_where_they_are_new() {
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

#[tokio::test]
async fn a_stack_with_live_infrastructure_is_not_deleted() {
    let world = World::with_stack().await;
    let api = world.registry.api::<stoa_types::Stack>();
    api.update_status_with("shop", "web-dev", |s: &mut stoa_types::Stack| {
        let deployment =
            stoa_types::config::Deployment { workspace: "dev".to_owned(), resources: 3, ..Default::default() };
        s.status.get_or_insert_default().deployments.push(deployment);
    })
    .await
    .unwrap();
    let error = api.delete("shop", "web-dev", &Default::default()).await.unwrap_err();
    assert_eq!(error.code(), 403);
    assert!(error.message().contains("deletionPolicy is Refuse"), "{error}");
}

#[tokio::test]
async fn what_a_run_may_have_made_counts_as_live_until_the_run_says_what_is() {
    use stoa_types::{DeletionPolicy, Project, Run, Stack, Workspace, delivery::RunPhase};
    let world = World::with_stack().await;
    let spec = json!({ "stack": "web-dev", "workspace": "dev", "operation": "Apply" });
    let run = json!({ "metadata": { "name": "web-dev-1" }, "spec": spec });
    world.make("delivery.stoa.dev/v1alpha1", "Run", "shop", run).await.unwrap();
    let mut dry = by("ann", &[]);
    dry.dry_run = true;
    let stacks = world.registry.api::<Stack>().with_context(dry.clone());
    let projects = world.registry.api::<Project>().with_context(dry.clone());
    let workspaces = world.registry.api::<Workspace>().with_context(dry);
    let destroy = |stack: &mut Stack| stack.spec.deletion_policy = DeletionPolicy::Destroy;
    let elsewhere = |workspace: &mut Workspace| workspace.spec.gitops.as_mut().unwrap().directory = "stage".to_owned();
    for (phase, of_run, may_be_live) in [
        ("Generating", RunPhase::Generating, true),
        ("Applying", RunPhase::Applying, true),
        ("Verifying", RunPhase::Verifying, true),
        ("AwaitingApproval", RunPhase::AwaitingApproval, false),
        ("AwaitingMerge", RunPhase::AwaitingMerge, false),
        ("Failed", RunPhase::Verifying, false),
        // It ended without telling.
        ("Generating", RunPhase::Failed, false),
    ] {
        let set = |run: &mut Run| run.status.get_or_insert_default().phase = of_run;
        world.registry.api::<Run>().update_status_with("shop", "web-dev-1", set).await.unwrap();
        let deployed = json!([{ "workspace": "dev", "resources": 0, "phase": phase, "lastRun": "web-dev-1" }]);
        let at = |stack: &mut Stack| {
            stack.status.get_or_insert_default().deployments = serde_json::from_value(deployed.clone()).unwrap();
        };
        world.registry.api::<Stack>().update_status_with("shop", "web-dev", at).await.unwrap();
        let refused = [
            stacks.delete("shop", "web-dev", &Default::default()).await.err(),
            stacks.update_with("shop", "web-dev", destroy).await.err(),
            projects.delete("shop", "web", &Default::default()).await.err(),
            workspaces.delete("", "dev", &Default::default()).await.err(),
            workspaces.update_with("", "dev", elsewhere).await.err(),
        ];
        let expected = if may_be_live { [403, 403, 403, 409, 409].map(Some) } else { [None; 5] };
        assert_eq!(refused.map(|error| error.map(|error| error.code())), expected, "{phase} {of_run:?}");
    }
}

/// Gives leave to destroy a stack, and ends a run when it is asked for that.
#[derive(Debug)]
struct EndsRun(Arc<Registry>, &'static str);

#[async_trait]
impl Authorizer for EndsRun {
    async fn authorize(&self, user: &UserInfo, attributes: &Attributes) -> Result<Decision, ApiError> {
        use stoa_types::{Run, delivery::RunPhase};
        let decision = Allow(vec!["create stacks/destroy web-dev"]).authorize(user, attributes).await?;
        if attributes.subresource == "destroy" {
            let end = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Failed;
            self.0.api::<Run>().update_status_with("shop", self.1, end).await?;
        }
        Ok(decision)
    }
}

#[tokio::test]
async fn what_is_live_is_found_out_once_for_all_that_takes_leave_to_destroy_it() {
    use stoa_types::{DeletionPolicy, Run, Stack, delivery::RunPhase};
    let world = World::with_stack().await;
    let stacks = world.registry.api::<Stack>();
    for (name, policy) in [("web-dev-1", DeletionPolicy::Destroy), ("web-dev-2", DeletionPolicy::Refuse)] {
        stacks.update_with("shop", "web-dev", |stack: &mut Stack| stack.spec.deletion_policy = policy).await.unwrap();
        let spec = json!({ "stack": "web-dev", "workspace": "dev", "operation": "Apply" });
        let run = json!({ "metadata": { "name": name }, "spec": spec });
        world.make("delivery.stoa.dev/v1alpha1", "Run", "shop", run).await.unwrap();
        let begin = |run: &mut Run| run.status.get_or_insert_default().phase = RunPhase::Applying;
        world.registry.api::<Run>().update_status_with("shop", name, begin).await.unwrap();
        let deployed = json!([{ "workspace": "dev", "resources": 0, "phase": "Applying", "lastRun": name }]);
        let begin = |stack: &mut Stack| {
            stack.status.get_or_insert_default().deployments = serde_json::from_value(deployed.clone()).unwrap();
        };
        stacks.update_status_with("shop", "web-dev", begin).await.unwrap();
        let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
        let mut dry = RequestContext::new(user, Arc::new(EndsRun(world.registry.clone(), name)));
        dry.dry_run = true;
        let asked = stacks.clone().with_context(dry);
        let refused = if policy == DeletionPolicy::Destroy {
            asked.delete("shop", "web-dev", &Default::default()).await.unwrap_err()
        } else {
            let destroy = |stack: &mut Stack| stack.spec.deletion_policy = DeletionPolicy::Destroy;
            asked.update_with("shop", "web-dev", destroy).await.unwrap_err()
        };
        // Whether it is live is not asked once more after that.
        assert!(refused.message().contains("workspaces.platform.stoa.dev \"dev\" is forbidden"), "{refused}");
    }
}

#[tokio::test]
async fn columns_have_the_types_of_what_they_show() {
    let world = World::new().await;
    let mut checked = 0;
    for store in world.registry.stores() {
        let definition = store.definition();
        for column in &definition.columns {
            let stoa_machinery::definition::Cell::Path(path) = column.cell else { continue };
            let mut schema = &*definition.schema;
            for field in path {
                schema = &schema["properties"][field];
            }
            assert_eq!(schema["type"], column.kind, "{} {}", definition.plural, column.name);
            checked += 1;
        }
    }
    assert!(checked > 20, "{checked}");
}
