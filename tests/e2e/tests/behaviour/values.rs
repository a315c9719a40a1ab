//! Values of the platform: where each comes from, who may use them, and what a Run keeps of them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use stoa_e2e::fixture::{Organization, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server as _, Standalone, eventually, unique};

use crate::secrets::Secrets;

/// A VariableSet for an organization, with `spec` as lines of YAML.
fn set(kubectl: &Kubectl, name: &str, organization: &str, spec: &str) {
    kubectl.apply(&format!(
        "apiVersion: platform.stoa.dev/v1alpha1
kind: VariableSet
metadata: {{name: {name}}}
spec:
  organizations: [{organization}]
{spec}"
    ));
}

fn path(organization: &str, query: &str) -> String {
    format!("/apis/config.stoa.dev/v1alpha1/namespaces/{organization}/stacks/web/generate?{query}")
}

fn values(kubectl: &Kubectl, organization: &str, query: &str) -> String {
    let path = path(organization, &format!("show=values&{query}"));
    kubectl.run(&["create", "--raw", &path, "--filename", "/dev/null"])
}

/// The lines of a table with single spaces in them.
fn lines(table: &str) -> Vec<String> {
    table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn values_have_origins_and_runs_record_them() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = organization.name.as_str();
    organization.stack("web", &config_maps("web", 1, "a"));
    let password = unique("password");
    kubectl.apply_secret(name, "db", &[("password", &password)]);
    let (wide, close) = (format!("{name}-wide"), format!("{name}-close"));
    let secrets = format!("  secrets: {{password: {{namespace: {name}, name: db, key: password}}}}\n");
    set(&kubectl, &wide, name, &format!("  values: {{region: eu, replicas: 1, size: {{cpu: 2}}}}\n{secrets}"));
    set(&kubectl, &close, name, "  values: {replicas: 2, zones: [a, b]}\n  stacks: [web]\n  finalValues: [zones]\n");
    let patch = "--patch={\"spec\":{\"values\":{\"size\":{\"cpu\":4}}}}";
    kubectl.run(&["patch", "workspace", name, "--type=merge", patch]);
    let patch = "--patch={\"spec\":{\"generator\":{\"parameters\":{\"cell\":\"c1\",\"aig\":\"a1\"}}}}";
    kubectl.run(&["patch", "stack/web", "--namespace", name, "--type=merge", patch]);

    assert_eq!(
        lines(&values(&kubectl, name, "format=table&cell=c2")),
        [
            "NAME VALUE FROM FINAL OVERRIDES".to_owned(),
            "aig \"a1\" Stack web no".to_owned(),
            "cell \"c2\" the Run no Stack web".to_owned(),
            format!("password <password of Secret {name}/db> VariableSet {wide} (organization) no"),
            format!("region \"eu\" VariableSet {wide} (organization) no"),
            format!("replicas 2 VariableSet {close} (stack) no VariableSet {wide} (organization)"),
            format!("size {{\"cpu\":4}} Workspace {name} no VariableSet {wide} (organization)"),
            format!("zones [\"a\",\"b\"] VariableSet {close} (stack) yes"),
        ]
    );
    let shown: Value = serde_json::from_str(&values(&kubectl, name, "format=json")).unwrap();
    assert_eq!(shown["values"][1]["value"], "c1");
    assert_eq!(shown["values"][1]["origin"]["field"], "spec.generator.parameters.cell");
    Secrets::of(&[&password]).not_in("the values", shown.to_string().as_bytes());

    // The Preview records what it was rendered with, and the Apply of its plan the same.
    let preview = organization.succeed("web", "Preview", "parameters: {cell: c3}");
    let recorded = &preview["status"]["values"];
    assert_eq!(recorded["variableSets"], json!([close, wide]), "{preview:#}");
    assert_eq!(recorded["items"][1], json!({"name": "cell", "kind": "Run"}));
    assert_eq!(recorded["items"][2], json!({"name": "password", "kind": "VariableSet", "object": wide}));
    set(&kubectl, &wide, name, "  values: {region: us}\n");
    let plan = preview["metadata"]["name"].as_str().unwrap();
    let applied = organization.succeed("web", "Apply", &format!("plan: {plan}"));
    assert_eq!(applied["status"]["values"], *recorded, "the plan is applied as it was rendered");
    let again = organization.succeed("web", "Preview", "parameters: {cell: c3}");
    assert_ne!(again["status"]["values"]["digest"], recorded["digest"]);
    Secrets::of(&[&password]).not_in("a run", preview.to_string().as_bytes());
}

