//! Warm providers: one configured process for each executable and configuration.
//!
//! Start at [`Pool::get`]. Any number of calls of one tenant share a process. A process that crashed fails the calls in flight, and the
//! next lease starts another one. A process is replaced after a number of calls, because the libraries of providers
//! keep memory of each; it ends when the last lease of it does.
//!
//! Elsewhere: `start` configures a process.

mod start;

use std::any::Any;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::process::{Launcher, Network};
use crate::protocol::{Diagnostics, Limits, Observer, Provider, ProviderError, Schemas};
use crate::value::Json;
use crate::value::convert::ConvertError;

/// How often a lease is tried where processes end at once.
const ATTEMPTS: usize = 3;

/// The limits of a pool.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// How processes are started.
    pub launcher: Arc<dyn Launcher>,
    /// The limits of calls.
    pub limits: Limits,
    /// Where folders of sockets are created.
    pub temporary: PathBuf,
    /// How long a start may take, with the call that configures the provider.
    pub start_limit: Duration,
    /// How long a process without a lease lives.
    pub idle: Duration,
    /// After how many calls a process is replaced. Each leaves up to 35 kB behind.
    pub calls: u64,
    /// Hears of processes and calls.
    pub observer: Arc<dyn Observer>,
    /// The most processes. A new one ends the one that is idle for the longest time. A tenant has leases of three quarters.
    pub processes: usize,
}

impl PoolOptions {
    /// Sixteen processes of a launcher, each for a thousand calls and five idle minutes.
    pub fn new(launcher: Arc<dyn Launcher>) -> Self {
        Self {
            launcher,
            limits: Limits::default(),
            temporary: std::env::temp_dir(),
            start_limit: Duration::from_secs(60),
            idle: Duration::from_secs(300),
            calls: 1000,
            observer: Arc::new(()),
            processes: 16,
        }
    }
}

/// A provider with its configuration.
#[derive(Clone)]
pub struct ProviderSpec {
    /// The tenant whose calls share the process. No other tenant gets it.
    pub tenant: Arc<str>,
    /// The network of the process.
    pub network: Network,
    /// The executable.
    pub executable: PathBuf,
    /// Its SHA-256, which is compared before each start.
    pub digest: [u8; 32],
    /// The variables of its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The configuration, an object.
    pub configuration: Json,
}

/// The environment and the configuration may contain secrets.
impl fmt::Debug for ProviderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tenant, network, executable, .. } = self;
        let mut shown = f.debug_struct("ProviderSpec");
        shown.field("tenant", tenant).field("network", network).field("executable", executable).finish_non_exhaustive()
    }
}

impl ProviderSpec {
    fn key(&self) -> Key {
        let mut configuration = Sha256::new();
        let mut part = |bytes: &[u8]| {
            configuration.update(bytes.len().to_be_bytes());
            configuration.update(bytes);
        };
        let mut environment: Vec<_> = self.environment.iter().collect();
        environment.sort();
        for (name, value) in environment {
            part(name.as_encoded_bytes());
            part(value.as_encoded_bytes());
        }
        part(self.configuration.to_string().as_bytes());
        let (tenant, network) = (Arc::clone(&self.tenant), self.network);
        Key { tenant, network, executable: self.digest, configuration: configuration.finalize().into() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    tenant: Arc<str>,
    network: Network,
    executable: [u8; 32],
    configuration: [u8; 32],
}

/// A provider that is not available. Leases that waited for one start share its error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PoolError {
    /// The process did not start, or a call of its start has no answer.
    #[error(transparent)]
    Start(Arc<ProviderError>),
    /// The executable is not the one that was installed.
    #[error("the executable {} is not the installed one; install the provider again", .0.display())]
    Changed(PathBuf),
    /// The configuration does not have the form of the schema.
    #[error("the configuration of the provider is wrong: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Configuration(Vec<ConvertError>),
    /// The provider rejects its configuration.
    #[error("the provider rejected its configuration: {0}")]
    Rejected(Diagnostics),
    /// The provider took too long to start or to accept its configuration.
    #[error("the provider was not ready within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// All processes have leases, or the tenant has its share of them.
    #[error("all {0} processes of providers are in use; retry later")]
    Full(usize),
    /// The pool is shut down.
    #[error("the processes of providers are ending")]
    Closed,
    /// Each process ended before it could be used.
    #[error("the provider ends after each start")]
    Ends,
    /// The start was interrupted, by the end of the runtime.
    #[error("the start of the provider was interrupted")]
    Interrupted,
}

/// Warm providers. Their processes end with this value and all leases.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

/// A provider for some calls.
#[derive(Debug)]
pub struct Lease {
    warm: Arc<Warm>,
    #[expect(dead_code, reason = "it is dropped with the lease")]
    held: Option<Box<dyn Any + Send + Sync>>,
}

impl Lease {
    /// The same lease, which drops a value at its end.
    #[must_use]
    pub fn holding(self, value: impl Any + Send + Sync) -> Self {
        let warm = Arc::clone(&self.warm);
        Self { warm, held: Some(Box::new(value)) }
    }

