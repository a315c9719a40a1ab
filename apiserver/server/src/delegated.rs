//! The server in a cluster: identity and permission are the cluster's.

use std::{net::SocketAddr, sync::Arc};

use stoa_kinds::{cluster::kubernetes::KubernetesCluster, lookup::Lookup};
use stoa_machinery::{auth, metrics::Families, options::Delegation};
use stoa_runs::runner::{RunnerCertificates, RunnerSettings};
use tokio_util::sync::CancellationToken;

use crate::{
    options::{RunnerOptions, ServeOptions},
    server::{self, Namespaces, Parts},
};

/// Runs the server until a signal to end.
pub(crate) async fn run(options: ServeOptions) -> anyhow::Result<()> {
    let end = CancellationToken::new();
    let _guard = end.clone().drop_guard();
    let common = &options.server;
    let audit = common.audit.open()?;
    let certificate = common.secure_serving.certificate()?;
    let metrics = Families::default();
    let of_auth = auth::Metrics::new(&metrics)?;
    let Delegation { client, authenticator, authorizer } = common.delegating.connect(&end, &of_auth).await?;
    let address = common.secure_serving.address();
    let parts = Parts {
        data_dir: options.data_dir.clone(),
        storage: options.storage.clone(),
        address,
        runs: options.runs,
        webhooks: options.webhooks.webhook_port.map(|port| SocketAddr::new(address.ip(), port)),
        limits: common.limits(),
        profiling: common.features.profiling,
        certificate,
        reloads: Vec::new(),
        authenticator,
        authorizer,
        cluster: Arc::new(KubernetesCluster::new(client.clone())),
        lookup: Lookup::default(),
        namespaces: Namespaces::OfCluster,
        admission: common.admission.chain(&client, &end)?,
        audit,
        runner: runner(&options.runner),
        schedulers: options.schedulers.clone(),
        metrics,
    };
    let bound = server::bind(parts).await?;
    tracing::info!(address = %bound.address(), "serving");
    bound.serve().await
}

fn runner(options: &RunnerOptions) -> RunnerSettings {
    RunnerSettings {
        addresses: options.runner_addresses.clone(),
        certificates: RunnerCertificates {
            ca: options.runner_ca.clone(),
            certificate: options.runner_cert.clone(),
            key: options.runner_key.clone(),
        },
    }
}
