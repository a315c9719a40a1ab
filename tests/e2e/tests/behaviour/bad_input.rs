//! What is wrong is told with its place, and everything else stays as it was.

use serde_json::Value;
use stoa_e2e::fixture::{Organization, Repository, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server as _, Standalone, git};

use crate::PATIENCE;

/// A preview of a Spec that is wrong fails, and its message has all of `wanted`.
fn spec_is_refused(organization: &Organization, spec: &str, wanted: &[&str]) {
    organization.stack("bad", spec);
    message_names(&organization.fail("bad", "Preview", ""), wanted);
}

pub(crate) fn message_names(message: &str, wanted: &[&str]) {
    for part in wanted {
        assert!(message.contains(part), "no {part:?} in: {message}");
    }
}

/// The line, from 1, of the resource with this id.
pub(crate) fn line_of(spec: &str, id: &str) -> usize {
    spec.lines().position(|line| line == format!("- id: {id}")).unwrap() + 1
}

/// Where the resource with this id is in the Spec of the stack `bad`.
fn place_of(spec: &str, id: &str) -> String {
    format!("apps/bad/spec.yaml:{}: ", line_of(spec, id))
}

#[test]
fn malformed_yaml_is_told_with_file_and_line() {
    let server = Cluster::shared();
    let organization = Organization::create(&server);
    spec_is_refused(&organization, "resources:\n- id: a\n  type: [\n", &["apps/bad/spec.yaml:"]);
}

#[test]
fn error_names_file_of_oversized_or_endless_spec() {
    let server = Cluster::shared();
    let organization = Organization::create(&server);
    let mut bomb = "resources: []\ncontext:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..30 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb.push_str(&format!("  a{n}: &a{n} [{aliases}]\n"));
    }
    spec_is_refused(&organization, &bomb, &["apps/bad/spec.yaml:", "its anchors and aliases expand to more"]);
    let large = "# somebody wrote much\n".repeat(5_000_000);
    assert!(large.len() > 100 << 20);
    spec_is_refused(&organization, &large, &["apps/bad/spec.yaml", "64 MiB"]);
    // Others go on.
    organization.stack("bad", &config_maps("app", 1, "a"));
    organization.succeed("bad", "Preview", "");
}

#[test]
fn malformed_manifest_is_told_with_file_line_and_field() {
    let server = Cluster::shared();
    let organization = Organization::create(&server);
    let file = |name: &str, text: &str| organization.source.commit(&format!("apps/bad/{name}"), text);
    file("good.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: good}}\n");
    file("bad.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n---\napiVersion: v1\nkind: ConfigMap\n");
    server.kubectl().apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Stack, metadata: {{name: bad, namespace: {name}}},
          spec: {{project: {name}, workspaces: [{name}], generator: {{type: Manifests}}}}}}",
        name = organization.name
    ));
    message_names(&organization.fail("bad", "Preview", ""), &["apps/bad/bad.yaml:5", "metadata.name"]);
    file("bad.yaml", "{apiVersion: v1, kind: ConfigMop, metadata: {name: one}}\n");
    message_names(&organization.fail("bad", "Preview", ""), &["apps/bad/bad.yaml:1", "kind", "ConfigMop"]);
}

#[test]
fn cycle_is_told_with_its_path() {
    let server = Cluster::shared();
    let organization = Organization::create(&server);
    let resource = |id: &str, other: &str| {
        format!(
            "- id: v1:ConfigMap:app:{id}
  type: Kubernetes
  dependsOn: [\"v1:ConfigMap:app:{other}\"]
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {id}, namespace: app}}}}
"
        )
    };
    let spec = format!("resources:\n{}{}{}", resource("a", "b"), resource("b", "c"), resource("c", "a"));
    let path = "v1:ConfigMap:app:a → v1:ConfigMap:app:b → v1:ConfigMap:app:c → v1:ConfigMap:app:a";
    spec_is_refused(&organization, &spec, &[&place_of(&spec, "v1:ConfigMap:app:a"), path]);
}