    /// A lease of the process without the value that this one drops at its end.
    #[must_use]
    pub fn without_turn(self) -> Self {
        Self { warm: Arc::clone(&self.warm), held: None }
    }
}

impl Deref for Lease {
    type Target = Provider;

    fn deref(&self) -> &Provider {
        &self.warm.provider
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        *lock(&self.warm.used) = Instant::now();
    }
}

/// A configured process.
#[derive(Debug)]
struct Warm {
    provider: Provider,
    /// When it was used last.
    used: Mutex<Instant>,
}

/// A start and its result. The task of the start owns the sender, so waiting leases own nothing.
type Slot = watch::Receiver<Option<Result<Arc<Warm>, PoolError>>>;

/// The processes, until the pool is shut down.
#[derive(Debug, Default)]
struct Slots {
    all: HashMap<Key, Slot>,
    is_closed: bool,
}

#[derive(Debug)]
struct Shared {
    options: PoolOptions,
    slots: Mutex<Slots>,
    /// The schemas of executables, which processes need not repeat.
    schemas: Mutex<HashMap<[u8; 32], Arc<Schemas>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// An empty pool, in a runtime.
    pub fn new(options: PoolOptions) -> Self {
        let shared = Arc::new(Shared { options, slots: Mutex::default(), schemas: Mutex::default() });
        tokio::spawn(end_idle(Arc::downgrade(&shared)));
        Self { shared }
    }

