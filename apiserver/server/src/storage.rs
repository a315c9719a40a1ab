//! Opens the log: in local files for one replica, or on etcd for any number of replicas.
//!
//! Start at [`open`]. Elsewhere: `stoa-storage` implements both logs.

mod recent;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use async_trait::async_trait;
use parking_lot::Mutex;
use stoa_controller::leader::Candidate;
use stoa_machinery::{
    log::Log,
    metrics::Families,
    serve::{Health, HealthCheck, Probe, Reload, ReloadError},
};
use stoa_storage::{
    EtcdLog, LocalLog,
    etcd::{EtcdOptions, EtcdTls},
    local::LocalOptions,
};

use self::recent::Recent;

/// The holder of leases where there are no other replicas.
const ALONE: &str = "stoa-apiserver";
/// How long etcd may take to answer a health check.
const PROBE: Duration = Duration::from_secs(2);

/// A log that is open, and what comes with it.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) log: Arc<dyn Log>,
    /// The same, where it is on etcd.
    pub(crate) etcd: Option<Arc<EtcdLog>>,
    /// This replica's name, the same across restarts on the same data directory.
    pub(crate) identity: String,
    /// Whether this replica may run the controllers.
    pub(crate) candidate: Candidate,
    /// Certificates that may be replaced.
    pub(crate) reloads: Vec<Arc<dyn Reload>>,
    /// Keeps other processes out of the data directory.
    _lock: Option<File>,
}

/// The etcd of a log.
#[derive(Clone, Debug)]
pub(crate) struct EtcdSettings {
    /// Its servers.
    pub(crate) servers: Vec<String>,
    /// The prefix of every key.
    pub(crate) prefix: String,
    /// The files with the certificates.
    pub(crate) tls: TlsFiles,
}

/// Opens the log on etcd, or else in the data directory, and adds its health checks and metrics.
///
/// # Errors
///
/// When it cannot be opened, or another process has the data directory.
pub(crate) async fn open(
    etcd: Option<&EtcdSettings>,
    data_dir: &Path,
    health: &Health,
    metrics: &Families,
) -> anyhow::Result<Storage> {
    let Some(EtcdSettings { servers, prefix, tls: files }) = etcd else {
        return open_local(data_dir, health).await;
    };
    let (identity, lock) = identity(data_dir)?;
    let tls = files.read()?;
    let log = EtcdLog::open(EtcdOptions {
        tls: tls.clone(),
        metrics: metrics.clone(),
        ..EtcdOptions::new(servers.clone(), prefix.clone())
    });
    let log = Arc::new(log.await.context("the log on etcd cannot be opened")?);
    health.add("etcd", Probe::Ready, Recent::new(EtcdCheck(log.clone())));
    let reload = EtcdCertificates { files: files.clone(), log: log.clone(), current: Mutex::new(tls) };
    let candidate = Candidate::replica(log.clone(), identity.clone(), metrics)?;
    tracing::info!(identity, ?servers, prefix, "a replica on etcd");
    let etcd = Some(log.clone());
    Ok(Storage { log, etcd, identity, candidate, reloads: vec![Arc::new(reload)], _lock: Some(lock) })
}

async fn open_local(data_dir: &Path, health: &Health) -> anyhow::Result<Storage> {
    let folder = data_dir.join("log");
    let opened = tokio::task::spawn_blocking(move || LocalLog::open(&folder, LocalOptions::default())).await?;
    let log: Arc<dyn Log> = Arc::new(opened.context("the log cannot be opened")?);
    health.add("log", Probe::Live, LogCheck(log.clone()));
    let identity = ALONE.to_owned();
    Ok(Storage { log, etcd: None, identity, candidate: Candidate::Alone, reloads: Vec::new(), _lock: None })
}

