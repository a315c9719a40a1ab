//! Writes, each one transaction of etcd, and the outcome of a write whose answer is lost.
//!
//! A write without an answer may have happened, may happen yet, or never. It must not be repeated before that is known, and must
//! not fail when it happened. So every transaction requires that the *guard*, a key that all replicas share, is unchanged. A change
//! of the guard ends all writes that are still on their way. The history of the head has the id of each write and shows whether it
//! happened. Then the write is reported, or repeated, as after an answer.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use stoa_backoff::Verdict;
use stoa_machinery::log::{Change, Expect, LogError, Version, Write};
use tonic::{Code, Status};
use uuid::Uuid;

use super::{
    EtcdLog, Shared,
    client::{Patience, failure, unavailable},
    keys::Note,
    metrics::Operation,
    proto::{Compare, DeleteRangeRequest, Headed as _, PutRequest, RangeRequest, TxnRequest, TxnResponse},
};

/// A revision that no key ever has, for conditions that never hold.
const NEVER: i64 = -1;

/// The revision of a version, or one that no key has.
pub(super) fn revision(version: Version) -> i64 {
    match i64::try_from(version.0) {
        Ok(revision) if revision > 0 => revision,
        _ => NEVER,
    }
}

/// The version of a revision in an answer.
pub(super) fn version(revision: i64) -> Version {
    Version(u64::try_from(revision).unwrap_or_default())
}

fn operation(write: &Write) -> Operation<'_> {
    let name = match (&write.change, write.expect) {
        (Change::Delete, _) => "delete",
        (Change::Put(_), Expect::Absent) => "create",
        (Change::Put(_), Expect::At(_) | Expect::Any) => "update",
    };
    Operation { name, key: write.key.as_str() }
}

/// Reads the guard, and makes it where there is none yet. A full etcd refuses a transaction that might put a key, even
/// where its condition does not hold (`applierV3Capped.Txn` of etcd 3.6.8), so that the guard is read first.
pub(super) async fn open_guard(shared: &Shared) -> Result<(), LogError> {
    let key = shared.keys.guard.clone();
    let operation = Operation { name: "guard", key: "" };
    let found = shared.client.read(operation, &RangeRequest::only_key(key.clone())).await?.map_err(unavailable)?;
    if let Some(guard) = found.kvs.first() {
        shared.guard.store(guard.mod_revision, Relaxed);
        return Ok(());
    }
    let make = TxnRequest {
        compare: vec![Compare::changed_at(key.clone(), 0)],
        success: vec![put(key.clone(), Bytes::new()).into()],
        failure: vec![RangeRequest::only_key(key).into()],
    };
    // Made twice it is the same, so it may be tried again.
    let made = shared.client.read(operation, &make).await?.map_err(unavailable)?;
    shared.guard.store(guard_of(&made), Relaxed);
    Ok(())
}

/// The revision of the guard after a transaction that changes it or else, as its first operation, reads it.
fn guard_of(response: &TxnResponse) -> i64 {
    if response.succeeded { response.revision() } else { response.found(0).map_or(0, |found| found.mod_revision) }
}

fn put(key: Bytes, value: Bytes) -> PutRequest {
    PutRequest { key, value, lease: 0 }
}

impl EtcdLog {
    pub(super) async fn write(&self, write: Write) -> Result<Version, LogError> {
        let shared = &*self.shared;
        let mut patience = shared.client.patience();
        let id = Uuid::new_v4().simple().to_string();
        loop {
            let guard = shared.guard.load(Relaxed);
            let since = shared.client.seen();
            let request = shared.transaction(&write, &id, guard);
            match shared.client.attempt(operation(&write), request).await {
                Ok(response) if response.succeeded => return Ok(version(response.revision())),
                Ok(response) => match shared.refusal(&write, guard, &response) {
                    // Somebody had to find out what became of a write of theirs.
                    None => continue,
                    Some(refusal) => return Err(refusal),
                },
                Err(status) => match failure(&status) {
                    Verdict::Refuse => return Err(refused(&write, status)),
                    Verdict::Retry => {}
                    Verdict::Unknown => {
                        tracing::warn!(key = %write.key, %status, "the outcome of a write is looked up");
                        let outcome = shared.outcome(guard, since, &id, &mut patience).await;
                        let told = match &outcome {
                            Ok(Some(_)) => "written",
                            Ok(None) => "not_written",
                            Err(_) => "unknown",
                        };
                        shared.client.metrics.resolved.with_label_values(&[told]).inc();
                        if let Some(version) = outcome? {
                            return Ok(version);
                        }
                    }
                },
            }
            if !patience.wait().await {
                return Err(unavailable("etcd did not take a write in time"));
            }
        }
    }
}