#[test]
fn error_names_resource_and_field_of_dangling_reference() {
    let server = Cluster::shared();
    let organization = Organization::create(&server);
    let spec = |depends_on: &str, data: &str| {
        format!(
            "resources:
- id: v1:ConfigMap:app:a
  type: Kubernetes
  dependsOn: [{depends_on}]
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, namespace: app}}, data: {{key: {data}}}}}
"
        )
    };
    let place = |line: usize, field: &str| format!("apps/bad/spec.yaml:{line}: v1:ConfigMap:app:a: {field}: ");
    let reference = "$kusion_path.v1:ConfigMap:app:gone.data.key";
    for (spec, place) in [
        (spec("\"v1:ConfigMap:app:gone\"", "x"), place(4, "dependsOn[0]")),
        (spec("", reference), place(5, "attributes.data.key")),
    ] {
        spec_is_refused(&organization, &spec, &[&place, "v1:ConfigMap:app:gone"]);
    }
}

#[test]
fn error_names_resource_and_field_of_incomplete_spec() {
    let server = Cluster::shared();
    let organization = Organization::create(&server);
    let spec = |attributes: &str| {
        format!("resources:\n- id: v1:ConfigMap:app:a\n  type: Kubernetes\n  attributes: {attributes}\n")
    };
    for (attributes, problem) in [
        ("{apiVersion: v1, metadata: {name: a, namespace: app}}", "4: v1:ConfigMap:app:a: attributes.kind: "),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: app}}",
            "4: v1:ConfigMap:app:a: attributes.metadata.name: ",
        ),
    ] {
        spec_is_refused(&organization, &spec(attributes), &[&format!("apps/bad/spec.yaml:{problem}")]);
    }
    let twice = format!("{0}{1}", config_maps("app", 1, "a"), config_maps("app", 1, "a").replace("resources:\n", ""));
    spec_is_refused(
        &organization,
        &twice,
        &["v1:Namespace:app", "is a duplicate; it is also the id of the resource in apps/bad/spec.yaml:2"],
    );
    let terraform = "resources:\n- id: hashicorp:random:random_pet:a\n  type: Terraform\n  attributes: {length: 1}\n";
    spec_is_refused(&organization, terraform, &["hashicorp:random:random_pet:a", "Terraform"]);
}

#[test]
fn missing_path_error_names_commit() {
    let server = Cluster::shared();
    let organization = Organization::create(&server);
    let commit = organization.source.commit("elsewhere/spec.yaml", "resources: []\n");
    server.kubectl().apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Stack, metadata: {{name: lost, namespace: {name}}},
          spec: {{project: {name}, workspaces: [{name}]}}}}",
        name = organization.name
    ));
    message_names(&organization.fail("lost", "Preview", ""), &["apps/lost", &commit[..8]]);
}

/// What the source's condition says once it cannot be read.
fn source_is_unreadable(organization: &Organization, kubectl: &Kubectl) -> String {
    kubectl.watch(&organization.name, "source/config", PATIENCE, |source| {
        let ready = condition(source, "Ready");
        (ready["status"] == "False").then(|| ready["message"].as_str().unwrap_or_default().to_owned())
    })
}

#[test]
fn missing_source_fails_run_and_shows_in_condition() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    organization.stack("web", &config_maps("app", 1, "a"));
    organization.read_from("file:///nowhere/at/all.git");
    let message = source_is_unreadable(&organization, &kubectl);
    message_names(&message, &["/nowhere/at/all.git", "does not exist"]);
    let run = organization.ended(&organization.start("web", "Apply", ""), PATIENCE);
    assert_eq!(condition(&run, "Failed")["reason"], "SourceNotFound", "{run:#}");

    let refused = kubectl.refused(&["delete", "source", "config", "--namespace", name]);
    message_names(&refused, &["it is the source of project", name]);
}

#[test]
fn runner_reads_only_allowed_local_repositories() {
    let allowed = Repository::new();
    let server = Standalone::start_with(&[format!("--local-repositories={}", allowed.path().display())]);
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let spec = config_maps("app", 1, "a");
    organization.stack("web", &spec);
    let message = source_is_unreadable(&organization, &kubectl);
    message_names(&message, &[&organization.source.url(), "--local-repositories"]);

    allowed.commit("apps/web/spec.yaml", &spec);
    organization.read_from(&format!(
        "{}/../{}",
        allowed.url(),
        organization.source.path().file_name().unwrap().display()
    ));
    message_names(&organization.fail("web", "Preview", ""), &["--local-repositories"]);
    organization.read_from(&allowed.url());
    // So is the repository that the workspace leads to.
    let message = organization.fail("web", "Preview", "");
    message_names(&message, &["spec.gitops.repository", "deploy.git", "--local-repositories"]);
}

