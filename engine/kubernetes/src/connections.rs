//! The connection pool: Runs to one cluster share its client and its discovery.
//!
//! Start at [`Connections`]. A connection belongs to its credentials, of which the pool keeps only a digest: other
//! credentials have another connection. It is replaced after an authentication failure, and after [`OLDEST`] in any
//! case, since a kubeconfig may name files that change. Connections that are idle for [`IDLE`] are dropped, so that
//! credentials do not stay much longer than their Runs.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use crate::discovery::{Changed, Discovery};

/// The maximum number of pooled connections.
const MOST: usize = 64;
/// How long an idle connection is pooled.
const IDLE: Duration = Duration::from_secs(120);
/// How long a connection is used at most.
const OLDEST: Duration = Duration::from_secs(600);
/// The interval of removals.
const SWEEP: Duration = Duration::from_secs(15);

/// A way into a cluster.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) url: String,
    /// Equal addresses are one server, whatever the credentials.
    pub(crate) place: String,
    /// The identity of the destination, apart from credentials, which are renewed.
    pub(crate) destination: String,
    pub(crate) client: Client,
    pub(crate) discovery: Arc<Discovery>,
    /// Shared by all connections to an address.
    pub(crate) changed: Arc<Changed>,
    /// Set where the cluster did not let a call in.
    refused: Arc<AtomicBool>,
    made: Instant,
}

// The client has the credentials.
impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection to the address in its URL.
    pub(crate) fn new(url: String, client: Client) -> Self {
        let (place, destination) = (url.clone(), url.clone());
        let (discovery, changed, refused) = Default::default();
        Self { url, place, destination, client, discovery, changed, refused, made: Instant::now() }
    }

    /// The same with another address than the URL.
    pub(crate) fn at(self, place: String) -> Self {
        Self { destination: place.clone(), place, ..self }
    }

    /// The same with another destination than the address.
    pub(crate) fn leading_to(self, destination: String) -> Self {
        Self { destination, ..self }
    }

    /// Marks the connection as unauthorized, so that the next user replaces it.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    fn is_good(&self) -> bool {
        !self.refused.load(Ordering::Relaxed) && self.made.elapsed() < OLDEST
    }
}

/// The connections of a process to clusters. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Mutex<Pool>>);

#[derive(Debug, Default)]
struct Pool {
    /// By the digest of where they lead and what opens it.
    by_access: HashMap<String, (Connection, Instant)>,
    /// Definition changes by address, while it has connections.
    by_place: HashMap<String, Weak<Changed>>,
    is_swept: bool,
}

impl Pool {
    fn sweep(&mut self) {
        self.by_access.retain(|_, (connection, used)| connection.is_good() && used.elapsed() < IDLE);
        self.by_place.retain(|_, changed| changed.strong_count() > 0);
    }

    /// The connection with the shared state of its address.
    fn joined(&mut self, connection: Connection) -> Connection {
        let known = self.by_place.get(&connection.place).and_then(Weak::upgrade);
        let changed = known.unwrap_or_else(|| Arc::clone(&connection.changed));
        self.by_place.insert(connection.place.clone(), Arc::downgrade(&changed));
        Connection { changed, ..connection }
    }
}

impl Connections {
    /// The connection of a digest, if there is a good one.
    pub(crate) fn get(&self, access: &str) -> Option<Connection> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (connection, used) = kept.by_access.get_mut(access)?;
        if !connection.is_good() {
            kept.by_access.remove(access);
            return None;
        }
        *used = Instant::now();
        Some(connection.clone())
    }

    /// Adds a connection, with the shared state of its address. Over the limit, the one that was idle longest is
    /// removed.
    pub(crate) fn put(&self, access: String, connection: Connection) -> Connection {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = kept.joined(connection);
        kept.by_access.insert(access, (connection.clone(), Instant::now()));
        if kept.by_access.len() > MOST {
            let oldest = kept.by_access.iter().min_by_key(|(_, (_, used))| *used).map(|(access, _)| access.clone());
            oldest.map(|access| kept.by_access.remove(&access));
        }
        if !std::mem::replace(&mut kept.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
        connection
    }
}

/// Lets go what is not used, until nothing is left.
async fn sweep(kept: Weak<Mutex<Pool>>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(kept) = kept.upgrade() else { return };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.sweep();
        if kept.by_access.is_empty() {
            kept.is_swept = false;
            return;
        }
    }
}

#[cfg(test)]
mod tests;
