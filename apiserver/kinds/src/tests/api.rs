//! The kinds as clients meet them: made, read, changed, listed, narrowed and deleted over HTTP.

use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use stoa_machinery::{
    RequestContext,
    auth::AllowAll,
    http::{ApiHandler, RequestInfo, body},
    request::UserInfo,
};
use stoa_types::labels;

use super::{Arc, World};
use crate::core_v1::NAMESPACE_FINALIZER;

const CONFIG: &str = "config.stoa.dev/v1alpha1";
const PLATFORM: &str = "platform.stoa.dev/v1alpha1";
const DELIVERY: &str = "delivery.stoa.dev/v1alpha1";

struct Client {
    handler: ApiHandler,
    context: RequestContext,
}

impl Client {
    /// A client that may do everything and is not the server itself.
    fn of(world: &World) -> Self {
        let user = UserInfo { name: "ann".to_owned(), ..UserInfo::default() };
        Self::with(world, RequestContext::new(user, Arc::new(AllowAll)))
    }

    /// The server's own controllers, which write what nobody else may.
    fn controllers(world: &World) -> Self {
        Self::with(world, RequestContext::internal("tests"))
    }

    fn with(world: &World, context: RequestContext) -> Self {
        let handler = ApiHandler::new(&world.registry);
        Self { handler, context }
    }

    async fn send(&self, method: &str, path: &str, object: &Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let text = if object.is_null() { String::new() } else { object.to_string() };
        let request = request.body(body::full(text)).unwrap();
        let info = RequestInfo::new(request.method(), request.uri());
        let (parts, body) = self.handler.handle(info, self.context.clone(), request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        (parts.status.as_u16(), serde_json::from_slice(&bytes).unwrap())
    }

    #[track_caller]
    fn create(&self, path: &str, object: &Value) -> impl Future<Output = Value> {
        let caller = std::panic::Location::caller();
        async move {
            let (code, created) = self.send("POST", path, object).await;
            assert_eq!(code, 201, "{caller}: {created:#}");
            created
        }
    }

    /// The names of a list, in its order.
    async fn names(&self, path: &str) -> Vec<String> {
        let (code, list) = self.send("GET", path, &Value::Null).await;
        assert_eq!(code, 200, "{list:#}");
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Takes an object of a kind that people write from its creation to its end.
    async fn live(&self, collection: &str, api_version: &str, kind: &str, spec: Value) {
        let mut spec = spec;
        spec["description"] = "For tests".into();
        spec["owners"] = json!([{ "kind": "Group", "name": "leads" }]);
        let metadata = json!({ "name": "one", "labels": { "tier": "front" } });
        let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec });
        let one = format!("{collection}/one");

        let created = self.create(collection, &object).await;
        let (code, again) = self.send("POST", collection, &object).await;
        assert_eq!((code, &again["reason"]), (409, &json!("AlreadyExists")), "a name is taken once");

        let (code, read) = self.send("GET", &one, &Value::Null).await;
        assert_eq!((code, &read), (200, &created));
        assert_eq!(read["metadata"]["labels"]["tier"], "front");
        assert_eq!(read["spec"]["description"], "For tests");
        assert_eq!(read["spec"]["owners"][0]["name"], "leads");
        for (field, value) in spec.as_object().unwrap() {
            assert!(contains(&read["spec"][field], value), "spec.{field} is {}, not {value}", read["spec"][field]);
        }

        let mut changed = read;
        changed["spec"]["description"] = "Changed".into();
        let (code, answer) = self.send("PUT", &one, &changed).await;
        assert_eq!((code, &answer["metadata"]["generation"]), (200, &json!(2)), "{answer:#}");
        let (_, mut read) = self.send("GET", &one, &Value::Null).await;
        assert_eq!(read["spec"]["description"], "Changed");
        assert!(self.names(collection).await.contains(&"one".to_owned()));

        let (code, answer) = self.send("DELETE", &one, &Value::Null).await;
        assert_eq!(code, 200, "{answer:#}");
        if read["metadata"]["finalizers"].is_array() {
            // Here are no controllers that would do this.
            (_, read) = self.send("GET", &one, &Value::Null).await;
            assert!(read["metadata"]["deletionTimestamp"].is_string(), "{read:#}");
            read["metadata"]["finalizers"] = json!([]);
            self.send("PUT", &one, &read).await;
        }
        let (code, answer) = self.send("GET", &one, &Value::Null).await;
        assert_eq!((code, &answer["reason"]), (404, &json!("NotFound")));
        assert!(!self.names(collection).await.contains(&"one".to_owned()));
    }
}

