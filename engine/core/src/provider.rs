//! The provider of a resource, as Kusion's extensions name it.

use serde_json::{Map, Value};

/// The extension with the provider: `[[HOST/]NAMESPACE/]TYPE[/VERSION]`.
pub const PROVIDER: &str = "provider";
/// The extension with the provider's type of the resource, such as `random_password`.
pub const RESOURCE_TYPE: &str = "resourceType";
/// The extension with the configuration of the provider for this resource.
pub const PROVIDER_META: &str = "providerMeta";

/// The provider of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderReference<'a> {
    /// Its address, without the version.
    pub address: &'a str,
    /// The version, if the resource names one.
    pub version: Option<&'a str>,
    /// The provider's type of the resource.
    pub resource_type: &'a str,
    /// The configuration for this resource, which takes precedence over that of the workspace.
    pub configuration: Option<&'a Map<String, Value>>,
}

/// Extensions that name no provider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProviderReferenceError {
    /// The field, such as `extensions.provider`.
    pub field: &'static str,
    /// What is wrong, and what to write.
    pub message: String,
}

impl<'a> ProviderReference<'a> {
    /// Reads the extensions of a resource.
    ///
    /// # Errors
    ///
    /// When one of them is missing or has another type.
    pub fn of(extensions: &'a Map<String, Value>) -> Result<Self, ProviderReferenceError> {
        let text = |key: &str, field: &'static str, example: &str| match extensions.get(key) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
            Some(_) => Err(ProviderReferenceError { field, message: format!("must be a text, such as {example}") }),
            None => Err(ProviderReferenceError { field, message: format!("is missing; set it, such as to {example}") }),
        };
        let provider = text(PROVIDER, "extensions.provider", "hashicorp/random/3.6.0")?;
        let resource_type = text(RESOURCE_TYPE, "extensions.resourceType", "random_password")?;
        let configuration = match extensions.get(PROVIDER_META) {
            None | Some(Value::Null) => None,
            Some(Value::Object(map)) => Some(map),
            Some(_) => {
                let message = "must be a map of arguments of the provider".to_owned();
                return Err(ProviderReferenceError { field: "extensions.providerMeta", message });
            }
        };
        let (address, version) = match provider.rsplit_once('/') {
            Some((address, version)) if version.starts_with(|first: char| first.is_ascii_digit()) => {
                (address, Some(version))
            }
            Some(_) | None => (provider, None),
        };
        Ok(Self { address, version, resource_type, configuration })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn provider_may_have_version() {
        let extensions = |provider: &str| json!({"provider": provider, "resourceType": "random_id"});
        for (provider, address, version) in [
            ("random", "random", None),
            ("hashicorp/random", "hashicorp/random", None),
            ("hashicorp/random/3.6.0", "hashicorp/random", Some("3.6.0")),
            ("example.com/a/b/0.1.0-rc1", "example.com/a/b", Some("0.1.0-rc1")),
        ] {
            let extensions = extensions(provider);
            let found = ProviderReference::of(extensions.as_object().unwrap()).unwrap();
            assert_eq!((found.address, found.version), (address, version));
        }
        for (extensions, field) in [
            (json!({"resourceType": "a"}), "extensions.provider"),
            (json!({"provider": 1, "resourceType": "a"}), "extensions.provider"),
            (json!({"provider": "a"}), "extensions.resourceType"),
            (json!({"provider": "a", "resourceType": "b", "providerMeta": []}), "extensions.providerMeta"),
        ] {
            assert_eq!(ProviderReference::of(extensions.as_object().unwrap()).unwrap_err().field, field);
        }
    }
}
