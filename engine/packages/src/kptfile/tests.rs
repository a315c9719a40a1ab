use super::*;
use crate::files::Tree;

const FILE: &str = "\
# the package
apiVersion: kpt.dev/v1
kind: Kptfile
metadata:
  name: web # its name
info:
  keywords: [a, b]
pipeline:
  mutators:
    # first
    - image: set-namespace:v0.4.1
      configMap: {namespace: 12, version: 1.10, use: yes, empty: ''}
    - image: set-labels
      configPath: labels.yaml
      selectors:
        - kind: Service
";

fn function(kptfile: &Kptfile, position: usize) -> &Function {
    &kptfile.pipeline.as_ref().unwrap().mutators[position]
}

#[test]
fn scalars_of_a_kptfile_are_text() {
    let kptfile = Kptfile::parse(FILE).unwrap();
    let expected = [("empty", ""), ("namespace", "12"), ("use", "yes"), ("version", "1.10")];
    let config: Vec<(&str, &str)> =
        function(&kptfile, 0).config_map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(config, expected);
    assert_eq!(function(&kptfile, 1).selectors[0].kind, "Service");
}

#[test]
fn other_versions_are_rejected() {
    for (text, expected) in [
        ("", "Kptfile has 0 documents; it must have one"),
        ("a: 1\n---\nb: 1\n", "Kptfile has 2 documents; it must have one"),
        ("a: [", "Kptfile is no YAML"),
        (
            "apiVersion: kpt.dev/v1alpha2\nkind: Kptfile\n",
            "old resource version \"v1alpha2\" found in Kptfile; migrate it to kpt.dev/v1",
        ),
        (
            "apiVersion: kpt.dev/v2\nkind: Kptfile\n",
            "unknown resource type \"kpt.dev/v2, Kind=Kptfile\" found in Kptfile; it must be Kptfile of kpt.dev/v1",
        ),
    ] {
        assert_eq!(Kptfile::parse(text).unwrap_err().to_string(), expected, "{text:?}");
    }
}

#[test]
fn wrong_fields_are_named_with_their_path() {
    for (fields, path) in [
        ("packageMetadata: {a: b}", "packageMetadata"),
        ("metadata: {name: a, creationTimestamp: null, uid: x}", "metadata.uid"),
        ("pipeline: {mutators: [{image: a}, {image: b, include: [{kind: x}]}]}", "pipeline.mutators[1].include"),
        ("pipeline: {mutators: {image: a}}", "pipeline.mutators"),
        ("pipeline: {mutators: [{image: a, configMap: {a: [b]}}]}", "pipeline.mutators[0].configMap.a"),
        ("info: {emails: one}", "info.emails"),
    ] {
        let text = format!("apiVersion: kpt.dev/v1\nkind: Kptfile\n{fields}\n");
        let error = Kptfile::parse(&text).unwrap_err();
        assert!(matches!(&error, KptfileError::Field { field, .. } if field == path), "{fields}: {error}");
    }
}

#[test]
fn null_fields_are_absent() {
    let text = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: a, labels: null}\npipeline:\n";
    assert_eq!(Kptfile::parse(text).unwrap(), Kptfile::new("a"));
}

#[test]
fn edits_leave_comments_and_other_fields() {
    let old = Kptfile::parse(FILE).unwrap();
    let mut new = old.clone();
    new.metadata.name = "shop".to_owned();
    new.upstream = Some(Upstream { kind: "git".to_owned(), ..Upstream::default() });
    new.pipeline.as_mut().unwrap().mutators[0].image = "set-namespace:v0.4.2".to_owned();
    let text = old.edit(FILE, &new);
    let expected = FILE.replace("name: web #", "name: shop #").replace("v0.4.1", "v0.4.2") + "upstream:\n  type: git\n";
    assert_eq!(text, expected);
    assert_eq!(Kptfile::parse(&text).unwrap(), new);
    assert_eq!(old.edit(FILE, &old), FILE);
}

#[test]
fn new_kptfile_has_a_text() {
    assert_eq!(Kptfile::new("a").to_text(), "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: a\n");
}

#[test]
fn strategies_have_names() {
    for name in ["resource-merge", "fast-forward", "force-delete-replace", "copy-merge"] {
        assert_eq!(UpdateStrategy::parse(name).unwrap().name(), name);
    }
    assert_eq!(UpdateStrategy::parse("").unwrap(), UpdateStrategy::ResourceMerge);
    assert_eq!(
        UpdateStrategy::parse("alpha-git-patch").unwrap_err().to_string(),
        "unknown update strategy \"alpha-git-patch\"; use resource-merge, fast-forward, force-delete-replace or copy-merge"
    );
}

#[test]
fn functions_are_checked() {
    let mut tree = Tree::default();
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    tree.write("db/Kptfile", "").unwrap();
    tree.write("db/in/Kptfile", "").unwrap();
    tree.write("db/in/one.yaml", config).unwrap();
    tree.write("db/one.yaml", config).unwrap();
    tree.write("db/two.yaml", format!("{config}---\n{config}")).unwrap();
    tree.write("db/none.yaml", "# nothing\n").unwrap();
    tree.write("db/bad.yaml", "a: 1\n").unwrap();
    for (function, expected) in [
        ("image: 'a/b:v1'", ""),
        ("image: a, configPath: ./one.yaml", ""),
        ("exec: a b", ""),
        ("name: a", ": must specify a function (`image` or `exec`) to execute"),
        ("image: a, exec: b", ": must not specify both `image` and `exec` at the same time"),
        ("image: 'A b'", ".image: function name \"A b\" is invalid"),
        (
            "image: a, configPath: one.yaml, configMap: {a: b}",
            ": functionConfig must not specify both `configMap` and `configPath` at the same time",
        ),
        ("image: a, configPath: ../one.yaml", ".configPath: path \"../one.yaml\" must not be outside the package"),
        ("image: a, configPath: /one.yaml", ".configPath: path \"/one.yaml\" must be relative"),
        ("image: a, configPath: no.yaml", ".configPath: functionConfig \"no.yaml\" must exist in the current package"),
        (
            "image: a, configPath: in/one.yaml",
            ".configPath: functionConfig \"in/one.yaml\" must exist in the current package",
        ),
        (
            "image: a, configPath: two.yaml",
            ".configPath: functionConfig \"two.yaml\" must not contain more than one config, got 2",
        ),
        (
            "image: a, configPath: none.yaml",
            ".configPath: functionConfig \"none.yaml\" must contain one config, got none",
        ),
    ] {
        let text = format!("apiVersion: kpt.dev/v1\nkind: Kptfile\npipeline: {{mutators: [{{{function}}}]}}\n");
        let checked = Kptfile::parse(&text).unwrap().check(&tree, "db");
        let message = checked.map_or_else(|error| error.to_string(), |()| String::new());
        let expected = match expected {
            "" => String::new(),
            expected => format!("Kptfile is invalid: pipeline.mutators[0]{expected}"),
        };
        assert_eq!(message, expected, "{function}");
    }
}

#[test]
fn short_images_are_of_the_catalog() {
    assert_eq!(full_image("set-labels:v0.1"), "ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.1");
    assert_eq!(full_image("gcr.io/x/y"), "gcr.io/x/y");
}
