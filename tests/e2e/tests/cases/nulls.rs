//! Case `nulls`.
//!
//! Reports: argoproj/argo-cd#25240, kubernetes/kubernetes#129456.

use serde_json::{Value, json};

use crate::harness::{Case, STACK};

#[test]
fn null_in_a_built_in_kind_means_not_set() {
    let case = Case::new("nulls");
    let kubectl = case.kubectl();
    for folder in ["request", "alone"] {
        let run = case.apply(folder);
        let plan = case.document(&run, "plan");
        assert!(!plan.contains("\"cpu\":null") && !plan.contains("\"nothing\":null"), "{plan}");
        let deployment = kubectl.get(&["deployment", "unlimited", "--namespace=nulls"]);
        let limits = &deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(*limits, json!({"memory": "64Mi"}), "{folder}");
        let config_map = kubectl.get(&["configmap", "nothing", "--namespace=nulls"]);
        assert_eq!(config_map["data"], json!({"something": "1"}), "{folder}");
        case.assert_settled();
    }
    case.destroy();
}

#[test]
fn a_custom_resource_keeps_a_null_that_is_nullable() {
    let case = Case::new("nulls");
    let kubectl = case.kubectl();
    let manifests = "apiVersion: v1
kind: Namespace
metadata: {name: nullable}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: holders.nullable.example.com}
spec:
  group: nullable.example.com
  scope: Namespaced
  names: {kind: Holder, plural: holders, singular: holder}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {kept: {type: string, nullable: true}, plain: {type: string}}
---
apiVersion: nullable.example.com/v1
kind: Holder
metadata: {name: a, namespace: nullable}
spec: {kept: null, plain: x}
";
    case.commit("alone");
    case.organization.source.commit(&format!("apps/{STACK}/all.yaml"), manifests);
    case.organization.succeed(STACK, "Apply", "");
    let holder = kubectl.get(&["holders.nullable.example.com", "a", "--namespace=nullable"]);
    assert_eq!(holder["spec"], json!({"kept": Value::Null, "plain": "x"}));
    case.assert_settled();
    case.destroy();
}