#[test]
fn conflicting_values_fail_with_both_origins() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = organization.name.as_str();
    organization.stack("web", &config_maps("web", 1, "a"));
    let (one, other) = (format!("{name}-a"), format!("{name}-b"));
    set(&kubectl, &one, name, "  values: {region: eu}\n  finalValues: [region]\n");
    let refused = organization.refused("web", "Preview", "parameters: {region: us}");
    let expected = format!("spec.parameters[region]: Forbidden: the value is final in VariableSet {one}");
    assert!(refused.contains(&expected), "{refused}");
    let patch = "--patch={\"spec\":{\"values\":{\"region\":\"us\"}}}";
    kubectl.run(&["patch", "workspace", name, "--type=merge", patch]);
    let run = organization.ended(&organization.start("web", "Preview", ""), crate::PATIENCE);
    let failed = condition(&run, "Failed");
    assert_eq!(failed["reason"], "InvalidValues", "{run:#}");
    let expected = format!("it is final in VariableSet {one}, and Workspace {name} sets it");
    assert!(failed["message"].as_str().unwrap().contains(&expected), "{failed}");
    kubectl.run(&["patch", "workspace", name, "--type=merge", "--patch={\"spec\":{\"values\":null}}"]);
    set(&kubectl, &other, name, "  values: {region: us}\n");
    let path = path(name, "show=values");
    let refused = kubectl.refused(&["create", "--raw", &path, "--filename", "/dev/null"]);
    let expected = format!("VariableSets {one} and {other} of level organization both set it");
    assert!(refused.contains(&expected), "{refused}");
}

#[test]
fn plan_and_inputs_name_their_origins() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = organization.name.as_str();
    let commit = organization.stack("web", &config_maps("web", 1, "a"));
    let eu = format!("{name}-eu");
    set(&kubectl, &eu, name, "  values: {region: eu}\n");
    let inputs = path(name, "show=inputs&format=json");
    let inputs: Value =
        serde_json::from_str(&kubectl.run(&["create", "--raw", &inputs, "--filename", "/dev/null"])).unwrap();
    let expected = json!({"generator": {"name": "Spec"}, "commit": commit, "files": ["apps/web"], "modules": [],
        "variableSets": [eu]});
    assert_eq!(inputs, expected);
    let preview = organization.succeed("web", "Preview", "");
    assert_eq!(preview["status"]["source"]["generator"], json!({"name": "Spec"}), "{preview:#}");
    let run = preview["metadata"]["name"].as_str().unwrap();
    let plan = |query: &str| {
        kubectl.raw(&format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/runs/{run}/plan?origins=true&{query}"))
    };
    let table = plan("format=table");
    assert!(table.contains(" v1:Namespace:web\n    from apps/web/spec.yaml:2\n"), "{table}");
    assert!(table.ends_with(&format!("Values: region of VariableSet {eu}.\n")), "{table}");
    let shown: Value = serde_json::from_str(&plan("format=json")).unwrap();
    assert_eq!(shown["origins"]["v1:Namespace:web"], "apps/web/spec.yaml:2");
    assert_eq!(shown["values"], json!([{"name": "region", "kind": "VariableSet", "object": eu}]));
}

#[test]
fn stored_secrets_deploy_and_are_stored_nowhere() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let namespace = format!("{name}-web");
    let passwords = [unique("first"), unique("second")];
    kubectl.apply_secret(name, "db", &[("password", &passwords[0])]);
    let patch = "--patch={\"spec\":{\"secretStore\":{\"provider\":{\"kubernetes\":{}}}}}";
    kubectl.run(&["patch", "workspace", name, "--type=merge", patch]);
    organization.stack("web", &config_maps(&namespace, 1, "ref://db/password"));
    let deployed = || kubectl.get(&["configmap", "c0", "--namespace", &namespace])["data"]["value"].clone();
    let applied = organization.succeed("web", "Apply", "");
    assert_eq!(deployed(), passwords[0].as_str());
    organization.nothing_is_left("web", "Preview");
    // A rotated secret is a change, of which the plan shows no value.
    kubectl.apply_secret(name, "db", &[("password", &passwords[1])]);
    let rotated = organization.succeed("web", "Apply", "");
    assert_eq!(deployed(), passwords[1].as_str());
    let secrets = Secrets::of(&[&passwords[0], &passwords[1]]);
    for run in [&applied, &rotated] {
        let run = run["metadata"]["name"].as_str().unwrap();
        for document in ["log", "plan"] {
            let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/runs/{run}/{document}");
            secrets.not_in(document, kubectl.raw(&path).as_bytes());
        }
    }
    for document in ["spec", "state"] {
        let path = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/releases/web.{name}.2/{document}");
        let text = kubectl.raw(&path);
        secrets.not_in(document, text.as_bytes());
        assert!(document == "state" || text.contains("ref://db/password"), "{text}");
    }
    organization.stack("web", &config_maps(&namespace, 1, "ref://db/none"));
    let why = organization.fail("web", "Preview", "");
    assert!(why.contains(&format!("ref://db/none: secret {name}/db has no key \"none\"")), "{why}");
}

