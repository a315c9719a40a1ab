//! Writes to the log, answered once the cache shows them.

use std::sync::Arc;

use stoa_log::{Change, Expect, Key, LogError, Origin, Version, Write};
use stoa_meta::{object::Object, request::RequestContext, schema::MAX_DEPTH, status::ApiError};

use super::{Store, Stored};
use crate::cache::{CacheEntry, DecodeError, Prepared};

/// How one round of an update ended.
pub(super) enum Outcome<T> {
    Done(T),
    /// Another write came first.
    Lost,
}

impl Store {
    pub(super) fn prepare(&self, object: Object) -> Result<Prepared, ApiError> {
        Prepared::new(&object, self.cache.fields()).map_err(|error| self.undecodable_error(&error))
    }

    /// What a client hears of an object that cannot be kept.
    pub(super) fn undecodable_error(&self, error: &DecodeError) -> ApiError {
        match error {
            // The owners of a deep field are as deep, and a few levels more.
            DecodeError::TooDeep(levels) => ApiError::bad_request(format!(
                "the object, with its managedFields, is nested {levels} levels deep, and at most {MAX_DEPTH} can be stored"
            )),
            DecodeError::Json(error) => {
                tracing::error!(kind = self.definition.kind, %error, "object does not encode");
                ApiError::internal("object does not encode")
            }
        }
    }

    pub(super) async fn append(
        &self,
        context: &RequestContext,
        key: &Key,
        expect: Expect,
        prepared: &Prepared,
        verb: &str,
    ) -> Result<Outcome<Arc<Stored>>, ApiError> {
        let _in_flight = self.in_flight.begin(key, prepared);
        let change = Change::Put(prepared.value.clone());
        match self.append_change(context, key, expect, change, verb).await? {
            Outcome::Done(version) => {
                let found = self.cache.get(key).as_ref().and_then(CacheEntry::object).cloned();
                let found = found.filter(|stored| stored.version == version);
                Ok(Outcome::Done(found.unwrap_or_else(|| Arc::new(prepared.stored(key.clone(), version)))))
            }
            Outcome::Lost => Ok(Outcome::Lost),
        }
    }

    pub(super) async fn append_delete(
        &self,
        context: &RequestContext,
        key: &Key,
        expect: Expect,
    ) -> Result<Outcome<Version>, ApiError> {
        self.append_change(context, key, expect, Change::Delete, "delete").await
    }

    async fn append_change(
        &self,
        context: &RequestContext,
        key: &Key,
        expect: Expect,
        change: Change,
        verb: &str,
    ) -> Result<Outcome<Version>, ApiError> {
        let origin =
            Origin { user: context.user.name.clone(), verb: verb.to_owned(), message: context.origin_message.clone() };
        let write = Write { key: key.clone(), expect, change, fence: context.fence.clone(), origin };
        match self.log.append(write).await {
            Ok(version) => {
                self.wait_applied(version).await;
                Ok(Outcome::Done(version))
            }
            Err(LogError::Conflict { .. }) => Ok(Outcome::Lost),
            Err(error) => Err(self.log_failed(verb, &error)),
        }
    }
}
