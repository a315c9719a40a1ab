//! Plain overlays: changes of a stack's resources for one workspace, from the files in `workspaces/<workspace>/`.
//!
//! Start at [`generate`], and at [`changed`] for a Spec with the resources of modules. A document is a partial object of the stack, a part of a resource by its id, or a JSON
//! patch with its target. A document that fits no resource is a problem, since half an object would be deployed otherwise.

use json_patch::Patch;
use serde::Deserialize;
use serde_json::{Map, Value};
use stoa_engine::path::{FieldPath, Segment};
use stoa_engine::{ObjectRef, Resource, ResourceType, Spec, overlay};
use stoa_kubernetes_model::normalize::normalize;
use stoa_proto::Problem;
use stoa_yaml::Document;

use super::placeholders::{OfFile, Placeholders};
use super::{Files, Generated, Input, tools, yaml};
use crate::failure::{Failure, problem, reason};
use crate::source::{Content, SourceFile};

/// The directive of a strategic merge patch.
const DIRECTIVE: &str = "$patch";
/// The folder of all overlays in the folder of a stack.
pub(crate) const FOLDER: &str = "workspaces";

/// The folder with the overlay of a workspace for a stack's folder; nothing for no workspace.
pub(super) fn folder_of(folder: &str, workspace: &str) -> Option<String> {
    (!workspace.is_empty()).then(|| super::join(folder, &format!("{FOLDER}/{workspace}")))
}

