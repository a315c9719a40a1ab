//! Apply, apply again, change one thing, go back, take down.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;
use stoa_e2e::fixture::{Organization, Repository, condition, config_maps};
use stoa_e2e::{Cluster, Kubectl, Server, Standalone, git};

use crate::PATIENCE;

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap()
}

/// The config maps of a namespace that a test made, with their versions.
fn versions(kubectl: &Kubectl, namespace: &str) -> BTreeMap<String, String> {
    let list = kubectl.get(&["configmaps", "--namespace", namespace]);
    let items = list["items"].as_array().unwrap().iter().filter(|item| name_of(item) != "kube-root-ca.crt");
    items.map(|item| (name_of(item).to_owned(), item["metadata"]["resourceVersion"].to_string())).collect()
}

/// `config_maps`, with another value for one of them.
fn with_one_changed(namespace: &str, count: usize, number: usize) -> String {
    let all = config_maps(namespace, count, "a");
    let marker = format!("metadata: {{name: c{number}, namespace: {namespace}}}\n    data: {{value: a}}");
    assert!(all.contains(&marker));
    all.replace(&marker, &marker.replace("value: a", "value: b"))
}

#[test]
fn second_cluster_apply_writes_nothing() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, 5, "a"));
    let first = organization.succeed("web", "Apply", "");
    assert_eq!(first["status"]["release"], 1, "{first:#}");
    let before = versions(&cluster.kubectl(), &namespace);
    assert_eq!(before.len(), 5);

    let second = organization.succeed("web", "Apply", "");
    assert_eq!(second["status"]["release"], Value::Null, "{second:#}");
    assert_eq!(second["status"]["plan"]["summary"]["unchanged"], 6, "{second:#}");
    assert_eq!(versions(&cluster.kubectl(), &namespace), before);
    assert_eq!(organization.of_stack("releases", "web").len(), 1);
    let stack = cluster.kubectl().get(&["stack", "web", "--namespace", &organization.name]);
    assert_eq!(stack["status"]["deployments"][0]["release"], 1);
    assert_eq!(stack["status"]["deployments"][0]["lastRun"].as_str(), Some(name_of(&second)));
}

#[test]
fn second_git_apply_makes_no_commit() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    organization.stack("web", &config_maps("web", 5, "a"));
    let first = organization.succeed("web", "Apply", "");
    let commit = git(&organization.deploy, &["rev-parse", "main"]);
    assert_eq!(first["status"]["gitopsCommit"].as_str(), Some(commit.trim()));

    let second = organization.succeed("web", "Apply", "");
    assert_eq!(second["status"]["release"], Value::Null, "{second:#}");
    assert_eq!(git(&organization.deploy, &["rev-parse", "main"]), commit);
    assert_eq!(organization.of_stack("releases", "web").len(), 1);
}

#[test]
fn git_deploys_and_removes_kusion_quick_start() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    let spec = include_str!("../../../data/kusion/quickstart.yaml");
    organization.stack("web", spec);
    let first = organization.succeed("web", "Apply", "");
    assert_eq!(first["status"]["plan"]["summary"]["create"], 3, "{first:#}");
    let files = || git(&organization.deploy, &["ls-tree", "-r", "--name-only", "main"]);
    let all =
        ["_cluster/namespace-quickstart.yaml", "quickstart/deployment-hello.yaml", "quickstart/service-hello.yaml"];
    assert_eq!(files().lines().collect::<Vec<_>>(), all);
    let workload = git(&organization.deploy, &["show", &format!("main:{}", all[1])]);
    assert!(workload.contains("namespace: quickstart") && !workload.contains("kusion_path"), "{workload}");

    let second = organization.succeed("web", "Apply", "");
    assert_eq!(second["status"]["release"], Value::Null, "{second:#}");
    assert_eq!(second["status"]["plan"]["summary"]["unchanged"], 3, "{second:#}");
    let gone = organization.succeed("web", "Destroy", "");
    assert_eq!(gone["status"]["plan"]["summary"]["delete"], 3, "{gone:#}");
    assert_eq!(files(), "");
    assert_eq!(organization.recorded("web"), (3, 3));
}

