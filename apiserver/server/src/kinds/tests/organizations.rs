//! Organizations: what it takes to have theirs destroyed.

use stoa_types::{DeletionPolicy, Organization, Stack};

use super::*;

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
    let deployed = json!([{ "workspace": "dev", "resources": 1 }]);
    let deploy = |stack: &mut Stack| {
        stack.status.get_or_insert_default().deployments = serde_json::from_value(deployed.clone()).unwrap();
    };
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
