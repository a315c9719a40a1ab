//! What each generator makes of files.

use proptest::{prelude::*, sample::select};
use serde_json::json;
use stoa_engine::spec::{FILE, LINE};
use stoa_proto::renderer::Document;
use stoa_proto::{Intent, StateEntry};
use tonic::Code;

use super::placeholders::Placeholders;
use super::*;
use crate::convert;

fn input<'a>(files: Files<'a>, values: &'a Values, placeholders: &'a Placeholders) -> Input<'a> {
    Input { files, overlay: &[], values, placeholders, values_read: false, at: &|_| {} }
}

pub(super) fn generate(generator: &str, content: &Content) -> Result<Generated, Failure> {
    generate_with(&Values::default(), generator, content)
}

pub(super) fn generate_with(values: &Values, generator: &str, content: &Content) -> Result<Generated, Failure> {
    match super::generate(generator, &input(Files::Content(content), values, &Placeholders::of(values)))? {
        Outcome::Rendered(generated) => Ok(*generated),
        Outcome::Detected(name) => panic!("{name} has another profile"),
    }
}

pub(super) fn folder(files: &[(&str, &str)]) -> Content {
    let mut others = Vec::new();
    let mut read = Vec::new();
    for (path, text) in files {
        if path.contains(".y") || path.ends_with(".json") {
            read.push(SourceFile { path: format!("s/{path}"), bytes: text.as_bytes().to_vec() });
        } else {
            others.push((*path).to_owned());
        }
    }
    Content::Folder { path: "s".to_owned(), files: read, others, warnings: Vec::new() }
}

fn ids(generated: &Generated) -> Vec<&str> {
    generated.spec.resources.iter().map(|resource| resource.id.0.as_str()).collect()
}

#[track_caller]
pub(super) fn refused(generator: &str, files: &[(&str, &str)]) -> Problem {
    generate(generator, &folder(files)).unwrap_err().problems()[0].clone()
}

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\n";

#[test]
fn kusion_quick_start_spec_is_read_unchanged() {
    let spec = include_str!("../../../../tests/data/kusion/quickstart.yaml");
    let generated = generate("Auto", &folder(&[("spec.yaml", spec), ("stack.yaml", "name: dev\n")])).unwrap();
    assert_eq!((generated.provenance.generator.as_str(), generated.warnings.len()), ("Spec", 0));
    let [namespace, workload, service] =
        ["v1:Namespace:quickstart", "apps/v1:Deployment:quickstart:hello", "v1:Service:quickstart:hello"];
    assert_eq!(ids(&generated), [namespace, workload, service]);
    let read: Vec<_> = generated
        .spec
        .resources
        .iter()
        .map(|resource| {
            let depends_on: Vec<&str> = resource.depends_on.iter().map(|id| id.0.as_str()).collect();
            (resource.extensions["GVK"].as_str().unwrap(), depends_on, &resource.attributes["metadata"]["namespace"])
        })
        .collect();
    let reference = json!("$kusion_path.v1:Namespace:quickstart.metadata.name");
    assert_eq!(
        read,
        [
            ("/v1, Kind=Namespace", vec![], &json!(null)),
            ("apps/v1, Kind=Deployment", vec![namespace], &reference),
            ("/v1, Kind=Service", vec![workload], &json!("quickstart")),
        ]
    );
    assert_eq!(generated.spec.resources[2].attributes["spec"]["ports"][0]["port"], 8080);
}

#[test]
fn wrong_health_policy_has_its_line() {
    let spec = |policy: &str| {
        let text = format!(
            "resources:\n- id: example.com/v1:Widget:shop:w\n  type: Kubernetes\n  attributes: {{apiVersion: example.com/v1, kind: Widget, \
             metadata: {{name: w, namespace: shop}}}}\n  extensions:\n    healthPolicy: {policy}\n"
        );
        generate("Spec", &folder(&[("spec.yaml", &text)]))
    };
    let generated = spec("{cel: {current: \"status.phase == 'Running'\"}}").unwrap();
    assert_eq!(generated.spec.resources[0].extensions["healthPolicy"]["cel"]["current"], "status.phase == 'Running'");
    for (policy, field, says) in [
        ("{health.kcl: 'assert res'}", "extensions.healthPolicy[health.kcl]", "in KCL are not supported"),
        ("{cel: {current: 'status.phase =='}}", "extensions.healthPolicy.cel.current", "compilation failed"),
        ("{cel: {failed: 'true'}}", "extensions.healthPolicy.cel.current", "is required"),
    ] {
        let failure = spec(policy).unwrap_err();
        let problem = &failure.problems()[0];
        assert_eq!((problem.file.as_str(), problem.line, problem.field.as_str()), ("s/spec.yaml", 6, field));
        assert_eq!(problem.resource_id, "example.com/v1:Widget:shop:w");
        assert!(problem.message.contains(says), "{}", problem.message);
    }
    let manifest =
        CONFIG_MAP.replace("namespace: shop", "namespace: shop, annotations: {stoa.dev/health-current: 'x'}");
    let problem = refused("Manifests", &[("a.yaml", &manifest)]);
    assert_eq!((problem.line, problem.field.as_str()), (3, "attributes.metadata.annotations[stoa.dev/health-current]"));
}

#[test]
fn manifest_named_spec_is_a_manifest() {
    let generated = generate("Auto", &folder(&[("spec.yaml", CONFIG_MAP)])).unwrap();
    assert_eq!((generated.provenance.generator.as_str(), ids(&generated)), ("Manifests", vec!["v1:ConfigMap:shop:a"]));
}

