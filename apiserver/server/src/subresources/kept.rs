//! Documents of runs and releases, read for a client.

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_machinery::ApiError;
use stoa_storage::documents::Digest;
use stoa_types::{Run, Stack, Workspace};

use super::failure;
use crate::runs::{Services, status};

/// Where the documents of a stack are, in the Backend of any of its workspaces.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) stack_uid: String,
}

impl Place {
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

    /// A document as it is kept. `of` says whose it is, for people.
    ///
    /// # Errors
    ///
    /// 404 when the workspace is gone, or the document is not in its Backend any more; 503 when that cannot be read.
    pub(super) async fn read(
        &self,
        services: &Services,
        workspace: &str,
        digest: &str,
        of: &str,
    ) -> Result<Bytes, ApiError> {
        let workspace = services.lookup.api::<Workspace>()?.get("", workspace).await?;
        let backend = &workspace.spec.backend.name;
        let store = services.backends.store(backend).await.map_err(failure)?;
        let parsed: Digest = digest.parse().map_err(|e| ApiError::internal(format!("{e}")))?;
        match store.get(&self.scope(), &parsed).await {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => {
                let message = format!("document {digest} of {of} is not in backend {backend:?}");
                Err(ApiError::new(404, "NotFound", message))
            }
            Err(error) => {
                tracing::error!(error = error.in_full(), "a document cannot be read");
                Err(ApiError::service_unavailable("the backend cannot be read").with_retry_after(5))
            }
        }
    }
}
