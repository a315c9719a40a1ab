//! `spec.secretStore` and `spec.secretStores` of a Workspace: the providers that Stoa reads, as Kusion names their settings.

use serde_json::{Map, Value};
use stoa_machinery::{content, status::FieldError};
use stoa_types::{
    SecretReference,
    platform::{SecretStore, SopsDecryption, WorkspaceSpec},
};

use crate::validation;

/// An address of Vault, for messages.
const EXAMPLE: &str = "https://vault.example.com:8200";

/// Finds what is wrong with the Secrets of the stores, and with the names of those that have one.
pub(super) fn validate(spec: &WorkspaceSpec, errors: &mut Vec<FieldError>) {
    const PATH: &str = "spec.secretStore.secretRef";
    if let Some(reference) = spec.secret_store.get("secretRef") {
        match serde_json::from_value::<SecretReference>(reference.clone()) {
            Ok(secret) => validation::secret_anywhere(PATH, &secret, errors),
            Err(_) => {
                let message = "must have name and namespace of a Secret, as texts";
                errors.push(FieldError::invalid(PATH, "<reference>", message));
            }
        }
    }
    for (at, SecretStore { name, secret_ref, .. }) in spec.secret_stores.iter().enumerate() {
        let path = format!("spec.secretStores[{at}]");
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if name.is_empty() || !name.bytes().all(is_name) {
            let message = "must have letters, digits and dashes alone";
            errors.push(FieldError::invalid(format!("{path}.name"), name, message));
        }
        if let Some(secret) = secret_ref {
            validation::secret_anywhere(&format!("{path}.secretRef"), secret, errors);
        }
    }
}

/// Finds what is wrong with the key for files of SOPS, which a GitOps repository would have in clear.
pub(super) fn validate_sops(spec: &WorkspaceSpec, errors: &mut Vec<FieldError>) {
    let Some(SopsDecryption { age_key_secret_ref }) = &spec.sops else { return };
    validation::secret_anywhere("spec.sops.ageKeySecretRef", age_key_secret_ref, errors);
    if spec.kubernetes.is_none() {
        let message = "may only be set with kubernetes; GitOps tools decrypt the files themselves";
        errors.push(FieldError::forbidden("spec.sops", message));
    }
}

/// Finds what is wrong with stores that are new. Providers of the default store that Stoa does not read stay, since Kusion has
/// more.
pub(super) fn validate_new(new: &WorkspaceSpec, old: Option<&WorkspaceSpec>, errors: &mut Vec<FieldError>) {
    if old.is_none_or(|old| old.secret_store != new.secret_store) {
        default_store(&new.secret_store, errors);
    }
    for (at, store) in new.secret_stores.iter().enumerate() {
        let is_old = |old: &WorkspaceSpec| old.secret_stores.contains(store);
        if old.is_some_and(is_old) {
            continue;
        }
        let path = format!("spec.secretStores[{at}].provider");
        let settings = serde_json::to_value(&store.provider).unwrap_or_default();
        let settings = settings.as_object().cloned().unwrap_or_default();
        if settings.is_empty() {
            let names: Vec<&str> = PROVIDERS.iter().map(|(name, _)| *name).collect();
            errors.push(FieldError::required(path, format_args!("one of {}", names.join(", "))));
            continue;
        }
        provider(&path, &settings, errors);
        if store.secret_ref.is_none() && store.provider.kubernetes.is_none() {
            let message = "the provider needs credentials";
            errors.push(FieldError::required(format!("spec.secretStores[{at}].secretRef"), message));
        }
    }
}

fn default_store(store: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    const PROVIDER: &str = "spec.secretStore.provider";
    known("spec.secretStore", store, &["provider", "secretRef"], errors);
    match store.get("provider") {
        None | Some(Value::Null) => {}
        Some(Value::Object(providers)) => provider(PROVIDER, providers, errors),
        Some(_) => errors.push(FieldError::invalid(PROVIDER, "<value>", "must be a map with one provider")),
    }
}

/// The checks of providers by their names.
const PROVIDERS: [(&str, Check); 6] = [
    ("kubernetes", kubernetes),
    ("vault", vault),
    ("aws", aws),
    ("azure", azure),
    ("alicloud", alicloud),
    ("file", file),
];

