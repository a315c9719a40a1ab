//! Leases: a key that is attached to a lease of etcd, so that etcd removes it without a renewal.
//!
//! The revision at which a holder put the key is the token. Writes compare it, so a holder that lost the lease writes no more,
//! whatever its clock says.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stoa_machinery::log::{Lease, LogError, Version};
use tonic::Code;

use super::{
    Shared,
    append::revision,
    client::unavailable,
    metrics::Operation,
    proto::{
        Compare, DeleteRangeRequest, Headed as _, KeyValue, LeaseGrantRequest, LeaseKeepAliveRequest,
        LeaseRevokeRequest, PutRequest, RangeRequest, TxnRequest, TxnResponse,
    },
};

/// The value of the key of a lease.
#[derive(Debug, Serialize, Deserialize)]
struct Holding {
    holder: String,
}

fn operation(name: &'static str) -> Operation<'static> {
    Operation { name, key: "/stoa/leases/" }
}

fn fenced(lease: &Lease) -> LogError {
    LogError::Fenced { lease: lease.name.clone(), token: lease.token }
}

impl Shared {
    pub(super) async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease, LogError> {
        let key = self.keys.lease(name);
        let id = self.grant(ttl).await?;
        let held = |revision: i64| {
            let token = u64::try_from(revision).unwrap_or_default();
            Lease { name: name.to_owned(), holder: holder.to_owned(), token, ttl }
        };
        let mut found: Option<KeyValue> = None;
        loop {
            if let Some(found) = &found {
                // Taken by an earlier attempt, whose answer was lost. What it hangs on must stay.
                if found.lease == id {
                    return Ok(held(found.mod_revision));
                }
                let holding: Holding = serde_json::from_slice(&found.value)
                    .map_err(|error| LogError::Corrupt(format!("the lease {name}: {error}")))?;
                if holding.holder != holder {
                    self.revoke(id).await;
                    return Err(LogError::Held { lease: name.to_owned(), holder: holding.holder });
                }
            }
            let value = serde_json::to_vec(&Holding { holder: holder.to_owned() }).expect("a string encodes");
            let take = TxnRequest {
                compare: vec![Compare::changed_at(key.clone(), found.as_ref().map_or(0, |found| found.mod_revision))],
                success: vec![PutRequest { key: key.clone(), value: value.into(), lease: id }.into()],
                failure: vec![RangeRequest::key(key.clone()).into()],
            };
            let taken = self.transact("acquire", &take).await?;
            if taken.succeeded {
                if let Some(found) = found {
                    // Nothing hangs on it any more.
                    self.revoke(found.lease).await;
                }
                return Ok(held(taken.revision()));
            }
            found = taken.found(0).cloned();
        }
    }

    pub(super) async fn renew(&self, lease: &Lease) -> Result<(), LogError> {
        let range = RangeRequest::key(self.keys.lease(&lease.name));
        let held = self.client.read(operation("renew"), &range).await?.map_err(unavailable)?;
        let held = held.kvs.first().filter(|kv| kv.mod_revision == revision(Version(lease.token)));
        let id = held.ok_or_else(|| fenced(lease))?.lease;
        let kept = self.client.read(operation("keepAlive"), &LeaseKeepAliveRequest { id }).await?;
        match kept {
            Ok(kept) if kept.ttl > 0 => Ok(()),
            Ok(_) => Err(fenced(lease)),
            Err(status) if status.code() == Code::NotFound => Err(fenced(lease)),
            Err(status) => Err(unavailable(status)),
        }
    }

    pub(super) async fn release(&self, lease: &Lease) -> Result<(), LogError> {
        let key = self.keys.lease(&lease.name);
        let give_up = TxnRequest {
            compare: vec![Compare::changed_at(key.clone(), revision(Version(lease.token)))],
            success: vec![RangeRequest::only_key(key.clone()).into(), DeleteRangeRequest { key }.into()],
            failure: Vec::new(),
        };
        let given_up = self.transact("release", &give_up).await?;
        if given_up.succeeded
            && let Some(held) = given_up.found(0)
        {
            self.revoke(held.lease).await;
        }
        Ok(())
    }

    /// Carries out a transaction that may be carried out twice.
    async fn transact(&self, name: &'static str, request: &TxnRequest) -> Result<TxnResponse, LogError> {
        self.client.read(operation(name), request).await?.map_err(unavailable)
    }

    async fn grant(&self, ttl: Duration) -> Result<i64, LogError> {
        // Whole seconds, and never less than was asked for.
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let request = LeaseGrantRequest { ttl: i64::try_from(seconds).unwrap_or(i64::MAX).max(1) };
        // One whose answer is lost hangs on nothing and expires.
        Ok(self.client.read(operation("grant"), &request).await?.map_err(unavailable)?.id)
    }

    /// Ends a lease of etcd's that nothing important hangs on; if that fails, it expires.
    async fn revoke(&self, id: i64) {
        if let Err(status) = self.client.attempt(operation("revoke"), LeaseRevokeRequest { id }).await
            && status.code() != Code::NotFound
        {
            tracing::debug!(%status, "a lease of etcd's is left to expire");
        }
    }
}
