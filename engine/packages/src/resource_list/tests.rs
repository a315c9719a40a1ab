use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{files::Tree, resources::read};

const FILE: &str = "\
# head
apiVersion: v1
kind: ConfigMap
metadata:
  name: a # first
data:
  x: |
    text

    more
  list:
    - 1 # one
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b}
";

fn tree() -> Tree {
    let mut tree = Tree::default();
    tree.write("Kptfile", "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: p}\n").unwrap();
    tree.write("db/Kptfile", "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: q}\n").unwrap();
    tree.write("db/a.yaml", FILE).unwrap();
    tree
}

/// The answer to a list after its text was changed.
fn exchanged(change: impl FnOnce(&str) -> String) -> Result<Vec<Resource>, AnswerError> {
    let tree = tree();
    let items = read(&tree).unwrap();
    let input = encode(&items, None);
    let request = Request { tree: &tree, package: "", folder: "", items: &items, is_read_only: false };
    request.decode(change(&input).as_bytes()).map(|answer| answer.items)
}

#[test]
fn list_has_objects_with_comments_and_annotations() {
    let items = read(&tree()).unwrap();
    let config = Resource::new("", "", json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}), None);
    insta::assert_snapshot!(encode(&items[2..], Some(&config)), @r#"
    apiVersion: config.kubernetes.io/v1
    kind: ResourceList
    items:
    # head
    - apiVersion: v1
      kind: ConfigMap
      metadata:
        name: a # first
        annotations:
          config.k8s.io/id: "1"
          config.kubernetes.io/index: "0"
          config.kubernetes.io/path: a.yaml
          internal.config.kubernetes.io/id: "1"
          internal.config.kubernetes.io/index: "0"
          internal.config.kubernetes.io/package-path: /db
          internal.config.kubernetes.io/path: a.yaml
          internal.config.kubernetes.io/seqindent: wide
      data:
        x: |
          text

          more
        list:
          - 1 # one
    - apiVersion: v1
      kind: ConfigMap
      metadata: {name: b, annotations: {config.k8s.io/id: "2", config.kubernetes.io/index: "1", config.kubernetes.io/path: a.yaml, internal.config.kubernetes.io/id: "2", internal.config.kubernetes.io/index: "1", internal.config.kubernetes.io/package-path: /db, internal.config.kubernetes.io/path: a.yaml, internal.config.kubernetes.io/seqindent: compact}}
    functionConfig:
      apiVersion: v1
      kind: ConfigMap
      data:
        a: b
    "#);
}

#[test]
fn unchanged_answer_changes_nothing() {
    let items = read(&tree()).unwrap();
    assert_eq!(exchanged(str::to_owned).unwrap(), items);
    // The same as JSON.
    let json = |text: &str| format!("{:#}", text::read_list(text).unwrap().value);
    assert_eq!(exchanged(json).unwrap(), items);
}

#[test]
fn texts_with_odd_forms_pass_through_the_list() {
    for text in [
        "apiVersion: v1\r\nkind: A\r\nmetadata:\r\n  name: a # x\r\n",
        "{\"apiVersion\": \"v1\",\n\"kind\": \"A\", \"metadata\": {\"name\": \"a\"}}\n",
        "apiVersion: v1\nkind: A\nmetadata:\n  name: a\ns: \"one\n  two\"\nt: 'x\n\n  y'\n",
        "apiVersion: v1\nkind: A\nmetadata: &m\n  name: a\nother: *m\n",
        "apiVersion: v1\nkind: A\nmetadata: {name: a}\nt: |2\n    x\n  y\n",
        "# only\n# head\n\napiVersion: v1\nkind: A\nmetadata:\n    name: a\nlist:\n-   x\n-   y\n",
        "kind: A\napiVersion: v1\nmetadata:\n  name: a\n  annotations: {}\n",
        "kind: A\napiVersion: v1\nmetadata:\n  name: a\n  annotations:\n    config.kubernetes.io/path: own\n",
    ] {
        let mut tree = Tree::default();
        tree.write("a.yaml", text).unwrap();
        let items = read(&tree).unwrap();
        let input = encode(&items, None);
        let request = Request { tree: &tree, package: "", folder: "", items: &items, is_read_only: false };
        let answer = request.decode(input.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}\n{input}"));
        assert_eq!(crate::resources::write(&tree, &items, &answer.items), Ok(tree.clone()), "{input}");
    }
}

