//! Modules: their validation, and the Workspaces that name them.

use stoa_types::{Module, Workspace};

use super::*;

const PLATFORM: &str = "platform.stoa.dev/v1alpha1";

impl World {
    async fn make_module(&self, name: &str, spec: Value) -> Result<Object, ApiError> {
        self.make(PLATFORM, "Module", "", json!({ "metadata": { "name": name }, "spec": spec })).await
    }

    /// The result of a user's change of the modules of the workspace `dev`.
    async fn name_modules(&self, allowed: &[&'static str], modules: Value) -> Result<Workspace, ApiError> {
        let workspaces = self.registry.api::<Workspace>().with_context(by("ann", allowed));
        let Value::Object(modules) = modules else { unreachable!("a map") };
        workspaces.update_with("", "dev", move |workspace| workspace.spec.modules = modules.clone()).await
    }
}

fn network() -> Value {
    json!({
        "path": "oci://ghcr.io/kusionstack/network",
        "versions": [{ "version": "0.2.0" }, { "version": "0.3.0" }],
        "schema": {
            "type": "object", "properties": { "type": { "enum": ["ClusterIP", "LoadBalancer"] }, "port": { "type": "integer" } },
            "required": ["type"], "additionalProperties": false,
        },
    })
}

#[tokio::test]
async fn module_is_validated_field_by_field() {
    let world = World::new().await;
    let error = world
        .make_module(
            "network",
            json!({
                "owners": [{ "kind": "Robot", "name": "x" }],
                "path": "oci://me:secret@example.com/network",
                "versions": [{ "version": "../1" }, { "version": "1", "digest": "sha256:1" }],
                "secretRef": { "name": "registry" },
                "schema": { "type": 1 },
            }),
        )
        .await
        .unwrap_err();
    let causes = causes(&error);
    assert!(!causes.concat().contains("secret@"), "{causes:?}");
    for field in [
        "spec.owners[0].kind",
        "spec.path",
        "spec.versions[0].version",
        "spec.versions[1].digest",
        "spec.secretRef.namespace",
        "spec.schema",
    ] {
        assert!(causes.iter().any(|cause| cause.starts_with(&format!("{field}: "))), "{field}: {causes:?}");
    }
    let in_folder = json!({ "path": "network", "source": "Folder", "versions": [{ "version": "1" }],
        "secretRef": { "namespace": "a", "name": "b" } });
    let error = world.make_module("network", in_folder).await.unwrap_err();
    assert!(error.message().contains("spec.secretRef: Forbidden"), "{error}");
}

#[tokio::test]
async fn workspace_names_modules_that_its_author_may_use() {
    let world = World::with_stack().await;
    let named = |version: &str, configs: Value| json!({ "network": { "module": { "name": "network" }, "version": version, "configs": configs } });
    let plain = || named("0.2.0", json!({ "default": { "type": "ClusterIP" } }));
    let error = world.name_modules(&[], plain()).await.unwrap_err();
    assert!(error.code() == 403 && error.message().contains("cannot use resource \"modules\""), "{error}");
    // The module may come later.
    let allowed = ["use modules network"];
    world.name_modules(&allowed, plain()).await.unwrap();
    world.make_module("network", network()).await.unwrap();
    // One that is named already needs no permission again.
    world.name_modules(&[], named("0.3.0", json!({ "default": { "type": "LoadBalancer" } }))).await.unwrap();

    let error = world.name_modules(&[], named("1", json!({ "default": { "type": "hidden" } }))).await.unwrap_err();
    let causes = causes(&error).join("\n");
    assert!(causes.contains("spec.modules[network].version: Unsupported value: \"1\""), "{causes}");
    assert!(causes.contains("spec.modules[network].configs[default].type: ") && !causes.contains("hidden"), "{causes}");
    // A patcher is checked together with the defaults, without the fields that are for Stoa.
    let patched = |patch: Value| named("0.2.0", json!({ "default": { "type": "ClusterIP" }, "shop": patch }));
    let patch = json!({ "port": 80, "projectSelector": ["shop"], "importedResources": {} });
    world.name_modules(&[], patched(patch)).await.unwrap();
    let patch = json!({ "port": "80", "projectSelector": ["shop"] });
    let error = world.name_modules(&[], patched(patch)).await.unwrap_err();
    assert!(error.message().contains("spec.modules[network].configs[shop].port"), "{error}");
    let error = world
        .name_modules(&[], json!({ "network": { "module": { "name": "network" }, "path": "a", "version": "0.2.0" } }));
    assert!(error.await.unwrap_err().message().contains("spec.modules[network].path: Forbidden"));
    let error = world.name_modules(&[], json!({ "network": { "module": "network", "version": "0.2.0" } }));
    assert!(error.await.unwrap_err().message().contains("spec.modules[network].module: Invalid"));
}

#[tokio::test]
async fn module_and_version_of_workspace_stay() {
    let world = World::with_stack().await;
    world.make_module("network", network()).await.unwrap();
    let named = json!({ "network": { "module": { "name": "network" }, "version": "0.2.0", "configs": { "default": { "type": "ClusterIP" } } } });
    world.name_modules(&["use modules network"], named).await.unwrap();
    let modules = world.registry.api::<Module>();
    let error = modules.delete("", "network", &Default::default()).await.unwrap_err();
    assert!(error.code() == 409 && error.message().contains("workspace dev use it"), "{error}");
    let without =
        |version: &'static str| move |module: &mut Module| module.spec.versions.retain(|it| it.version != version);
    let error = modules.update_with("", "network", without("0.2.0")).await.unwrap_err();
    assert!(error.code() == 409 && error.message().contains("workspace dev uses version 0.2.0"), "{error}");
    modules.update_with("", "network", without("0.3.0")).await.unwrap();
    let error =
        modules.update_with("", "network", |module| module.spec.path = "oci://b/c".to_owned()).await.unwrap_err();
    assert!(error.message().contains("spec.path"), "{error}");
    world.name_modules(&[], json!({})).await.unwrap();
    modules.delete("", "network", &Default::default()).await.unwrap();
}

#[tokio::test]
async fn server_alone_writes_the_digests_of_modules() {
    use stoa_types::platform::FoundModuleVersion;
    let world = World::new().await;
    world.make_module("network", network()).await.unwrap();
    let forge = |module: &mut Module| {
        let found = FoundModuleVersion { version: "0.2.0".to_owned(), ..FoundModuleVersion::default() };
        module.status.get_or_insert_default().versions.push(found);
    };
    let modules = world.registry.api::<Module>();
    let of_ann = modules.clone().with_context(by("ann", &[]));
    assert_eq!(of_ann.update_status_with("", "network", forge).await.unwrap_err().code(), 403);
    modules.update_status_with("", "network", forge).await.unwrap();
}