#[test]
fn edit_changes_and_rollback_restores_one_object() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, 5, "a"));
    organization.succeed("web", "Apply", "");
    let before = versions(&kubectl, &namespace);

    let commit = organization.stack("web", &with_one_changed(&namespace, 5, 3));
    let edited = organization.succeed("web", "Apply", "");
    let summary = &edited["status"]["plan"]["summary"];
    assert_eq!((&summary["update"], &summary["unchanged"]), (&1.into(), &5.into()), "{edited:#}");
    assert_eq!(edited["status"]["release"], 2);
    assert_eq!(edited["status"]["source"]["commit"], commit.as_str());
    let after = versions(&kubectl, &namespace);
    let changed: Vec<_> =
        after.iter().filter(|(name, version)| before[*name] != **version).map(|(name, _)| name).collect();
    assert_eq!(changed, ["c3"]);

    let back = organization.succeed("web", "Rollback", "release: 1");
    assert_eq!(back["status"]["release"], 3, "{back:#}");
    let restored = kubectl.get(&["configmap", "c3", "--namespace", &namespace]);
    assert_eq!(restored["data"]["value"], "a");
    let end = versions(&kubectl, &namespace);
    let changed: Vec<_> =
        end.iter().filter(|(name, version)| after[*name] != **version).map(|(name, _)| name).collect();
    assert_eq!(changed, ["c3"], "the rollback touched other objects");
    let release = kubectl.get(&["release", &format!("web.{}.3", organization.name), "--namespace", &organization.name]);
    assert_eq!(release["spec"]["rollbackOf"], 1, "{release:#}");
}

#[test]
fn edit_changes_and_rollback_restores_one_file() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    organization.stack("web", &config_maps("web", 5, "a"));
    organization.succeed("web", "Apply", "");
    organization.stack("web", &with_one_changed("web", 5, 3));
    organization.succeed("web", "Apply", "");
    let changed = git(&organization.deploy, &["diff", "--name-only", "main~1", "main"]);
    let changed: Vec<&str> = changed.lines().collect();
    assert!(matches!(changed.as_slice(), [one] if one.contains("c3")), "files changed: {changed:?}");
    let diff = git(&organization.deploy, &["diff", "--unified=0", "main~1", "main"]);
    let lines: Vec<&str> = diff
        .lines()
        .filter(|line| {
            (line.starts_with('+') || line.starts_with('-')) && !line.starts_with("+++") && !line.starts_with("---")
        })
        .collect();
    assert_eq!(lines, ["-  value: a", "+  value: b"]);

    organization.succeed("web", "Rollback", "release: 1");
    let tree = |revision| git(&organization.deploy, &["rev-parse", revision]);
    assert_eq!(tree("main^{tree}"), tree("main~2^{tree}"), "the rollback did not restore the first tree");
}

/// A namespace and a scaler in it, in a version of its group.
fn scaler(namespace: &str, version: &str, most: usize) -> String {
    let target = "{apiVersion: apps/v1, kind: Deployment, name: web}";
    config_maps(namespace, 0, "a")
        + &format!(
            "- id: autoscaling/{version}:HorizontalPodAutoscaler:{namespace}:web
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes:
    apiVersion: autoscaling/{version}
    kind: HorizontalPodAutoscaler
    metadata: {{name: web, namespace: {namespace}}}
    spec: {{maxReplicas: {most}, scaleTargetRef: {target}}}
"
        )
}

/// Brings a scaler to the next version of its group, which gives it another id. What is seen of the object where it is
/// deployed is to be the same before and after.
fn bring_to_another_version(organization: &Organization, namespace: &str, is_there: impl Fn(&str, usize)) {
    organization.stack("web", &scaler(namespace, "v1", 3));
    organization.succeed("web", "Apply", "");
    is_there("v1", 3);
    organization.stack("web", &scaler(namespace, "v2", 4));
    let run = organization.succeed("web", "Apply", "");
    let summary = &run["status"]["plan"]["summary"];
    assert_eq!((&summary["update"], &summary["forget"], &summary["delete"]), (&1.into(), &1.into(), &0.into()));
    is_there("v2", 4);
    let resources = organization.of_stack("resources", "web");
    let phase = |version: &str| {
        let id = format!("autoscaling/{version}:HorizontalPodAutoscaler:{namespace}:web");
        let resource = resources.iter().find(|resource| resource["spec"]["id"] == id.as_str());
        resource.unwrap_or_else(|| panic!("no {id}: {resources:#?}"))["status"]["phase"].clone()
    };
    assert_eq!([phase("v1"), phase("v2")], ["Forgotten", "Applied"]);
    let again = organization.succeed("web", "Apply", "");
    assert_eq!(again["status"]["plan"]["summary"]["unchanged"], 2, "{again:#}");
}

