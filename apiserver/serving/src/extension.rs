//! A server behind a cluster's aggregation layer, put together.

use std::{net::SocketAddr, sync::Arc};

use kube::Client;
use stoa_log::Log;
use stoa_registry::{
    admission::{self, Chain},
    metrics::Families,
    registry::{self, Registry, RegistryBuilder},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::serve::{Api, Limits, ServeError, Server, ServerBuilder, ServingCertificate};
use crate::{
    audit::Auditor,
    auth,
    options::{Delegation, OptionsError, RecommendedOptions},
};

/// An extension API server: it stands behind a cluster, which knows its users, what they may do, which namespaces there
/// are, and what is asked about writes.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use stoa_log::MemoryLog;
/// # use stoa_serving::{extension::ExtensionServer, options::RecommendedOptions, serve};
/// # async fn example(options: RecommendedOptions) -> Result<(), Box<dyn std::error::Error>> {
/// let server = ExtensionServer::connect(&options).await?;
/// let registry = server.registry(Arc::new(MemoryLog::new())).build().await?;
/// server.run(&registry, serve::shutdown_signal()?).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ExtensionServer {
    address: SocketAddr,
    limits: Limits,
    profiling: bool,
    certificate: Arc<ServingCertificate>,
    delegation: Delegation,
    admission: Chain,
    auditor: Option<Arc<Auditor>>,
    metrics: Families,
    of_registries: registry::Metrics,
    /// Cancelled when this is gone, which ends the registries and what follows the cluster.
    end: CancellationToken,
    _guard: DropGuard,
}

impl ExtensionServer {
    /// Reads the files that the flags name, and gets in touch with the cluster: whom it trusts is known from now on, and
    /// what it asks about writes is followed.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub async fn connect(options: &RecommendedOptions) -> Result<Self, OptionsError> {
        let end = CancellationToken::new();
        let guard = end.clone().drop_guard();
        let metrics = Families::default();
        let alone = "nobody else has metrics there yet";
        let certificate = options.secure_serving.certificate()?;
        let auditor = options.audit.open()?.map(|(policy, log)| Auditor::new(policy, log, &metrics).expect(alone));
        let delegation = options.delegating.connect(&end, &auth::Metrics::new(&metrics).expect(alone)).await?;
        let admission = options.admission.chain(&delegation.client, &end)?;
        Ok(Self {
            address: options.secure_serving.address(),
            limits: options.limits(),
            profiling: options.features.profiling,
            certificate,
            delegation,
            admission: admission.counted(admission::Metrics::new(&metrics).expect(alone)),
            auditor,
            of_registries: registry::Metrics::new(&metrics).expect(alone),
            metrics,
            end,
            _guard: guard,
        })
    }

    /// The cluster.
    pub fn client(&self) -> &Client {
        &self.delegation.client
    }

    /// Begins to describe what is served: the cluster's admission is asked about its writes, and it ends with this server.
    pub fn registry(&self, log: Arc<dyn Log>) -> RegistryBuilder {
        Registry::builder(log)
            .admission(self.admission.clone())
            .metrics(self.of_registries.clone())
            .end_with(self.end.clone())
    }

    /// A server of these resources, for who wants more of it than [`run`](Self::run) does. It serves while this value is
    /// there.
    pub fn builder(&self, registry: &Registry) -> ServerBuilder {
        let Delegation { authenticator, authorizer, .. } = &self.delegation;
        let api = Arc::new(Api::new(registry));
        ServerBuilder {
            address: self.address,
            limits: self.limits.clone(),
            auditor: self.auditor.clone(),
            metrics: self.metrics.clone(),
            profiling: self.profiling,
            lists_paths: true,
            ..Server::builder(self.certificate.clone(), authenticator.clone(), authorizer.clone(), api)
        }
    }

    /// Serves these resources until `stop`, ends in order as [`Server::run`] does, and then ends the registry.
    pub async fn run(self, registry: &Registry, stop: CancellationToken) -> Result<(), ServeError> {
        stoa_log::begin(&**registry.log()).await?;
        let server = self.builder(registry).bind().await?;
        tracing::info!(address = %server.address(), "serving");
        server.run(stop).await;
        Ok(())
    }
}