#[test]
fn ignored_files_beside_a_spec_are_warned_about() {
    let spec = format!("resources:\n{}", config_map("a", ""));
    let told = |generator: &str, names: &[&str]| {
        let others = names.iter().map(|name| (*name, CONFIG_MAP));
        let files: Vec<_> = std::iter::once(("spec.yaml", spec.as_str())).chain(others).collect();
        let generated = generate(generator, &folder(&files)).unwrap();
        assert_eq!((generated.provenance.generator.as_str(), ids(&generated)), ("Spec", vec!["v1:ConfigMap:a"]));
        generated.warnings
    };
    let because = "ignored, because s/spec.yaml is a Spec, and Stoa deploys nothing else of the folder";
    assert_eq!(told("Auto", &["a.yaml", "b/c.json"]), [format!("s/a.yaml, s/b/c.json: {because}")]);
    let many = ["a.yaml", "b.yaml", "c.yaml", "d.yaml", "e.yaml", "f.yaml", "g.yaml"];
    let named = "s/a.yaml, s/b.yaml, s/c.yaml, s/d.yaml, s/e.yaml and 2 more";
    assert_eq!(told("Auto", &many), [format!("{named}: {because}")]);
    // Kusion has these beside its Specs.
    assert_eq!(told("Auto", &["stack.yaml", "project.yaml"]), [""; 0]);
    // Who names the generator wants the Spec alone.
    assert_eq!(told("Spec", &["a.yaml"]), [""; 0]);
}

#[test]
fn spec_without_resources_is_rejected() {
    let told = |name: &str, text: &str| match generate("Auto", &folder(&[(name, text)])) {
        Ok(generated) => generated.warnings,
        Err(failure) => failure.problems().iter().map(crate::failure::sentence).collect(),
    };
    let item = config_map("a", "");
    assert_eq!(told("spec.yaml", &format!("# mine\n{item}")), ["s/spec.yaml:2: must be a map with resources"]);
    assert_eq!(told("a.yaml", &item), ["s/a.yaml:1: is not a Kubernetes object"]);
    let empty = "s/spec.yaml is empty, and the folder has no manifests; add resources to the Spec";
    assert_eq!(told("spec.yaml", "---\n# nothing\n"), [empty]);
    assert_eq!(
        told("a.yaml", "# nothing\n"),
        ["the folder has no manifests; add YAML or JSON files of Kubernetes objects"]
    );
}

#[test]
fn all_documents_become_resources_with_their_file() {
    let two = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n---\n# nothing\n---\napiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n";
    let files = [
        ("a.yaml", CONFIG_MAP),
        ("b.yaml", two),
        ("c.json", r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "m"}}"#),
    ];
    let generated = generate("", &folder(&files)).unwrap();
    let resources: Vec<_> =
        generated.spec.resources.iter().map(|r| (r.id.0.as_str(), r.extensions[FILE].as_str().unwrap())).collect();
    assert_eq!(
        resources,
        [
            ("v1:ConfigMap:shop:a", "s/a.yaml"),
            ("v1:Namespace:shop", "s/b.yaml"),
            ("example.com/v1:Widget:w", "s/b.yaml"),
            ("v1:Node:m", "s/c.json"),
        ]
    );
}

#[test]
fn lists_are_taken_apart_and_name_their_items() {
    let list = |item: &str| {
        format!(
            "apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: ConfigMap, metadata: {{name: a}}}}\n- {item}\n"
        )
    };
    let good = list("{apiVersion: v1, kind: Secret, metadata: {name: b}}");
    assert_eq!(ids(&generate("Auto", &folder(&[("l.yaml", &good)])).unwrap()), ["v1:ConfigMap:a", "v1:Secret:b"]);
    let bad = list("{apiVersion: v1, kind: Secret, metadata: {}}");
    let problem = refused("Auto", &[("l.yaml", &bad)]);
    assert_eq!((problem.file.as_str(), problem.field.as_str()), ("s/l.yaml", "items[1].metadata.name"));
}

#[test]
fn malformed_yaml_names_file_and_line() {
    let problem =
        refused("Auto", &[("a.yaml", "apiVersion: v1\nkind: Secret\nstringData:\n  a: \"hunter2\n  b: : x\n")]);
    assert_eq!((problem.reason.as_str(), problem.file.as_str()), (reason::MALFORMED_YAML, "s/a.yaml"));
    assert!(problem.line >= 4 && !problem.message.contains("hunter2"), "{problem:?}");
}

#[test]
fn wrong_field_names_file_and_line() {
    let check = |text: &str, expected: (&str, &str, u32)| {
        let text = format!("{CONFIG_MAP}---\n{text}");
        let problem = refused("Manifests", &[("a.yaml", &text)]);
        assert_eq!(problem.file, "s/a.yaml");
        assert_eq!((problem.reason.as_str(), problem.field.as_str(), problem.line), expected, "{problem:?}");
    };
    check("kind: ConfigMap\nmetadata: {name: b}\n", (reason::MISSING_FIELD, "apiVersion", 5));
    check("apiVersion: v1\nmetadata: {name: b}\n", (reason::MISSING_FIELD, "kind", 5));
    check("apiVersion: v1\nkind: ConfigMap\n", (reason::MISSING_FIELD, "metadata.name", 5));
    check(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: b-}\n",
        (reason::MISSING_FIELD, "metadata.name", 7),
    );
    check("apiVersion: apps/v1\nkind: Deploymnt\nmetadata: {name: b}\n", (reason::UNKNOWN_KIND, "kind", 6));
    check("just text\n", (reason::INVALID_MANIFEST, "", 5));
}

#[test]
fn one_object_in_two_files_names_both() {
    let problem = refused("Auto", &[("a.yaml", CONFIG_MAP), ("b.yaml", CONFIG_MAP)]);
    assert_eq!((problem.reason.as_str(), problem.file.as_str()), (reason::DUPLICATE_RESOURCE, "s/b.yaml"));
    assert_eq!(problem.message, "is a duplicate of the object in s/a.yaml:1");
}

#[test]
fn everything_that_is_wrong_is_told() {
    let failure = generate("Auto", &folder(&[("a.yaml", "a: [\n"), ("b.yaml", "kind: X\n")])).unwrap_err();
    let files: Vec<_> = failure.problems().iter().map(|problem| problem.file.as_str()).collect();
    assert_eq!(files, ["s/a.yaml", "s/b.yaml"]);
}

const OF_KIND: &str = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n";

