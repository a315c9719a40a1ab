//! Custom resources that come with the definition of their kind.

use serde_json::Value;
use stoa_e2e::fixture::{Organization, Repository, condition, config_maps, widgets};
use stoa_e2e::{Cluster, Server as _, Standalone};

use crate::PATIENCE;
use crate::bad_input::{line_of, message_names};

/// A namespace, a definition of widgets that have a size, and one whose `spec` this is.
fn spec(namespace: &str, group: &str, widget: &str) -> String {
    let spec = "{type: object, required: [size, mode], \
                 properties: {size: {type: integer, minimum: 1}, \
                 mode: {type: string, enum: [fast, slow], default: slow}, note: {type: string}}, \
                 x-kubernetes-validations: \
                 [{rule: \"self.mode != 'fast' || self.size < 10\", message: fast ones are small}]}";
    let definition = widgets(group, "Namespaced", &format!("{{type: object, properties: {{spec: {spec}}}}}"));
    config_maps(namespace, 1, "a")
        + &format!(
            "- id: apiextensions.k8s.io/v1:CustomResourceDefinition:widgets.{group}
  type: Kubernetes
  attributes: {definition}
- id: {group}/v1:Widget:{namespace}:w
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes: {{apiVersion: {group}/v1, kind: Widget, metadata: {{name: w, namespace: {namespace}}}, spec: {widget}}}
"
        )
}

/// Names of the Spec's own, which nobody else has.
fn names(organization: &Organization) -> (String, String) {
    (format!("{}-web", organization.name), format!("{}.example.com", organization.name))
}

/// That an Apply of a widget is refused when it is planned, and its message has this with file, line and resource.
fn is_refused(organization: &Organization, widget: &str, wanted: &[&str]) -> Value {
    let (namespace, group) = names(organization);
    let spec = spec(&namespace, &group, widget);
    organization.stack("web", &spec);
    let run = organization.ended(&organization.start("web", "Apply", ""), PATIENCE);
    let (failed, id) = (condition(&run, "Failed"), format!("{group}/v1:Widget:{namespace}:w"));
    assert_eq!(failed["reason"], "PlanFailed", "{run:#}");
    let message = failed["message"].as_str().unwrap();
    message_names(message, &[&format!("apps/web/spec.yaml:{}", line_of(&spec, &id)), &id]);
    message_names(message, wanted);
    run
}

#[test]
fn plan_rejects_resource_violating_its_new_definition() {
    let cluster = Cluster::shared();
    let kubectl = cluster.kubectl();
    let organization = Organization::create(&cluster);
    let (namespace, group) = names(&organization);
    let wrong = [
        ("{size: many}", "attributes.spec.size: must be a whole number, not a string"),
        ("{size: 3, sze: 3}", "attributes.spec.sze: its kind has no field of this name"),
        ("{size: 30, mode: fast}", "attributes.spec: fast ones are small"),
    ];
    for (widget, wanted) in wrong {
        let run = is_refused(&organization, widget, &[wanted]);
        for (kind, name) in [("namespace", &namespace), ("crd", &format!("widgets.{group}"))] {
            assert!(!kubectl.succeeds(&["get", kind, name]), "{run:#}");
        }
    }
    // What is known later is not looked at.
    let note = format!("{{size: 3, note: \"$kusion_path.v1:Namespace:{namespace}.metadata.uid\"}}");
    organization.stack("web", &spec(&namespace, &group, &note));
    let run = organization.succeed("web", "Preview", "");
    assert_eq!(run["status"]["plan"]["summary"]["create"], 4, "{run:#}");
}

