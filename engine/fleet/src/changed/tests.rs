use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    Inputs,
    render::{Tree, render},
    schedule::Decision,
    templates::{Batch, Executed, TemplateError},
    testing::{
        FakeRenderer, cluster_type, config_map, config_schema, decided, decision as decided_on, externally, inputs,
        named, policy, target, template,
    },
};

/// The changes by two whole renderings.
fn expected(old: &Tree, new: &Tree, keeps_files: bool) -> (BTreeMap<String, String>, BTreeSet<String>) {
    let contents = |tree: &Tree| -> BTreeMap<String, String> {
        tree.files.iter().map(|(path, file)| (path.clone(), file.content.clone())).collect()
    };
    let (old, files) = (contents(old), contents(new));
    let is_kept = |path: &str| new.broken.keys().any(|folder| path.starts_with(&format!("{folder}/")));
    let deleted = old.keys().filter(|path| !keeps_files && !files.contains_key(*path) && !is_kept(path));
    let deleted = deleted.cloned().collect();
    (files.into_iter().filter(|(path, content)| old.get(path) != Some(content)).collect(), deleted)
}

fn check(old: &Inputs, new: &Inputs) -> Changes {
    let old = Fleet::new(old.clone());
    // Indexes of unchanged objects are shared, as they are in a server.
    let next = old.next(new.clone());
    let (before, after) =
        (render(&old, &FakeRenderer).unwrap(), render(&Fleet::new(new.clone()), &FakeRenderer).unwrap());
    let changes = changed(&old, &before.broken, &next, &FakeRenderer).unwrap();
    let (written, deleted) = expected(&before, &after, new.keeps_files());
    let found = changes.written.iter().map(|(path, file)| (path.clone(), file.content.clone())).collect();
    assert_eq!((written, deleted), (found, changes.deleted.clone()));
    assert_eq!(changes.broken, after.broken);
    for (path, file) in &changes.written {
        assert_eq!(file, &after.files[path]);
    }
    changes
}

fn written(changes: &Changes) -> Vec<&str> {
    changes.written.keys().map(String::as_str).collect()
}

#[test]
fn edit_of_one_config_changes_its_files_only() {
    let old = inputs();
    let mut new = old.clone();
    let labels = [("platform-config", "true"), ("region", "east")];
    new.config_maps.extend(named([config_map("east", &labels, &[("REGION", "East"), ("LIST", "[1, 2]")])]));
    assert_eq!(written(&check(&old, &new)), ["drone/hello-edge/platform-config.yaml"]);
}

#[test]
fn replaced_value_changes_no_file() {
    let mut old = inputs();
    let labels = [("platform-config", "true")];
    old.config_maps.extend(named([config_map("a", &labels, &[("ENVIRONMENT", "other")])]));
    let mut new = old.clone();
    new.config_maps.extend(named([config_map("a", &labels, &[("ENVIRONMENT", "another")])]));
    assert!(check(&old, &new).is_empty());
}

#[test]
fn other_reconciler_changes_its_file_only() {
    let mut old = inputs();
    old.templates.extend(named([template("argocd", "other: {{ .Namespace }}\n")]));
    let mut new = old.clone();
    Arc::make_mut(new.cluster_types.get_mut("drone").unwrap()).spec.reconciler = "argocd".to_owned();
    assert_eq!(written(&check(&old, &new)), ["drone/hello-edge/reconciler.yaml"]);
}

#[test]
fn removed_policy_deletes_its_folders() {
    let old = inputs();
    let mut new = old.clone();
    new.policies.clear();
    let changes = check(&old, &new);
    assert_eq!(changes.deleted.len(), 6);
    assert_eq!(changes.removed_folders, ["drone/hello-edge", "large/hello-edge"].map(str::to_owned).into());
    // An unreadable file may have had the policy.
    new.is_incomplete = true;
    let changes = check(&old, &new);
    assert!(changes.deleted.is_empty() && changes.removed_folders.is_empty());
    assert_eq!(changes.withheld.len(), 6);
}

#[test]
fn external_scheduler_deletes_after_its_first_answer() {
    let old = inputs();
    let mut new = old.clone();
    new.policies = named([externally(policy("all", json!({}), json!({})))]);
    let changes = check(&old, &new);
    assert!(changes.deleted.is_empty() && changes.removed_folders.is_empty(), "it has not answered");
    assert_eq!(changes.withheld.len(), 6);
    decided(&mut new, "all", &[decided_on(&["drone"], None)]);
    let changes = check(&old, &new);
    assert_eq!(changes.removed_folders, ["large/hello-edge".to_owned()].into());
    let mut other = new.clone();
    decided(&mut other, "all", &[decided_on(&["large"], None)]);
    let changes = check(&new, &other);
    assert_eq!(changes.removed_folders, ["drone/hello-edge".to_owned()].into());
    assert_eq!(changes.written.len(), 3);
}

