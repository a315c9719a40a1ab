//! The flags of a server behind a cluster's aggregation layer, in groups that a program flattens into its own.
//!
//! Start at [`RecommendedOptions`], which has all of them; [`ExtensionServer`](crate::extension::ExtensionServer) is what they
//! come to. A program that needs something else takes the groups one by one. Their names, and those of the flags, are those
//! of `k8s.io/apiserver/pkg/server/options`.

mod admission;
mod audit;
mod delegation;
mod features;
mod serving;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use kube::config::{InClusterError, KubeconfigError};
use stoa_admission::UnknownPlugin;

pub use self::{
    admission::AdmissionOptions,
    audit::AuditOptions,
    delegation::{DelegatingOptions, Delegation},
    features::FeatureOptions,
    serving::SecureServingOptions,
};
use crate::{
    audit::{self as audit_log, PolicyError},
    auth::ClusterError,
    duration::parse_duration,
    serve::{Limits, ReloadError},
};

/// All flags of a server behind a cluster.
#[derive(Clone, Debug, Args)]
pub struct RecommendedOptions {
    /// Where it listens, and with which certificate.
    #[command(flatten)]
    pub secure_serving: SecureServingOptions,
    /// The cluster, which knows its users and what they may do.
    #[command(flatten)]
    pub delegating: DelegatingOptions,
    /// What is asked about writes.
    #[command(flatten)]
    pub admission: AdmissionOptions,
    /// What is recorded of requests.
    #[command(flatten)]
    pub audit: AuditOptions,
    /// What is served besides the API.
    #[command(flatten)]
    pub features: FeatureOptions,
    /// Concurrent read requests except watches; more get 429. 0 is unlimited
    #[arg(long, default_value_t = Limits::default().reading)]
    pub max_requests_inflight: usize,
    /// Concurrent write requests; more get 429. 0 is unlimited
    #[arg(long, default_value_t = Limits::default().mutating)]
    pub max_mutating_requests_inflight: usize,
    /// Timeout of a request except watches and the like, such as 1m0s; a request can set a shorter one
    #[arg(long, value_parser = parse_duration, default_value = "1m0s")]
    pub request_timeout: Duration,
    /// Time to serve requests after a shutdown signal while /readyz fails, such as 10s
    #[arg(long, value_parser = parse_duration, default_value = "0s")]
    pub shutdown_delay_duration: Duration,
}

impl RecommendedOptions {
    /// How long and how much.
    pub fn limits(&self) -> Limits {
        let limit = |most: usize| if most == 0 { usize::MAX } else { most };
        Limits {
            reading: limit(self.max_requests_inflight),
            mutating: limit(self.max_mutating_requests_inflight),
            request_timeout: self.request_timeout,
            shutdown_delay: self.shutdown_delay_duration,
            ..Limits::default()
        }
    }
}

/// Why flags do not come to a server.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// A kubeconfig is missing or broken.
    #[error("{} cannot be used", path.display())]
    Kubeconfig {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// No kubeconfig is named, and there is no cluster around.
    #[error("this is no pod; name a --kubeconfig")]
    InCluster(#[source] InClusterError),
    /// What a kubeconfig says cannot be used to call the cluster.
    #[error("the cluster cannot be called")]
    Client(#[source] kube::Error),
    /// Whom the cluster trusts is not known.
    #[error("the cluster's authentication settings cannot be read")]
    Authentication(#[from] ClusterError),
    /// The certificate to serve with is missing or broken.
    #[error(transparent)]
    Certificate(#[from] ReloadError),
    /// A name of a plugin that there is not.
    #[error(transparent)]
    Admission(#[from] UnknownPlugin),
    /// The audit policy is missing or broken.
    #[error("loading audit policy file {}", path.display())]
    AuditPolicy {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: PolicyError,
    },
    /// There is an audit log and nothing to write to it.
    #[error("--audit-log-path needs an --audit-policy-file")]
    NoAuditPolicy,
    /// The audit log cannot be written.
    #[error(transparent)]
    AuditLog(#[from] audit_log::LogError),
}

#[cfg(test)]
mod tests;
