//! Reads a folder of a repository: files in, objects and problems out.
//!
//! The folder is read as Flux reads it for Kalypso: every `.yaml` and `.yml` file below it, with several documents.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde_json::Value;
use stoa_yaml::{Cause, Document, Limits};

use crate::{
    Origin, Problem, Severity,
    objects::{API_VERSION, AnyObject},
};

/// The files of a folder, by their paths in it.
pub type Files = BTreeMap<String, Bytes>;

/// The limits on one file.
const LIMITS: Limits = Limits { depth: 100, values: 1_000_000, documents: 10_000, copied: 16 << 20 };

/// The size of the largest file that is read, in bytes.
const LARGEST: usize = 4 << 20;

/// Folders and files of other tools, which Flux leaves out.
const FOLDERS_OF_TOOLS: [&str; 3] = [".git", ".github", ".circleci"];
const FILES_OF_TOOLS: [&str; 11] = [
    ".travis.yml",
    ".gitlab-ci.yml",
    "appveyor.yml",
    ".drone.yml",
    "cloudbuild.yaml",
    "codeship-services.yml",
    "codeship-steps.yml",
    ".goreleaser.yml",
    ".sops.yaml",
    ".flux.yaml",
    ".pre-commit-config.yaml",
];
const KUSTOMIZATIONS: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// The objects of a folder.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    files: BTreeMap<String, Arc<FileReading>>,
    /// Whether a file that is unreadable has no earlier objects either.
    pub lacks_objects: bool,
}

#[derive(Debug)]
struct FileReading {
    content: Bytes,
    objects: Vec<AnyObject>,
    problems: Vec<Problem>,
    /// Whether objects are missing, since it is unreadable and has no earlier version.
    lacks_objects: bool,
}

impl Reading {
    /// Reads the files of a source.
    ///
    /// A file that is unchanged since `previous` is not read again. One that is unreadable keeps the objects that it had
    /// there.
    pub fn read(source: &str, files: &Files, previous: Option<&Self>) -> Self {
        let mut reading = Self::default();
        for (path, content) in files {
            let earlier = previous.and_then(|previous| previous.files.get(path));
            let file = match earlier {
                Some(earlier) if earlier.content == content => Arc::clone(earlier),
                _ => match read_file(source, path, content) {
                    Some(file) => Arc::new(keep_earlier(file, earlier)),
                    None => continue,
                },
            };
            reading.lacks_objects |= file.lacks_objects;
            reading.files.insert(path.clone(), file);
        }
        reading
    }

    /// The objects in the order of their files.
    pub fn objects(&self) -> impl Iterator<Item = &AnyObject> {
        self.files.values().flat_map(|file| &file.objects)
    }

    /// The objects with their documents, in the order of their files. Files are parsed anew, since documents are not in memory.
    pub fn documents(&self) -> Vec<(AnyObject, Value)> {
        let mut found = Vec::new();
        for file in self.files.values().filter(|file| !file.objects.is_empty()) {
            let Some(documents) =
                std::str::from_utf8(&file.content).ok().and_then(|text| stoa_yaml::documents(text, &LIMITS, true).ok())
            else {
                continue;
            };
            let items = documents.into_iter().flat_map(|document| match document.value {
                value if value["apiVersion"] == "v1" && value["kind"] == "List" => match value {
                    Value::Object(mut list) => match list.remove("items") {
                        Some(Value::Array(items)) => items,
                        _ => Vec::new(),
                    },
                    _ => Vec::new(),
                },
                value => vec![value],
            });
            for value in items {
                let is_of =
                    |object: &&AnyObject| object.kind() == value["kind"] && object.name() == value["metadata"]["name"];
                let object = file.objects.iter().find(is_of).cloned();
                found.extend(object.map(|object| (object, value)));
            }
        }
        found
    }

    /// The problems in the order of their files.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.files.values().flat_map(|file| &file.problems)
    }
}

/// An unreadable file with its earlier objects, if it had some.
fn keep_earlier(mut file: FileReading, earlier: Option<&Arc<FileReading>>) -> FileReading {
    if let Some(earlier) = earlier.filter(|_| file.lacks_objects) {
        file.objects.clone_from(&earlier.objects);
        file.lacks_objects = earlier.lacks_objects;
    }
    file
}

