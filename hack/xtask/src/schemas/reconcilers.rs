//! Writes the schemas of the projects that read results of a fleet's templates into `engine/fleet/data`, from their Go modules.
//!
//! A definition of a custom resource becomes a JSON Schema: without descriptions, rules in CEL and `status`, and without fields that
//! it does not name. Zarf has a JSON Schema of its own.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use super::{compressed, shown, source};
use crate::paths;

/// The file, from the root of the repository.
const FILE: &str = "engine/fleet/data/reconcilers.json.gz";

/// Modules with their releases, and their files with definitions of custom resources.
const DEFINITIONS: [(&str, &str, &[&str]); 5] = [
    (
        "github.com/fluxcd/kustomize-controller",
        "v1.9.4",
        &["config/crd/bases/kustomize.toolkit.fluxcd.io_kustomizations.yaml"],
    ),
    ("github.com/fluxcd/helm-controller", "v1.4.0", &["config/crd/bases/helm.toolkit.fluxcd.io_helmreleases.yaml"]),
    (
        "github.com/fluxcd/source-controller",
        "v1.9.0",
        &[
            "config/crd/bases/source.toolkit.fluxcd.io_buckets.yaml",
            "config/crd/bases/source.toolkit.fluxcd.io_gitrepositories.yaml",
            "config/crd/bases/source.toolkit.fluxcd.io_helmcharts.yaml",
            "config/crd/bases/source.toolkit.fluxcd.io_helmrepositories.yaml",
            "config/crd/bases/source.toolkit.fluxcd.io_ocirepositories.yaml",
        ],
    ),
    (
        "github.com/argoproj/argo-cd/v3",
        "v3.5.0",
        &["manifests/crds/application-crd.yaml", "manifests/crds/appproject-crd.yaml"],
    ),
    ("github.com/rancher/fleet", "v0.12.0", &["charts/fleet-crd/templates/crds.yaml"]),
];

/// The kinds of a group with more kinds than people write.
const OF_FLEET: (&str, &[&str]) = ("fleet.cattle.io", &["Bundle", "GitRepo"]);

/// The module with the JSON Schema of Zarf.
const ZARF: (&str, &str, &str) = ("github.com/zarf-dev/zarf", "v0.60.0", "zarf.schema.json");

/// Schemas by `apiVersion` and kind.
type Kinds = BTreeMap<String, BTreeMap<String, Value>>;

/// Writes the file.
pub(super) fn generate() -> Result<()> {
    let mut kinds = Kinds::new();
    for (module, release, files) in DEFINITIONS {
        let folder = source(module, release)?;
        for file in files {
            let path = folder.join(file);
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let limits = stoa_yaml::Limits { depth: 200, values: 1_000_000, documents: 1000, copied: 16 << 20 };
            let documents = stoa_yaml::documents(&text, &limits, false);
            for document in documents.with_context(|| format!("parsing {}", path.display()))? {
                add(&document.value, &mut kinds).with_context(|| format!("converting {}", path.display()))?;
            }
        }
    }
    let (module, release, file) = ZARF;
    let path = source(module, release)?.join(file);
    let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let zarf = converted(&serde_json::from_slice(&text)?, false);
    for api_version in ["", "zarf.dev/v1alpha1"] {
        kinds.insert(api_version.to_owned(), [("ZarfPackageConfig".to_owned(), zarf.clone())].into());
    }
    let file = paths::repository().join(FILE);
    let bytes = compressed(&serde_json::to_vec(&json!({ "kinds": kinds }))?)?;
    fs::write(&file, &bytes).with_context(|| format!("writing {}", file.display()))?;
    println!("{}: {} versions, {} bytes", shown(&file), kinds.len(), bytes.len());
    Ok(())
}

/// Adds the served versions of a definition.
fn add(definition: &Value, kinds: &mut Kinds) -> Result<()> {
    if definition["kind"] != "CustomResourceDefinition" {
        return Ok(());
    }
    let spec = &definition["spec"];
    let text = |value: &Value, what: &str| value.as_str().map(str::to_owned).with_context(|| format!("has no {what}"));
    let (group, kind) = (text(&spec["group"], "group")?, text(&spec["names"]["kind"], "kind")?);
    if group == OF_FLEET.0 && !OF_FLEET.1.contains(&kind.as_str()) {
        return Ok(());
    }
    for version in spec["versions"].as_array().into_iter().flatten().filter(|version| version["served"] == true) {
        let mut schema = converted(&version["schema"]["openAPIV3Schema"], true);
        let properties = schema["properties"].as_object_mut();
        let properties = properties.with_context(|| format!("{group} {kind} has no properties"))?;
        ensure!(properties.contains_key("spec"), "{group} {kind} has no spec");
        // A server writes it. Templates never do.
        properties.remove("status");
        properties.insert("metadata".to_owned(), json!({"type": "object"}));
        let mut required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        required.extend((!required.contains(&"metadata")).then_some("metadata"));
        required.sort_unstable();
        let required = json!(required);
        schema["required"] = required;
        let api_version = format!("{group}/{}", text(&version["name"], "name of a version")?);
        kinds.entry(api_version).or_default().insert(kind.clone(), schema);
    }
    Ok(())
}

