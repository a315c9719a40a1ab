//! Clients from kubeconfigs.

use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use stoa_engine::digest::digest_bytes;
use stoa_runtime::RuntimeError;

use crate::cluster::Cluster;
use crate::connections::{Connection, Connections};

/// A cluster of a workspace, and how to get into it.
#[derive(Clone)]
pub struct ClusterConfig {
    /// Its name in the workspace.
    pub name: String,
    /// The source of the credentials.
    pub access: Access,
}

/// The source of a cluster's credentials.
#[derive(Clone)]
pub enum Access {
    /// The process's own cluster: a kubeconfig file when there is one, else the service account
    /// that Kubernetes gives to pods.
    Own {
        /// The file.
        kubeconfig: Option<PathBuf>,
        /// The context in the file; its current one when absent.
        context: Option<String>,
    },
    /// A kubeconfig of a user. Everything in it has to be inline: exec plugins and file paths are rejected, since they
    /// would be those of this process.
    Kubeconfig {
        /// The YAML.
        bytes: Vec<u8>,
        /// The context in it; its current one when absent.
        context: Option<String>,
    },
}

impl ClusterConfig {
    /// The cluster, over the connection that there is for these credentials, or another.
    pub(crate) async fn connect(&self, connections: &Connections) -> Result<Cluster, RuntimeError> {
        let digest = self.digest();
        let connection = match digest.as_ref().and_then(|digest| connections.get(digest)) {
            Some(connection) => connection,
            None => {
                let made = self.connection().await?;
                match digest {
                    Some(digest) => connections.put(digest, made),
                    None => made,
                }
            }
        };
        Ok(Cluster::new(self.name.clone(), connection))
    }

    /// The digest of address and credentials; `None` when these cannot be read.
    fn digest(&self) -> Option<String> {
        let read;
        let (own, bytes, context) = match &self.access {
            Access::Own { kubeconfig: None, context } => ("own", [].as_slice(), context),
            Access::Own { kubeconfig: Some(file), context } => {
                read = std::fs::read(file).ok()?;
                ("file", read.as_slice(), context)
            }
            Access::Kubeconfig { bytes, context } => ("given", bytes.as_slice(), context),
        };
        let context = context.as_deref().unwrap_or_default();
        let length = (context.len() as u64).to_be_bytes();
        Some(digest_bytes(&[own.as_bytes(), &length, context.as_bytes(), bytes]))
    }

    async fn connection(&self) -> Result<Connection, RuntimeError> {
        let mut config = match &self.access {
            Access::Own { kubeconfig: None, .. } => Config::incluster()
                .map_err(|err| self.invalid(&format!("the runner has no cluster of its own: {err}")))?,
            Access::Own { kubeconfig: Some(file), context } => {
                let kubeconfig = Kubeconfig::read_from(file)
                    .map_err(|err| self.invalid(&format!("the runner's own kubeconfig cannot be read: {err}")))?;
                self.config(kubeconfig, context.as_deref()).await?
            }
            Access::Kubeconfig { bytes, context } => {
                // Neither the parser's snippet nor its message is shown: both quote the text.
                let kubeconfig = std::str::from_utf8(bytes)
                    .ok()
                    .and_then(|text| Kubeconfig::from_yaml(text).ok())
                    .ok_or_else(|| self.invalid("the kubeconfig is not valid YAML"))?;
                self.check_inline(&kubeconfig)?;
                self.config(kubeconfig, context.as_deref()).await?
            }
        };
        // Clusters are reached without a proxy. One in the environment, which is taken where a kubeconfig names none, is for others.
        config.proxy_url = None;
        config.connect_timeout = Some(std::time::Duration::from_secs(10));
        // Repeating is done in `Cluster::call`, which knows when to stop.
        config.default_retry = false;
        let url = config.cluster_url.to_string();
        let (address, destination) = (address(&config), format!("{} in {}", server(&config), config.default_namespace));
        // Why is not shown: it may be about what is secret in the configuration.
        let client = Client::try_from(config)
            .map_err(|_| self.invalid("the kubeconfig's certificates and keys cannot be used"))?;
        Ok(Connection::new(url, client).at(address).leading_to(destination))
    }

