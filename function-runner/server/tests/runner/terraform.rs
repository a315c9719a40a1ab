//! Providers of Terraform in the processes of a runner, where `STOA_TEST_TERRAFORM_PROVIDERS` names them.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stoa_engine::Spec;
use stoa_proto::ProviderSecrets;
use stoa_terraform_provider::package::{Hash, Platform};
use stoa_terraform_provider::testing::executable as provider;

use crate::bed::{Bed, parent, problem};
use crate::caller::Caller;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A runner with a mirror that has one provider, and a folder that providers share.
struct Scene {
    bed: Bed,
    caller: Caller,
    folder: tempfile::TempDir,
}

impl Scene {
    async fn new(name: &str, executable: &Path, terraform: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let version = format!("registry.terraform.io/hashicorp/{name}/1.0.0");
        let package = folder.path().join("mirror").join(version).join(Platform::current().0);
        std::fs::create_dir_all(&package).unwrap();
        std::fs::create_dir(folder.path().join("shared")).unwrap();
        std::fs::copy(executable, package.join(format!("terraform-provider-{name}"))).unwrap();
        let hash = Hash::of_folder(&package).unwrap();
        let lock = format!("provider {name:?} {{\n  version = \"1.0.0\"\n  hashes = [\"{hash}\"]\n}}\n");
        let mut spec = json!({"mirror": {"directory": folder.path().join("mirror")}, "lock": lock});
        spec.as_object_mut().unwrap().extend(terraform.as_object().unwrap().clone());
        let flag = |flag: &str, of: &str| format!("{flag}={}", folder.path().join(of).display());
        let arguments = [flag("--provider-mirrors", "mirror"), flag("--provider-directories", "shared")];
        let bed = Bed::start_in(&[("STOA_TEST_SECRET", "hidden")], &arguments.each_ref().map(String::as_str));
        let caller = Caller::new(bed.client().await, &json!({"terraform": spec}));
        Self { bed, caller, folder }
    }

    /// The processes of providers.
    fn providers(&self) -> Vec<u32> {
        let is_provider = |pid: &u32| {
            let said = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&said).contains("/terraform-provider-")
        };
        self.bed.children().into_iter().filter(is_provider).collect()
    }

    async fn until_ended(processes: &[u32]) {
        let start = Instant::now();
        while processes.iter().any(|pid| parent(*pid).is_some()) {
            assert!(start.elapsed() < PATIENCE, "{processes:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn spec(provider: &str, kind: &str, attributes: Value) -> Spec {
    let resource = json!({
        "id": format!("hashicorp:{provider}:{kind}:a"),
        "type": "Terraform",
        "attributes": attributes,
        "extensions": {"provider": format!("hashicorp/{provider}/1.0.0"), "resourceType": kind},
    });
    serde_json::from_value(json!({"resources": [resource]})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn resource_lives_its_whole_life() {
    let Some(executable) = provider("local") else { return };
    let mut scene = Scene::new("local", &executable, json!({"network": "Deny"})).await;
    let file = scene.folder.path().join("shared/file");
    let wanted = spec("local", "local_file", json!({"filename": file, "content": "one"}));
    let plan = scene.caller.plan(&wanted, false).await.unwrap();
    assert_eq!(plan.resources[0].action, "Create");
    assert!(!file.exists());
    let applied = scene.caller.apply(&wanted, &plan).await;
    assert!(applied.finished().succeeded, "{applied:?}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "one");
    // The same process serves all calls.
    assert_eq!(scene.providers().len(), 1);
    let again = scene.caller.plan(&wanted, false).await.unwrap();
    assert_eq!(again.resources[0].action, "Unchanged");
    let plan = scene.caller.plan(&wanted, true).await.unwrap();
    let applied = scene.caller.apply(&wanted, &plan).await;
    assert!(applied.finished().succeeded, "{applied:?}");
    assert!(!file.exists() && scene.caller.state.is_empty());
    // Outside of the shared folder it may not write.
    let outside = scene.folder.path().join("outside");
    let wanted = spec("local", "local_file", json!({"filename": outside, "content": "one"}));
    let plan = scene.caller.plan(&wanted, false).await.unwrap();
    let applied = scene.caller.apply(&wanted, &plan).await;
    let result = &applied.results[0];
    assert!(result.outcome == "Failed" && format!("{result:?}").contains("permission denied"), "{result:?}");
    assert!(!outside.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn drain_ends_processes() {
    let Some(executable) = provider("random") else { return };
    let mut scene = Scene::new("random", &executable, json!({})).await;
    scene.caller.plan(&spec("random", "random_pet", json!({"length": 2})), false).await.unwrap();
    let providers = scene.providers();
    assert_eq!(providers.len(), 1);
    scene.bed.terminate();
    let status = tokio::time::timeout(PATIENCE, scene.bed.ended()).await.unwrap();
    assert!(status.success(), "{status:?}");
    Scene::until_ended(&providers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_provider_outlives_a_runner_that_is_killed() {
    let Some(executable) = provider("random") else { return };
    let mut scene = Scene::new("random", &executable, json!({})).await;
    scene.caller.plan(&spec("random", "random_pet", json!({"length": 2})), false).await.unwrap();
    let providers = scene.providers();
    assert_eq!(providers.len(), 1);
    scene.bed.signal("KILL");
    Scene::until_ended(&providers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_providers_name_resource_and_remedy() {
    let Some(executable) = provider("tls") else { return };
    let providers = json!([{
        "name": "main", "source": "hashicorp/tls",
        "configuration": {"proxy": [{"url": "ftp://hunter2-secret"}]},
    }]);
    let mut scene = Scene::new("tls", &executable, json!({"providers": providers})).await;
    let variables = [("TOKEN".to_owned(), "hunter2-secret".into())].into();
    let secrets = ProviderSecrets { environment: variables, ..ProviderSecrets::default() };
    let workspace = scene.caller.target.workspace.as_mut().unwrap();
    workspace.provider_secrets.insert("main".to_owned(), secrets);
    let wanted = spec("tls", "tls_private_key", json!({"algorithm": "ED25519"}));
    let status = scene.caller.plan(&wanted, false).await.unwrap_err();
    let (_, found) = problem(&status);
    assert_eq!(found.resource_id, "hashicorp:tls:tls_private_key:a");
    let expected = "spec.terraform.providers[name=main].configuration.proxy";
    assert!(found.message.contains(expected) && !status.message().contains("hunter2"), "{status:?}");
    let other = spec("random", "random_pet", json!({}));
    let (_, found) = problem(&scene.caller.plan(&other, false).await.unwrap_err());
    assert!(found.message.contains("is not in spec.terraform.lock of workspace dev"), "{found:?}");
}
