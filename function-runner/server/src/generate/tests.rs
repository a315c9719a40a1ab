//! What each generator makes of files.

use proptest::{prelude::*, sample::select};
use serde_json::json;
use stoa_engine::spec::{FILE, LINE};
use stoa_proto::{Intent, StateEntry};

use super::*;
use crate::convert;

pub(super) fn generate(generator: &str, content: &Content) -> Result<Generated, Failure> {
    super::generate(generator, content, &|_| {})
}

pub(super) fn folder(files: &[(&str, &str)]) -> Content {
    let mut others = Vec::new();
    let mut read = Vec::new();
    for (path, text) in files {
        if path.contains(".y") || path.contains(".json") {
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
    assert_eq!((generated.generator, generated.warnings.len()), ("Spec", 0));
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
        ("{health.kcl: 'assert res'}", "extensions.healthPolicy[health.kcl]", "in KCL are not evaluated"),
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
    assert_eq!((generated.generator, ids(&generated)), ("Manifests", vec!["v1:ConfigMap:shop:a"]));
}

#[test]
fn ignored_files_beside_a_spec_are_warned_about() {
    let spec = format!("resources:\n{}", config_map("a", ""));
    let told = |generator: &str, names: &[&str]| {
        let others = names.iter().map(|name| (*name, CONFIG_MAP));
        let files: Vec<_> = std::iter::once(("spec.yaml", spec.as_str())).chain(others).collect();
        let generated = generate(generator, &folder(&files)).unwrap();
        assert_eq!((generated.generator, ids(&generated)), ("Spec", vec!["v1:ConfigMap:a"]));
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

#[test]
fn kustomizations_and_charts_are_rejected_with_advice() {
    let kustomization = "s/kustomization.yaml: is a kustomization, which Stoa cannot build yet; commit the output of `kubectl kustomize` instead";
    let chart = "s/Chart.yaml: is a chart, which Stoa cannot build yet; commit the output of `helm template` instead";
    let patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 5}\n";
    let of_kind = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n";
    for (name, text, sentence) in [
        ("kustomization.yaml", "resources: [a.yaml]\npatches: [{path: patch.yaml}]\n", kustomization),
        ("kustomization.yaml", "", kustomization),
        ("kustomization.yml", of_kind, kustomization),
        ("overlays/dev/Kustomization", "patches: []\n", kustomization),
        ("any.yaml", of_kind, kustomization),
        ("component.yaml", "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n", kustomization),
        ("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n", chart),
        ("charts/db/Chart.yaml", "apiVersion: v2\nname: db\n", chart),
    ] {
        let templates = "apiVersion: v1\nkind: {{ .Values.kind }}\n";
        let content = Content::Folder {
            path: "s".to_owned(),
            files: [("a.yaml", CONFIG_MAP), (name, text), ("patch.yaml", patch), ("templates/a.yaml", templates)]
                .map(|(path, text)| SourceFile { path: format!("s/{path}"), bytes: text.as_bytes().to_vec() })
                .into(),
            others: Vec::new(),
            warnings: Vec::new(),
        };
        for generator in ["Auto", "Manifests"] {
            let failure = generate(generator, &content).unwrap_err();
            let told: Vec<String> = failure.problems().iter().map(crate::failure::sentence).collect();
            let (first, _) = sentence.split_once(':').unwrap();
            assert_eq!(told, [sentence.replace(first, &format!("s/{name}"))]);
            assert_eq!(failure.problems()[0].reason, reason::NOT_AVAILABLE);
        }
    }
    // A Kustomization of Flux is a manifest, and so is one in a file of any name.
    let flux =
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a, namespace: flux}\n";
    for name in ["kustomization.yaml", "flux.yaml", "Chart.yaml"] {
        let generated = generate("Auto", &folder(&[(name, flux)])).unwrap();
        assert_eq!(ids(&generated), ["kustomize.toolkit.fluxcd.io/v1:Kustomization:flux:a"], "{name}");
    }
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
        refused("Auto", &[("a.yaml", CONFIG_MAP), ("project.yaml", "apiVersion: v1\n            "s/spec.yaml:3: v1:ConfigMap:c: resources[0].type: must be Kubernetes or Terraform",
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
        match generate(generator, &content) {
            Ok(generated) => {
                assert!(generated.spec.validate().is_ok());
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
        let entry = StateEntry { id, resource: bytes.into(), intent, finished: false };
        if let Err(failure) = convert::state(&[entry]) {
            prop_assert_eq!(failure.code(), Code::InvalidArgument);
        }
    }
}
