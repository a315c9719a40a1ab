//! The authentication settings of a cluster: the ConfigMap `extension-apiserver-authentication` in `kube-system`.
//!
//! kube-apiserver writes its client CA and the terms of its front proxy there for servers behind it. It is read
//! before serving and watched from then on, so that a rotated CA counts without a restart.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher::watch_object},
};
use stoa_meta::errors::chain;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    authenticator::Authenticator,
    certificates::{CaError, ClientCertificates, DynamicCa},
    delegate::{DelegateError, with_retries},
    metrics::Metrics,
    request_header::{RequestHeader, RequestHeaderConfig},
};

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// Why the cluster's terms could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The ConfigMap could not be read; its reader needs a RoleBinding to the Role
    /// `extension-apiserver-authentication-reader` in `kube-system`.
    #[error("cannot read the ConfigMap {NAMESPACE}/{NAME}")]
    Read(#[from] DelegateError),
    /// A CA bundle in it is unusable.
    #[error("{key} in the ConfigMap {NAMESPACE}/{NAME} is unusable")]
    Ca {
        /// The ConfigMap's key.
        key: &'static str,
        /// What is wrong.
        source: CaError,
    },
    /// A list in it is not a JSON array of strings.
    #[error("{key} in the ConfigMap {NAMESPACE}/{NAME} is not a JSON array of strings")]
    List {
        /// The ConfigMap's key.
        key: &'static str,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// The cluster's client CA and front proxy, as last read.
#[derive(Debug)]
pub struct ClusterAuthentication {
    client_ca: Arc<DynamicCa>,
    proxy_ca: Arc<DynamicCa>,
    proxy: Arc<ArcSwap<RequestHeaderConfig>>,
}

impl Default for ClusterAuthentication {
    fn default() -> Self {
        Self {
            client_ca: Arc::new(DynamicCa::new("client CA")),
            proxy_ca: Arc::new(DynamicCa::new("request header CA")),
            proxy: Arc::default(),
        }
    }
}

impl ClusterAuthentication {
    /// Reads the ConfigMap.
    ///
    /// # Errors
    ///
    /// [`ClusterError`]; a server behind the aggregation layer cannot serve without it.
    pub async fn load(client: Client) -> Result<Self, ClusterError> {
        let this = Self::default();
        let api = Api::<ConfigMap>::namespaced(client, NAMESPACE);
        let found = with_retries(|| api.get(NAME)).await?;
        this.apply(&found.data.unwrap_or_default())?;
        Ok(this)
    }

    /// Follows the ConfigMap until `stop`. What cannot be used, and a removal, is logged and changes nothing.
    pub async fn follow(&self, client: Client, stop: CancellationToken) {
        let changes = watch_object(Api::<ConfigMap>::namespaced(client, NAMESPACE), NAME).default_backoff();
        pin_mut!(changes);
        loop {
            let change = tokio::select! {
                () = stop.cancelled() => return,
                change = changes.next() => change,
            };
            match change {
                Some(Ok(Some(found))) => match self.apply(&found.data.unwrap_or_default()) {
                    Ok(true) => info!("the cluster's authentication settings changed"),
                    Ok(false) => {}
                    Err(error) => error!(error = chain(&error), "keeping the authentication settings before"),
                },
                Some(Ok(None)) => warn!("the ConfigMap {NAMESPACE}/{NAME} is gone; keeping what it said"),
                Some(Err(error)) => warn!(error = chain(&error), "cannot watch the ConfigMap {NAMESPACE}/{NAME}"),
                None => return,
            }
        }
    }

    /// Front proxy, then client certificates: the first two of upstream's order.
    pub fn authenticators(&self, metrics: &Metrics) -> Vec<Arc<dyn Authenticator>> {
        vec![
            Arc::new(RequestHeader::new(self.proxy_ca.clone(), self.proxy.clone())),
            Arc::new(ClientCertificates::new(self.client_ca.clone()).counted(metrics)),
        ]
    }

    /// Takes over what the ConfigMap says, all of it or nothing; says whether anything changed.
    fn apply(&self, data: &BTreeMap<String, String>) -> Result<bool, ClusterError> {
        let list = |key: &'static str| match data.get(key).map(|text| text.trim()) {
            None | Some("") => Ok(Vec::new()),
            Some(text) => serde_json::from_str(text).map_err(|source| ClusterError::List { key, source }),
        };
        let proxy = RequestHeaderConfig {
            username_headers: list("requestheader-username-headers")?,
            uid_headers: list("requestheader-uid-headers")?,
            group_headers: list("requestheader-group-headers")?,
            extra_prefixes: list("requestheader-extra-headers-prefix")?,
            allowed_names: list("requestheader-allowed-names")?,
        };
        let bundle = |key: &'static str, ca: &DynamicCa| {
            let pem = data.get(key).map(String::as_str).filter(|pem| !pem.trim().is_empty());
            ca.read(pem).map_err(|source| ClusterError::Ca { key, source })
        };
        let proxy_ca = bundle("requestheader-client-ca-file", &self.proxy_ca)?;
        let client_ca = bundle("client-ca-file", &self.client_ca)?;
        let mut changed = false;
        // The terms go first: a proxy of a new CA is never believed on the old terms.
        if **self.proxy.load() != proxy {
            self.proxy.store(Arc::new(proxy));
            changed = true;
        }
        for (ca, replacement) in [(&self.proxy_ca, proxy_ca), (&self.client_ca, client_ca)] {
            if let Some(replacement) = replacement {
                ca.replace(replacement);
                changed = true;
            }
        }
        Ok(changed)
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
