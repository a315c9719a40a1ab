//! The certificates of a server that is alone on one machine, in `pki/` and `kubeconfig` of its data directory.
//!
//! They are issued at each start, and again in the last third of their time, for a server that runs for longer than
//! they live. Whoever uses them reads the files again.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
};

use jiff::Timestamp;
use stoa_machinery::serve::{Reload, ReloadError};
use stoa_pki::{
    CertificateAuthority, CertificateRequest, IssuedCertificate, Kubeconfig, PkiError, certificate_validity, files,
};

/// What the API is served with.
pub(super) const SERVING: &str = "serving";
/// What the function-runner serves with.
pub(super) const RUNNER: &str = "runner";
/// What the function-runner knows this server by.
pub(super) const RUNNER_CLIENT: &str = "runner-client";
/// Who signs these two. The runner trusts an authority of its own, so that no certificate for the API opens it.
pub(super) const RUNNER_AUTHORITY: &str = "runner-ca";
/// Who is in the kubeconfig.
const ADMIN: &str = "admin";

/// The authorities, and what they issued.
#[derive(Debug)]
pub(super) struct Certificates {
    pki: PathBuf,
    kubeconfig: PathBuf,
    api: CertificateAuthority,
    runner: CertificateAuthority,
    /// Where the API is served, once that is known.
    server: OnceLock<String>,
}

// What is issued again is named in the log.
impl Certificates {
    /// Issues all of them; the authorities stay those of the first start.
    pub(super) fn issue(data_dir: &Path) -> Result<Self, PkiError> {
        let pki = data_dir.join("pki");
        let api = CertificateAuthority::load_or_create(&pki, "ca", "stoa")?;
        let runner = CertificateAuthority::load_or_create(&pki, RUNNER_AUTHORITY, "stoa-runner")?;
        let this = Self { pki, kubeconfig: data_dir.join("kubeconfig"), api, runner, server: OnceLock::new() };
        for (name, authority, request) in this.all() {
            authority.issue(&request)?.write(&this.pki, name)?;
        }
        Ok(this)
    }

    fn all(&self) -> [(&'static str, &CertificateAuthority, CertificateRequest); 4] {
        let admin = CertificateRequest::client("stoa-admin").organization("system:masters");
        [
            (SERVING, &self.api, CertificateRequest::server("stoa-apiserver").loopback()),
            (ADMIN, &self.api, admin),
            (RUNNER, &self.runner, CertificateRequest::server("function-runner").loopback()),
            (RUNNER_CLIENT, &self.runner, CertificateRequest::client("stoa-apiserver")),
        ]
    }

    /// The file of a certificate.
    pub(super) fn certificate(&self, name: &str) -> PathBuf {
        self.pki.join(format!("{name}.crt"))
    }

    /// The file of its key.
    pub(super) fn key(&self, name: &str) -> PathBuf {
        self.pki.join(format!("{name}.key"))
    }

    /// The certificate of the authority that vouches for users of the API, as PEM.
    pub(super) fn client_authority(&self) -> &str {
        self.api.certificate_pem()
    }

    /// Writes the kubeconfig, now that the server's URL is known.
    pub(super) fn serve_at(&self, server: String) -> Result<(), PkiError> {
        let server = self.server.get_or_init(|| server);
        let client = IssuedCertificate {
            certificate_pem: files::read(&self.certificate(ADMIN))?,
            key_pem: files::read(&self.key(ADMIN))?,
        };
        self.write_kubeconfig(server, &client)
    }

    fn write_kubeconfig(&self, server: &str, client: &IssuedCertificate) -> Result<(), PkiError> {
        let ca_pem = self.api.certificate_pem();
        let text = Kubeconfig { name: "stoa", server, ca_pem, client, namespace: "default" }.render();
        files::write_private(&self.kubeconfig, text.as_bytes())
    }

    /// Issues again what is in the last third of its time, or cannot be read; says whether there was any.
    fn renew(&self, now: Timestamp) -> Result<bool, ReloadError> {
        let mut renewed = false;
        for (name, authority, request) in self.all() {
            let path = self.certificate(name);
            let validity = files::read(&path).and_then(|pem| certificate_validity(&pem));
            if validity.is_ok_and(|validity| !validity.wants_renewal(now)) {
                continue;
            }
            let issued = authority.issue(&request).and_then(|issued| {
                issued.write(&self.pki, name)?;
                match self.server.get().filter(|_| name == ADMIN) {
                    Some(server) => self.write_kubeconfig(server, &issued),
                    None => Ok(()),
                }
            });
            issued.map_err(|source| ReloadError::Unusable { path, source: Box::new(source) })?;
            renewed = true;
        }
        Ok(renewed)
    }
}

impl Reload for Certificates {
    fn reload(&self) -> Result<bool, ReloadError> {
        self.renew(Timestamp::now())
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use stoa_machinery::serve::ServingCertificate;

    use super::*;

    #[test]
    fn certificates_renew_in_last_third_of_lifetime() {
        let folder = tempfile::tempdir().unwrap();
        let certificates = Certificates::issue(folder.path()).unwrap();
        certificates.serve_at("https://127.0.0.1:6443".to_owned()).unwrap();
        let serving =
            ServingCertificate::from_files(certificates.certificate(SERVING), certificates.key(SERVING)).unwrap();
        let texts = || {
            let issued = [SERVING, ADMIN, RUNNER, RUNNER_CLIENT].map(|name| certificates.certificate(name));
            let texts = issued.into_iter().chain([folder.path().join("kubeconfig")]);
            texts.map(|path| files::read(&path).unwrap()).collect::<Vec<_>>()
        };
        let in_days = |days: i64| Timestamp::now() + SignedDuration::from_hours(24 * days);

        let first = texts();
        assert!(!certificates.renew(in_days(200)).unwrap());
        assert_eq!(texts(), first);
        assert!(!serving.reload().unwrap());

        assert!(certificates.renew(in_days(300)).unwrap());
        let second = texts();
        assert!(first.iter().zip(&second).all(|(first, second)| first != second), "{second:?}");
        assert!(second[4].contains("https://127.0.0.1:6443"));
        assert!(serving.reload().unwrap());
    }
}