fn provider(path: &str, providers: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    let names: Vec<&str> =
        providers.iter().filter(|(_, settings)| !settings.is_null()).map(|(name, _)| name.as_str()).collect();
    if names.len() > 1 {
        let message = format!("must have one provider, not {}", names.join(" and "));
        errors.push(FieldError::invalid(path, names.len(), message));
    }
    for (name, check) in PROVIDERS {
        let path = format!("{path}.{name}");
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
    address(path, settings, ("server", EXAMPLE), errors);
    required(path, settings, ("server", &format!("a URL such as {EXAMPLE}")), errors);
    if text(path, settings, "path", errors) == Some("") {
        errors.push(FieldError::invalid(format!("{path}.path"), "", "must be the path of a secret engine"));
    }
    if let Some(version) = text(path, settings, "version", errors).filter(|version| !["v1", "v2"].contains(version)) {
        errors.push(FieldError::not_supported(format!("{path}.version"), version, &["v1", "v2"]));
    }
}

fn aws(path: &str, settings: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    known(path, settings, &["region", "endpoint", "profile"], errors);
    region(path, settings, "eu-central-1", errors);
    address(path, settings, ("endpoint", "https://secretsmanager.eu-central-1.amazonaws.com"), errors);
}

/// The clouds of Azure by the names of its SDK, and the names in Kusion.
const CLOUDS: [&str; 6] =
    ["AzurePublicCloud", "AzureUSGovernmentCloud", "AzureChinaCloud", "PublicCloud", "USGovernmentCloud", "ChinaCloud"];

fn azure(path: &str, settings: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    known(path, settings, &["vaultUrl", "tenantId", "environmentType", "authorityHost"], errors);
    let example = "https://shop.vault.azure.net";
    address(path, settings, ("vaultUrl", example), errors);
    required(path, settings, ("vaultUrl", &format!("a URL such as {example}")), errors);
    required(path, settings, ("tenantId", "the id or domain of a tenant"), errors);
    address(path, settings, ("authorityHost", "https://login.microsoftonline.com"), errors);
    if let Some(cloud) = text(path, settings, "environmentType", errors).filter(|cloud| !CLOUDS.contains(cloud)) {
        errors.push(FieldError::not_supported(format!("{path}.environmentType"), cloud, &CLOUDS[..3]));
    }
}

fn alicloud(path: &str, settings: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    known(path, settings, &["region", "endpoint"], errors);
    region(path, settings, "cn-hangzhou", errors);
    address(path, settings, ("endpoint", "https://kms.cn-hangzhou.aliyuncs.com"), errors);
}

fn file(path: &str, settings: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    known(path, settings, &["path"], errors);
    required(path, settings, ("path", "the path of a file from the root of the source"), errors);
    let is_inside = |file: &&str| !file.starts_with('/') && !file.split('/').any(|part| part == "..");
    if let Some(file) = text(path, settings, "path", errors).filter(|file| !is_inside(file)) {
        errors.push(FieldError::invalid(format!("{path}.path"), file, "must be a path inside the source"));
    }
}

fn region(path: &str, settings: &Map<String, Value>, example: &str, errors: &mut Vec<FieldError>) {
    required(path, settings, ("region", &format!("such as {example}")), errors);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if let Some(region) = text(path, settings, "region", errors).filter(|region| !region.bytes().all(is_name)) {
        let message = format!("must be the name of a region, such as {example}");
        errors.push(FieldError::invalid(format!("{path}.region"), region, message));
    }
}

/// Rejects a missing or empty field.
fn required(path: &str, settings: &Map<String, Value>, (field, what): (&str, &str), errors: &mut Vec<FieldError>) {
    let is_missing = |value: &Value| value.is_null() || value.as_str() == Some("");
    if settings.get(field).is_none_or(is_missing) {
        errors.push(FieldError::required(format!("{path}.{field}"), what));
    }
}

/// Rejects an address of a service that would show credentials to others.
fn address(path: &str, settings: &Map<String, Value>, (field, example): (&str, &str), errors: &mut Vec<FieldError>) {
    let Some(address) = text(path, settings, field, errors).filter(|address| !address.is_empty()) else { return };
    let field = format!("{path}.{field}");
    if let Some(uri) = validation::service_url(&field, address, example, "use secretRef", errors) {
        validation::not_in_clear(&field, address, &uri, errors);
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

    fn wrong_among(stores: Value) -> Vec<String> {
        let spec = serde_json::from_value(json!({"backend": {"name": "b"}, "secretStores": stores})).unwrap();
        let mut errors = Vec::new();
        validate(&spec, &mut errors);
        validate_new(&spec, None, &mut errors);
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
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

    #[test]
    fn named_stores_have_one_provider_and_credentials() {
        let secret = json!({"namespace": "platform", "name": "keys"});
        let valid = json!([
            {"name": "a", "provider": {"kubernetes": {"namespace": "platform", "triggered": ["db"]}}},
            {"name": "b-1", "provider": {"vault": {"server": "https://vault.example.com"}}, "secretRef": secret},
            {"name": "c", "provider": {"aws": {"region": "eu-central-1", "profile": "x"}}, "secretRef": secret},
            {"name": "d", "provider": {"azure": {"vaultUrl": "https://a.vault.azure.net", "tenantId": "t",
                "environmentType": "AzureChinaCloud"}}, "secretRef": secret},
            {"name": "e", "provider": {"alicloud": {"region": "cn-hangzhou", "endpoint": "http://127.0.0.1:1"}}, "secretRef": secret},
            {"name": "f", "provider": {"file": {"path": "secrets/all.age"}}, "secretRef": secret},
        ]);
        assert_eq!(wrong_among(valid), [""; 0]);
        let provider = |provider: Value| json!([{"name": "a", "provider": provider, "secretRef": secret}]);
        for (stores, expected) in [
            (json!([{"name": "a_b", "provider": {"kubernetes": {}}}]), "spec.secretStores[0].name: Invalid value"),
            (provider(json!({})), "spec.secretStores[0].provider: Required value: one of kubernetes, vault"),
            (
                provider(json!({"kubernetes": {}, "file": {"path": "a"}})),
                "spec.secretStores[0].provider: Invalid value: 2: must have one provider, not file and kubernetes",
            ),
            (
                json!([{"name": "a", "provider": {"file": {"path": "a"}}}]),
                "spec.secretStores[0].secretRef: Required value: the provider needs credentials",
            ),
            (
                json!([{"name": "a", "provider": {"file": {"path": "a"}}, "secretRef": {"name": "b"}}]),
                "spec.secretStores[0].secretRef.namespace: Required value",
            ),
            (provider(json!({"file": {"path": "../a"}})), "spec.secretStores[0].provider.file.path: Invalid value"),
            (provider(json!({"file": {"path": ""}})), "spec.secretStores[0].provider.file.path: Required value"),
            (provider(json!({"aws": {"region": ""}})), "spec.secretStores[0].provider.aws.region: Required value"),
            (provider(json!({"aws": {"region": "a/b"}})), "spec.secretStores[0].provider.aws.region: Invalid value"),
            (
                provider(json!({"alicloud": {"region": "a", "endpoint": "http://kms.example.com"}})),
                "spec.secretStores[0].provider.alicloud.endpoint: Invalid value",
            ),
            (
                provider(json!({"azure": {"vaultUrl": "https://a.vault.azure.net", "tenantId": ""}})),
                "spec.secretStores[0].provider.azure.tenantId: Required value",
            ),
            (
                provider(json!({"azure": {"vaultUrl": "https://a", "tenantId": "t", "environmentType": "Moon"}})),
                "spec.secretStores[0].provider.azure.environmentType: Unsupported value",
            ),
        ] {
            let found = wrong_among(stores.clone());
            assert!(found.len() == 1 && found[0].starts_with(expected), "{stores}: {found:?}");
        }
    }

    #[test]
    fn key_of_sops_is_for_clusters() {
        let wrong = |target: Value, secret: Value| {
            let mut spec = json!({"backend": {"name": "b"}, "sops": {"ageKeySecretRef": secret}});
            spec.as_object_mut().unwrap().extend(target.as_object().unwrap().clone());
            let mut errors = Vec::new();
            validate_sops(&serde_json::from_value(spec).unwrap(), &mut errors);
            errors.iter().map(|error| error.field.clone()).collect::<Vec<_>>()
        };
        let cluster = || json!({"kubernetes": {"clusters": [{"name": "a", "inCluster": true}]}});
        let secret = || json!({"namespace": "platform", "name": "age"});
        assert_eq!(wrong(cluster(), secret()), [""; 0]);
        assert_eq!(wrong(json!({"gitops": {"repository": "https://git.example.com/a"}}), secret()), ["spec.sops"]);
        assert_eq!(wrong(cluster(), json!({"name": "age"})), ["spec.sops.ageKeySecretRef.namespace"]);
    }
}
