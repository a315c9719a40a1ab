//! The connection to a cluster that a flag of the command line names, or to the cluster of this pod.

use std::path::Path;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// The configuration of a kubeconfig, or of the pod's service account without one. An error is a text for people.
pub(crate) async fn config(kubeconfig: Option<&Path>) -> Result<Config, String> {
    let Some(file) = kubeconfig else { return Config::incluster().map_err(|error| error.to_string()) };
    let kubeconfig = Kubeconfig::read_from(file).map_err(|error| error.to_string())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.map_err(|error| error.to_string())
}
