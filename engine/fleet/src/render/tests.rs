use super::*;
use crate::{
    Inputs,
    testing::{FakeRenderer, config_map, config_schema, inputs, named, policy, template},
};
use serde_json::json;

fn rendered(inputs: Inputs) -> Tree {
    render(&Fleet::new(inputs), &FakeRenderer).unwrap()
}

fn paths(tree: &Tree) -> Vec<&str> {
    tree.files.keys().map(String::as_str).collect()
}

#[test]
fn assignment_has_three_files_in_its_folder() {
    let tree = rendered(inputs());
    assert_eq!(
        paths(&tree),
        [
            ".github/tracking/Promoted_Commit_Id",
            "drone/README.md",
            "drone/hello-edge/namespace.yaml",
            "drone/hello-edge/platform-config.yaml",
            "drone/hello-edge/reconciler.yaml",
            "large/README.md",
            "large/hello-edge/namespace.yaml",
            "large/hello-edge/platform-config.yaml",
            "large/hello-edge/reconciler.yaml",
        ]
    );
    assert_eq!(tree.files["drone/hello-edge/namespace.yaml"].content, "name: dev-drone-hello-edge\n");
    assert_eq!(
        tree.files["drone/hello-edge/platform-config.yaml"].content,
        "apiVersion: \"v1\"\ndata:\n  ENVIRONMENT: \"Dev\"\n  LIST: \"- 1\\n- 2\"\n  REGION: \"East US\"\nkind: \"ConfigMap\"\nmetadata:\n  \
         name: \"platform-config\"\n  namespace: \"dev-drone-hello-edge\"\n"
    );
    assert!(tree.broken.is_empty() && tree.warnings.is_empty());
}

#[test]
fn files_name_what_they_are_made_of() {
    let mut inputs = inputs();
    inputs.policies =
        named([policy("b", json!({}), json!({})), policy("a", json!({}), json!({"matchLabels": {"region": "east"}}))]);
    let tree = rendered(inputs.clone());
    let file = &tree.files["drone/hello-edge/platform-config.yaml"].provenance;
    assert_eq!((file.policies.join(" "), file.config_maps.join(" ")), ("a b".into(), "common east".into()));
    let file = &tree.files["large/hello-edge/reconciler.yaml"].provenance;
    assert_eq!((file.policies.join(" "), file.template.as_str(), file.config_maps.len()), ("b".into(), "flux", 0));
    let found = explain(&Fleet::new(inputs.clone()), "drone", "hello-edge").unwrap();
    assert_eq!(found.assignment, "hello-hello-edge-drone");
    assert_eq!(found.configuration.maps["REGION"], ["east"]);
    assert!(explain(&Fleet::new(inputs), "drone", "other").is_none());
}

#[test]
fn overlapping_policies_make_one_assignment() {
    let mut inputs = inputs();
    inputs.policies = named([policy("a", json!({}), json!({})), policy("b", json!({}), json!({}))]);
    let fleet = Fleet::new(inputs);
    let found: Vec<_> = fleet.schedule().assignments().map(|it| (it.name(), it.policies())).collect();
    let both = vec!["a".to_owned(), "b".to_owned()];
    assert_eq!(
        found,
        [("hello-hello-edge-drone".to_owned(), both.clone()), ("hello-hello-edge-large".to_owned(), both)]
    );
}

