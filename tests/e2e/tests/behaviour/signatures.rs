//! Sources that need signatures: signed commits are deployed, and others are refused by condition and Run.

use std::fs;
use std::process::Command;

use serde_json::Value;
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Server as _, eventually};
use tempfile::TempDir;

use crate::PATIENCE;

/// Makes an SSH key, and returns its public part.
fn key(folder: &TempDir, name: &str) -> String {
    let path = folder.path().join(name);
    let words = ["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"];
    assert!(Command::new("ssh-keygen").args(words).arg(&path).status().unwrap().success());
    fs::read_to_string(path.with_extension("pub")).unwrap().trim().to_owned()
}

#[test]
fn only_signed_commits_are_deployed() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let namespace = format!("{name}-web");
    let keys = TempDir::new().unwrap();
    let (ann, bob) = (key(&keys, "ann"), key(&keys, "bob"));
    let verify = |fields: &str| {
        let patch = format!("--patch={{\"spec\":{{\"verify\":{fields}}}}}");
        kubectl.run(&["patch", "source/config", "--namespace", name, "--type=merge", &patch]);
    };
    let shown = |kind: &str, reason: &str| {
        eventually(&format!("{kind} is {reason}"), PATIENCE, || {
            let found = condition(&kubectl.get(&["source/config", "--namespace", name]), kind);
            (found["reason"] == reason).then_some(found)
        })
    };
    let message = |condition: &Value| condition["message"].as_str().unwrap_or_default().to_owned();

    let unsigned = organization.stack("web", &config_maps(&namespace, 1, "unsigned"));
    verify(&format!("{{\"publicKeys\":[\"{ann}\"]}}"));
    for kind in ["Verified", "Ready"] {
        let refused = message(&shown(kind, "SignatureMissing"));
        assert!(refused.contains(&format!("commit {unsigned}")) && refused.contains("has no signature"), "{refused}");
    }
    for fields in ["", &format!("version: {unsigned}")] {
        let why = organization.fail("web", "Apply", fields);
        assert!(why.contains("has no signature; sign it with a key of spec.verify"), "{why}");
    }
    let generate = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{name}/stacks/web/generate?workspace={name}");
    let refused = kubectl.refused(&["create", "--raw", &generate, "--filename", "/dev/null"]);
    assert!(refused.contains("has no signature"), "{refused}");

    let sign = |key: &str| {
        let key = format!("user.signingkey={}", keys.path().join(key).display());
        let words = ["-c", "gpg.format=ssh", "-c", &key, "commit", "--quiet", "--amend", "--no-edit", "-S"];
        organization.source.git(&words);
        organization.source.git(&["rev-parse", "HEAD"]).trim().to_owned()
    };
    let signed = sign("ann");
    let signer = message(&shown("Verified", "Verified"));
    assert!(signer.starts_with(&format!("commit {} is signed by SHA256:", &signed[..8])), "{signer}");
    assert!(signer.ends_with("(ann)"), "{signer}");
    organization.succeed("web", "Apply", "");

    sign("bob");
    let untrusted = message(&shown("Verified", "SignatureUntrusted"));
    assert!(untrusted.contains("has a signature by SHA256:"), "{untrusted}");
    // Another list of keys, in a ConfigMap and a Secret of the cluster.
    kubectl.run(&["create", "configmap", "team", "--namespace", name, &format!("--from-literal=ann={ann}")]);
    kubectl.apply_secret(name, "more", &[("bob", &bob)]);
    verify("{\"publicKeys\":null,\"configMapRef\":{\"name\":\"team\"},\"secretRef\":{\"name\":\"more\"}}");
    assert!(message(&shown("Verified", "Verified")).ends_with("(bob)"));
    organization.succeed("web", "Apply", "");
    verify("null");
    eventually("no condition without keys", PATIENCE, || {
        condition(&kubectl.get(&["source/config", "--namespace", name]), "Verified").is_null().then_some(())
    });
}

#[test]
fn wrong_keys_of_a_source_are_rejected() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    for (verify, expected) in [
        ("{}", "spec.verify.publicKeys: Required value"),
        (
            "{\"publicKeys\":[\"-----BEGIN OPENSSH PRIVATE KEY-----\"]}",
            "spec.verify.publicKeys[0]: Forbidden: has a private",
        ),
        ("{\"publicKeys\":[\"hello\"]}", "spec.verify.publicKeys[0]: Invalid value"),
        ("{\"secretRef\":{\"name\":\"a\",\"namespace\":\"b\"}}", "spec.verify.secretRef.namespace: Forbidden"),
        ("{\"configMapRef\":{\"name\":\"\"}}", "spec.verify.configMapRef.name: Required value"),
    ] {
        let patch = format!("--patch={{\"spec\":{{\"verify\":{verify}}}}}");
        let refused = kubectl.refused(&["patch", "source/config", "--namespace", name, "--type=merge", &patch]);
        assert!(refused.contains(expected), "{verify}: {refused}");
    }
}
