//! The server in a cluster: identity and permission are the cluster's.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use stoa_machinery::{
    admission,
    audit::{LogFile, Policy},
    auth::{AnyOf, Authorizer, ClusterAuthentication, OrAnonymous, SubjectAccessReviewer, TokenReviewer, Union},
    serve::{Limits, ServingCertificate},
};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::kubernetes::KubernetesCluster,
    kinds::lookup::Lookup,
    options::{AuditOptions, RunnerOptions, ServeOptions},
    runs::runner::{RunnerCertificates, RunnerSettings},
    server::{self, Namespaces, Parts},
};

/// Runs the server until a signal to end.
pub(crate) async fn run(options: ServeOptions) -> anyhow::Result<()> {
    let end = CancellationToken::new();
    let _guard = end.clone().drop_guard();
    let client = client(options.kubeconfig.as_deref()).await?;
    let or_main = |path: &Option<std::path::PathBuf>| path.clone().or_else(|| options.kubeconfig.clone());
    let authentication = self::client(or_main(&options.authentication_kubeconfig).as_deref()).await?;
    let authorization = self::client(or_main(&options.authorization_kubeconfig).as_deref()).await?;

    let trust = Arc::new(
        ClusterAuthentication::load(authentication.clone())
            .await
            .context("the cluster's authentication settings cannot be read")?,
    );
    let follower = (trust.clone(), authentication.clone(), end.clone());
    tokio::spawn(async move { follower.0.follow(follower.1, follower.2).await });
    let mut authenticators = trust.authenticators();
    authenticators.push(Arc::new(TokenReviewer::new(authentication, Vec::new())));
    let authorizer: Arc<dyn Authorizer> =
        Arc::new(AnyOf::delegating(Arc::new(SubjectAccessReviewer::new(authorization))));

    let certificate = Arc::new(ServingCertificate::from_files(&options.tls_cert_file, &options.tls_private_key_file)?);
    let parts = Parts {
        data_dir: options.data_dir.clone(),
        storage: options.storage.clone(),
        address: SocketAddr::new(options.bind_address, options.secure_port),
        runs: options.runs,
        webhooks: options.webhooks.webhook_port.map(|port| SocketAddr::new(options.bind_address, port)),
        limits: Limits { shutdown_delay: Duration::from_secs(options.shutdown_delay_seconds), ..Limits::default() },
        profiling: options.features.profiling,
        reloads: vec![certificate.clone()],
        certificate,
        authenticator: Arc::new(OrAnonymous(Union::new(authenticators))),
        authorizer,
        cluster: Arc::new(KubernetesCluster::new(client.clone())),
        lookup: Lookup::default(),
        namespaces: Namespaces::OfCluster,
        admission: admission::of_cluster(
            &client,
            &options.enable_admission_plugins,
            &options.disable_admission_plugins,
            &end,
        )?,
        audit: audit(&options.audit)?,
        runner: runner(&options.runner),
    };
    let bound = server::bind(parts).await?;
    tracing::info!(address = %bound.address(), "serving");
    bound.serve().await
}

async fn client(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let config = match kubeconfig {
        None => Config::incluster().context("this is no pod; name a --kubeconfig")?,
        Some(path) => {
            let kubeconfig =
                Kubeconfig::read_from(path).with_context(|| format!("{} cannot be used", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
    };
    Ok(Client::try_from(config)?)
}

/// The policy and the log, when both are named.
fn audit(options: &AuditOptions) -> anyhow::Result<Option<(Policy, LogFile)>> {
    let Some(path) = &options.audit_policy_file else {
        anyhow::ensure!(options.audit_log_path.is_none(), "--audit-log-path needs an --audit-policy-file");
        return Ok(None);
    };
    let policy = Policy::from_file(path).with_context(|| format!("loading audit policy file {}", path.display()))?;
    let Some(log) = options.log() else { return Ok(None) };
    Ok(Some((policy, LogFile::open(log)?)))
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
