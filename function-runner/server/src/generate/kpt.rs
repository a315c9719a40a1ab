//! The generator `Kpt`: the objects of a kpt package, after the functions of its pipeline.
//!
//! The package is rendered as a Repository renders it at each save, so that a rendered package stays as it is. Functions that
//! are built in run in this process, which reads the tree of the commit alone. Other functions are problems.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;
use stoa_engine::Warnings;
use stoa_packages::function::{ExecuteError, NoExecutor};
use stoa_packages::render::{self, RenderError, RenderFailure};
use stoa_packages::results::FunctionResultList;
use stoa_packages::{
    FunctionError, Functions, IGNORE_FILE, KPTFILE, Limits, Mode, Tree, TreeError, has_objects, resource_files,
};
use stoa_proto::Problem;

use super::generator::{At, Files, Generated, Generator, Input, Profile, Provenance};
use super::manifests::{self, Located};
use super::{overlays, yaml};
use crate::failure::{Failure, problem, reason};
use crate::source::{Content, LARGEST_FILE, SourceFile, is_folder};

/// The generator's name.
pub(super) const NAME: &str = "Kpt";
/// The annotation of objects that are for tools and functions, with the value `true`.
const LOCAL_CONFIG: &str = "config.kubernetes.io/local-config";
/// The number of warnings that are listed one by one.
const WARNED: usize = 100;

/// The generator `Kpt`.
#[derive(Debug)]
pub(super) struct Kpt;

impl Generator for Kpt {
    fn name(&self) -> &'static str {
        NAME
    }

    fn detects(&self, content: &Content, _: At<'_>) -> Option<String> {
        let Content::Folder { path, others, .. } = content else { return None };
        others.iter().any(|name| name == KPTFILE).then(|| super::join(path, KPTFILE))
    }

    fn profile(&self) -> Profile {
        Profile::Tree
    }

    fn generate(&self, input: &Input<'_>) -> Result<Generated, Failure> {
        let Files::Tree { root, path } = input.files else {
            return Err(Failure::internal(&"the generator Kpt got no tree"));
        };
        let tree = package(root, path)?;
        let functions = Functions { executor: &NoExecutor, uses_builtins: true };
        let rendered = render::render(&tree, &functions, &Limits::default());
        let rendered = rendered.map_err(|failure| not_rendered(path, &failure))?;
        let files: Vec<String> = resource_files(&tree).iter().map(|file| super::join(path, file.path)).collect();
        let mut warnings = Warnings::at_most(WARNED);
        findings(&rendered.results, &mut warnings);
        let objects = objects(&rendered.tree, path, input)?;
        let spec = manifests::of_objects(objects, &mut warnings).map_err(Failure::invalid)?;
        let mut warnings = warnings.into_lines();
        if spec.resources.is_empty() {
            warnings.push("the package has no objects to deploy".to_owned());
        }
        let provenance = Provenance { files, ..Provenance::default() };
        Ok(Generated { warnings, provenance, ..Generated::from(spec) })
    }
}

fn wrong_file(file: String, reason: &str, message: impl Into<String>) -> Failure {
    Failure::invalid(vec![Problem { file, ..problem(reason, message) }])
}

fn not_rendered(path: &str, failure: &RenderFailure) -> Failure {
    let is_unknown = |error: &FunctionError| matches!(error, FunctionError::Execute(ExecuteError::ImageNotAllowed(_)));
    let message = match &failure.error {
        RenderError::Function { function, source, .. } if is_unknown(source) => format!(
            "function {function} is not built in, and generator Kpt runs built-in functions alone; remove it from the pipeline"
        ),
        _ => {
            let status = failure.to_render_status();
            status.get("error").and_then(Value::as_str).unwrap_or("the package is not rendered").to_owned()
        }
    };
    wrong_file(super::join(path, KPTFILE), reason::NOT_RENDERED, message)
}