#[test]
fn value_chooses_its_secret_store_by_name() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let namespace = format!("{name}-web");
    let passwords = [unique("first"), unique("second")];
    for (secret, password) in [("db", &passwords[0]), ("other", &passwords[1])] {
        kubectl.apply_secret(name, secret, &[("password", password)]);
    }
    // A file that age encrypted, and the key that opens it.
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../function-runner/sops/tests/data");
    let read = |file: &str| fs::read_to_string(data.join(file)).unwrap();
    organization.source.commit("secrets.age", &read("secrets.age"));
    kubectl.apply_secret(name, "age", &[("team.agekey", &read("keys.txt"))]);
    let stores = format!(
        "[{{\"name\":\"team\",\"provider\":{{\"kubernetes\":{{\"namespace\":\"{name}\"}}}}}},\
         {{\"name\":\"files\",\"provider\":{{\"file\":{{\"path\":\"secrets.age\"}}}},\
         \"secretRef\":{{\"namespace\":\"{name}\",\"name\":\"age\"}}}}]"
    );
    let patch = format!(
        "--patch={{\"spec\":{{\"secretStore\":{{\"provider\":{{\"kubernetes\":{{}}}}}},\"secretStores\":{stores}}}}}"
    );
    kubectl.run(&["patch", "workspace", name, "--type=merge", &patch]);
    let deployed = || kubectl.get(&["configmap", "c0", "--namespace", &namespace])["data"]["value"].clone();
    for (text, value) in [
        ("ref://db/password", passwords[0].as_str()),
        ("ref://other/password?store=team", &passwords[1]),
        ("ref://team/db/user?store=files", "shop"),
    ] {
        organization.stack("web", &config_maps(&namespace, 1, text));
        organization.succeed("web", "Apply", "");
        assert_eq!(deployed(), value, "{text}");
    }
    for (text, expected) in [
        ("ref://a/b?store=none", "has no store \"none\"; it has team, files"),
        ("ref://a/b?store=files", "secret store \"files\": ref://a/b?store=files: secrets.age has no secret \"a\""),
    ] {
        organization.stack("web", &config_maps(&namespace, 1, text));
        let why = organization.fail("web", "Preview", "");
        assert!(why.contains(expected), "{why}");
    }
    let wrong = "--patch={\"spec\":{\"secretStores\":[{\"name\":\"x\",\"provider\":{\"aws\":{\"region\":\"eu-1\"}}}]}}";
    let refused = kubectl.refused(&["patch", "workspace", name, "--type=merge", wrong]);
    assert!(refused.contains("spec.secretStores[0].secretRef: Required value"), "{refused}");
    let explained = kubectl.run(&["explain", "workspace.spec.secretStores.provider.aws.region"]);
    assert!(explained.contains("such as eu-central-1"), "{explained}");
}

#[test]
fn trigger_reads_stored_secrets_that_workspace_lists() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = organization.name.as_str();
    let namespace = format!("{name}-web");
    kubectl.apply_secret(name, "db", &[("password", &unique("password"))]);
    let store = |settings: &str| {
        let patch = format!("--patch={{\"spec\":{{\"secretStore\":{{\"provider\":{{\"kubernetes\":{settings}}}}}}}}}");
        kubectl.run(&["patch", "workspace", name, "--type=merge", &patch]);
    };
    store("{}");
    organization.stack("web", &config_maps(&namespace, 1, "ref://db/password"));
    let patch = "--patch={\"spec\":{\"trigger\":\"Apply\"}}";
    kubectl.run(&["patch", "stack/web", "--namespace", name, "--type=merge", patch]);
    let ended = |phase: &str| {
        let is_it = |run: &Value| {
            run["status"]["requester"]["username"] == "system:stoa:trigger" && run["status"]["phase"] == phase
        };
        eventually(phase, crate::PATIENCE, || organization.of_stack("runs", "web").into_iter().find(is_it))
    };
    let failed = condition(&ended("Failed"), "Failed");
    let expected = format!(
        "ref://db/password: a Run of a trigger or pull request may not read Secret {name}/db; add \"db\" to \
         spec.secretStore.provider.kubernetes.triggered of the Workspace"
    );
    assert_eq!(failed["reason"], "PermissionDenied");
    assert!(failed["message"].as_str().unwrap().contains(&expected), "{failed}");
    store("{\"triggered\":[\"db\"]}");
    organization.stack("web", &config_maps(&namespace, 2, "ref://db/password"));
    ended("Succeeded");
}
