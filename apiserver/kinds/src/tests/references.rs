//! What others refer to stays, and so does the folder of what is live.

use stoa_types::{Backend, Project, Source, Stack, Workspace, labels};

use super::*;
use crate::validation;

const CONFIG: &str = "config.stoa.dev/v1alpha1";

#[tokio::test]
async fn source_of_projects_is_not_deleted() {
    let world = World::with_stack().await;
    for name in ["config", "templates"] {
        let source = json!({ "metadata": { "name": name }, "spec": { "remote": format!("file:///{name}.git") } });
        world.make(CONFIG, "Source", "shop", source).await.unwrap();
    }
    let spec = json!({ "source": { "name": "config" }, "template": { "source": { "name": "templates" } } });
    world.make(CONFIG, "Project", "shop", json!({ "metadata": { "name": "api" }, "spec": spec })).await.unwrap();
    let sources = world.registry.api::<Source>();
    for (name, users) in [("config", "projects api, web;"), ("templates", "project api;")] {
        let error = sources.delete("shop", name, &Default::default()).await.unwrap_err();
        assert!(error.code() == 409 && error.message().contains(users), "{error}");
    }
    // A project that is being deleted needs none.
    let projects = world.registry.api::<Project>();
    projects.delete("shop", "api", &Default::default()).await.unwrap();
    sources.delete("shop", "templates", &Default::default()).await.unwrap();
    world
        .registry
        .api::<k8s_openapi::api::core::v1::Namespace>()
        .delete("", "shop", &Default::default())
        .await
        .unwrap();
    sources.delete("shop", "config", &Default::default()).await.unwrap();
}

#[tokio::test]
async fn backend_of_workspaces_is_not_deleted() {
    let world = World::with_stack().await;
    let backends = world.registry.api::<Backend>();
    let error = backends.delete("", "default", &Default::default()).await.unwrap_err();
    assert!(error.code() == 409 && error.message().contains("the backend of workspace dev;"), "{error}");
    world.registry.api::<Workspace>().delete("", "dev", &Default::default()).await.unwrap();
    backends.delete("", "default", &Default::default()).await.unwrap();
}

#[tokio::test]
async fn live_stack_moves_with_an_annotation() {
    let world = World::with_stack().await;
    let (stacks, projects) = (world.registry.api::<Stack>(), world.registry.api::<Project>());
    let rename = |stack: &mut Stack| stack.spec.stack_name = "web-stage".to_owned();
    stacks.update_with("shop", "web-dev", rename).await.unwrap();
    let deploy = deploying(json!([{ "workspace": "dev", "resources": 1 }]));
    stacks.update_status_with("shop", "web-dev", deploy).await.unwrap();

    let moved = |stack: &mut Stack| {
        stack.spec.stack_name = "web-prod".to_owned();
        stack.spec.path = "elsewhere".to_owned();
    };
    let error = stacks.update_with("shop", "web-dev", moved).await.unwrap_err();
    let fields: Vec<String> = causes(&error).iter().map(|cause| cause.split(": ").next().unwrap().to_owned()).collect();
    assert_eq!((error.code(), fields), (422, vec!["spec.stackName".to_owned(), "spec.path".to_owned()]), "{error}");
    assert!(error.message().contains(labels::ALLOW_MOVE), "{error}");
    let elsewhere = |project: &mut Project| project.spec.path = "elsewhere".to_owned();
    let error = projects.update_with("shop", "web", elsewhere).await.unwrap_err();
    assert!(error.code() == 422 && error.message().contains("spec.path"), "{error}");

    let allowed = |stack: &mut Stack| {
        moved(stack);
        stack.metadata.annotations.get_or_insert_default().insert(labels::ALLOW_MOVE.to_owned(), "true".to_owned());
    };
    stacks.update_with("shop", "web-dev", allowed).await.unwrap();
    // The folder of the stack is not the project's any more.
    projects.update_with("shop", "web", elsewhere).await.unwrap();
}