impl Shared {
    fn transaction(&self, write: &Write, id: &str, guard: i64) -> TxnRequest {
        let keys = &self.keys;
        let key = keys.data(&write.key);
        let mut compare = vec![Compare::changed_at(keys.guard.clone(), guard)];
        match write.expect {
            Expect::Any => {}
            Expect::At(at) => compare.push(Compare::changed_at(key.clone(), revision(at))),
            Expect::Absent if write.change == Change::Delete => {
                compare.push(Compare::changed_at(key.clone(), NEVER));
            }
            Expect::Absent => compare.push(Compare::changed_at(key.clone(), 0)),
        }
        // The reads that explain a rejection, in the order in which `refusal` expects them.
        let mut failure =
            vec![RangeRequest::only_key(keys.guard.clone()).into(), RangeRequest::only_key(key.clone()).into()];
        if let Some(fence) = &write.fence {
            let lease = keys.lease(&fence.lease);
            compare.push(Compare::changed_at(lease.clone(), revision(Version(fence.token))));
            failure.push(RangeRequest::only_key(lease).into());
        }
        let change = match &write.change {
            Change::Put(value) => put(key, value.clone()).into(),
            Change::Delete => DeleteRangeRequest { key }.into(),
        };
        let note = Note::new(write, id, self.clock.now_ms());
        TxnRequest { compare, success: vec![change, put(keys.head.clone(), note.encode()).into()], failure }
    }

    /// Why a transaction did not hold; `None` when it was for the guard alone, which is known anew then.
    fn refusal(&self, write: &Write, guard: i64, response: &TxnResponse) -> Option<LogError> {
        let revision_of = |n: usize| response.found(n).map_or(0, |found| found.mod_revision);
        if let Some(fence) = &write.fence
            && revision_of(2) != revision(Version(fence.token))
        {
            return Some(LogError::Fenced { lease: fence.lease.clone(), token: fence.token });
        }
        if revision_of(0) != guard {
            self.guard.store(revision_of(0), Relaxed);
            return None;
        }
        let found = response.found(1).map(|found| version(found.mod_revision));
        Some(LogError::Conflict { key: write.key.clone(), found })
    }

    /// Finds out what became of the write `id`, which was made under `guard` after revision `since`: its
    /// version, or that it neither was nor will be carried out.
    async fn outcome(
        &self,
        guard: i64,
        since: i64,
        id: &str,
        patience: &mut Patience,
    ) -> Result<Option<Version>, LogError> {
        let head = self.close_guard(guard, patience).await?;
        if head <= since {
            return Ok(None);
        }
        loop {
            match self.find_in_history(id, since, head).await {
                Ok(found) => return Ok(found),
                Err(status) if failure(&status) == Verdict::Refuse => return Err(unavailable(status)),
                Err(status) => {
                    if !patience.wait().await {
                        return Err(unavailable(status));
                    }
                }
            }
        }
    }

    /// Lets no transaction hold any more that was made under `guard`; returns the revision of the head then.
    async fn close_guard(&self, guard: i64, patience: &mut Patience) -> Result<i64, LogError> {
        let keys = &self.keys;
        let head = || RangeRequest::only_key(keys.head.clone()).into();
        let close = TxnRequest {
            compare: vec![Compare::changed_at(keys.guard.clone(), guard)],
            success: vec![put(keys.guard.clone(), Bytes::new()).into(), head()],
            failure: vec![RangeRequest::only_key(keys.guard.clone()).into(), head()],
        };
        let operation = Operation { name: "guard", key: "" };
        loop {
            match self.client.attempt(operation, close.clone()).await {
                Ok(response) => {
                    self.guard.store(guard_of(&response), Relaxed);
                    return Ok(response.found(1).map_or(0, |found| found.mod_revision));
                }
                Err(status) if failure(&status) == Verdict::Refuse => return Err(unavailable(status)),
                Err(status) => {
                    if !patience.wait().await {
                        return Err(unavailable(status));
                    }
                }
            }
        }
    }
}

/// A refusal of the server's in the log's terms.
fn refused(write: &Write, status: Status) -> LogError {
    let is_large = status.message().contains("too large") || status.message().contains("larger than max");
    if is_large && matches!(status.code(), Code::InvalidArgument | Code::ResourceExhausted) {
        let value = if let Change::Put(value) = &write.change { value.len() } else { 0 };
        return LogError::TooLarge { size: value + write.key.as_str().len(), limit: status.message().to_owned() };
    }
    unavailable(status)
}