/// Whether `all` says what `part` says; defaults may be there as well.
fn contains(all: &Value, part: &Value) -> bool {
    match (all, part) {
        (Value::Object(all), Value::Object(part)) => {
            part.iter().all(|(key, value)| all.get(key).is_some_and(|of_all| contains(of_all, value)))
        }
        (Value::Array(all), Value::Array(part)) => {
            all.len() == part.len() && all.iter().zip(part).all(|(all, part)| contains(all, part))
        }
        (all, part) => all == part,
    }
}

fn cluster_wide(api_version: &str, plural: &str) -> String {
    format!("/apis/{api_version}/{plural}")
}

fn inside(api_version: &str, namespace: &str, plural: &str) -> String {
    format!("/apis/{api_version}/namespaces/{namespace}/{plural}")
}

#[tokio::test]
async fn organization_lives() {
    let world = World::new().await;
    let collection = cluster_wide(CONFIG, "organizations");
    Client::of(&world).live(&collection, CONFIG, "Organization", json!({})).await;
}

#[tokio::test]
async fn source_lives() {
    let world = World::new().await;
    let spec = json!({ "provider": "Git", "remote": "https://git.example.com/config.git", "ref": "main" });
    Client::of(&world).live(&inside(CONFIG, "shop", "sources"), CONFIG, "Source", spec).await;
}

#[tokio::test]
async fn project_lives() {
    let world = World::new().await;
    let template = json!({ "source": { "name": "templates" }, "path": "web" });
    let spec = json!({ "source": { "name": "config" }, "path": "apps/web", "template": template });
    Client::of(&world).live(&inside(CONFIG, "shop", "projects"), CONFIG, "Project", spec).await;
}

#[tokio::test]
async fn stack_lives() {
    let world = World::with_stack().await;
    let spec = json!({ "project": "web", "path": "apps/web/one", "desiredVersion": "v1", "workspaces": ["dev"] });
    Client::of(&world).live(&inside(CONFIG, "shop", "stacks"), CONFIG, "Stack", spec).await;
}

#[tokio::test]
async fn backend_lives() {
    let world = World::new().await;
    let spec = json!({ "type": "Local", "local": { "directory": "one" } });
    Client::of(&world).live(&cluster_wide(PLATFORM, "backends"), PLATFORM, "Backend", spec).await;
}

#[tokio::test]
async fn notification_sink_lives() {
    let world = World::new().await;
    let spec = json!({
        "url": "https://hooks.example.com/stoa",
        "secretRef": { "namespace": "stoa-system", "name": "hooks", "key": "key" },
        "events": ["dev.stoa.run.failed"],
    });
    Client::of(&world).live(&cluster_wide(PLATFORM, "notificationsinks"), PLATFORM, "NotificationSink", spec).await;
}

#[tokio::test]
async fn variable_set_lives() {
    let world = World::new().await;
    let spec = json!({ "values": { "region": "eu", "sizes": [1, 2] }, "organizations": ["shop"] });
    Client::of(&world).live(&cluster_wide(PLATFORM, "variablesets"), PLATFORM, "VariableSet", spec).await;
}

#[tokio::test]
async fn module_lives() {
    let world = World::new().await;
    let spec = json!({ "path": "oci://ghcr.io/kusionstack/network", "versions": [{ "version": "0.2.0" }] });
    Client::of(&world).live(&cluster_wide(PLATFORM, "modules"), PLATFORM, "Module", spec).await;
}