#[test]
fn run_awaits_unreachable_source_until_timeout() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let name = &organization.name;
    organization.stack("web", &config_maps("app", 1, "a"));
    organization.read_from("https://127.0.0.1:1/away.git");
    let run = organization.ended(&organization.start("web", "Apply", "timeout: 3s"), PATIENCE);
    let failed = condition(&run, "Failed");
    assert_eq!(failed["reason"], "TimedOut", "{run:#}");
    message_names(failed["message"].as_str().unwrap(), &["3s", "https://127.0.0.1:1/away.git", "cannot be reached"]);

    // One with more time says why it waits, and outlives the outage.
    let waiting = organization.start("web", "Apply", "");
    let complaint = kubectl.watch(name, &format!("run/{waiting}"), PATIENCE, |run| {
        condition(run, "Waiting")["message"].as_str().map(str::to_owned)
    });
    message_names(&complaint, &["https://127.0.0.1:1/away.git", "cannot be reached"]);
    organization.read_from(&organization.source.url());
    let run = organization.ended(&waiting, PATIENCE);
    assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    assert_eq!(condition(&run, "Waiting"), Value::Null);

    // An outage that lasts fails it.
    organization.read_from("https://127.0.0.1:1/away.git");
    let message = organization.fail("web", "Apply", "");
    message_names(&message, &["https://127.0.0.1:1/away.git", "cannot be reached"]);
}

