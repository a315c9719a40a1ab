//! Tests of existing objects, in files of any name.

use super::*;

/// A file as people write it.
const MAPS: &str = "\
# maps of the shop
apiVersion: v1
kind: ConfigMap
metadata:
  name: a       # the first
  namespace: shop
data: {a: '1'}
---
# its neighbour
apiVersion: v1
kind: ConfigMap
metadata: {name: b, namespace: shop}
data:
  a: \"1\"   # one
";

fn head(repository: &TestRepository, path: &str) -> String {
    let repository = repository.repository();
    let commit = repository.find_reference("refs/heads/main").unwrap().peel_to_commit().unwrap();
    let blob = commit.tree().unwrap().get_path(path.as_ref()).unwrap().id();
    String::from_utf8(repository.find_blob(blob).unwrap().content().to_vec()).unwrap()
}

async fn live(runtime: &GitOpsRuntime, desired: &Resource) -> Result<Live, RuntimeError> {
    let request = ReadRequest { desired: Some(desired), prior: None };
    runtime.read(&[request]).await.unwrap().remove(0)
}

#[tokio::test]
async fn object_is_edited_in_its_file() {
    for repository in TestRepository::both() {
        repository.foreign_push("dev/apps/maps.yml", MAPS);
        let runtime = repository.run("u-1");
        let Live::Present(found) = live(&runtime, &config_map("b", "2")).await.unwrap() else { panic!("it is there") };
        assert_eq!(found["data"], json!({"a": "1"}));
        let prior = apply(&runtime, &config_map("b", "2")).await;
        let commit = finish(&runtime).await.unwrap();
        assert_eq!(repository.files(), ["dev/apps/maps.yml"], "it is not written a second time");
        let text = head(&repository, "dev/apps/maps.yml");
        let (first, second) = text.split_once("---\n").unwrap();
        assert_eq!(first, MAPS.split_once("---\n").unwrap().0);
        assert!(second.starts_with("# its neighbour\n") && second.contains("  a: \"2\"   # one\n"), "{text}");
        // Once more changes nothing, and another try of the run finds its commit.
        assert_eq!(finish(&runtime).await, Some(commit));
        let again = repository.run("u-2");
        apply(&again, &config_map("b", "2")).await;
        assert_eq!(finish(&again).await, None);

        let removing = repository.run("u-3");
        removing.delete(&prior).await.unwrap();
        finish(&removing).await.unwrap();
        assert_eq!(head(&repository, "dev/apps/maps.yml"), first);
    }
}

#[tokio::test]
async fn file_is_deleted_with_last_object() {
    let repository = TestRepository::local();
    repository.foreign_push("dev/apps/maps.yml", MAPS);
    let runtime = repository.run("u-1");
    let priors = [apply(&runtime, &config_map("a", "2")).await, apply(&runtime, &config_map("b", "2")).await];
    finish(&runtime).await.unwrap();
    let text = head(&repository, "dev/apps/maps.yml");
    assert!(text.contains("name: a       # the first") && text.matches("---\n").count() == 1, "{text}");
    let removing = repository.run("u-2");
    for prior in &priors {
        removing.delete(prior).await.unwrap();
    }
    finish(&removing).await.unwrap();
    assert_eq!(repository.files(), [""; 0]);
}

#[tokio::test]
async fn comments_of_own_file_stay() {
    let repository = TestRepository::local();
    let path = "dev/shop/configmap-a.yaml";
    repository.foreign_push(path, MAPS.split_once("---\n").unwrap().0);
    let runtime = repository.run("u-1");
    apply(&runtime, &config_map("a", "2")).await;
    finish(&runtime).await.unwrap();
    let text = head(&repository, path);
    assert!(text.starts_with("# maps of the shop\n") && text.contains("name: a       # the first"), "{text}");
    assert_eq!(manifest::parse(path, text.as_bytes()).unwrap()["data"], json!({"a": "2"}));
}

