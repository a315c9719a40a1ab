//! The public keys that a Source trusts: those in its spec, and those in a Secret and a ConfigMap beside it.

use std::collections::BTreeMap;

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_proto::{PublicKeys, Verification};
use stoa_types::{Source, reason};

use crate::{Services, StepError};

/// The keys of a Source; nothing where it needs no signatures.
///
/// # Errors
///
/// Failed with the name of a Secret or ConfigMap that does not exist.
pub(crate) async fn of_source(services: &Services, source: &Source) -> Result<Option<Verification>, StepError> {
    let Some(verify) = &source.spec.verify else { return Ok(None) };
    let namespace = source.namespace().unwrap_or_default();
    let inline = verify.public_keys.iter().enumerate();
    let mut keys: Vec<PublicKeys> = inline
        .map(|(at, text)| public_keys(format!("spec.verify.publicKeys[{at}]"), text.clone().into_bytes()))
        .collect();
    if let Some(reference) = &verify.secret_ref {
        let found = services.cluster.secret(&namespace, &reference.name).await?;
        keys.extend(of_keys(&format!("secret {namespace}/{}", reference.name), found)?);
    }
    if let Some(reference) = &verify.config_map_ref {
        let found = services.cluster.config_map(&namespace, &reference.name).await?;
        keys.extend(of_keys(&format!("configmap {namespace}/{}", reference.name), found)?);
    }
    Ok(Some(Verification { keys }))
}

fn of_keys<V: Into<Vec<u8>>>(
    object: &str,
    found: Option<BTreeMap<String, V>>,
) -> Result<impl Iterator<Item = PublicKeys>, StepError> {
    let missing = || StepError::failed(reason::REFERENCE_NOT_FOUND, format!("{object} does not exist"));
    let found = found.ok_or_else(missing)?;
    let object = object.to_owned();
    Ok(found.into_iter().map(move |(key, text)| public_keys(format!("key {key:?} of {object}"), text.into())))
}

fn public_keys(name: String, text: Vec<u8>) -> PublicKeys {
    PublicKeys { name, text: Bytes::from(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_after_their_object() {
        let found = BTreeMap::from([("ann".to_owned(), "ssh-ed25519 AAAA".to_owned())]);
        let names: Vec<String> = of_keys("secret shop/team", Some(found)).unwrap().map(|it| it.name).collect();
        assert_eq!(names, ["key \"ann\" of secret shop/team"]);
        let Err(StepError::Failed { message, .. }) = of_keys::<String>("secret shop/team", None).map(|_| ()) else {
            panic!("a missing Secret is no list of keys");
        };
        assert_eq!(message, "secret shop/team does not exist");
    }
}
