use serde_json::json;

use super::*;

const FILE: &str = "\
# head
apiVersion: v1
kind: ConfigMap
metadata:
  name: a # first
data: {x: '1'}
---
# nothing
---
# second
apiVersion: v1
kind: ConfigMap
metadata:
  name: b
";

fn tree(files: &[(&str, &str)]) -> Tree {
    let mut tree = Tree::default();
    for (path, text) in files {
        tree.write(path, text.as_bytes().to_vec()).unwrap();
    }
    tree
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn text_of(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n")
}

/// The file after its objects were changed.
fn written(text: &str, change: impl FnOnce(&mut Vec<Resource>)) -> Option<String> {
    let tree = tree(&[("a.yaml", text)]);
    let before = read(&tree).unwrap();
    let mut after = before.clone();
    change(&mut after);
    let tree = write(&tree, &before, &after).unwrap();
    tree.text("a.yaml").map(str::to_owned)
}

#[test]
fn objects_have_paths_and_indexes() {
    let tree =
        tree(&[("Kptfile", "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: x}\n"), ("db/a.yaml", FILE)]);
    let found = read(&tree).unwrap();
    let found: Vec<_> = found.iter().map(|it| (it.file(), it.index, it.name(), it.is_kptfile())).collect();
    assert_eq!(
        found,
        [
            ("Kptfile".to_owned(), Some(0), "x", true),
            ("db/a.yaml".to_owned(), Some(0), "a", false),
            ("db/a.yaml".to_owned(), Some(1), "b", false),
        ]
    );
}

#[test]
fn files_without_objects_are_rejected() {
    for (path, text, expected) in [
        ("values.yaml", "a: 1\n", "values.yaml, document 0: resource must have `apiVersion`"),
        ("a.yaml", "apiVersion: v1\nkind: List\nitems: []\n", "a.yaml, document 0: resource must have `metadata.name`"),
        (
            "a.yaml",
            "apiVersion: v1\nkind: A\nmetadata: {generateName: a-}\n",
            "a.yaml, document 0: resource must have `metadata.name`",
        ),
        ("a.yaml", "- a\n", "a.yaml, document 0: resource must have `apiVersion`, `kind`, and `metadata.name`"),
        ("t.yaml", "a: {{ .Values.x }}\n", "t.yaml is no YAML; correct it"),
        ("a.yaml", "a: 1\n---\na: 1\na: 2\n", "a.yaml, document 0"),
    ] {
        let error = read(&tree(&[(path, text)])).unwrap_err().to_string();
        assert!(error.starts_with(expected) && error.contains(".krmignore"), "{path}: {error}");
        let ignored = read(&tree(&[(path, text), (".krmignore", path)]));
        assert_eq!(ignored, Ok(Vec::new()));
    }
    let error = read(&tree(&[("a.yaml", "# a\n---\na: 1\na: 2\n")])).unwrap_err();
    let ReadError::Yaml { source, .. } = error else { panic!("{error}") };
    assert_eq!(source.to_string(), "line 4: mapping key \"a\" already defined; remove one of them");
}

#[test]
fn empty_files_and_kustomizations_are_read() {
    for (path, text) in [("a.yaml", ""), ("a.yaml", "# a\n---\n"), ("kustomization.yaml", "resources: [a]\n")] {
        let tree = tree(&[(path, text)]);
        let found = read(&tree).unwrap();
        assert_eq!(write(&tree, &found, &found), Ok(tree));
    }
}

#[test]
fn second_object_of_a_name_is_reported() {
    let tree = tree(&[("a.yaml", &text_of("x")), ("b.yaml", &text_of("x")), ("c.yaml", &text_of("z"))]);
    let expected = Double { object: "ConfigMap x".to_owned(), first: "a.yaml".to_owned(), second: "b.yaml".to_owned() };
    assert_eq!(doubles(&read(&tree).unwrap()), [expected]);
}

#[test]
fn only_changed_leaves_are_written() {
    let text = written(FILE, |objects| objects[0].value["data"]["x"] = "2".into()).unwrap();
    assert_eq!(text, FILE.replace("'1'", "\"2\""));
    let crlf = FILE.replace('\n', "\r\n");
    let text = written(&crlf, |objects| objects[1].value["metadata"]["name"] = "c".into()).unwrap();
    assert_eq!(text, crlf.replace("name: b", "name: c"));
    assert_eq!(written(FILE, |_| {}).as_deref(), Some(FILE));
}

#[test]
fn dropped_objects_and_empty_files_are_removed() {
    let text = written(FILE, |objects| drop(objects.remove(1))).unwrap();
    assert_eq!(text, FILE.split_at(FILE.find("# nothing").unwrap()).0.to_owned() + "# nothing\n");
    assert_eq!(written(&text_of("a"), Vec::clear), None);
}

#[test]
fn new_objects_follow_the_others() {
    let new = || Resource::new("", "a.yaml", config_map("c"), None);
    let text = written(FILE, |objects| objects.push(new())).unwrap();
    assert_eq!(text, format!("{FILE}---\n{}", text_of("c")));
    let text = written(&text_of("a"), |objects| {
        objects[0].index = Some(1);
        objects.insert(0, Resource { index: Some(0), ..new() });
    });
    assert_eq!(text, Some(format!("{}---\n{}", text_of("c"), text_of("a"))));
}

#[test]
fn moved_object_takes_its_text_along() {
    let tree = tree(&[("a.yaml", FILE)]);
    let before = read(&tree).unwrap();
    let mut after = before.clone();
    after[0].path = "x/b.yaml".to_owned();
    let tree = write(&tree, &before, &after).unwrap();
    assert_eq!(tree.text("x/b.yaml"), Some(&FILE[..FILE.find("---").unwrap()]));
    assert_eq!(tree.text("a.yaml"), Some(&FILE[FILE.find("# nothing").unwrap()..]));
}

#[test]
fn json_files_stay_json() {
    let json = "{\n  \"apiVersion\": \"v1\",\n  \"kind\": \"A\",\n  \"metadata\": {\"name\": \"a\"}\n}\n";
    let tree = tree(&[("a.json", json)]);
    let before = read(&tree).unwrap();
    let mut after = before.clone();
    after[0].value["metadata"]["name"] = "b".into();
    after.push(Resource::new("", "b.json", config_map("c"), None));
    let tree = write(&tree, &before, &after).unwrap();
    assert_eq!(tree.text("a.json"), Some(json.replace("\"a\"", "\"b\"").as_str()));
    assert_eq!(tree.text("b.json"), Some(format!("{:#}\n", config_map("c")).as_str()));
}

#[test]
fn paths_that_are_not_read_again_are_rejected() {
    let tree = tree(&[("a.yaml", FILE), (".krmignore", "/i/\n")]);
    for (path, expected) in [
        ("../x.yaml", "function must not modify resources outside of package: resource has path ../x.yaml"),
        ("/x/y.yaml", "has an absolute path"),
        ("x.txt", "is no *.yaml"),
        ("x/Kptfile", "is the path of a Kptfile"),
        (".git/x.yaml", "is inside of a folder .git"),
        ("i/x.yaml", "is ignored by .krmignore"),
        ("a.yaml/x.yaml", "the object cannot be written"),
    ] {
        let error = write(&tree, &[], &[Resource::new("", path, config_map("c"), None)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{path}: {error}");
    }
}

#[test]
fn objects_of_one_path_and_index_are_rejected() {
    let new = |name| Resource { index: Some(0), ..Resource::new("", "b.yaml", config_map(name), None) };
    let error = write(&Tree::default(), &[], &[new("a"), new("b")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "resource at path \"b.yaml\" and index \"0\" already exists; set another index for ConfigMap b"
    );
}

#[test]
fn each_package_has_its_own_rules() {
    let tree = tree(&[("Kptfile", ""), (".krmignore", "a.yaml\n"), ("in/Kptfile", ""), ("in/.krmignore", "b.yaml\n")]);
    let written = |package, path| write(&tree, &[], &[Resource::new(package, path, config_map("c"), None)]).is_ok();
    let found =
        [("", "a.yaml"), ("", "b.yaml"), ("in", "a.yaml"), ("in", "b.yaml")].map(|(of, path)| written(of, path));
    assert_eq!(found, [false, true, true, false]);
}

#[test]
fn rules_are_read_once_for_many_objects() {
    // Without that, this test takes minutes.
    let comments = "# a comment\n".repeat(200_000);
    let tree = tree(&[("Kptfile", ""), (".krmignore", &format!("{comments}x.yaml\n"))]);
    let mut resources: Vec<Resource> = (0..3000)
        .map(|number| Resource::new("", &format!("{number}.yaml"), config_map("c"), Some(text_of("c"))))
        .collect();
    assert_eq!(check_paths(&tree, &resources), Ok(()));
    resources.push(Resource::new("", "x.yaml", config_map("c"), None));
    assert!(check_paths(&tree, &resources).unwrap_err().to_string().contains("is ignored by .krmignore"));
}