/// A folder with a kustomization or a chart, in a file of this name.
fn of_tool(name: &str, text: &str) -> Content {
    let patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 5}\n";
    let templates = "apiVersion: v1\nkind: {{ .Values.kind }}\n";
    Content::Folder {
        path: "s".to_owned(),
        files: [("a.yaml", CONFIG_MAP), (name, text), ("patch.yaml", patch), ("templates/a.yaml", templates)]
            .map(|(path, text)| SourceFile { path: format!("s/{path}"), bytes: text.as_bytes().to_vec() })
            .into(),
        others: Vec::new(),
        warnings: Vec::new(),
    }
}

fn detected(content: &Content) -> Option<&'static str> {
    let values = Values::default();
    let placeholders = Placeholders::of(&values);
    let input = input(Files::Content(content), &values, &placeholders);
    match super::generate("Auto", &input).unwrap() {
        Outcome::Rendered(_) => None,
        Outcome::Detected(name) => Some(name),
    }
}

#[test]
fn auto_detects_kustomizations_and_charts() {
    for (name, text, generator) in [
        ("kustomization.yaml", "resources: [a.yaml]\npatches: [{path: patch.yaml}]\n", "Kustomize"),
        ("kustomization.yaml", "", "Kustomize"),
        ("kustomization.yml", OF_KIND, "Kustomize"),
        ("Kustomization", "patches: []\n", "Kustomize"),
        ("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n", "Helm"),
    ] {
        assert_eq!(detected(&of_tool(name, text)), Some(generator), "{name}");
    }
    assert_eq!(detected(&folder(&[("Kptfile", ""), ("a.yaml", CONFIG_MAP)])), Some("Kpt"));
    // A Kustomization of Flux is a manifest, and so is one in a file of any name.
    let flux =
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a, namespace: flux}\n";
    for name in ["kustomization.yaml", "flux.yaml", "Chart.yaml"] {
        let generated = generate("Auto", &folder(&[(name, flux)])).unwrap();
        assert_eq!(ids(&generated), ["kustomize.toolkit.fluxcd.io/v1:Kustomization:flux:a"], "{name}");
    }
}

#[test]
fn folder_of_two_generators_is_ambiguous() {
    let spec = format!("resources:\n{}", config_map("a", ""));
    let chart = "apiVersion: v2\nname: web\nversion: 1.0.0\n";
    let told = |files: &[(&str, &str)]| {
        let problem = refused("Auto", files);
        assert_eq!(problem.reason, reason::AMBIGUOUS_GENERATOR);
        crate::failure::sentence(&problem)
    };
    let choose = "set spec.generator.type of the Stack to one of them";
    assert_eq!(
        told(&[("spec.yaml", &spec), ("kustomization.yaml", "resources: [a.yaml]\n")]),
        format!("s/spec.yaml: is for generator Spec, and s/kustomization.yaml is for generator Kustomize; {choose}")
    );
    assert_eq!(
        told(&[("Chart.yaml", chart), ("kustomization.yaml", "resources: [a.yaml]\n")]),
        format!("s/kustomization.yaml: is for generator Kustomize, and s/Chart.yaml is for generator Helm; {choose}")
    );
    let generated = generate("Spec", &folder(&[("spec.yaml", &spec), ("kustomization.yaml", "{}")])).unwrap();
    assert_eq!(ids(&generated), ["v1:ConfigMap:a"]);
}

#[test]
fn manifests_deploy_no_part_of_a_kustomization_or_chart() {
    let sentence = |name: &str, is: &str, generator: &str| {
        format!(
            "s/{name}: is {is}, which generator Manifests does not deploy in part; set spec.path of a Stack to its folder, and \
             spec.generator.type to {generator} or Auto"
        )
    };
    for (generator, name, text, is, of) in [
        ("Auto", "overlays/dev/Kustomization", "patches: []\n", "a kustomization", "Kustomize"),
        ("Auto", "any.yaml", OF_KIND, "a kustomization", "Kustomize"),
        (
            "Auto",
            "component.yaml",
            "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n",
            "a kustomization",
            "Kustomize",
        ),
        ("Auto", "charts/db/Chart.yaml", "apiVersion: v2\nname: db\n", "a chart", "Helm"),
        ("Manifests", "kustomization.yaml", "", "a kustomization", "Kustomize"),
        ("Manifests", "Chart.yaml", "apiVersion: v2\nname: db\n", "a chart", "Helm"),
    ] {
        let failure = generate(generator, &of_tool(name, text)).unwrap_err();
        let told: Vec<String> = failure.problems().iter().map(crate::failure::sentence).collect();
        assert_eq!(told, [sentence(name, is, of)]);
        assert_eq!(failure.problems()[0].reason, reason::NOT_AVAILABLE);
    }
}

/// A document of the renderer.
fn document(file: &str, yaml: &str) -> Document {
    Document { yaml: yaml.as_bytes().to_vec().into(), file: file.to_owned() }
}

fn rendered(generator: &str, namespace: &str, documents: &[Document]) -> Result<Generated, Failure> {
    let values = Values { namespace: namespace.to_owned(), ..Values::default() };
    let placeholders = Placeholders::of(&values);
    let input = input(Files::Documents(documents), &values, &placeholders);
    match super::generate(generator, &input)? {
        Outcome::Rendered(generated) => Ok(*generated),
        Outcome::Detected(name) => panic!("{name} was not asked for"),
    }
}

#[test]
fn documents_of_the_renderer_become_resources() {
    let object = |kind: &str, name: &str| format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n");
    let documents =
        [document("c/values.yaml", &object("ConfigMap", "a")), document("c/t.yaml", &object("Namespace", "space"))];
    let generated = rendered("Helm", "shop", &documents).unwrap();
    assert_eq!(ids(&generated), ["v1:ConfigMap:shop:a", "v1:Namespace:space"]);
    let first = &generated.spec.resources[0];
    assert_eq!(first.attributes["metadata"]["namespace"], "shop");
    // A line of the output is no line of the file.
    assert_eq!((first.extensions.get(FILE), first.extensions.get(LINE)), (Some(&json!("c/values.yaml")), None));
    assert_eq!(ids(&rendered("Helm", "default", &documents).unwrap()), ["v1:ConfigMap:a", "v1:Namespace:space"]);
    assert_eq!(rendered("Kustomize", "", &[]).unwrap().warnings, ["the stack has no objects"]);

    let wrong = [document("c/t.yaml", "kind: ConfigMap\n"), document("c/u.yaml", "a: [\n")];
    let failure = rendered("Helm", "", &wrong).unwrap_err();
    let told: Vec<String> = failure.problems().iter().map(crate::failure::sentence).collect();
    assert_eq!(told[0], "c/t.yaml: apiVersion: is required");
    assert!(told[1].starts_with("c/u.yaml: line 1 of its output: "), "{told:?}");
    let twice = [documents[0].clone(), documents[0].clone()];
    let failure = rendered("Helm", "", &twice).unwrap_err();
    assert_eq!(failure.problems()[0].message, "is a duplicate of the object in c/values.yaml");
}