#[test]
fn malformed_answers_are_rejected() {
    let cases: [(&str, &str); 10] = [
        ("", "the answer is empty"),
        ("# nothing\n", "the answer is empty"),
        ("a: [", "the answer is no YAML"),
        ("Hello\n", "the answer is a scalar, not a ResourceList"),
        ("- a\n", "the answer is a list, not a ResourceList"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n", "the answer is an object of v1 ConfigMap"),
        ("a: 1\n", "the answer is an object without kind"),
        ("apiVersion: config.kubernetes.io/v1\nkind: ResourceList\n", "the answer has no list of items"),
        (
            "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems: []\n",
            "the answer has no Kptfile of package",
        ),
        (
            "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems: [{a: b}]\n",
            "output resource list must contain only KRM resources: item 0: resource must have `apiVersion`",
        ),
    ];
    for (answer, expected) in cases {
        let error = exchanged(|_| answer.to_owned()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{answer:?}: {error}");
    }
    let tree = Tree::default();
    let request = Request { tree: &tree, package: "", folder: "", items: &[], is_read_only: false };
    assert!(matches!(request.decode(b"\xff"), Err(AnswerError::NotText)));
    let results = "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems: []\nresults: text\n";
    assert!(matches!(request.decode(results.as_bytes()), Err(AnswerError::Results(_))));
}

#[test]
fn lost_kptfile_is_rejected() {
    let error = exchanged(|text| text.replace("kind: Kptfile", "kind: Other")).unwrap_err();
    assert!(matches!(error, AnswerError::Path(_) | AnswerError::LosesKptfile { .. }), "{error}");
    let lost = "apiVersion: config.kubernetes.io/v1\nkind: ResourceList\nitems:\n- apiVersion: kpt.dev/v1\n  \
                kind: Kptfile\n  metadata: {name: p}\n";
    let error = exchanged(|_| lost.to_owned()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the answer has a new Kptfile \"p\" without path; return every Kptfile with its annotations"
    );
}

#[test]
fn changed_path_annotation_of_either_family_wins() {
    let moved = |from: &str, to: &str| {
        let (from, to) = (from.to_owned(), to.to_owned());
        exchanged(move |text| text.replacen(&from, &to, 1)).map(|items| items[2].file())
    };
    for key in ["    config.kubernetes.io/path: ", "internal.config.kubernetes.io/path: "] {
        assert_eq!(moved(&format!("{key}a.yaml"), &format!("{key}b.yaml")).unwrap(), "db/b.yaml", "{key}");
    }
    let error = exchanged(|text| {
        text.replacen("    config.kubernetes.io/path: a.yaml", "    config.kubernetes.io/path: b.yaml", 1).replacen(
            "internal.config.kubernetes.io/path: a.yaml",
            "internal.config.kubernetes.io/path: c.yaml",
            1,
        )
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "mismatched legacy and internal path annotations of ConfigMap a: \"b.yaml\" and \"c.yaml\"; set both"
    );
}

#[test]
fn rejected_paths_name_the_object() {
    for (path, expected) in [
        ("../x.yaml", "function must not modify resources outside of package: resource has path ../x.yaml"),
        ("a/../../x.yaml", "function must not modify resources outside of package"),
        ("/x/y.yaml", "ConfigMap a has path \"/x/y.yaml\", which has an absolute path"),
        ("x.txt", "ConfigMap a has path \"x.txt\", which is no *.yaml"),
    ] {
        let error = exchanged(|text| text.replacen("/path: a.yaml", &format!("/path: {path}"), 2)).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{path}: {error}");
    }
    let error = exchanged(|text| text.replacen("/index: \"0\"", "/index: \"1\"", 20)).unwrap_err();
    assert!(error.to_string().starts_with("resource at path \"db/a.yaml\" and index \"1\" already exists"), "{error}");
    let error = exchanged(|text| text.replace("package-path: /db", "package-path: /tmp")).unwrap_err();
    assert!(error.to_string().contains("has package-path \"/tmp\", which is no package of the input"), "{error}");
}

#[test]
fn new_objects_keep_the_text_of_the_answer() {
    let new = "- kind: Role # a role\n  apiVersion: v1\n  metadata:\n    name: x\n    namespace: ns\n# end\n";
    let items = exchanged(|text| text.replace("items:\n", &format!("items:\n{new}"))).unwrap();
    assert_eq!(items[0].file(), "ns/role_x.yaml");
    assert_eq!(items[0].text(), "kind: Role # a role\napiVersion: v1\nmetadata:\n  name: x\n  namespace: ns\n");
    assert_eq!(items.len(), 5);
}

#[test]
fn comments_of_functions_are_added() {
    let items =
        exchanged(|text| text.replace("- 1 # one", "- 1 # kpt-set: ${n}").replace("name: a # first", "name: a"));
    assert_eq!(items.unwrap()[2].text(), FILE[..FILE.find("---").unwrap()].replace("# one", "# kpt-set: ${n}"));
}

#[test]
fn objects_without_annotations_are_recognised_by_name() {
    let items = exchanged(|text| {
        let mut value = text::read_list(text).unwrap().value;
        let item = value["items"][2].as_object_mut().unwrap();
        item["metadata"].as_object_mut().unwrap().remove("annotations");
        item["data"]["x"] = json!("y");
        value.to_string()
    });
    let items = items.unwrap();
    assert_eq!((items[2].file().as_str(), items[2].index), ("db/a.yaml", Some(0)));
    assert!(items[2].text().starts_with("# head\n"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// An answer with a damaged piece is rejected or written, and never stops the program.
    #[test]
    fn damaged_answers_are_rejected_or_written(
        at in 0_usize..2000,
        length in 0_usize..40,
        new in "[-a: \\n#{}\\[\\]\"'&*|>é]{0,4}",
    ) {
        let tree = tree();
        let items = read(&tree).unwrap();
        let mut answer: Vec<char> = encode(&items, None).chars().collect();
        let start = at.min(answer.len());
        let end = (start + length).min(answer.len());
        answer.splice(start..end, new.chars());
        let answer: String = answer.into_iter().collect();
        let request = Request { tree: &tree, package: "", folder: "", items: &items, is_read_only: false };
        if let Ok(answer) = request.decode(answer.as_bytes()) {
            let written = crate::resources::write(&tree, &items, &answer.items);
            if let Ok(written) = written {
                let objects = |items: &[Resource]| {
                    let mut objects: Vec<String> = items.iter().map(|it| it.value.to_string()).collect();
                    objects.sort();
                    objects
                };
                prop_assert_eq!(objects(&read(&written).unwrap()), objects(&answer.items));
            }
        }
    }
}

#[test]
fn many_new_comments_are_added_at_once() {
    // One by one, this test takes minutes.
    let lines: String = (0..5000).map(|number| format!("  k{number}: v\n")).collect();
    let mut tree = Tree::default();
    tree.write("a.yaml", format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n{lines}")).unwrap();
    let items = read(&tree).unwrap();
    let (input, mut number) = (encode(&items, None), 0);
    let mut commented = String::new();
    for line in input.lines() {
        number += 1;
        let comment = if line.ends_with(": v") { format!(" # {number}") } else { String::new() };
        commented.push_str(&format!("{line}{comment}\n"));
    }
    let request = Request { tree: &tree, package: "", folder: "", items: &items, is_read_only: false };
    let answer = request.decode(commented.as_bytes()).unwrap();
    assert_eq!(answer.items[0].text().matches(": v # ").count(), 5000);
}
