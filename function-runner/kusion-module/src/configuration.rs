//! The configuration of a module by the platform: defaults, and patchers for the projects that they select.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The block for all projects.
const DEFAULT: &str = "default";
/// The field of a patcher with the names of its projects.
const SELECTOR: &str = "projectSelector";
/// The fields that are for the client, not for the module.
const IMPORTED: &str = "importedResources";
const HEALTH_POLICY: &str = "healthPolicy";

/// A module, as the Workspace names it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ModuleSettings {
    /// The registry path of the module.
    pub path: String,
    /// The version of the module.
    pub version: String,
    /// The digest of the artifact of a registered module in its registry, `sha256:<hex>`; empty for one in a folder.
    #[serde(default)]
    pub artifact: String,
    /// The SHA-256 of the program of a registered module, `sha256:<hex>`.
    #[serde(default)]
    pub program: String,
    /// The name of the KCL package in the artifact of a registered module; empty without one.
    #[serde(default)]
    pub package: String,
    /// The blocks of its configuration: `default`, and patchers by name.
    #[serde(default)]
    configs: Option<BTreeMap<String, Option<Map<String, Value>>>>,
}

/// The configuration of a module for one project.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration {
    /// The fields for the module.
    pub fields: Map<String, Value>,
    /// External names of existing resources, by the ids of the module's resources.
    pub imported: BTreeMap<String, String>,
    /// The health policy of the module's resources.
    pub health_policy: Option<Value>,
}

/// A configuration without a meaning.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigurationError {
    /// Two patchers select the project, and set one field to different values.
    #[error(
        "patchers {first} and {second} both select the project, and set {field} to different values; remove one of them"
    )]
    Tie {
        /// The field.
        field: String,
        /// One patcher.
        first: String,
        /// The other one.
        second: String,
    },
    /// A field has another form.
    #[error("{field} of block {block} must be {form}")]
    Form {
        /// The block.
        block: String,
        /// The field.
        field: &'static str,
        /// The form that it has to have.
        form: &'static str,
    },
}

impl ModuleSettings {
    /// The configuration for a project: the defaults, and on top of them the fields of the patchers that select it.
    ///
    /// # Errors
    ///
    /// If two patchers disagree, or a block has another form.
    pub fn of_project(&self, project: &str) -> Result<Configuration, ConfigurationError> {
        let blocks = || self.configs.iter().flatten().filter_map(|(name, block)| Some((name, block.as_ref()?)));
        let mut fields = Map::new();
        let mut set_by: BTreeMap<&str, &str> = BTreeMap::new();
        if let Some((_, block)) = blocks().find(|(name, _)| *name == DEFAULT) {
            fields.extend(block.clone());
        }
        for (name, block) in blocks().filter(|(name, _)| *name != DEFAULT) {
            if !selects(name, block, project)? {
                continue;
            }
            for (field, value) in block.iter().filter(|(field, _)| *field != SELECTOR) {
                if let Some(first) = set_by.insert(field, name)
                    && fields.get(field) != Some(value)
                {
                    let (field, first, second) = (field.clone(), first.to_owned(), name.clone());
                    return Err(ConfigurationError::Tie { field, first, second });
                }
                fields.insert(field.clone(), value.clone());
            }
        }
        fields.remove(SELECTOR);
        let block = |field: &str| set_by.get(field).copied().unwrap_or(DEFAULT).to_owned();
        let imported = match fields.remove(IMPORTED).filter(|value| !value.is_null()) {
            None => BTreeMap::new(),
            Some(value) => serde_json::from_value(value).map_err(|_| ConfigurationError::Form {
                block: block(IMPORTED),
                field: IMPORTED,
                form: "a map of texts",
            })?,
        };
        let health_policy = fields.remove(HEALTH_POLICY).filter(|value| !value.is_null());
        Ok(Configuration { fields, imported, health_policy })
    }
}

fn selects(name: &str, block: &Map<String, Value>, project: &str) -> Result<bool, ConfigurationError> {
    let wrong =
        || ConfigurationError::Form { block: name.to_owned(), field: SELECTOR, form: "a list of names of projects" };
    let selector = block.get(SELECTOR).and_then(Value::as_array).ok_or_else(wrong)?;
    Ok(selector.iter().any(|it| it == project))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(configs: Value, project: &str) -> Result<Configuration, String> {
        let settings = json!({"path": "oci://ghcr.io/kusionstack/mysql", "version": "0.2.0", "configs": configs});
        serde_json::from_value::<ModuleSettings>(settings)
            .unwrap()
            .of_project(project)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn patchers_of_a_project_override_defaults() {
        let configs = json!({
            "default": {"size": "small", "zone": "a"},
            "large": {"size": "large", "projectSelector": ["shop", "pay"]},
            "other": {"size": "tiny", "projectSelector": ["blog"]},
            "near": {"zone": "b", "size": "large", "projectSelector": ["shop"]},
        });
        let fields = |project: &str| Value::Object(of(configs.clone(), project).unwrap().fields);
        assert_eq!(fields("shop"), json!({"size": "large", "zone": "b"}));
        assert_eq!(fields("pay"), json!({"size": "large", "zone": "a"}));
        assert_eq!(fields("blog"), json!({"size": "tiny", "zone": "a"}));
        assert_eq!(fields("docs"), json!({"size": "small", "zone": "a"}));
        assert_eq!(of(Value::Null, "shop").unwrap(), Configuration::default());
        assert_eq!(of(json!({"default": null}), "shop").unwrap(), Configuration::default());
    }

    #[test]
    fn tie_names_both_patchers() {
        let configs = json!({
            "first": {"size": "large", "projectSelector": ["shop"]},
            "second": {"size": "small", "projectSelector": ["shop", "blog"]},
        });
        let error =
            "patchers first and second both select the project, and set size to different values; remove one of them";
        assert_eq!(of(configs.clone(), "shop"), Err(error.to_owned()));
        of(configs, "blog").unwrap();
    }

    #[test]
    fn fields_of_the_client_are_apart() {
        let configs = json!({"default": {
            "size": 1, "importedResources": {"a:b:c:d": "db-1"}, "healthPolicy": {"cel": {"current": "true"}},
        }});
        let found = of(configs, "shop").unwrap();
        assert_eq!(Value::Object(found.fields), json!({"size": 1}));
        assert_eq!(found.imported, [("a:b:c:d".to_owned(), "db-1".to_owned())].into());
        assert_eq!(found.health_policy, Some(json!({"cel": {"current": "true"}})));
        let error = of(json!({"default": {"importedResources": [1]}}), "shop");
        assert_eq!(error, Err("importedResources of block default must be a map of texts".to_owned()));
        let error = of(json!({"large": {"size": 1}}), "shop");
        assert_eq!(error, Err("projectSelector of block large must be a list of names of projects".to_owned()));
    }
}