#[test]
fn rejected_object_fails_alone_with_its_field() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let service = |port: &str| {
        format!(
            "- id: v1:Service:{namespace}:front
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes:
    apiVersion: v1
    kind: Service
    metadata: {{name: front, namespace: {namespace}}}
    spec: {{ports: [{{port: {port}}}]}}
- id: v1:ConfigMap:{namespace}:after
  type: Kubernetes
  dependsOn: [\"v1:Service:{namespace}:front\"]
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: after, namespace: {namespace}}}}}
"
        )
    };
    let spec = |port: &str| config_maps(&namespace, 3, "a") + &service(port);
    // What is of another type is refused before anything is made, its namespace among it.
    organization.stack("web", &spec("many"));
    let run = organization.ended(&organization.start("web", "Apply", ""), PATIENCE);
    let (failed, id) = (condition(&run, "Failed"), format!("v1:Service:{namespace}:front"));
    assert_eq!(failed["reason"], "PlanFailed", "{run:#}");
    let place = format!("apps/web/spec.yaml:{}", line_of(&spec("many"), &id));
    message_names(failed["message"].as_str().unwrap(), &[&place, &id, ".port: expected numeric"]);
    assert!(!kubectl.succeeds(&["get", "namespace", &namespace]), "{run:#}");

    organization.stack("web", &spec("99999"));
    let run = organization.ended(&organization.start("web", "Apply", ""), PATIENCE);
    assert_eq!(run["status"]["phase"], "Failed", "{run:#}");
    // The namespace is not there before the run, so that nobody could be asked when it was planned.
    let place = format!("apps/web/spec.yaml:{}", line_of(&spec("99999"), &id));
    let wanted = [&place, &id, "spec.ports[0].port", "99999"];
    message_names(condition(&run, "Failed")["message"].as_str().unwrap(), &wanted);
    let told = run["status"]["resources"].as_array().unwrap().iter().find(|it| it["id"] == id.as_str()).unwrap();
    message_names(told["message"].as_str().unwrap(), &wanted);
    assert!(organization.of_stack("releases", "web").is_empty(), "a failed run made a release");

    let state = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{}/stacks/web/state", organization.name);
    let state: Value = serde_json::from_str(&kubectl.raw(&format!("{state}?format=json"))).unwrap();
    let of = |id: String| state["resources"].as_array().unwrap().iter().find(|it| it["id"] == id.as_str()).unwrap();
    assert_eq!((&state["lastRelease"], &state["changed"]), (&0.into(), &true.into()), "{state:#}");
    assert_eq!(of(id.clone())["result"]["outcome"], "Failed", "{state:#}");
    let map = of(format!("v1:ConfigMap:{namespace}:c0"));
    assert_eq!(
        (&map["result"]["outcome"], &map["resource"]["attributes"]["data"]["value"]),
        (&"Done".into(), &"a".into())
    );

    // What does not depend on it is there, what does is not, and the record knows which is which.
    assert!(kubectl.succeeds(&["get", "configmap", "c0", "c1", "c2", "--namespace", &namespace]), "{run:#}");
    assert!(!kubectl.succeeds(&["get", "configmap", "after", "--namespace", &namespace]));
    let phase = |name: &str| {
        let all = run["status"]["resources"].as_array().unwrap();
        all.iter().find(|resource| resource["id"].as_str().unwrap().ends_with(name)).unwrap()["phase"].clone()
    };
    assert_eq!([phase(":c0"), phase(":front"), phase(":after")], ["Done", "Failed", "Skipped"]);
    let recorded = organization.of_stack("resources", "web");
    let recorded: Vec<_> =
        recorded.iter().map(|r| (r["spec"]["kubernetes"]["name"].as_str().unwrap(), &r["status"]["phase"])).collect();
    for live in ["c0", "c1", "c2"] {
        assert!(recorded.contains(&(live, &"Applied".into())), "{live} is there and not on record: {recorded:?}");
    }

    // Corrected, only what is missing is made.
    organization.stack("web", &spec("80"));
    let run = organization.succeed("web", "Apply", "");
    let summary = &run["status"]["plan"]["summary"];
    assert_eq!((&summary["create"], &summary["unchanged"]), (&2.into(), &4.into()), "{run:#}");
    assert_eq!(run["status"]["release"], 1);

    // Now there is somebody to ask, and nothing is begun.
    organization.stack("web", &spec("99999"));
    let run = organization.ended(&organization.start("web", "Apply", ""), PATIENCE);
    assert_eq!(condition(&run, "Failed")["reason"], "PlanFailed", "{run:#}");
    message_names(condition(&run, "Failed")["message"].as_str().unwrap(), &wanted);
    let name = run["metadata"]["name"].as_str().unwrap();
    let plan = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs/{name}/plan", organization.name);
    message_names(&kubectl.refused(&["get", "--raw", &plan]), &wanted);
}

#[test]
fn unknown_kubernetes_kind_prevents_any_commit() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    let tips = || git(&organization.deploy, &["for-each-ref", "refs/heads"]);
    let before = tips();
    let id = "apps/v1:Deploymnt:app:web";
    let spec = config_maps("app", 2, "a")
        + &format!(
            "- id: {id}
  type: Kubernetes
  attributes:
    apiVersion: apps/v1
    kind: Deploymnt
    metadata: {{name: web, namespace: app}}
"
        );
    organization.stack("web", &spec);
    let run = organization.ended(&organization.start("web", "Apply", ""), PATIENCE);
    let place = format!("apps/web/spec.yaml:{}: {id}: attributes.kind: ", line_of(&spec, id) + 4);
    message_names(
        condition(&run, "Failed")["message"].as_str().unwrap(),
        &[&place, "apps/v1 has no kind \"Deploymnt\""],
    );
    assert_eq!(tips(), before, "{run:#}");
}

#[test]
fn unknown_cluster_kind_prevents_any_change() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let operator = format!("apps/v1:Deployment:{namespace}:operator");
    let of_kind = |api_version: &str, kind: &str, depends_on: &str| {
        format!(
            "- id: {api_version}:{kind}:{namespace}:a
  type: Kubernetes
  dependsOn: [\"{depends_on}\"]
  attributes: {{apiVersion: {api_version}, kind: {kind}, metadata: {{name: a, namespace: {namespace}}}}}
"
        )
    };
    // What it depends on depends on something that may bring kinds.
    let with_operator = config_maps(&namespace, 1, "a")
        + &format!(
            "- id: {operator}
  type: Kubernetes
  attributes:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {{name: operator, namespace: {namespace}}}
    spec:
      selector: {{matchLabels: {{app: operator}}}}
      template:
        metadata: {{labels: {{app: operator}}}}
        spec: {{containers: [{{name: operator, image: example.com/operator}}]}}
- id: v1:ConfigMap:{namespace}:after
  type: Kubernetes
  dependsOn: [\"{operator}\"]
  attributes: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: after, namespace: {namespace}}}}}
