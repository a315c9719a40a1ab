use super::*;
use crate::{
    files::Tree,
    resources::{read, write},
};

/// The file after a function with a configuration, and the messages of its findings.
fn run(image: &str, config: &str, file: &str) -> Result<(String, Vec<String>), String> {
    run_within(&Limits::default(), image, config, file)
}

fn run_within(limits: &Limits, image: &str, config: &str, file: &str) -> Result<(String, Vec<String>), String> {
    let mut tree = Tree::default();
    tree.write("dir/a.yaml", file.as_bytes().to_vec()).unwrap();
    let before = read(&tree).unwrap();
    let mut items = before.clone();
    let config = (!config.is_empty()).then(|| {
        let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: config\ndata:\n{config}");
        let text = if config.starts_with("apiVersion") { config.to_owned() } else { text };
        Resource::new("", "config.yaml", crate::text::read(&text).unwrap(), Some(text))
    });
    let builtin = find(&format!("gcr.io/kpt-fn/{image}")).unwrap();
    let findings = builtin(&mut items, config.as_ref(), limits).map_err(|failure| failure.message)?;
    let tree = write(&tree, &before, &items).unwrap();
    let messages = findings.iter().map(ToString::to_string).collect();
    Ok((tree.text("dir/a.yaml").unwrap().to_owned(), messages))
}

/// The lines that a function adds to a file.
#[track_caller]
fn adds(image: &str, config: &str, file: &str, expected: &[&str]) {
    let (text, _) = run(image, config, file).unwrap();
    let added: Vec<&str> = text.lines().filter(|line| !file.lines().any(|it| it == *line)).collect();
    assert_eq!(added, expected, "{text}");
    let again = run(image, config, &text).unwrap().0;
    assert_eq!(again, text, "a second run changes nothing");
}

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web # kpt-set: ${app}
spec:
  replicas: 4 # kpt-set: ${replicas}
  template:
    spec:
      containers:
        - name: web
          image: \"nginx:1.16.1\" # kpt-set: nginx:${tag}
        - name: proxy
          image: registry:5000/envoy
          args: # kpt-set: ${args}
            - a
      volumes:
        - name: c
          configMap:
            name: settings
";

#[test]
fn images_with_registry_name_functions() {
    for (image, expected) in [
        ("ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2", true),
        ("gcr.io/kpt-fn/set-labels", true),
        ("gcr.io/kpt-fn/set-labels@sha256:0123", false),
        ("gcr.io/kpt-fn/set-labels:v0.2@sha256:0123", false),
        ("gcr.io/other/set-labels", false),
        ("gcr.io/kpt-fn/starlark", false),
    ] {
        assert_eq!(find(image).is_some(), expected, "{image}");
    }
}

#[test]
fn namespace_is_set_by_version() {
    let file = "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n---\napiVersion: e.x/v1\nkind: Own\nmetadata:\n  name: b\n\
                ---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: old\n";
    let new = "  namespace: new";
    adds("set-namespace:v0.2.0", "  namespace: new", file, &[new, new, "  name: new"]);
    adds("set-namespace:v0.4.1", "  namespace: new", file, &[new, "  name: new"]);
    let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: a\nsubjects:\n\
                   - kind: ServiceAccount\n  name: default\n  namespace: x1\n- kind: ServiceAccount\n  name: other\n  \
                   namespace: x2\n- kind: User\n  name: ann\n";
    adds("set-namespace:v0.2", "  namespace: new", binding, &[new]);
    adds("set-namespace", "  namespace: new", binding, &[new, new]);
    adds("set-namespace", "  namespace: new\n  namespaceMatcher: x2", binding, &[new]);
    let local = file.replace("metadata:\n", "metadata:\n  annotations: {config.kubernetes.io/local-config: 'true'}\n");
    adds("set-namespace", "  namespace: new", &local, &[]);
    let context = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: kptfile.kpt.dev\ndata:\n  name: new\n";
    adds("set-namespace", context, file, &[new, "  name: new"]);
    assert!(run("set-namespace", "  other: x", file).unwrap_err().starts_with("input namespace cannot be empty"));
    assert!(run("set-namespace", "", file).unwrap_err().starts_with("functionConfig is missing"));
}

