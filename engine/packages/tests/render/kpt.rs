//! Our render beside that of the program `kpt`, with functions that are commands.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Command};

use stoa_packages::{Functions, Limits, Tree, render::render};

use crate::process::{Processes, objects, read_folder, write_folder};

fn has_kpt() -> bool {
    Command::new("kpt").arg("version").output().is_ok()
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

fn object(kind: &str, name: &str) -> String {
    format!("apiVersion: v1\nkind: {kind}\nmetadata:\n  name: {name}\ndata:\n  a: x # why\n  b: z\n")
}

/// The result of kpt and ours, with a function `./fn` that is a script. `None` is a failure.
fn both(tree: &Tree, script: &str) -> Option<(Option<Tree>, Option<Tree>)> {
    if !has_kpt() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let package = folder.path().join("p");
    fs::create_dir(&package).unwrap();
    write_folder(tree, &package);
    let function = folder.path().join("fn");
    fs::write(&function, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&function, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("kpt").args(["fn", "render", "--allow-exec", "p"]).current_dir(&folder).output().unwrap();
    let theirs = output.status.success().then(|| read_folder(&package).unwrap());
    let executor = Processes(folder.path().to_owned());
    let functions = Functions { executor: &executor, uses_builtins: true };
    let ours = render(tree, &functions, &Limits::default());
    if theirs.is_some() != ours.is_ok() {
        println!("kpt: {}\nours: {ours:?}", String::from_utf8_lossy(&output.stderr));
    }
    Some((theirs, ours.ok().map(|rendered| rendered.tree)))
}

#[track_caller]
fn same(script: &str, files: &[(&str, &str)]) {
    let tree = tree(files);
    let Some((theirs, ours)) = both(&tree, script) else { return };
    let (theirs, ours) = (theirs.expect("kpt failed"), ours.expect("ours failed"));
    assert_eq!(objects(&ours), objects(&theirs));
}

#[track_caller]
fn both_fail(script: &str, files: &[(&str, &str)]) {
    let Some((theirs, ours)) = both(&tree(files), script) else { return };
    assert!(theirs.is_none() && ours.is_none(), "kpt {}, ours {}", theirs.is_some(), ours.is_some());
}

/// The root package with a function `./fn` and an object.
fn with_function(choice: &str) -> Vec<(&'static str, String)> {
    vec![
        ("Kptfile", kptfile("root", &format!("{{mutators: [{{exec: ./fn, {choice}}}]}}"))),
        ("a.yaml", object("ConfigMap", "a")),
        ("b.yaml", object("ConfigMap", "b") + "---\n" + &object("ConfigMap", "c")),
    ]
}

fn borrowed<'f>(files: &'f [(&str, String)]) -> Vec<(&'f str, &'f str)> {
    files.iter().map(|(path, text)| (*path, text.as_str())).collect()
}

const EMPTY: &str = "apiVersion: config.kubernetes.io/v1\\nkind: ResourceList\\nitems: []\\n";

#[test]
fn nested_packages_render_equally() {
    same(
        "sed -e 's/a: x/a: root/' -e 's/b: sub/b: seen/'",
        &[
            ("Kptfile", &kptfile("root", "{mutators: [{exec: ./fn}]}")),
            ("a.yaml", &object("ConfigMap", "a")),
            ("sub/Kptfile", &kptfile("sub", "{mutators: [{exec: \"sed -e 's/b: z/b: sub/'\"}]}")),
            ("sub/a.yaml", &(object("ConfigMap", "b") + "---\n" + &object("ConfigMap", "c"))),
            ("sub/in/a.yaml", &object("ConfigMap", "d")),
        ],
    );
}

#[test]
fn selected_objects_render_equally() {
    for choice in ["selectors: [{name: a}]", "selectors: [{name: none}]", "exclude: [{kind: ConfigMap, name: b}]"] {
        same("sed -e 's/: x/: y/'", &borrowed(&with_function(choice)));
    }
}

#[test]
fn moved_objects_render_equally() {
    for script in [
        "sed -e 's,path: .\\?a.yaml.*,path: x/b.yaml,'",
        "sed -e 's,internal.config.kubernetes.io/path: .\\?a.yaml.*,internal.config.kubernetes.io/path: x/b.yaml,'",
        "sed -e 's,  config.kubernetes.io/path: .\\?a.yaml.*,  config.kubernetes.io/path: x/b.yaml,'",
        "sed -e 's,index: .1.,index: \"5\",'",
    ] {
        same(script, &borrowed(&with_function("")));
    }
    // One family says one path and the other another.
    let script = "sed -e 's,internal.config.kubernetes.io/path: .*,internal.config.kubernetes.io/path: x.yaml,' \
                  -e 's,  config.kubernetes.io/path: .*,  config.kubernetes.io/path: y.yaml,'";
    both_fail(script, &borrowed(&with_function("")));
}

#[test]
fn new_objects_render_equally() {
    let script = "sed -e '/^items:/a - {apiVersion: v1, kind: Secret, metadata: {name: s, namespace: ns}}'";
    for (config_path, package) in [("config.yaml", ""), ("x/config.yaml", "sub/"), ("functions/config.yaml", "sub/")] {
        let pipeline = format!("{{mutators: [{{exec: ./fn, configPath: {config_path}}}]}}");
        let root = kptfile("root", if package.is_empty() { &pipeline } else { "{}" });
        let config = object("ConfigMap", "config");
        let config_path = format!("{package}{config_path}");
        let sub = kptfile("sub", &pipeline);
        let mut files = vec![("Kptfile", root.as_str()), (config_path.as_str(), config.as_str())];
        if !package.is_empty() {
            files.push(("sub/Kptfile", &sub));
        }
        same(script, &files);
    }
}

#[test]
fn dropped_objects_render_equally() {
    let script = format!("cat > /dev/null; printf '{EMPTY}'");
    same(&script, &borrowed(&with_function("selectors: [{name: a}]")));
    same(&script, &borrowed(&with_function("selectors: [{name: b}]")));
}

#[test]
fn validators_and_ignored_files_render_equally() {
    same(
        "sed -e 's/: x/: z/'",
        &[
            ("Kptfile", &kptfile("root", "{validators: [{exec: ./fn}]}")),
            ("a.yaml", &object("ConfigMap", "a")),
            (".hidden/b.yml", &object("ConfigMap", "b")),
            ("c.json", "{\"apiVersion\": \"v1\", \"kind\": \"A\", \"metadata\": {\"name\": \"c\"}}"),
            (".krmignore", "values.yaml\n/charts/\n"),
            ("values.yaml", "a: 1\n"),
            ("charts/deep/x.yaml", "{{ template }}\n"),
            ("kustomization.yaml", "resources: [a.yaml]\n"),
        ],
    );
}

#[test]
fn broken_packages_fail_equally() {
    let good = kptfile("root", "{}");
    both_fail("", &[("a.yaml", &object("ConfigMap", "a"))]);
    for file in ["a: 1\n", "- a\n", "apiVersion: v1\nkind: A\nmetadata: {generateName: a-}\n", "a: [\n"] {
        both_fail("", &[("Kptfile", &good), ("a.yaml", file)]);
    }
    for pipeline in [
        "{mutators: [{name: a}]}",
        "{mutators: [{exec: cat, image: b}]}",
        "{mutators: [{exec: cat, configPath: ../a.yaml}]}",
        "{mutators: [{exec: cat, configPath: none.yaml}]}",
        "{mutators: [{exec: cat, configPath: a.yaml, configMap: {a: b}}]}",
        "{mutators: [{exec: cat, unknown: a}]}",
    ] {
        both_fail("", &[("Kptfile", &kptfile("root", pipeline)), ("a.yaml", &object("ConfigMap", "a"))]);
    }
    for script in ["false", "echo [", "sed -e 's,path: .\\?a.yaml.*,path: ../b.yaml,'"] {
        both_fail(script, &borrowed(&with_function("")));
    }
    let old = good.replace("kpt.dev/v1", "kpt.dev/v1alpha2");
    both_fail("", &[("Kptfile", &old)]);
}

/// kpt accepts these, and loses objects.
#[test]
fn answers_that_lose_a_package_fail_only_here() {
    for script in [
        "cat > /dev/null".to_owned(),
        format!("cat > /dev/null; printf '{EMPTY}'"),
        "cat > /dev/null; printf 'apiVersion: v1\\nkind: Secret\\nmetadata: {name: a}\\n'".to_owned(),
        "sed -e 's,path: .\\?a.yaml.*,path: /x/b.yaml,'".to_owned(),
        "sed -e 's,path: .\\?a.yaml.*,path: b.txt,'".to_owned(),
    ] {
        let files = with_function("");
        let Some((theirs, ours)) = both(&tree(&borrowed(&files)), &script) else { return };
        assert!(theirs.is_some() && ours.is_none(), "{script}: kpt {}, ours {}", theirs.is_some(), ours.is_some());
    }
}

#[test]
fn kpt_renders_a_package_of_ours() {
    let script = "sed -e 's/: x/: z/'";
    let files = with_function("");
    let Some((_, ours)) = both(&tree(&borrowed(&files)), script) else { return };
    let ours = ours.unwrap();
    let (theirs, again) = both(&ours, script).unwrap();
    assert_eq!(again.as_ref(), Some(&ours));
    assert_eq!(objects(&theirs.unwrap()), objects(&ours));
}