#[tokio::test]
async fn object_in_two_files_is_rejected() {
    let repository = TestRepository::local();
    repository.foreign_push("dev/one.yaml", MAPS);
    repository.foreign_push(
        "dev/two.json",
        &json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "shop"}})
        .to_string(),
    );
    let runtime = repository.run("u-1");
    let expected = "dev/one.yaml and dev/two.json both have ConfigMap a; keep one of them, or set spec.gitops.directory to \
                    the folder that is deployed";
    assert_eq!(live(&runtime, &config_map("a", "1")).await.unwrap_err().to_string(), expected);
    apply(&runtime, &config_map("a", "1")).await;
    assert_eq!(told(runtime.finish(&Grant::unlimited()).await), (false, expected.to_owned()));
    assert!(matches!(live(&runtime, &config_map("b", "1")).await, Ok(Live::Present(_))), "only one file has it");
}

#[tokio::test]
async fn objects_of_other_workspaces_are_kept() {
    let repository = TestRepository::local();
    let of = |uid: &str, directory: &str, workspace: &str| {
        let mut config = GitOpsConfig { directory: directory.to_owned(), ..repository.config(uid) };
        config.run.owner.workspace = workspace.to_owned();
        GitOpsRuntime::new(config, Arc::new(Anonymous)).unwrap()
    };
    let inner = of("u-1", "inner", "inner");
    apply(&inner, &config_map("a", "1")).await;
    finish(&inner).await.unwrap();
    let outer = of("u-2", "", "outer");
    assert_eq!(live(&outer, &config_map("a", "1")).await.unwrap(), Live::Absent);
    apply(&outer, &config_map("a", "2")).await;
    finish(&outer).await.unwrap();
    assert_eq!(repository.files(), ["inner/shop/configmap-a.yaml", "shop/configmap-a.yaml"]);
}

/// An object of a custom kind, in a namespace or none.
fn custom(kind: &str, namespace: Option<&str>) -> Resource {
    let mut desired = config_map("w", "1");
    let object =
        json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "w", "namespace": namespace}});
    desired.attributes = object.as_object().unwrap().clone();
    desired
}

fn definition(kind: &str, scope: &str, name: &str) -> String {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        "spec": {"group": "example.com", "names": {"kind": kind}, "scope": scope}})
    .to_string()
}

#[tokio::test]
async fn definitions_anywhere_validate_custom_resources() {
    let repository = TestRepository::local();
    let widget = custom("Widget", Some("shop"));
    let names = async |runtime: &GitOpsRuntime, desired: &[&Resource]| -> Vec<Value> {
        let validation = runtime.validation(desired).await.unwrap();
        assert_eq!(validation.kubernetes, NEWEST_KUBERNETES);
        validation.definitions.iter().map(|it| it["metadata"]["name"].clone()).collect()
    };
    assert_eq!(names(&repository.run("u-1"), &[&widget]).await, [json!(null); 0], "there is no branch yet");
    repository.foreign_push("platform/crds.yaml", &definition("Widget", "Namespaced", "far"));
    assert_eq!(names(&repository.run("u-2"), &[&widget]).await, [json!("far")]);
    repository
        .foreign_push("dev/crds/all.yaml", &format!("{MAPS}---\n{}\n", definition("Widget", "Namespaced", "near")));
    assert_eq!(names(&repository.run("u-3"), &[&widget]).await, [json!("near")]);
    let others = [&config_map("a", "1"), &custom("Gadget", None)];
    assert_eq!(names(&repository.run("u-4"), &others).await, [json!(null); 0], "only what is validated is read");
}

#[tokio::test]
async fn cluster_scoped_custom_object_is_found_in_any_namespace() {
    let repository = TestRepository::local();
    let zone = json!({"apiVersion": "example.com/v1", "kind": "Zone", "metadata": {"name": "w", "namespace": "shop"}});
    repository.foreign_push("dev/zones.json", &zone.to_string());
    let desired = custom("Zone", None);
    assert_eq!(live(&repository.run("u-1"), &desired).await.unwrap(), Live::Absent, "its scope is not known");
    repository.foreign_push("platform/crds.json", &definition("Zone", "Cluster", "zones"));
    let runtime = repository.run("u-2");
    assert!(matches!(live(&runtime, &desired).await, Ok(Live::Present(_))));
    let scoped = runtime.cluster_scoped(&[&desired, &custom("Widget", None)]).await.unwrap();
    assert_eq!(scoped, [("example.com".to_owned(), "Zone".to_owned())]);
}