#[test]
fn labels_are_set_with_selectors() {
    let expected =
        ["  labels:", "    a: b", "      labels:", "        a: b", "  selector:", "    matchLabels:", "      a: b"];
    let (text, messages) = run("set-labels", "  a: b", DEPLOYMENT).unwrap();
    expected.iter().for_each(|line| assert!(text.lines().any(|it| it == *line), "{line}: {text}"));
    assert_eq!(messages, ["[info]: set 3 labels in total"]);
    let policy = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata:\n  name: a\n  labels: {x: y}\nspec:\n  \
                  selector:\n    matchLabels:\n      app: web\n";
    adds("set-labels:v0.1.5", "  a: b", policy, &["  labels: {x: y, a: b}", "      a: b"]);
    adds("set-labels:v0.2.0", "  a: b", policy, &["  labels: {x: y, a: b}"]);
    adds("set-labels:v0.2.0", "  app: new", policy, &["  labels: {x: y, app: new}", "      app: new"]);
    let own = "apiVersion: fn.kpt.dev/v1alpha1\nkind: SetLabels\nmetadata:\n  name: c\nlabels: {m: 1}\n\
               additionalLabelFields: [{path: spec/own, kind: PodDisruptionBudget, create: true}]\n";
    adds("set-labels", own, policy, &["  labels: {x: y, m: \"1\"}", "  own:", "    m: \"1\""]);
}

#[test]
fn annotations_are_set_in_templates() {
    let (text, messages) = run("set-annotations", "  a: b", DEPLOYMENT).unwrap();
    assert_eq!(text.matches("annotations:\n").count(), 2, "{text}");
    assert_eq!(messages[0], "[info] metadata.annotations: set annotations: {\"a\":\"b\"}");
    assert_eq!(run("set-annotations", "  a: b", &text).unwrap().1, ["[info]: no annotations applied"]);
}

#[test]
fn images_are_set_by_name() {
    for (config, expected) in [
        ("  name: nginx\n  newTag: 1.21.4", "nginx:1.21.4"),
        ("  name: nginx\n  newName: bitnami/nginx", "bitnami/nginx:1.16.1"),
        ("  name: nginx\n  digest: sha256:0123", "nginx@sha256:0123"),
        ("  name: registry:5000/envoy\n  newTag: 1.10", "registry:5000/envoy:1.10"),
    ] {
        let (text, messages) = run("set-image", config, DEPLOYMENT).unwrap();
        assert!(text.contains(expected), "{text}");
        assert_eq!(messages, ["[info]: summary: updated a total of 1 image(s)"]);
    }
    assert_eq!(run("set-image", "  name: none\n  newTag: a", DEPLOYMENT).unwrap().0, DEPLOYMENT);
    for (config, expected) in [
        ("  newTag: a", "must specify `name`"),
        ("  name: a", "must specify one of `newName`, `newTag`, or `digest`"),
        ("  name: a\n  newTag: b\n  digest: c", "must not specify both `newTag` and `digest`"),
        ("  name: a\n  tag: b", "unknown field \"tag\"; use name, newName, newTag and digest"),
    ] {
        assert_eq!(run("set-image", config, DEPLOYMENT).unwrap_err(), expected);
    }
}

#[test]
fn setters_are_applied_to_commented_fields() {
    let config = "  replicas: 3\n  tag: 1.20\n  args: |\n    - b\n    - c\n";
    adds(
        "apply-setters",
        config,
        DEPLOYMENT,
        &[
            "  replicas: 3 # kpt-set: ${replicas}",
            "          image: \"nginx:1.20\" # kpt-set: nginx:${tag}",
            "            - b",
            "            - c",
        ],
    );
    adds("apply-setters", "  args: ''", DEPLOYMENT, &["          args: [] # kpt-set: ${args}"]);
    let (_, messages) = run("apply-setters", "  none: a", DEPLOYMENT).unwrap();
    assert_eq!(messages, ["[info]: no matches for input setter(s)"]);
    let file = "apiVersion: v1\nkind: A\nmetadata:\n  name: a-b # kpt-set: ${x}-${y}\nother: q # kpt-set: ${x}-${y}\n";
    let error = run("apply-setters", "  x: c", file).unwrap_err();
    assert_eq!(error, "failed to apply setters: A a-b other: values for setters [${y}] must be provided");
    adds(
        "apply-setters",
        "  x: c",
        &file.replace("q #", "q-r #"),
        &["  name: c-b # kpt-set: ${x}-${y}", "other: c-r # kpt-set: ${x}-${y}"],
    );
    let error = run("apply-setters", "  args: text", DEPLOYMENT).unwrap_err();
    assert!(error.ends_with("input to array setter must be an array of values, but found \"text\""), "{error}");
}