#[test]
fn changed_id_updates_same_cluster_object() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let uids = RefCell::new(BTreeSet::new());
    bring_to_another_version(&organization, &namespace, |_, most| {
        let scaler = cluster.kubectl().get(&["horizontalpodautoscaler", "web", "--namespace", &namespace]);
        assert_eq!(scaler["spec"]["maxReplicas"], most, "{scaler:#}");
        uids.borrow_mut().insert(scaler["metadata"]["uid"].to_string());
    });
    assert_eq!(uids.borrow().len(), 1, "it was made anew");
}

#[test]
fn changed_id_updates_same_git_file() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    bring_to_another_version(&organization, "web", |version, most| {
        let files = git(&organization.deploy, &["ls-tree", "-r", "--name-only", "main"]);
        let [file] = files.lines().filter(|file| file.contains("scaler")).collect::<Vec<_>>()[..] else {
            panic!("not one file of the scaler: {files}")
        };
        let content = git(&organization.deploy, &["show", &format!("main:{file}")]);
        let [version, most] = [format!("apiVersion: autoscaling/{version}\n"), format!("maxReplicas: {most}\n")];
        assert!(content.contains(&version) && content.contains(&most), "{content}");
    });
}

/// A namespace and config maps that depend on each other in a row.
pub(crate) fn chain(namespace: &str, length: usize) -> String {
    let mut spec = config_maps(namespace, length, "a");
    for number in 1..length {
        let own = format!("- id: v1:ConfigMap:{namespace}:c{number}\n  type: Kubernetes\n  dependsOn: [");
        assert!(spec.contains(&own));
        let with_previous = format!("{own}\"v1:ConfigMap:{namespace}:c{}\", ", number - 1);
        spec = spec.replace(&own, &with_previous);
    }
    spec
}

/// Names of the objects of one namespace in the order in which a verb on them succeeded.
fn order(cluster: &Cluster, verb: &str, namespace: &str) -> Vec<String> {
    let dry = |event: &Value| event["requestURI"].as_str().is_some_and(|uri| uri.contains("dryRun="));
    cluster
        .audit(namespace)
        .iter()
        .filter(|event| {
            event["verb"] == verb && event["user"]["username"] == "system:serviceaccount:stoa-system:function-runner"
        })
        .filter(|event| !dry(event) && event["responseStatus"]["code"].as_i64().is_some_and(|code| code < 300))
        .map(|event| &event["objectRef"])
        .filter(|object| {
            object["namespace"] == namespace || (object["resource"] == "namespaces" && object["name"] == namespace)
        })
        .map(|object| object["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn dependencies_order_creation_and_reverse_destruction() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    organization.stack("web", &chain(&namespace, 4));
    organization.succeed("web", "Apply", "");
    let expected = [namespace.as_str(), "c0", "c1", "c2", "c3"];
    assert_eq!(order(&cluster, "patch", &namespace), expected, "order of creation");

    let refused = kubectl.refused(&["delete", "stack", "web", "--namespace", name]);
    assert!(refused.contains("still live") && refused.contains("deletionPolicy"), "{refused}");

    let destroy = organization.succeed("web", "Destroy", "");
    assert_eq!(
        order(&cluster, "delete", &namespace),
        expected.iter().rev().copied().collect::<Vec<_>>(),
        "order of deletion"
    );
    assert!(!kubectl.succeeds(&["get", "namespace", &namespace]), "the namespace is still there");
    assert_eq!(destroy["status"]["release"], 2, "{destroy:#}");
    let release = kubectl.get(&["release", &format!("web.{name}.2"), "--namespace", name]);
    assert_eq!(release["spec"]["tombstone"], true, "{release:#}");
    let resources = organization.of_stack("resources", "web");
    let phases: Vec<&Value> = resources.iter().map(|resource| &resource["status"]["phase"]).collect();
    assert_eq!(phases, vec!["Destroyed"; 5]);
    let stack = kubectl.get(&["stack", "web", "--namespace", name]);
    assert_eq!(stack["status"]["deployments"][0]["resources"], 0, "{stack:#}");
    // Nothing is live any more, so the stack may go, and what it did stays on record.
    kubectl.run(&["delete", "stack", "web", "--namespace", name]);
    assert_eq!(organization.of_stack("releases", "web").len(), 2);
}

#[test]
fn destroy_removes_git_files_and_leaves_tombstone() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    organization.stack("web", &config_maps("web", 3, "a"));
    organization.succeed("web", "Apply", "");
    let files = || git(&organization.deploy, &["ls-tree", "-r", "--name-only", "main"]);
    assert!(files().contains("c2"), "{}", files());
    organization.succeed("web", "Destroy", "");
    assert_eq!(files(), "");
    let releases = organization.of_stack("releases", "web");
    let tombstones: Vec<&Value> = releases.iter().map(|release| &release["spec"]["tombstone"]).collect();
    assert_eq!(tombstones, [false, true]);
    let message = organization.refused("web", "Rollback", "release: 2");
    assert!(message.contains("everything was removed"), "{message}");
}

#[test]
fn rollback_to_missing_release_leaves_stack_unchanged() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    organization.stack("web", &config_maps("web", 1, "a"));
    organization.succeed("web", "Apply", "");
    let message = organization.refused("web", "Rollback", "release: 7");
    assert!(message.contains("release web.") && message.contains(".7 does not exist"), "{message}");
    let stack = kubectl.get(&["stack", "web", "--namespace", &organization.name]);
    assert_eq!(condition(&stack, "Ready")["status"], "True", "{stack:#}");
}

