//! Backend: finds out whether documents can be kept there.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use stoa_controller::{
    conditions::set_condition,
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_machinery::ApiError;
use stoa_runs::{Services, backends::Use};
use stoa_storage::documents::{Digest, DocumentError, Refusal};
use stoa_types::{
    Backend,
    platform::{BackendSpec, BackendType},
    reason,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// How often to look again at what is ready, and at what is not.
const LOOK: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How long a store may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many are looked at at once: any number, since one that does not answer is to keep no other waiting.
const AT_ONCE: usize = usize::MAX;

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(backends) = services.lookup.api::<Backend>() else { return };
    let triggers = vec![Trigger::on(&backends, |b| vec![queue::key_of(b)])];
    let probes = Probes::default();
    queue::drive_some(services.queues.of("backends"), AT_ONCE, triggers, end, |key| {
        look(services.clone(), probes.clone(), key)
    })
    .await;
}

async fn look(services: Services, probes: Probes, (_, name): ObjectKey) -> Result<Option<Duration>, ApiError> {
    let backends = services.lookup.api::<Backend>()?;
    let Some(backend) = backends.get_opt("", &name).await? else {
        probes.forget(&name);
        return Ok(None);
    };
    let of = (backend.metadata.uid.clone(), backend.spec.clone());
    let found = probes.found(&name, of, || probe(services.clone(), name.clone(), backend.clone())).await;
    let (ready, why, message) = match found {
        Ok(()) => (true, reason::AVAILABLE, "documents can be stored and read".to_owned()),
        Err(error) => (false, reason_of(&error, backend.spec.kind), error.in_full()),
    };
    backends
        .update_status_with("", &name, |b: &mut Backend| {
            // What was found is of the Backend as it was, and this one is looked at next.
            if b.metadata.uid != backend.metadata.uid || b.spec != backend.spec {
                return;
            }
            let generation = b.metadata.generation;
            let status = b.status.get_or_insert_default();
            set_condition(&mut status.conditions, reason::READY, ready, why, message.clone(), generation);
        })
        .await?;
    Ok(Some(if ready { LOOK } else { LOOK_AGAIN }))
}

/// Probes without an answer yet: a directory that hangs keeps one thread, not one for each look.
#[derive(Clone, Default)]
struct Probes(Arc<Mutex<HashMap<String, Probe>>>);

struct Probe {
    of: (Option<String>, BackendSpec),
    task: AbortOnDropHandle<Result<(), DocumentError>>,
}

impl Probes {
    /// What a probe finds, which begins now unless the last one of the same is still under way.
    async fn found<F>(
        &self,
        name: &str,
        of: (Option<String>, BackendSpec),
        begin: impl FnOnce() -> F,
    ) -> Result<(), DocumentError>
    where
        F: Future<Output = Result<(), DocumentError>> + Send + 'static,
    {
        let before = self.0.lock().remove(name).filter(|before| before.of == of);
        let mut task = before.map_or_else(|| AbortOnDropHandle::new(tokio::spawn(begin())), |before| before.task);
        match tokio::time::timeout(PATIENCE, &mut task).await {
            Ok(found) => found.unwrap_or_else(|error| {
                // What it panicked with is for the log alone.
                tracing::error!(name, error = &error as &dyn std::error::Error, "a probe of a backend broke off");
                Err(DocumentError::Unavailable("the server failed to check the backend; its log has the cause".into()))
            }),
            Err(_) => {
                self.0.lock().insert(name.to_owned(), Probe { of, task });
                Err(DocumentError::Unavailable(format!("there was no answer in {PATIENCE:?}").into()))
            }
        }
    }

    fn forget(&self, name: &str) {
        self.0.lock().remove(name);
    }
}

/// Keeps a document and reads it back; the same one every time, so that nothing piles up.
async fn probe(services: Services, name: String, backend: Backend) -> Result<(), DocumentError> {
    let store = services.backends.open(&name, &backend, Use::Probe).await?;
    let digest = store.put("probe", Bytes::from_static(b"probe")).await?;
    if store.get("probe", &digest).await?.is_none() {
        return Err(DocumentError::Unavailable("a stored document is missing".into()));
    }
    // S3 denies access to what is not there, where it may not be listed. A run could not tell the two apart.
    store.get("probe", &Digest::of(b"nothing is kept under this digest")).await.map(drop)
}

