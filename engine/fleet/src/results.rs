//! Checks results of templates by the schemas of the projects that read them: Flux, Argo CD, Rancher Fleet and Zarf.
//!
//! Start at [`InvalidResults::of`], which has the problems of a fleet, or at [`problems`], which checks one file. A problem stops
//! nothing: another version of a project may know more fields. `data` has the schemas and their sources.
//!
//! A kind or a version without a schema is not checked, and no rule in CEL is.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
    sync::LazyLock,
};

use flate2::read::GzDecoder;
use jsonschema::{Draft, PatternOptions, Validator};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    Fleet,
    render::{File, parsed},
    schemas::{path_of, shortened},
};

/// The schemas, as [`Document`] in gzip.
const FILE: &[u8] = include_bytes!("../data/reconcilers.json.gz");
/// Texts of files with an object that has a schema. Other files are not parsed.
const MARKERS: [&str; 4] = ["toolkit.fluxcd.io/", "argoproj.io/", "fleet.cattle.io/", "ZarfPackageConfig"];
/// The most problems of one file.
const REPORTED: usize = 20;
/// The most files with problems that are in memory.
const MOST: usize = 1000;

static SCHEMAS: LazyLock<Kinds<Validator>> = LazyLock::new(|| {
    let compiled = |schema: Value| {
        let options = jsonschema::options().with_draft(Draft::Draft202012);
        options.with_pattern_options(PatternOptions::regex()).build(&schema).expect("a test compiles each schema")
    };
    let kinds = read().kinds.into_iter();
    kinds.map(|(of, kinds)| (of, kinds.into_iter().map(|(kind, it)| (kind, compiled(it))).collect())).collect()
});

/// By `apiVersion` and kind. Packages of Zarf need no `apiVersion`.
type Kinds<T> = BTreeMap<String, BTreeMap<String, T>>;

/// The file of schemas.
#[derive(Debug, Deserialize)]
struct Document {
    kinds: Kinds<Value>,
}

fn read() -> Document {
    let mut text = Vec::new();
    GzDecoder::new(FILE).read_to_end(&mut text).expect("the file is part of this program");
    serde_json::from_slice(&text).expect("the file is part of this program")
}