/// Renders a stack by a generator, and changes its resources by the overlay of the workspace.
pub(super) fn generate(
    input: &Input<'_>,
    generator: impl FnOnce(&Input<'_>) -> Result<Generated, Failure>,
) -> Result<Generated, Failure> {
    let split = match input.files {
        Files::Content(content) => split(content, &input.values.workspace),
        Files::Tree { .. } | Files::Documents(_) => None,
    };
    let Some(Split { content, positions, overlay }) = split else {
        let mut generated = generator(input)?;
        let files = &mut generated.provenance.files;
        files.extend(input.overlay.iter().map(|file| file.path.clone()));
        // A program may read files of the overlay itself.
        files.sort();
        files.dedup();
        return changed(generated, input.overlay, input.placeholders);
    };
    // The positions are those of the whole content.
    let at = |position: Option<usize>| (input.at)(position.and_then(|position| positions.get(position).copied()));
    let generated = generator(&Input { files: Files::Content(&content), at: &at, ..*input })?;
    changed(generated, &overlay, input.placeholders)
}

/// The output of a generator with the changes of an overlay. One that lacks resources of modules changes later, with these.
pub(super) fn changed(
    mut generated: Generated,
    overlay: &[SourceFile],
    values: &Placeholders,
) -> Result<Generated, Failure> {
    if overlay.is_empty() || !generated.calls.is_empty() {
        return Ok(generated);
    }
    apply(&mut generated.spec, overlay, values).map_err(Failure::invalid)?;
    normalize(&mut generated.spec);
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
    let own = folder_of(path, workspace).map(|folder| format!("{folder}/"));
    if !files.iter().any(|file| is_in_overlay(path, &file.path)) {
        return None;
    }
    let is_own = |file: &&SourceFile| own.as_ref().is_some_and(|own| file.path.starts_with(own));
    let overlay = files.iter().filter(is_own).cloned().collect();
    let (positions, files) =
        files.iter().cloned().enumerate().filter(|(_, file)| !is_in_overlay(path, &file.path)).unzip();
    let content = Content::Folder { path: path.clone(), files, others: others.clone(), warnings: warnings.clone() };
    Some(Split { content, positions, overlay })
}

/// Whether a file in the folder of a stack is of an overlay. A file right in the folder of all overlays is of no workspace.
pub(super) fn is_in_overlay(folder: &str, file: &str) -> bool {
    file.strip_prefix(&super::join(folder, &format!("{FOLDER}/"))).is_some_and(|rest| rest.contains('/'))
}

/// Changes the resources of a Spec by the files of an overlay, in the order of their names.
fn apply(spec: &mut Spec, overlay: &[SourceFile], values: &Placeholders) -> Result<(), Vec<Problem>> {
    if let Some(problem) = tools::find(overlay) {
        return Err(vec![problem]);
    }
    let mut problems = Vec::new();
    for file in overlay {
        let documents = match yaml::with_exact(file) {
            Ok(documents) => documents,
            Err(problem) => {
                problems.push(*problem);
                continue;
            }
        };
        let placeholders = values.of_file(file);
        for (Document { mut value, line, .. }, mut exact) in documents {
            let filled = fill(spec, &placeholders, line, &mut value);
            let filled =
                filled.and_then(|()| exact.as_mut().map_or(Ok(()), |exact| fill(spec, &placeholders, line, exact)));
            if let Err(wrong) = filled {
                problems.extend(wrong);
            } else if let Err((field, message)) = change(spec, value, exact) {
                let (file, line) = (file.path.clone(), yaml::narrow(line));
                problems.push(Problem { file, line, field, ..problem(reason::INVALID_MANIFEST, message) });
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Fills the placeholders of a document. Those in parts of a resource get the types that this resource wants there.
fn fill(spec: &Spec, placeholders: &OfFile<'_>, line: usize, document: &mut Value) -> Result<(), Vec<Problem>> {
    let form = ["patch", "attributes"].into_iter().find(|form| document.get(form).is_some());
    let part = form.and_then(|form| Some((form, document.as_object_mut()?.remove(form)?)));
    placeholders.fill(line, document)?;
    let Some((form, mut part)) = part else { return Ok(()) };
    let target = match document.get("target") {
        Some(target) => serde_json::from_value(target.clone()).unwrap_or_default(),
        None => Target { id: text_of(document, "id"), ..Target::default() },
    };
    let attributes = spec.resources.iter().find(|resource| fits(resource, &target)).map(|found| &found.attributes);
    let kind = attributes.and_then(|attributes| text_at(attributes, &["kind"])).unwrap_or_default();
    let field = FieldPath::default().key(form);
    match &mut part {
        Value::Array(operations) if form == "patch" => {
            let whole = attributes.map(|attributes| Value::Object(attributes.clone()));
            for (index, operation) in operations.iter_mut().enumerate() {
                let mut field = field.clone();
                field.0.push(Segment::Index(index));
                let value = operation.as_object_mut().and_then(|fields| fields.remove("value"));
                placeholders.fill_part(line, operation, (&field, "", &[]))?;
                if let (Some(mut value), Value::Object(fields)) = (value, operation) {
                    let pointer = fields.get("path").and_then(Value::as_str).unwrap_or_default();
                    let path = segments(pointer, whole.as_ref());
                    placeholders.fill_part(line, &mut value, (&field.key("value"), kind, &path))?;
                    fields.insert("value".to_owned(), value);
                }
            }
        }
        _ => placeholders.fill_part(line, &mut part, (&field, kind, &[]))?,
    }
    if let Value::Object(fields) = document {
        fields.insert(form.to_owned(), part);
    }
    Ok(())
}

fn text_of(document: &Value, field: &str) -> Option<String> {
    document.get(field).and_then(Value::as_str).map(str::to_owned)
}

/// The path of a JSON pointer in a value. The part after a list is an index, and `-` is one in any case.
fn segments(pointer: &str, mut around: Option<&Value>) -> Vec<Segment> {
    let mut path = Vec::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        let index = part.parse().ok();
        path.push(match around {
            Some(Value::Array(_)) => Segment::Index(index.unwrap_or_default()),
            _ if part == "-" => Segment::Index(0),
            _ => Segment::Key(part.clone()),
        });
        around = around.and_then(|value| match value {
            Value::Array(items) => items.get(index?),
            other => other.get(&part),
        });
    }
    path
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

/// Changes a Spec by a document, or for a resource of a provider by the same document with exact numbers.
fn change(spec: &mut Spec, document: Value, exact: Option<Value>) -> Result<(), Wrong> {
    let invalid = |error: serde_json::Error| (String::new(), error.to_string());
    let has = |field: &str| document.get(field).is_some();
    if has("patch") {
        let Operations { target, mut patch } = serde_json::from_value(document).map_err(invalid)?;
        if let Some(exact) = exact.filter(|_| is_of_provider(spec, &target)) {
            patch = serde_json::from_value::<Operations>(exact).map_err(invalid)?.patch;
        }
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
        let Part { id, mut attributes } = serde_json::from_value(document).map_err(invalid)?;
        let target = Target { id: Some(id), ..Target::default() };
        if let Some(exact) = exact.filter(|_| is_of_provider(spec, &target)) {
            attributes = serde_json::from_value::<Part>(exact).map_err(invalid)?.attributes;
        }
        return with(spec, &target, |old| {
            merged(old, &attributes).map_err(|(field, why)| (format!("attributes.{field}"), why))
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
            with(spec, &target, |old| merged(old, patch).map_err(|(field, why)| (field.to_string(), why)))
        }
        _ => {
            let message = "must be an object with apiVersion, kind and metadata.name, a resource with id and attributes, \
                           or a JSON patch with target and patch";
            Err((String::new(), message.to_owned()))
        }
    }
}

/// The object with a patch in it. No directive may be left, such as one in a list that is replaced.
fn merged(old: &Map<String, Value>, patch: &Map<String, Value>) -> Result<Map<String, Value>, (FieldPath, String)> {
    let changed = overlay::merged(old, patch)?;
    match directive(&changed, &mut FieldPath::default()) {
        Some(field) => {
            let message = "has no meaning in a map or list that is replaced; list what it shall have".to_owned();
            Err((field, message))
        }
        None => Ok(changed),
    }
}

/// The path of the first directive in a map.
fn directive(map: &Map<String, Value>, at: &mut FieldPath) -> Option<FieldPath> {
    fn of(value: &Value, segment: Segment, at: &mut FieldPath) -> Option<FieldPath> {
        at.0.push(segment);
        let found = match value {
            Value::Object(map) => directive(map, at),
            Value::Array(items) => {
                items.iter().enumerate().find_map(|(index, item)| of(item, Segment::Index(index), at))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        at.0.pop();
        found
    }
    if map.contains_key(DIRECTIVE) {
        return Some(at.key(DIRECTIVE));
    }
    map.iter().find_map(|(key, value)| of(value, Segment::Key(key.clone()), at))
}

/// Whether the resources of a target are those of Terraform providers, whose schemas make numbers of texts.
fn is_of_provider(spec: &Spec, target: &Target) -> bool {
    spec.resources.iter().any(|resource| fits(resource, target) && resource.kind == ResourceType::Terraform)
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
            let message = format!("fits {} and {}; add the name or the namespace, or set the id", one.id, other.id);
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
    use crate::generate::Values;

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
        let wrong = apply(&mut spec(), &[file("s/workspaces/dev/a.yaml", text)], &Placeholders::of(&Values::default()))
            .unwrap_err();
        wrong.iter().map(crate::failure::sentence).collect()
    }

    #[test]
    fn overlay_of_another_workspace_is_left_out() {
        let files = [
            "s/a.yaml",
            "s/workspaces/dev/b.yaml",
            "s/workspaces/prod/c.yaml",
            "s/workspaces.yaml",
            "s/workspaces/prod.yaml",
        ];
        let files = files.map(|path| file(path, "")).to_vec();
        let folder = Content::Folder { path: "s".to_owned(), files, others: Vec::new(), warnings: Vec::new() };
        let Split { content, positions, overlay } = split(&folder, "dev").unwrap();
        let paths = |files: &[SourceFile]| files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(content.files()), ["s/a.yaml", "s/workspaces.yaml", "s/workspaces/prod.yaml"]);
        assert_eq!((positions, paths(&overlay)), (vec![0, 3, 4], vec!["s/workspaces/dev/b.yaml".to_owned()]));
        assert!(split(&content, "dev").is_none(), "there are no overlays left");
    }

    #[test]
    fn each_form_of_document_changes_its_resource() {
        let mut spec = spec();
        let text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: ${stoa_value.count}\n---\n\
                    id: hashicorp:random:random_pet:pet\nattributes: {length: 4, exact: 12345678901234567890123}\n---\n\
                    target: {kind: ConfigMap, name: a, namespace: two}\n\
                    patch: [{op: remove, path: /data/x}, {op: add, path: /data/z, value: '3'}]\n";
        let values = Values { parameters: [("count".to_owned(), "3".to_owned())].into(), ..Values::default() };
        apply(&mut spec, &[file("s/workspaces/dev/a.yaml", text)], &Placeholders::of(&values)).unwrap();
        let attributes = |index: usize| Value::Object(spec.resources[index].attributes.clone());
        assert_eq!(attributes(0)["data"], json!({"x": "1", "y": "2"}));
        assert_eq!(attributes(1)["data"], json!({"y": "2", "z": "3"}));
        assert_eq!(
            (&attributes(2)["spec"], &attributes(3)),
            (&json!({"replicas": 3}), &json!({"length": 4, "exact": "12345678901234567890123"}))
        );
    }

    #[test]
    fn placeholders_have_the_types_of_their_resource() {
        let mut spec = spec();
        spec.resources[2].attributes["spec"]["args"] = json!(["a"]);
        let text = "id: v1:ConfigMap:one:a\nattributes: {data: {x: '${stoa_value.count}'}, other: '${stoa_value.count}'}\n---\n\
                    target: {kind: ConfigMap, namespace: '${stoa_value.second}'}\n\
                    patch: [{op: add, path: /data/1, value: '${stoa_value.count}'}, {op: test, path: /data/x, value: '1'}]\n---\n\
                    target: {kind: Deployment}\n\
                    patch:\n- {op: replace, path: /spec/replicas, value: '${stoa_value.count}'}\n\
                    - {op: add, path: /spec/args/0, value: '${stoa_value.count}'}\n\
                    - {op: add, path: /spec/command, value: ['${stoa_value.count}']}\n\
                    - {op: add, path: /metadata/labels, value: {a~1b: '${stoa_value.count}'}}\n";
        let parameters = [("count", "3"), ("second", "two")].map(|(name, text)| (name.to_owned(), text.to_owned()));
        let values = Placeholders::of(&Values { parameters: parameters.into(), ..Values::default() });
        apply(&mut spec, &[file("s/workspaces/dev/a.yaml", text)], &values).unwrap();
        let attributes = |index: usize| &spec.resources[index].attributes;
        assert_eq!(attributes(0)["data"], json!({"x": "3", "y": "2"}));
        assert_eq!((&attributes(0)["other"], &attributes(1)["data"]["1"]), (&json!(3), &json!("3")));
        assert_eq!(attributes(2)["spec"], json!({"replicas": 3, "args": ["3", "a"], "command": ["3"]}));
        assert_eq!(attributes(2)["metadata"]["labels"], json!({"a~1b": "3"}));
        let unknown = "target: {kind: Deployment}\npatch:\n- op: add\n  path: /spec/replicas\n  value: [1, '${stoa_value.none}']\n";
        assert!(
            problems(unknown)[0].starts_with("s/workspaces/dev/a.yaml:5: patch[0].value[1]: the stack has no value")
        );
        let unknown = "id: v1:ConfigMap:one:a\nattributes:\n  data:\n    x: ${stoa_value.none}\n";
        assert!(
            problems(unknown)[0].starts_with("s/workspaces/dev/a.yaml:4: attributes.data.x: the stack has no value")
        );
    }

    #[test]
    fn directives_in_replaced_parts_are_problems() {
        for (patch, field) in [
            ("spec: {tolerations: [{$patch: delete, key: x}]}", "spec.tolerations[0].$patch"),
            ("spec: {template: {$patch: replace, spec: {$patch: delete}}}", "spec.template.spec.$patch"),
            ("spec: {hooks: {a: [{b: {$patch: merge}}]}}", "spec.hooks.a[0].b.$patch"),
        ] {
            let found = problems(&format!("apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: web}}\n{patch}\n"));
            let expected =
                format!("s/workspaces/dev/a.yaml:1: {field}: has no meaning in a map or list that is replaced");
            assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?}");
        }
    }

    #[test]
    fn files_that_decided_are_listed_once() {
        let values = Values::default();
        let overlay = ["a", "b"].map(|name| file(&format!("s/workspaces/dev/{name}.yaml"), ""));
        let input = Input {
            files: Files::Documents(&[]),
            overlay: &overlay,
            values: &values,
            placeholders: &Placeholders::of(&values),
            values_read: false,
            at: &|_| {},
        };
        let read = ["s/main.k", "s/workspaces/dev/a.yaml"].map(str::to_owned).to_vec();
        let generated = generate(&input, |_| {
            let mut generated = Generated::from(Spec::default());
            generated.provenance.files = read;
            Ok(generated)
        });
        let expected = ["s/main.k", "s/workspaces/dev/a.yaml", "s/workspaces/dev/b.yaml"];
        assert_eq!(generated.unwrap().provenance.files, expected);
    }

    #[test]
    fn kustomization_is_no_overlay() {
        let file = file("s/workspaces/dev/kustomization.yaml", "resources: [../..]\n");
        let wrong = apply(&mut spec(), &[file], &Placeholders::of(&Values::default())).unwrap_err();
        assert!(wrong[0].message.starts_with("is a kustomization"), "{wrong:?}");
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
            "s/workspaces/dev/a.yaml:1: fits v1:ConfigMap:one:a and v1:ConfigMap:two:a; add the name or the namespace, or set the id",
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