/// The files of a package that matter: those with objects, and `.krmignore`. Overlays of workspaces are no part of it.
fn package(root: &Path, path: &str) -> Result<Tree, Failure> {
    let mut tree = Tree::default();
    if is_folder(root, "", path)? {
        read(root, path, "", &mut tree)?;
    }
    if tree.get(KPTFILE).is_none() {
        let message =
            "does not exist, so the folder is no kpt package; set spec.path of the Stack to a folder with a Kptfile";
        return Err(wrong_file(super::join(path, KPTFILE), reason::PATH_NOT_FOUND, message));
    }
    Ok(tree)
}

/// Adds the files of a folder of the package. The tree of a commit has a limit of files, levels and bytes already.
fn read(root: &Path, path: &str, folder: &str, tree: &mut Tree) -> Result<(), Failure> {
    let at = super::join(path, folder);
    let on_disk = root.join(at.trim_end_matches('/'));
    let failed = |error: std::io::Error| Failure::internal(&error);
    for entry in fs::read_dir(on_disk).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let file = super::join(folder, &name);
        let metadata = entry.path().symlink_metadata().map_err(failed)?;
        if metadata.is_dir() {
            read(root, path, &file, tree)?;
            continue;
        }
        let from_root = super::join(path, &file);
        if overlays::is_in_overlay(path, &from_root) || !(has_objects(&file) || name == IGNORE_FILE) {
            continue;
        }
        let mode = match (metadata.is_symlink(), metadata.permissions().mode() & 0o111) {
            (true, _) => Mode::Link,
            (false, 0) => Mode::Regular,
            (false, _) => Mode::Executable,
        };
        // The tree has such a file without its content.
        if metadata.len() > LARGEST_FILE {
            let message = format!("has more than {} MiB; split it", LARGEST_FILE >> 20);
            return Err(wrong_file(from_root, reason::TOO_LARGE, message));
        }
        let content = if mode == Mode::Link { Vec::new() } else { fs::read(entry.path()).map_err(failed)? };
        let rejected = |error: TreeError| wrong_file(from_root.clone(), reason::INVALID_MANIFEST, error.to_string());
        tree.add(&file, mode, content).map_err(rejected)?;
    }
    Ok(())
}

/// Adds the findings of functions that succeeded.
fn findings(results: &FunctionResultList, warnings: &mut Warnings) {
    for function in &results.items {
        let name = if function.image.is_empty() { &function.exec } else { &function.image };
        for finding in function.results.iter().filter(|finding| finding.severity != "info") {
            warnings.add(|| format!("function {name}: {}", finding.message));
        }
    }
}

/// The objects that are deployed: all but Kptfiles and objects for tools alone.
fn objects(tree: &Tree, path: &str, input: &Input<'_>) -> Result<Vec<Located>, Failure> {
    let (mut objects, mut problems) = (Vec::new(), Vec::new());
    for file in resource_files(tree) {
        let is_kptfile = file.path.rsplit('/').next() == Some(KPTFILE);
        let Some(content) = tree.get(file.path).filter(|_| !is_kptfile).map(|found| found.content.to_vec()) else {
            continue;
        };
        let file = SourceFile { path: super::join(path, file.path), bytes: content };
        let placeholders = input.placeholders.of_file(&file);
        let documents = match yaml::documents(&file) {
            Ok(documents) => documents,
            Err(problem) => {
                problems.push(*problem);
                continue;
            }
        };
        for mut document in documents.into_iter().filter(|document| !is_local(&document.value)) {
            match placeholders.fill(document.line, &mut document.value) {
                Err(wrong) => problems.extend(wrong),
                Ok(()) => objects.push(Located {
                    value: document.value,
                    file: file.path.clone(),
                    line: yaml::narrow(document.line),
                }),
            }
        }
    }
    if problems.is_empty() { Ok(objects) } else { Err(Failure::invalid(problems)) }
}

fn is_local(object: &Value) -> bool {
    object["metadata"]["annotations"][LOCAL_CONFIG] == "true"
}