/// The problems of a file, each with the file, the object and the field.
pub fn problems(path: &str, content: &str) -> Vec<String> {
    if !path.ends_with(".yaml") || !MARKERS.iter().any(|marker| content.contains(marker)) {
        return Vec::new();
    }
    let documents = match parsed(path, content) {
        Ok(documents) => documents,
        Err(problem) => return vec![problem],
    };
    let mut problems = Vec::new();
    for mut document in documents {
        let left = REPORTED - problems.len();
        if left == 0 {
            break;
        }
        // A server ignores fields that are null.
        remove_nulls(&mut document.value);
        let object = &document.value;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let Some(validator) = SCHEMAS.get(&api_version).and_then(|kinds| kinds.get(&kind)) else { continue };
        let name = text(&object["metadata"]["name"]);
        problems.extend(validator.iter_errors(object).take(left).map(|error| {
            let field = match path_of(&error.instance_path().to_string()) {
                field if field.is_empty() => String::new(),
                field => format!(", {field}"),
            };
            format!("{path}: {kind} {name:?}{field}: {}", shortened(&error.to_string()))
        }));
    }
    problems
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The files of a fleet with problems: the first 1000 by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InvalidResults {
    files: BTreeMap<String, InvalidFile>,
    /// Whether there may be more.
    is_cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct InvalidFile {
    cluster_type: String,
    target: String,
    problems: Vec<String>,
}

impl InvalidResults {
    /// Checks all files.
    pub fn of(files: &BTreeMap<String, File>) -> Self {
        let mut results = Self::default();
        for (path, file) in files {
            if results.is_cut {
                break;
            }
            results.check(path, file);
        }
        results
    }

    /// Checks the files that changed: `files` are all of them now, and `touched` are written or deleted since.
    pub fn after(&self, files: &BTreeMap<String, File>, touched: &BTreeSet<String>) -> Self {
        if self.is_cut {
            return Self::of(files);
        }
        let mut next = self.clone();
        for path in touched {
            next.files.remove(path);
            if let Some(file) = files.get(path) {
                next.check(path, file);
            }
        }
        next
    }

    /// The problems of each assignment, by its name.
    pub fn by_assignment(&self, fleet: &Fleet) -> BTreeMap<String, Vec<String>> {
        let mut found = BTreeMap::<String, Vec<String>>::new();
        for InvalidFile { cluster_type, target, problems } in self.files.values() {
            if let Some(assignment) = fleet.schedule().assignment(cluster_type, target) {
                found.entry(assignment.name()).or_default().extend(problems.iter().cloned());
            }
        }
        found
    }

    fn check(&mut self, path: &str, file: &File) {
        let problems = problems(path, &file.content);
        if problems.is_empty() {
            return;
        }
        if self.files.len() >= MOST {
            self.is_cut = true;
            return;
        }
        let (cluster_type, target) = (file.provenance.cluster_type.clone(), file.provenance.target.clone());
        self.files.insert(path.to_owned(), InvalidFile { cluster_type, target, problems });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::Provenance;

    const GOOD: &str = "apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: web, namespace: flux-system}
spec: {interval: 5m, prune: true, path: ./web, timeout: null, sourceRef: {kind: GitRepository, name: web}}
";

    fn file(content: &str) -> File {
        let provenance = Provenance { cluster_type: "a".to_owned(), target: "b".to_owned(), ..Provenance::default() };
        File { content: content.to_owned(), provenance }
    }

    #[test]
    fn every_project_has_compiled_schemas() {
        let kinds = [
            ("kustomize.toolkit.fluxcd.io/v1", "Kustomization"),
            ("helm.toolkit.fluxcd.io/v2", "HelmRelease"),
            ("source.toolkit.fluxcd.io/v1", "GitRepository"),
            ("source.toolkit.fluxcd.io/v1", "OCIRepository"),
            ("argoproj.io/v1alpha1", "Application"),
            ("fleet.cattle.io/v1alpha1", "GitRepo"),
            ("", "ZarfPackageConfig"),
            ("zarf.dev/v1alpha1", "ZarfPackageConfig"),
        ];
        for (api_version, kind) in kinds {
            assert!(SCHEMAS[api_version].contains_key(kind), "{api_version} {kind}");
        }
    }

    #[test]
    fn problem_names_file_object_and_field() {
        assert_eq!(problems("a/b/reconciler.yaml", GOOD), [] as [&str; 0], "a field that is null is not there");
        let check = |from: &str, to: &str, expected: &[&str]| {
            assert!(GOOD.contains(from), "{from}");
            let found = problems("a/b/reconciler.yaml", &GOOD.replace(from, to));
            for part in expected {
                assert!(found.iter().any(|problem| problem.contains(part)), "{part}: {found:?}");
            }
            assert_eq!(found.len(), expected.len(), "{found:?}");
        };
        check("5m", "1d", &["a/b/reconciler.yaml: Kustomization \"web\", spec.interval: \"1d\" does not match"]);
        check("prune: true, ", "", &["Kustomization \"web\", spec: \"prune\" is a required property"]);
        check("path:", "paths:", &["Kustomization \"web\", spec: Additional properties are not allowed ('paths'"]);
        check("kind: GitRepository", "kind: Git", &["spec.sourceRef.kind: \"Git\" is not one of"]);
        check(
            "interval: 5m, prune: true",
            "interval: [], prune: 1",
            &["spec.interval: ", "spec.prune: 1 is not of type"],
        );
        check("v1\n", "v1beta2\n", &[]);
        let broken = problems("a/b/reconciler.yaml", &GOOD.replace("spec: {", "spec: {{"));
        assert!(broken[0].starts_with("a/b/reconciler.yaml:") && broken[0].contains("is not valid YAML"), "{broken:?}");
        let package = "kind: ZarfPackageConfig\nmetadata: {name: a}\ncomponents: [{name: b, requires: true}]\n";
        let found = problems("a/b/reconciler.yaml", package);
        assert!(
            found[0].contains("ZarfPackageConfig \"a\", components.0: ") && found[0].contains("requires"),
            "{found:?}"
        );
        assert_eq!(problems("a/b/platform-config.sh", GOOD.replace("5m", "1d").as_str()), [] as [&str; 0]);
    }

    #[test]
    fn file_has_a_limited_number_of_problems() {
        let many = vec![GOOD.replace("5m", "1d"); REPORTED + 5].join("---\n");
        assert_eq!(problems("a/b/reconciler.yaml", &many).len(), REPORTED);
    }

    #[test]
    fn changed_files_alone_are_checked_again() {
        let bad = GOOD.replace("5m", "1d");
        let mut files: BTreeMap<String, File> = [
            ("a/b/reconciler.yaml".to_owned(), file(&bad)),
            ("a/b/namespace.yaml".to_owned(), file("kind: Namespace\n")),
        ]
        .into();
        let first = InvalidResults::of(&files);
        assert_eq!(first.files.keys().collect::<Vec<_>>(), ["a/b/reconciler.yaml"]);
        let touch = |paths: &[&str]| -> BTreeSet<String> { paths.iter().map(|path| (*path).to_owned()).collect() };
        files.insert("a/b/namespace.yaml".to_owned(), file(&bad));
        assert_eq!(first.after(&files, &touch(&[])), first);
        let second = first.after(&files, &touch(&["a/b/namespace.yaml"]));
        assert_eq!(second, InvalidResults::of(&files));
        files.insert("a/b/reconciler.yaml".to_owned(), file(GOOD));
        files.remove("a/b/namespace.yaml");
        let third = second.after(&files, &touch(&["a/b/namespace.yaml", "a/b/reconciler.yaml"]));
        assert_eq!(third, InvalidResults::default());
    }

    #[test]
    fn only_first_files_are_in_memory() {
        let bad = file(&GOOD.replace("5m", "1d"));
        let mut files: BTreeMap<String, File> =
            (0..=MOST).map(|at| (format!("a/{at:05}/reconciler.yaml"), bad.clone())).collect();
        let found = InvalidResults::of(&files);
        assert_eq!((found.files.len(), found.is_cut), (MOST, true));
        let first = "a/00000/reconciler.yaml".to_owned();
        files.insert(first.clone(), file(GOOD));
        let next = found.after(&files, &[first].into());
        assert_eq!((next.files.len(), next.is_cut), (MOST, false), "the last one is found");
    }
}
