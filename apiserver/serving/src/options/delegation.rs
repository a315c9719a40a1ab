//! The flags of delegated authentication and authorization.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use stoa_meta::authorizer::Authorizer;
use tokio_util::sync::CancellationToken;

use super::OptionsError;
use crate::{
    auth::{
        ALWAYS_ALLOWED_PATHS, AllowPaths, AnyOf, Authenticator, ClusterAuthentication, DecisionsKept, Masters, Metrics,
        OrAnonymous, SubjectAccessReviewer, TokenReviewer, Union,
    },
    duration::parse_duration,
};

/// The cluster that knows a server's users and what they may do.
#[derive(Clone, Debug, Args)]
pub struct DelegatingOptions {
    /// Access to the cluster; default: the pod's service account
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// Access to the cluster for TokenReviews and authentication settings; default: --kubeconfig
    #[arg(long)]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// Access to the cluster for SubjectAccessReviews; default: --kubeconfig
    #[arg(long)]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Time to cache the result of a TokenReview, such as 10s
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// Time to cache a permission
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// Time to cache a denial
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
    /// Paths without authorization; a final * matches any rest
    #[arg(long, value_delimiter = ',', default_values = ALWAYS_ALLOWED_PATHS)]
    pub authorization_always_allow_paths: Vec<String>,
}

/// A cluster that is asked who somebody is, and what they may do.
#[derive(educe::Educe)]
#[educe(Debug)]
pub struct Delegation {
    /// The cluster.
    #[educe(Debug(ignore))]
    pub client: Client,
    /// Front proxies, client certificates and tokens that the cluster trusts; everybody else is anonymous.
    pub authenticator: Arc<dyn Authenticator>,
    /// What the cluster's roles allow.
    pub authorizer: Arc<dyn Authorizer>,
}

impl DelegatingOptions {
    /// Reads whom the cluster trusts, and follows that until `end`. What is asked is counted in `metrics`.
    ///
    /// # Errors
    ///
    /// [`OptionsError`] of the kubeconfigs and of what the cluster says.
    pub async fn connect(&self, end: &CancellationToken, metrics: &Metrics) -> Result<Delegation, OptionsError> {
        let or_main = |path: &'_ Option<PathBuf>| path.clone().or_else(|| self.kubeconfig.clone());
        let authentication = client(or_main(&self.authentication_kubeconfig).as_deref()).await?;
        let authorization = client(or_main(&self.authorization_kubeconfig).as_deref()).await?;
        let trust = Arc::new(ClusterAuthentication::load(authentication.clone()).await?);
        let mut authenticators = trust.authenticators(metrics);
        let kept = self.authentication_token_webhook_cache_ttl;
        let tokens = TokenReviewer::keeping(authentication.clone(), Vec::new(), kept);
        authenticators.push(Arc::new(tokens.counted(metrics)));
        let until = end.clone();
        tokio::spawn(async move { trust.follow(authentication, until).await });
        Ok(Delegation {
            client: client(self.kubeconfig.as_deref()).await?,
            authenticator: Arc::new(OrAnonymous(Union::new(authenticators))),
            authorizer: Arc::new(self.authorizer(authorization, metrics)),
        })
    }

    fn authorizer(&self, cluster: Client, metrics: &Metrics) -> AnyOf {
        let kept = DecisionsKept {
            allowed: self.authorization_webhook_cache_authorized_ttl,
            denied: self.authorization_webhook_cache_unauthorized_ttl,
        };
        AnyOf::new(vec![
            Arc::new(Masters),
            Arc::new(AllowPaths::new(self.authorization_always_allow_paths.iter().cloned())),
            Arc::new(SubjectAccessReviewer::keeping(cluster, kept).counted(metrics)),
        ])
    }
}

/// A client for the cluster of a kubeconfig, or for the one that this is a pod of.
async fn client(kubeconfig: Option<&Path>) -> Result<Client, OptionsError> {
    let config = match kubeconfig {
        None => Config::incluster().map_err(OptionsError::InCluster)?,
        Some(path) => {
            let unusable = |source| OptionsError::Kubeconfig { path: path.to_owned(), source };
            let kubeconfig = Kubeconfig::read_from(path).map_err(unusable)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(unusable)?
        }
    };
    Client::try_from(config).map_err(OptionsError::Client)
}