"
        );
    let tables = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs", organization.name);
    // A group that nobody serves, and a kind and a version that one does not have which another server answers for.
    for (api_version, kind) in
        [("exmple.com/v1", "Widget"), ("config.stoa.dev/v1alpha1", "Stak"), ("config.stoa.dev/v9", "Stack")]
    {
        let id = format!("{api_version}:{kind}:{namespace}:a");
        let alone = of_kind(api_version, kind, &format!("v1:ConfigMap:{namespace}:c1"));
        let spec = config_maps(&namespace, 2, "a") + &alone;
        organization.stack("web", &spec);
        let run = organization.ended(&organization.start("web", "Apply", ""), PATIENCE);
        let failed = condition(&run, "Failed");
        assert_eq!(failed["reason"], "PlanFailed", "{run:#}");
        let place = format!("apps/web/spec.yaml:{}", line_of(&spec, &id));
        let wanted =
            [&place, &id, &format!("{kind:?} in apiVersion {api_version:?}"), "add that resource to dependsOn"];
        message_names(failed["message"].as_str().unwrap(), &wanted);
        assert!(!kubectl.succeeds(&["get", "namespace", &namespace]), "{run:#}");

        organization.stack(
            "web",
            &(with_operator.clone() + &of_kind(api_version, kind, &format!("v1:ConfigMap:{namespace}:after"))),
        );
        let run = organization.succeed("web", "Preview", "");
        let path = format!("{tables}/{}/plan?format=table", run["metadata"]["name"].as_str().unwrap());
        let table = kubectl.raw(&path);
        assert!(table.contains(&format!("{id}  (unverified: ")), "{table}");
    }
}

#[test]
fn values_of_secrets_do_not_enter_git() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    let spec = "resources:
- id: v1:Secret:app:password
  type: Kubernetes
  attributes: {apiVersion: v1, kind: Secret, metadata: {name: password, namespace: app}, stringData: {password: hunter2}}
";
    organization.stack("bad", spec);
    let run = organization.ended(&organization.start("bad", "Apply", ""), PATIENCE);
    assert_eq!(run["status"]["phase"], "Failed", "{run:#}");
    message_names(condition(&run, "Failed")["message"].as_str().unwrap(), &["v1:Secret:app:password"]);
    let name = run["metadata"]["name"].as_str().unwrap();
    let log = format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/runs/{name}/log", organization.name);
    for text in [run.to_string(), server.kubectl().raw(&log)] {
        assert!(!text.contains("hunter2"), "a secret is told: {text}");
    }
}

#[test]
fn secret_values_appear_only_in_cluster() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let spec = config_maps(&namespace, 1, "a")
        + &format!(
            "- id: v1:Secret:{namespace}:password
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes: {{apiVersion: v1, kind: Secret, metadata: {{name: password, namespace: {namespace}}}, stringData: {{password: hunter2}}}}
"
        );
    organization.stack("web", &spec);
    let run = organization.succeed("web", "Apply", "");
    let secret = kubectl.get(&["secret", "password", "--namespace", &namespace]);
    assert_eq!(secret["data"]["password"], "aHVudGVyMg==");
    let raw = |path: String| {
        kubectl.run(&[
            "get",
            "--raw",
            &format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{}/{path}", organization.name),
        ])
    };
    let name = run["metadata"]["name"].as_str().unwrap();
    let state = raw(format!("releases/web.{}.1/state", organization.name));
    assert!(state.contains("hmac-sha256:"), "{state}");
    for text in [run.to_string(), raw(format!("runs/{name}/log")), state] {
        assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "a secret is told: {text}");
    }
    assert_eq!(organization.succeed("web", "Apply", "")["status"]["release"], Value::Null);
}

