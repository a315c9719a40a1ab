//! What runs that go to one cluster share: its client, with the connections that it has open, and what it serves.
//!
//! Start at [`Connections`]. A connection belongs to the credentials that it was made with, of which only a digest is kept
//! beside it: other credentials are another entry. It is made anew when the cluster did not let it in, and after
//! [`OLDEST`] in any case, since a kubeconfig may name files that change. What nobody used for [`IDLE`] goes, so that
//! credentials stay in the process for little longer than the runs that brought them.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use kube::Client;
use tokio::time::Instant;

use crate::discovery::{Changed, Discovery};

/// The most connections that are kept.
const MOST: usize = 64;
/// How long one is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(120);
/// How long one is used at most.
const OLDEST: Duration = Duration::from_secs(600);
/// How often it is looked which are to go.
const SWEEP: Duration = Duration::from_secs(15);

/// A way into a cluster.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) url: String,
    /// What is at one place is one server, whoever gets in.
    pub(crate) place: String,
    /// Where what names no namespace goes, however one gets in: credentials are renewed now and then.
    pub(crate) destination: String,
    pub(crate) client: Client,
    pub(crate) discovery: Arc<Discovery>,
    /// All connections to a place have this in common.
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
    /// A way to a place that its URL tells.
    pub(crate) fn new(url: String, client: Client) -> Self {
        let (place, destination) = (url.clone(), url.clone());
        let (discovery, changed, refused) = Default::default();
        Self { url, place, destination, client, discovery, changed, refused, made: Instant::now() }
    }

    /// The same where the URL alone does not tell the place.
    pub(crate) fn at(self, place: String) -> Self {
        Self { destination: place.clone(), place, ..self }
    }

    /// The same where the place does not tell where what names no namespace goes.
    pub(crate) fn leading_to(self, destination: String) -> Self {
        Self { destination, ..self }
    }

    /// Notes that the cluster did not let a call in: whoever comes next makes another connection.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    fn is_good(&self) -> bool {
        !self.refused.load(Ordering::Relaxed) && self.made.elapsed() < OLDEST
    }
}

/// The connections of a process to clusters. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// By the digest of where they lead and what opens it.
    by_access: HashMap<String, (Connection, Instant)>,
    /// What is known of each place for as long as somebody goes there.
    by_place: HashMap<String, Weak<Changed>>,
    is_swept: bool,
}

impl Kept {
    fn sweep(&mut self) {
        self.by_access.retain(|_, (connection, used)| connection.is_good() && used.elapsed() < IDLE);
        self.by_place.retain(|_, changed| changed.strong_count() > 0);
    }

    /// The connection with what others to its place have in common.
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

    /// Keeps a connection, and returns it as one to a place that others may lead to. Where there are too many, the one goes
    /// that was not used for longest.
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
async fn sweep(kept: Weak<Mutex<Kept>>) {
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