#[tokio::test]
async fn workspace_lives() {
    let world = World::new().await;
    let clusters = json!([{ "name": "main", "inCluster": true }]);
    let spec = json!({
        "backend": { "name": "default" },
        "kubernetes": { "clusters": clusters },
        "modules": { "mysql": { "path": "oci://ghcr.io/kusionstack/mysql", "version": "0.2.0", "configs": {
            "default": { "instanceType": "db.t3.micro" }, "large": { "instanceType": "db.t3.large", "projectSelector": ["shop"] },
        } } },
    });
    Client::of(&world).live(&cluster_wide(PLATFORM, "workspaces"), PLATFORM, "Workspace", spec).await;
}

#[tokio::test]
async fn workspace_reports_missing_cluster_on_standalone_server() {
    let world = World::with_stack().await;
    let backends = world.registry.api::<stoa_types::Backend>();
    let ready = |backend: &mut stoa_types::Backend| {
        let conditions = &mut backend.status.get_or_insert_default().conditions;
        stoa_controller::conditions::set_condition(
            conditions,
            "Ready",
            true,
            "Available",
            "it is there".to_owned(),
            Some(1),
        );
    };
    backends.update_status_with("", "default", ready).await.unwrap();
    let client = Client::of(&world);
    let collection = cluster_wide(PLATFORM, "workspaces");
    let make = |name: &str, target: Value| {
        let mut spec = json!({ "backend": { "name": "default" } });
        spec.as_object_mut().unwrap().extend(target.as_object().unwrap().clone());
        json!({ "apiVersion": PLATFORM, "kind": "Workspace", "metadata": { "name": name }, "spec": spec })
    };
    let around = json!({ "kubernetes": { "clusters": [{ "name": "main", "inCluster": true }] } });
    let written = client.create(&collection, &make("around", around)).await;
    let condition = &written["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Ready"), &json!("True")), "{written:#}");
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.contains("a standalone server has no cluster of its own: inCluster of cluster \"main\""),
        "{message}"
    );
    let repository = json!({ "gitops": { "repository": "file:///deploy.git" } });
    let written = client.create(&collection, &make("git", repository)).await;
    let condition = &written["status"]["conditions"][0];
    assert_eq!(condition["message"], "Stoa has not checked the repository and the Secrets yet");
}

/// Nothing has to be written once more that would take the version away from under the client's next write.
#[tokio::test]
async fn readiness_that_follows_from_a_write_is_in_it() {
    let world = World::new().await;
    let client = Client::of(&world);
    let clusters = json!([{ "name": "main", "inCluster": true }]);
    let project = json!({ "source": { "name": "none" } });
    let workspace = json!({ "backend": { "name": "none" }, "kubernetes": { "clusters": clusters } });
    for (collection, api_version, kind, spec, missing) in [
        (inside(CONFIG, "shop", "projects"), CONFIG, "Project", project, "source \"none\" does not exist"),
        (cluster_wide(PLATFORM, "workspaces"), PLATFORM, "Workspace", workspace, "backend \"none\" does not exist"),
    ] {
        let metadata = json!({ "name": "one" });
        let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec });
        let mut written = client.create(&collection, &object).await;
        for generation in 1..3 {
            let condition = &written["status"]["conditions"][0];
            assert_eq!((&condition["type"], &condition["status"]), (&json!("Ready"), &json!("False")), "{written:#}");
            assert_eq!(condition["message"], missing);
            assert_eq!(condition["observedGeneration"], generation);
            assert_eq!(written["metadata"]["generation"], generation);
            assert_eq!(written["status"]["stacks"], 0);
            written["spec"]["description"] = format!("Changed {generation}").into();
            let (code, answer) = client.send("PUT", &format!("{collection}/one"), &written).await;
            assert_eq!(code, 200, "{answer:#}");
            written = answer;
        }
    }
}

