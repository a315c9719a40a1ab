//! The operations: every path of every resource, with its verbs, parameters, bodies and answers.

use serde_json::{Map, Value, json};
use stoa_meta::{
    definition::{ResourceDefinition, Scope, Subresource},
    openapi::{
        meta,
        schemas::{self, Components},
    },
    patch::MEDIA_TYPES as PATCH_MEDIA_TYPES,
};

use super::{
    names::{camel_version, capitalized, one, tag},
    parameters::{self, COMMON, DELETE, DELETE_COLLECTION, LIST, PATCH, WRITE},
    roots,
};

/// What bodies of requests are said to come in: their own header tells.
const ANY_MEDIA: &[&str] = &["*/*"];
/// What answers come in.
pub(super) const MEDIA: &[&str] = &["application/json", "application/yaml"];
/// What answers come in that are in one form only.
pub(super) const JSON: &[&str] = &["application/json"];
/// What lists come in, which may be watches.
const LIST_MEDIA: &[&str] = &["application/json", "application/json;stream=watch", "application/yaml"];

/// Where the paths of a resource's group and version begin: `/apis/<group>/<version>`, `/api/v1` for core.
pub(super) fn root(definition: &ResourceDefinition) -> String {
    match definition.group.as_str() {
        "" => format!("/api/{}", definition.version),
        group => format!("/apis/{group}/{}", definition.version),
    }
}

pub(super) fn paths(definitions: &[&ResourceDefinition], schemas: &Components) -> Map<String, Value> {
    let mut paths = Map::new();
    for definition in definitions {
        let root = root(definition);
        let resources = || roots::resource_list(&definition.group, &definition.version);
        paths.entry(format!("{root}/")).or_insert_with(|| json!({ "get": resources() }));
        add_resource(definition, &root, schemas, &mut paths);
    }
    paths
}

fn add_resource(definition: &ResourceDefinition, root: &str, schemas: &Components, paths: &mut Map<String, Value>) {
    let ResourceDefinition { plural, kind, scope, .. } = definition;
    let one = schemas::reference(&schemas::name(&definition.group, &definition.version, kind));
    let list = schemas::reference(&schemas::name(&definition.group, &definition.version, &format!("{kind}List")));
    let operations = Operations { definition, one: &one, list: &list };
    let namespaced = *scope == Scope::Namespaced;
    let base =
        if namespaced { format!("{root}/namespaces/{{namespace}}/{plural}") } else { format!("{root}/{plural}") };
    // Watches were at paths of their own once, which are served all the same.
    let watched = base.replacen(root, &format!("{root}/watch"), 1);
    insert(paths, &watched, [operations.watch("watchlist", "List")], namespaced, false);
    insert(paths, &format!("{watched}/{{name}}"), [operations.watch("watch", "")], namespaced, true);
    let collection = [
        operations.operation("list", "get", ""),
        operations.operation("create", "post", ""),
        operations.operation("deletecollection", "delete", ""),
    ];
    insert(paths, &base, collection, namespaced, false);
    let object = [
        operations.operation("get", "get", ""),
        operations.operation("update", "put", ""),
        operations.operation("patch", "patch", ""),
        operations.operation("delete", "delete", ""),
    ];
    insert(paths, &format!("{base}/{{name}}"), object, namespaced, true);
    let parts = definition.parts.iter().map(|part| part.name);
    for name in definition.has_status.then_some("status").into_iter().chain(parts) {
        let of_part = [("get", "get"), ("update", "put"), ("patch", "patch")]
            .map(|(verb, method)| operations.operation(verb, method, name));
        insert(paths, &format!("{base}/{{name}}/{name}"), of_part, namespaced, true);
    }
    if definition.scale.is_some() {
        let scale = schemas::reference(&schemas::name("autoscaling", "v1", "Scale"));
        let operations = Operations { definition, one: &scale, list: &list };
        let of_scale = [("get", "get"), ("update", "put"), ("patch", "patch")].map(|(verb, method)| {
            operations.operation(verb, method, "scale").map(|(method, mut operation)| {
                operation["x-kubernetes-group-version-kind"] = schemas::gvk("autoscaling", "v1", "Scale");
                (method, operation)
            })
        });
        insert(paths, &format!("{base}/{{name}}/scale"), of_scale, namespaced, true);
    }
    for subresource in &definition.subresources {
        let verbs = [("get", "get"), ("create", "post"), ("update", "put"), ("patch", "patch"), ("delete", "delete")];
        let operations = verbs.map(|(verb, method)| {
            subresource.verbs.contains(&verb).then(|| (method, operations.custom(subresource, verb, schemas)))
        });
        insert(paths, &format!("{base}/{{name}}/{}", subresource.name), operations, namespaced, true);
    }
    if namespaced {
        let word = camel_version(&definition.group, &definition.version);
        let all = [operations.operation("list", "get", "").map(|(method, mut operation)| {
            operation["operationId"] = format!("list{word}{kind}ForAllNamespaces").into();
            (method, operation)
        })];
        insert(paths, &format!("{root}/{plural}"), all, false, false);
        let all = [operations.watch("watchlist", "").map(|(method, mut operation)| {
            operation["operationId"] = format!("watch{word}{kind}ListForAllNamespaces").into();
            (method, operation)
        })];
        insert(paths, &format!("{root}/watch/{plural}"), all, false, false);
    }
}

