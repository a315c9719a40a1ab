//! Plain overlays: changes of a stack's resources for one workspace, from the files in `workspaces/<workspace>/`.
//!
//! Start at [`generate`]. A document is a partial object of the stack, a part of a resource by its id, or a JSON
//! patch with its target. A document that fits no resource is a problem, since half an object would be deployed otherwise.

use json_patch::Patch;
use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_engine::{ObjectRef, Resource, Spec, overlay};
use stoa_proto::Problem;
use stoa_yaml::Document;

use super::{Files, Generated, Input, yaml};
use crate::failure::{Failure, problem, reason};
use crate::source::{Content, SourceFile};

/// The folder of all overlays in the folder of a stack.
const FOLDER: &str = "workspaces";

/// Renders a stack by a generator, and changes its resources by the overlay of the workspace.
pub(super) fn generate(
    content: &Content,
    input: &Input<'_>,
    generator: impl FnOnce(&Input<'_>) -> Result<Generated, Failure>,
) -> Result<Generated, Failure> {
    let Some(Split { content, positions, overlay }) = split(content, &input.values.workspace) else {
        return generator(input);
    };
    // The positions are those of the whole content.
    let at = |position: Option<usize>| (input.at)(position.and_then(|position| positions.get(position).copied()));
    let mut generated = generator(&Input { files: Files::Content(&content), at: &at, ..*input })?;
    apply(&mut generated.spec, &overlay).map_err(Failure::invalid)?;
    let in_overlay = |problem| crate::convert::problem_in(&generated.spec, problem);
    super::check(&generated.spec).map_err(|found| Failure::invalid(found.into_iter().map(in_overlay).collect()))?;
    Ok(generated)
}

/// The content of a stack with overlays.
struct Split {
    /// The content without them.
    content: Content,
    /// The positions of its files in the whole content.
    positions: Vec<usize>,
    /// The files of the overlay of one workspace.
    overlay: Vec<SourceFile>,
}

/// Separates the overlays of a stack from its files; `None` for a stack without overlays.
fn split(content: &Content, workspace: &str) -> Option<Split> {
    let Content::Folder { path, files, others, warnings } = content else { return None };
    let own = super::join(path, &format!("{FOLDER}/{workspace}/"));
    if !files.iter().any(|file| is_in_overlay(path, &file.path)) {
        return None;
    }
    let overlay = files.iter().filter(|file| file.path.starts_with(&own)).cloned().collect();
    let (positions, files) =
        files.iter().cloned().enumerate().filter(|(_, file)| !is_in_overlay(path, &file.path)).unzip();
    let content = Content::Folder { path: path.clone(), files, others: others.clone(), warnings: warnings.clone() };
    Some(Split { content, positions, overlay })
}

/// Whether a file in the folder of a stack is of an overlay.
pub(super) fn is_in_overlay(folder: &str, file: &str) -> bool {
    file.starts_with(&super::join(folder, &format!("{FOLDER}/")))
}

/// Changes the resources of a Spec by the files of an overlay, in the order of their names.
fn apply(spec: &mut Spec, overlay: &[SourceFile]) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    for file in overlay {
        let documents = match yaml::documents(file) {
            Ok(documents) => documents,
            Err(problem) => {
                problems.push(*problem);
                continue;
            }
        };
        for Document { value, line, .. } in documents {
            if let Err((field, message)) = change(spec, value) {
                let (file, line) = (file.path.clone(), yaml::narrow(line));
                problems.push(Problem { file, line, field, ..problem(reason::INVALID_MANIFEST, message) });
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// The resources that a document changes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Target {
    id: Option<String>,
    api_version: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
}

/// A JSON patch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Operations {
    target: Target,
    patch: Patch,
}

/// A part of a resource.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    id: String,
    attributes: Map<String, Value>,
}

/// The field of a problem, and its message.
type Wrong = (String, String);

fn change(spec: &mut Spec, document: Value) -> Result<(), Wrong> {
    let invalid = |error: serde_json::Error| (String::new(), error.to_string());
    let has = |field: &str| document.get(field).is_some();
    if has("patch") {
        let Operations { target, patch } = serde_json::from_value(document).map_err(invalid)?;
        return with(spec, &target, |attributes| {
            let mut whole = Value::Object(attributes.clone());
            let why = |error: json_patch::PatchError| (format!("patch{}", error.path), error.kind.to_string());
            json_patch::patch(&mut whole, &patch).map_err(why)?;
            match whole {
                Value::Object(changed) => Ok(changed),
                _ => Err(("patch".to_owned(), "must leave an object".to_owned())),
            }
        });
    }
    if has("attributes") {
        let Part { id, attributes } = serde_json::from_value(document).map_err(invalid)?;
        let target = Target { id: Some(id), ..Target::default() };
        return with(spec, &target, |old| {
            overlay::merged(old, &attributes).map_err(|(field, why)| (format!("attributes.{field}"), why))
        });
    }
    let text = |path: &[&str]| document.as_object().and_then(|map| text_at(map, path)).map(str::to_owned);
    let target = Target {
        id: None,
        api_version: text(&["apiVersion"]),
        kind: text(&["kind"]),
        namespace: text(&["metadata", "namespace"]),
        name: text(&["metadata", "name"]),
    };
    match (&document, &target) {
        (Value::Object(patch), Target { api_version: Some(_), kind: Some(_), name: Some(_), .. }) => {
            with(spec, &target, |old| overlay::merged(old, patch).map_err(|(field, why)| (field.to_string(), why)))
        }
        _ => {
            let message = "must be an object with apiVersion, kind and metadata.name, a resource with id and attributes, \
                           or a JSON patch with target and patch";
            Err((String::new(), message.to_owned()))
        }
    }
}

/// Changes the one resource of a target.
fn with(
    spec: &mut Spec,
    target: &Target,
    change: impl FnOnce(&Map<String, Value>) -> Result<Map<String, Value>, Wrong>,
) -> Result<(), Wrong> {
    let mut fitting = spec.resources.iter_mut().filter(|resource| fits(resource, target));
    let resource = match (fitting.next(), fitting.next()) {
        (Some(one), None) => one,
        (Some(one), Some(other)) => {
            let message = format!("fits {} and {}; add the namespace", one.id, other.id);
            return Err((String::new(), message));
        }
        (None, _) => {
            let message = format!("fits no resource of the stack: {}", described(target));
            return Err((String::new(), message));
        }
    };
    let changed = change(&resource.attributes)?;
    if ObjectRef::of(&changed) != ObjectRef::of(&resource.attributes) {
        let message = format!("changes the identity of {}; apiVersion, kind, name and namespace stay", resource.id);
        return Err((String::new(), message));
    }
    resource.attributes = changed;
    Ok(())
}

fn fits(resource: &Resource, target: &Target) -> bool {
    if let Some(id) = &target.id {
        return resource.id.0 == *id;
    }
    let Target { api_version, kind, namespace, name, .. } = target;
    let is = |path: &[&str], wanted: &Option<String>| {
        wanted.as_deref().is_none_or(|wanted| text_at(&resource.attributes, path) == Some(wanted))
    };
    (kind.is_some() || name.is_some())
        && is(&["apiVersion"], api_version)
        && is(&["kind"], kind)
        && is(&["metadata", "namespace"], namespace)
        && is(&["metadata", "name"], name)
}

/// The text at a path of keys.
fn text_at<'m>(map: &'m Map<String, Value>, path: &[&str]) -> Option<&'m str> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(map.get(*first)?, |value, key| value.get(key))?.as_str()
}

