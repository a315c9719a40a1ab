//! The rows about objects and files of the table in `reference/packages.md`.

use super::{Case, Kpt, run, tree};
use crate::kptfile::UpdateStrategy;

/// A ConfigMap with these lines of data.
fn config(data: &str) -> String {
    named("a", data)
}

fn named(name: &str, data: &str) -> String {
    let data: String = data.split(' ').map(|line| format!("  {}\n", line.replace(':', ": "))).collect();
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n{data}")
}

/// A Widget with these lines of its spec.
fn widget(spec: &str) -> String {
    format!("apiVersion: example.com/v1\nkind: Widget\nmetadata:\n  name: w\nspec:\n{spec}")
}

#[test]
fn field_on_both_sides_is_upstreams() {
    // kpt: upstream wins, silently.
    Case {
        origin: &[("a.yaml", &config("a:one b:one"))],
        upstream: &[("a.yaml", &config("a:two b:one"))],
        local: &[("a.yaml", &config("a:three b:mine"))],
        expected: &[("a.yaml", &config("a:two b:mine"))],
        conflicts: &[
            "a.yaml: ConfigMap a: data.a changed from \"one\" to \"two\" upstream and to \"three\" here; upstream's value is used",
        ],
        ..Case::default()
    }
    .check();
}

#[test]
fn deleted_field_comes_back_when_upstream_changes_it() {
    // kpt: comes back, silently.
    Case {
        origin: &[("a.yaml", &config("a:one b:one"))],
        upstream: &[("a.yaml", &config("a:two b:one"))],
        local: &[("a.yaml", &config("b:one"))],
        expected: &[("a.yaml", &config("b:one a:two"))],
        conflicts: &[
            "a.yaml: ConfigMap a: data.a is deleted here and changed upstream to \"two\"; upstream's value is used",
        ],
        ..Case::default()
    }
    .check();
}

#[test]
fn deleted_field_stays_deleted() {
    // kpt: the same.
    Case {
        origin: &[("a.yaml", &config("a:one b:one c:one"))],
        upstream: &[("a.yaml", &config("a:one b:two c:one"))],
        local: &[("a.yaml", &config("b:one c:one"))],
        expected: &[("a.yaml", &config("b:two c:one"))],
        ..Case::default()
    }
    .check();
}

#[test]
fn scalar_list_is_one_value() {
    // kpt: the same, silently.
    Case {
        origin: &[("a.yaml", &widget("  args:\n  - one\n"))],
        upstream: &[("a.yaml", &widget("  args:\n  - one\n  - two\n"))],
        local: &[("a.yaml", &widget("  args:\n  - zero\n  - one\n"))],
        expected: &[("a.yaml", &widget("  args:\n  - one\n  - two\n"))],
        conflicts: &[
            "a.yaml: Widget w: spec.args changed from [\"one\"] to [\"one\",\"two\"] upstream and to [\"zero\",\"one\"] here; upstream's value is used",
        ],
        ..Case::default()
    }
    .check();
}

#[test]
fn known_lists_merge_by_key() {
    // kpt: the same.
    let pod = |containers: &str| {
        format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\nspec:\n  containers:\n{containers}")
    };
    let service =
        |ports: &str| format!("apiVersion: v1\nkind: Service\nmetadata:\n  name: s\nspec:\n  ports:\n{ports}");
    Case {
        origin: &[
            ("p.yaml", &pod("  - name: web\n    image: web:1\n")),
            ("s.yaml", &service("  - port: 53\n    protocol: TCP\n  - port: 53\n    protocol: UDP\n")),
        ],
        upstream: &[
            ("p.yaml", &pod("  - name: web\n    image: web:2\n")),
            ("s.yaml", &service("  - port: 53\n    protocol: TCP\n  - port: 53\n    protocol: UDP\n    name: dns\n")),
        ],
        local: &[
            ("p.yaml", &pod("  # our proxy\n  - name: proxy\n    image: proxy:1\n  # the site\n  - name: web\n    image: web:1\n")),
            ("s.yaml", &service("  - port: 53\n    protocol: TCP\n    name: tcp # ours\n  - port: 53\n    protocol: UDP\n")),
        ],
        expected: &[
            ("p.yaml", &pod("  # our proxy\n  - name: proxy\n    image: proxy:1\n  # the site\n  - name: web\n    image: web:2\n")),
            ("s.yaml", &service("  - port: 53\n    protocol: TCP\n    name: tcp # ours\n  - port: 53\n    protocol: UDP\n    name: dns\n")),
        ],
        ..Case::default()
    }
    .check();
}

