//! Case `cluster-scoped-with-namespace`.
//!
//! Reports: fluxcd/flux#3135, pipe-cd/pipecd#4269, argoproj/argo-cd#15058.

use std::time::Duration;

use stoa_e2e::fixture::condition;

use crate::harness::{Case, STACK};

/// Previews what is committed, which has to fail since two manifests are of one object.
fn is_duplicate(case: &Case, both: [&str; 2]) {
    let (run, message) = case.fails_within("Preview", Duration::from_secs(60));
    assert!(both.iter().all(|manifest| message.contains(manifest)), "{message}");
    let failed = condition(&run, "Failed");
    assert!(
        failed["reason"] == "DuplicateResource"
            || message.contains("same object")
            || message.contains("is a duplicate of")
    );
}

#[test]
fn two_manifests_of_a_cluster_scoped_object_are_duplicates() {
    let case = Case::new("cluster-scoped-with-namespace");
    let manifests = std::fs::read_to_string(case.input("all.yaml")).unwrap();
    let source = &case.organization.source;
    case.commit("");
    let built_in = ["all.yaml:5", "all.yaml:12"];
    is_duplicate(&case, built_in);
    // The same where the first one is deployed already.
    let second = manifests.match_indices("---\n").nth(1).unwrap().0;
    source.commit(&format!("apps/{STACK}/all.yaml"), &manifests[..second]);
    case.organization.succeed(STACK, "Apply", "");
    case.commit("");
    is_duplicate(&case, built_in);

    // Here the cluster says that the kind has no namespaces.
    let definition = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: cells.scoped.example.com}
spec:
  group: scoped.example.com
  scope: Cluster
  names: {kind: Cell, plural: cells, singular: cell}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";
    case.kubectl().apply(definition);
    case.kubectl().run(&["wait", "--for=condition=Established", "crd/cells.scoped.example.com", "--timeout=120s"]);
    let cell = "apiVersion: scoped.example.com/v1\nkind: Cell\nmetadata: {name: a}\n";
    let namespaced = cell.replace("{name: a}", "{name: a, namespace: scoped}");
    let first = &manifests[..second];
    source.commit(&format!("apps/{STACK}/all.yaml"), &format!("{first}---\n{cell}---\n{namespaced}"));
    let line = first.lines().count() + 2;
    let custom = [format!("all.yaml:{line}"), format!("all.yaml:{}", line + 4)];
    let custom = [custom[0].as_str(), custom[1].as_str()];
    is_duplicate(&case, custom);
    source.commit(&format!("apps/{STACK}/all.yaml"), &format!("{first}---\n{cell}"));
    case.organization.succeed(STACK, "Apply", "");
    source.commit(&format!("apps/{STACK}/all.yaml"), &format!("{first}---\n{cell}---\n{namespaced}"));
    is_duplicate(&case, custom);
    case.destroy();
    case.kubectl().run(&["delete", "crd", "cells.scoped.example.com"]);
}