fn refused(kubectl: &Kubectl, kind: &str, name: &str, namespace: &str, spec: &str) -> String {
    let group = match kind {
        "Run" => "delivery",
        "Workspace" | "Backend" => "platform",
        _ => "config",
    };
    let namespace = if namespace.is_empty() { String::new() } else { format!(", namespace: {namespace}") };
    kubectl.create_refused(&format!(
        "{{apiVersion: {group}.stoa.dev/v1alpha1, kind: {kind}, metadata: {{name: {name}{namespace}}}, spec: {spec}}}"
    ))
}

#[test]
fn server_rejects_invalid_objects_with_field_and_reason() {
    let server = Cluster::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let name = &organization.name;
    organization.stack("web", &config_maps("app", 1, "a"));
    for (kind, namespace, spec, wanted) in [
        ("Stack", name.as_str(), "{project: gone}", "spec.project: Not found: \"gone\""),
        ("Stack", name, "{project: PROJECT, workspaces: [a, a]}", "spec.workspaces[1]: Duplicate value: \"a\""),
        ("Stack", name, "{project: PROJECT, path: ../out}", "spec.path: Invalid value: \"../out\""),
        ("Stack", name, "{project: PROJECT, trigger: Sometimes}", "spec.trigger: Unsupported value: \"Sometimes\""),
        ("Source", name, "{remote: \"\"}", "spec.remote: Required value"),
        ("Source", name, "{remote: x, pollInterval: soon}", "spec.pollInterval: Invalid value: \"soon\""),
        ("Run", name, "{stack: gone, operation: Apply}", "spec.stack: Not found: \"gone\""),
        ("Run", name, "{stack: web, operation: Apply, workspace: gone}", "spec.workspace: Not found: \"gone\""),
        ("Run", name, "{stack: web, operation: Rollback}", "spec.release: Required value"),
        ("Run", name, "{stack: web, operation: Apply, release: 1}", "spec.release: Forbidden"),
        ("Run", name, "{stack: web, operation: Explode}", "spec.operation: Unsupported value: \"Explode\""),
        ("Workspace", "", "{backend: {name: \"\"}}", "spec.backend.name: Required value"),
        ("Workspace", "", "{backend: {name: b}, kubernetes: {clusters: []}}", "spec.kubernetes.clusters"),
        ("Backend", "", "{type: Local, s3: {bucket: b}}", "spec.s3: Forbidden"),
        ("Project", name, "{}", "spec.source: Required value"),
    ] {
        let said = refused(&kubectl, kind, "nonsense", namespace, &spec.replace("PROJECT", name));
        assert!(said.contains(wanted), "{kind} {spec}: {wanted:?} is not in: {said}");
    }
    let password =
        refused(&kubectl, "Source", "secret", name, "{remote: \"https://ann:hunter2@git.example.com/a.git\"}");
    assert!(password.contains("spec.remote") && password.contains("secretRef"), "{password}");
    assert!(!password.contains("hunter2"), "a password is repeated: {password}");
    let nowhere = refused(&kubectl, "Source", "a", "no-such-namespace", "{remote: x}");
    assert!(nowhere.contains("namespaces \"no-such-namespace\" not found"), "{nowhere}");
}

#[test]
fn failed_run_leaves_what_was_deployed_as_it_was() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    organization.stack("web", &config_maps("app", 2, "a"));
    organization.succeed("web", "Apply", "");
    let tip = || git(&organization.deploy, &["rev-parse", "main"]);
    let before = tip();
    organization.stack("web", "resources: {}\n");
    organization.fail("web", "Apply", "");
    assert_eq!(tip(), before);
    let stack = server.kubectl().get(&["stack", "web", "--namespace", &organization.name]);
    let deployment = &stack["status"]["deployments"][0];
    assert_eq!((&deployment["release"], &deployment["resources"]), (&1.into(), &3.into()), "{stack:#}");
    let said = ["Ready", "LastRun"].map(|of| condition(&stack, of)["status"].clone());
    assert_eq!(said, ["True", "False"], "what is deployed is as before, and the last run failed: {stack:#}");
    // The next good one goes on from there.
    organization.stack("web", &config_maps("app", 2, "b"));
    assert_eq!(organization.succeed("web", "Apply", "")["status"]["release"], 2);
}