#[cfg(test)]
mod tests {
    use super::super::generator::Values;
    use super::super::placeholders::Placeholders;
    use super::*;

    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n";

    fn rendered(files: &[(&str, &str)]) -> Result<Generated, Failure> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join("s").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let values = Values { workspace: "prod".to_owned(), ..Values::default() };
        let placeholders = Placeholders::of(&values);
        Kpt.generate(&Input {
            files: Files::Tree { root: root.path(), path: "s" },
            overlay: &[],
            values: &values,
            placeholders: &placeholders,
            values_read: false,
            at: &|_| {},
        })
    }

    fn kptfile(pipeline: &str) -> String {
        format!("apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\n{pipeline}")
    }

    fn problem_of(files: &[(&str, &str)]) -> (String, String) {
        let problem = rendered(files).unwrap_err().problems()[0].clone();
        (problem.file, problem.message)
    }

    #[test]
    fn pipeline_runs_before_objects_are_deployed() {
        let pipeline =
            "pipeline:\n  mutators:\n  - image: gcr.io/kpt-fn/set-namespace:v0.4.1\n    configMap: {namespace: shop}\n";
        let local = format!("{MAP}  annotations:\n    {LOCAL_CONFIG}: \"true\"\n");
        let generated = rendered(&[
            ("Kptfile", &kptfile(pipeline)),
            ("settings.yaml", MAP),
            ("package-context.yaml", &local.replace("settings", "kptfile.kpt.dev")),
            ("sub/Kptfile", &kptfile("")),
            ("sub/other.yaml", &format!("{}---\n{local}", MAP.replace("settings", "other"))),
            ("workspaces/prod/settings.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\n"),
            ("README.md", "# Web\n"),
            (".krmignore", "ignored.yaml\n"),
            ("ignored.yaml", "not: an object\n"),
        ]);
        let generated = generated.unwrap();
        let ids: Vec<_> = generated.spec.resources.iter().map(|resource| resource.id.0.as_str()).collect();
        assert_eq!(ids, ["v1:ConfigMap:shop:settings", "v1:ConfigMap:shop:other"]);
        assert!(generated.provenance.files.contains(&"s/sub/Kptfile".to_owned()));
    }

    #[test]
    fn unknown_function_names_itself() {
        let pipeline = "pipeline:\n  validators:\n  - image: example.com/check:v1\n";
        let (file, message) = problem_of(&[("Kptfile", &kptfile(pipeline)), ("a.yaml", MAP)]);
        assert_eq!(file, "s/Kptfile");
        assert!(message.starts_with("function example.com/check:v1 is not built in"), "{message}");
    }

    #[test]
    fn folder_without_kptfile_is_no_package() {
        let (file, message) = problem_of(&[("a.yaml", MAP)]);
        assert_eq!(file, "s/Kptfile");
        assert!(message.contains("no kpt package"), "{message}");
    }

    #[test]
    fn link_on_the_way_to_a_package_is_an_error() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(outside.path().join("web")).unwrap();
        for folder in ["", "web/"] {
            fs::write(outside.path().join(format!("{folder}{KPTFILE}")), kptfile("")).unwrap();
        }
        std::os::unix::fs::symlink(outside.path(), root.path().join("s")).unwrap();
        for path in ["s", "s/web"] {
            let problem = package(root.path(), path).unwrap_err().problems()[0].clone();
            assert_eq!((problem.file.as_str(), problem.reason.as_str()), ("s", reason::INVALID_MANIFEST));
        }
    }

    #[test]
    fn file_without_its_content_is_an_error() {
        let large = "#".repeat(usize::try_from(LARGEST_FILE).unwrap() + 1);
        let (file, message) = problem_of(&[("Kptfile", &kptfile("")), ("a.yaml", &large)]);
        assert_eq!((file.as_str(), message.as_str()), ("s/a.yaml", "has more than 5 MiB; split it"));
    }
}
