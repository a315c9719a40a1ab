//! The flags of admission.

use clap::Args;
use kube::Client;
use stoa_admission::UnknownPlugin;
use stoa_registry::admission::Chain;
use tokio_util::sync::CancellationToken;

/// Which plugins of admission run.
#[derive(Clone, Debug, Default, Args)]
pub struct AdmissionOptions {
    /// Admission plugins to run besides the default ones; all plugins are default ones
    #[arg(long, value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plugins to switch off: NamespaceLifecycle, MutatingAdmissionPolicy, MutatingAdmissionWebhook,
    /// ValidatingAdmissionPolicy, ValidatingAdmissionWebhook
    #[arg(long, value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,
}

impl AdmissionOptions {
    /// The plugins, which follow until `end` what the cluster configures them with.
    pub fn chain(&self, cluster: &Client, end: &CancellationToken) -> Result<Chain, UnknownPlugin> {
        stoa_admission::of_cluster(cluster, &self.enable_admission_plugins, &self.disable_admission_plugins, end)
    }
}
