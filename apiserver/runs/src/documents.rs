//! Documents of a run in the Backend, by their digests. Specs are sealed there.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use memchr::memmem;
use serde_json::Value;
use stoa_controller::blocking::run_blocking;
use stoa_engine::{
    Plan, Spec,
    bounds::check_spec_size,
    digest::canonical_json,
    document,
    sealed::{self, SEALED_KEY},
};
use stoa_storage::documents::{Digest, DocumentError, DocumentStore};
use stoa_types::reason;

use super::{StepError, target::Target};
use crate::encryption::Encryption;

/// Of how many documents it is asked at once how many bytes they have.
const ASKED_AT_ONCE: usize = 16;

/// What there is to do about a document that is gone or damaged.
const MEND: &str = "Stoa leaves the backend as it is. Restore the document from a copy of the backend. Instead of \
                    restoring a Spec or a plan, you can start a run without it, such as an Apply of the source's \
                    present commit";

/// The document of a digest.
///
/// # Errors
///
/// Failed when it is not there or is damaged, with what to do about that; Retry when the Backend cannot be read.
pub async fn get(store: &dyn DocumentStore, scope: &str, digest: &str) -> Result<Bytes, StepError> {
    found(store.get(scope, &parsed(digest)?).await, scope, digest)
}

/// How many bytes it has.
///
/// # Errors
///
/// As [`get`].
pub async fn size(store: &dyn DocumentStore, scope: &str, digest: &str) -> Result<u64, StepError> {
    found(store.size(scope, &parsed(digest)?).await, scope, digest)
}

/// How many bytes documents have in all.
///
/// # Errors
///
/// As [`get`], of any of them.
pub async fn sizes(store: &Arc<dyn DocumentStore>, scope: &str, digests: Vec<String>) -> Result<u64, StepError> {
    let asked = digests.into_iter().map(|digest| {
        let (store, scope) = (Arc::clone(store), scope.to_owned());
        async move { size(&*store, &scope, &digest).await }
    });
    let asked: Vec<_> = asked.collect();
    let mut sizes = stream::iter(asked).buffer_unordered(ASKED_AT_ONCE);
    let mut all = 0_u64;
    while let Some(size) = sizes.next().await {
        all = all.saturating_add(size?);
    }
    Ok(all)
}

fn parsed(digest: &str) -> Result<Digest, StepError> {
    digest.parse::<Digest>().map_err(|error| lost(error.to_string()))
}

fn found<T>(found: Result<Option<T>, DocumentError>, scope: &str, digest: &str) -> Result<T, StepError> {
    match found {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(lost(format!("document {digest} is not in the backend, in {scope}"))),
        Err(error @ DocumentError::Corrupt { .. }) => Err(lost(error.to_string())),
        Err(error) => Err(halt(&error, "the backend cannot be read")),
    }
}

fn lost(what: String) -> StepError {
    StepError::failed(reason::UNREADABLE_DOCUMENT, format!("{what}. {MEND}"))
}

/// What a failure of a Backend means for a run. It waits for what may pass, or somebody mends meanwhile, such as
/// credentials; and fails where there is no room, so that it holds up nobody who would make some.
pub fn halt(error: &DocumentError, what: &str) -> StepError {
    let message = format!("{what}: {}", error.in_full());
    match error {
        DocumentError::Unavailable(_) | DocumentError::Refused { .. } => StepError::Retry(message),
        DocumentError::Full(_) => StepError::failed(reason::BACKEND_FULL, message),
        DocumentError::Scope(_)
        | DocumentError::Corrupt { .. }
        | DocumentError::Conflict { .. }
        | DocumentError::TooLarge { .. } => StepError::failed(reason::BACKEND_UNAVAILABLE, message),
    }
}

/// Keeps a document; the text of its digest.
pub async fn put(store: &dyn DocumentStore, scope: &str, bytes: Bytes) -> Result<String, StepError> {
    kept(store.put(scope, bytes).await)
}

/// The same for documents that a Run owes; a full Backend has a reserve for them.
pub(crate) async fn put_owed(store: &dyn DocumentStore, scope: &str, bytes: Bytes) -> Result<String, StepError> {
    kept(store.put_owed(scope, bytes).await)
}

fn kept(digest: Result<Digest, DocumentError>) -> Result<String, StepError> {
    digest.map(|d| d.to_string()).map_err(|error| halt(&error, "the backend cannot be written"))
}