#[test]
fn custom_list_merges_by_name() {
    // kpt: upstream's list whole, local items and changes are lost.
    Case {
        origin: &[("a.yaml", &widget("  rules:\n  - name: one\n    to: a\n"))],
        upstream: &[("a.yaml", &widget("  rules:\n  - name: one\n    to: b\n"))],
        local: &[("a.yaml", &widget("  rules:\n  - name: one\n    to: a\n  - name: mine\n    to: c\n"))],
        expected: &[("a.yaml", &widget("  rules:\n  - name: one\n    to: b\n  - name: mine\n    to: c\n"))],
        kpt: Kpt::Files(&[("a.yaml", &widget("  rules:\n  - name: one\n    to: b\n"))]),
        ..Case::default()
    }
    .check();
}

#[test]
fn custom_list_merges_by_its_definition() {
    // kpt: upstream's list whole; the definition does not help.
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: widgets.example.com\nspec:\n  group: example.com\n  names:\n    kind: Widget\n    plural: widgets\n  scope: Namespaced\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n        type: object\n        properties:\n          spec:\n            type: object\n            properties:\n              rules:\n                type: array\n                x-kubernetes-list-type: map\n                x-kubernetes-list-map-keys:\n                - host\n                items:\n                  type: object\n                  properties:\n                    host:\n                      type: string\n                    to:\n                      type: string\n";
    Case {
        origin: &[("crd.yaml", definition), ("w.yaml", &widget("  rules:\n  - host: one\n    to: a\n"))],
        upstream: &[("crd.yaml", definition), ("w.yaml", &widget("  rules:\n  - host: one\n    to: b\n"))],
        local: &[
            ("crd.yaml", definition),
            ("w.yaml", &widget("  rules:\n  - host: mine\n    to: c\n  - host: one\n    to: a\n")),
        ],
        expected: &[
            ("crd.yaml", definition),
            ("w.yaml", &widget("  rules:\n  - host: mine\n    to: c\n  - host: one\n    to: b\n")),
        ],
        kpt: Kpt::Files(&[("crd.yaml", definition), ("w.yaml", &widget("  rules:\n  - host: one\n    to: b\n"))]),
        ..Case::default()
    }
    .check();
}

#[test]
fn custom_list_without_names_is_a_conflict() {
    // kpt: upstream's list, silently.
    Case {
        origin: &[("a.yaml", &widget("  rules:\n  - host: one\n"))],
        upstream: &[("a.yaml", &widget("  rules:\n  - host: two\n"))],
        local: &[("a.yaml", &widget("  rules:\n  - host: one\n  - host: mine\n"))],
        expected: &[("a.yaml", &widget("  rules:\n  - host: two\n"))],
        conflicts: &[
            "a.yaml: Widget w: spec.rules changed from [{\"host\":\"one\"}] to [{\"host\":\"two\"}] upstream and to [{\"host\":\"one\"},{\"host\":\"mine\"}] here; upstream's value is used",
        ],
        ..Case::default()
    }
    .check();
}

#[test]
fn changed_object_stays_when_upstream_deletes_it() {
    // kpt: the same, silently.
    Case {
        origin: &[("a.yaml", &config("a:one")), ("b.yaml", &named("b", "a:one"))],
        upstream: &[],
        local: &[("a.yaml", &config("a:two")), ("b.yaml", &named("b", "a:one"))],
        expected: &[("a.yaml", &config("a:two"))],
        conflicts: &["a.yaml: ConfigMap a is deleted upstream and changed here; it stays"],
        ..Case::default()
    }
    .check();
}

#[test]
fn deleted_object_stays_deleted_when_upstream_changes_it() {
    // kpt: the same, silently.
    Case {
        origin: &[("a.yaml", &config("a:one")), ("b.yaml", &named("b", "a:one"))],
        upstream: &[("a.yaml", &config("a:two")), ("b.yaml", &named("b", "a:one"))],
        conflicts: &["a.yaml: ConfigMap a is deleted here and changed upstream; it stays deleted"],
        ..Case::default()
    }
    .check();
}

#[test]
fn object_that_both_add_is_merged() {
    // kpt: the same, silently.
    Case {
        upstream: &[("a.yaml", &config("a:one b:one"))],
        local: &[("a.yaml", &config("a:two c:two"))],
        expected: &[("a.yaml", &config("a:one c:two b:one"))],
        conflicts: &[
            "a.yaml: ConfigMap a: data.a changed from nothing to \"one\" upstream and to \"two\" here; upstream's value is used",
        ],
        ..Case::default()
    }
    .check();
}

#[test]
fn moved_object_is_updated_in_its_file() {
    // kpt: never updated again.
    Case {
        origin: &[("a.yaml", &config("a:one"))],
        upstream: &[("a.yaml", &config("a:two"))],
        local: &[("in/here.yaml", &config("a:one"))],
        expected: &[("in/here.yaml", &config("a:two"))],
        kpt: Kpt::Files(&[("in/here.yaml", &config("a:one"))]),
        ..Case::default()
    }
    .check();
}