#[tokio::test]
async fn project_needs_an_organization_and_a_source() {
    let world = World::new().await;
    let client = Client::of(&world);
    let project =
        |spec: Value| json!({ "apiVersion": CONFIG, "kind": "Project", "metadata": { "name": "p" }, "spec": spec });
    let sourced = project(json!({ "source": { "name": "config" } }));
    let (code, answer) = client.send("POST", &inside(CONFIG, "nobody", "projects"), &sourced).await;
    assert_eq!((code, &answer["reason"]), (404, &json!("NotFound")), "{answer:#}");
    let (code, answer) = client.send("POST", &inside(CONFIG, "shop", "projects"), &project(json!({}))).await;
    assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!("spec.source")), "{answer:#}");
}

#[tokio::test]
async fn stack_needs_a_project_of_its_organization() {
    let world = World::with_stack().await;
    world.make("v1", "Namespace", "", json!({ "metadata": { "name": "bank" } })).await.unwrap();
    let client = Client::of(&world);
    let stack =
        json!({ "apiVersion": CONFIG, "kind": "Stack", "metadata": { "name": "s" }, "spec": { "project": "web" } });
    let (code, answer) = client.send("POST", &inside(CONFIG, "bank", "stacks"), &stack).await;
    assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!("spec.project")), "{answer:#}");
    client.create(&inside(CONFIG, "shop", "stacks"), &stack).await;
}

#[tokio::test]
async fn server_retains_required_finalizers_until_deletion() {
    let world = World::with_stack().await;
    let client = Client::of(&world);
    let steps = json!({ "steps": [{ "name": "ask", "approval": { "message": "go on?" } }] });
    for (collection, api_version, kind, spec, finalizer) in [
        (cluster_wide(CONFIG, "organizations"), CONFIG, "Organization", json!({}), labels::NAMESPACE_FINALIZER),
        (
            inside(CONFIG, "shop", "projects"),
            CONFIG,
            "Project",
            json!({ "source": { "name": "config" } }),
            labels::STACKS_FINALIZER,
        ),
        (
            inside(CONFIG, "shop", "stacks"),
            CONFIG,
            "Stack",
            json!({ "project": "web" }),
            labels::INFRASTRUCTURE_FINALIZER,
        ),
        (
            inside(DELIVERY, "shop", "runs"),
            DELIVERY,
            "Run",
            json!({ "stack": "web-dev", "operation": "Preview" }),
            labels::RUN_FINALIZER,
        ),
        (inside(DELIVERY, "shop", "workflows"), DELIVERY, "Workflow", steps, labels::WORKFLOW_FINALIZER),
        ("/api/v1/namespaces".to_owned(), "v1", "Namespace", json!({}), NAMESPACE_FINALIZER),
    ] {
        let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "one" }, "spec": spec });
        let created = client.create(&collection, &object).await;
        assert_eq!(created["metadata"]["finalizers"], json!([finalizer]));
        let one = format!("{collection}/one");
        let put = |object: &Value, finalizers: Value| {
            let mut object = object.clone();
            object["metadata"]["finalizers"] = finalizers;
            let (client, one) = (&client, &one);
            async move { client.send("PUT", one, &object).await }
        };
        assert_eq!(put(&created, json!([])).await, (200, created.clone()), "{kind}: nothing was written");
        let (code, held) = put(&created, json!(["example.com/held"])).await;
        assert_eq!((code, &held["metadata"]["finalizers"]), (200, &json!(["example.com/held", finalizer])), "{kind}");

        // What is stuck can be let go.
        let (code, answer) = client.send("DELETE", &one, &Value::Null).await;
        assert_eq!(code, 200, "{answer:#}");
        let (_, going) = client.send("GET", &one, &Value::Null).await;
        assert_eq!(put(&going, json!([])).await.0, 200, "{kind}");
        assert_eq!(client.send("GET", &one, &Value::Null).await.0, 404, "{kind}");
    }
}