#[tokio::test]
async fn list_item_is_rejected_with_its_file() {
    let repository = TestRepository::local();
    let item = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}});
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [item]});
    repository.foreign_push("dev/all.json", &list.to_string());
    let expected = "dev/all.json has ConfigMap a as an item of a List; write each item as a document of its own, with --- \
                    between";
    assert_eq!(live(&repository.run("u-1"), &config_map("a", "1")).await.unwrap_err().to_string(), expected);
}

#[tokio::test]
async fn object_is_read_as_by_kubectl() {
    let repository = TestRepository::local();
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {mode: 0644, on: x}\n";
    repository.foreign_push("dev/a.yml", text);
    let Live::Present(found) = live(&repository.run("u-1"), &config_map("a", "1")).await.unwrap() else {
        panic!("it is there")
    };
    assert_eq!(found["data"], json!({"mode": 420, "true": "x"}));
}

#[tokio::test]
async fn exported_object_has_no_uid() {
    let repository = TestRepository::local();
    let text =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop, uid: u, creationTimestamp: null}\n";
    repository.foreign_push("dev/a.yml", text);
    let Live::Present(found) = live(&repository.run("u-1"), &config_map("a", "1")).await.unwrap() else {
        panic!("it is there")
    };
    assert_eq!(found["metadata"], json!({"name": "a", "namespace": "shop"}));
}

#[tokio::test]
async fn unreadable_files_are_named_with_reasons() {
    let repository = TestRepository::local();
    repository.foreign_push("dev/broken.yaml", "a: [\n");
    repository.foreign_push("dev/all.yaml", MAPS);
    let encrypted = "apiVersion: v1\nkind: ENC[AES256_GCM,data:x,type:str]\nmetadata: {name: a}\n";
    repository.foreign_push("dev/encrypted.yaml", encrypted);
    repository.foreign_push("other/broken.yaml", "a: [\n");
    let found = repository.run("u-1").unreadable_files().await.unwrap();
    assert!(found[0].starts_with("dev/broken.yaml is not an object: "), "{found:?}");
    assert!(found[1].starts_with("dev/encrypted.yaml is encrypted by SOPS with its kind"), "{found:?}");
    assert_eq!(found.len(), 2);
}

#[tokio::test]
async fn cluster_scoped_object_is_found_in_any_namespace() {
    let repository = TestRepository::local();
    let role = |namespace: &str| {
        let metadata = json!({"name": "reader", "namespace": namespace});
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": metadata})
    };
    repository.foreign_push("dev/roles.json", &role("shop").to_string());
    let mut desired = config_map("a", "1");
    desired.attributes = role("").as_object().unwrap().clone();
    assert!(matches!(live(&repository.run("u-1"), &desired).await, Ok(Live::Present(_))));
}

#[tokio::test]
async fn objects_of_file_change_together() {
    let repository = TestRepository::local();
    let document = |number: usize| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m{number}, namespace: shop}}\ndata: {{a: '1'}} # {number}\n"
        )
    };
    let documents: Vec<String> = (0..1_000).map(document).collect();
    repository.foreign_push("dev/all.yaml", &documents.join("---\n"));
    let runtime = repository.run("u-1");
    for number in 0..1_000 {
        apply(&runtime, &config_map(&format!("m{number}"), "2")).await;
    }
    finish(&runtime).await.unwrap();
    let text = head(&repository, "dev/all.yaml");
    assert_eq!(text.matches("# ").count(), 1_000);
    assert_eq!(repository.files(), ["dev/all.yaml"]);
}
