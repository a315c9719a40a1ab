//! Files that are in no commit: rendered and planned from an archive, with nothing left behind.

use std::io::Write as _;
use std::process::{Command, Stdio};

use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server as _};

/// Sends the archive of a folder to a subresource of the Stack `web`, as a person does: what kubectl prints, or says.
fn sent(
    kubectl: &Kubectl,
    namespace: &str,
    (subresource, query): (&str, &str),
    archive: &[u8],
) -> Result<String, String> {
    let path = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{namespace}/stacks/web/{subresource}?{query}");
    let mut command = kubectl.command(&["create", "--raw", &path, "-f", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(archive).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The archive of a folder.
fn archive(folder: &std::path::Path, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new("tar").arg("-C").arg(folder).args(arguments).arg(".").output().unwrap();
    assert!(output.status.success());
    output.stdout
}

#[test]
fn working_copy_is_planned_and_leaves_nothing() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.clone();
    organization.stack("web", &config_maps(&name, 2, "one"));
    organization.succeed("web", "Apply", "");
    let runs = organization.of_stack("runs", "web").len();

    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("apps/web");
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("spec.yaml"), config_maps(&name, 3, "two")).unwrap();
    std::fs::create_dir_all(copy.path().join(".git")).unwrap();
    std::fs::write(copy.path().join(".git/config"), "[core]\n").unwrap();
    for arguments in [["-c"].as_slice(), &["-c", "-z"]] {
        let archive = archive(copy.path(), arguments);
        let spec = sent(&kubectl, &name, ("generate", "format=json"), &archive).unwrap();
        let spec: serde_json::Value = serde_json::from_str(&spec).unwrap();
        assert_eq!(spec["resources"].as_array().unwrap().len(), 4, "a Namespace and ConfigMaps: {spec:#}");
        let plan = sent(&kubectl, &name, ("preview", "format=table"), &archive).unwrap();
        assert!(plan.contains("Plan: 1 to create, 2 to update"), "{plan}");
    }
    let inputs =
        sent(&kubectl, &name, ("generate", "show=inputs&format=table"), &archive(copy.path(), &["-c"])).unwrap();
    assert!(inputs.contains("COMMIT      working copy\n"), "{inputs}");
    assert_eq!(organization.of_stack("runs", "web").len(), runs, "a plan of a working copy is no Run");
    organization.nothing_is_left("web", "Preview");

    std::fs::write(path.join("spec.yaml"), "resources: [\n").unwrap();
    let refused = sent(&kubectl, &name, ("preview", "format=table"), &archive(copy.path(), &["-c"])).unwrap_err();
    assert!(refused.contains("apps/web/spec.yaml"), "{refused}");
    let refused = sent(&kubectl, &name, ("generate", "version=main"), &archive(copy.path(), &["-c"])).unwrap_err();
    assert!(refused.contains("version may not be set together with a working copy"), "{refused}");
    std::os::unix::fs::symlink("../../../../etc/passwd", path.join("link.yaml")).unwrap();
    let refused = sent(&kubectl, &name, ("generate", ""), &archive(copy.path(), &["-c"])).unwrap_err();
    assert!(refused.contains("is a link that leads elsewhere"), "{refused}");
}

#[test]
fn working_copy_gets_no_secret_values() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.clone();
    organization.stack("web", &config_maps(&name, 1, "one"));
    kubectl.apply_secret(&name, "database", &[("password", "hunter2-and-more")]);
    kubectl.apply(&format!(
        "{{apiVersion: platform.stoa.dev/v1alpha1, kind: VariableSet, metadata: {{name: {name}}},
          spec: {{organizations: [{name}], secrets: {{password: {{namespace: {name}, name: database, key: password}}}}}}}}"
    ));
    let copy = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(copy.path().join("apps/web")).unwrap();
    let map = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, namespace: {name}}}\ndata: {{a: '${{stoa_value.password}}'}}\n"
    );
    std::fs::write(copy.path().join("apps/web/a.yaml"), map).unwrap();
    for (subresource, query) in [("generate", "format=json"), ("preview", "format=json")] {
        let said = sent(&kubectl, &name, (subresource, query), &archive(copy.path(), &["-c"])).unwrap();
        assert!(said.contains("ConfigMap") && !said.contains("hunter2"), "{said}");
    }
}