#[test]
fn one_run_changes_definition_and_dependent_resource() {
    let cluster = Cluster::shared();
    let organization = Organization::create(&cluster);
    let (namespace, group) = names(&organization);
    organization.stack("web", &spec(&namespace, &group, "{size: 3}"));
    organization.succeed("web", "Apply", "");
    let of = |widget: &str| {
        spec(&namespace, &group, widget)
            .replace("minimum: 1}", "minimum: 1}, colour: {type: string, enum: [red]}")
            .replace("size < 10", "size < 100")
    };
    // The definition that the cluster has knows no such field, and allows no such size.
    organization.stack("web", &of("{size: 30, mode: fast, colour: blue}"));
    let run = organization.ended(&organization.start("web", "Apply", ""), PATIENCE);
    let failed = condition(&run, "Failed");
    assert_eq!(failed["reason"], "PlanFailed", "{run:#}");
    message_names(failed["message"].as_str().unwrap(), &["attributes.spec.colour: must be one of \"red\""]);
    organization.stack("web", &of("{size: 30, mode: fast, colour: red}"));
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(run["status"]["plan"]["summary"]["update"], 2, "{run:#}");
    let get = ["get", &format!("widgets.{group}"), "w", "-n", &namespace, "-o", "jsonpath={.spec.size} {.spec.colour}"];
    assert_eq!(cluster.kubectl().run(&get), "30 red");
    let run = organization.succeed("web", "Preview", "");
    assert_eq!(run["status"]["plan"]["summary"]["unchanged"], 4, "{run:#}");
}

#[test]
fn definition_elsewhere_in_repository_validates_custom_resources() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    let group = format!("{}.example.com", organization.name);
    let schema = "{type: object, properties: {size: {type: integer}}}";
    let clone = Repository::clone_of(&organization.deploy);
    clone.commit("platform/crds/widgets.yaml", &widgets(&group, "Cluster", schema));
    clone.git(&["push", "--quiet", "origin", "HEAD:main"]);
    let folder = r#"{"spec": {"gitops": {"directory": "clusters/dev"}}}"#;
    server.kubectl().run(&["patch", "workspace", &organization.name, "--type=merge", "--patch", folder]);
    let widget = |more: &str| {
        format!(
            "- id: {group}/v1:Widget:w\n  type: Kubernetes\n  attributes: {{apiVersion: {group}/v1, kind: Widget, \
             metadata: {{name: w}}, {more}}}\n"
        )
    };
    organization.stack("web", &format!("resources:\n{}", widget("size: large")));
    message_names(&organization.fail("web", "Preview", ""), &["attributes.size"]);
    organization.stack("web", &format!("resources:\n{}", widget("size: 3")));
    let run = organization.succeed("web", "Apply", "");
    assert_eq!(condition(&run, "PlannedWithWarnings"), Value::Null, "{run:#}");
    // Its kind is cluster-scoped, so that the object in a namespace is the same one.
    let again = widget("size: 3").replace(":w\n", ":default:w\n").replace("{name: w}", "{name: w, namespace: default}");
    organization.stack("web", &format!("resources:\n{}{again}", widget("size: 3")));
    let message = organization.fail("web", "Preview", "");
    message_names(&message, &[&format!("{group}/v1:Widget:w"), &format!("{group}/v1:Widget:default:w")]);
}

#[test]
fn git_run_validates_resources_against_included_definition() {
    let server = Standalone::shared();
    let organization = Organization::create(&*server);
    let (namespace, group) = names(&organization);
    let missing = "attributes.spec.size: its kind requires this field";
    is_refused(&organization, "{mode: quick}", &[missing, "must be one of \"fast\", \"slow\""]);
    is_refused(&organization, "{size: 3, sze: 3}", &["attributes.spec.sze: its kind has no field of this name"]);
    let workspace = ["patch", "workspace", &organization.name, "--type=merge", "--patch"];
    let warn = r#"{"spec": {"gitops": {"validation": "Warn"}}}"#;
    server.kubectl().run(&[&workspace[..], &[warn]].concat());
    organization.stack("web", &spec(&namespace, &group, "{size: 3, sze: 3}"));
    let run = organization.succeed("web", "Apply", "");
    let told = condition(&run, "PlannedWithWarnings")["message"].as_str().unwrap_or_default().to_owned();
    assert!(told.contains("attributes.spec.sze: its kind has no field of this name"), "{told}");
}