fn described(target: &Target) -> String {
    let Target { id, api_version, kind, namespace, name } = target;
    let parts: Vec<&str> = [id, api_version, kind, namespace, name].into_iter().flatten().map(String::as_str).collect();
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), bytes: text.as_bytes().to_vec() }
    }

    fn spec() -> Spec {
        let map = |namespace: &str| {
            json!({"id": format!("v1:ConfigMap:{namespace}:a"), "type": "Kubernetes", "attributes": {"apiVersion": "v1",
                "kind": "ConfigMap", "metadata": {"name": "a", "namespace": namespace}, "data": {"x": "1", "y": "2"}}})
        };
        let web = json!({"id": "apps/v1:Deployment:one:web", "type": "Kubernetes", "attributes": {"apiVersion": "apps/v1",
            "kind": "Deployment", "metadata": {"name": "web", "namespace": "one"}, "spec": {"replicas": 1}}});
        let pet = json!({"id": "hashicorp:random:random_pet:pet", "type": "Terraform", "attributes": {"length": 2}});
        serde_json::from_value(json!({"resources": [map("one"), map("two"), web, pet]})).unwrap()
    }

    fn problems(text: &str) -> Vec<String> {
        let wrong = apply(&mut spec(), &[file("s/workspaces/dev/a.yaml", text)]).unwrap_err();
        wrong.iter().map(crate::failure::sentence).collect()
    }

    #[test]
    fn overlay_of_another_workspace_is_left_out() {
        let files = ["s/a.yaml", "s/workspaces/dev/b.yaml", "s/workspaces/prod/c.yaml", "s/workspaces.yaml"];
        let files = files.map(|path| file(path, "")).to_vec();
        let folder = Content::Folder { path: "s".to_owned(), files, others: Vec::new(), warnings: Vec::new() };
        let Split { content, positions, overlay } = split(&folder, "dev").unwrap();
        let paths = |files: &[SourceFile]| files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(content.files()), ["s/a.yaml", "s/workspaces.yaml"]);
        assert_eq!((positions, paths(&overlay)), (vec![0, 3], vec!["s/workspaces/dev/b.yaml".to_owned()]));
        assert!(split(&content, "dev").is_none(), "there are no overlays left");
    }

    #[test]
    fn each_form_of_document_changes_its_resource() {
        let mut spec = spec();
        let text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 3}\n---\n\
                    id: hashicorp:random:random_pet:pet\nattributes: {length: 4}\n---\n\
                    target: {kind: ConfigMap, name: a, namespace: two}\n\
                    patch: [{op: remove, path: /data/x}, {op: add, path: /data/z, value: '3'}]\n";
        apply(&mut spec, &[file("s/workspaces/dev/a.yaml", text)]).unwrap();
        let attributes = |index: usize| Value::Object(spec.resources[index].attributes.clone());
        assert_eq!(attributes(0)["data"], json!({"x": "1", "y": "2"}));
        assert_eq!(attributes(1)["data"], json!({"y": "2", "z": "3"}));
        assert_eq!((&attributes(2)["spec"], &attributes(3)), (&json!({"replicas": 3}), &json!({"length": 4})));
    }

    #[test]
    fn unfit_documents_are_problems_with_their_lines() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {x: '9'}\n---\n\
                    apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: wbe}\nspec: {replicas: 3}\n---\n\
                    target: {kind: Deployment, name: web}\npatch: [{op: remove, path: /spec/none}]\n---\n\
                    target: {kind: Deployment, name: web}\n\
                    patch: [{op: replace, path: /metadata/name, value: other}]\n---\nreplicas: 3\n";
        let found = problems(text);
        for (found, expected) in found.iter().zip([
            "s/workspaces/dev/a.yaml:1: fits v1:ConfigMap:one:a and v1:ConfigMap:two:a; add the namespace",
            "s/workspaces/dev/a.yaml:6: fits no resource of the stack: apps/v1 Deployment wbe",
            "s/workspaces/dev/a.yaml:11",
            "s/workspaces/dev/a.yaml:14: changes the identity of apps/v1:Deployment:one:web",
            "s/workspaces/dev/a.yaml:17: must be an object with apiVersion, kind and metadata.name",
        ]) {
            assert!(found.starts_with(expected), "{found}");
        }
        assert_eq!(found.len(), 5);
    }
}