#[test]
fn files_of_other_tools_are_ignored_with_a_warning() {
    let files = [
        (
            "package-context.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\n  annotations: {config.kubernetes.io/local-config: 'true'}\n",
        ),
        ("project.yaml", "name: web\nextensions: [{kind: kubernetesNamespace}]\n"),
        ("skaffold.yaml", "apiVersion: skaffold/v4beta6\nkind: Config\n"),
        ("stack.yaml", "name: dev\n"),
        ("values.yaml", "kind: DaemonSet\nreplicas: 2\n"),
    ];
    let generated = generate("Auto", &folder(&files)).unwrap();
    assert_eq!(ids(&generated), [""; 0]);
    let told: Vec<_> = files.iter().zip(&generated.warnings).filter(|((name, _), told)| told.contains(*name)).collect();
    assert_eq!(told.len(), files.len(), "{:?}", generated.warnings);
}

#[test]
fn manifest_needs_no_special_file_name() {
    let project = "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: web, namespace: argocd}\n";
    for name in ["project.yaml", "stack.yaml", "values.yaml", "Chart.yaml", "package-context.yaml", "skaffold.yaml"] {
        let generated = generate("Auto", &folder(&[("a.yaml", CONFIG_MAP), (name, project)])).unwrap();
        let all = ["v1:ConfigMap:shop:a", "argoproj.io/v1alpha1:AppProject:argocd:web"];
        assert_eq!((ids(&generated), generated.warnings.len()), (all.to_vec(), 0), "{name}");
    }
    // Beside what is the tool's, too.
    let generated = generate("Auto", &folder(&[("stack.yaml", &format!("name: dev\n---\n{CONFIG_MAP}"))])).unwrap();
    assert_eq!(ids(&generated), ["v1:ConfigMap:shop:a"]);
    assert_eq!(generated.warnings, ["s/stack.yaml:1: is not a manifest and is ignored"]);
    // What nobody can read may be one.
    let problem =
        refused("Auto", &[("a.yaml", CONFIG_MAP), ("project.yaml", "apiVersion: v1\n<<<<<<< HEAD\nkind: [\n")]);
    assert_eq!((problem.reason.as_str(), problem.file.as_str()), (reason::MALFORMED_YAML, "s/project.yaml"));
}

#[test]
fn programs_in_kcl_are_detected_by_their_files() {
    for files in [&[("main.k", "")][..], &[("kcl.mod", "")], &[("a.yaml", CONFIG_MAP), ("app.k", "")]] {
        let content = folder(files);
        assert_eq!(super::detect(&content, &|_| {}).unwrap().name(), "KCL", "{files:?}");
    }
    let both = folder(&[("spec.yaml", "resources: []\n"), ("main.k", "")]);
    let failure = super::detect(&both, &|_| {}).map(|it| it.name()).unwrap_err();
    assert_eq!(failure.problems()[0].reason, reason::AMBIGUOUS_GENERATOR);
}

#[test]
fn warnings_name_the_first_ignored_objects() {
    let object = "---\napiVersion: config.kubernetes.io/v1alpha1\nkind: Tool\n";
    let generated = generate("Manifests", &folder(&[("a.yaml", CONFIG_MAP), ("k.yaml", &object.repeat(103))])).unwrap();
    let one = "s/k.yaml: a Tool of config.kubernetes.io/v1alpha1 is not a manifest and is ignored";
    assert_eq!(generated.warnings[..100], [one; 100]);
    assert_eq!(generated.warnings[100..], ["and 3 more such warnings"]);
}

#[test]
fn unknown_generator_names_the_known_ones() {
    let message = |generator: &str, files: &[(&str, &str)]| refused(generator, files).message;
    assert!(
        message("Pulumi", &[])
            .contains("unknown generator \"Pulumi\"; use Auto, Spec, Manifests, Kustomize, Helm, Kpt")
    );
}

#[test]
fn scalars_are_read_as_kubectl_reads_them() {
    let text = format!("{CONFIG_MAP}data: {{mode: 0644, on: yes, big: 12345678901, text: '0644', version: 1.10.0}}\n");
    let generated = generate("Auto", &folder(&[("a.yaml", &text)])).unwrap();
    assert_eq!(
        generated.spec.resources[0].attributes["data"],
        json!({"mode": 420, "true": true, "big": 12_345_678_901_i64, "text": "0644", "version": "1.10.0"})
    );
}

/// The files of users, with the data that kubectl 1.36 makes of each.
#[test]
fn files_of_users_are_read_as_kubectl_reads_them() {
    let control = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "control", "namespace": "yaml"},
        "data": {"del": "a\u007fb", "c1": "a\u0090b", "last": "a\ufffeb"}}"#;
    let data = |name: &str, text: &str| {
        let generated = generate("Auto", &folder(&[(name, text)])).unwrap();
        serde_json::Value::Object(generated.spec.resources[0].attributes.clone())["data"].clone()
    };
    let keys = format!("{CONFIG_MAP}data:\n  on: a\n  0644: b\n  1.50: c\n");
    assert_eq!(data("keys.yaml", &keys), json!({"true": "a", "420": "b", "1.5": "c"}));
    let base = CONFIG_MAP.replace("{name: a,", "{labels: &base {colour: blue, size: small}, name: a,");
    let merge = format!("{base}data:\n  colour: red\n  <<: *base\n");
    assert_eq!(data("merge.yaml", &merge), json!({"colour": "blue", "size": "small"}));
    assert_eq!(data("control.json", control), json!({"del": "a\u{7f}b", "c1": "a\u{90}b", "last": "a\u{fffe}b"}));
    let raw = control.replace("\\u007f", "\u{7f}").replace("\\u0090", "\u{90}").replace("\\ufffe", "\u{fffe}");
    assert_eq!(data("control.json", &raw), json!({"del": "a\u{7f}b", "c1": "a\u{90}b", "last": "a\u{fffe}b"}));
    // A Spec is read by the same reader.
    let spec = format!("resources:\n{}    {{data: {{on: a}}}}\n", config_map("a", "")).replace("}}\n    {", "}, ");
    assert_eq!(data("spec.yaml", &spec), json!({"true": "a"}));
}

