//! Documents of Runs and Releases, read from their Backend for a client.

use std::sync::Arc;

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_controller::{
    blocking::{SMALL, memory_to_read},
    memory_budget::{self, Memory},
};
use stoa_kinds::run_status::status;
use stoa_machinery::ApiError;
use stoa_runs::Services;
use stoa_storage::documents::{Digest, DocumentError, DocumentStore, Measured};
use stoa_types::{Run, Stack, Workspace};
use tokio::sync::OwnedSemaphorePermit;

use super::failure;

/// Where the documents of a stack are, in the Backend of any of its workspaces.
#[derive(Debug)]
pub(super) struct DocumentScope {
    pub(super) namespace: String,
    pub(super) stack_uid: String,
}

/// A document that is there, of which nothing is read yet where it takes room.
#[derive(Debug)]
pub(super) struct StoredDocument {
    namespace: String,
    store: Arc<dyn DocumentStore>,
    scope: String,
    digest: Digest,
    bytes: usize,
    /// All of it, where it is so small that it takes none.
    small: Option<Bytes>,
    /// What is said where it is not there any more.
    absent: String,
}

impl DocumentScope {
    /// Where those of a run are.
    ///
    /// # Errors
    ///
    /// 404 when its stack is gone and the run, of an earlier version, does not say which one it was.
    pub(super) async fn of_run(services: &Services, run: &Run) -> Result<Self, ApiError> {
        let namespace = run.namespace().unwrap_or_default();
        let stack_uid = match status(run).stack_uid {
            Some(uid) => uid,
            None => services.lookup.api::<Stack>()?.get(&namespace, &run.spec.stack).await?.uid().unwrap_or_default(),
        };
        Ok(Self { namespace, stack_uid })
    }

    /// The scope that they are in.
    pub(super) fn scope(&self) -> String {
        format!("{}/{}", self.namespace, self.stack_uid)
    }

    /// Finds a document. `of` says whose it is, for people.
    ///
    /// # Errors
    ///
    /// 404 when the workspace is gone, or the document is not in its Backend any more; 503 when that cannot be read.
    pub(super) async fn find(
        self,
        services: &Services,
        workspace: &str,
        digest: &str,
        of: &str,
    ) -> Result<StoredDocument, ApiError> {
        let workspace = services.lookup.api::<Workspace>()?.get("", workspace).await?;
        let backend = &workspace.spec.backend.name;
        let store = services.backends.store(backend).await.map_err(failure)?;
        let parsed: Digest = digest.parse().map_err(|e| ApiError::internal(format!("{e}")))?;
        let (scope, absent) = (self.scope(), format!("document {digest} of {of} is not in backend {backend:?}"));
        // Most are small, and come with the answer.
        let (bytes, small) = match found(store.get_at_most(&scope, &parsed, SMALL as u64 - 1).await, &absent)? {
            Measured::Whole(small) => (small.len(), Some(small)),
            Measured::Larger(bytes) => (usize::try_from(bytes).unwrap_or(usize::MAX), None),
        };
        Ok(StoredDocument { namespace: self.namespace, store, scope, digest: parsed, bytes, small, absent })
    }
}

impl StoredDocument {
    /// How many bytes it has.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads it once there is room for it.
    ///
    /// # Errors
    ///
    /// As [`read_into`](Self::read_into), and 429 when there is no room.
    pub(super) async fn read(self) -> Result<(Bytes, Memory), ApiError> {
        let memory = memory_budget::take(&self.namespace, self.bytes).await?;
        self.read_into(memory).await
    }

    /// Reads it for what the server does by itself, once there is a place for that; clients' room it takes none of. It is in memory
    /// until the place is dropped.
    ///
    /// # Errors
    ///
    /// As [`read_into`](Self::read_into).
    pub(super) async fn read_for_server(self) -> Result<(Bytes, Option<OwnedSemaphorePermit>), ApiError> {
        let place = memory_to_read(self.bytes).await;
        let read = match self.small {
            Some(small) => small,
            None => found(self.store.get(&self.scope, &self.digest).await, &self.absent)?,
        };
        Ok((read, place))
    }