/// The name of the replica whose data directory this is, and a lock on it: two processes of one name
/// would take each other's leases.
fn identity(data_dir: &Path) -> anyhow::Result<(String, File)> {
    fs::create_dir_all(data_dir).with_context(|| format!("{} cannot be made", data_dir.display()))?;
    let lock = File::create(data_dir.join("lock"))?;
    lock.try_lock().with_context(|| format!("{} is another replica's", data_dir.display()))?;
    let path = data_dir.join("identity");
    if let Ok(name) = fs::read_to_string(&path)
        && !name.trim().is_empty()
    {
        return Ok((name.trim().to_owned(), lock));
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = format!("{}_{}", host.trim(), uuid::Uuid::new_v4());
    // Whole or not at all, whenever a crash comes.
    let partial = path.with_extension("partial");
    fs::write(&partial, &name)?;
    fs::rename(&partial, &path)?;
    Ok((name, lock))
}

/// The local log is well while its head can be told.
struct LogCheck(Arc<dyn Log>);

#[async_trait]
impl HealthCheck for LogCheck {
    async fn check(&self) -> Result<(), String> {
        self.0.head().await.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// Whether etcd answers. That does not make this process unwell, but it can serve little without.
struct EtcdCheck(Arc<EtcdLog>);

#[async_trait]
impl HealthCheck for EtcdCheck {
    async fn check(&self) -> Result<(), String> {
        match tokio::time::timeout(PROBE, self.0.probe()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("{:#}", anyhow::Error::from(error))),
            Err(_) => Err(format!("etcd does not answer within {PROBE:?}")),
        }
    }
}

/// The files with the certificates for etcd.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    /// The authority of etcd's certificates.
    pub(crate) ca: Option<PathBuf>,
    /// The certificate for etcd, and its key.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    fn read(&self) -> Result<EtcdTls, ReloadError> {
        let read = |path: &PathBuf| {
            fs::read_to_string(path).map_err(|source| ReloadError::Read { path: path.clone(), source })
        };
        let ca_pem = self.ca.as_ref().map(read).transpose()?;
        let client_pem = match &self.client {
            Some((certificate, key)) => Some((read(certificate)?, read(key)?)),
            None => None,
        };
        Ok(EtcdTls { ca_pem, client_pem })
    }
}

/// The certificates for etcd, read again when they change.
#[derive(Debug)]
struct EtcdCertificates {
    files: TlsFiles,
    log: Arc<EtcdLog>,
    current: Mutex<EtcdTls>,
}

impl Reload for EtcdCertificates {
    fn reload(&self) -> Result<bool, ReloadError> {
        let tls = self.files.read()?;
        let mut current = self.current.lock();
        if *current == tls {
            return Ok(false);
        }
        self.log.set_tls(&tls).map_err(|source| {
            let path = self.files.client.as_ref().map(|(certificate, _)| certificate).or(self.files.ca.as_ref());
            ReloadError::Unusable { path: path.cloned().unwrap_or_default(), source: Box::new(source) }
        })?;
        *current = tls;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn a_key_of_etcds_is_not_shown() {
        let tls = EtcdTls { client_pem: Some(("certificate".to_owned(), "hunter2".to_owned())), ..EtcdTls::default() };
        assert!(!format!("{:?}", Mutex::new(tls)).contains("hunter2"));
    }

    #[test]
    fn replica_locks_its_name_and_data_directory() {
        let folder = TempDir::new().unwrap();
        let (name, lock) = identity(folder.path()).unwrap();
        assert!(identity(folder.path()).is_err(), "another process of the same name");
        drop(lock);
        // A process that another test starts has a copy of the lock until its program begins.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let again = loop {
            match identity(folder.path()) {
                Err(_) if std::time::Instant::now() < deadline => {
                    std::thread::sleep(std::time::Duration::from_millis(10))
                }
                found => break found.unwrap(),
            }
        };
        assert_eq!(again.0, name);
        let another = TempDir::new().unwrap();
        assert_ne!(identity(another.path()).unwrap().0, name);
    }
}