#[test]
fn nulls_and_server_fields_are_in_no_spec() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: door\n  resourceVersion: '12'\n  uid: u\n  annotations:\n    \
                  kubectl.kubernetes.io/last-applied-configuration: |\n      {\"data\":{\"password\":\"b2xkLXZhbHVlLTAx\"}}\ndata: \
                  {password: bmV3LXZhbHVlLTAx, none: null}\n";
    let indented: String = secret.lines().map(|line| format!("    {line}\n")).collect();
    let spec = format!("resources:\n- id: v1:Secret:door\n  type: Kubernetes\n  attributes:\n{indented}");
    for (name, text) in [("a.yaml", secret), ("spec.yaml", &spec)] {
        let generated = generate("Auto", &folder(&[(name, text)])).unwrap();
        assert_eq!(
            serde_json::Value::Object(generated.spec.resources[0].attributes.clone()),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "door"}, "data": {"password": "bmV3LXZhbHVlLTAx"}})
        );
    }
    // One that an earlier version kept has them still.
    let kept = json!({"resources": [{"id": "v1:Secret:door", "type": "Kubernetes", "attributes": {"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "door", "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}}}]});
    let spec = convert::spec(kept.to_string().as_bytes()).unwrap();
    assert_eq!(spec.resources[0].attributes["metadata"], json!({"name": "door"}));
    let custom = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {a: null}\n";
    let generated = generate("Auto", &folder(&[("a.yaml", custom)])).unwrap();
    assert_eq!(generated.spec.resources[0].attributes["spec"], json!({"a": null}));
}

#[test]
fn cluster_scoped_duplicate_ignores_the_namespace() {
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: reader";
    let twice = format!("{role}}}\n---\n{role}, namespace: shop}}\n");
    let problem = refused("Auto", &[("all.yaml", &twice)]);
    assert_eq!(
        (problem.reason.as_str(), problem.file.as_str(), problem.line),
        (reason::DUPLICATE_RESOURCE, "s/all.yaml", 5)
    );
    assert_eq!(problem.message, "is a duplicate of the object in s/all.yaml:1; ClusterRole is cluster-scoped");
    let custom = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: cells.example.com}\n\
                  spec: {group: example.com, scope: Cluster, names: {kind: Cell, plural: cells}}\n---\n\
                  apiVersion: example.com/v1\nkind: Cell\nmetadata: {name: c, namespace: shop}\n";
    let other = "apiVersion: example.com/v1\nkind: Cell\nmetadata: {name: c}\n";
    let problem = refused("Auto", &[("a.yaml", custom), ("b.yaml", other)]);
    assert_eq!(
        (problem.file.as_str(), problem.message.as_str()),
        ("s/b.yaml", "is a duplicate of the object in s/a.yaml:6; Cell is cluster-scoped")
    );
}

#[test]
fn kind_that_ends_in_list_is_a_kind() {
    let allow_list = |metadata: &str, items: &str| {
        format!("apiVersion: lists.example.com/v1\nkind: AllowList\nmetadata: {metadata}\nitems: {items}\n")
    };
    for items in ["[{cidr: 198.51.100.0/24}]", "[]"] {
        let generated =
            generate("Auto", &folder(&[("a.yaml", &allow_list("{name: users, namespace: lists}", items))])).unwrap();
        assert_eq!(ids(&generated), ["lists.example.com/v1:AllowList:lists:users"]);
        assert!(generated.spec.resources[0].attributes["items"].is_array() && generated.warnings.is_empty());
    }
    let problem = refused("Auto", &[("a.yaml", &allow_list("{namespace: lists}", "[]"))]);
    assert_eq!((problem.file.as_str(), problem.field.as_str()), ("s/a.yaml", "metadata.name"));
    assert_eq!(problem.message, "is required; as a list of objects, this AllowList has no items");
}

#[test]
fn list_items_inherit_their_kind() {
    let list = r#"{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": "4711"}, "items": [
        {"metadata": {"name": "bare", "namespace": "lists"}, "data": {"a": "4"}}]}"#;
    let generated = generate("Auto", &folder(&[("list.json", list)])).unwrap();
    assert_eq!(ids(&generated), ["v1:ConfigMap:lists:bare"]);
    assert_eq!(generated.spec.resources[0].attributes["kind"], "ConfigMap");
    // A List is of no kind.
    let problem = refused("Auto", &[("list.json", &list.replace("ConfigMapList", "List"))]);
    assert_eq!((problem.field.as_str(), problem.message.as_str()), ("items[0].apiVersion", "is required"));
}

#[test]
fn alias_bomb_and_deep_nesting_are_rejected() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..8 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb.push_str(&format!("a{n}: &a{n} [{aliases}]\n"));
    }
    let deep = format!("a: {}1{}\n", "[".repeat(200), "]".repeat(200));
    for (generator, file) in [("Auto", "a.yaml"), ("Auto", "spec.yaml"), ("Spec", "spec.yaml")] {
        let problem = refused(generator, &[(file, &bomb)]);
        assert_eq!((problem.reason.as_str(), problem.file), (reason::TOO_LARGE, format!("s/{file}")));
        assert!(problem.message.contains("anchors and aliases"), "{}", problem.message);
        let problem = refused(generator, &[(file, &deep)]);
        assert_eq!(problem.reason, reason::TOO_LARGE);
        assert!(problem.message.contains("more than 64 levels"), "{}", problem.message);
    }
}