    /// A configured provider: the warm one, or a new one.
    ///
    /// # Errors
    ///
    /// If the executable has changed, does not start or rejects its configuration, or all processes are in use.
    pub async fn get(&self, spec: &ProviderSpec) -> Result<Lease, PoolError> {
        let key = spec.key();
        for _ in 0..ATTEMPTS {
            let mut slot = self.slot(&key, spec)?;
            let started = slot.wait_for(Option::is_some).await;
            let started = started.map(|it| it.clone()).unwrap_or(None).unwrap_or(Err(PoolError::Interrupted));
            match started {
                Ok(warm) if warm.provider.process().exit().is_none() => {
                    *lock(&warm.used) = Instant::now();
                    return Ok(Lease { warm, held: None });
                }
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Err(PoolError::Ends)
    }

    /// The number of processes.
    pub fn processes(&self) -> usize {
        lock(&self.shared.slots).all.len()
    }

    /// Ends all processes, and every call in flight. No lease begins afterwards.
    pub async fn shut_down(&self) {
        let slots = {
            let mut slots = lock(&self.shared.slots);
            slots.is_closed = true;
            std::mem::take(&mut slots.all)
        };
        let mut ending = JoinSet::new();
        for slot in slots.into_values() {
            let Some(Ok(warm)) = slot.borrow().clone() else { continue };
            drop(slot);
            ending.spawn(async move {
                match Arc::try_unwrap(warm) {
                    Ok(warm) => warm.provider.shut_down().await,
                    Err(leased) => {
                        leased.provider.process().kill();
                        leased.provider.process().ended().await
                    }
                }
            });
        }
        ending.join_all().await;
    }

    /// The running or starting process of a key. One that failed, ended or is worn out is replaced.
    fn slot(&self, key: &Key, spec: &ProviderSpec) -> Result<Slot, PoolError> {
        let shared = &self.shared;
        let mut slots = lock(&shared.slots);
        if slots.is_closed {
            return Err(PoolError::Closed);
        }
        let slots = &mut slots.all;
        if let Some(slot) = slots.get(key) {
            let can_be_used = match &*slot.borrow() {
                // A sender without a result is a start that was interrupted.
                None => slot.has_changed().is_ok(),
                Some(Err(_)) => false,
                Some(Ok(warm)) => {
                    warm.provider.process().exit().is_none() && warm.provider.calls() < shared.options.calls
                }
            };
            if can_be_used {
                return Ok(slot.clone());
            }
            slots.remove(key);
        }
        let most = shared.options.processes;
        let in_use = slots.iter().filter(|(other, slot)| other.tenant == key.tenant && idle_time(slot).is_none());
        let share = (most - most / 4).max(1);
        if in_use.count() >= share || (slots.len() >= most && !end_longest_idle(slots)) {
            return Err(PoolError::Full(most));
        }
        let (sender, slot) = watch::channel(None);
        slots.insert(key.clone(), slot.clone());
        let known = lock(&shared.schemas).get(&key.executable).cloned();
        let (options, spec, schemas) = (shared.options.clone(), spec.clone(), Arc::downgrade(shared));
        tokio::spawn(async move {
            let begun = Instant::now();
            let started = start::start(&options, &spec, known).await;
            let started = observed(started, &options.observer, begun);
            if let (Ok(provider), Some(shared)) = (&started, schemas.upgrade()) {
                lock(&shared.schemas).insert(spec.digest, provider.schemas().clone());
            }
            let warm = started.map(|provider| Arc::new(Warm { provider, used: Mutex::new(Instant::now()) }));
            sender.send_replace(Some(warm));
        });
        Ok(slot)
    }
}

/// A started provider whose calls and end an observer hears of, or the error of the start.
fn observed(
    started: Result<Provider, PoolError>,
    observer: &Arc<dyn Observer>,
    begun: Instant,
) -> Result<Provider, PoolError> {
    let provider = started.inspect_err(|_| observer.not_started())?;
    observer.started(begun.elapsed());
    let (ended, observer) = (provider.process().crashed(), Arc::clone(observer));
    let of_process = Arc::clone(&observer);
    tokio::spawn(async move { of_process.ended(ended.await) });
    Ok(provider.observed(observer))
}

/// How long a process has had no lease; nothing if it has one.
fn idle_time(slot: &Slot) -> Option<Duration> {
    match &*slot.borrow() {
        None => None,
        Some(Err(_)) => Some(Duration::MAX),
        Some(Ok(warm)) if warm.provider.process().exit().is_some() => Some(Duration::MAX),
        // Each lease has a reference beside the slot's.
        Some(Ok(warm)) => (Arc::strong_count(warm) == 1).then(|| lock(&warm.used).elapsed()),
    }
}

fn end_longest_idle(slots: &mut HashMap<Key, Slot>) -> bool {
    let idle = slots.iter().filter_map(|(key, slot)| Some((idle_time(slot)?, key)));
    let longest = idle.max_by_key(|(time, _)| *time).map(|(_, key)| key.clone());
    longest.is_some_and(|key| slots.remove(&key).is_some())
}

/// Ends processes that are idle for too long, until the pool ends.
async fn end_idle(shared: Weak<Shared>) {
    let Some(idle) = shared.upgrade().map(|shared| shared.options.idle) else { return };
    let mut interval = tokio::time::interval((idle / 4).max(Duration::from_millis(10)));
    loop {
        interval.tick().await;
        let Some(shared) = shared.upgrade() else { return };
        lock(&shared.slots).all.retain(|_, slot| idle_time(slot).is_none_or(|time| time < idle));
    }
}
