//! Programs in KCL: one application in three stages, and a repository of many projects in the layout of Konfig.

use std::fs;
use std::path::Path;

use stoa_e2e::fixture::Organization;
use stoa_e2e::{Cluster, Kubectl, Server as _, Standalone, git};

const STAGES: [&str; 3] = ["dev", "stage", "prod"];
/// The objects of each stage, in the namespace of an option.
const BASE: &str = "schema Settings:
    color: str = \"blue\"
    copies: int = 1

_settings: Settings {}
_namespace = option(\"namespace\", type=\"str\", required=True)

namespace = {apiVersion = \"v1\", kind = \"Namespace\", metadata.name = _namespace}
settings = {
    apiVersion = \"v1\"
    kind = \"ConfigMap\"
    metadata = {name = \"settings\", namespace = _namespace}
    data = {color = _settings.color, copies = str(_settings.copies)}
}
";
const MODULE: &str = "[package]\nname = \"web\"\n\n[profile]\nentries = [\"../base/base.k\", \"main.k\"]\n";

/// The program of a stage: what it changes of the base.
fn main_of(number: usize) -> String {
    format!("_settings: Settings {{color = \"{}\", copies = {number}}}\n", STAGES[number])
}

/// Commits the program, and creates a Stack for each stage.
fn three_stages(kubectl: &Kubectl, organization: &Organization) {
    let name = &organization.name;
    organization.source.commit("apps/base/base.k", BASE);
    for (number, stage) in STAGES.iter().enumerate() {
        organization.source.commit(&format!("apps/{stage}/kcl.mod"), MODULE);
        organization.source.commit(&format!("apps/{stage}/main.k"), &main_of(number));
        kubectl.apply(&format!(
            "{{apiVersion: config.stoa.dev/v1alpha1, kind: Stack, metadata: {{name: {stage}, namespace: {name}}},
              spec: {{project: {name}, stackName: {stage}, workspaces: [{name}],
                generator: {{parameters: {{namespace: {name}-{stage}}}}}}}}}"
        ));
        let run = organization.succeed(stage, "Apply", "");
        assert_eq!(run["status"]["plan"]["summary"]["create"], 2, "{run:#}");
    }
}

#[test]
fn program_with_a_base_deploys_three_stages() {
    if std::env::var_os("STOA_TEST_KCL").is_none() {
        eprintln!("skipped: STOA_TEST_KCL is not set");
        return;
    }
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    three_stages(&kubectl, &organization);
    for (number, stage) in STAGES.iter().enumerate() {
        let namespace = format!("{}-{stage}", organization.name);
        let settings = kubectl.get(&["configmap", "settings", "--namespace", &namespace]);
        assert_eq!(
            (&settings["data"]["color"], &settings["data"]["copies"]),
            (&(*stage).into(), &number.to_string().into())
        );
    }
    // A change of the base is one of each stage that leaves it as it is.
    organization
        .source
        .commit("apps/base/base.k", &BASE.replace("color = _settings", "zone = \"eu\", color = _settings"));
    let run = organization.succeed("prod", "Preview", "");
    let summary = &run["status"]["plan"]["summary"];
    assert_eq!((&summary["update"], &summary["unchanged"]), (&1.into(), &1.into()), "{run:#}");
    organization.source.commit("apps/dev/main.k", "_settings: Settings {copies = \"many\"}\n");
    let message = organization.fail("dev", "Preview", "");
    assert!(message.contains("apps/dev/main.k"), "{message}");
}

#[test]
fn standalone_server_evaluates_programs() {
    let Some(server) = Standalone::start_with_tools() else { return };
    let organization = Organization::create(&server);
    three_stages(&server.kubectl(), &organization);
    for stage in STAGES {
        let path = format!("main:{}-{stage}/configmap-settings.yaml", organization.name);
        let settings = git(&organization.deploy, &["show", &path]);
        assert!(settings.contains(&format!("color: {stage}")), "{settings}");
    }
}

const MODELS: [(&str, &str); 3] = [
    ("kam/kam.k", "schema AppConfiguration:\n    workload: any\n    labels?: {str:str}\n"),
    ("container/container.k", "schema Container:\n    image: str\n    env?: {str:str}\n"),
    (
        "service/service.k",
        "import container as c\nschema Service:\n    containers: {str:c.Container}\n    replicas?: int\n    ports?: [any]\n    type: str = \"Deployment\"\n",
    ),
];
const IMPORTS: &str = "import kam as ac\nimport service\nimport container as c\n";

fn write(folder: &Path, path: &str, text: &str) {
    let file = folder.join(path);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

/// A repository in the layout of Konfig: models, and projects with a base and the stacks dev and prod.
fn konfig(folder: &Path, projects: usize) {
    for (path, text) in MODELS {
        write(folder, &format!("models/{path}"), text);
    }
    let dependency = |name: &str| format!("{name} = {{ path = \"../../models/{name}\" }}\n");
    let dependencies = ["kam", "service", "container"].map(dependency).concat();
    for number in 0..projects {
        let project = format!("shop{number}");
        write(folder, &format!("{project}/project.yaml"), &format!("name: {project}\n"));
        let base = format!(
            "{IMPORTS}web: ac.AppConfiguration {{\n    workload: service.Service {{\n        containers: {{web: c.Container \
             {{image: \"<no value>\", env: {{N: \"{number}\"}}}}}}\n        replicas: 1\n        ports: [{{port = 80}}]\n    }}\n}}\n"
        );
        write(folder, &format!("{project}/base/base.k"), &base);
        for (stack, replicas) in [("dev", 2), ("prod", 3)] {
            let module = format!(
                "[package]\nname = \"{stack}\"\n\n[dependencies]\n{dependencies}\n[profile]\nentries = [\"../base/base.k\", \"main.k\"]\n"
            );
            let main = format!(
                "{IMPORTS}web: ac.AppConfiguration {{\n    workload: service.Service {{\n        replicas = {replicas}\n        \
                 containers: {{web: c.Container {{image = \"{project}/web:{stack}\"}}}}\n    }}\n}}\n"
            );
            write(folder, &format!("{project}/{stack}/stack.yaml"), &format!("name: {stack}\n"));
            write(folder, &format!("{project}/{stack}/kcl.mod"), &module);
            write(folder, &format!("{project}/{stack}/main.k"), &main);
        }
    }
}

#[test]
fn repository_of_fifty_projects_generates_whole() {
    const PROJECTS: usize = 50;
    let Some(server) = Standalone::start_with_tools() else { return };
    let kubectl = server.kubectl();
    let organization = Organization::create(&server);
    let name = &organization.name;
    let folder = tempfile::tempdir().unwrap();
    konfig(folder.path(), PROJECTS);
    organization.source.replace("apps", folder.path());
    let mut objects = String::new();
    for number in 0..PROJECTS {
        objects += &format!(
            "---\n{{apiVersion: config.stoa.dev/v1alpha1, kind: Project, metadata: {{name: shop{number}, namespace: {name}}},
              spec: {{source: {{name: config}}, path: apps/shop{number}}}}}\n"
        );
        for stack in ["dev", "prod"] {
            objects += &format!(
                "---\n{{apiVersion: config.stoa.dev/v1alpha1, kind: Stack, metadata: {{name: shop{number}-{stack}, namespace: {name}}},
                  spec: {{project: shop{number}, stackName: {stack}, workspaces: [{name}]}}}}\n"
            );
        }
    }
    kubectl.apply(&objects);
    let generate = |stack: &str| {
        let path = format!("/apis/config.stoa.dev/v1alpha1/namespaces/{name}/stacks/{stack}/generate?workspace={name}");
        kubectl.run(&["create", "--raw", &path, "--filename", "/dev/null"])
    };
    std::thread::scope(|scope| {
        for (stack, replicas) in [("dev", 2), ("prod", 3)] {
            let generate = &generate;
            scope.spawn(move || {
                for number in 0..PROJECTS {
                    let generated = generate(&format!("shop{number}-{stack}"));
                    for expected in [
                        format!("apps/v1:Deployment:shop{number}:shop{number}-{stack}-web"),
                        format!("v1:Service:shop{number}:shop{number}-{stack}-web-private"),
                        format!("shop{number}/web:{stack}"),
                        format!("replicas: {replicas}"),
                    ] {
                        assert!(generated.contains(&expected), "{expected}: {generated}");
                    }
                }
            });
        }
    });
}