#[test]
fn reference_bomb_is_rejected_with_its_line() {
    let map = |name: usize, x: &str| {
        format!(
            "- {{id: 'v1:ConfigMap:shop:a{name}', type: Kubernetes, attributes: {{apiVersion: v1, kind: ConfigMap, \
             metadata: {{name: a{name}, namespace: shop}}, data: {{x: '{x}'}}}}}}\n"
        )
    };
    let next = |n: usize| map(n, &format!("${{kusion_path.v1:ConfigMap:shop:a{}.data.x}}", n - 1).repeat(10));
    let bomb: String = (1..10).map(next).collect();
    let problem = refused("Spec", &[("spec.yaml", &format!("resources:\n{}{bomb}", map(0, "AAAAAAAAAA")))]);
    assert_eq!((problem.reason.as_str(), problem.file.as_str(), problem.line), (reason::TOO_LARGE, "s/spec.yaml", 9));
    assert_eq!((problem.resource_id.as_str(), problem.field.as_str()), ("v1:ConfigMap:shop:a7", "attributes.data.x"));
}

/// A Deployment as people have them: with ports, probes, resources, variables and volumes.
fn deployment(number: usize) -> String {
    let container = |name: &str| {
        let variables: String = (0..2)
            .map(|variable| {
                format!("        - {{name: VARIABLE_{variable}, value: \"value {variable} of {number}\"}}\n")
            })
            .collect();
        format!(
            "      - name: {name}\n        image: registry.example.com/shop/{name}:1.2.{number}\n        ports:\n        \
             - {{name: http, containerPort: 8080}}\n        env:\n{variables}        resources:\n          \
             requests: {{cpu: 100m, memory: 128Mi}}\n          limits: {{memory: 256Mi}}\n        \
             readinessProbe:\n          httpGet: {{path: /ready, port: http}}\n          periodSeconds: 10\n        \
             volumeMounts:\n        - {{name: config, mountPath: /etc/{name}, readOnly: true}}\n        \
             securityContext: {{runAsNonRoot: true, readOnlyRootFilesystem: true}}\n"
        )
    };
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web-{number}\n  namespace: shop\n  labels: {{app: \
         web-{number}, team: shop}}\nspec:\n  replicas: 2\n  selector:\n    matchLabels: {{app: web-{number}}}\n  template:\n    \
         metadata:\n      labels: {{app: web-{number}, team: shop}}\n    spec:\n      containers:\n{}      volumes:\n      \
         - name: config\n        configMap: {{name: web-{number}}}\n",
        container("web")
    )
}

#[test]
fn ten_thousand_real_objects_are_one_file() {
    let file: String = (0..10_000).map(|number| deployment(number) + "---\n").collect();
    let began = std::time::Instant::now();
    let generated = generate("Auto", &folder(&[("all.yaml", &file)])).unwrap();
    eprintln!("{} MiB of manifests were read in {:?}", file.len() >> 20, began.elapsed());
    assert_eq!(generated.spec.resources.len(), 10_000);
}

#[test]
fn wrong_spec_names_resource_and_field() {
    let problem = refused("Spec", &[("spec.yaml", "resources:\n- {id: a, type: Kubernets, attributes: {}}\n")]);
    assert_eq!((problem.file.as_str(), problem.field.as_str()), ("s/spec.yaml", "resources[0].type"));
    let dangling = "resources:\n- id: v1:ConfigMap:a\n  type: Kubernetes\n  attributes: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n  dependsOn: [v1:Namespace:gone]\n";
    let problem = refused("Spec", &[("spec.yaml", dangling)]);
    assert_eq!((problem.reason.as_str(), problem.resource_id.as_str()), ("DanglingReference", "v1:ConfigMap:a"));
    assert_eq!((problem.file.as_str(), problem.field.as_str()), ("s/spec.yaml", "dependsOn[0]"));
}

/// What is told of a Spec file, line by line.
#[track_caller]
fn sentences(spec: &str) -> Vec<String> {
    let failure = generate("Spec", &folder(&[("spec.yaml", spec)])).unwrap_err();
    failure.problems().iter().map(crate::failure::sentence).collect()
}

/// A ConfigMap of a Spec, in five lines and those in `more`.
fn config_map(name: &str, more: &str) -> String {
    format!(
        "- id: v1:ConfigMap:{name}\n  type: Kubernetes\n  attributes:\n    {{apiVersion: v1, kind: ConfigMap, \
         metadata: {{name: {name}}}}}\n{more}"
    )
}

#[test]
fn wrong_spec_names_line_and_resource() {
    let spec = format!(
        "resources:\n{}{}- type: Kubernetes\n  attributes: []\ncontxt: {{}}\n",
        config_map("a", "  dependOn:\n  - v1:ConfigMap:b\n"),
        "- id: v1:ConfigMap:a\n  type: Kubernetes\n  dependsOn: v1:ConfigMap:b\n",
    );
    assert_eq!(
        sentences(&spec),
        [
            "s/spec.yaml:13: contxt: unknown field; did you mean context? a Spec has resources, secretStore, context",
            "s/spec.yaml:6: v1:ConfigMap:a: resources[0].dependOn: unknown field; did you mean dependsOn? a resource has id, type, attributes, \
             dependsOn, extensions",
            "s/spec.yaml:8: v1:ConfigMap:a: resources[1].attributes: is required",
            "s/spec.yaml:10: v1:ConfigMap:a: resources[1].dependsOn: must be a list of ids",
            "s/spec.yaml:8: v1:ConfigMap:a: resources[1].id: is a duplicate; it is also the id of the resource in s/spec.yaml:2",
            "s/spec.yaml:11: resources[2].id: is required",
            "s/spec.yaml:12: resources[2].attributes: must be a map",
        ]
    );
    assert_eq!(sentences("- a\n- b\n"), ["s/spec.yaml:1: must be a map with resources"]);
    assert_eq!(sentences("# a comment\nresources: none\n"), ["s/spec.yaml:2: resources: must be a list"]);
    assert_eq!(sentences("---\n---\nresources: [1]\n"), ["s/spec.yaml:3: resources[0]: must be a map"]);
}

