use std::{fmt, sync::Mutex};

use serde_json::Value;

use super::*;
use crate::function::{Call, ExecuteError, Executor, NoExecutor, Output, Program};

/// A function of a test: it gets the list and gives the answer.
type Act = Box<dyn Fn(&str, &str) -> Output + Send + Sync>;

/// Runs functions in the test and notes the input of each.
struct Fake {
    act: Act,
    calls: Mutex<Vec<(String, String)>>,
}

impl fmt::Debug for Fake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Fake")
    }
}

impl Executor for Fake {
    fn execute(&self, call: &Call<'_>) -> Result<Output, ExecuteError> {
        let Program::Exec(name) = call.program else {
            return Err(ExecuteError::ImageNotAllowed(call.program.to_string()));
        };
        let input = String::from_utf8(call.input.to_vec()).unwrap();
        self.calls.lock().unwrap().push((name.to_owned(), input.clone()));
        Ok((self.act)(name, &input))
    }
}

fn fake(act: impl Fn(&str, &str) -> Output + Send + Sync + 'static) -> Fake {
    Fake { act: Box::new(act), calls: Mutex::default() }
}

fn success(stdout: impl Into<Vec<u8>>) -> Output {
    Output { stdout: stdout.into(), ..Output::default() }
}

fn tree(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::default();
    for (path, text) in files {
        tree.write(path, text.as_bytes().to_vec()).unwrap();
    }
    tree
}

fn kptfile(name: &str, pipeline: &str) -> String {
    format!("apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: {name}\npipeline: {pipeline}\n")
}

fn config_map(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  a: x # why\n")
}

fn rendered_by(tree: &Tree, executor: &dyn Executor) -> Result<Rendered, Box<RenderFailure>> {
    render(tree, &Functions { executor, uses_builtins: true }, &Limits::default())
}

