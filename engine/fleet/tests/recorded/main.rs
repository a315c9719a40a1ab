//! The trees that a running Kalypso committed are rendered again, with the renderer of the product.

#![expect(clippy::unwrap_used, reason = "the lint knows tests, not their helpers")]

mod renderer;
mod shipped;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use serde_json::Value;
use stoa_fleet::{
    ControlPlane, Files, Fleet, Severity, Sources,
    changed::changed,
    folder,
    render::{Tree, explain, render},
    results::{InvalidResults, problems},
    within,
};

use crate::renderer::Process;

/// A file that Kalypso failed to remove.
const STALE: &str = "large/observability-prometheus/config.yaml";

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kalypso")
}

/// All files below a folder.
fn files(root: &Path) -> Files {
    let (mut files, mut folders) = (Files::new(), vec![root.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, Bytes::from(fs::read(&path).unwrap()));
            }
        }
    }
    files
}

/// The sources of an environment. The folders of registrations are those that the objects name.
fn sources(environment: &str) -> Sources {
    let input = data().join(environment).join("input");
    let mut sources = Sources {
        environment: environment.to_owned(),
        stored: Files::new(),
        branch: files(&input.join("control-plane-env")),
        bases: [("main".to_owned(), files(&input.join("control-plane-main")))].into(),
        ..Sources::default()
    };
    for (name, base) in ControlPlane::read(&sources, None).base_repos {
        if name != "main" {
            sources.bases.insert(name.clone(), files(&input.join(format!("global-{name}"))));
            assert_eq!(folder(&base.spec.repository.path).as_deref(), Some(""));
        }
    }
    for (name, registration) in ControlPlane::read(&sources, None).registrations {
        let all = files(&input.join("workloads").join(&name));
        let folder = folder(&registration.spec.workload.path).unwrap();
        sources.workloads.insert(name, within(&all, &folder));
    }
    sources
}

fn fleet(sources: &Sources) -> Fleet {
    let plane = ControlPlane::read(sources, None);
    let counting: Vec<String> =
        plane.problems.iter().filter(|it| it.severity > Severity::Note).map(ToString::to_string).collect();
    assert_eq!(counting, Vec::<String>::new());
    assert!(!plane.inputs.is_incomplete);
    Fleet::new(plane.inputs)
}

/// A file as documents; one that is not YAML by its name as a text.
fn documents(path: &str, content: &str) -> Vec<Value> {
    if !path.ends_with(".yaml") {
        return vec![content.into()];
    }
    let limits = stoa_yaml::Limits { depth: 100, values: 100_000, documents: 100, copied: 1 << 20 };
    let documents = stoa_yaml::documents(content, &limits, false).unwrap();
    documents.into_iter().map(|document| document.value).filter(|value| !value.is_null()).collect()
}

fn rendered(tree: &Tree) -> BTreeMap<String, Vec<Value>> {
    tree.files.iter().map(|(path, file)| (path.clone(), documents(path, &file.content))).collect()
}

/// The files that Kalypso committed, less those of others in root folders that begin with a dot.
fn expected(environment: &str) -> BTreeMap<String, Vec<Value>> {
    let all = files(&data().join(environment).join("expected"));
    let is_ours = |path: &str| path.ends_with("/Promoted_Commit_Id") || !path.starts_with('.') && path != STALE;
    let ours = all.into_iter().filter(|(path, _)| is_ours(path));
    ours.map(|(path, content)| (path.clone(), documents(&path, std::str::from_utf8(&content).unwrap()))).collect()
}

#[test]
fn recorded_trees_are_rendered_again() {
    let Some(renderer) = Process::start() else { return };
    for (environment, count) in [("dev", 21), ("stage", 9), ("prod", 10)] {
        let tree = render(&fleet(&sources(environment)), &renderer).unwrap();
        assert_eq!(tree.broken, BTreeMap::new(), "{environment}");
        assert_eq!(tree.warnings, Vec::<String>::new(), "{environment}");
        let (found, expected) = (rendered(&tree), expected(environment));
        let paths = |files: &BTreeMap<String, Vec<Value>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(paths(&found), paths(&expected), "{environment}");
        assert_eq!(found.len(), count, "{environment}");
        for (path, documents) in expected {
            assert_eq!(found[&path], documents, "{environment}/{path}");
        }
    }
}