/// The Spec that is kept under a digest, in clear. One of an earlier version may have been kept so.
///
/// # Errors
///
/// As [`get`], and Failed when what is sealed does not open.
pub(crate) async fn get_spec(target: &Target, sealing: &Encryption, digest: &str) -> Result<Bytes, StepError> {
    let kept = get(&*target.documents, &target.scope(), digest).await?;
    let (sealing, scope) = (sealing.clone(), target.scope());
    run_blocking(kept.len(), move || opened(&sealing, &scope, kept)).await.map_err(|why| {
        let message = format!("the Spec {digest} cannot be read: {why}. Nothing was changed");
        StepError::failed(reason::UNREADABLE_SPEC, message)
    })
}

/// Keeps a Spec, with what is sensitive of it sealed; the text of the digest of what is kept.
///
/// # Errors
///
/// As [`put`], and Failed when it is no Spec, or a larger one than there may be.
pub(crate) async fn put_spec(target: &Target, sealing: &Encryption, spec: &Bytes) -> Result<String, StepError> {
    let (sealing, scope, clear) = (sealing.clone(), target.scope(), spec.clone());
    let kept = run_blocking(spec.len(), move || sealed(&sealing, &scope, &clear)).await;
    let kept = kept.map_err(|why| StepError::failed(reason::GENERATE_FAILED, why))?;
    put(&*target.documents, &target.scope(), kept).await
}

/// The plan that is in a document.
///
/// # Errors
///
/// When it cannot be understood.
pub async fn plan(kept: &Bytes) -> Result<Plan, document::DocumentError> {
    let kept = kept.clone();
    run_blocking(kept.len(), move || document::decode(&kept)).await
}

/// A Spec as people see it, whether it is sealed or in clear.
///
/// # Errors
///
/// When it is no Spec.
pub fn shown(spec: Bytes) -> Result<Bytes, String> {
    let parsed = parse(&spec)?;
    let shown = sealed::shown(&parsed);
    Ok(if shown == parsed { spec } else { canonical_json(&shown).into() })
}

/// A State as people see it: without the states of providers, which only their keys open.
///
/// # Errors
///
/// When it is no State.
pub fn shown_state(state: Bytes) -> Result<Bytes, String> {
    const PROVIDER_STATE: &str = "providerState";
    if memmem::find(&state, PROVIDER_STATE.as_bytes()).is_none() {
        return Ok(state);
    }
    let mut shown: Value = serde_json::from_slice(&state)
        .map_err(|e| format!("it is not a State (line {}, column {} of its JSON)", e.line(), e.column()))?;
    for resource in shown.get_mut("resources").and_then(Value::as_array_mut).into_iter().flatten() {
        resource.as_object_mut().and_then(|resource| resource.remove(PROVIDER_STATE));
    }
    Ok(serde_json::to_vec(&shown).expect("a value serializes").into())
}

fn sealed(sealing: &Encryption, scope: &str, spec: &Bytes) -> Result<Bytes, String> {
    check_spec_size(spec.len()).map_err(|error| error.to_string())?;
    let parsed = parse(spec)?;
    let sealed = sealing.encrypt(scope, &parsed);
    Ok(if sealed == parsed { spec.clone() } else { canonical_json(&sealed).into() })
}

fn opened(sealing: &Encryption, scope: &str, kept: Bytes) -> Result<Bytes, String> {
    if memmem::find(&kept, SEALED_KEY.as_bytes()).is_none() {
        return Ok(kept);
    }
    let opened = sealing.decrypt(scope, &parse(&kept)?).map_err(|error| format!("{error}; {}", error.advice()))?;
    Ok(canonical_json(&opened).into())
}