/// The names of the objects that a function got.
fn names(input: &str) -> Vec<String> {
    let list = crate::text::read_list(input).unwrap().value;
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn packages_render_before_the_one_around_them() {
    let files = [
        ("Kptfile", kptfile("root", "{mutators: [{exec: r1}, {exec: r2}], validators: [{exec: v}]}")),
        ("own.yaml", config_map("own")),
        ("b/Kptfile", kptfile("b", "{mutators: [{exec: b}]}")),
        ("a/Kptfile", kptfile("a", "{mutators: [{exec: a}]}")),
        ("a/in/Kptfile", kptfile("in", "{mutators: [{exec: in}]}")),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let order = |tree: &Tree| {
        let fake = fake(|_, input| success(input));
        let rendered = rendered_by(tree, &fake).unwrap();
        assert_eq!((&rendered.tree, rendered.packages), (tree, 4));
        let calls = fake.calls.into_inner().unwrap();
        calls.into_iter().map(|(name, input)| format!("{name}: {}", names(&input).join(" "))).collect::<Vec<_>>()
    };
    let all = "in a b root own";
    let expected = ["in: in", "a: in a", "b: b", &format!("r1: {all}"), &format!("r2: {all}"), &format!("v: {all}")];
    assert_eq!(order(&tree(&files)), expected);
    let mut bfs = tree(&files);
    let text = files[0].1.replace("name: root\n", "name: root\n  annotations: {kpt.dev/bfs-rendering: 'true'}\n");
    bfs.write("Kptfile", text).unwrap();
    let all = "root own a in b";
    let expected = [&format!("r1: {all}"), &format!("r2: {all}"), &format!("v: {all}"), "a: a in", "b: b", "in: in"];
    assert_eq!(order(&bfs), expected);
}

#[test]
fn parent_gets_the_results_of_children() {
    let tree = tree(&[
        ("Kptfile", &kptfile("root", "{mutators: [{exec: parent}]}")),
        ("a/Kptfile", &kptfile("a", "{mutators: [{exec: child}]}")),
        ("a/x.yaml", &config_map("x")),
    ]);
    let fake = fake(|name, input| match name {
        "child" => success(input.replace("a: x", "a: child")),
        _ => success(input.replace("a: child", "a: parent")),
    });
    let rendered = rendered_by(&tree, &fake).unwrap();
    assert_eq!(rendered.tree.text("a/x.yaml"), Some(config_map("x").replace("a: x", "a: parent").as_str()));
    assert_eq!(rendered.results.items.len(), 2);
}

#[test]
fn changes_of_validators_are_dropped() {
    let tree = tree(&[("Kptfile", &kptfile("p", "{validators: [{exec: v}]}")), ("a.yaml", &config_map("a"))]);
    let fake = fake(|_, input| success(input.replace("a: x", "a: changed")));
    assert_eq!(rendered_by(&tree, &fake).unwrap().tree, tree);
}

#[test]
fn failed_function_names_its_reasons() {
    let pipeline = "{mutators: [{exec: good}, {exec: bad arg}, {exec: never}]}";
    let tree = tree(&[("Kptfile", &kptfile("p", pipeline)), ("a.yaml", &config_map("a"))]);
    let fake = fake(|name, input| match name {
        "good" => success(input.replace("a: x", "a: y")),
        "bad arg" => Output {
            stdout: format!(
                "{input}results:\n- {{message: wrong, severity: error, field: {{path: data.a, currentValue: 3}}}}\n"
            )
            .into_bytes(),
            stderr: "it broke\n".to_owned(),
            exit_code: 3,
        },
        _ => panic!("{name} ran"),
    });
    let failure = rendered_by(&tree, &fake).unwrap_err();
    let expected = "function bad arg of package \"\" (pipeline.mutators[1]) failed: exit code 3; \
                    [error] data.a: wrong; stderr: it broke";
    let status = failure.to_render_status();
    assert_eq!(status["error"], expected);
    assert_eq!(status["result"]["exitCode"], 1);
    assert_eq!(status["result"]["items"][1]["exitCode"], 3);
    assert_eq!(status["result"]["items"][1]["results"][0]["field"]["currentValue"], "3");
    assert_eq!(status["result"]["items"][1]["stderr"], "it broke\n");
    assert_eq!(status["result"]["items"].as_array().unwrap().len(), 2);
}

#[test]
fn malformed_answers_fail_the_render() {
    let tree = tree(&[("Kptfile", &kptfile("p", "{mutators: [{exec: f}]}")), ("a.yaml", &config_map("a"))]);
    for answer in ["", "items: []", "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems: []\n", "{}"] {
        let fake = fake(move |_, _| success(answer));
        let failure = rendered_by(&tree, &fake).unwrap_err();
        let error = with_causes(&failure.error);
        assert!(error.contains("(pipeline.mutators[0]) failed: its answer is rejected: the answer "), "{error}");
        assert_eq!(failure.results.items[0].exit_code, 1);
    }
}

#[test]
fn results_of_severity_error_with_exit_code_zero_pass() {
    let tree = tree(&[("Kptfile", &kptfile("p", "{validators: [{exec: f}]}"))]);
    let fake = fake(|_, input| success(format!("{input}results:\n- {{message: no, severity: error}}\n")));
    let rendered = rendered_by(&tree, &fake).unwrap();
    assert_eq!(rendered.results.exit_code, 0);
    assert_eq!(rendered.results.items[0].results[0].to_string(), "[error]: false");
}

#[test]
fn selected_objects_are_merged_back() {
    let pipeline = "{mutators: [{exec: f, selectors: [{name: b}, {name: c}]}]}";
    let text = ["a", "b", "c", "d"].map(config_map).join("---\n");
    let tree = tree(&[("Kptfile", &kptfile("p", pipeline)), ("x.yaml", &text)]);
    let fake = fake(|_, input| {
        assert_eq!(names(input), ["b", "c"]);
        let mut list = crate::text::read_list(input).unwrap().value;
        let items = list["items"].as_array_mut().unwrap();
        items[1]["data"]["a"] = "changed".into();
        items[0] = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new"}});
        success(list.to_string())
    });
    let rendered = rendered_by(&tree, &fake).unwrap().tree;
    let expected = [config_map("a"), config_map("c").replace("a: x", "a: changed"), config_map("d")].join("---\n");
    assert_eq!(rendered.text("x.yaml"), Some(expected.as_str()));
    assert_eq!(rendered.text("secret_new.yaml"), Some("apiVersion: v1\nkind: Secret\nmetadata:\n  name: new\n"));
}

#[test]
fn comments_that_a_function_loses_are_restored() {
    let text = "# head\napiVersion: v1\nkind: ConfigMap # kind\nmetadata:\n  name: a\ndata:\n  # above\n  a: x # why\n  b: y # also\n";
    let tree = tree(&[("Kptfile", &kptfile("p", "{mutators: [{exec: f}]}")), ("x.yaml", text)]);
    // JSON has no comments, and the keys come in another order.
    let fake = fake(|_, input| {
        let mut list = crate::text::read_list(input).unwrap().value;
        let items = list["items"].as_array_mut().unwrap();
        let item = items.iter_mut().find(|item| item["kind"] == "ConfigMap").unwrap();
        item["data"]["a"] = "changed".into();
        let answer = list.to_string();
        assert!(!answer.contains('#'), "{answer}");
        success(answer)
    });
    let rendered = rendered_by(&tree, &fake).unwrap().tree;
    assert_eq!(rendered.text("x.yaml"), Some(&*text.replace("a: x", "a: changed")));
}

#[test]
fn function_with_nothing_selected_runs() {
    let pipeline = "{mutators: [{exec: f, selectors: [{name: none}]}]}";
    let tree = tree(&[("Kptfile", &kptfile("p", pipeline)), ("x.yaml", &config_map("a"))]);
    let fake = fake(|_, input| success(input));
    assert_eq!(rendered_by(&tree, &fake).unwrap().tree, tree);
    assert!(fake.calls.lock().unwrap()[0].1.contains("items: []\n"));
}

#[test]
fn configuration_is_that_of_earlier_functions() {
    let pipeline =
        "{mutators: [{exec: first}, {exec: second, configPath: ./config.yaml}, {exec: third, configMap: {k: '1'}}]}";
    let tree = tree(&[("Kptfile", &kptfile("p", pipeline)), ("config.yaml", &config_map("config"))]);
    let fake = fake(|name, input| {
        let config = crate::text::read_list(input).unwrap().value["functionConfig"].clone();
        match name {
            "first" => assert_eq!(config, Value::Null),
            "second" => assert_eq!(config["data"]["a"], "new"),
            _ => {
                assert_eq!((&config["metadata"]["name"], &config["data"]["k"]), (&"function-input".into(), &"1".into()))
            }
        }
        success(input.replace("a: x", "a: new"))
    });
    rendered_by(&tree, &fake).unwrap();
}

#[test]
fn new_object_is_in_the_folder_of_the_configuration() {
    for (config_path, expected) in [
        ("config.yaml", "db/n1/secret_s.yaml"),
        ("x/config.yaml", "db/x/n1/secret_s.yaml"),
        ("x/functions/config.yaml", "db/x/n1/secret_s.yaml"),
        ("functions/config.yaml", "db/n1/secret_s.yaml"),
    ] {
        let tree = tree(&[
            ("Kptfile", &kptfile("root", "{}")),
            ("db/Kptfile", &kptfile("db", &format!("{{mutators: [{{exec: f, configPath: {config_path}}}]}}"))),
            (&format!("db/{config_path}"), &config_map("config")),
        ]);
        let new = "- {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: n1}}\n";
        let fake = fake(move |_, input| success(input.replace("items:\n", &format!("items:\n{new}"))));
        let tree = rendered_by(&tree, &fake).unwrap().tree;
        assert!(tree.get(expected).is_some(), "{config_path}: {:?}", tree.paths().collect::<Vec<_>>());
    }
}

#[test]
fn broken_packages_are_not_rendered() {
    let good = kptfile("p", "{}");
    for (files, expected) in [
        (vec![("a.yaml", config_map("a"))], "Kptfile of package \"\" is rejected: the package has no Kptfile"),
        (vec![("Kptfile", good.clone() + "x: 1\n")], "Kptfile of package \"\" is rejected: Kptfile is invalid: x: "),
        (
            vec![("Kptfile", good.clone()), ("a/Kptfile", kptfile("a", "{mutators: [{name: f}]}"))],
            "pipeline of package \"a\" is rejected: Kptfile is invalid: pipeline.mutators[0]: must specify",
        ),
        (
            vec![("Kptfile", good.clone()), ("values.yaml", "a: 1\n".to_owned())],
            "values.yaml, document 0: resource must have `apiVersion`; packages must contain only KRM resources, list",
        ),
        (
            vec![("Kptfile", kptfile("p", "{mutators: [{exec: rm -rf}]}"))],
            "function rm -rf of package \"\" (pipeline.mutators[0]) failed: it did not run: exec \"rm -rf\" is not allowed",
        ),
        (
            vec![("Kptfile", kptfile("p", "{mutators: [{image: unknown}]}"))],
            "function unknown of package \"\" (pipeline.mutators[0]) failed: it did not run: image \
             ghcr.io/kptdev/krm-functions-catalog/unknown is not allowed",
        ),
    ] {
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
        let failure = rendered_by(&tree(&files), &NoExecutor).unwrap_err();
        let error = with_causes(&failure.error);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn built_in_functions_need_no_executor() {
    let pipeline = "{mutators: [{image: 'set-namespace:v0.2.0', configMap: {namespace: staging}}, \
                    {image: 'ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.1.5', configMap: {tier: backend}}]}";
    let tree = tree(&[("Kptfile", &kptfile("p", pipeline)), ("a.yaml", &config_map("a"))]);
    let rendered = rendered_by(&tree, &NoExecutor).unwrap();
    let expected = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels:\n    tier: backend\n  \
                    namespace: staging\ndata:\n  a: x # why\n";
    assert_eq!(rendered.tree.text("a.yaml"), Some(expected));
    let again = rendered_by(&rendered.tree, &NoExecutor).unwrap();
    assert_eq!(again.tree, rendered.tree);
}

#[test]
fn large_packages_render() {
    let mut large = tree(&[("Kptfile", &kptfile("root", "{mutators: [{image: set-labels, configMap: {a: b}}]}"))]);
    for package in 0..100 {
        large.write(&format!("p{package}/Kptfile"), kptfile("p", "{}")).unwrap();
        for file in 0..10 {
            large.write(&format!("p{package}/f{file}.yaml"), config_map(&format!("c{file}"))).unwrap();
        }
    }
    let rendered = rendered_by(&large, &NoExecutor).unwrap();
    assert_eq!((rendered.packages, rendered.tree.len()), (101, large.len()));
    assert!(rendered.tree.text("p99/f9.yaml").unwrap().contains("labels:\n    a: b\n"));
}

#[test]
fn results_are_within_the_limits() {
    let pipeline = "{mutators: [{exec: grow}]}";
    let tree = tree(&[("Kptfile", &kptfile("p", pipeline)), ("a.yaml", &config_map("a"))]);
    let grow = fake(|_, input| success(input.replace("a: x", &format!("a: {}", "x".repeat(2000)))));
    let functions = Functions { executor: &grow, uses_builtins: true };
    let limits = Limits { file_bytes: 1000, ..Limits::default() };
    let failure = render(&tree, &functions, &limits).unwrap_err();
    assert!(matches!(failure.error, RenderError::Tree(TreeError::FileTooLarge { .. })), "{:?}", failure.error);
    let function = Function { exec: "grow".to_owned(), ..Function::default() };
    let failure = eval(&tree, &function, &functions, &limits).unwrap_err();
    assert!(matches!(failure.error, RenderError::Tree(TreeError::FileTooLarge { .. })), "{:?}", failure.error);
}

#[test]
fn long_pipelines_are_within_the_limits() {
    let double = |value: &str| {
        format!("{{image: 'search-replace:v0', configMap: {{by-value-regex: '(x+)', put-value: '{value}'}}}}")
    };
    let mutators = vec![double("${1}${1}"); 40].join(", ");
    let tree =
        tree(&[("Kptfile", &kptfile("p", &format!("{{mutators: [{mutators}]}}"))), ("a.yaml", &config_map("a"))]);
    let limits = Limits { bytes: 100_000, ..Limits::default() };
    let functions = Functions { executor: &NoExecutor, uses_builtins: true };
    let failure = render(&tree, &functions, &limits).unwrap_err();
    let message = crate::text::with_causes(&*failure);
    assert!(message.contains("more than 100000; split it"), "{message}");
}
