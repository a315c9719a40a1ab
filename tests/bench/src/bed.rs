//! The test bed that is measured: where its servers listen, which processes they are, who may talk to them.
//!
//! Start at [`Bed::find`]. What it knows comes from `hack/cluster env`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::client::{Endpoint, Protocol};
use crate::process::Servers;

/// A running test bed with Stoa in it.
#[derive(Debug)]
pub(crate) struct Bed {
    /// kube-apiserver; its aggregation layer also leads to Stoa.
    pub(crate) kubernetes: Endpoint,
    /// stoa-apiserver itself.
    pub(crate) stoa: Endpoint,
    /// Go's sample-apiserver itself, if the test bed has one.
    pub(crate) sample: Option<Endpoint>,
    /// The processes whose time and memory are counted.
    pub(crate) servers: Servers,
    /// The address that takes webhooks, and the authority of its certificate, if the test bed has one.
    pub(crate) webhooks: Option<(String, PathBuf)>,
    /// The admin's kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Bed {
    /// Reads what `hack/cluster env --dir` says about the test bed in `folder`.
    ///
    /// # Errors
    ///
    /// When there is no test bed, or one of its servers does not run.
    pub(crate) fn find(folder: &Path, protocol: Protocol) -> Result<Self> {
        let env = environment(folder)?;
        let value = |key: &str| {
            env.get(key).with_context(|| {
                format!("{} says nothing of {key}; hack/cluster up --stoa starts everything", folder.display())
            })
        };
        let pid = |key: &str| -> Result<u32> { value(key)?.parse().with_context(|| format!("{key} is no number")) };
        let has_sample = env.contains_key("WARDLE_REFERENCE_PID");
        let (certificate, key) = (PathBuf::from(value("CLIENT_CERT")?), PathBuf::from(value("CLIENT_KEY")?));
        let endpoint = |url: &str, ca: &str| -> Result<Endpoint> {
            let config = tls(Path::new(value(ca)?), (&certificate, &key), protocol)?;
            Endpoint::new(value(url)?, config, protocol)
        };
        Ok(Self {
            kubernetes: endpoint("APISERVER_URL", "CLUSTER_CA")?,
            stoa: endpoint("STOA_URL", "STOA_CA")?,
            sample: has_sample.then(|| endpoint("WARDLE_REFERENCE_URL", "WARDLE_CA")).transpose()?,
            servers: Servers {
                stoa: pid("STOA_PID")?,
                runner: pid("RUNNER_PID")?,
                apiserver: pid("APISERVER_PID")?,
                etcd: pid("ETCD_PID")?,
                sample: has_sample.then(|| pid("WARDLE_REFERENCE_PID")).transpose()?,
                floor: None,
            },
            webhooks: env.get("STOA_WEBHOOK_URL").cloned().zip(env.get("STOA_CA").map(PathBuf::from)),
            kubeconfig: PathBuf::from(value("KUBECONFIG")?),
            certificate,
            key,
        })
    }

    /// The files with the certificate and the key that clients show.
    pub(crate) fn identity(&self) -> (&Path, &Path) {
        (&self.certificate, &self.key)
    }
}

fn environment(folder: &Path) -> Result<BTreeMap<String, String>> {
    // The script builds the program first, and waits for whoever else builds; tests know where the program is.
    let mut command = match env::var_os("STOA_TEST_XTASK") {
        Some(program) => {
            let mut command = Command::new(program);
            command.arg("cluster");
            command
        }
        None => Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/cluster")),
    };
    let output = command.arg("env").arg("--dir").arg(folder).output().context("running hack/cluster")?;
    ensure!(output.status.success(), "hack/cluster env: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8(output.stdout).context("hack/cluster env prints no text")?;
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// How clients speak TLS: they believe this authority, and show this certificate.
///
/// # Errors
///
/// When one of the files is not what it should be.
pub(crate) fn tls(ca: &Path, (certificate, key): (&Path, &Path), protocol: Protocol) -> Result<Arc<ClientConfig>> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(&read(ca)?) {
        roots.add(authority?)?;
    }
    let chain = CertificateDer::pem_slice_iter(&read(certificate)?).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&read(key)?)?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![protocol.alpn().to_vec()];
    Ok(Arc::new(config))
}