/// Reads a file; `None` for one that has no objects by its name.
fn read_file(source: &str, path: &str, content: &Bytes) -> Option<FileReading> {
    let mut parts = path.split('/').rev();
    let name = parts.next().unwrap_or_default();
    if FILES_OF_TOOLS.contains(&name) || parts.any(|folder| FOLDERS_OF_TOOLS.contains(&folder)) {
        return None;
    }
    let mut file =
        FileReading { content: content.clone(), objects: Vec::new(), problems: Vec::new(), lacks_objects: false };
    let origin = |line| Origin { source: source.to_owned(), file: path.to_owned(), line };
    if KUSTOMIZATIONS.contains(&name) {
        file.unreadable(origin(0), "a kustomization is not built; commit its result instead");
        return Some(file);
    }
    if name == ".sourceignore" {
        file.problems.push(Problem::new(
            Severity::Warning,
            &origin(0),
            "is not applied; all files below the folder are read. Move other files out of the folder",
        ));
        return Some(file);
    }
    if !path.ends_with(".yaml") && !path.ends_with(".yml") {
        return None;
    }
    if content.len() > LARGEST {
        file.unreadable(origin(0), format!("has {} bytes, and {LARGEST} are allowed; split the file", content.len()));
        return Some(file);
    }
    let Ok(text) = std::str::from_utf8(content) else {
        file.unreadable(origin(0), "is not UTF-8; save it as UTF-8");
        return Some(file);
    };
    match stoa_yaml::documents(text, &LIMITS, true) {
        Ok(documents) => documents.iter().for_each(|document| file.add_document(document, &origin)),
        Err(error) => file.unreadable(origin(error.line), format!("is not valid YAML: {}", error.kind)),
    }
    Some(file)
}

impl FileReading {
    fn unreadable(&mut self, origin: Origin, message: impl Into<String>) {
        self.problems.push(Problem::new(Severity::Unreadable, &origin, message));
        self.lacks_objects = true;
    }

    fn add_document(&mut self, document: &Document, origin: &dyn Fn(usize) -> Origin) {
        if document.value.is_null() {
            return;
        }
        let at = origin(document.line);
        if let Some(duplicate) = document.duplicates.iter().find(|duplicate| duplicate.cause == Cause::Written) {
            let message = format!("the key {:?} is there twice; remove one", duplicate.key);
            return self.unreadable(origin(duplicate.line), message);
        }
        if document.value["apiVersion"] == "v1" && document.value["kind"] == "List" {
            let items = document.value["items"].as_array().map(Vec::as_slice).unwrap_or_default();
            return items.iter().for_each(|item| self.add_object(item, at.clone(), &at));
        }
        // The line of the spec is nearer to most errors.
        let of_spec = document.outline.key("spec").map(|(line, _)| line as usize);
        let error_at = origin(of_spec.unwrap_or(document.line));
        self.add_object(&document.value, at, &error_at);
    }