#[tokio::test]
async fn second_source_of_a_repository_is_refused() {
    let world = World::new().await;
    let make = async |context: &RequestContext, name: &str, remote: &str| {
        let source = json!({ "metadata": { "name": name }, "spec": { "remote": remote } });
        world.make_as(context, CONFIG, "Source", "shop", source).await
    };
    let internal = RequestContext::internal("tests");
    make(&internal, "first", "https://git.example.com/shop/config").await.unwrap();
    make(&internal, "other", "https://git.example.com/shop/other.git").await.unwrap();
    for remote in ["https://git.example.com/shop/config.git", "https://git.example.com/shop/config.git/"] {
        let error = make(&internal, "second", remote).await.unwrap_err();
        let expected = ["spec.remote: Forbidden: source \"first\" has the same repository: refer to that one instead"];
        assert_eq!((error.code(), causes(&error)), (422, expected.map(str::to_owned).to_vec()));
    }
    let pushed = UserInfo { name: "stoa:git:control".to_owned(), ..UserInfo::default() };
    let mut pushed = RequestContext::new(pushed, Arc::new(stoa_machinery::auth::AllowAll));
    let second = "https://git.example.com/shop/config.git";
    assert_eq!(make(&pushed, "second", second).await.unwrap_err().code(), 422, "also by a push");
    // Those that there are already stay as they are, also when a server begins anew from its repository.
    validation::note_restored(&mut pushed);
    make(&pushed, "second", second).await.unwrap();
    let often = |source: &mut Source| {
        source.spec.poll_interval = "1s".into();
        source.spec.remote = second.trim_end_matches(".git").to_owned();
    };
    world.registry.api::<Source>().update_with("shop", "second", often).await.unwrap();
}

#[tokio::test]
async fn source_does_not_change_to_the_repository_of_another() {
    let world = World::new().await;
    for name in ["first", "second"] {
        let source =
            json!({ "metadata": { "name": name }, "spec": { "remote": format!("https://git.example.com/{name}") } });
        world.make(CONFIG, "Source", "shop", source).await.unwrap();
    }
    let sources = world.registry.api::<Source>();
    let to = |remote: &'static str| move |source: &mut Source| source.spec.remote = remote.to_owned();
    let error = sources.update_with("shop", "second", to("https://git.example.com/first.git")).await.unwrap_err();
    let expected = ["spec.remote: Forbidden: source \"first\" has the same repository: refer to that one instead"];
    assert_eq!((error.code(), causes(&error)), (422, expected.map(str::to_owned).to_vec()));
    sources.update_with("shop", "second", to("https://git.example.com/third")).await.unwrap();
}

#[tokio::test]
async fn errors_are_listed_at_once() {
    let world = World::with_stack().await;
    let spec = json!({ "project": "none", "path": "/root", "driftInterval": "soon" });
    let stack = json!({ "metadata": { "name": "bad" }, "spec": spec });
    let fields = |error: ApiError| -> Vec<String> {
        let mut fields: Vec<String> =
            causes(&error).iter().map(|cause| cause.split(": ").next().unwrap().to_owned()).collect();
        fields.sort();
        fields
    };
    let error = world.make(CONFIG, "Stack", "shop", stack).await.unwrap_err();
    assert_eq!(fields(error), ["spec.driftInterval", "spec.path", "spec.project"]);
    let run = |spec: Value| {
        let run = json!({ "metadata": { "name": "bad" }, "spec": spec });
        world.make("delivery.stoa.dev/v1alpha1", "Run", "shop", run)
    };
    let spec = json!({ "stack": "none", "workspace": "none", "operation": "Apply" });
    assert_eq!(fields(run(spec).await.unwrap_err()), ["spec.stack", "spec.workspace"]);
    let spec = json!({ "stack": "web-dev", "workspace": "none", "operation": "Apply", "plan": "none" });
    assert_eq!(fields(run(spec).await.unwrap_err()), ["spec.plan", "spec.workspace"]);
}
