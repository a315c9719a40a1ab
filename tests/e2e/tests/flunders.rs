//! The example of the library `stoa-machinery`, as somebody meets it who writes a server of their own: behind a cluster its
//! kind is like any other.

use std::time::Duration;

use serde_json::json;
use stoa_e2e::{Cluster, Server as _, eventually, unique};

#[test]
fn the_example_serves_its_kind_behind_a_cluster() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let namespace = unique("flunders");
    kubectl.run(&["create", "namespace", &namespace]);
    let flunders = cluster.flunders(&namespace);
    let manifest = |name: &str, namespace: &str, spec: serde_json::Value| {
        let metadata = json!({"name": name, "namespace": namespace});
        json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": metadata, "spec": spec})
            .to_string()
    };

    kubectl.create(&manifest("a", &namespace, json!({"reference": "b"})));
    let created = kubectl.get(&["flunder", "a", "--namespace", &namespace]);
    assert_eq!(created["spec"], json!({"reference": "b", "referenceType": "Flunder"}), "the strategy's defaults");
    let table = kubectl.run(&["get", "flunders", "--namespace", &namespace]);
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(
        matches!(&rows[..], [head, row] if head[..] == ["NAME", "REFERENCE", "AGE"] && row[..2] == ["a", "b"]),
        "{table}"
    );
    // The aggregation layer asks for the schemas of whoever served the group before, until it looks for others: each minute.
    eventually("the example's schema is explained", Duration::from_secs(120), || {
        let explained = kubectl.command(&["explain", "flunder.spec.reference"]).output().expect("kubectl runs");
        String::from_utf8_lossy(&explained.stdout).contains("A name of another flunder or fischer").then_some(())
    });

    let invalid = kubectl.create_refused(&manifest("c", &namespace, json!({"referenceType": "Fischer"})));
    let said = "spec.fischerReference: Invalid value: \"\": cannot be empty if referenceType is Fischer";
    assert!(invalid.contains(said), "the strategy's validation: {invalid}");
    let nowhere = kubectl.create_refused(&manifest("c", "no-such-namespace", json!({})));
    assert!(nowhere.contains("namespaces \"no-such-namespace\" not found"), "the cluster's namespaces: {nowhere}");
    let nobody = kubectl.impersonate("nobody").refused(&["get", "flunders", "--namespace", &namespace]);
    assert!(nobody.contains("User \"nobody\" cannot list resource \"flunders\""), "the cluster's roles: {nobody}");

    kubectl.claim("somebody", &manifest("a", &namespace, json!({"reference": "c"})));
    let applied = kubectl.get(&["flunder", "a", "--namespace", &namespace]);
    assert_eq!((&applied["spec"]["reference"], &applied["metadata"]["generation"]), (&json!("c"), &json!(2)));

    kubectl.run(&["delete", "flunder", "a", "--namespace", &namespace]);
    flunders.end(Duration::from_secs(20));
    kubectl.run(&["delete", "namespace", &namespace, "--wait=false"]);
}
