//! What changed from one release to another.

use serde_json::Value;
use stoa_e2e::fixture::{Organization, config_maps};
use stoa_e2e::{Cluster, Server, Standalone};

/// A Namespace with two ConfigMaps, of which the second is named `second`, and an object of the kind `third`, which may be
/// a Secret: with this text in `field` and with the name of the second in a label.
fn spec(namespace: &str, second: &str, (third, field): (&str, &str), text: &str) -> String {
    let mut spec = config_maps(namespace, 1, "same");
    spec += &format!(
        "- id: v1:ConfigMap:{namespace}:{second}
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes:
    apiVersion: v1
    kind: ConfigMap
    metadata: {{name: {second}, namespace: {namespace}}}
- id: v1:{third}:{namespace}:db
  type: Kubernetes
  dependsOn: [\"v1:Namespace:{namespace}\"]
  attributes:
    apiVersion: v1
    kind: {third}
    metadata: {{name: db, namespace: {namespace}, labels: {{of: {second}}}}}
    {field}: {{password: {text}}}
"
    );
    spec
}

/// `shown` is how the change of the text is told.
fn releases_are_compared(server: &dyn Server, third: (&str, &str), shown: &str) {
    let organization = Organization::create(server);
    let name = &organization.name;
    let namespace = format!("{name}-web");
    for (second, text) in [("one", "hunter2-first"), ("two", "hunter2-second")] {
        organization.stack("web", &spec(&namespace, second, third, text));
        organization.succeed("web", "Apply", "");
    }
    organization.stack("other", &config_maps(&format!("{name}-other"), 1, "a"));
    organization.succeed("other", "Apply", "");
    let path = |release: &str, query: &str| {
        format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{name}/releases/{release}/diff{query}")
    };
    let raw = |release: &str, query: &str| server.kubectl().raw(&path(release, query));
    let (first, second) = (format!("web.{name}.1"), format!("web.{name}.2"));

    let text = raw(&second, "?format=text");
    let kind = third.0;
    let changed = format!(
        "~ changed  v1:{kind}:{namespace}:db
    data.password: {shown}
    metadata.labels.of: \"one\" → \"two\"
"
    );
    let others = format!("- removed  v1:ConfigMap:{namespace}:one\n+ added    v1:ConfigMap:{namespace}:two\n");
    // They are in the order of their ids.
    let changes = if kind == "Secret" { others + &changed } else { changed + &others };
    let expected = format!("From {first} to {second}:\n\n{changes}\n1 added, 1 changed, 1 removed; 2 unchanged.\n");
    assert_eq!(text, expected);

    let by_default = raw(&second, "");
    let diff: Value = serde_json::from_str(&by_default).unwrap();
    assert_eq!((&diff["from"]["name"], &diff["to"]["revision"]), (&first.as_str().into(), &2.into()), "{diff:#}");
    assert_eq!(diff["summary"], serde_json::json!({"added": 1, "changed": 1, "removed": 1}));
    assert_eq!(diff["unchanged"], 2);
    assert!(!by_default.contains("sha256"), "{by_default}");
    assert_eq!(by_default.contains("hunter2"), shown.contains("hunter2"), "{by_default}");
    for with in ["1", &first] {
        assert_eq!(raw(&second, &format!("?with={with}")), by_default, "{with}");
    }
    // Backwards, against itself, and the first against nothing.
    assert!(raw(&first, "?with=2&format=text").contains(&format!("+ added    v1:ConfigMap:{namespace}:one")));
    assert!(raw(&first, "?with=1&format=text").ends_with("no changes; 4 unchanged.\n"));
    assert!(raw(&first, "?format=text").ends_with("4 added; 0 unchanged.\n"));

    // Another stack of the project has its objects elsewhere.
    let across = raw(&second, &format!("?with=other.{name}.1&format=text"));
    assert!(across.starts_with(&format!("From other.{name}.1 to {second}:\n")), "{across}");
    assert!(across.contains("- removed  v1:Namespace:") && across.contains("+ added    v1:Namespace:"), "{across}");

    let refused = |query: &str| server.kubectl().refused(&["get", "--raw", &path(&second, query)]);
    for (query, expected) in [
        ("?with=7".to_owned(), format!("releases.delivery.stoa.dev \"web.{name}.7\" not found")),
        ("?with=Not/A/Name".to_owned(), "with: Invalid value: \"Not/A/Name\"".to_owned()),
        ("?format=png".to_owned(), "format: Unsupported value: \"png\"".to_owned()),
    ] {
        let message = refused(&query);
        assert!(message.contains(&expected), "{query}: {message}");
    }
}

#[test]
fn releases_are_compared_field_by_field_on_their_own() {
    // Secrets do not enter Git, where such a server deploys to.
    let shown = "\"hunter2-first\" → \"hunter2-second\"";
    releases_are_compared(&*Standalone::shared(), ("ConfigMap", "data"), shown);
}

#[test]
fn releases_are_compared_field_by_field_in_a_cluster() {
    releases_are_compared(&Cluster::shared(), ("Secret", "stringData"), "(sensitive) → (sensitive)");
}
