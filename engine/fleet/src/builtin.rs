//! The types of configuration that Kalypso had before December 2023, without a Template: a ConfigMap and a file of shell
//! variables.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value, json};

use crate::values;

/// A built-in type of configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Builtin {
    /// A ConfigMap `platform-config` in the namespace of the workload.
    ConfigMap,
    /// Lines such as `export REGION="East US"`.
    EnvFile,
}

impl Builtin {
    /// The built-in type of a name.
    pub(crate) fn of(config_type: &str) -> Option<Self> {
        match config_type {
            "" | "configMap" => Some(Self::ConfigMap),
            "envFile" => Some(Self::EnvFile),
            _ => None,
        }
    }

    /// The text of the file.
    pub(crate) fn render(self, namespace: &str, values: &BTreeMap<String, Arc<Value>>) -> String {
        match self {
            Self::ConfigMap => {
                let data: Map<String, Value> =
                    values.iter().map(|(key, value)| (key.clone(), text(value).into())).collect();
                let metadata = json!({"name": "platform-config", "namespace": namespace});
                let map = json!({"apiVersion": "v1", "data": data, "kind": "ConfigMap", "metadata": metadata});
                format!("{}\n", values::yaml(&map))
            }
            Self::EnvFile => {
                let line = |(key, value): (&String, &Arc<Value>)| format!("export {key}=\"{}\"\n", text(value));
                values.iter().map(line).collect()
            }
        }
    }
}

/// A value as an entry of a ConfigMap: maps and lists are YAML in a text.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| values::yaml(value), str::to_owned)
}