fn reason_of(error: &DocumentError, kind: BackendType) -> &'static str {
    match error {
        DocumentError::Full(_) => reason::BACKEND_FULL,
        DocumentError::Refused { refusal: Refusal::Credentials, .. } => reason::REFERENCE_NOT_FOUND,
        DocumentError::Refused { refusal: Refusal::Access, .. } => reason::ACCESS_DENIED,
        DocumentError::Refused { refusal: Refusal::Bucket, .. } => reason::BUCKET_NOT_FOUND,
        DocumentError::Unavailable(_) if kind != BackendType::Local => reason::UNREACHABLE,
        DocumentError::Refused { refusal: Refusal::Request, .. }
        | DocumentError::Unavailable(_)
        | DocumentError::Scope(_)
        | DocumentError::Corrupt { .. }
        | DocumentError::Conflict { .. }
        | DocumentError::TooLarge { .. } => reason::BACKEND_UNAVAILABLE,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::StreamExt as _;
    use k8s_openapi::{ByteString, api::core::v1::Secret};
    use serde_json::json;
    use stoa_machinery::registry::api::Change;
    use stoa_types::{common::condition, platform::BucketAddressing};
    use tokio::{net::TcpListener, sync::Notify};

    use super::*;
    use crate::testing::TestServer;

    /// A world with these Backends, whose stores take connections and answer nothing.
    async fn silent(names: &[&str]) -> (TestServer, TcpListener) {
        let world = TestServer::with_secrets().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut secret = Secret::default();
        secret.metadata.name = Some("s3".to_owned());
        secret.metadata.namespace = Some("platform".to_owned());
        let keys = ["accessKey", "secretKey"].map(|key| (key.to_owned(), ByteString(b"key".to_vec())));
        secret.data = Some(keys.into());
        world.registry.api::<Secret>().create(&secret).await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let s3 = json!({"bucket": "documents", "endpoint": endpoint,
            "credentialsSecretRef": {"namespace": "platform", "name": "s3"}});
        for name in names {
            world.create("Backend", name, json!({"type": "S3", "s3": s3})).await;
        }
        (world, listener)
    }

    fn is_told(backend: &Backend) -> Option<bool> {
        let conditions = &backend.status.as_ref()?.conditions;
        condition(conditions, reason::READY).map(|ready| ready.status == "True")
    }

    #[tokio::test]
    async fn stores_that_do_not_answer_keep_no_other_waiting() {
        let (world, _listener) = silent(&["a", "b", "c"]).await;
        let backends = world.registry.api::<Backend>();
        let mut changes = backends.subscribe(None);
        let end = CancellationToken::new();
        let driven = tokio::spawn(run(world.services.clone(), end.clone()));
        let first = loop {
            let change = tokio::time::timeout(Duration::from_secs(60), changes.next()).await.expect("one is told");
            let Some(Change::Applied(backend)) = change else { continue };
            if let Some(is_ready) = is_told(&backend) {
                break (queue::key_of(&backend).1, is_ready);
            }
        };
        assert_eq!(first, ("default".to_owned(), true));
        end.cancel();
        driven.await.unwrap();
    }

    #[tokio::test]
    async fn changed_backend_discards_earlier_probe_result() {
        let (world, listener) = silent(&["far"]).await;
        let backends = world.registry.api::<Backend>();
        let key = (String::new(), "far".to_owned());
        let looked = tokio::spawn(look(world.services.clone(), Probes::default(), key.clone()));
        let (connection, _) = listener.accept().await.unwrap();
        let change = |b: &mut Backend| b.spec.s3.as_mut().unwrap().addressing = Some(BucketAddressing::Path);
        backends.update_with("", "far", change).await.unwrap();
        drop((connection, listener));
        looked.await.unwrap().unwrap();
        assert_eq!(is_told(&backends.get("", "far").await.unwrap()), None);
        look(world.services.clone(), Probes::default(), key).await.unwrap();
        assert_eq!(is_told(&backends.get("", "far").await.unwrap()), Some(false));
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_probe_reports_timeout_and_runs_alone() {
        let (probes, begun, answers) = (Probes::default(), AtomicUsize::new(0), Arc::new(Notify::new()));
        let spec: BackendSpec = serde_json::from_value(json!({"type": "Local"})).unwrap();
        let found = |uid: &str| {
            let (of, answers) = ((Some(uid.to_owned()), spec.clone()), answers.clone());
            let begin = || {
                begun.fetch_add(1, Ordering::Relaxed);
                async move {
                    answers.notified().await;
                    Ok(())
                }
            };
            probes.found("far", of, begin)
        };
        for _ in 0..3 {
            assert!(matches!(found("one").await, Err(DocumentError::Unavailable(_))));
        }
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        answers.notify_one();
        found("one").await.unwrap();
        assert_eq!(begun.load(Ordering::Relaxed), 1, "it is the one that goes on");
        assert!(found("one").await.is_err());
        assert!(found("two").await.is_err());
        assert_eq!(begun.load(Ordering::Relaxed), 3, "another Backend has one of its own");
    }
}
