//! `spec.secretStore` of a Workspace: the providers that Stoa reads, as Kusion names their settings.

use serde_json::{Map, Value};
use stoa_machinery::{content, status::FieldError};
use stoa_types::{SecretReference, platform::WorkspaceSpec};

use crate::validation;

const PROVIDER: &str = "spec.secretStore.provider";
/// An address of Vault, for messages.
const EXAMPLE: &str = "https://vault.example.com:8200";

/// Finds what is wrong with the Secret of a store.
pub(super) fn validate(store: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    const PATH: &str = "spec.secretStore.secretRef";
    let Some(reference) = store.get("secretRef") else { return };
    match serde_json::from_value::<SecretReference>(reference.clone()) {
        Ok(secret) => validation::secret_anywhere(PATH, &secret, errors),
        Err(_) => {
            errors.push(FieldError::invalid(PATH, "<reference>", "must have name and namespace of a Secret, as texts"));
        }
    }
}

/// Finds what is wrong with a store that is new. Providers that Stoa does not read stay, since Kusion has more.
pub(super) fn validate_new(new: &WorkspaceSpec, old: Option<&WorkspaceSpec>, errors: &mut Vec<FieldError>) {
    if old.is_some_and(|old| old.secret_store == new.secret_store) {
        return;
    }
    known("spec.secretStore", &new.secret_store, &["provider", "secretRef"], errors);
    let providers = match new.secret_store.get("provider") {
        None | Some(Value::Null) => return,
        Some(Value::Object(providers)) => providers,
        Some(_) => return errors.push(FieldError::invalid(PROVIDER, "<value>", "must be a map with one provider")),
    };
    let names: Vec<&str> =
        providers.iter().filter(|(_, settings)| !settings.is_null()).map(|(name, _)| name.as_str()).collect();
    if names.len() > 1 {
        let message = format!("must have one provider, not {}", names.join(" and "));
        errors.push(FieldError::invalid(PROVIDER, names.len(), message));
    }
    for (name, check) in [("kubernetes", kubernetes as Check), ("vault", vault)] {
        let path = format!("{PROVIDER}.{name}");
        match providers.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Object(settings)) => check(&path, settings, errors),
            Some(_) => errors.push(FieldError::invalid(path, "<value>", "must be a map with the settings")),
        }
    }
}

type Check = fn(&str, &Map<String, Value>, &mut Vec<FieldError>);

fn kubernetes(path: &str, settings: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    known(path, settings, &["namespace", "triggered"], errors);
    match settings.get("triggered") {
        None | Some(Value::Null) => {}
        Some(Value::Array(names)) if names.iter().all(Value::is_string) => {}
        Some(_) => {
            errors.push(FieldError::invalid(
                format!("{path}.triggered"),
                "<value>",
                "must be a list of names of Secrets",
            ));
        }
    }
    if let Some(namespace) = text(path, settings, "namespace", errors).filter(|namespace| !namespace.is_empty()) {
        let complaints = content::dns_label(namespace);
        let invalid = |why| FieldError::invalid(format!("{path}.namespace"), namespace, why);
        errors.extend(complaints.iter().map(invalid));
    }
}

fn vault(path: &str, settings: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    known(path, settings, &["server", "path", "version"], errors);
    let server = format!("{path}.server");
    match settings.get("server") {
        None | Some(Value::Null) => errors.push(FieldError::required(server, format_args!("a URL such as {EXAMPLE}"))),
        Some(_) => {
            if let Some(address) = text(path, settings, "server", errors) {
                let instead = "use secretStore.secretRef";
                if let Some(uri) = validation::service_url(&server, address, EXAMPLE, instead, errors) {
                    validation::not_in_clear(&server, address, &uri, errors);
                }
            }
        }
    }
    if text(path, settings, "path", errors) == Some("") {
        errors.push(FieldError::invalid(format!("{path}.path"), "", "must be the path of a secret engine"));
    }
    if let Some(version) = text(path, settings, "version", errors).filter(|version| !["v1", "v2"].contains(version)) {
        errors.push(FieldError::not_supported(format!("{path}.version"), version, &["v1", "v2"]));
    }
}

