//! The calls of modules that an application needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stoa_kusion_module::configuration::{Configuration, ModuleSettings};
use stoa_kusion_module::proto::GeneratorRequest;
use stoa_proto::Problem;

use crate::failure::{Failure, problem};
use crate::generate::Values;

/// The number of digits of a digest in the version of a generator.
const DIGITS: usize = 12;

/// The fields of a Workspace's spec that are for modules.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Settings {
    modules: Map<String, Value>,
    context: Map<String, Value>,
    secret_store: Map<String, Value>,
}

impl Settings {
    /// The fields of a spec in JSON, for [`Values::modules`]; nothing without modules.
    pub(crate) fn of_spec(spec: &[u8]) -> String {
        // Parts of the runner that need the whole spec report a wrong one.
        let settings: Self = serde_json::from_slice(spec).unwrap_or_default();
        if settings.modules.is_empty() {
            return String::new();
        }
        serde_json::to_string(&settings).unwrap_or_default()
    }

    fn of(text: &str) -> Result<Self, Failure> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        serde_json::from_str(text).map_err(|error| Failure::internal(&error))
    }

    /// The modules with their names in the Workspace, as far as they are readable.
    pub(super) fn each(text: &str) -> Vec<(String, ModuleSettings)> {
        let modules = Self::of(text).unwrap_or_default().modules;
        modules.into_iter().filter_map(|(name, value)| Some((name, serde_json::from_value(value).ok()?))).collect()
    }
}

/// The modules of a Workspace.
#[derive(Debug, Default)]
pub(in crate::generate) struct Platform {
    workspace: String,
    settings: Settings,
}

/// An application that has parts for modules.
#[derive(Clone, Copy, Debug)]
pub(in crate::generate) struct Application<'a> {
    pub(in crate::generate) project: &'a str,
    pub(in crate::generate) stack: &'a str,
    pub(in crate::generate) name: &'a str,
    /// The workload as JSON, in the order of the program.
    pub(in crate::generate) workload: &'a str,
    /// The id of the workload's resource; empty if a module makes it.
    pub(in crate::generate) workload_id: &'a str,
}

/// A part of an application that is for a module.
#[derive(Clone, Debug)]
pub(in crate::generate) struct Part<'a> {
    /// The field, such as `web.accessories.network`.
    pub(in crate::generate) field: String,
    /// Its schema, such as `network.Network`. The first part is the name of the module in imports.
    pub(in crate::generate) schema: &'a str,
    /// The part as JSON, in the order of the program.
    pub(in crate::generate) json: String,
    pub(in crate::generate) is_workload: bool,
}

/// A call of a module.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Call {
    /// The name of the module in the Workspace.
    #[prost(string, tag = "1")]
    pub(super) module: String,
    #[prost(string, tag = "2")]
    pub(super) path: String,
    #[prost(string, tag = "3")]
    pub(super) version: String,
    /// The field of the application.
    #[prost(string, tag = "4")]
    pub(super) field: String,
    #[prost(message, optional, tag = "5")]
    pub(super) request: Option<GeneratorRequest>,
    /// The id of the application's workload; empty if a module makes it.
    #[prost(string, tag = "6")]
    pub(super) workload: String,
    #[prost(bool, tag = "7")]
    pub(super) is_workload: bool,
    /// The external names of existing resources by their ids.
    #[prost(btree_map = "string, string", tag = "8")]
    pub(super) imported: BTreeMap<String, String>,
    /// The health policy of its resources as JSON; empty without one.
    #[prost(string, tag = "9")]
    pub(super) health_policy: String,
    /// Where the program has the application.
    #[prost(string, tag = "10")]
    pub(super) file: String,
    #[prost(uint32, tag = "11")]
    pub(super) line: u32,
    /// The digest of the artifact of a registered module; empty for one in a folder.
    #[prost(string, tag = "12")]
    pub(super) artifact: String,
    /// The SHA-256 of the program of a registered module; empty for another one.
    #[prost(string, tag = "13")]
    pub(super) program: String,
}

impl Platform {
    pub(in crate::generate) fn of(values: &Values) -> Result<Self, Failure> {
        Ok(Self { workspace: values.workspace.clone(), settings: Settings::of(&values.modules)? })
    }

