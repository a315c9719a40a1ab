//! Module: a registered module of Kusion, or package of KCL.
//!
//! Start at [`KIND`]. Workspaces name Modules in `spec.modules` ([`named_in`]). A Module that a Workspace names stays, and so do
//! the versions that Workspaces name. Elsewhere: the server's controller of Modules finds their digests.

use std::collections::BTreeSet;

use async_trait::async_trait;
use jsonschema::{Draft, PatternOptions, Validator};
use kube::ResourceExt as _;
use serde_json::{Map, Value};
use stoa_machinery::{
    ApiError, Object, RequestContext, ResourceDefinition,
    definition::{Cell, Column},
    registry::ListOptions,
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{
    Module, Workspace,
    platform::{ModuleSource, ModuleSpec, WorkspaceSpec},
};

use super::{lookup::Lookup, ready, references};
use crate::{
    errors,
    kind::{InGit, Kind, Surroundings},
    rights::PUSHED,
    validation,
};

/// The kind Module.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, .. }| {
        builder.register(definition, ModuleStrategy { lookup })
    },
    in_git: Some(InGit { removal_waits_for_references: true, ..InGit::at("platform/modules/{name}.yaml") }),
    rights: &[PUSHED],
    ..Kind::of::<Module>()
};

/// The most violations of a schema in an answer.
const REPORTED: usize = 20;

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Module>().columns(&[
        Column::new("Source", Cell::Path(&["spec", "source"]), "The origin of the module: Registry or Folder."),
        Column::new("Versions", Cell::Compute(versions), "The versions that workspaces may name."),
        ready::status("Whether all versions were found, with their digests."),
        Column::age(),
        Column::new("Path", Cell::Path(&["spec", "path"]), "The path of the module in its registry.").wide(),
        ready::reason(),
        ready::message(),
    ])
}

fn versions(module: &Object) -> Value {
    let versions = module.get_path(&["spec", "versions"]).and_then(Value::as_array);
    let names: Vec<&str> = versions.into_iter().flatten().filter_map(|it| it["version"].as_str()).collect();
    names.join(",").into()
}

/// A Module that a Workspace names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The name in `spec.modules` of the Workspace.
    pub alias: String,
    /// The name of the Module.
    pub module: String,
    /// The version; empty without one.
    pub version: String,
}

/// The Modules that a Workspace names.
pub fn named_in(spec: &WorkspaceSpec) -> Vec<Named> {
    let named = |(alias, settings): (&String, &Value)| {
        let module = settings.get("module")?.get("name")?.as_str()?.to_owned();
        let version = settings.get("version").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Named { alias: alias.clone(), module, version })
    };
    spec.modules.iter().filter_map(named).collect()
}

/// The first problem with a Module that a Workspace names, as the watch cache has it: the Module or its version does not exist.
pub(crate) fn missing(lookup: &Lookup, spec: &WorkspaceSpec) -> Option<String> {
    named_in(spec).into_iter().find_map(|Named { module: name, version, .. }| {
        let Some(module) = lookup.cached_spec::<Module>("", &name) else {
            return Some(format!("module {name:?} does not exist"));
        };
        let has_version = module.versions.iter().any(|it| it.version == version);
        (!has_version).then(|| format!("module {name:?} has no version {version:?}"))
    })
}

/// Compiles the schema of a configuration. References to other documents are refused, and patterns do not backtrack.
fn compile(schema: &Map<String, Value>) -> Result<Validator, String> {
    let mut options = jsonschema::options().with_pattern_options(PatternOptions::regex());
    if !schema.contains_key("$schema") {
        options = options.with_draft(Draft::Draft7);
    }
    options.build(&Value::Object(schema.clone())).map_err(|error| error.masked().to_string())
}

/// The fields of a block that are for Stoa, and not for the module.
const OF_STOA: [&str; 3] = ["projectSelector", "importedResources", "healthPolicy"];

/// Finds the fields of a module's configuration in a Workspace, at a path, that its schema refuses. Values are in no message.
fn check_configuration(module: &ModuleSpec, at: &str, settings: &Value, errors: &mut Vec<FieldError>) {
    let Ok(schema) = compile(&module.schema) else { return };
    let none = Map::new();
    let blocks = settings.get("configs").and_then(Value::as_object).unwrap_or(&none);
    let block = |name: &str| blocks.get(name).and_then(Value::as_object).cloned().unwrap_or_default();
    let patchers = blocks.keys().filter(|name| *name != "default").map(String::as_str);
    for name in std::iter::once("default").chain(patchers) {
        let mut fields = block("default");
        fields.extend(block(name));
        OF_STOA.iter().for_each(|field| drop(fields.remove(*field)));
        let value = Value::Object(fields);
        for error in schema.iter_errors(&value).take(REPORTED) {
            let field = error.instance_path().to_string().replace('/', ".");
            let message = format!("{}; the schema of the module does not permit it", error.masked());
            errors.push(FieldError::invalid(format!("{at}.configs[{name}]{field}"), "<value>", message));
        }
    }
}