/// Rejects other fields than some.
fn known(path: &str, fields: &Map<String, Value>, names: &[&str], errors: &mut Vec<FieldError>) {
    let unknown = fields.keys().filter(|field| !names.contains(&field.as_str()));
    let error = |field: &String| {
        FieldError::forbidden(format!("{path}.{field}"), format_args!("is unknown; known are {}", names.join(", ")))
    };
    errors.extend(unknown.map(error));
}

/// The text of a field, if it is set.
fn text<'s>(
    path: &str,
    settings: &'s Map<String, Value>,
    field: &str,
    errors: &mut Vec<FieldError>,
) -> Option<&'s str> {
    match settings.get(field)? {
        Value::Null => None,
        Value::String(text) => Some(text),
        _ => {
            errors.push(FieldError::invalid(format!("{path}.{field}"), "<value>", "must be a text"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(store: &Value) -> WorkspaceSpec {
        serde_json::from_value(json!({"backend": {"name": "b"}, "secretStore": store})).unwrap()
    }

    fn wrong(store: Value) -> Vec<String> {
        let mut errors = Vec::new();
        validate_new(&spec(&store), None, &mut errors);
        let unchanged = spec(&store);
        let mut of_unchanged = Vec::new();
        validate_new(&unchanged, Some(&unchanged), &mut of_unchanged);
        assert!(of_unchanged.is_empty(), "stores from before these rules stay");
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn stores_that_stoa_reads_are_valid() {
        for store in [
            json!({}),
            json!({"provider": null}),
            json!({"provider": {"kubernetes": {}}}),
            json!({"provider": {"kubernetes": {"namespace": "platform", "triggered": ["db"]}, "vault": null}}),
            json!({"provider": {"vault": {"server": "https://vault.example.com:8200", "path": "kv", "version": "v1"}}}),
            json!({"provider": {"vault": {"server": "http://127.0.0.1:8200"}}}),
            json!({"provider": {"aws": {"region": "eu-west-1"}}}),
        ] {
            assert_eq!(wrong(store.clone()), [""; 0], "{store}");
        }
    }

    #[test]
    fn wrong_stores_name_the_field() {
        let vault = |settings: Value| json!({"provider": {"vault": settings}});
        let server = "https://vault.example.com";
        for (store, expected) in [
            (json!({"providers": {}}), "spec.secretStore.providers: Forbidden: is unknown"),
            (json!({"provider": "vault"}), "spec.secretStore.provider: Invalid value: "),
            (json!({"provider": {"vault": {"server": server}, "kubernetes": {}}}), "must have one provider, not "),
            (json!({"provider": {"kubernetes": true}}), "spec.secretStore.provider.kubernetes: Invalid value: "),
            (
                json!({"provider": {"kubernetes": {"namespace": "A"}}}),
                "spec.secretStore.provider.kubernetes.namespace: ",
            ),
            (
                json!({"provider": {"kubernetes": {"name": "a"}}}),
                "spec.secretStore.provider.kubernetes.name: Forbidden",
            ),
            (
                json!({"provider": {"kubernetes": {"triggered": ["db", 1]}}}),
                "spec.secretStore.provider.kubernetes.triggered: Invalid value",
            ),
            (vault(json!({})), "spec.secretStore.provider.vault.server: Required value"),
            (
                vault(json!({"server": 1})),
                "spec.secretStore.provider.vault.server: Invalid value: \"<value>\": must be a text",
            ),
            (
                vault(json!({"server": "vault"})),
                "spec.secretStore.provider.vault.server: Invalid value: \"vault\": must be a URL",
            ),
            (vault(json!({"server": "http://vault.example.com"})), "must be https, unless it is a loopback address"),
            (
                vault(json!({"server": "https://a:b@example.com"})),
                "spec.secretStore.provider.vault.server: Forbidden: ",
            ),
            (
                vault(json!({"server": server, "version": "v3"})),
                "spec.secretStore.provider.vault.version: Unsupported value",
            ),
            (vault(json!({"server": server, "version": 2})), "spec.secretStore.provider.vault.version: Invalid value"),
            (vault(json!({"server": server, "path": ""})), "spec.secretStore.provider.vault.path: Invalid value"),
            (vault(json!({"server": server, "token": "x"})), "spec.secretStore.provider.vault.token: Forbidden"),
        ] {
            let found = wrong(store.clone());
            assert!(found.len() == 1 && found[0].contains(expected), "{store}: {found:?}");
        }
    }
}