/// A schema without descriptions and extensions. `is_whole`: a map has the fields that the schema names, and no others.
fn converted(schema: &Value, is_whole: bool) -> Value {
    let Some(schema) = schema.as_object() else { return schema.clone() };
    let is_set = |extension: &str| schema.get(extension).is_some_and(|value| value == true);
    let is_int_or_string = is_set("x-kubernetes-int-or-string");
    let mut out = Map::new();
    for (key, value) in schema {
        let value = match key.as_str() {
            "type" | "required" | "enum" | "pattern" | "minLength" | "maxLength" | "minItems" | "maxItems"
            | "minimum" | "maximum" | "minProperties" | "maxProperties" | "uniqueItems" | "$ref" | "$schema" => {
                value.clone()
            }
            "properties" | "$defs" | "patternProperties" => {
                let named = value.as_object().into_iter().flatten();
                Value::Object(named.map(|(name, of)| (name.clone(), converted(of, is_whole))).collect())
            }
            "items" | "additionalProperties" => converted(value, is_whole),
            // These parts of a schema name some fields of a map alone.
            "not" => converted(value, false),
            "oneOf" | "anyOf" | "allOf" if !is_int_or_string => {
                value.as_array().into_iter().flatten().map(|of| converted(of, false)).collect()
            }
            _ => continue,
        };
        out.insert(key.clone(), value);
    }
    if is_int_or_string {
        out.insert("type".to_owned(), json!(["integer", "string"]));
    }
    let is_open = out.contains_key("additionalProperties") || is_set("x-kubernetes-preserve-unknown-fields");
    if is_whole && out.contains_key("properties") && !is_open {
        out.insert("additionalProperties".to_owned(), false.into());
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definition_becomes_a_closed_schema() {
        let port = json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]});
        let spec = json!({"type": "object", "description": "text", "required": ["port"],
            "oneOf": [{"required": ["port"], "properties": {"port": {}}}],
            "x-kubernetes-validations": [{"rule": "true"}],
            "properties": {"port": port, "description": {"type": "string", "default": "x"},
                "open": {"properties": {"a": {}}, "x-kubernetes-preserve-unknown-fields": true},
                "map": {"type": "object", "additionalProperties": {"type": "string", "format": "byte"}}}});
        let schema = json!({"type": "object", "required": ["spec"], "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
            "spec": spec, "status": {"type": "object"}}});
        let version =
            |name: &str, served: bool| json!({"name": name, "served": served, "schema": {"openAPIV3Schema": schema}});
        let definition = json!({"kind": "CustomResourceDefinition", "spec": {"group": "example.com",
            "names": {"kind": "Widget"}, "versions": [version("v1", true), version("v1beta1", false)]}});
        let mut kinds = Kinds::new();
        add(&definition, &mut kinds).unwrap();
        let spec = json!({"type": "object", "required": ["port"], "additionalProperties": false,
            "oneOf": [{"required": ["port"], "properties": {"port": {}}}],
            "properties": {"port": {"type": ["integer", "string"]}, "description": {"type": "string"},
                "open": {"properties": {"a": {}}}, "map": {"type": "object", "additionalProperties": {"type": "string"}}}});
        let expected = json!({"example.com/v1": {"Widget": {"type": "object", "additionalProperties": false,
            "required": ["metadata", "spec"], "properties": {"apiVersion": {"type": "string"},
                "kind": {"type": "string"}, "metadata": {"type": "object"}, "spec": spec}}}});
        assert_eq!(serde_json::to_value(kinds).unwrap(), expected);
    }

    #[test]
    fn only_kinds_that_people_write_are_of_rancher_fleet() {
        let definition = |kind: &str| {
            let schema = json!({"properties": {"spec": {}}});
            json!({"kind": "CustomResourceDefinition", "spec": {"group": "fleet.cattle.io", "names": {"kind": kind},
                "versions": [{"name": "v1alpha1", "served": true, "schema": {"openAPIV3Schema": schema}}]}})
        };
        let mut kinds = Kinds::new();
        for kind in ["BundleDeployment", "GitRepo"] {
            add(&definition(kind), &mut kinds).unwrap();
        }
        assert_eq!(kinds["fleet.cattle.io/v1alpha1"].keys().collect::<Vec<_>>(), ["GitRepo"]);
    }
}