#[test]
fn cycles_and_dangling_references_have_their_line() {
    let circle =
        config_map("a", "  dependsOn: [v1:ConfigMap:b]\n") + &config_map("b", "  dependsOn: [v1:ConfigMap:a]\n");
    assert_eq!(
        sentences(&format!("resources:\n{circle}")),
        [
            "s/spec.yaml:2: v1:ConfigMap:a: resources depend on each other: v1:ConfigMap:a → v1:ConfigMap:b → v1:ConfigMap:a"
        ]
    );
    let dangling = config_map("a", "") + &config_map("b", "  dependsOn:\n  - v1:ConfigMap:c\n");
    assert_eq!(
        sentences(&format!("resources:\n{dangling}")),
        ["s/spec.yaml:11: v1:ConfigMap:b: dependsOn[0]: no resource has the id v1:ConfigMap:c"]
    );
    let manifest =
        format!("{CONFIG_MAP}---\n{CONFIG_MAP}data: {{x: $kusion_path.v1:Gone:g.x}}\n").replacen("a,", "b,", 1);
    let problem = refused("Manifests", &[("a.yaml", &manifest)]);
    assert_eq!((problem.file.as_str(), problem.line, problem.field.as_str()), ("s/a.yaml", 8, "attributes.data.x"));
}

#[test]
fn misspelled_spec_field_has_a_suggestion() {
    for field in ["resource", "Resources", "ressources", "resuorces"] {
        let text = format!("# mine\n{field}:\n{}", config_map("a", ""));
        for (generator, name) in [("Auto", "spec.yaml"), ("Auto", "mine.yaml"), ("Spec", "spec.yaml")] {
            let content = match name {
                "spec.yaml" => folder(&[(name, &text)]),
                _ => Content::File(SourceFile { path: format!("s/{name}"), bytes: text.as_bytes().to_vec() }),
            };
            let failure = generate(generator, &content).unwrap_err();
            let told: Vec<String> = failure.problems().iter().map(crate::failure::sentence).collect();
            let meant = "unknown field; did you mean resources? a Spec has resources, secretStore, context";
            assert_eq!(told, [format!("s/{name}:2: {field}: {meant}")]);
        }
    }
    let problem = refused("Auto", &[("spec.yaml", "things: []\n")]);
    assert_eq!((problem.reason.as_str(), problem.field.as_str()), (reason::MISSING_FIELD, "apiVersion"));
}

#[test]
fn problems_of_all_resources_are_reported() {
    let broken = "- id: v1:ConfigMap:c\n  type: Kubernets\n  attributes: {}\n";
    let nameless = "- id: v1:ConfigMap:b\n  type: Kubernetes\n  dependsOn: ['v1:ConfigMap:c']\n  attributes:\n    apiVersion: v1\n    \
                    kind: ConfigMap\n    metadata:\n      name: 7\n      namespace: [x]\n";
    assert_eq!(
        sentences(&format!("resources:\n{broken}{nameless}")),
        [
            "s/spec.yaml:3: v1:ConfigMap:c: resources[0].type: must be Kubernetes or Terraform",
            "s/spec.yaml:12: v1:ConfigMap:b: attributes.metadata.name: must be text, not a number",
            "s/spec.yaml:13: v1:ConfigMap:b: attributes.metadata.namespace: must be text, not a list",
        ]
    );
    let manifests = format!(
        "{CONFIG_MAP}---\nmetadata: {{namespace: a}}\n---\napiVersion: v1\nkind: Pod\nmetadata:\n  namespace: 7\n"
    );
    let failure = generate("Auto", &folder(&[("a.yaml", &manifests)])).unwrap_err();
    let told: Vec<String> = failure.problems().iter().map(crate::failure::sentence).collect();
    assert_eq!(
        told,
        [
            "s/a.yaml:5: apiVersion: is required",
            "s/a.yaml:5: kind: is required",
            "s/a.yaml:5: metadata.name: is required",
            "s/a.yaml:9: metadata.name: is required",
            "s/a.yaml:10: metadata.namespace: must be a string; put it in quotes",
        ]
    );
}

#[test]
fn duplicate_key_is_reported() {
    let text = format!("{CONFIG_MAP}data:\n  a: x\n  a: hunter2\n");
    for (generator, name, text) in [
        ("Auto", "a.yaml", text.clone()),
        (
            "Spec",
            "spec.yaml",
            "resources:\n- id: v1:ConfigMap:a\n  attributes:\n    data: {x: 1,\n     a: x, a: y}\n".to_owned(),
        ),
    ] {
        let problem = refused(generator, &[(name, &text)]);
        assert_eq!(
            (problem.reason.as_str(), problem.message.as_str()),
            (reason::MALFORMED_YAML, "key \"a\" is a duplicate in a map")
        );
        assert!(problem.line >= 5, "{problem:?}");
    }
}

#[test]
fn resources_of_a_spec_know_their_file() {
    let generated =
        generate("Spec", &folder(&[("spec.yaml", &format!("resources:\n{}", config_map("a", "")))])).unwrap();
    assert_eq!(generated.spec.resources[0].extensions[FILE], "s/spec.yaml");
}

#[test]
fn listed_resources_know_their_line() {
    let lines = |name: &str, text: &str| -> Vec<Option<u64>> {
        let generated = generate("", &folder(&[(name, text)])).unwrap();
        generated.spec.resources.iter().map(|it| it.extensions.get(LINE).and_then(serde_json::Value::as_u64)).collect()
    };
    let item = |name: &str| {
        format!(
            "- id: v1:ConfigMap:{name}\n  type: Kubernetes\n  extensions: {{stoa.dev/line: 99}}\n  attributes:\n    apiVersion: v1\n    \
             kind: ConfigMap\n    metadata: {{name: {name}}}\n    data:\n      list: |\n        - id: x\n\n          - y\n"
        )
    };
    let two = format!("{}# another\n\n{}", item("a"), item("b"));
    assert_eq!(lines("spec.yaml", &format!("context: {{}}\nresources: # all\n{two}")), [Some(3), Some(17)]);
    let indented: String = two.lines().map(|line| format!("  {line}\n")).collect();
    assert_eq!(lines("spec.yaml", &format!("resources:\r\n{indented}context: {{}}\n")), [Some(2), Some(16)]);
    let flow = "resources: [{id: 'v1:ConfigMap:a', type: Kubernetes, attributes: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}}]\n";
    assert_eq!(lines("spec.yaml", flow), [None]);
    assert_eq!(
        lines("a.yaml", &format!("{CONFIG_MAP}---\n{}", CONFIG_MAP.replace("name: a", "name: b"))),
        [Some(1), Some(5)]
    );
}