#[test]
fn broken_assignment_keeps_its_files_until_it_is_repaired() {
    let old = inputs();
    let mut bad = old.clone();
    bad.config_schemas = named([config_schema("s", &[], r#"{"properties": {"REGION": {"enum": ["x"]}}}"#)]);
    let changes = check(&old, &bad);
    assert!(changes.is_empty());
    assert_eq!(changes.broken.keys().collect::<Vec<_>>(), ["drone/hello-edge"]);
    // Its files are unknown by now, so all of them are written.
    assert_eq!(check(&bad, &old).written.len(), 3);
}

#[test]
fn unchanged_fleet_renders_nothing() {
    #[derive(Debug)]
    struct Never;
    impl Renderer for Never {
        fn execute(&self, _: &Batch) -> Result<Vec<Result<Executed, TemplateError>>, RendererError> {
            Err(RendererError("a template was executed".to_owned()))
        }
    }
    let fleet = Fleet::new(inputs());
    assert!(changed(&fleet, &BTreeMap::new(), &Fleet::new(inputs()), &Never).unwrap().is_empty());
    // A config edit does not execute the templates that do not read it.
    let mut new = inputs();
    new.config_maps.clear();
    let changes = changed(&fleet, &BTreeMap::new(), &Fleet::new(new), &Never).unwrap();
    assert_eq!(changes.written.len(), 2);
}

/// A small fleet by numbers, so that a draw of other numbers is an edit.
fn any_inputs() -> impl Strategy<Value = Inputs> {
    let cluster_types = prop::collection::btree_map(0..4_u8, (0..3_u8, 0..2_u8, 0..3_u8, 0..6_u8), 0..4);
    let targets = prop::collection::btree_map(0..3_u8, (0..2_u8, 0..3_u8, 0..8_u8), 0..4);
    let policies = prop::collection::btree_map(0..3_u8, (0..4_u8, 0..4_u8, 0..7_u8), 0..3);
    let maps = prop::collection::btree_map(0..5_u8, (0..8_u8, 0..3_u8, 0..4_u8), 0..5);
    let schemas = prop::collection::btree_map(0..2_u8, (0..4_u8, 0..3_u8), 0..2);
    let templates = prop::collection::btree_map(0..5_u8, 0..5_u8, 3..5);
    let all = (cluster_types, targets, policies, maps, schemas, templates, prop::option::of(0..2_u8));
    all.prop_map(|(cluster_types, targets, policies, maps, schemas, templates, commit)| Inputs {
        environment: "dev".to_owned(),
        cluster_types: named(cluster_types.into_iter().map(any_cluster_type)),
        targets: named(targets.into_iter().map(any_target)),
        decisions: policies.iter().filter_map(|(at, (_, _, decision))| any_decisions(*at, *decision)).collect(),
        policies: named(policies.into_iter().map(|(at, (targets, types, decision))| {
            let policy = policy(&format!("p{at}"), any_selector("ring", targets), any_selector("region", types));
            if decision < LABELS_ALONE { policy } else { externally(policy) }
        })),
        config_maps: named(maps.into_iter().map(any_map)),
        config_schemas: named(schemas.into_iter().map(|(at, (label, schema))| {
            let labels = any_labels(label);
            let text =
                ["{}", r#"{"required": ["K0"]}"#, r#"{"properties": {"K1": {"type": "integer"}}}"#][schema as usize];
            config_schema(&format!("s{at}"), &labels, text)
        })),
        templates: named(templates.into_iter().map(|(at, text)| template(&format!("t{at}"), TEXTS[text as usize]))),
        promoted_commit: commit.map(|commit| commit.to_string()),
        is_incomplete: false,
    })
}

/// Policies with a lower number have no external scheduler.
const LABELS_ALONE: u8 = 4;

/// The decisions about a policy: none, some about all targets, or some about one.
fn any_decisions(at: u8, decision: u8) -> Option<(String, Arc<Vec<Decision>>)> {
    let decisions = match decision {
        5 => vec![decided_on(&["c0", "c1"], None)],
        6 => vec![decided_on(&["c1"], Some(&["w0-0"])), decided_on(&["c2"], Some(&["w1-1"]))],
        _ => return None,
    };
    Some((format!("p{at}"), Arc::new(decisions)))
}

const TEXTS: [&str; 5] = [
    "n: {{ .Namespace }}\n",
    "c: {{ .ConfigData.K0 }}\n",
    "p: {{ .Manifests.path }} {{ .Workload }}\n",
    "{{ fail }}",
    "",
];

const REGIONS: [&str; 3] = ["east", "west", "north"];
const RINGS: [&str; 3] = ["1", "2", "3"];

fn any_cluster_type(
    (at, (region, reconciler, namespace, config)): (u8, (u8, u8, u8, u8)),
) -> crate::objects::ClusterType {
    let mut it = cluster_type(&format!("c{at}"), &[("region", REGIONS[region as usize])]);
    it.spec.reconciler = format!("t{reconciler}");
    it.spec.namespace_service = format!("t{namespace}");
    it.spec.config_type = ["", "envFile", "t1", "t2", "t3", "t4"][config as usize].to_owned();
    it
}

fn any_target((at, (workload, ring, more)): (u8, (u8, u8, u8))) -> crate::objects::DeploymentTarget {
    let workload = format!("w{workload}");
    let mut it = target(&format!("{workload}-{at}"), &[("workload", &workload), ("ring", RINGS[ring as usize])]);
    let path = if more & 4 == 0 { "./a" } else { "{{ .ConfigData.K1 }}" };
    it.spec.manifests.insert("path".to_owned(), format!("{path}{}", more & 1));
    if more & 2 != 0 {
        it.spec.config_schemas.push(r#"{"properties": {"K1": {"type": "string"}}}"#.to_owned());
    }
    it
}

fn any_selector(key: &str, at: u8) -> serde_json::Value {
    let values = if key == "ring" { RINGS } else { REGIONS };
    match at {
        0 => json!({}),
        1 => json!({"matchExpressions": [{"key": key, "operator": "NotIn", "values": [values[0]]}]}),
        at => json!({"matchLabels": {key: values[at as usize - 2]}}),
    }
}

fn any_labels(at: u8) -> Vec<(&'static str, &'static str)> {
    match at {
        0 | 1 => vec![],
        2 => vec![("region", "east")],
        3 => vec![("cluster-type", "c1")],
        4 => vec![("ring", "1")],
        5 => vec![("workload", "w0"), ("region", "west")],
        6 => vec![("deployment-target", "w1-0")],
        _ => vec![("region", "east"), ("ring", "2")],
    }
}

fn any_map((at, (label, key, value)): (u8, (u8, u8, u8))) -> crate::objects::ConfigMap {
    let value = ["x", "5", "[{name: a, v: 1}]", "{a: {b: 1}}"][value as usize];
    let keys = ["K0", "K1", "K2"];
    if at == 4 {
        let azure =
            [format!("region.east.{}", keys[key as usize]), format!("ring.1.region.west.{}", keys[key as usize])];
        return config_map("azure-app-config", &[], &[(&azure[0], value), (&azure[1], "az"), ("K0", "plain")]);
    }
    let labels: Vec<_> = any_labels(label).into_iter().chain([("platform-config", "true")]).collect();
    config_map(&format!("m{at}"), &labels, &[(keys[key as usize], value), ("K1", "7")])
}

/// An edit: some parts of one fleet and the others of another.
fn mixed(old: &Inputs, other: &Inputs, choice: u8) -> Inputs {
    let mut new = old.clone();
    let is_chosen = |bit: u8| choice >> bit & 1 == 1;
    if is_chosen(0) {
        new.cluster_types.clone_from(&other.cluster_types);
    }
    if is_chosen(1) {
        new.targets.clone_from(&other.targets);
    }
    if is_chosen(2) {
        new.policies.clone_from(&other.policies);
        new.decisions.clone_from(&other.decisions);
    }
    if is_chosen(3) {
        new.config_maps.clone_from(&other.config_maps);
    }
    if is_chosen(4) {
        new.config_schemas.clone_from(&other.config_schemas);
    }
    if is_chosen(5) {
        new.templates.clone_from(&other.templates);
    }
    new.promoted_commit.clone_from(&other.promoted_commit);
    new.is_incomplete = is_chosen(6);
    new
}

proptest! {
    #[test]
    fn comparison_equals_two_whole_renderings(old in any_inputs(), other in any_inputs(), choice in 0..128_u8) {
        check(&old, &mixed(&old, &other, choice));
    }

    #[test]
    fn assignments_are_those_of_any_policy(inputs in any_inputs()) {
        let fleet = Fleet::new(inputs.clone());
        for cluster_type in inputs.cluster_types.values() {
            for target in inputs.targets.values() {
                let is_decided = |policy: &crate::objects::SchedulingPolicy| {
                    let decisions = inputs.decisions.get(&policy.name).map(|it| it.as_slice()).unwrap_or_default();
                    let has_target = |it: &Decision| {
                        it.deployment_targets.as_ref().is_none_or(|targets| targets.contains(&target.name))
                    };
                    decisions.iter().any(|it| it.cluster_types.contains(&cluster_type.name) && has_target(it))
                };
                let selects = |policy: &&Arc<crate::objects::SchedulingPolicy>| {
                    policy.spec.cluster_type_selector.label_selector.matches(&cluster_type.labels)
                        && policy.spec.deployment_target_selector.label_selector.matches(&target.labels)
                        && (policy.spec.scheduler.is_none() || is_decided(policy))
                };
                let expected: Vec<String> = inputs.policies.values().filter(selects).map(|it| it.name.clone()).collect();
                let found = fleet.schedule().assignment(&cluster_type.name, &target.name);
                prop_assert_eq!(found.map(|it| it.policies()).unwrap_or_default(), expected);
            }
        }
    }

    #[test]
    fn composed_values_equal_values_by_key(inputs in any_inputs()) {
        let fleet = Fleet::new(inputs);
        for it in fleet.schedule().assignments() {
            let composed = fleet.configuration().compose(it.cluster_type, it.target);
            for key in ["K0", "K1", "K2"] {
                let value = fleet.configuration().value(it.cluster_type, it.target, key);
                prop_assert_eq!(composed.values.get(key), value.as_ref());
            }
            prop_assert!(composed.values.keys().eq(composed.maps.keys()));
        }
    }
}