#[test]
fn apply_deletes_only_object_removed_from_source() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, 4, "a"));
    organization.succeed("web", "Apply", "");
    let before = versions(&cluster.kubectl(), &namespace);
    organization.stack("web", &config_maps(&namespace, 3, "a"));
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(run["status"]["plan"]["summary"]["delete"], 1, "{run:#}");
    let mut expected = before;
    expected.remove("c3");
    assert_eq!(versions(&cluster.kubectl(), &namespace), expected);
}

#[test]
fn object_that_somebody_deleted_is_created_again() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    organization.stack("web", &config_maps(&namespace, 3, "a"));
    organization.succeed("web", "Apply", "");
    kubectl.run(&["delete", "configmap", "c1", "--namespace", &namespace]);
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(run["status"]["plan"]["summary"]["create"], 1, "{run:#}");
    assert!(kubectl.succeeds(&["get", "configmap", "c1", "--namespace", &namespace]));
}

#[test]
fn apply_reverts_manual_change_in_git() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    organization.stack("web", &config_maps("web", 2, "wanted"));
    organization.succeed("web", "Apply", "");
    let clone = Repository::clone_of(&organization.deploy);
    let file = "web/configmap-c0.yaml";
    let text = fs::read_to_string(clone.path().join(file)).unwrap();
    clone.commit(file, &text.replace("wanted", "by-hand"));
    clone.git(&["push", "--quiet"]);
    let live = || git(&organization.deploy, &["show", "main:web/configmap-c0.yaml"]);
    assert!(live().contains("by-hand"), "{}", live());

    let preview = organization.succeed("web", "Preview", "");
    let summary = &preview["status"]["plan"]["summary"];
    assert_eq!((&summary["update"], &summary["unchanged"]), (&1.into(), &2.into()), "{preview:#}");
    organization.succeed("web", "Apply", "");
    assert!(live().contains("wanted") && !live().contains("by-hand"), "{}", live());
}

#[test]
fn references_between_resources_are_filled_in_and_order_them() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let spec = config_maps(&namespace, 1, "from-c0")
        + &format!(
            "- id: v1:ConfigMap:{namespace}:copy
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: copy, namespace: $kusion_path.v1:Namespace:{namespace}.metadata.name}}
    data:
      whole: $kusion_path.v1:ConfigMap:{namespace}:c0.data.value
      inside: \"value ${{kusion_path.v1:ConfigMap:{namespace}:c0.data.value}} of ${{kusion_path.v1:ConfigMap:{namespace}:c0.metadata.name}}\"
