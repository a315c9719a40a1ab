//! Stored values that do not decode, or not to the type of their kind.
//!
//! It is an error for itself alone. Whoever reads or changes it by its name is told, nothing is written over it, and
//! lists and watches go on without it. Only who may ignore such an error deletes it, since its finalizers, owners and uid
//! are not known.
//!
//! Follows `AllowUnsafeMalformedObjectDeletion` in `k8s.io/apiserver` (`pkg/registry/generic/registry/corrupt_obj_deleter.go`),
//! but for lists, which fail there.

use std::sync::Arc;

use bytes::Bytes;
use stoa_log::{Expect, Key, Version};
use stoa_meta::{request::RequestContext, status::ApiError};

use super::{
    DeleteOptions, Deleted, Store, Stored,
    append::Outcome,
    options::{check_undecodable_delete, ignores_read_error},
};
use crate::cache::{CacheEntry, DecodeError, Prepared, Undecodable};

/// The verb of those who may delete what does not decode.
const VERB: &str = "unsafe-delete-ignore-read-errors";
/// What the audit event of such a delete says, with nothing more to it.
const AUDITED: &str = "apiserver.k8s.io/unsafe-delete-ignore-read-error";
/// How the error is told apart from others of its code: the reason of its cause, which is upstream's `StatusReasonStoreReadError`.
const CAUSE: &str = "StorageReadError";

/// Whether a read or write failed because what is stored does not decode.
pub fn is_undecodable(error: &ApiError) -> bool {
    let causes = error.0.details.iter().flat_map(|details| &details.causes).flatten();
    error.code() == 500 && causes.into_iter().any(|cause| cause.reason.as_deref() == Some(CAUSE))
}

impl Store {
    /// What the log has at a key, as the cache keeps it.
    pub(super) fn read_back(&self, key: Key, version: Version, value: &Bytes) -> CacheEntry {
        let prepared = match self.in_flight.find(&key, value) {
            Some(prepared) => Ok(prepared),
            None => self.decoded(value),
        };
        match prepared {
            Ok(prepared) => CacheEntry::Object(Arc::new(prepared.stored(key, version))),
            Err(error) => {
                self.cache.counts().decode_errors.inc();
                let (resource, at) = (&self.definition.plural, place(&error));
                tracing::error!(resource, %key, %version, at, "what is stored does not decode");
                CacheEntry::Undecodable(Arc::new(Undecodable { key, version, value: value.clone() }))
            }
        }
    }

    pub(super) fn decoded(&self, value: &Bytes) -> Result<Prepared, DecodeError> {
        let prepared = Prepared::parse(value.clone(), self.cache.fields())?;
        self.strategy.check_stored(&prepared.value)?;
        Ok(prepared)
    }

    /// The object that is there, if anything is.
    /// Fails with 500 for what does not decode.
    pub(super) fn readable(&self, kept: Option<CacheEntry>) -> Result<Option<Arc<Stored>>, ApiError> {
        match kept {
            None => Ok(None),
            Some(CacheEntry::Object(stored)) => Ok(Some(stored)),
            Some(CacheEntry::Undecodable(found)) => Err(self.undecodable(&found.key, found.version)),
        }
    }

    /// 500 for what does not decode, in upstream's words and without a word of what it is.
    pub(super) fn undecodable(&self, key: &Key, version: Version) -> ApiError {
        let message = format!(
            "StorageError: corrupt object, Code: 7, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: object not \
             decodable revision={version}: what is stored does not decode as a {}",
            self.definition.kind
        );
        let mut error = ApiError::internal(message);
        for cause in error.0.details.iter_mut().flat_map(|details| &mut details.causes).flatten() {
            cause.reason = Some(CAUSE.to_owned());
        }
        error
    }

    /// All that is stored and does not decode, as the log has it: for whoever looks for something in its text.
    pub fn undecodable_values(&self) -> Vec<Bytes> {
        let view = self.cache.current();
        view.objects.values().filter_map(CacheEntry::undecodable).map(|found| found.value.clone()).collect()
    }

    /// Deletes an undecodable object on explicit request. Admission and finalizers do not apply, because both read the
    /// object. Fails with 500 if the options do not request it, with 422 for options that need the object, and with 403.
    pub(super) async fn delete_undecodable(
        &self,
        context: &RequestContext,
        at: (&str, &str),
        options: &DeleteOptions,
        found: &Undecodable,
    ) -> Result<Outcome<Deleted>, ApiError> {
        if !ignores_read_error(options) {
            return Err(self.undecodable(&found.key, found.version));
        }
        context.annotate(AUDITED, "");
        check_undecodable_delete(options)?;
        self.require(context, VERB, at).await?;
        if context.dry_run {
            return Ok(Outcome::Done(Deleted::Undecodable));
        }
        Ok(match self.append_delete(context, &found.key, Expect::At(found.version)).await? {
            Outcome::Done(_) => Outcome::Done(Deleted::Undecodable),
            Outcome::Lost => Outcome::Lost,
        })
    }
}

/// Where and how what is stored fails to decode, without a word of what it is, since that may be a secret.
fn place(error: &DecodeError) -> String {
    match error {
        DecodeError::TooDeep(_) => error.to_string(),
        DecodeError::Json(error) => {
            format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column())
        }
    }
}