    async fn config(&self, kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Config, RuntimeError> {
        // Its user's password may be in there, so that it is not shown.
        if kubeconfig.clusters.iter().any(|c| c.cluster.as_ref().is_some_and(|c| c.proxy_url.is_some())) {
            return Err(self.invalid("the kubeconfig has a proxy-url, which is not supported"));
        }
        let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|err| {
            use kube::config::KubeconfigError as E;
            self.invalid(&match err {
                E::CurrentContextNotSet | E::LoadContext(_) | E::LoadClusterOfContext(_) | E::MissingClusterUrl => {
                    err.to_string()
                }
                _ => "the kubeconfig's credentials cannot be loaded".to_owned(),
            })
        })
    }

    fn check_inline(&self, kubeconfig: &Kubeconfig) -> Result<(), RuntimeError> {
        for user in kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()) {
            if user.exec.is_some() || user.auth_provider.is_some() {
                return Err(self.invalid(
                    "the kubeconfig uses an exec plugin, which is not allowed; create a \
                                         kubeconfig for a ServiceAccount",
                ));
            }
            if user.token_file.is_some() || user.client_certificate.is_some() || user.client_key.is_some() {
                return Err(self.invalid("the kubeconfig names files; use the fields that end in -data"));
            }
        }
        if kubeconfig.clusters.iter().any(|c| c.cluster.as_ref().is_some_and(|c| c.certificate_authority.is_some())) {
            return Err(self.invalid("the kubeconfig names files; use the fields that end in -data"));
        }
        Ok(())
    }

    fn invalid(&self, message: &str) -> RuntimeError {
        RuntimeError::Invalid {
            message: format!("cluster {}: {message}", self.name),
            field: Some(format!("spec.kubernetes.clusters[name={}]", self.name)),
        }
    }
}

/// Tells the server that a configuration leads to: its address, and whom it is believed to be. One address with two
/// authorities may be two servers.
fn server(config: &Config) -> String {
    let authorities: Vec<&[u8]> = config.root_cert.iter().flatten().map(Vec::as_slice).collect();
    format!(
        "{} as {} of {} {}",
        config.cluster_url,
        config.tls_server_name.as_deref().unwrap_or_default(),
        digest_bytes(&authorities),
        config.root_cert_file.as_ref().map(|file| file.display().to_string()).unwrap_or_default(),
    )
}