/// The sources after a replacement in a file of the environment's branch.
fn edited(sources: &Sources, file: &str, from: &str, to: &str) -> Sources {
    let mut edited = sources.clone();
    let content = edited.branch.get_mut(file).unwrap();
    let text = std::str::from_utf8(content).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    *content = Bytes::from(text.replace(from, to));
    edited
}

#[test]
fn edit_changes_exactly_its_files() {
    let Some(renderer) = Process::start() else { return };
    let before = sources("dev");
    let plane = ControlPlane::read(&before, None);
    let old = Fleet::new(plane.inputs.clone());
    let whole = render(&old, &renderer).unwrap();
    let west = "cluster-types/west-us/west-us-config.yaml";
    let drone = "cluster-types/east-us/restricted/drones/drone-cluster-type.yaml";
    for (file, from, to, expected) in [
        (
            west,
            "West US",
            "US West",
            vec![
                "large/hello-performance-test/platform-config.yaml",
                "large/observability-prometheus/platform-config.yaml",
                "vm/hello-int-test/platform-config.sh",
            ],
        ),
        (west, "REGION: West US", "REGION: 'West US'", vec![]),
        (drone, "arc-flux", "argocd", vec!["drone/hello-functional-test/reconciler.yaml"]),
        ("base-repo.yaml", "54b53e769", "000000000", vec![".github/tracking/Promoted_Commit_Id"]),
    ] {
        let after = ControlPlane::read(&edited(&before, file, from, to), Some(&plane));
        let new = old.next(after.inputs);
        let changes = changed(&old, &whole.broken, &new, &renderer).unwrap();
        assert_eq!(changes.written.keys().collect::<Vec<_>>(), expected, "{file}");
        assert!(changes.deleted.is_empty() && changes.removed_folders.is_empty());
        // The whole tree says the same.
        let tree = render(&new, &renderer).unwrap();
        let differ = tree.files.iter().filter(|(path, file)| whole.files[*path].content != file.content);
        assert_eq!(differ.map(|(path, _)| path.as_str()).collect::<Vec<_>>(), expected, "{file}");
    }
}

#[test]
fn values_of_a_file_have_their_origin() {
    let fleet = fleet(&sources("dev"));
    let found = explain(&fleet, "drone", "hello-functional-test").unwrap();
    assert_eq!(found.assignment, "hello-hello-functional-test-drone");
    assert_eq!(found.policies, ["functional-test-policy"]);
    assert_eq!(found.configuration.maps["RESTRICTED_ZONE"], ["global-restricted-config"]);
    assert_eq!(found.configuration.maps["DATABASE_URL"], ["restricted-config"]);
    let files: BTreeSet<&str> = found.files.iter().map(|(file, _)| file.as_str()).collect();
    assert_eq!(files, ["namespace.yaml", "platform-config.yaml", "reconciler.yaml"].into());
}

#[test]
fn bad_template_names_its_text_and_line() {
    let Some(renderer) = Process::start() else { return };
    let mut sources = sources("prod");
    let main = sources.bases.get_mut("main").unwrap();
    let file = main.get_mut("templates/scheduler_v1alpha1_template_arc-flux.yaml").unwrap();
    let text = std::str::from_utf8(file).unwrap().replace("suspend: false", "suspend: {{ .Nope }}");
    *file = Bytes::from(text);
    let tree = render(&fleet(&sources), &renderer).unwrap();
    assert_eq!(tree.broken.keys().collect::<Vec<_>>(), ["command-center/hello-cloud", "drone/hello-edge"]);
    let problem = &tree.broken["drone/hello-edge"].problems[0];
    let expected = "Template arc-flux, manifests[1], line 13: template: template:13:";
    assert!(problem.starts_with(expected) && problem.contains("can't evaluate field Nope"), "{problem}");
}