fn insert<const N: usize>(
    paths: &mut Map<String, Value>,
    path: &str,
    operations: [Option<(&'static str, Value)>; N],
    namespaced: bool,
    named: bool,
) {
    let mut item: Map<String, Value> =
        operations.into_iter().flatten().map(|(method, operation)| (method.to_owned(), operation)).collect();
    if item.is_empty() {
        return;
    }
    let mut common = parameters::query(COMMON);
    common.extend(shared_parameters(&mut item));
    if named {
        common.push(parameters::path("name", "The object's name."));
    }
    if namespaced {
        common.push(parameters::path("namespace", "The namespace that the objects are in."));
    }
    common.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    item.insert("parameters".to_owned(), common.into());
    paths.insert(path.to_owned(), item.into());
}

/// Takes the parameters out of the operations of a path that all of them have.
fn shared_parameters(item: &mut Map<String, Value>) -> Vec<Value> {
    let of = |operation: &Value| operation["parameters"].as_array().cloned().unwrap_or_default();
    let mut shared = item.values().next().map(of).unwrap_or_default();
    shared.retain(|parameter| item.values().all(|operation| of(operation).contains(parameter)));
    for operation in item.values_mut() {
        let Some(own) = operation.get_mut("parameters").and_then(Value::as_array_mut) else { continue };
        own.retain(|parameter| !shared.contains(parameter));
        if own.is_empty()
            && let Value::Object(operation) = operation
        {
            operation.remove("parameters");
        }
    }
    shared
}

struct Operations<'a> {
    definition: &'a ResourceDefinition,
    one: &'a Value,
    list: &'a Value,
}

impl Operations<'_> {
    /// The operation of a verb, with its method, if the resource has the verb.
    fn operation(&self, verb: &str, method: &'static str, subresource: &str) -> Option<(&'static str, Value)> {
        if !self.definition.verbs.contains(&verb) {
            return None;
        }
        let kind = &self.definition.kind;
        // Action, description, query parameters, body and its media, answers.
        let (action, description, query, body, answers) = match verb {
            "list" => (
                "list",
                format!("list or watch objects of kind {kind}"),
                LIST,
                None,
                responses(200, self.list, LIST_MEDIA),
            ),
            "create" => (
                "post",
                format!("create {}", one(kind)),
                WRITE,
                Some((self.one, ANY_MEDIA)),
                self.written(&[200, 201, 202]),
            ),
            "update" => (
                "put",
                format!("replace the {}", self.thing(subresource)),
                WRITE,
                Some((self.one, ANY_MEDIA)),
                self.written(&[200, 201]),
            ),
            "patch" => {
                let patch = meta::reference("Patch");
                let operation = self.build(
                    ("patch", "patch", subresource),
                    format!("partially update the {}", self.thing(subresource)),
                    PATCH,
                    Some((&patch, &PATCH_MEDIA_TYPES)),
                    self.written(&[200, 201]),
                );
                return Some((method, operation));
            }
            "delete" => return Some((method, self.deletion("delete", format!("delete {}", one(kind)), DELETE))),
            "deletecollection" => {
                let description = format!("delete collection of {kind}");
                return Some((method, self.deletion("deletecollection", description, DELETE_COLLECTION)));
            }
            _ => {
                ("get", format!("read the {}", self.thing(subresource)), &[][..], None, responses(200, self.one, MEDIA))
            }
        };
        Some((method, self.build((verb, action, subresource), description, query, body, answers)))
    }

    /// A watch at a path of its own, if the resource can be watched; `suffix` ends its id.
    fn watch(&self, action: &str, suffix: &str) -> Option<(&'static str, Value)> {
        if !self.definition.verbs.contains(&"watch") {
            return None;
        }
        let kind = &self.definition.kind;
        let instead = "deprecated: use the 'watch' parameter with a list operation instead";
        let description = match action {
            "watchlist" => format!("watch individual changes to a list of {kind}. {instead}."),
            _ => format!(
                "watch changes to an object of kind {kind}. {instead}, filtered to a single item with the \
                 'fieldSelector' parameter."
            ),
        };
        let answers = responses(200, &meta::reference("WatchEvent"), LIST_MEDIA);
        let mut operation = self.build(("watch", action, ""), description, LIST, None, answers);
        if let Some(id) = operation["operationId"].as_str() {
            operation["operationId"] = format!("{id}{suffix}").into();
        }
        Some(("get", operation))
    }

    fn thing(&self, subresource: &str) -> String {
        let kind = &self.definition.kind;
        if subresource.is_empty() {
            format!("specified {kind}")
        } else {
            format!("{subresource} of the specified {kind}")
        }
    }

    fn written(&self, codes: &[u16]) -> Value {
        let mut answers = Map::new();
        for code in codes {
            if let Value::Object(answer) = responses(*code, self.one, MEDIA) {
                answers.extend(answer);
            }
        }
        answers.into()
    }

    fn deletion(&self, action: &str, description: String, query: &[&str]) -> Value {
        let (options, status) = (meta::reference("DeleteOptions"), meta::reference("Status"));
        let mut answers = responses(200, &status, MEDIA);
        if action == "delete" {
            answers["202"] = responses(202, &status, MEDIA)["202"].take();
        }
        let mut operation = self.build((action, action, ""), description, query, Some((&options, ANY_MEDIA)), answers);
        may_be_left_out(&mut operation);
        operation
    }

    /// A subresource other than status, with what it is said to take.
    fn custom(&self, subresource: &Subresource, verb: &str, schemas: &Components) -> Value {
        let (group, version, kind) = subresource.kind;
        let name = schemas::name(group, version, kind);
        let body = if schemas.contains(&name) { schemas::reference(&name) } else { json!({ "type": "object" }) };
        let action = match verb {
            "create" => "post",
            "update" => "put",
            other => other,
        };
        let with_body = (verb != "get").then_some((&body, MEDIA));
        let code = if verb == "create" { 201 } else { 200 };
        let mut operation = self.build(
            (verb, action, subresource.name),
            subresource.description.to_owned(),
            &[],
            with_body,
            responses(code, &body, MEDIA),
        );
        operation["x-kubernetes-group-version-kind"] = schemas::gvk(group, version, kind);
        may_be_left_out(&mut operation);
        operation
    }

    /// `names` are the verb, upstream's word for the action, and the subresource.
    fn build(
        &self,
        (verb, action, subresource): (&str, &str, &str),
        description: String,
        query: &[&str],
        body: Option<(&Value, &[&str])>,
        answers: Value,
    ) -> Value {
        let ResourceDefinition { group, version, kind, scope, .. } = self.definition;
        let word = match verb {
            "get" => "read",
            "update" => "replace",
            other => other,
        };
        let namespaced = if *scope == Scope::Namespaced { "Namespaced" } else { "" };
        // The one word that goes around the group.
        let (word, collection) = if verb == "deletecollection" { ("delete", "Collection") } else { (word, "") };
        let mut operation = json!({
            "tags": [tag(group, version)],
            "description": description,
            "operationId": format!(
                "{word}{}{collection}{namespaced}{kind}{}",
                camel_version(group, version),
                capitalized(subresource)
            ),
            "responses": answers,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": schemas::gvk(group, version, kind),
        });
        if !query.is_empty() {
            operation["parameters"] = parameters::query(query).into();
        }
        if let Some((schema, media)) = body {
            operation["requestBody"] = json!({ "content": content(schema, media), "required": true });
        }
        operation
    }
}

/// Says of the body of an operation, if it has one, that it may be left out, which is to say nothing.
fn may_be_left_out(operation: &mut Value) {
    if let Some(Value::Object(body)) = operation.get_mut("requestBody") {
        body.remove("required");
    }
}

fn content(schema: &Value, media: &[&str]) -> Value {
    Value::Object(media.iter().map(|media| ((*media).to_owned(), json!({ "schema": schema }))).collect())
}

/// An answer with a body, under its code.
pub(super) fn responses(code: u16, schema: &Value, media: &[&str]) -> Value {
    let description = match code {
        201 => "Created",
        202 => "Accepted",
        _ => "OK",
    };
    json!({ code.to_string(): { "description": description, "content": content(schema, media) } })
}