/// The address with the client certificate: some proxies choose the server by it.
fn address(config: &Config) -> String {
    let certificate = config.auth_info.client_certificate_data.as_deref().unwrap_or_default();
    format!("{} for {}", server(config), digest_bytes(&[certificate.as_bytes()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Gvk;

    async fn check(user: &str) -> String {
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
             users: [{{name: u, user: {user}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
        );
        let access = Access::Kubeconfig { bytes: kubeconfig.into_bytes(), context: None };
        ClusterConfig { name: "edge".to_owned(), access }
            .connect(&Connections::default())
            .await
            .map(drop)
            .map_or_else(|err| err.to_string(), |()| "ok".to_owned())
    }

    #[tokio::test]
    async fn kubeconfig_with_exec_or_files_is_rejected() {
        assert_eq!(check("{token: abc}").await, "ok");
        for user in ["{exec: {apiVersion: v1, command: id}}", "{tokenFile: /etc/passwd}", "{client-key: /etc/passwd}"] {
            assert!(check(user).await.starts_with("cluster edge: the kubeconfig "), "{user}");
        }
    }

    #[tokio::test]
    async fn kubeconfig_proxy_is_rejected_without_its_password() {
        let access = Access::Kubeconfig {
            bytes: b"apiVersion: v1\nkind: Config\ncurrent-context: c\n\
                clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', proxy-url: 'http://u:hunter2@proxy:3128'}}]\n\
                users: [{name: u, user: {token: abc}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
                .to_vec(),
            context: None,
        };
        let refused = ClusterConfig { name: "edge".to_owned(), access }.connect(&Connections::default()).await;
        let told = refused.map(drop).unwrap_err().to_string();
        assert_eq!(told, "cluster edge: the kubeconfig has a proxy-url, which is not supported");
    }

    #[tokio::test]
    async fn kubeconfig_contexts_are_separate_clusters() {
        let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: one\n\
             clusters: [{name: a, cluster: {server: 'https://10.0.0.1'}}, {name: b, cluster: {server: 'https://10.0.0.2'}}]\n\
             users: [{name: u, user: {token: hunter2}}]\n\
             contexts: [{name: one, context: {cluster: a, user: u}}, {name: two, context: {cluster: b, user: u, namespace: shop}}]\n";
        let connect = async |context: Option<&str>| {
            let context = context.map(str::to_owned);
            let access = Access::Kubeconfig { bytes: kubeconfig.as_bytes().to_vec(), context };
            ClusterConfig { name: "edge".to_owned(), access }.connect(&Connections::default()).await
        };
        for (context, url, namespace) in [
            (None, "https://10.0.0.1/", "default"),
            (Some("one"), "https://10.0.0.1/", "default"),
            (Some("two"), "https://10.0.0.2/", "shop"),
        ] {
            let cluster = connect(context).await.unwrap();
            assert_eq!((cluster.url.as_str(), cluster.default_namespace()), (url, namespace));
        }
        let said = connect(Some("three")).await.unwrap_err().to_string();
        assert!(said.starts_with("cluster edge: ") && said.contains("three") && !said.contains("hunter2"), "{said}");
    }

    #[tokio::test]
    async fn contexts_of_one_server_share_address() {
        let kubeconfig = "apiVersion: v1\nkind: Config\ncurrent-context: one\n\
             clusters: [{name: a, cluster: {server: 'https://10.0.0.1'}}, {name: b, cluster: {server: 'https://10.0.0.1', tls-server-name: other}}, \
             {name: c, cluster: {server: 'https://10.0.0.2'}}]\n\
             users: [{name: u, user: {token: hunter2}}, {name: v, user: {token: hunter3}}]\n\
             contexts: [{name: one, context: {cluster: a, user: u}}, {name: two, context: {cluster: a, user: v, namespace: shop}}, \
             {name: renamed, context: {cluster: b, user: u}}, {name: elsewhere, context: {cluster: c, user: u}}]\n";
        let connections = Connections::default();
        let cluster = async |context: &str| {
            let access =
                Access::Kubeconfig { bytes: kubeconfig.as_bytes().to_vec(), context: Some(context.to_owned()) };
            ClusterConfig { name: "edge".to_owned(), access }.connect(&connections).await.unwrap()
        };
        let (first, second) = (cluster("one").await, cluster("two").await);
        let one = first.address();
        assert_eq!(second.address(), one);
        let widgets = Gvk { group: "example.com".to_owned(), version: "v1".to_owned(), kind: "Widget".to_owned() };
        first.note_defined(widgets.clone());
        assert!(second.is_new(&widgets) && cluster("one").await.is_new(&widgets), "who comes later hears of it, too");
        for other in ["renamed", "elsewhere"] {
            let other = cluster(other).await;
            assert!(other.address() != one && !other.is_new(&widgets), "{}", other.address());
        }
        assert!(!one.contains("hunter2"), "{one}");
    }

    #[tokio::test]
    async fn broken_kubeconfig_is_not_quoted() {
        let said = check("{token: 'hunter2-is-not-shown").await;
        assert!(said.contains("not valid") && !said.contains("hunter2"), "{said}");
        let said = check("{client-certificate-data: hunter2, client-key-data: hunter2}").await;
        assert!(said.starts_with("cluster edge: ") && !said.contains("hunter2"), "{said}");
    }
}
