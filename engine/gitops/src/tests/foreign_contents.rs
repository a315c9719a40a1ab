//! Tests of deletions with foreign contents.

use std::collections::HashSet;

use stoa_engine::spec::DELETE_CONTENTS;

use super::*;

fn resource(object: serde_json::Value) -> Resource {
    let id = format!(
        "{}:{}:{}",
        object["apiVersion"].as_str().unwrap(),
        object["kind"].as_str().unwrap(),
        object["metadata"]["name"].as_str().unwrap()
    );
    serde_json::from_value(json!({"id": id, "type": "Kubernetes", "attributes": object})).unwrap()
}

fn namespace() -> Resource {
    resource(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}))
}

fn definition() -> Resource {
    resource(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "webs.x.dev"},
        "spec": {"group": "x.dev", "names": {"kind": "Web", "plural": "webs"}, "versions": [{"name": "v1"}]}}))
}

fn web(name: &str) -> Resource {
    let metadata = json!({"name": name, "namespace": "other"});
    resource(json!({"apiVersion": "x.dev/v1", "kind": "Web", "metadata": metadata}))
}

async fn bring(runtime: &GitOpsRuntime, desired: &Resource) -> StateResource {
    let prior = apply(runtime, desired).await;
    finish(runtime).await.unwrap();
    prior
}

#[tokio::test]
async fn file_with_foreign_contents_is_kept() {
    for (holder, theirs, told) in [
        (namespace(), config_map("theirs", "1"), "(ConfigMap theirs of shop/api/dev);"),
        (definition(), web("site"), "(Web site in namespace other of shop/api/dev);"),
    ] {
        let repository = TestRepository::local();
        let prior = bring(&repository.run("u-1"), &holder).await;
        let held = bring(&repository.run_of(owner("api"), "u-2"), &theirs).await;
        // Neither is what has the same beginning, nor what is elsewhere in the repository.
        repository.foreign_push("dev/other/webshop_x.dev_a.yaml", "kind: Webshop\n");
        let seen =
            repository.run("u-3").foreign_contents(&prior, None, &HashSet::new()).await.unwrap().refusal.unwrap();
        assert!(seen.contains(told), "{seen}");

        let (log, again) = (repository.log(), repository.run("u-3"));
        apply(&again, &config_map("ours", "1")).await;
        again.delete(&prior).await.unwrap();
        let refused = again.finish(&Grant::unlimited()).await;
        assert!(matches!(&refused, Err(RuntimeError::ForeignContents(message)) if *message == seen), "{refused:?}");
        assert_eq!(repository.log(), log, "nothing is written");

        let other = repository.run_of(owner("api"), "u-4");
        other.delete(&held).await.unwrap();
        finish(&other).await.unwrap();
        let last = repository.run("u-5");
        last.delete(&prior).await.unwrap();
        finish(&last).await.unwrap();
        assert_eq!(repository.files(), ["dev/other/webshop_x.dev_a.yaml"]);
    }
}

#[tokio::test]
async fn annotation_allows_deletion_of_file() {
    let repository = TestRepository::local();
    let mut says_so = namespace();
    says_so.attributes["metadata"]["annotations"] = json!({DELETE_CONTENTS: "true"});
    let prior = bring(&repository.run("u-1"), &says_so).await;
    bring(&repository.run_of(owner("api"), "u-2"), &config_map("theirs", "1")).await;
    let run = repository.run("u-3");
    run.delete(&prior).await.unwrap();
    finish(&run).await.unwrap();
    assert_eq!(repository.files(), ["dev/shop/configmap-theirs.yaml"]);
}