#[test]
fn object_moves_with_upstream() {
    // kpt: the local change is lost with the file.
    Case {
        origin: &[("a.yaml", &config("a:one b:one"))],
        upstream: &[("b.yaml", &config("a:two b:one"))],
        local: &[("a.yaml", &config("a:one b:mine"))],
        expected: &[("b.yaml", &config("a:two b:mine"))],
        kpt: Kpt::Files(&[("a.yaml", &config("a:one b:mine")), ("b.yaml", &config("a:two b:one"))]),
        ..Case::default()
    }
    .check();
}

#[test]
fn other_file_on_both_sides_stays() {
    // kpt: the same, silently. A file that was deleted here returns.
    Case {
        origin: &[("changed", "1"), ("here", "1"), ("there", "1"), ("removed", "1"), ("absent.md", "1")],
        upstream: &[("changed", "2"), ("here", "1"), ("there", "2"), ("absent.md", "1"), ("new/x", "1")],
        local: &[("changed", "3"), ("here", "2"), ("there", "1"), ("removed", "1")],
        expected: &[("changed", "3"), ("here", "2"), ("there", "2"), ("new/x", "1")],
        conflicts: &["changed changed upstream and here; it stays as it is here"],
        kpt: Kpt::Files(&[("changed", "3"), ("here", "2"), ("there", "2"), ("absent.md", "1"), ("new/x", "1")]),
        ..Case::default()
    }
    .check();
}

#[test]
fn environments_are_found_by_file() {
    // kpt: the same.
    Case {
        origin: &[("dev.yaml", &config("a:one")), ("prod.yaml", &config("a:one"))],
        upstream: &[("dev.yaml", &config("a:two")), ("prod.yaml", &config("a:three"))],
        local: &[("dev.yaml", &config("a:one b:dev")), ("prod.yaml", &config("a:one b:prod"))],
        expected: &[("dev.yaml", &config("a:two b:dev")), ("prod.yaml", &config("a:three b:prod"))],
        ..Case::default()
    }
    .check();
}

#[test]
fn renamed_object_gets_upstreams_changes() {
    // kpt: the same.
    let text = |name: &str, data: &str| named(name, data).replacen("metadata:\n", "metadata: # kpt-merge: /a\n", 1);
    Case {
        origin: &[("a.yaml", &config("a:one"))],
        upstream: &[("a.yaml", &config("a:two"))],
        local: &[("a.yaml", &text("mine", "a:one"))],
        expected: &[("a.yaml", &text("mine", "a:two"))],
        ..Case::default()
    }
    .check();
}

#[test]
fn new_object_is_marked_and_local_one_is_not() {
    // kpt: marks both.
    let marked = named("b", "a:one").replacen(
        "metadata:\n  name: b\n",
        "metadata: # kpt-merge: /b\n  name: b\n  annotations:\n    internal.kpt.dev/upstream-identifier: \"|ConfigMap|default|b\"\n",
        1,
    );
    Case {
        origin: &[],
        upstream: &[("b.yaml", &format!("# about b\n---\n{}", named("b", "a:one")))],
        local: &[("c.yaml", &named("c", "a:one"))],
        expected: &[("b.yaml", &format!("# about b\n---\n{marked}")), ("c.yaml", &named("c", "a:one"))],
        ..Case::default()
    }
    .check();
}

#[test]
fn conflicts_of_secrets_have_no_values() {
    let secret = |value: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\nstringData:\n  a: {value}\n  b: {value}\n")
    };
    let [origin, upstream, local] = ["one", "two", "three"].map(|value| tree(&[("s.yaml", &secret(value))]));
    for local in [local, tree(&[])] {
        let conflicts = run(UpdateStrategy::ResourceMerge, &origin, &upstream, &local).unwrap().conflicts;
        let data = serde_json::to_string(&conflicts).unwrap();
        assert!(data.contains("(sensitive)"), "{data}");
        assert!(["one", "two", "three"].iter().all(|secret| !data.contains(&format!("\"{secret}\""))), "{data}");
    }
}

#[test]
fn long_values_of_conflicts_are_shortened() {
    let config = |value: &str| {
        let value = value.repeat(1000);
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  a: {value}\n")
    };
    let [origin, upstream, local] = ["x", "y", "z"].map(|value| tree(&[("c.yaml", &config(value))]));
    let conflicts = run(UpdateStrategy::ResourceMerge, &origin, &upstream, &local).unwrap().conflicts;
    let text = conflicts[0].to_string();
    assert!(text.len() < 1000 && text.contains("x... (1002 bytes) to "), "{text}");
}
