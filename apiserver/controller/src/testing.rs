//! Fixtures of tests: a log with failures, and a registry of one plain kind.
#![allow(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::{
    future,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stoa_machinery::{
    Key, Log, Registry, ResourceDefinition, Version,
    log::{Change, Entry, Lease, LogError, MemoryLog, RecordStream, Snapshot, Write},
    strategy::DefaultStrategy,
};
use tokio::sync::Notify;

/// What etcd takes in one transaction, by default.
const ETCD: usize = 1_572_864;

/// So many failures of a log that is away.
const AWAY: usize = usize::MAX;

/// A log that takes no more at once than etcd, and fails so many times before it takes anything.
#[derive(Debug)]
pub struct FaultyLog {
    log: MemoryLog,
    failures: AtomicUsize,
    /// So many renewals of leases fail, too.
    unrenewed: AtomicUsize,
    /// What says this is never written, and never refused.
    hanging: OnceLock<&'static str>,
    /// What says this is refused for now.
    refused: Mutex<Option<&'static str>>,
    /// Scans of this are never answered.
    unscanned: OnceLock<&'static str>,
    /// How many bytes of values were to be read at most, of scans that say so.
    bounds: Mutex<Vec<usize>>,
    /// How often it was asked where it ends, as by every list.
    heads: AtomicUsize,
    /// Something is not written since it says that, or not read.
    pub hangs: Notify,
}

impl FaultyLog {
    /// A log that fails this many times first.
    pub fn new(failures: usize) -> Arc<Self> {
        Arc::new(Self {
            log: MemoryLog::new(),
            failures: failures.into(),
            unrenewed: 0.into(),
            hanging: OnceLock::new(),
            refused: Mutex::default(),
            unscanned: OnceLock::new(),
            bounds: Mutex::default(),
            heads: 0.into(),
            hangs: Notify::new(),
        })
    }

    /// Fails this many times from now on.
    pub fn fail(&self, times: usize) {
        self.failures.store(times, Ordering::SeqCst);
    }

    /// Fails to renew leases this many times.
    pub fn fail_renewals(&self, times: usize) {
        self.unrenewed.store(times, Ordering::SeqCst);
    }

    /// How often it was asked where it ends.
    pub fn heads(&self) -> usize {
        self.heads.load(Ordering::SeqCst)
    }

    /// How many bytes of values were to be read at most, of scans that say so.
    pub fn bounds(&self) -> Vec<usize> {
        self.bounds.lock().unwrap().clone()
    }

    /// Never answers to writes that say this.
    pub fn hang(&self, said: &'static str) {
        self.hanging.set(said).unwrap();
    }

    /// Refuses writes that say this, or none.
    pub fn refuse(&self, said: Option<&'static str>) {
        *self.refused.lock().unwrap() = said;
    }

    /// Never answers to scans of this prefix.
    pub fn hang_scans(&self, prefix: &'static str) {
        self.unscanned.set(prefix).unwrap();
    }
}

#[async_trait]
impl Log for FaultyLog {
    async fn append(&self, write: Write) -> Result<Version, LogError> {
        if let (Some(said), Change::Put(value)) = (self.hanging.get(), &write.change)
            && String::from_utf8_lossy(value).contains(said)
        {
            self.hangs.notify_one();
            future::pending::<()>().await;
        }
        let refused = *self.refused.lock().unwrap();
        if let (Some(said), Change::Put(value)) = (refused, &write.change)
            && String::from_utf8_lossy(value).contains(said)
        {
            self.hangs.notify_one();
            return Err(LogError::Unavailable("no leader".into()));
        }
        let size = if let Change::Put(value) = &write.change { value.len() } else { 0 };
        if size > ETCD {
            return Err(LogError::TooLarge { size, limit: "etcdserver: request is too large".to_owned() });
        }
        if self.failures.load(Ordering::SeqCst) == AWAY {
            return Err(LogError::Unavailable("no route to host".into()));
        }
        let failing = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if let Ok(left) = failing {
            // Every other answer is lost after the write was made.
            if left % 2 == 0 {
                self.log.append(write).await?;
            }
            return Err(LogError::Unavailable("no leader".into()));
        }
        self.log.append(write).await
    }

    async fn head(&self) -> Result<Version, LogError> {
        self.heads.fetch_add(1, Ordering::SeqCst);
        self.log.head().await
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, LogError> {
        self.log.read(key).await
    }

    async fn scan(&self, prefix: &str, at: Option<Version>) -> Result<Snapshot, LogError> {
        if self.unscanned.get().is_some_and(|unscanned| *unscanned == prefix) {
            self.hangs.notify_one();
            future::pending::<()>().await;
        }
        self.log.scan(prefix, at).await
    }

    async fn scan_within(&self, prefix: &str, bytes: usize) -> Result<Option<Snapshot>, LogError> {
        self.bounds.lock().unwrap().push(bytes);
        self.log.scan_within(prefix, bytes).await
    }

    async fn follow(&self, since: Version) -> Result<RecordStream, LogError> {
        self.log.follow(since).await
    }

    async fn compact(&self, before: Version) -> Result<(), LogError> {
        self.log.compact(before).await
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease, LogError> {
        self.log.acquire(name, holder, ttl).await
    }

    async fn renew(&self, lease: &Lease) -> Result<(), LogError> {
        if self.unrenewed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err(LogError::Unavailable("no leader".into()));
        }
        self.log.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), LogError> {
        self.log.release(lease).await
    }
}

/// The spec of a Widget.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.dev",
    version = "v1",
    kind = "Widget",
    namespaced,
    status = "WidgetStatus",
    derive = "PartialEq"
)]
pub struct WidgetSpec {
    /// Any number.
    pub size: i64,
}

/// The status of a Widget.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WidgetStatus {
    /// Any number.
    pub count: i64,
}

/// A Widget in the namespace `shop`.
pub fn widget(name: &str) -> Widget {
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), namespace: Some("shop".to_owned()), ..ObjectMeta::default() };
    Widget { metadata, spec: WidgetSpec::default(), status: None }
}

/// A registry that serves Widgets from memory.
pub async fn widgets() -> Arc<Registry> {
    let builder = Registry::builder(Arc::new(MemoryLog::new()));
    let definition = ResourceDefinition::of::<Widget>();
    builder.register(definition, DefaultStrategy::<Widget>::default()).build().await.expect("the log is in memory")
}