    /// Reads it into room that was taken for it.
    ///
    /// # Errors
    ///
    /// 404 when it is not there any more, 503 when the Backend cannot be read.
    pub(super) async fn read_into(self, memory: Memory) -> Result<(Bytes, Memory), ApiError> {
        let Self { store, scope, digest, small, absent, .. } = self;
        if let Some(small) = small {
            return Ok((small, memory));
        }
        let (read, memory) = memory.read(async move { store.get(&scope, &digest).await }).await;
        Ok((found(read, &absent)?, memory))
    }
}

fn found<T>(found: Result<Option<T>, DocumentError>, absent: &str) -> Result<T, ApiError> {
    match found {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Err(ApiError::new(404, "NotFound", absent)),
        Err(error) => {
            tracing::error!(error = error.in_full(), "a document cannot be read");
            Err(ApiError::service_unavailable("the backend cannot be read").with_retry_after(5))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stoa_runs::testing::unreachable_runner;
    use stoa_storage::documents::LocalDocuments;

    use super::*;
    use crate::testing::TestServer;

    const MIB: usize = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_read_before_there_is_room() {
        let folder = tempfile::TempDir::new().unwrap();
        let store = Arc::new(LocalDocuments::open(folder.path()).unwrap());
        let digest = store.put("shop/uid", Bytes::from(vec![b' '; MIB])).await.unwrap();
        let kept = || StoredDocument {
            namespace: "kept".to_owned(),
            store: store.clone(),
            scope: "shop/uid".to_owned(),
            digest,
            bytes: MIB,
            small: None,
            absent: "it is gone".to_owned(),
        };
        // Three quarters are all that a namespace may have, and other tests may have some of the rest for a while.
        let held = loop {
            if let Ok(held) = memory_budget::take("kept", 96 * MIB).await {
                break held;
            }
        };
        assert_eq!(kept().read().await.unwrap_err().code(), 429);
        let (read, place) = kept().read_for_server().await.unwrap();
        assert_eq!(read.len(), MIB, "the server itself takes none of it");
        assert!(place.is_some());
        drop(place);
        // What it reads has places of its own.
        let all = memory_to_read(64 * MIB).await;
        let waiting = tokio::time::timeout(Duration::from_secs(1), kept().read_for_server()).await;
        assert!(waiting.is_err(), "it is read before there is a place for it");
        drop(all);
        store.delete("shop/uid", &digest).await.unwrap();
        let gone = kept();
        let (read, ()) = tokio::join!(gone.read(), async move { drop(held) });
        assert_eq!(read.unwrap_err().code(), 404, "it was looked for when there was room");
    }

    #[tokio::test]
    async fn what_takes_no_room_is_asked_for_once() {
        let world = TestServer::with_runner(unreachable_runner()).await;
        let services = &world.services;
        let store = services.backends.store("default").await.unwrap();
        for bytes in [0, 1, SMALL - 1, SMALL] {
            let content = Bytes::from(vec![b' '; bytes]);
            let digest = store.put("shop/uid", content.clone()).await.unwrap();
            let named = digest.to_string();
            let place = || DocumentScope { namespace: "shop".to_owned(), stack_uid: "uid".to_owned() };
            let client = place().find(services, "dev", &named, "run one").await.unwrap();
            let server = place().find(services, "dev", &named, "run one").await.unwrap();
            assert_eq!((client.bytes(), server.bytes()), (bytes, bytes));
            store.delete("shop/uid", &digest).await.unwrap();
            // What is gone by now was read before.
            let expected = if bytes < SMALL { Ok(content) } else { Err(404) };
            let read = client.read().await.map(|(read, _)| read);
            assert_eq!(read.map_err(|error| error.code()), expected);
            assert_eq!(server.read_for_server().await.is_ok(), expected.is_ok());
        }
    }
}
