//! The Terraform providers of a Workspace: their mirror, lock file, configuration and Secrets.

use stoa_engine::ProviderAddress;
use stoa_machinery::{content, status::FieldError};
use stoa_types::{
    SecretReference,
    platform::{ProviderMirror, TerraformProvider, TerraformTarget, WorkspaceSpec},
};

use crate::validation;

const PATH: &str = "spec.terraform";

/// Finds invalid fields. The lock file is read by the function-runner, which has the providers.
pub(super) fn validate(target: &TerraformTarget, errors: &mut Vec<FieldError>) {
    mirror(&target.mirror, errors);
    let mut sources: Vec<ProviderAddress> = Vec::new();
    for (i, TerraformProvider { name, source, .. }) in target.providers.iter().enumerate() {
        let path = format!("{PATH}.providers[{i}]");
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if target.providers[..i].iter().any(|other| other.name == *name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        } else {
            let complaints = content::dns_label(name);
            errors.extend(complaints.iter().map(|text| FieldError::invalid(format!("{path}.name"), name, text)));
        }
        let path = format!("{path}.source");
        match source.parse::<ProviderAddress>() {
            Ok(address) if sources.contains(&address) => errors.push(FieldError::duplicate(path, source)),
            Ok(address) => sources.push(address),
            Err(_) if source.is_empty() => errors.push(FieldError::required(path, "")),
            Err(_) => errors.push(FieldError::invalid(
                path,
                source,
                "must be the address of a provider, [[HOST/]NAMESPACE/]TYPE, such as hashicorp/aws",
            )),
        }
    }
    for (path, secret) in secrets(target) {
        validation::secret_anywhere(&path, secret, errors);
    }
}

fn mirror(mirror: &ProviderMirror, errors: &mut Vec<FieldError>) {
    let at = |field: &str| format!("{PATH}.mirror.{field}");
    let ProviderMirror { directory, url, repository_template, secret_ref } = mirror;
    let set: Vec<&str> = [("directory", directory), ("url", url), ("repositoryTemplate", repository_template)]
        .into_iter()
        .filter_map(|(name, text)| (!text.is_empty()).then_some(name))
        .collect();
    match set[..] {
        [] => {
            let message = "directory, url or repositoryTemplate must be set";
            errors.push(FieldError::required(format!("{PATH}.mirror"), message));
        }
        ["directory"] => {
            let is_plain = !directory.split('/').any(|part| part == "..") && !directory.contains(char::is_control);
            if !directory.starts_with('/') || !is_plain {
                let message = "must be an absolute path without '..'";
                errors.push(FieldError::invalid(at("directory"), directory, message));
            }
            if secret_ref.is_some() {
                let message = "may only be set together with url or repositoryTemplate";
                errors.push(FieldError::forbidden(at("secretRef"), message));
            }
        }
        ["url"] => {
            let example = "https://mirror.example.com/providers/";
            let parsed = validation::service_url(&at("url"), url, example, "use secretRef", errors);
            let is_base = |uri: &http::Uri| {
                uri.scheme_str() == Some("https") && uri.path().ends_with('/') && uri.query().is_none()
            };
            // An address without the slash names the folder above.
            if parsed.is_some_and(|uri| !is_base(&uri) || url.contains('#')) {
                errors.push(FieldError::invalid(at("url"), url, "must be https, and end with '/'"));
            }
        }
        [_] => {
            if let Err(message) = check_template(repository_template) {
                // The value is left out of the message, because it may hold credentials.
                errors.push(FieldError::forbidden(at("repositoryTemplate"), message));
            }
        }
        [first, second, ..] => {
            errors.push(FieldError::forbidden(at(second), format!("may not be set together with {first}")));
        }
    }
}

/// Checks the name of a repository with symbols for parts of a provider's address.
fn check_template(template: &str) -> Result<(), &'static str> {
    let symbols = ["${hostname}", "${namespace}", "${type}"];
    let plain = symbols.iter().fold(template.to_owned(), |text, symbol| text.replace(symbol, "x"));
    if !template.contains("${type}") {
        return Err("must contain ${type}, since each provider has a repository of its own");
    }
    if plain.contains('$') {
        return Err("may only contain the symbols ${hostname}, ${namespace} and ${type}");
    }
    if validation::is_oci_repository(&plain) {
        Ok(())
    } else {
        Err("must be HOST[:PORT]/NAME in lower case, such as registry.example.com/providers/${namespace}/${type}")
    }
}

/// The references to Secrets, and where they are.
fn secrets(target: &TerraformTarget) -> impl Iterator<Item = (String, &SecretReference)> {
    let mirror = target.mirror.secret_ref.iter().map(|secret| (format!("{PATH}.mirror.secretRef"), secret));
    let providers = target.providers.iter().enumerate().flat_map(|(i, provider)| {
        let of = [
            ("environmentSecretRef", &provider.environment_secret_ref),
            ("configurationSecretRef", &provider.configuration_secret_ref),
        ];
        of.into_iter()
            .filter_map(move |(field, secret)| Some((format!("{PATH}.providers[{i}].{field}"), secret.as_ref()?)))
    });
    mirror.chain(providers)
}

/// The Secrets that the providers of a workspace and their mirror need.
pub(super) fn referenced(spec: &WorkspaceSpec) -> impl Iterator<Item = &SecretReference> {
    spec.terraform.iter().flat_map(secrets).map(|(_, secret)| secret)
}