/// Requires the verb `use` on the Modules that a Workspace names and did not name before, and checks their configurations where
/// they changed.
///
/// # Errors
///
/// 403 that names the verb and the Module; 422 for a configuration that the schema of its Module refuses.
pub(crate) async fn admit_workspace(
    lookup: &Lookup,
    context: &RequestContext,
    new: &Workspace,
    old: Option<&Workspace>,
) -> Result<(), ApiError> {
    let before: BTreeSet<String> =
        old.map(|old| named_in(&old.spec)).unwrap_or_default().into_iter().map(|named| named.module).collect();
    let mut errors = Vec::new();
    for Named { alias, module: name, version } in named_in(&new.spec) {
        // The repository is the record: its pushes were admitted by the rules of its branch.
        if !before.contains(&name) && !validation::is_pushed(context) {
            super::lookup::require_use::<Module>(context, &name).await?;
        }
        let settings = &new.spec.modules[&alias];
        if old.is_some_and(|old| old.spec.modules.get(&alias) == Some(settings)) {
            continue;
        }
        let Some(module) = lookup.api::<Module>()?.get_opt("", &name).await? else { continue };
        let at = format!("spec.modules[{alias}]");
        if !module.spec.versions.iter().any(|it| it.version == version) {
            let known: Vec<&str> = module.spec.versions.iter().map(|it| it.version.as_str()).collect();
            errors.push(FieldError::not_supported(format!("{at}.version"), &version, &known));
        }
        if !module.spec.schema.is_empty() {
            check_configuration(&module.spec, &at, settings, &mut errors);
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors::invalid::<Workspace>(&new.name_any(), &errors)) }
}

/// Whether a text is a digest of SHA-256.
fn is_digest(text: &str) -> bool {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    text.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.chars().all(is_hex))
}

#[derive(Debug)]
struct ModuleStrategy {
    lookup: Lookup,
}

#[async_trait]
impl Strategy for ModuleStrategy {
    type Object = Module;

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Module>) -> Result<(), ApiError> {
        match change {
            Admission::Create(_) => Ok(()),
            // The digests there decide about the programs of Runs.
            Admission::Update { new, old, subresource: "status" } => {
                let versions = |module: &Module| module.status.clone().unwrap_or_default().versions;
                if versions(new) == versions(old) {
                    return Ok(());
                }
                validation::part_written_by_server::<Module>(context, &new.name_any(), "status.versions is")
            }
            Admission::Delete(module) => {
                let name = module.name_any();
                match references::workspaces_of_module(&self.lookup, &name).await? {
                    None => Ok(()),
                    Some(users) => {
                        let why = format!("{users} use it; remove it from their spec.modules first");
                        Err(errors::conflict::<Module>(&name, why))
                    }
                }
            }
            Admission::Update { new, old, .. } => {
                let stays = |version: &str| new.spec.versions.iter().any(|it| it.version == version);
                let removed: BTreeSet<&str> =
                    old.spec.versions.iter().map(|it| it.version.as_str()).filter(|it| !stays(it)).collect();
                if removed.is_empty() {
                    return Ok(());
                }
                self.refuse_while_named(&new.name_any(), &removed).await
            }
        }
    }

    fn validate(&self, object: &Module) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validation::label_name(&object.name_any(), &mut errors);
        let spec = &object.spec;
        validation::subjects("spec.owners", &spec.owners, &mut errors);
        if !crate::workspace::is_module_path(&spec.path) {
            let message = "must be a registry path without credentials, such as oci://ghcr.io/kusionstack/network";
            errors.push(FieldError::invalid("spec.path", "<value>", message));
        }
        for (i, version) in spec.versions.iter().enumerate() {
            let at = format!("spec.versions[{i}]");
            if !crate::workspace::is_module_version(&version.version) {
                let message = "must be a version such as 0.2.0";
                errors.push(FieldError::invalid(format!("{at}.version"), &version.version, message));
            }
            if let Some(digest) = version.digest.as_ref().filter(|digest| !is_digest(digest)) {
                let message = "must be sha256: and 64 hexadecimal digits";
                errors.push(FieldError::invalid(format!("{at}.digest"), digest, message));
            }
        }
        match (&spec.secret_ref, spec.source) {
            (Some(_), ModuleSource::Folder) => {
                errors.push(FieldError::forbidden("spec.secretRef", "may only be set when source is Registry"));
            }
            (Some(secret), ModuleSource::Registry) => {
                validation::secret_anywhere("spec.secretRef", secret, &mut errors);
            }
            (None, _) => {}
        }
        if let Err(error) = compile(&spec.schema) {
            errors.push(FieldError::invalid("spec.schema", "<schema>", error));
        }
        errors
    }

    fn validate_update(&self, new: &Module, old: &Module) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validation::immutable("spec.path", &new.spec.path, &old.spec.path, &mut errors);
        validation::immutable("spec.source", &new.spec.source, &old.spec.source, &mut errors);
        errors
    }
}

impl ModuleStrategy {
    /// Refuses to remove versions that Workspaces name.
    async fn refuse_while_named(&self, name: &str, removed: &BTreeSet<&str>) -> Result<(), ApiError> {
        let workspaces = self.lookup.api::<Workspace>()?.list_with(None, &ListOptions::default()).await?;
        for workspace in workspaces.iter().filter(|it| it.metadata.deletion_timestamp.is_none()) {
            let named = named_in(&workspace.spec).into_iter().find(|named| named.module == name);
            if let Some(named) = named.filter(|named| removed.contains(named.version.as_str())) {
                let why = format!(
                    "workspace {} uses version {}; name another version in its spec.modules first",
                    workspace.name_any(),
                    named.version
                );
                return Err(errors::conflict::<Module>(name, why));
            }
        }
        Ok(())
    }
}