/// Reads a Spec. What is wrong is told by its place alone, since the words of a parser quote what is there.
fn parse(spec: &[u8]) -> Result<Spec, String> {
    serde_json::from_slice(spec)
        .map_err(|e| format!("it is not a Spec (line {}, column {} of its JSON)", e.line(), e.column()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use serde_json::json;
    use stoa_engine::bounds::LARGEST_SPEC;
    use tokio::sync::Barrier;

    use super::*;

    /// Says how large a document is once as many are asked for as may be at once.
    #[derive(Debug)]
    struct Together(Barrier);

    #[async_trait]
    impl DocumentStore for Together {
        async fn size(&self, _: &str, _: &Digest) -> Result<Option<u64>, DocumentError> {
            self.0.wait().await;
            Ok(Some(7))
        }

        async fn put(&self, _: &str, _: Bytes) -> Result<Digest, DocumentError> {
            unreachable!("nothing is written")
        }

        async fn get(&self, _: &str, _: &Digest) -> Result<Option<Bytes>, DocumentError> {
            unreachable!("nothing is read")
        }

        async fn list(&self, _: &str) -> Result<Vec<Digest>, DocumentError> {
            unreachable!("nothing is listed")
        }

        async fn file(&self, _: &str, _: u64) -> Result<Option<Bytes>, DocumentError> {
            unreachable!("nothing is read")
        }

        async fn delete(&self, _: &str, _: &Digest) -> Result<(), DocumentError> {
            unreachable!("nothing is removed")
        }
    }

    #[tokio::test]
    async fn sizes_are_asked_for_at_once() {
        let store: Arc<dyn DocumentStore> = Arc::new(Together(Barrier::new(ASKED_AT_ONCE)));
        let digests = vec![Digest::of(b"a body").to_string(); 2 * ASKED_AT_ONCE];
        let sizes = tokio::time::timeout(Duration::from_secs(30), sizes(&store, "shop", digests)).await;
        assert_eq!(sizes.expect("nobody waits for another").unwrap(), 7 * 2 * ASKED_AT_ONCE as u64);
    }

    const SCOPE: &str = "shop/5f0c7f44";

    fn spec(kind: &str) -> Bytes {
        let spec = json!({"resources": [{"id": "x", "type": "Kubernetes", "attributes": {"kind": kind,
            "data": {"password": "aHVudGVyMg=="}}}]});
        canonical_json(&spec).into()
    }

    fn says(document: &Bytes, text: &str) -> bool {
        memmem::find(document, text.as_bytes()).is_some()
    }

    #[test]
    fn people_see_states_without_provider_states() {
        let resource = |state: Value| {
            let mut resource = json!({"id": "a", "type": "Terraform", "attributes": {"providerState": "an attribute"}});
            resource.as_object_mut().unwrap().extend(state.as_object().unwrap().clone());
            resource
        };
        let state = |of: Value| Bytes::from(json!({"schemaVersion": 1, "resources": [resource(of)]}).to_string());
        let plain = state(json!({}));
        let sealed = state(json!({"providerState": {"sealed": "v1:00000000:AAAA"}}));
        let shown = |state: &Bytes| serde_json::from_slice::<Value>(&shown_state(state.clone()).unwrap()).unwrap();
        assert_eq!(shown(&sealed), serde_json::from_slice::<Value>(&plain).unwrap());
        assert_eq!(shown(&plain)["resources"][0]["attributes"]["providerState"], "an attribute");
        let text = Bytes::from_static(b"not JSON: providerState");
        assert!(shown_state(text).unwrap_err().starts_with("it is not a State (line 1"));
    }

    #[test]
    fn stored_spec_encrypts_only_sensitive_values() {
        let sealing = Encryption::with_keys(&[1]);
        let kept = sealed(&sealing, SCOPE, &spec("Secret")).unwrap();
        assert!(!says(&kept, "aHVudGVyMg") && says(&kept, "password"));
        assert_eq!(opened(&sealing, SCOPE, kept.clone()).unwrap(), spec("Secret"));
        assert_eq!(shown(kept.clone()).unwrap(), kept);
        assert_eq!(sealed(&sealing, SCOPE, &spec("ConfigMap")).unwrap(), spec("ConfigMap"));
    }

    #[test]
    fn unencrypted_spec_is_read_and_redacted() {
        let sealing = Encryption::with_keys(&[1]);
        assert_eq!(opened(&sealing, SCOPE, spec("Secret")).unwrap(), spec("Secret"));
        let told: Value = serde_json::from_slice(&shown(spec("Secret")).unwrap()).unwrap();
        assert_eq!(told["resources"][0]["attributes"]["data"], json!({"password": "(sensitive)"}));
    }

    #[test]
    fn error_about_an_encrypted_spec_names_a_remedy() {
        let kept = sealed(&Encryption::with_keys(&[1]), SCOPE, &spec("Secret")).unwrap();
        let told = opened(&Encryption::with_keys(&[2]), SCOPE, kept).unwrap_err();
        assert!(told.contains("put that key behind the others"), "{told}");
    }

    #[test]
    fn spec_above_the_limit_is_refused() {
        let told = sealed(&Encryption::with_keys(&[1]), SCOPE, &vec![b' '; LARGEST_SPEC + 1].into()).unwrap_err();
        assert_eq!(told, "the Spec is larger than 64 MiB as JSON; split it into several stacks");
    }

    #[test]
    fn what_is_no_spec_is_not_quoted() {
        let told = sealed(&Encryption::with_keys(&[1]), SCOPE, &Bytes::from_static(br#"{"resources": "hunter2"}"#))
            .unwrap_err();
        assert!(told.contains("line 1") && !told.contains("hunter2"), "{told}");
    }
}
