//! The Modules that a Workspace names, as a function-runner needs them to render a Stack.
//!
//! Start at `resolve`.

use std::collections::HashMap;

use bytes::Bytes;
use serde_json::{Value, json};
use stoa_kinds::module::{Named, named_in};
use stoa_proto::StoreCredentials;
use stoa_types::{
    Module, Workspace,
    platform::{FoundModuleVersion, ModuleSource, ModuleSpec},
    reason,
};

use super::{Services, StepError, target};

/// The credentials of the registry of a module.
///
/// # Errors
///
/// Failed when the Secret does not exist.
pub async fn credentials(services: &Services, module: &ModuleSpec) -> Result<HashMap<String, Bytes>, StepError> {
    match &module.secret_ref {
        Some(secret) => target::referenced_secret(services, "", secret).await,
        None => Ok(HashMap::new()),
    }
}

/// Replaces the Modules in the spec of a Workspace by their paths, versions and digests, and adds the credentials of their
/// registries.
///
/// # Errors
///
/// Failed when a Module, or the version that the Workspace names, does not exist or was not found yet.
pub(crate) async fn resolve(
    services: &Services,
    workspace: &Workspace,
    request: &mut stoa_proto::Workspace,
) -> Result<(), StepError> {
    let named = named_in(&workspace.spec);
    if named.is_empty() {
        return Ok(());
    }
    let mut spec = workspace.spec.clone();
    for Named { alias, module: name, version } in named {
        let missing = |message: String| StepError::failed(reason::REFERENCE_NOT_FOUND, message);
        let module = services.lookup.api::<Module>()?.get_opt("", &name).await?;
        let module = module.ok_or_else(|| missing(format!("module {name:?} does not exist")))?;
        if !module.spec.versions.iter().any(|it| it.version == version) {
            return Err(missing(format!(
                "module {name:?} has no version {version:?}; add it to spec.versions, or name another version in spec.modules of \
                 workspace {:?}",
                request.name
            )));
        }
        let found = module.status.iter().flat_map(|status| &status.versions).find(|it| it.version == version);
        let found = found.ok_or_else(|| {
            let message =
                format!("version {version} of module {name:?} was not found yet; see the condition Ready of it");
            StepError::failed(reason::MODULE_NOT_READY, message)
        })?;
        let configs = spec.modules.get(&alias).and_then(|it| it.get("configs")).cloned();
        spec.modules.insert(alias.clone(), settings(&module.spec, found, configs));
        if module.spec.source == ModuleSource::Registry {
            let values = credentials(services, &module.spec).await?;
            request.module_credentials.insert(alias, StoreCredentials { values });
        }
    }
    request.spec = Bytes::from(serde_json::to_vec(&spec).expect("a spec serializes"));
    Ok(())
}

/// A module as Kusion's workspace.yaml has it, with its digests.
fn settings(module: &ModuleSpec, found: &FoundModuleVersion, configs: Option<Value>) -> Value {
    let FoundModuleVersion { version, digest, program, package } = found;
    let mut settings = json!({"path": module.path, "version": version});
    let parts = [("artifact", digest), ("program", program), ("package", package)];
    for (field, value) in parts {
        if let Some(value) = value {
            settings[field] = value.clone().into();
        }
    }
    if let Some(configs) = configs {
        settings["configs"] = configs;
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runner_receives_path_and_digests() {
        let module = ModuleSpec { path: "oci://r.example.com/network".to_owned(), ..ModuleSpec::default() };
        let found = FoundModuleVersion {
            version: "0.2.0".to_owned(),
            digest: Some("sha256:1".to_owned()),
            program: Some("sha256:2".to_owned()),
            package: None,
        };
        let expected = json!({
            "path": "oci://r.example.com/network", "version": "0.2.0", "artifact": "sha256:1", "program": "sha256:2",
            "configs": {"default": {"type": "x"}},
        });
        assert_eq!(settings(&module, &found, Some(json!({"default": {"type": "x"}}))), expected);
    }
}
