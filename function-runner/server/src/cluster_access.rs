//! The connection to a cluster that a flag of the command line names, or to the cluster of this pod.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher;
use kube::{Client, Config};

/// The configuration of a kubeconfig, or of the pod's service account without one. An error is a text for people.
pub(crate) async fn config(kubeconfig: Option<&Path>) -> Result<Config, String> {
    let Some(file) = kubeconfig else { return Config::incluster().map_err(|error| error.to_string()) };
    let kubeconfig = Kubeconfig::read_from(file).map_err(|error| error.to_string())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.map_err(|error| error.to_string())
}

/// The time without a byte after which a connection to the cluster is given up. A watch ends earlier by itself.
const SILENCE: Duration = Duration::from_secs(330);

/// A client that watches: its user knows when to repeat a call. An error is a text for people.
pub(crate) async fn watching(kubeconfig: Option<&Path>) -> Result<Client, String> {
    let mut config = config(kubeconfig).await?;
    config.default_retry = false;
    config.read_timeout = Some(SILENCE);
    Client::try_from(config).map_err(|error| error.to_string())
}

/// Whether the cluster does not have the watched resource, or does not have it any more.
pub(crate) fn is_missing(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}
