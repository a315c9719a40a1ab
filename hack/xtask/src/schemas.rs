//! Writes the schemas of Kubernetes' own kinds into `engine/schemas/data`, from the OpenAPI document in the Go module
//! `k8s.io/kubernetes`. `reconcilers` writes those of other projects.
//!
//! The output depends on the version of the module alone, so that two runs write the same bytes. Go checks the module
//! against the public checksum database.

mod reconcilers;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use flate2::{Compression, GzBuilder};
use serde_json::{Map, Value};
use stoa_schemas::{Definition, Document};

use crate::paths;

/// The module, and the releases of it: the newest patch of each minor version when it was added.
const MODULE: &str = "k8s.io/kubernetes";
const RELEASES: [&str; 4] = ["v1.33.3", "v1.34.3", "v1.35.1", "v1.36.3"];

/// Prefixes of the names of definitions that say nothing about which one it is.
const PREFIXES: [&str; 4] = [
    "io.k8s.api.",
    "io.k8s.apimachinery.pkg.apis.",
    "io.k8s.apiextensions-apiserver.pkg.apis.",
    "io.k8s.kube-aggregator.pkg.apis.",
];

/// Writes one file per release, and that of other projects.
pub(crate) fn generate() -> Result<()> {
    let data = paths::repository().join("engine/schemas/data");
    for release in RELEASES {
        let swagger = source(MODULE, release)?.join("api/openapi-spec/swagger.json");
        let text = fs::read(&swagger).with_context(|| format!("reading {}", swagger.display()))?;
        let document = document(release, &serde_json::from_slice(&text)?)?;
        let minor = release.trim_start_matches('v').rsplit_once('.').context("a release has three numbers")?.0;
        let file = data.join(format!("kubernetes-{minor}.json.gz"));
        let bytes = compressed(&serde_json::to_vec(&document)?)?;
        fs::write(&file, &bytes).with_context(|| format!("writing {}", file.display()))?;
        println!("{}: {} definitions, {} bytes", shown(&file), document.definitions.len(), bytes.len());
    }
    reconcilers::generate()
}

fn shown(file: &Path) -> String {
    file.strip_prefix(paths::repository()).unwrap_or(file).display().to_string()
}

/// The folder with the source of a release of a module.
fn source(module: &str, release: &str) -> Result<PathBuf> {
    let mut go = Command::new("go");
    // Outside of any module, so that nothing pins another version.
    go.current_dir("/").args(["mod", "download", "-json", &format!("{module}@{release}")]);
    let output = go.stderr(Stdio::inherit()).output().context("running go")?;
    ensure!(output.status.success(), "go mod download of {module}@{release} failed");
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    Ok(answer["Dir"].as_str().context("go mod download names no folder")?.into())
}

/// Without the time and the name of a file, which would differ from run to run.
fn compressed(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut writer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}

fn document(release: &str, swagger: &Value) -> Result<Document> {
    let all = swagger["definitions"].as_object().context("the document has no definitions")?;
    let mut document = Document { kubernetes: release.trim_start_matches('v').to_owned(), ..Document::default() };
    for (name, definition) in all {
        let Some(properties) = definition["properties"].as_object() else { continue };
        let name = short(name);
        if let Some((api_version, kind)) = kind_of(definition, properties) {
            document.kinds.entry(api_version).or_default().insert(kind, name.clone());
        }
        let fields: BTreeMap<String, String> =
            properties.iter().map(|(field, schema)| (field.clone(), type_of(schema, all))).collect();
        let required = definition["required"].as_array().into_iter().flatten();
        let required = required.filter_map(Value::as_str).map(str::to_owned).collect();
        document.definitions.insert(name, Definition { fields, required });
    }
    Ok(document)
}

/// The `apiVersion` and kind of a definition that is one of an object. Lists and the options of calls are none.
fn kind_of(definition: &Value, properties: &Map<String, Value>) -> Option<(String, String)> {
    let [named] = definition["x-kubernetes-group-version-kind"].as_array()?.as_slice() else { return None };
    let text = |key: &str| named[key].as_str();
    let (group, version, kind) = (text("group")?, text("version")?, text("kind")?);
    let meta = properties.get("metadata").and_then(|metadata| metadata["$ref"].as_str()).unwrap_or_default();
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    meta.ends_with(".ObjectMeta").then(|| (api_version, kind.to_owned()))
}

fn short(name: &str) -> String {
    PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name).to_owned()
}

/// The type of a field as [`Document`] writes it.
fn type_of(schema: &Value, all: &Map<String, Value>) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        return match all.get(name) {
            Some(target) if target["properties"].is_object() => short(name),
            _ if name.ends_with(".Quantity") => "quantity".to_owned(),
            _ if name.ends_with(".IntOrString") => "int-or-string".to_owned(),
            Some(target) if target["type"] == "string" => "string".to_owned(),
            // Any value, such as the default in a schema, or a map that is not described.
            Some(_) | None => "any".to_owned(),
        };
    }
    let within = |key: &str| type_of(&schema[key], all);
    match (schema["type"].as_str().unwrap_or_default(), schema["format"].as_str().unwrap_or_default()) {
        ("array", _) => format!("[]{}", within("items")),
        ("object", _) if schema["additionalProperties"].is_object() => {
            format!("{{}}{}", within("additionalProperties"))
        }
        ("string", "byte") => "bytes".to_owned(),
        ("string", _) => "string".to_owned(),
        ("integer", "int32") => "int32".to_owned(),
        ("integer", _) => "int64".to_owned(),
        ("number", _) => "number".to_owned(),
        ("boolean", _) => "boolean".to_owned(),
        _ => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn document_keeps_kinds_types_and_required_fields_alone() {
        let meta = json!({"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"});
        let quantity = json!({"$ref": "#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity"});
        let widget = json!({"description": "x", "type": "object", "required": ["metadata"],
            "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "Widget"}],
            "properties": {"metadata": meta, "replicas": {"type": "integer", "format": "int32"},
                "limits": {"type": "object", "additionalProperties": quantity},
                "names": {"type": "array", "items": {"type": "string"}}}});
        let swagger = json!({"definitions": {
            "io.k8s.api.apps.v1.Widget": widget,
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"properties": {"name": {"type": "string"}}},
            "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
        }});
        let written = serde_json::to_value(document("v1.36.3", &swagger).unwrap()).unwrap();
        let fields = json!({"metadata": "meta.v1.ObjectMeta", "replicas": "int32", "limits": "{}quantity",
            "names": "[]string"});
        let expected = json!({"kubernetes": "1.36.3", "kinds": {"apps/v1": {"Widget": "apps.v1.Widget"}},
            "definitions": {"apps.v1.Widget": {"fields": fields, "required": ["metadata"]},
                "meta.v1.ObjectMeta": {"fields": {"name": "string"}}}});
        assert_eq!(written, expected);
    }
}