#[test]
fn fields_are_searched_and_replaced() {
    for (config, expected) in [
        ("  by-value: web\n  put-value: shop", vec!["  name: shop # kpt-set: ${app}", "        - name: shop"]),
        ("  by-path: spec.**.name\n  by-value: web\n  put-value: shop", vec!["        - name: shop"]),
        (
            "  by-value-regex: ngin(.*):(.*)\n  put-value: other${1}:${2}-a",
            vec!["          image: \"otherx:1.16.1-a\" # kpt-set: nginx:${tag}"],
        ),
        ("  by-value-regex: nginx\n  put-value: other", vec![]),
        ("  by-path: metadata.namespace\n  put-value: ns", vec!["  namespace: ns"]),
        ("  by-path: spec.replicas\n  put-value: '5'", vec!["  replicas: 5 # kpt-set: ${replicas}"]),
        ("  by-path: spec.replicas\n  by-file-path: other/**\n  put-value: '5'", vec![]),
        (
            "  by-path: spec.replicas\n  by-file-path: '*/{a,b}.yaml'\n  put-value: '5'",
            vec!["  replicas: 5 # kpt-set: ${replicas}"],
        ),
        ("  by-value: proxy\n  put-comment: 'kpt-set: ${proxy}'", vec!["        - name: proxy # kpt-set: ${proxy}"]),
        ("  by-path: '**.volumes'\n  put-comment: 'kpt-set: ${v}'", vec!["      volumes: # kpt-set: ${v}"]),
    ] {
        let (text, _) = run("search-replace", config, DEPLOYMENT).unwrap();
        let added: Vec<&str> = text.lines().filter(|line| !DEPLOYMENT.lines().any(|it| it == *line)).collect();
        assert_eq!(added, expected, "{config}\n{text}");
    }
    let (text, messages) = run("search-replace", "  by-value: '4'", DEPLOYMENT).unwrap();
    assert_eq!(
        (text.as_str(), messages),
        (DEPLOYMENT, vec!["[info] spec.replicas: Matched field value \"4\"".to_owned()])
    );
    assert_eq!(run("search-replace", "  by-value: none", DEPLOYMENT).unwrap().1, ["[info]: no matches"]);
    for (config, expected) in [
        ("  by: a", "invalid matcher \"by\""),
        ("  by-value: a\n  by-value-regex: b", "only one of"),
        ("  by-value-regex: '('", "failed to compile input pattern"),
        ("  by-value-regex: w(e)b\n  put-value: ${2}", "unable to resolve capture groups"),
        (
            "  by-path: kind.a\n  put-value: b",
            "failed to perform search-replace operation: Deployment web: kind.a is no",
        ),
    ] {
        let error = run("search-replace", config, DEPLOYMENT).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn names_get_a_substring_with_their_references() {
    let file = format!(
        "{DEPLOYMENT}---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  annotations:\n    \
                        config.kubernetes.io/depends-on: apps/namespaces/default/Deployment/web\n---\n\
                        apiVersion: v1\nkind: Namespace\nmetadata:\n  name: dev\n"
    );
    adds(
        "ensure-name-substring",
        "  prepend: prod-",
        &file,
        &[
            "  name: prod-web # kpt-set: ${app}",
            "            name: prod-settings",
            "  name: prod-settings",
            "    config.kubernetes.io/depends-on: apps/namespaces/default/Deployment/prod-web",
        ],
    );
    let own = "apiVersion: fn.kpt.dev/v1alpha1\nkind: EnsureNameSubstring\nmetadata:\n  name: c\nsubstring: -x\n\
               editMode: append\n";
    adds("ensure-name-substring", own, "apiVersion: v1\nkind: A\nmetadata:\n  name: a\n", &["  name: a-x"]);
    let error = run("ensure-name-substring", "  prepend: a\n  append: b", &file).unwrap_err();
    assert_eq!(error, "only 1 entry is allowed in the ConfigMap, but got: 2");
}

#[test]
fn replacements_copy_fields() {
    let file = format!(
        "{DEPLOYMENT}---\napiVersion: v1\nkind: Own\nmetadata:\n  name: own\nspec:\n  image: a:b\n  count: 1\n"
    );
    let config = |replacement: &str| {
        format!(
            "apiVersion: fn.kpt.dev/v1alpha1\nkind: ApplyReplacements\nmetadata:\n  name: c\nreplacements:\n- {replacement}\n"
        )
    };
    let source = "source: {kind: Deployment, fieldPath: ";
    let target = "targets: [{select: {kind: Own}, fieldPaths: [";
    for (replacement, expected) in [
        (format!("{{{source}metadata.name}}, {target}spec.image]}}]}}"), "  image: web"),
        (format!("{{{source}spec.replicas}}, {target}spec.count]}}]}}"), "  count: 4"),
        (format!("{{{source}spec.replicas}}, {target}spec.image]}}]}}"), "  image: \"4\""),
        (
            format!(
                "{{{source}'spec.template.spec.containers.[name=web].image', options: {{delimiter: ':', index: 1}}}}, \
                 {target}spec.image], options: {{delimiter: ':', index: 1}}}}]}}"
            ),
            "  image: a:1.16.1",
        ),
        (format!("{{sourceValue: x, {target}spec.new], options: {{create: true}}}}]}}"), "  new: x"),
    ] {
        adds("apply-replacements", &config(&replacement), &file, &[expected]);
    }
    for (replacement, expected) in [
        (format!("{{{source}spec.none}}, {target}spec.image]}}]}}"), "fieldPath `spec.none` is missing"),
        (format!("{{{source}metadata.name}}, {target}spec.none]}}]}}"), "unable to find field \"spec.none\""),
        ("{source: {kind: None}, targets: [{select: {kind: Own}}]}".to_owned(), "nothing selected by None"),
        ("{source: {version: v1}, targets: [{select: {kind: Own}}]}".to_owned(), "2 objects match the selector v1"),
        ("{source: {kind: Own}}".to_owned(), "replacements must specify a source and at least one target"),
    ] {
        let error = run("apply-replacements", &config(&replacement), &file).unwrap_err();
        assert!(error.starts_with("replacements[0]: ") && error.contains(expected), "{error}");
    }
}

#[test]
fn many_comments_are_put_at_once() {
    // One by one, this test takes minutes.
    let lines: String = (0..5000).map(|number| format!("  k{number}: v\n")).collect();
    let file = format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n{lines}");
    let config = "  by-value: v\n  put-value: w\n  put-comment: new\n";
    let (text, findings) = run("search-replace", config, &file).unwrap();
    assert_eq!((text, findings.len()), (file.replace(": v\n", ": w # new\n"), 5000));
}

#[test]
fn functions_write_no_more_than_one_file() {
    let limits = Limits { file_bytes: 1 << 20, ..Limits::default() };
    let own = |target: &str, options: &str| {
        format!(
            "- {{source: {{kind: Own, fieldPath: spec}}, targets: [{{select: {{kind: Own}}, fieldPaths: [{target}], options: {options}}}]}}\n"
        )
    };
    let replacements = |lines: String| {
        format!(
            "apiVersion: fn.kpt.dev/v1alpha1\nkind: ApplyReplacements\nmetadata:\n  name: c\nreplacements:\n{lines}"
        )
    };
    let text = own("spec", "{delimiter: ':', index: 99}").repeat(60);
    let twice = own("spec.a", "{create: true}") + &own("spec.b", "{create: true}");
    let [scalar, map] = ["spec: a", "spec: {c: 1}"].map(|spec| {
        format!("apiVersion: v1\nkind: Own\nmetadata:\n  name: own\n{spec} # kpt-set: {}\n", "${a}".repeat(1000))
    });
    let long = "x".repeat(2000);
    for (image, config, file) in [
        ("apply-replacements", replacements(text), &scalar),
        ("apply-replacements", replacements(twice.repeat(30)), &map),
        ("search-replace", format!("  by-value: a\n  put-value: {}\n", "x".repeat(2 << 20)), &scalar),
        ("apply-setters", format!("  a: {long}\n"), &scalar),
    ] {
        let error = run_within(&limits, image, &config, file).unwrap_err();
        assert!(error.contains("the function writes more than 1048576 bytes; copy less"), "{image}: {error}");
    }
}

#[test]
fn long_paths_are_rejected() {
    let path = "a.".repeat(200_000) + "a";
    let config = format!(
        "apiVersion: fn.kpt.dev/v1alpha1\nkind: ApplyReplacements\nmetadata:\n  name: c\nreplacements:\n- {{sourceValue: x, \
         targets: [{{select: {{kind: Deployment}}, fieldPaths: [{path}], options: {{create: true}}}}]}}\n"
    );
    let error = run("apply-replacements", &config, DEPLOYMENT).unwrap_err();
    assert!(error.contains("Deployment web would have more than 100 levels"), "{error}");
    let error = run("search-replace", &format!("  by-path: {path}\n  put-value: x\n"), DEPLOYMENT).unwrap_err();
    assert!(error.starts_with("by-path has more than 100 elements"), "{error}");
}