"
        );
    organization.stack("web", &spec);
    organization.succeed("web", "Apply", "");
    let copy = cluster.kubectl().get(&["configmap", "copy", "--namespace", &namespace]);
    assert_eq!(copy["data"]["whole"], "from-c0");
    assert_eq!(copy["data"]["inside"], "value from-c0 of c0");
    assert_eq!(order(&cluster, "patch", &namespace).last().map(String::as_str), Some("copy"));
    let resources = organization.of_stack("resources", "web");
    let record = resources.iter().find(|resource| resource["spec"]["kubernetes"]["name"] == "copy").unwrap();
    assert_eq!(record["spec"]["kubernetes"]["uid"], copy["metadata"]["uid"], "{record:#}");
    assert_eq!(record["spec"]["kubernetes"]["kind"], "ConfigMap");
}

#[test]
fn folder_of_manifests_is_deployed_as_it_is() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let manifest = |kind: &str, name: &str, more: &str| {
        format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}{more}}}\n")
    };
    organization.source.commit("apps/web/namespace.yaml", &manifest("Namespace", &namespace, ""));
    let inside = format!(", namespace: {namespace}");
    let two = format!("{}---\n{}", manifest("ConfigMap", "one", &inside), manifest("ServiceAccount", "two", &inside));
    organization.source.commit("apps/web/nested/two.yaml", &two);
    cluster.kubectl().apply(&format!(
        "{{apiVersion: config.stoa.dev/v1alpha1, kind: Stack, metadata: {{name: web, namespace: {name}}},
          spec: {{project: {name}, workspaces: [{name}], generator: {{type: Manifests}}}}}}",
        name = organization.name
    ));
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(run["status"]["plan"]["summary"]["create"], 3, "{run:#}");
    let found = cluster.kubectl().get(&["configmap/one", "serviceaccount/two", "--namespace", &namespace]);
    assert_eq!(found["items"].as_array().unwrap().len(), 2);
}

#[test]
fn stack_runs_execute_in_order_standalone() {
    runs_are_executed_in_order(&*Standalone::shared());
}

#[test]
fn stack_runs_execute_in_order_in_cluster() {
    runs_are_executed_in_order(&Cluster::shared());
}

fn runs_are_executed_in_order(server: &dyn Server) {
    let (kubectl, organization) = (server.kubectl(), Organization::create(server));
    let name = &organization.name;
    organization.stack("web", &config_maps(&format!("{name}-web"), 30, "a"));
    // One that waits for a person has its turn meanwhile.
    let first = organization.start("web", "Apply", "requireApproval: true");
    kubectl.watch(name, &format!("run/{first}"), PATIENCE, |run| {
        (run["status"]["phase"] == "AwaitingApproval").then_some(())
    });
    let names: Vec<String> = (0..3).map(|_| organization.start("web", "Apply", "")).collect();
    let refused = organization.ended(&organization.start("web", "Apply", "onConflict: Refuse"), PATIENCE);
    assert_eq!(condition(&refused, "Failed")["reason"], "ConflictingRun", "{refused:#}");
    for name in &names {
        assert_eq!(organization.run(name)["status"]["startTime"], Value::Null, "{name} began before its turn");
    }
    kubectl.run(&["patch", "run", &first, "--namespace", name, "--type=merge", "--patch={\"spec\":{\"cancel\":true}}"]);
    let first = organization.ended(&first, PATIENCE);
    assert_eq!(first["status"]["phase"], "Canceled", "{first:#}");
    let mut runs = vec![first];
    runs.extend(names.iter().map(|name| organization.ended(name, PATIENCE)));
    for run in &runs[1..] {
        assert_eq!(run["status"]["phase"], "Succeeded", "{run:#}");
    }
    for (earlier, later) in runs.iter().zip(&runs[1..]) {
        // Times of one form compare as texts.
        let (end, start) = (earlier["status"]["completionTime"].as_str(), later["status"]["startTime"].as_str());
        assert!(end.is_some() && end <= start, "{} started before {} ended", name_of(later), name_of(earlier));
    }
    let releases: Vec<&Value> = runs.iter().map(|run| &run["status"]["release"]).collect();
    assert_eq!(releases, [&Value::Null, &Value::from(1), &Value::Null, &Value::Null]);
}

#[test]
fn run_accepts_branch_tag_or_commit_standalone() {
    source_is_a_branch_a_tag_or_a_commit(&*Standalone::shared());
}

#[test]
fn run_accepts_branch_tag_or_commit_in_cluster() {
    source_is_a_branch_a_tag_or_a_commit(&Cluster::shared());
}