#[tokio::test]
async fn field_selectors_filter_projects_and_stacks() {
    let world = World::with_stack().await;
    world.make("v1", "Namespace", "", json!({ "metadata": { "name": "bank" } })).await.unwrap();
    let client = Client::of(&world);
    for (namespace, project) in [("shop", "api"), ("bank", "web")] {
        let spec = json!({ "source": { "name": "config" } });
        let project = json!({ "apiVersion": CONFIG, "kind": "Project", "metadata": { "name": project }, "spec": spec });
        client.create(&inside(CONFIG, namespace, "projects"), &project).await;
    }
    for (namespace, project, name) in [("shop", "web", "web-prod"), ("shop", "api", "api-dev"), ("bank", "web", "b")] {
        let stack = json!({ "apiVersion": CONFIG, "kind": "Stack", "metadata": { "name": name }, "spec": { "project": project } });
        client.create(&inside(CONFIG, namespace, "stacks"), &stack).await;
    }
    let of_web = "?fieldSelector=spec.project%3Dweb";
    assert_eq!(client.names(&cluster_wide(CONFIG, "projects")).await, ["web", "api", "web"]);
    assert_eq!(client.names(&inside(CONFIG, "shop", "projects")).await, ["api", "web"]);
    assert_eq!(client.names(&cluster_wide(CONFIG, "stacks")).await, ["b", "api-dev", "web-dev", "web-prod"]);
    assert_eq!(client.names(&(cluster_wide(CONFIG, "stacks") + of_web)).await, ["b", "web-dev", "web-prod"]);
    assert_eq!(client.names(&(inside(CONFIG, "shop", "stacks") + of_web)).await, ["web-dev", "web-prod"]);
}

#[tokio::test]
async fn releases_are_listed_by_stack_and_workspace() {
    let world = World::with_stack().await;
    let controllers = Client::controllers(&world);
    for (name, stack, workspace) in [("a1", "a", "dev"), ("a2", "a", "dev"), ("a3", "a", "prod"), ("b1", "b", "dev")] {
        let spec = json!({ "stack": stack, "stackUID": "u", "workspace": workspace, "revision": 1, "run": "r",
            "planDigest": "p", "specDigest": "s", "stateDigest": "t" });
        let release = json!({ "apiVersion": DELIVERY, "kind": "Release", "metadata": { "name": name }, "spec": spec });
        controllers.create(&inside(DELIVERY, "shop", "releases"), &release).await;
    }
    let client = Client::of(&world);
    let list = |selector: &str| format!("{}?fieldSelector={selector}", inside(DELIVERY, "shop", "releases"));
    assert_eq!(client.names(&list("spec.stack%3Da")).await, ["a1", "a2", "a3"]);
    assert_eq!(client.names(&list("spec.stack%3Da,spec.workspace%3Ddev")).await, ["a1", "a2"]);
}

#[tokio::test]
async fn field_selectors_filter_resources() {
    let world = World::with_stack().await;
    let controllers = Client::controllers(&world);
    for (name, stack, module, configuration) in
        [("one", "a", "service", "web"), ("two", "a", "mysql", "web"), ("three", "b", "mysql", "api")]
    {
        let spec = json!({ "stack": stack, "workspace": "dev", "id": format!("v1:ConfigMap:n:{name}"),
            "type": "Kubernetes", "module": module, "appConfiguration": configuration });
        let resource =
            json!({ "apiVersion": DELIVERY, "kind": "Resource", "metadata": { "name": name }, "spec": spec });
        controllers.create(&inside(DELIVERY, "shop", "resources"), &resource).await;
    }
    let client = Client::of(&world);
    let collection = inside(DELIVERY, "shop", "resources");
    let (code, read) = client.send("GET", &format!("{collection}/two"), &Value::Null).await;
    assert_eq!((code, &read["spec"]["id"]), (200, &json!("v1:ConfigMap:n:two")));
    assert_eq!(client.names(&collection).await, ["one", "three", "two"]);
    for (selector, expected) in [
        ("spec.module%3Dmysql", ["three", "two"]),
        ("spec.appConfiguration%3Dweb", ["one", "two"]),
        ("spec.stack%3Da", ["one", "two"]),
    ] {
        assert_eq!(client.names(&format!("{collection}?fieldSelector={selector}")).await, expected, "{selector}");
    }
}

