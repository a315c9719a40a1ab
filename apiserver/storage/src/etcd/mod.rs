//! The log of many replicas, on etcd.
//!
//! Start at [`EtcdLog::open`]. A write is one transaction of etcd, and its revision is its version. Every replica writes and
//! follows, and etcd decides the order. Elsewhere: `append` writes, `follow` watches, `lease` has the leases, `client` finds a member
//! that answers, and `keys` lists the keys.
//!
//! Other users may be in the same etcd, under other prefixes: versions grow, with gaps. A compaction by anybody drops the history
//! of all.

mod append;
mod client;
mod follow;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod head;
mod keys;
mod lease;
mod metrics;
mod proto;

use std::{
    sync::{Arc, atomic::AtomicI64},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use stoa_machinery::{
    log::{Entry, Key, Lease, Log, LogError, RecordStream, Snapshot, Version, Write},
    metrics::Families,
};
use tonic::Code;

use self::{
    append::version,
    client::{Client, is_compacted, unavailable},
    head::SharedHead,
    keys::Keys,
    metrics::{Metrics, Operation},
    proto::{CompactionRequest, Headed as _, KeyValue, RangeRequest, StatusRequest, StatusResponse},
};
use crate::clock::{Clock, SystemClock};

/// The read of the head.
const HEAD: Operation<'static> = Operation { name: "head", key: "" };
/// The number of values in one read.
const PAGE: i64 = 1000;
/// The number of values in one read with a limit of bytes: a few values may have megabytes.
const SMALL_PAGE: i64 = 50;

/// With which certificates to call etcd.
#[derive(Clone, Default, PartialEq, Eq, educe::Educe)]
#[educe(Debug)]
pub struct EtcdTls {
    /// Who may have signed the servers' certificates, PEM.
    pub ca_pem: Option<String>,
    /// The certificate to show and its key, PEM.
    #[educe(Debug(ignore))]
    pub client_pem: Option<(String, String)>,
}

// The server logs reloaded settings, so Debug must not print the key.
/// Settings of an [`EtcdLog`].
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The members of the cluster, such as `https://etcd-0:2379`; at least one.
    pub servers: Vec<String>,
    /// Under which prefix of etcd's keys everything is, such as `/stoa`.
    pub prefix: String,
    /// For servers that begin with `https:`.
    pub tls: EtcdTls,
    /// The time for which a call tries members until one answers.
    pub patience: Duration,
    /// The registry of metrics, which have kube-apiserver's names.
    pub metrics: Families,
    /// Dates the records.
    pub clock: Arc<dyn Clock>,
}

