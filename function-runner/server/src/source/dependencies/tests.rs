use stoa_git::testing::tree;

use super::*;

/// Whether a change of each file is one of the stack.
fn check(files: &[(&str, &str)], stack: StackPath<'_>, changes: &[(&str, bool)]) {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let id = |files: &[(&str, &str)]| {
        let root = repository.find_tree(tree(&repository, files)).unwrap();
        Dependencies::new(&repository).ids(&root, stack)
    };
    let before = id(files);
    for (changed, expected) in changes {
        let mut after = files.to_vec();
        let file = after.iter_mut().find(|(path, _)| path == changed).expect("the file exists");
        let text = format!("{} # 2", file.1);
        file.1 = &text;
        assert_eq!(id(&after) != before, *expected, "{changed}");
    }
}

fn at(path: &str) -> StackPath<'_> {
    StackPath { path, values_files: &[] }
}

#[test]
fn change_of_a_base_is_a_change_of_the_stack_by_kustomize() {
    let overlay = "resources: [../../base, own.yaml]\nconfigMapGenerator: [{name: a, files: [k=../../shared/a.txt]}]\n";
    let files = [
        ("apps/dev/kustomization.yaml", overlay),
        ("apps/dev/own.yaml", "x"),
        ("base/kustomization.yaml", "resources: [a.yaml, ../deeper, ../../out]\n"),
        ("base/a.yaml", "1"),
        ("deeper/Kustomization", "resources: [../base]\n"),
        ("deeper/a.yaml", "1"),
        ("shared/a.txt", "1"),
        ("other/a.yaml", "1"),
        ("plain/a.yaml", "1"),
    ];
    let changes = [
        ("base/a.yaml", true),
        ("deeper/a.yaml", true),
        ("shared/a.txt", true),
        ("other/a.yaml", false),
        ("apps/dev/own.yaml", false),
    ];
    check(&files, at("apps/dev"), &changes);
    check(&files, at("plain"), &changes.map(|(file, _)| (file, false)));
    check(&files, at(""), &changes.map(|(file, _)| (file, false)));
}

#[test]
fn change_of_a_base_is_a_change_of_the_stack_by_kcl() {
    let files = [
        ("kcl.mod", "[package]\nname = \"konfig\"\n[dependencies]\nlib = { path = \"libs/lib\" }\nk8s = \"1.31\"\n"),
        ("vendor/k8s_1.31/a.k", ""),
        ("vendor/other_1.0/a.k", ""),
        ("libs/lib/kcl.mod", "[package]\nname = \"lib\"\n[dependencies]\ndeep = { path = \"../deep\" }\n"),
        ("libs/lib/sub/a.k", ""),
        ("libs/deep/a.k", ""),
        ("libs/unused/a.k", ""),
        ("models/server/server.k", "import ..shared\nimport file_like\n"),
        ("models/shared.k", "import math\n"),
        ("models/other/a.k", ""),
        ("apps/project.yaml", "name: apps"),
        ("apps/base/base.k", "import models.server as s\nimport lib.sub\n"),
        ("apps/base/more.k", ""),
        ("apps/prod/stack.yaml", "name: prod"),
        ("apps/prod/kcl.yaml", "kcl_cli_configs:\n  file: [../base/base.k, '${KCL_MOD}/extra/extra.k', main.k]\n"),
        ("apps/prod/main.k", "import lib\n"),
        ("apps/stage/main.k", ""),
        ("extra/extra.k", ""),
        ("elsewhere/a.k", ""),
    ];
    let changes = [
        ("kcl.mod", true),
        ("vendor/k8s_1.31/a.k", true),
        ("vendor/other_1.0/a.k", false),
        ("libs/lib/sub/a.k", true),
        ("libs/deep/a.k", true),
        ("libs/unused/a.k", false),
        ("models/server/server.k", true),
        ("models/shared.k", true),
        ("models/other/a.k", false),
        ("apps/project.yaml", true),
        ("apps/base/base.k", true),
        ("apps/base/more.k", true),
        ("apps/prod/main.k", false),
        ("apps/stage/main.k", false),
        ("extra/extra.k", true),
        ("elsewhere/a.k", false),
    ];
    check(&files, at("apps/prod"), &changes);
}

#[test]
fn profile_and_relative_imports_name_dependencies() {
    let files = [
        ("shop/common.k", "import .parts\n"),
        ("shop/parts/a.k", ""),
        ("shop/prod/kcl.mod", "[profile]\nentries = [\"../common.k\", \"main.k\"]\n"),
        ("shop/prod/main.k", ""),
        ("shop/stage/main.k", "import file\n"),
        ("notes/a.txt", ""),
    ];
    let changes = [
        ("shop/common.k", true),
        ("shop/parts/a.k", true),
        ("shop/prod/main.k", false),
        ("shop/stage/main.k", false),
        ("notes/a.txt", false),
    ];
    check(&files, at("shop/prod"), &changes);
    // A program that reads files may read any of them.
    check(&files, at("shop/stage"), &[("notes/a.txt", true), ("shop/parts/a.k", true)]);
}

#[test]
fn change_of_a_values_file_is_a_change_of_the_stack() {
    let files = [
        ("charts/api/Chart.yaml", "name: api"),
        ("charts/api/values-dev.yaml", "a: 1"),
        ("env/dev.yaml", "a: 1"),
        ("env/prod.yaml", "a: 1"),
    ];
    let values_files = ["values-dev.yaml", "../../env/dev.yaml", "../../../out.yaml", "../../env/none.yaml"];
    let values_files = values_files.map(str::to_owned);
    let stack = StackPath { path: "charts/api", values_files: &values_files };
    check(&files, stack, &[("env/dev.yaml", true), ("env/prod.yaml", false), ("charts/api/values-dev.yaml", false)]);
}

#[test]
fn paths_stay_in_the_repository() {
    assert_eq!(resolve("a/b", "../c").as_deref(), Some("a/c"));
    assert_eq!(resolve("a/b", "./c/.././d").as_deref(), Some("a/b/d"));
    assert_eq!(resolve("a", "../../c"), None);
    assert_eq!(resolve("a", "/etc/passwd"), None);
    assert!(is_below("a/b", "a") && is_below("a", "") && !is_below("ab", "a"));
}