    fn add_object(&mut self, value: &Value, at: Origin, error_at: &Origin) {
        let text = |field: &str| value[field].as_str().unwrap_or_default();
        let (version, kind) = (text("apiVersion"), text("kind"));
        match AnyObject::read(value, at.clone()) {
            Some(Ok(object)) => self.objects.push(object),
            Some(Err(message)) => {
                let name: String = value["metadata"]["name"].as_str().unwrap_or_default().chars().take(80).collect();
                self.unreadable(error_at.clone(), format!("{kind} {name:?}: {message}"));
            }
            None if version.is_empty() || kind.is_empty() => {
                let message = "is ignored: a document without apiVersion and kind is no object of Kubernetes";
                self.problems.push(Problem::new(Severity::Note, &at, message));
            }
            None => {
                let hint = if version.starts_with("scheduler.kalypso.io/") && version != API_VERSION {
                    format!("; use {API_VERSION}")
                } else {
                    String::new()
                };
                let shown: String = format!("{version} {kind}").chars().take(120).collect();
                let message = format!("is ignored: objects of {shown} do not count here{hint}");
                self.problems.push(Problem::new(Severity::Note, &at, message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Files {
        all.iter().map(|(path, text)| ((*path).to_owned(), Bytes::copy_from_slice(text.as_bytes()))).collect()
    }

    fn shown(reading: &Reading) -> (Vec<String>, Vec<String>) {
        let objects = reading.objects().map(ToString::to_string).collect();
        (objects, reading.problems().map(ToString::to_string).collect())
    }

    const TYPE: &str = "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: ClusterType\nmetadata:\n  name: drone\n  labels:\nspec:\n  \
                        reconciler: flux\n  namespaceService: default\n";
    const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: 'b'}\n";

    #[test]
    fn documents_of_all_yaml_files_are_read() {
        let all = files(&[
            ("a/types.yaml", &format!("# types\n---\n{TYPE}---\n{MAP}---\n")),
            (
                "b.yml",
                "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: k}\n",
            ),
            ("readme.md", "kind: ["),
            (".github/workflows/ci.yaml", "kind: ["),
            ("x/.gitlab-ci.yml", "kind: ["),
        ]);
        let reading = Reading::read("environment dev", &all, None);
        assert_eq!(
            shown(&reading),
            (vec!["ClusterType drone".into(), "ConfigMap m".into(), "ConfigMap k".into()], vec![])
        );
        let origin = reading.objects().next().unwrap().origin().to_string();
        assert_eq!(origin, "environment dev: a/types.yaml:3");
        assert!(!reading.lacks_objects);
    }

    #[test]
    fn problems_name_file_and_line() {
        for (text, expected) in [
            ("a: [\n", "f.yaml:1: is not valid YAML: did not find expected ',' or ']'"),
            ("kind: A\nkind: B\n", "f.yaml:2: the key \"kind\" is there twice; remove one"),
            ("a: 1\n", "f.yaml:1: is ignored: a document without apiVersion and kind is no object of Kubernetes"),
            ("apiVersion: v1\nkind: Secret\n", "f.yaml:1: is ignored: objects of v1 Secret do not count here"),
            (
                "apiVersion: scheduler.kalypso.io/v1\nkind: Template\n",
                "f.yaml:1: is ignored: objects of scheduler.kalypso.io/v1 Template do not count here; use scheduler.kalypso.io/v1alpha1",
            ),
            (
                "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: BaseRepo\nmetadata:\n  name: main\nspec:\n  repo: a\n  path: b\n",
                "f.yaml:5: BaseRepo \"main\": spec: missing field `branch`",
            ),
            (
                &TYPE.replace("drone", "../x"),
                "f.yaml:6: ClusterType \"../x\": name \"../x\" is invalid; use at most 253 lower case letters, digits, `-` and `.`",
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: true}\n",
                "f.yaml:1: ConfigMap \"m\": spec: invalid type: boolean `true`, expected a string",
            ),
        ] {
            let reading = Reading::read("s", &files(&[("f.yaml", text)]), None);
            let (objects, problems) = shown(&reading);
            assert_eq!((objects.len(), problems.join("\n")), (0, format!("s: {expected}")), "{text}");
        }
        for (path, content) in
            [("kustomization.yaml", b"a".as_slice()), ("x.yaml", b"\xff"), ("y.yaml", &[b'#'; LARGEST + 1])]
        {
            let all = Files::from([(path.to_owned(), Bytes::copy_from_slice(content))]);
            let reading = Reading::read("s", &all, None);
            assert!(reading.lacks_objects && reading.problems().count() == 1, "{path}");
        }
    }

    #[test]
    fn unreadable_file_keeps_its_earlier_objects() {
        let before = Reading::read("s", &files(&[("a.yaml", TYPE), ("b.yaml", MAP)]), None);
        let broken = files(&[("a.yaml", "kind: ["), ("b.yaml", MAP)]);
        let after = Reading::read("s", &broken, Some(&before));
        assert_eq!(shown(&after).0, ["ClusterType drone", "ConfigMap m"]);
        assert!(!after.lacks_objects && after.problems().count() == 1);
        // The next reading still has them, and a repaired file replaces them.
        let again = Reading::read("s", &broken, Some(&after));
        assert_eq!(shown(&again).0, ["ClusterType drone", "ConfigMap m"]);
        assert!(!again.lacks_objects && again.problems().count() == 1);
        let repaired = Reading::read("s", &files(&[("a.yaml", MAP)]), Some(&again));
        assert_eq!(shown(&repaired), (vec!["ConfigMap m".into()], vec![]));
        assert!(Reading::read("s", &broken, None).lacks_objects);
    }

    #[test]
    fn unchanged_files_are_not_read_again() {
        let before = Reading::read("s", &files(&[("a.yaml", TYPE)]), None);
        let after = Reading::read("s", &files(&[("a.yaml", TYPE), ("b.yaml", MAP)]), Some(&before));
        assert!(Arc::ptr_eq(&before.files["a.yaml"], &after.files["a.yaml"]));
    }
}
