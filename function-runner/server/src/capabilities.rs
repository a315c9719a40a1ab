//! The capabilities of the target of a Workspace, which charts read: the version of Kubernetes, and its APIs.
//!
//! Start at [`TargetCapabilities`]. A cluster is asked when a chart is rendered for it, and again after half a minute. A
//! Workspace with a repository names its version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use stoa_proto::Workspace;
use stoa_runtime_kubernetes::Capabilities;
use stoa_types::platform::Cluster;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tonic::Code;

use crate::failure::{Failure, reason};
use crate::runtimes::Runtimes;

/// How long an answer of a cluster counts: a definition that was added is seen after it.
const FRESH: Duration = Duration::from_secs(30);

/// How long a cluster may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most clusters that are known.
const MOST: usize = 1024;

/// The answers of clusters, by the digest of their credentials.
type Answers = HashMap<[u8; 32], (Instant, Found)>;

/// The last answers of clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownCapabilities(Arc<Mutex<Answers>>);

/// The capabilities, and a warning where they are not those of the cluster.
type Found = Arc<(Option<Capabilities>, Option<String>)>;

impl KnownCapabilities {
    fn get(&self, key: &[u8; 32]) -> Option<Found> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, found)| Arc::clone(found))
    }

    fn put(&self, key: [u8; 32], found: Found) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(key, (Instant::now(), found));
    }
}

/// The capabilities for one rendering. They are found out once, where a chart needs them.
#[derive(Debug)]
pub(crate) struct TargetCapabilities {
    /// What is asked; nothing without a target.
    of: Option<(Runtimes, KnownCapabilities, Workspace)>,
    found: OnceCell<Found>,
}

impl TargetCapabilities {
    /// Those of the target of a workspace.
    pub(crate) fn of(runtimes: &Runtimes, known: &KnownCapabilities, workspace: &Workspace) -> Self {
        Self { of: Some((runtimes.clone(), known.clone(), workspace.clone())), found: OnceCell::new() }
    }

    /// Without a target.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self { of: None, found: OnceCell::new() }
    }

    /// The capabilities; `None` for those that the renderer assumes.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` when the cluster does not answer.
    pub(crate) async fn get(&self) -> Result<Option<&Capabilities>, Failure> {
        Ok(self.find().await?.0.as_ref())
    }

    /// The warning about capabilities that are not those of the cluster.
    pub(crate) fn warning(&self) -> Option<&str> {
        self.found.get()?.1.as_deref()
    }

    async fn find(&self) -> Result<&Found, Failure> {
        self.found.get_or_try_init(async || self.ask().await).await
    }

    async fn ask(&self) -> Result<Found, Failure> {
        let Some((runtimes, known, workspace)) = &self.of else { return Ok(Arc::default()) };
        let cluster = match Runtimes::chart_target(workspace)? {
            None => return Ok(Arc::default()),
            Some(ChartTarget::Version(version)) => {
                let capabilities = Capabilities { version: format!("v{version}.0"), apis: Vec::new() };
                return Ok(Arc::new((Some(capabilities), None)));
            }
            Some(ChartTarget::Cluster(cluster)) => cluster,
        };
        let (name, key) = (cluster.name.clone(), key(workspace, &cluster.name));
        if let Some(found) = known.get(&key) {
            return Ok(found);
        }
        let asked = tokio::time::timeout(TIMEOUT, runtimes.capabilities(workspace, *cluster)).await;
        let capabilities = asked.unwrap_or_else(|_| {
            let message = format!("cluster {name} does not say its version, which a chart needs: it does not answer");
            Err(Failure::new(Code::Unavailable, reason::UNAVAILABLE, message))
        })?;
        let warning = capabilities.is_none().then(|| {
            format!(
                "the credentials of cluster {name} may not read its version and APIs, so that the chart is rendered for the \
                 default version of Kubernetes; bind them to the ClusterRole system:discovery"
            )
        });
        let found = Arc::new((capabilities, warning));
        known.put(key, Arc::clone(&found));
        Ok(found)
    }
}

/// What a chart is rendered for.
#[derive(Debug)]
pub(crate) enum ChartTarget {
    /// A minor version of Kubernetes, such as `1.35`.
    Version(String),
    /// The first cluster of the workspace.
    Cluster(Box<Cluster>),
}

/// The digest of a cluster and its credentials.
fn key(workspace: &Workspace, cluster: &str) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let kubeconfig = workspace.kubeconfigs.get(cluster);
    for part in [cluster.as_bytes(), &workspace.spec, kubeconfig.map_or(&[][..], |bytes| bytes)] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}