fn source_is_a_branch_a_tag_or_a_commit(server: &dyn Server) {
    let organization = Organization::create(server);
    let namespace = format!("{}-web", organization.name);
    let first = organization.stack("web", &config_maps(&namespace, 1, "first"));
    organization.source.git(&["tag", "v1"]);
    organization.source.git(&["branch", "stable"]);
    let second = organization.stack("web", &config_maps(&namespace, 2, "second"));
    for (version, commit, count) in [
        ("v1", &first, 2),
        ("stable", &first, 2),
        (first.as_str(), &first, 2),
        ("latest", &second, 3),
        ("main", &second, 3),
    ] {
        let run = organization.succeed("web", "Preview", &format!("version: \"{version}\""));
        assert_eq!(run["status"]["source"]["commit"].as_str(), Some(commit.as_str()), "{version}");
        assert_eq!(run["status"]["plan"]["summary"]["create"], count, "{version}: {run:#}");
    }
    let message = organization.fail("web", "Preview", "version: v9");
    assert!(message.contains("v9"), "{message}");
}

#[test]
fn ready_stack_reports_release_and_events() {
    let server = Standalone::shared();
    let kubectl = server.kubectl();
    let organization = Organization::create(&*server);
    let commit = organization.stack("web", &config_maps("web", 2, "a"));
    let run = organization.succeed("web", "Apply", "");
    let stack = kubectl.watch(&organization.name, "stack/web", PATIENCE, |stack| {
        (condition(stack, "Ready")["status"] == "True").then(|| stack.clone())
    });
    let deployment = &stack["status"]["deployments"][0];
    assert_eq!(deployment["commit"], commit.as_str(), "{stack:#}");
    assert_eq!((&deployment["resources"], &deployment["phase"]), (&3.into(), &"Succeeded".into()));
    let described = kubectl.run(&["describe", "stack", "web", "--namespace", &organization.name]);
    assert!(described.contains(name_of(&run)), "{described}");
}

#[test]
fn unhealthy_deployment_makes_no_release() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    // Nothing runs pods here, and the deadline is the shortest that there is.
    let spec = format!(
        "{}- id: apps/v1:Deployment:{namespace}:app
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {{name: app, namespace: {namespace}}}
    spec:
      replicas: 1
      progressDeadlineSeconds: 1
      selector: {{matchLabels: {{app: app}}}}
      template:
        metadata: {{labels: {{app: app}}}}
        spec: {{containers: [{{name: app, image: example.invalid/app}}]}}
",
        config_maps(&namespace, 1, "a")
    );
    organization.stack("web", &spec);
    let id = format!("apps/v1:Deployment:{namespace}:app");
    for attempt in 1..=2 {
        let message = organization.fail("web", "Apply", "");
        assert!(message.contains(&id), "{attempt}: {message}");
        assert!(organization.of_stack("releases", "web").is_empty(), "{attempt}: a release of what is not healthy");
        let app = organization.of_stack("resources", "web").into_iter().find(|r| r["spec"]["id"] == id.as_str());
        assert_eq!(app.unwrap()["status"]["health"], "Failed", "{attempt}");
    }
    organization.stack("web", &config_maps(&namespace, 1, "a"));
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(run["status"]["release"], 1, "{run:#}");
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(run["status"]["release"], Value::Null, "nothing is owed any more: {run:#}");
}

#[test]
fn run_applies_and_destroys_largest_object() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let namespace = format!("{}-web", organization.name);
    let large = |letter: &str| {
        config_maps(&namespace, 1, "a")
            .replace("data: {value: a}", &format!("data: {{value: {}}}", letter.repeat(1_000_000)))
    };
    organization.stack("web", &large("a"));
    assert_eq!(organization.succeed("web", "Apply", "")["status"]["release"], 1);
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(run["status"]["plan"]["summary"]["unchanged"], 2, "{run:#}");
    organization.stack("web", &large("b"));
    assert_eq!(organization.succeed("web", "Apply", "")["status"]["release"], 2);
    let run = organization.succeed("web", "Destroy", "");
    assert_eq!(run["status"]["plan"]["summary"]["delete"], 2, "{run:#}");
    assert!(!cluster.kubectl().succeeds(&["get", "configmap", "c0", "--namespace", &namespace]));
}
