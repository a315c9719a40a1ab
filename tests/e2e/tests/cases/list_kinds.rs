//! Case `list-kinds`.
//!
//! Reports: kubernetes-sigs/kustomize#5042, crossplane-contrib/provider-kafka#56.

use serde_json::{Value, json};

use crate::harness::Case;

#[test]
fn apply_treats_list_suffixed_kind_as_object() {
    let case = Case::new("list-kinds");
    let kubectl = case.kubectl();
    // The server fails to answer with such an object alone.
    let live = || -> Value {
        let list = kubectl.raw("/apis/lists.example.com/v1/namespaces/lists/allowlists");
        let list: Value = serde_json::from_str(&list).unwrap();
        assert_eq!(list["items"][0]["metadata"]["name"], "users");
        list["items"][0].clone()
    };
    case.apply("filled");
    let filled = live();
    assert_eq!(filled["items"], json!([{"cidr": "198.51.100.0/24"}]));
    case.apply("empty");
    let empty = live();
    assert_eq!((&empty["items"], &empty["metadata"]["uid"]), (&json!([]), &filled["metadata"]["uid"]));
    case.assert_settled();
    case.destroy();
    // Items of a list take their kind from the list.
    kubectl.run(&["create", "namespace", "lists"]);
    case.apply("list");
    assert_eq!(kubectl.get(&["configmap", "bare", "--namespace=lists"])["data"], json!({"a": "4"}));
    case.destroy();
    kubectl.run(&["delete", "namespace", "lists"]);
}