#[test]
fn broken_assignment_holds_up_no_other() {
    let schema = r#"{"properties": {"REGION": {"enum": ["West US"]}}}"#;
    let mut of_schema = inputs();
    of_schema.config_schemas = named([config_schema("regions", &[], schema)]);
    let mut of_template = inputs();
    let drone = Arc::make_mut(of_template.cluster_types.get_mut("drone").unwrap());
    drone.spec.reconciler = "nope".to_owned();
    let mut of_execution = inputs();
    let drone = Arc::make_mut(of_execution.cluster_types.get_mut("drone").unwrap());
    drone.spec.config_type = "failing".to_owned();
    of_execution.templates.extend(named([template("failing", "{{ fail }}")]));
    for (inputs, problem) in [
        (of_schema, "ConfigSchema regions, /properties/REGION/enum: REGION: \"East US\" is not one of \"West US\""),
        (
            of_template,
            "ClusterType drone, spec.reconciler: there is no Template \"nope\"; create it or name another one",
        ),
        (of_execution, "Template failing, manifests[0], line 1: failed"),
    ] {
        let tree = rendered(inputs);
        let broken = Broken { assignment: "hello-hello-edge-drone".to_owned(), problems: vec![problem.to_owned()] };
        assert_eq!(tree.broken, BTreeMap::from([("drone/hello-edge".to_owned(), broken)]));
        assert!(tree.files.keys().all(|path| !path.starts_with("drone/hello-edge")), "{problem}");
        assert_eq!(tree.files.keys().filter(|path| path.starts_with("large/hello-edge")).count(), 3, "{problem}");
    }
}

#[test]
fn types_of_configuration_name_their_files() {
    let mut inputs = inputs();
    let set = |inputs: &mut Inputs, config_type: &str| {
        Arc::make_mut(inputs.cluster_types.get_mut("drone").unwrap()).spec.config_type = config_type.to_owned();
    };
    inputs.config_maps = named([config_map("c", &[("platform-config", "true")], &[("A", "x"), ("B", "y z")])]);
    set(&mut inputs, "envFile");
    let tree = rendered(inputs.clone());
    assert_eq!(tree.files["drone/hello-edge/platform-config.sh"].content, "export A=\"x\"\nexport B=\"y z\"\n");
    assert!(!tree.files.contains_key("drone/hello-edge/platform-config.yaml"));
    // A template of that name comes first.
    let mut own = template("envFile", "A {{ .ConfigData.A }}");
    own.spec.manifests.push("b".to_owned());
    inputs.templates.extend(named([own]));
    assert_eq!(rendered(inputs.clone()).files["drone/hello-edge/platform-config.yaml"].content, "A x\n---\nb");
    inputs.templates.extend(named([template("none", "")]));
    set(&mut inputs, "none");
    assert_eq!(rendered(inputs).files.keys().filter(|path| path.starts_with("drone/hello-edge/")).count(), 2);
}

#[test]
fn unreadable_files_are_found() {
    for (path, content, expected) in [
        ("a/b/reconciler.yaml", "a: 1\n---\n- b\n", None),
        ("a/b/reconciler.yaml", "a: [", Some("a/b/reconciler.yaml:1: is not valid YAML: ")),
        ("a/b/platform-config.sh", "a: [", None),
    ] {
        let found = unreadable(path, content);
        assert_eq!(found.is_some(), expected.is_some(), "{content}");
        assert!(found.unwrap_or_default().starts_with(expected.unwrap_or_default()));
    }
}

#[test]
fn silent_renderer_fails_the_whole_rendering() {
    #[derive(Debug)]
    struct Silent;
    impl Renderer for Silent {
        fn execute(&self, _: &Batch) -> Result<Vec<ExecutionResult>, RendererError> {
            Ok(Vec::new())
        }
    }
    let error = render(&Fleet::new(inputs()), &Silent).unwrap_err();
    assert_eq!(error.to_string(), "the renderer of templates gave no answer: 0 results for 4 executions");
}

#[test]
fn many_assignments_come_in_their_order() {
    let mut inputs = inputs();
    let edge = inputs.targets["hello-edge"].clone();
    for number in 0..700 {
        let name = format!("hello-{number:03}");
        inputs.targets.insert(name.clone(), Arc::new(DeploymentTarget { name, ..(*edge).clone() }));
    }
    let (fleet, mut folders) = (Fleet::new(inputs), Vec::<String>::new());
    render_each(&fleet, &FakeRenderer, &mut |output| {
        let Output::File(_, File { provenance, .. }) = output else { return };
        let folder = format!("{}/{}", provenance.cluster_type, provenance.target);
        if !provenance.target.is_empty() && folders.last() != Some(&folder) {
            folders.push(folder);
        }
    })
    .unwrap();
    let expected: Vec<String> = fleet.schedule().assignments().map(|it| it.folder()).collect();
    assert_eq!((folders.len(), folders), (1402, expected));
}
