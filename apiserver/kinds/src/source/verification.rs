//! `spec.verify` of a Source: the public keys that sign its commits.

use stoa_machinery::status::FieldError;
use stoa_types::config::{SourceProvider, SourceSpec, SourceVerification};

use crate::validation;

/// The beginnings of public keys.
const KEYS: [&str; 5] =
    ["ssh-", "ecdsa-sha2-", "sk-", "-----BEGIN PGP PUBLIC KEY BLOCK-----", "-----BEGIN PUBLIC KEY-----"];

/// Finds what is wrong with the keys that a source trusts. The runner reads them whole.
pub(super) fn validate(spec: &SourceSpec, verify: &SourceVerification, errors: &mut Vec<FieldError>) {
    const PATH: &str = "spec.verify";
    if spec.provider == SourceProvider::Helm {
        let message =
            "may only be set with provider Git or OCI; a signed chart in a registry is a Source of provider OCI";
        errors.push(FieldError::forbidden(PATH, message));
    }
    let SourceVerification { public_keys, secret_ref, config_map_ref } = verify;
    if public_keys.is_empty() && secret_ref.is_none() && config_map_ref.is_none() {
        let message = "publicKeys, secretRef or configMapRef must name a public key";
        errors.push(FieldError::required(format!("{PATH}.publicKeys"), message));
    }
    for (at, text) in public_keys.iter().enumerate() {
        let path = format!("{PATH}.publicKeys[{at}]");
        // The value is left out of the messages, because it may be a private key.
        if text.contains("PRIVATE KEY") {
            let message = "has a private key; replace this key, and write the public one";
            errors.push(FieldError::forbidden(path, message));
        } else if !KEYS.iter().any(|beginning| text.contains(beginning)) {
            let message = "must have a public key: of SSH, of OpenPGP (armored), or of cosign (PEM)";
            errors.push(FieldError::invalid(path, "<value>", message));
        }
    }
    if let Some(secret) = secret_ref {
        validation::secret_beside(&format!("{PATH}.secretRef"), secret, errors);
    }
    if config_map_ref.as_ref().is_some_and(|reference| reference.name.is_empty()) {
        errors.push(FieldError::required(format!("{PATH}.configMapRef.name"), ""));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn wrong(provider: &str, verify: Value) -> Vec<String> {
        let spec = json!({"remote": "https://git.example.com/a.git", "provider": provider, "verify": verify});
        let spec: SourceSpec = serde_json::from_value(spec).unwrap();
        let mut errors = Vec::new();
        validate(&spec, spec.verify.as_ref().unwrap(), &mut errors);
        errors.iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
    }

    #[test]
    fn keys_of_every_form_are_valid() {
        for verify in [
            json!({"publicKeys": ["ssh-ed25519 AAAA ann", "# team\nann sk-ssh-ed25519@openssh.com AAAA"]}),
            json!({"publicKeys": ["-----BEGIN PGP PUBLIC KEY BLOCK-----\n", "-----BEGIN PUBLIC KEY-----\n"]}),
            json!({"secretRef": {"name": "keys"}}),
            json!({"configMapRef": {"name": "keys"}}),
        ] {
            assert_eq!(wrong("Git", verify.clone()), [""; 0], "{verify}");
        }
    }

    #[test]
    fn wrong_keys_name_the_field() {
        for (provider, verify, expected) in [
            ("Git", json!({}), "spec.verify.publicKeys: Required value"),
            ("OCI", json!({"publicKeys": ["hello"]}), "spec.verify.publicKeys[0]: Invalid value: \"<value>\""),
            (
                "Git",
                json!({"publicKeys": ["ssh-rsa A", "-----BEGIN OPENSSH PRIVATE KEY-----"]}),
                "spec.verify.publicKeys[1]: Forbidden: has a private key",
            ),
            ("Git", json!({"secretRef": {"name": ""}}), "spec.verify.secretRef.name: Required value"),
            ("Git", json!({"configMapRef": {"name": ""}}), "spec.verify.configMapRef.name: Required value"),
            ("Helm", json!({"publicKeys": ["ssh-rsa A"]}), "spec.verify: Forbidden: may only be set with provider Git"),
        ] {
            let found = wrong(provider, verify.clone());
            assert!(found.len() == 1 && found[0].starts_with(expected), "{verify}: {found:?}");
        }
    }
}