#[test]
fn later_problem_has_the_line_of_its_resource() {
    let text = format!("resources:\n{}{}", config_map("a", ""), config_map("b", ""));
    let spec = generate("", &folder(&[("spec.yaml", &text)])).unwrap().spec;
    let found = stoa_engine::Problem::new("Rejected", "no").of(&spec.resources[1].id).at("spec.x");
    let problem = convert::problem_in(&spec, found);
    let line = u32::try_from(text.lines().position(|line| line.contains("v1:ConfigMap:b")).unwrap()).unwrap() + 1;
    assert_eq!((problem.file.as_str(), problem.line, problem.field.as_str()), ("s/spec.yaml", line, "spec.x"));
    assert!(spec.resources[1].recorded_extensions().keys().eq([FILE]), "what is before it is not on record");
}

#[test]
fn missing_spec_file_is_not_found() {
    let failure = generate("Spec", &folder(&[("a.yaml", CONFIG_MAP)])).unwrap_err();
    assert_eq!((failure.code(), failure.problems()[0].file.as_str()), (Code::NotFound, "s/spec.yaml"));
}

/// Lines of files, good ones and others, from which any file may be put together.
const LINES: &[&str] = &[
    "resources:",
    "- id: v1:Namespace:a",
    "  type: Kubernetes",
    "  dependsOn: ['v1:ConfigMap:shop:a']",
    "  attributes:",
    "    apiVersion: v1",
    "    kind: Namespace",
    "    metadata: {name: a}",
    "    x: $kusion_path.v1:Namespace:a.metadata.name",
    "    y: \"${kusion_path.v1:Namespace:a.\"",
    "  extensions: {}",
    "context: {}",
    "apiVersion: v1",
    "kind: ConfigMap",
    "kind: List",
    "metadata: {name: a, namespace: shop}",
    "metadata:",
    "  name: 7",
    "items:",
    "- apiVersion: v1",
    "  kind: Secret",
    "data: {a: 0644, b: on}",
    "---",
    "...",
    "# nothing",
    "",
    "x: &x [1]",
    "y: *x",
    "<<: *x",
    "? [a]",
    "- - -",
    "\t",
    "{",
    "}",
    "\"",
    "%YAML 1.2",
    "null",
    "!!int x",
    "|",
    "  text",
    "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"m\"}}",
];

fn text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        8 => select(LINES).prop_map(str::to_owned),
        1 => ".{0,12}",
        1 => (select(LINES), any::<prop::sample::Index>()).prop_map(|(line, at)| {
            line.chars().take(at.index(line.len() + 1)).collect::<String>()
        }),
    ];
    let lines = prop::collection::vec(line, 0..20).prop_map(|lines| lines.join("\n").into_bytes());
    prop_oneof![9 => lines, 1 => prop::collection::vec(any::<u8>(), 0..64)]
}

/// Whatever is in a file, each generator makes a valid Spec of it or says which file it does not like, and why.
fn any_file_is_read_or_told_about(bytes: &[u8], generator: &str, name: &str) {
    let file = || SourceFile { path: name.to_owned(), bytes: bytes.to_vec() };
    for content in [
        Content::File(file()),
        Content::Folder { path: String::new(), files: vec![file()], others: vec![], warnings: vec![] },
    ] {
        is_spec_or_told(generate(generator, &content));
    }
    let document = Document { yaml: bytes.to_vec().into(), file: name.to_owned() };
    is_spec_or_told(rendered("Helm", "shop", &[document.clone(), document]));
}

fn is_spec_or_told(generated: Result<Generated, Failure>) {
    match generated {
        Ok(generated) => {
            assert!(generated.spec.validate(&KubernetesRules).is_ok());
            let json = serde_json::to_vec(&generated.spec).unwrap();
            assert_eq!(convert::spec(&json).unwrap(), generated.spec);
        }
        Err(failure) => {
            for problem in failure.problems() {
                assert!(!problem.message.is_empty() && !problem.reason.is_empty(), "{problem:?}");
                assert!(!problem.file.is_empty(), "{problem:?}");
            }
        }
    }
}

mod fuzz {
    #[test]
    fn spec_files() {
        stoa_fuzz::run::test("spec_files", |bytes| {
            for generator in ["Auto", "Spec", "Manifests"] {
                super::any_file_is_read_or_told_about(bytes, generator, "spec.yaml");
            }
            super::any_file_is_read_or_told_about(bytes, "Auto", "a.json");
        });
    }
}

proptest! {
    #[test]
    fn any_file_is_read_or_rejected(
        bytes in text(),
        generator in select(&["Auto", "Spec", "Manifests"][..]),
        name in select(&["spec.yaml", "a.yaml", "a.json"][..]),
    ) {
        any_file_is_read_or_told_about(&bytes, generator, name);
    }

    /// The documents in messages of the proto are read or refused, whatever they are.
    #[test]
    fn any_document_is_read_or_refused(bytes in text(), id in "[a-z1/:.]{0,20}", intent: bool) {
        let spec = convert::spec(&bytes);
        prop_assert!(spec.is_ok() || spec.is_err_and(|failure| failure.code() == Code::InvalidArgument));
        let action = "Create".to_owned();
        let intent = intent.then(|| Intent { action, run: "r".to_owned(), ..Intent::default() });
        let entry = StateEntry { id, resource: bytes.into(), intent, ..StateEntry::default() };
        if let Err(failure) = convert::state(&[entry]) {
            prop_assert_eq!(failure.code(), Code::InvalidArgument);
        }
    }
}
