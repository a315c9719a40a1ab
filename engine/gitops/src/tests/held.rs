//! Files of others in a namespace, or of a kind, whose own file is to go.

use stoa_engine::held::DELETE_CONTENTS;

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
async fn a_file_that_others_need_stays_until_they_are_gone() {
    for (holder, theirs, told) in [
        (namespace(), config_map("theirs", "1"), "ConfigMap theirs of shop/api/dev;"),
        (definition(), web("site"), "Web site in namespace other of shop/api/dev;"),
    ] {
        let bed = Bed::local();
        let prior = bring(&bed.run("u-1"), &holder).await;
        let held = bring(&bed.run_of(owner("api"), "u-2"), &theirs).await;
        // Neither is what has the same beginning, nor what is elsewhere in the repository.
        bed.push_by_somebody_else("dev/other/webshop_x.dev_a.yaml", "kind: Webshop\n");
        let contents = Contents::of(&holder.attributes).unwrap();
        let seen = bed.run("u-3").held(&prior, &contents).await.unwrap().refusal(&prior).unwrap();
        assert!(seen.contains(told), "{seen}");

        let (log, again) = (bed.log(), bed.run("u-3"));
        apply(&again, &config_map("ours", "1")).await;
        again.delete(&prior).await.unwrap();
        let refused = again.finish(&Grant::unlimited()).await;
        assert!(matches!(&refused, Err(RuntimeError::HoldsOthers(message)) if *message == seen), "{refused:?}");
        assert_eq!(bed.log(), log, "nothing is written");

        let other = bed.run_of(owner("api"), "u-4");
        other.delete(&held).await.unwrap();
        finish(&other).await.unwrap();
        let last = bed.run("u-5");
        last.delete(&prior).await.unwrap();
        finish(&last).await.unwrap();
        assert_eq!(bed.files(), ["dev/other/webshop_x.dev_a.yaml"]);
    }
}

#[tokio::test]
async fn a_file_goes_from_under_others_where_it_says_so() {
    let bed = Bed::local();
    let mut says_so = namespace();
    says_so.attributes["metadata"]["annotations"] = json!({DELETE_CONTENTS: "true"});
    let prior = bring(&bed.run("u-1"), &says_so).await;
    bring(&bed.run_of(owner("api"), "u-2"), &config_map("theirs", "1")).await;
    let run = bed.run("u-3");
    run.delete(&prior).await.unwrap();
    finish(&run).await.unwrap();
    assert_eq!(bed.files(), ["dev/shop/configmap-theirs.yaml"]);
}
