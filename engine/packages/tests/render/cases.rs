//! The test cases of kpt's module and of its catalog, in folders of `STOA_TEST_KPT_CASES`.
//!
//! A case is a package with `.expected/diff.patch`, the change by a render, and `.expected/config.yaml` with `exitCode`.
//! `go mod download github.com/kptdev/kpt@v1.0.0-beta.61` has them in `e2e/testdata/fn-render`.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use stoa_packages::{
    Functions, Limits, Tree,
    function::{Executor, NoExecutor},
    kptfile::Function,
    render::{eval, render},
};

use crate::process::{Processes, objects, read_folder, write_folder};

/// Cases whose results differ, and the reason.
const DIFFERENT: &[(&str, &str)] = &[(
    "tests-set-namespace-no-fnconfig-resource",
    "the catalog's function reports an error and exits with 0, so that nothing fails",
)];

/// The cases of a function that loses the paths of objects, so that they move to other files.
const MOVED: &str = "ensure-name-substring";

/// What a case of `kpt fn eval` needs of the program, and we do not have.
const OF_THE_PROGRAM: [&str; 2] = ["fnConfig: ../", "includeMetaResources: true"];

#[test]
fn cases_of_kpt_render_equally() {
    let Ok(folders) = env::var("STOA_TEST_KPT_CASES") else { return };
    let (mut equal, mut skipped, mut different) = (0, Vec::new(), Vec::new());
    for case in env::split_paths(&folders).flat_map(|folder| cases(&folder)) {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        match compare(&case) {
            Outcome::Equal => equal += 1,
            Outcome::Skipped(reason) => skipped.push(format!("{name}: {reason}")),
            Outcome::Different(_) if DIFFERENT.iter().any(|(known, _)| *known == name) => {}
            Outcome::Different(difference) => different.push(format!("{name}: {difference}")),
        }
    }
    println!("{equal} equal\nskipped:\n{}", skipped.join("\n"));
    assert!(different.is_empty(), "{}", different.join("\n"));
}

fn cases(folder: &Path) -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|case| case.join(".expected").is_dir());
    cases.sort();
    cases
}

enum Outcome {
    Equal,
    Skipped(String),
    Different(String),
}

fn compare(case: &Path) -> Outcome {
    let config = fs::read_to_string(case.join(".expected/config.yaml")).unwrap_or_default();
    if case.join(".expected/exec.sh").exists() {
        return Outcome::Skipped("a script".to_owned());
    }
    if OF_THE_PROGRAM.iter().any(|line| config.contains(line)) {
        return Outcome::Skipped("a flag of the program".to_owned());
    }
    let Some(tree) = read_folder(case) else { return Outcome::Skipped("symbolic links".to_owned()) };
    // Commands are relative to the folder `e2e`.
    let processes = Processes(case.ancestors().nth(3).unwrap_or(case).to_owned());
    let executor: &dyn Executor = if config.contains("allowExec: true") { &processes } else { &NoExecutor };
    let functions = Functions { executor, uses_builtins: true };
    let rendered = match config.contains("testType: eval") {
        true => eval(&tree, &function(&config), &functions, &Limits::default()),
        false => render(&tree, &functions, &Limits::default()),
    };
    let is_failure = config.lines().any(|line| line.trim() == "exitCode: 1");
    let ours = match rendered {
        Ok(rendered) => rendered.tree,
        Err(failure) => {
            let message = failure.to_render_status()["error"].as_str().unwrap_or_default().to_owned();
            return match is_failure {
                true => Outcome::Equal,
                // The module has no modes of files.
                false if ["is not allowed", "Permission denied"].iter().any(|it| message.contains(it)) => {
                    Outcome::Skipped(message)
                }
                false => Outcome::Different(message),
            };
        }
    };
    if is_failure {
        return Outcome::Different("did not fail".to_owned());
    }
    let theirs = patched(case, &tree);
    let (mut ours, mut theirs) = (objects(&ours), objects(&theirs));
    if case.to_string_lossy().contains(MOVED) {
        for files in [&mut ours, &mut theirs] {
            let mut all: Vec<Value> = std::mem::take(files).into_values().flatten().collect();
            all.sort_by_key(Value::to_string);
            files.insert("all files".to_owned(), all);
        }
    }
    for path in ours.keys().chain(theirs.keys()) {
        let (ours, theirs) = (ours.get(path), theirs.get(path));
        if ours != theirs {
            let texts = |objects: Option<&Vec<Value>>| -> Vec<String> {
                objects.into_iter().flatten().map(|object| format!("{object:#}")).collect()
            };
            let (ours, theirs) = (texts(ours), texts(theirs));
            let only = |these: &[String], others: &[String]| {
                these.iter().filter(|it| !others.contains(it)).cloned().collect::<String>()
            };
            let difference = format!("ours: {}\nkpt: {}", only(&ours, &theirs), only(&theirs, &ours));
            return Outcome::Different(format!("{path}\n{difference}"));
        }
    }
    Outcome::Equal
}

/// The function of a case of `kpt fn eval`: the image, and the configuration as `fnConfig` or as `args`.
fn function(config: &str) -> Function {
    let value = |key: &str| {
        let line = config.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(':'));
        line.map(|value| value.trim().trim_matches(['"', '\'']).to_owned()).unwrap_or_default()
    };
    let arguments = config.split_once("args:").map(|(_, lines)| lines).unwrap_or_default();
    let arguments = arguments.lines().filter(|line| line.starts_with(' ')).filter_map(|line| line.split_once(':'));
    let text = |text: &str| text.trim().trim_matches(['"', '\'']).to_owned();
    Function {
        image: value("image"),
        exec: value("execPath"),
        config_path: value("fnConfig"),
        config_map: arguments.map(|(key, value)| (text(key), text(value))).collect(),
        ..Function::default()
    }
}

/// The tree after the patch of a case.
fn patched(case: &Path, tree: &Tree) -> Tree {
    let patch = case.join(".expected/diff.patch");
    if !patch.exists() {
        return tree.clone();
    }
    let folder = tempfile::tempdir().unwrap();
    write_folder(tree, folder.path());
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{}: {}", case.display(), String::from_utf8_lossy(&output.stderr));
    };
    git(&["init", "-q"]);
    if fs::metadata(&patch).unwrap().len() > 0 {
        git(&["apply", "--whitespace=nowarn", patch.to_str().unwrap()]);
    }
    read_folder(folder.path()).unwrap()
}