#[test]
fn shipped_templates_render_for_every_reconciler() {
    let Some(renderer) = Process::start() else { return };
    let shipped = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/fleet"));
    let api = "apiVersion: scheduler.kalypso.io/v1alpha1";
    let mut objects = format!(
        "{api}
kind: DeploymentTarget
metadata: {{name: web.v2, labels: {{workload: web}}}}
spec: {{environment: dev, manifests: {{repo: \"https://example.com/web\", branch: main, path: ./web}}}}
---
{api}
kind: SchedulingPolicy
metadata: {{name: all}}
spec: {{deploymentTargetSelector: {{labelSelector: {{}}}}, clusterTypeSelector: {{labelSelector: {{}}}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: all, labels: {{platform-config: \"true\"}}}}
data: {{REGION: north, DATABASE: \"host: db\\nports: [1, 2]\\n\"}}
"
    );
    let reconcilers = ["flux", "argocd", "zarf", "rancher-fleet"];
    for reconciler in reconcilers {
        let config = if reconciler == "zarf" { "env-file" } else { "config-map" };
        objects += &format!(
            "---
{api}
kind: ClusterType
metadata: {{name: {reconciler}}}
spec: {{reconciler: {reconciler}, namespaceService: restricted-namespace, configType: {config}}}
"
        );
    }
    let sources = Sources {
        environment: "dev".to_owned(),
        branch: [("objects.yaml".to_owned(), Bytes::from(objects))].into(),
        stored: shipped,
        ..Sources::default()
    };
    let tree = render(&fleet(&sources), &renderer).unwrap();
    assert_eq!((tree.broken, tree.warnings), (BTreeMap::new(), Vec::new()));
    assert_eq!(InvalidResults::of(&tree.files), InvalidResults::default(), "a project would reject a result");
    let of = |reconciler: &str, file: &str| {
        let path = format!("{reconciler}/web.v2/{file}");
        documents(&path, &tree.files[&path].content)
    };
    let kinds = |reconciler: &str| -> Vec<Value> {
        of(reconciler, "reconciler.yaml").iter().map(|document| document["kind"].clone()).collect()
    };
    assert_eq!(kinds("flux"), ["GitRepository", "Kustomization"]);
    assert_eq!(kinds("argocd"), ["Application"]);
    assert_eq!(kinds("rancher-fleet"), ["GitRepo"]);
    let package = &of("zarf", "reconciler.yaml")[0];
    assert_eq!(package["metadata"]["name"], "dev-zarf-web-v2", "names of Zarf have no dots");
    let manifest = &package["components"][0]["manifests"][0];
    assert_eq!(manifest["kustomizations"][0], "https://example.com/web//./web?ref=main");
    for reconciler in reconcilers {
        let namespace = &of(reconciler, "namespace.yaml")[0];
        assert_eq!(namespace["metadata"]["name"], format!("dev-{reconciler}-web.v2"));
    }
    let data = &of("flux", "platform-config.yaml")[0]["data"];
    assert_eq!(data["REGION"], "north");
    assert!(data["DATABASE"].as_str().unwrap().contains("host: db"), "{data}");
    let variables = &tree.files["zarf/web.v2/platform-config.sh"].content;
    assert!(variables.contains("export REGION='north'\n"), "{variables}");
}

#[test]
fn results_of_shipped_templates_over_recorded_data_fit_their_readers() {
    let Some(renderer) = Process::start() else { return };
    let shipped = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/fleet"));
    for reconciler in ["flux", "argocd", "zarf", "rancher-fleet"] {
        for environment in ["dev", "stage", "prod"] {
            let mut sources = sources(environment);
            sources.stored = shipped.clone();
            // The cluster types that people recorded name the shipped template.
            let of_git = sources.bases.values_mut().chain([&mut sources.branch]).flat_map(BTreeMap::values_mut);
            for content in of_git {
                let lines =
                    std::str::from_utf8(content).unwrap().lines().map(|line| match line.split_once("reconciler:") {
                        Some((indent, _)) if indent.trim().is_empty() => format!("{indent}reconciler: {reconciler}\n"),
                        _ => format!("{line}\n"),
                    });
                *content = Bytes::from(lines.collect::<String>());
            }
            // A shipped template is stronger than a recorded one with its name, which is a note of its own.
            let fleet = Fleet::new(ControlPlane::read(&sources, None).inputs);
            let tree = render(&fleet, &renderer).unwrap();
            assert_eq!(tree.broken, BTreeMap::new(), "{reconciler} {environment}");
            let results: Vec<_> = tree.files.iter().filter(|(path, _)| path.ends_with("/reconciler.yaml")).collect();
            assert!(!results.is_empty());
            for (path, file) in results {
                assert_eq!(file.provenance.template, reconciler, "{path}");
                assert_eq!(problems(path, &file.content), [] as [&str; 0], "{environment} {}", file.content);
            }
        }
    }
}
