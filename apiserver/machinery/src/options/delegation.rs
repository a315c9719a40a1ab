//! The cluster that knows a server's users and what they may do.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio_util::sync::CancellationToken;

use super::OptionsError;
use crate::auth::{
    AnyOf, Authenticator, Authorizer, ClusterAuthentication, OrAnonymous, SubjectAccessReviewer, TokenReviewer, Union,
};

/// The cluster that knows a server's users and what they may do.
#[derive(Clone, Debug, Args)]
pub struct DelegatingOptions {
    /// How to reach the cluster; if not given, as a pod does
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// How to reach the cluster for TokenReviews and its authentication settings; --kubeconfig if not given
    #[arg(long)]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// How to reach the cluster for SubjectAccessReviews; --kubeconfig if not given
    #[arg(long)]
    pub authorization_kubeconfig: Option<PathBuf>,
}

/// A cluster that is asked who somebody is, and what they may do.
pub struct Delegation {
    /// The cluster.
    pub client: Client,
    /// Front proxies, client certificates and tokens that the cluster trusts; everybody else is anonymous.
    pub authenticator: Arc<dyn Authenticator>,
    /// What the cluster's roles allow.
    pub authorizer: Arc<dyn Authorizer>,
}

impl fmt::Debug for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation")
            .field("authenticator", &self.authenticator)
            .field("authorizer", &self.authorizer)
            .finish_non_exhaustive()
    }
}

impl DelegatingOptions {
    /// Reads whom the cluster trusts, and follows that until `end`.
    ///
    /// # Errors
    ///
    /// [`OptionsError`] of the kubeconfigs and of what the cluster says.
    pub async fn connect(&self, end: &CancellationToken) -> Result<Delegation, OptionsError> {
        let or_main = |path: &'_ Option<PathBuf>| path.clone().or_else(|| self.kubeconfig.clone());
        let authentication = client(or_main(&self.authentication_kubeconfig).as_deref()).await?;
        let authorization = client(or_main(&self.authorization_kubeconfig).as_deref()).await?;
        let trust = Arc::new(ClusterAuthentication::load(authentication.clone()).await?);
        let mut authenticators = trust.authenticators();
        authenticators.push(Arc::new(TokenReviewer::new(authentication.clone(), Vec::new())));
        let until = end.clone();
        tokio::spawn(async move { trust.follow(authentication, until).await });
        Ok(Delegation {
            client: client(self.kubeconfig.as_deref()).await?,
            authenticator: Arc::new(OrAnonymous(Union::new(authenticators))),
            authorizer: Arc::new(AnyOf::delegating(Arc::new(SubjectAccessReviewer::new(authorization)))),
        })
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
