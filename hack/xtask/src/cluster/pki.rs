//! The certificates of a test bed: one authority for each kind of trust, and who they vouch for.
//!
//! Files are `<name>.crt` and `<name>.key` in the folder `pki`. What is there stays, so that a test bed keeps its
//! identities from one start to the next.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::{SignedDuration, Timestamp};
use stoa_pki::{CertificateAuthority, CertificateRequest, Kubeconfig, Usage, Validity, files};

use super::stoa::{NAMESPACE, SERVICE};
use super::wardle;

/// The file of the key that sensitive values are sealed with, for replicas, which need the same.
pub(super) const SEALING_KEY: &str = "stoa-sealing.key";

/// Makes what the control plane needs.
pub(super) fn control_plane(pki: &Path) -> Result<()> {
    let etcd = Authority::open(pki, "etcd-ca")?;
    etcd.issue("etcd", CertificateRequest::new("etcd", Usage::Both).loopback())?;
    etcd.issue("apiserver-etcd-client", CertificateRequest::client("kube-apiserver"))?;

    let cluster = Authority::open(pki, "ca")?;
    let mut apiserver = CertificateRequest::server("kube-apiserver").loopback().ip([10, 0, 0, 1]);
    for name in ["kubernetes", "kubernetes.default", "kubernetes.default.svc"] {
        apiserver = apiserver.dns(name);
    }
    cluster.issue("apiserver", apiserver)?;
    cluster.issue("controller-manager-serving", CertificateRequest::server("kube-controller-manager").loopback())?;
    cluster.issue("controller-manager", CertificateRequest::client("system:kube-controller-manager"))?;
    cluster.issue("admin", CertificateRequest::client("admin").organization("system:masters"))?;

    // Requests that arrive with this certificate may speak for any user, so its authority vouches for nobody else.
    let front_proxy = Authority::open(pki, "front-proxy-ca")?;
    front_proxy.issue("front-proxy-client", CertificateRequest::client("front-proxy-client"))?;

    // The pair that signs the tokens of service accounts: only its key counts.
    cluster.issue("service-accounts", CertificateRequest::client("service-accounts"))
}

/// Makes what Stoa needs to serve, to call its runner and to call the cluster.
pub(super) fn stoa(pki: &Path) -> Result<()> {
    // kube-apiserver calls an ExternalName service at its address, but expects the service's name.
    let name = format!("{SERVICE}.{NAMESPACE}.svc");
    let serving = Authority::open(pki, "stoa-ca")?;
    serving.issue("stoa", CertificateRequest::server(SERVICE).loopback().dns(name))?;

    sealing_key(&pki.join(SEALING_KEY))?;

    let etcd = Authority::open(pki, "etcd-ca")?;
    etcd.issue("stoa-etcd-client", CertificateRequest::client(SERVICE))?;

    let runner = Authority::open(pki, "runner-ca")?;
    runner.issue("runner", CertificateRequest::server("function-runner").loopback())?;
    runner.issue("stoa-runner-client", CertificateRequest::client(SERVICE))?;

    // The names that their pods' service accounts have in a cluster, so that the same RBAC holds here.
    let cluster = Authority::open(pki, "ca")?;
    for account in [SERVICE, "function-runner"] {
        let user = CertificateRequest::client(format!("system:serviceaccount:{NAMESPACE}:{account}"))
            .organization("system:serviceaccounts")
            .organization(format!("system:serviceaccounts:{NAMESPACE}"));
        cluster.issue(&format!("{account}-account"), user)?;
    }
    others(pki)
}

/// Makes the key that all replicas of Stoa seal with.
fn sealing_key(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let mut key = [0; 32];
    File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key)).context("making a sealing key")?;
    files::write_private(path, BASE64_STANDARD.encode(key).as_bytes()).context("writing the sealing key")
}

/// Makes what both servers of `wardle.example.com` serve with.
pub(super) fn wardle(pki: &Path) -> Result<()> {
    let name = format!("{}.{}.svc", wardle::SERVICE, wardle::NAMESPACE);
    let serving = Authority::open(pki, "wardle-ca")?;
    serving.issue("wardle", CertificateRequest::server(wardle::SERVICE).loopback().dns(name))?;
    others(pki)
}

/// Makes certificates of everybody who is not to get in, or only as themselves.
fn others(pki: &Path) -> Result<()> {
    // Nobody has a reason to trust it.
    let stranger = Authority::open(pki, "stranger-ca")?;
    stranger.issue("stranger", CertificateRequest::client("front-proxy-client").organization("system:masters"))?;
    // A test makes them trusted, for a while.
    let late = Authority::open(pki, "late-ca")?;
    late.issue("late", CertificateRequest::client("late").organization("latecomers"))?;

    let yesterday = Validity {
        not_before: Timestamp::now() - SignedDuration::from_hours(48),
        not_after: Timestamp::now() - SignedDuration::from_hours(24),
    };
    let front_proxy = Authority::open(pki, "front-proxy-ca")?;
    // The right authority vouches for it, under a name that is not allowed.
    front_proxy.issue("other-proxy", CertificateRequest::client("other-proxy"))?;
    front_proxy.issue("late-proxy", CertificateRequest::client("late-proxy"))?;
    front_proxy.issue("expired-proxy", CertificateRequest::client("front-proxy-client").validity(yesterday))?;
    // The front proxy's authority vouches for no users.
    front_proxy.issue("proxied-admin", CertificateRequest::client("admin").organization("system:masters"))?;

    let cluster = Authority::open(pki, "ca")?;
    // A user with no permissions at all.
    cluster.issue("nobody", CertificateRequest::client("nobody").organization("nobodies"))?;
    // A user with the front proxy's name.
    cluster.issue("namesake", CertificateRequest::client("front-proxy-client"))?;
    let expired = CertificateRequest::client("admin").organization("system:masters").validity(yesterday);
    cluster.issue("expired-admin", expired)
}

/// Writes a kubeconfig for the client certificate `user`, with everything in the file.
pub(super) fn kubeconfig(pki: &Path, user: &str, server: &str, path: &Path) -> Result<()> {
    let read = |name: String| files::read(&pki.join(name));
    let client = stoa_pki::IssuedCertificate {
        certificate_pem: read(format!("{user}.crt"))?,
        key_pem: read(format!("{user}.key"))?,
    };
    let ca_pem = read("ca.crt".to_owned())?;
    let text = Kubeconfig { name: "cluster", server, ca_pem: &ca_pem, client: &client, namespace: "" }.render();
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    files::write_private(path, text.as_bytes()).context("writing a kubeconfig")
}

/// An authority and the folder of what it issued.
struct Authority<'a> {
    authority: CertificateAuthority,
    folder: &'a Path,
}

impl<'a> Authority<'a> {
    fn open(folder: &'a Path, name: &str) -> Result<Self> {
        let authority = CertificateAuthority::load_or_create(folder, name, &format!("stoa-testbed-{name}"));
        Ok(Self { authority: authority.with_context(|| format!("opening the authority {name}"))?, folder })
    }

    /// Issues `name`, unless it is there.
    fn issue(&self, name: &str, request: CertificateRequest) -> Result<()> {
        if self.folder.join(format!("{name}.crt")).exists() {
            return Ok(());
        }
        self.authority
            .issue(&request)
            .and_then(|issued| issued.write(self.folder, name))
            .with_context(|| format!("issuing {name}"))
    }
}
