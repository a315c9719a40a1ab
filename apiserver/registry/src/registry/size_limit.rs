//! The size limit of the storage: an object that is too large is written without its `managedFields`.

use std::sync::Arc;

use stoa_log::{Expect, Key, Version};
use stoa_meta::{request::RequestContext, status::ApiError};

use super::{Store, Stored, admit::MANAGED_FIELDS, append::Outcome};
use crate::cache::Prepared;

impl Store {
    /// Writes an object as [`append`](Self::append) does, and once more without its `managedFields` if it is too large for
    /// the storage with them. An apply does not do so, as what it makes is theirs.
    ///
    /// Follows `isTooLargeError` and where that is asked in `k8s.io/apiserver/pkg/endpoints/handlers`.
    pub(super) async fn append_fitting(
        &self,
        context: &RequestContext,
        (key, expect): (&Key, Expect),
        prepared: &Prepared,
        verb: &str,
    ) -> Result<Outcome<Arc<Stored>>, ApiError> {
        let refused = match self.append(context, key, expect, prepared, verb).await {
            Err(error) if error.code() == 413 => error,
            outcome => return outcome,
        };
        let mut object = prepared.stored(key.clone(), Version::default()).object();
        if object.metadata_mut().remove(MANAGED_FIELDS).is_none() {
            return Err(refused);
        }
        self.append(context, key, expect, &self.prepare(object)?, verb).await
    }
}