    /// Whether the Workspace has the module of a schema.
    pub(in crate::generate) fn has(&self, schema: &str) -> bool {
        self.module(schema).is_some()
    }

    /// The call for a part of an application; the reason if there is none.
    pub(in crate::generate) fn call(&self, application: &Application<'_>, part: Part<'_>) -> Result<Call, String> {
        let Part { field, schema, json, is_workload } = part;
        let Some((name, module)) = self.module(schema) else {
            return Err(format!(
                "is of the Kusion module {} ({schema}), which spec.modules of workspace {} does not have; add its path and version there",
                import_name(schema),
                self.workspace
            ));
        };
        let in_workspace = |message: &dyn std::fmt::Display| {
            format!("spec.modules.{name} of workspace {} is invalid: {message}", self.workspace)
        };
        let module: ModuleSettings = serde_json::from_value(module.clone()).map_err(|error| in_workspace(&error))?;
        let Configuration { fields, imported, health_policy } =
            module.of_project(application.project).map_err(|error| {
                let Application { project, stack, .. } = application;
                format!(
                    "{}: {error}",
                    in_workspace(&format_args!("version {} for stack {stack} of project {project}", module.version))
                )
            })?;
        Ok(Call {
            module: name.to_owned(),
            request: Some(GeneratorRequest {
                project: application.project.to_owned(),
                stack: application.stack.to_owned(),
                app: application.name.to_owned(),
                workload: application.workload.to_owned().into(),
                dev_config: json.into(),
                platform_config: bytes(fields),
                context: bytes(self.settings.context.clone()),
                secret_store: bytes(self.settings.secret_store.clone()),
            }),
            path: module.path,
            version: module.version,
            artifact: module.artifact,
            program: module.program,
            field,
            workload: application.workload_id.to_owned(),
            is_workload,
            imported,
            health_policy: health_policy.map(|policy| policy.to_string()).unwrap_or_default(),
            file: String::new(),
            line: 0,
        })
    }

    /// The module of a schema: its name in the Workspace, and its settings.
    fn module(&self, schema: &str) -> Option<(&str, &Value)> {
        let name = import_name(schema);
        let found = self.settings.modules.iter().find(|(module, _)| module.replace('-', "_") == name);
        found.map(|(name, module)| (name.as_str(), module))
    }
}

/// The name of a schema's package in imports, which has underscores in the positions of hyphens.
fn import_name(schema: &str) -> &str {
    schema.split('.').next().unwrap_or_default()
}

/// A map as JSON; nothing for an empty one.
fn bytes(map: Map<String, Value>) -> prost::bytes::Bytes {
    if map.is_empty() { prost::bytes::Bytes::new() } else { Value::Object(map).to_string().into() }
}

impl Call {
    /// The same with the file and line of the application.
    pub(in crate::generate) fn at(self, file: &str, line: u32) -> Self {
        Self { file: file.to_owned(), line, ..self }
    }

    /// What identifies the program of the call. One version may be registered with several digests, and be in the folder too.
    pub(super) fn program_key(&self) -> [&str; 4] {
        [&self.path, &self.version, &self.artifact, &self.program]
    }

    /// The module, its version, and the stack.
    pub(super) fn subject(&self) -> String {
        let request = self.request.clone().unwrap_or_default();
        let Self { module, version, .. } = self;
        format!("module {module} {version} for stack {} of project {}", request.stack, request.project)
    }

    #[cfg(test)]
    pub(in crate::generate) fn request(&self) -> Option<&GeneratorRequest> {
        self.request.as_ref()
    }

    /// The module and its version, with the first digits of the digest of a registered one.
    pub(in crate::generate) fn versioned(&self) -> String {
        let digest = self.program.strip_prefix("sha256:").and_then(|hex| hex.get(..DIGITS));
        let digest = digest.map(|digits| format!(" ({digits})")).unwrap_or_default();
        format!("{} {}{digest}", self.module, self.version)
    }

    /// A problem of the call.
    pub(super) fn problem(&self, reason: &str, message: &str) -> Problem {
        let Self { file, line, field, .. } = self.clone();
        Problem { file, line, field, ..problem(reason, format!("{}: {message}", self.subject())) }
    }
}