impl EtcdOptions {
    /// The usual settings.
    pub fn new(servers: Vec<String>, prefix: impl Into<String>) -> Self {
        Self {
            servers,
            prefix: prefix.into(),
            tls: EtcdTls::default(),
            patience: Duration::from_secs(20),
            metrics: Families::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

/// The shared state of the calls of a log.
#[derive(Debug)]
struct Shared {
    client: Client,
    keys: Keys,
    /// The revision of the guard, as far as is known here.
    guard: AtomicI64,
    head: SharedHead,
    clock: Arc<dyn Clock>,
}

/// A [`Log`] in an etcd cluster, 3.5.8 or later, that other replicas may write to as well.
#[derive(Debug)]
pub struct EtcdLog {
    shared: Arc<Shared>,
}

impl EtcdLog {
    /// Opens the log under the prefix, or starts one where there is none.
    ///
    /// # Errors
    ///
    /// [`LogError::Unavailable`] when the settings make no sense or no member answers.
    pub async fn open(options: EtcdOptions) -> Result<Self, LogError> {
        if options.servers.is_empty() {
            return Err(unavailable("no etcd server is named"));
        }
        let metrics = Metrics::new(&options.metrics).map_err(unavailable)?;
        let client = Client::new(options.servers, &options.tls, options.patience, metrics).map_err(unavailable)?;
        let shared = Shared {
            client,
            keys: Keys::new(&options.prefix),
            guard: AtomicI64::new(0),
            head: SharedHead::default(),
            clock: options.clock,
        };
        append::open_guard(&shared).await?;
        let log = Self { shared: Arc::new(shared) };
        tracing::info!(head = %log.head().await?, "log opened");
        Ok(log)
    }

    /// Calls etcd with other certificates from now on.
    ///
    /// # Errors
    ///
    /// [`LogError::Unavailable`] when they cannot be used; the old ones stay.
    pub fn set_tls(&self, tls: &EtcdTls) -> Result<(), LogError> {
        self.shared.client.set_tls(tls).map_err(unavailable)
    }

    /// Asks one member, once, whether the cluster answers, and notes how large its database is.
    ///
    /// # Errors
    ///
    /// [`LogError::Unavailable`] when it does not answer now, or says that something is wrong.
    pub async fn probe(&self) -> Result<(), LogError> {
        let client = &self.shared.client;
        let operation = Operation { name: "probe", key: "" };
        let range = RangeRequest::only_key(self.shared.keys.head.clone());
        client.attempt(operation, range).await.map_err(unavailable)?;
        let status = self.status(operation).await?;
        let cluster = status.header.map(|header| header.cluster_id).unwrap_or_default();
        client.metrics.size.with_label_values(&[format!("{cluster:x}")]).set(status.db_size);
        match status.errors.as_slice() {
            [] => Ok(()),
            errors if errors.iter().any(|error| is_full(error)) => {
                Err(unavailable(format!("{}; {WAY_OUT_OF_FULL}", errors.join("; "))))
            }
            errors => Err(unavailable(errors.join("; "))),
        }
    }

    /// Whether a member's database has reached its quota (alarm `NOSPACE`). The cluster then refuses every put and every
    /// new lease. It still reads, renews leases, deletes and compacts, until somebody disarms the alarm.
    ///
    /// # Errors
    ///
    /// [`LogError::Unavailable`] when the member that is asked does not answer.
    pub async fn is_full(&self) -> Result<bool, LogError> {
        let status = self.status(Operation { name: "alarms", key: "" }).await?;
        Ok(status.errors.iter().any(|error| is_full(error)))
    }

    async fn status(&self, operation: Operation<'_>) -> Result<StatusResponse, LogError> {
        self.shared.client.attempt(operation, StatusRequest {}).await.map_err(unavailable)
    }
}

/// The steps by which operators make a full etcd accept writes again.
pub const WAY_OUT_OF_FULL: &str = "etcd is full and takes no writes: wait until a replica logs that its history is \
     compacted, defragment each member (etcdctl defrag) or raise --quota-backend-bytes, then disarm the alarm (etcdctl \
     alarm disarm)";

/// Whether an error of a member's status is the alarm of a full database, as in `memberID:… alarm:NOSPACE`.
fn is_full(error: &str) -> bool {
    error.contains("NOSPACE")
}

/// The entries under a prefix.
enum Scanned {
    All(Vec<Entry>),
    /// More bytes than there may be.
    TooMuch,
    /// The revision was compacted.
    Gone,
}

impl Shared {
    /// The version of the last record, and the revision at which that was so.
    async fn read_head(&self) -> Result<(Version, i64), LogError> {
        let range = RangeRequest::only_key(self.keys.head.clone());
        let head = self.client.read(HEAD, &range).await?.map_err(unavailable)?;
        Ok((head.kvs.first().map_or(Version(0), |kv| version(kv.mod_revision)), head.revision()))
    }

    /// The revision before the last `records` records. Every write puts the head, so etcd counts them; others use some
    /// revisions, and so do the guard and leases. Where fewer records exist, it is a compacted revision.
    async fn revision_before_last(&self, records: u64) -> Result<i64, LogError> {
        let range = RangeRequest::only_key(self.keys.head.clone());
        let head = self.client.read(HEAD, &range).await?.map_err(unavailable)?;
        let Some(head) = head.kvs.into_iter().next() else { return Ok(0) };
        let wanted = i64::try_from(records).unwrap_or(i64::MAX);
        if wanted == 0 {
            return Ok(head.mod_revision);
        }
        let mut before = head.create_revision - 1;
        if wanted >= head.version {
            return Ok(before);
        }
        // At least that many come after `before`, or the number is unknown by now, and fewer after `behind`.
        let mut behind = head.mod_revision - wanted + 1;
        while behind - before > 1 {
            let middle = before + (behind - before) / 2;
            match self.records_at(middle).await? {
                Some(written) if head.version - written < wanted => behind = middle,
                Some(_) | None => before = middle,
            }
        }
        Ok(before)
    }

    /// The number of records at a revision; `None` when it was compacted.
    async fn records_at(&self, revision: i64) -> Result<Option<i64>, LogError> {
        let range = RangeRequest { revision, ..RangeRequest::only_key(self.keys.head.clone()) };
        match self.client.read(HEAD, &range).await? {
            Ok(found) => Ok(Some(found.kvs.first().map_or(0, |head| head.version))),
            Err(status) if is_compacted(&status) => Ok(None),
            Err(status) => Err(unavailable(status)),
        }
    }

    /// Whether the history at a revision was compacted.
    async fn is_compacted_at(&self, revision: i64) -> Result<bool, LogError> {
        let range = RangeRequest { revision, ..RangeRequest::only_key(self.keys.head.clone()) };
        match self.client.read(HEAD, &range).await? {
            Ok(_) => Ok(false),
            // A future revision is not compacted.
            Err(status) if status.code() == Code::OutOfRange => Ok(is_compacted(&status)),
            Err(status) => Err(unavailable(status)),
        }
    }

    /// Everything under a prefix as of a revision, if its values have no more than `most` bytes.
    async fn scan_at(&self, prefix: &str, revision: i64, most: Option<usize>) -> Result<Scanned, LogError> {
        let (mut key, range_end) = self.keys.data_range(prefix);
        let mut entries = Vec::new();
        let mut bytes = 0;
        let limit = if most.is_some() { SMALL_PAGE } else { PAGE };
        loop {
            let range = RangeRequest { key, range_end: range_end.clone(), limit, revision, ..RangeRequest::default() };
            let page = match self.client.read(Operation { name: "list", key: prefix }, &range).await? {
                Ok(page) => page,
                Err(status) if is_compacted(&status) => return Ok(Scanned::Gone),
                Err(status) => return Err(unavailable(status)),
            };
            bytes += page.kvs.iter().map(|kv| kv.value.len()).sum::<usize>();
            if most.is_some_and(|most| bytes > most) {
                return Ok(Scanned::TooMuch);
            }
            let next = page.kvs.last().filter(|_| page.more).map(|last| [&last.key[..], b"\0"].concat());
            entries.extend(page.kvs.into_iter().filter_map(|kv| self.entry(&kv)));
            match next {
                Some(next) => key = next.into(),
                None => return Ok(Scanned::All(entries)),
            }
        }
    }

    /// Everything under a prefix as of a version, or as of now, if its values have no more than `most` bytes.
    async fn scan(&self, prefix: &str, at: Option<Version>, most: Option<usize>) -> Result<Option<Snapshot>, LogError> {
        loop {
            let (head, now) = self.read_head().await?;
            let asked = at.unwrap_or(head);
            if asked > head {
                return Err(LogError::Future { asked, head });
            }
            // Where nothing has changed since, the current revision serves, which is never compacted.
            let revision = if asked == head { now } else { i64::try_from(asked.0).unwrap_or(i64::MAX).max(1) };
            match self.scan_at(prefix, revision, most).await? {
                Scanned::All(entries) => return Ok(Some(Snapshot { version: asked, entries })),
                Scanned::TooMuch => return Ok(None),
                // Somebody compacts faster than this reads; the present is tried again.
                Scanned::Gone if asked == head => {}
                Scanned::Gone => {
                    let oldest = version(self.compacted().await?).min(head);
                    return Err(LogError::Expired { asked, oldest });
                }
            }
        }
    }

    fn entry(&self, kv: &KeyValue) -> Option<Entry> {
        let key = self.keys.key_of(&kv.key)?;
        // Copied, so that one value does not keep the whole page in memory.
        Some(Entry { key, version: version(kv.mod_revision), value: Bytes::copy_from_slice(&kv.value) })
    }
}

#[async_trait]
impl Log for EtcdLog {
    async fn append(&self, write: Write) -> Result<Version, LogError> {
        self.write(write).await
    }

    async fn head(&self) -> Result<Version, LogError> {
        let shared = Arc::clone(&self.shared);
        let read = move || {
            let shared = Arc::clone(&shared);
            async move { Ok(shared.read_head().await?.0) }
        };
        self.shared.head.get(read).await
    }

    async fn before_last(&self, records: u64) -> Result<Version, LogError> {
        Ok(version(self.shared.revision_before_last(records).await?))
    }

    async fn read(&self, key: &Key) -> Result<Option<Entry>, LogError> {
        let range = RangeRequest::key(self.shared.keys.data(key));
        let found = self.shared.client.read(Operation { name: "get", key: key.as_str() }, &range).await?;
        Ok(found.map_err(unavailable)?.kvs.first().and_then(|kv| self.shared.entry(kv)))
    }

    async fn scan(&self, prefix: &str, at: Option<Version>) -> Result<Snapshot, LogError> {
        Ok(self.shared.scan(prefix, at, None).await?.expect("it may have any number of bytes"))
    }

    async fn scan_within(&self, prefix: &str, bytes: usize) -> Result<Option<Snapshot>, LogError> {
        self.shared.scan(prefix, None, Some(bytes)).await
    }

    async fn follow(&self, since: Version) -> Result<RecordStream, LogError> {
        follow::follow(self.shared.clone(), since).await
    }

    async fn compact(&self, before: Version) -> Result<(), LogError> {
        let before = before.min(self.head().await?);
        let revision = i64::try_from(before.0).unwrap_or(i64::MAX);
        if revision == 0 {
            return Ok(());
        }
        let compact = CompactionRequest { revision };
        match self.shared.client.read(Operation { name: "compact", key: "" }, &compact).await? {
            Ok(_) => Ok(()),
            // Somebody else has, already.
            Err(status) if is_compacted(&status) => Ok(()),
            Err(status) => Err(unavailable(status)),
        }
    }

    async fn acquire(&self, name: &str, holder: &str, ttl: Duration) -> Result<Lease, LogError> {
        self.shared.acquire(name, holder, ttl).await
    }

    async fn renew(&self, lease: &Lease) -> Result<(), LogError> {
        self.shared.renew(lease).await
    }

    async fn release(&self, lease: &Lease) -> Result<(), LogError> {
        self.shared.release(lease).await
    }
}
