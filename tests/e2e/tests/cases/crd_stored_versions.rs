//! Case `crd-stored-versions`.
//!
//! Reports: fluxcd/flux2#2743, fluxcd/flux2#5598.

use std::fs;
use std::time::Duration;

use crate::harness::Case;

const WELLS: &str = "wells.stored.example.com";

#[test]
fn dropping_a_stored_version_fails_with_what_to_do() {
    let case = Case::new("crd-stored-versions");
    let kubectl = case.kubectl();
    case.apply("old");
    kubectl.apply("{apiVersion: stored.example.com/v1alpha1, kind: Well, metadata: {name: deep, namespace: stored}}");
    case.apply("both");
    case.commit("new");
    let (_, message) = case.fails_within("Preview", Duration::from_secs(60));
    for said in ["v1alpha1", "store every object again", "status.storedVersions"] {
        assert!(message.contains(said), "{said}: {message}");
    }
    assert!(!message.contains("recreate"), "{message}");

    // The advice works, and nothing is lost.
    let well = || kubectl.get(&[WELLS, "deep", "--namespace", "stored"]);
    let before = well();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), kubectl.run(&["get", WELLS, "--all-namespaces", "--output=json"])).unwrap();
    kubectl.run(&["replace", "--filename", file.path().to_str().unwrap()]);
    let patch = r#"--patch={"status":{"storedVersions":["v1"]}}"#;
    kubectl.run(&["patch", "customresourcedefinition", WELLS, "--subresource=status", "--type=merge", patch]);
    case.apply("new");
    assert_eq!(well()["metadata"]["uid"], before["metadata"]["uid"]);
    kubectl.run(&["delete", WELLS, "deep", "--namespace", "stored"]);
    case.destroy();
}
