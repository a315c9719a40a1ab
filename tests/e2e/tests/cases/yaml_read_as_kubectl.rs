//! Case `yaml-read-as-kubectl`.
//!
//! Reports: kubernetes/kubernetes#34146, kubernetes-sigs/kustomize#4386, kubernetes-sigs/kustomize#4908.

use serde_json::Value;

use crate::harness::Case;

#[test]
fn stoa_applies_the_objects_that_kubectl_creates() {
    let case = Case::new("yaml-read-as-kubectl");
    let kubectl = case.kubectl();
    kubectl.run(&["create", "namespace", "yaml"]);
    let expected = ["control.json", "keys.yaml", "merge.yaml"].map(|file| -> Value {
        let file = case.input(file);
        let made = kubectl.run(&["create", "--dry-run=server", "--output=json", "--filename", file.to_str().unwrap()]);
        serde_json::from_str(&made).unwrap()
    });
    assert_eq!(expected[2]["data"]["colour"], "blue");
    case.apply("");
    for object in &expected {
        let name = object["metadata"]["name"].as_str().unwrap();
        let live = kubectl.get(&["configmap", name, "--namespace=yaml"]);
        assert_eq!((&live["data"], &live["metadata"]["labels"]), (&object["data"], &object["metadata"]["labels"]));
    }
    case.assert_settled();
    case.destroy();
    kubectl.run(&["delete", "namespace", "yaml"]);
}
