//! Pushes that remove what other objects refer to.

use stoa_types::Backend;

use super::*;

const BACKEND: &str = "platform/backends/default.yaml";

fn backend(name: &str) -> Value {
    json!({
        "apiVersion": "platform.stoa.dev/v1alpha1", "kind": "Backend", "metadata": {"name": name},
        "spec": {"type": "Local"},
    })
}

/// A server with a Workspace and its Backend, and a clone of its repository.
async fn with_workspace() -> (Fixture, fixture::Clone) {
    let fixture = Fixture::new().await;
    fixture.create("ann", &backend("default")).await;
    fixture.create("ann", &workspace("dev")).await;
    let clone = fixture.clone_control().await;
    (fixture, clone)
}

#[tokio::test]
async fn push_removes_a_backend_with_its_workspace() {
    let (fixture, clone) = with_workspace().await;
    clone.remove(BACKEND);
    clone.remove(WORKSPACE);
    let pushed = fixture.push(&clone, "no more").await;
    fixture.wait(|status| status.invalid.is_empty()).await;
    fixture.gone::<Backend>("", "default").await;
    fixture.gone::<Workspace>("", "dev").await;
    fixture.projected().await;
    assert_eq!(fixture.head(), pushed);
}

#[tokio::test]
async fn push_replaces_the_backend_of_a_workspace() {
    let (fixture, clone) = with_workspace().await;
    clone.remove(BACKEND);
    clone.write("platform/backends/other.yaml", &yaml(&backend("other")));
    let mut moved = workspace("dev");
    moved["spec"]["backend"]["name"] = "other".into();
    clone.write(WORKSPACE, &yaml(&moved));
    fixture.push(&clone, "another backend").await;
    fixture.wait(|status| status.invalid.is_empty()).await;
    fixture.gone::<Backend>("", "default").await;
    let workspace = fixture.registry.api::<Workspace>().get("", "dev").await.expect("it stays");
    assert_eq!(workspace.spec.backend.name, "other");
}

#[tokio::test]
async fn removed_source_waits_until_no_project_refers_to_it() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let clone = fixture.clone_control().await;
    clone.remove(SOURCE);
    fixture.push(&clone, "no source").await;
    let source = fixture.registry.api::<Source>().get("shop", "config").await.expect("a project refers to it");
    let (status, why, message) = synced(&source.status.expect("status").conditions);
    assert_eq!((status.as_str(), why.as_str()), ("False", reason::PUSH_REFUSED));
    assert!(message.contains("it is the source of project web;"), "{message}");

    clone.remove(STACK);
    clone.remove(PROJECT);
    fixture.push(&clone, "no project").await;
    fixture.gone::<Source>("shop", "config").await;
    fixture.wait(|status| status.invalid.is_empty()).await;
}