#[tokio::test]
async fn resources_are_found_by_what_the_infrastructure_calls_them() {
    let world = World::with_stack().await;
    let controllers = Client::controllers(&world);
    let collection = inside(DELIVERY, "shop", "resources");
    let object = |cluster: &str, group: &str, kind: &str, name: &str| {
        json!({ "cluster": cluster, "group": group, "version": "v1", "kind": kind, "namespace": "prod", "name": name,
            "uid": format!("uid-of-{name}-in-{cluster}") })
    };
    let arn = "arn:aws:rds:eu-west-1:123456789012:db:orders";
    let cloud = json!({ "provider": "hashicorp/aws", "resourceType": "aws_db_instance", "id": "db-ABC", "arn": arn });
    for (name, id, kubernetes, cloud) in [
        ("one", "apps/v1:Deployment:prod:web", object("east", "apps", "Deployment", "web"), Value::Null),
        ("two", "v1:Service:prod:web.v2", object("east", "", "Service", "web.v2"), Value::Null),
        ("three", "west/apps/v1:Deployment:prod:web", object("west", "apps", "Deployment", "web"), Value::Null),
        ("four", "hashicorp:aws:aws_db_instance:orders", Value::Null, cloud),
    ] {
        let mut spec = json!({ "stack": "a", "workspace": "dev", "id": id, "type": "Kubernetes" });
        for (field, value) in [("kubernetes", kubernetes), ("cloud", cloud)] {
            if !value.is_null() {
                spec[field] = value;
            }
        }
        let resource =
            json!({ "apiVersion": DELIVERY, "kind": "Resource", "metadata": { "name": name }, "spec": spec });
        controllers.create(&collection, &resource).await;
    }
    let client = Client::of(&world);
    let two: &[&str] = &["one", "three"];
    for (selector, expected) in [
        ("spec.id=v1:Service:prod:web.v2", &["two"] as &[&str]),
        ("spec.id=apps/v1:Deployment:prod:web", &["one"]),
        ("spec.kubernetes.cluster=west", &["three"]),
        ("spec.kubernetes.group=apps", two),
        ("spec.kubernetes.kind=Service", &["two"]),
        ("spec.kubernetes.namespace=prod,spec.kubernetes.name=web", two),
        ("spec.kubernetes.kind=Deployment,spec.kubernetes.name=web,spec.kubernetes.cluster=east", &["one"]),
        ("spec.kubernetes.uid=uid-of-web-in-west", &["three"]),
        ("spec.kubernetes.kind!=Deployment,spec.cloud.id=", &["two"]),
        ("spec.cloud.id=db-ABC", &["four"]),
        ("spec.cloud.provider=hashicorp/aws,spec.cloud.resourceType=aws_db_instance", &["four"]),
        ("spec.cloud.arn=arn:aws:rds:eu-west-1:123456789012:db:orders", &["four"]),
        ("spec.stack=a,spec.workspace=dev,spec.cloud.id!=", &["four"]),
        ("spec.kubernetes.uid=nobody", &[]),
    ] {
        let escaped = selector.replace('=', "%3D").replace('!', "%21").replace('/', "%2F");
        for collection in [&collection, &cluster_wide(DELIVERY, "resources")] {
            assert_eq!(client.names(&format!("{collection}?fieldSelector={escaped}")).await, expected, "{selector}");
        }
    }
}

#[tokio::test]
async fn operations_are_those_of_delivery_and_no_procedures() {
    let world = World::with_stack().await;
    let client = Client::of(&world);
    let runs = inside(DELIVERY, "shop", "runs");
    let run = |operation: &str| {
        let spec = json!({ "stack": "web-dev", "operation": operation });
        json!({ "apiVersion": DELIVERY, "kind": "Run", "metadata": { "generateName": "r-" }, "spec": spec })
    };
    for operation in ["Preview", "Apply", "Destroy"] {
        client.create(&runs, &run(operation)).await;
    }
    for procedure in ["Restart", "Scale"] {
        let (code, answer) = client.send("POST", &runs, &run(procedure)).await;
        assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!("spec.operation")), "{answer:#}");
    }
}
