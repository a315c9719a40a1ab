//! The example `flunders` of `stoa-machinery`, behind the test bed's kube-apiserver.

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use tempfile::TempDir;

use crate::command::{eventually, run, setting};
use crate::kubectl::Kubectl;
use crate::server::{Cluster, PATIENCE, Server as _, free_port};

const API_SERVICE: &str = "v1alpha1.wardle.example.com";

/// The example, to which the group `wardle.example.com` leads. It ends with the value, and the group leads again where it
/// led before.
#[derive(Debug)]
pub struct Flunders {
    process: Child,
    kubectl: Kubectl,
    /// The APIService's spec before, if there was one.
    before: Option<Value>,
    _folder: TempDir,
}

impl Cluster {
    /// Starts the example and registers it by a Service in this namespace; waits until it is available.
    pub fn flunders(&self, namespace: &str) -> Flunders {
        let folder = tempfile::tempdir().unwrap();
        let authority = CertificateAuthority::new("flunders-ca").unwrap();
        let server = CertificateRequest::server("flunders").loopback().dns(format!("flunders.{namespace}.svc"));
        authority.issue(&server).unwrap().write(folder.path(), "flunders").unwrap();
        let (kubectl, port) = (self.kubectl(), free_port());
        let log = File::create(self.dir().join("logs/flunders.log")).unwrap();
        let process = Command::new(setting("STOA_TEST_BIN_DIR").join("examples/flunders"))
            .args(["--bind-address=127.0.0.1", &format!("--secure-port={port}")])
            .arg("--kubeconfig")
            .arg(&kubectl.kubeconfig)
            .arg("--tls-cert-file")
            .arg(folder.path().join("flunders.crt"))
            .arg("--tls-private-key-file")
            .arg(folder.path().join("flunders.key"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let before = kubectl.try_get(&["apiservice", API_SERVICE]).map(|mut before| before["spec"].take());
        let flunders = Flunders { process, kubectl, before, _folder: folder };
        let listens = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
        eventually("the example listens", PATIENCE, listens);
        flunders.register(namespace, port, authority.certificate_pem());
        flunders
    }
}

impl Flunders {
    fn register(&self, namespace: &str, port: u16, authority: &str) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "flunders", "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        let registration = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": API_SERVICE},
            "spec": {
                "group": "wardle.example.com", "version": "v1alpha1", "groupPriorityMinimum": 500, "versionPriority": 10,
                "caBundle": BASE64_STANDARD.encode(authority),
                "service": {"name": "flunders", "namespace": namespace, "port": port},
            },
        });
        self.kubectl.apply(&service.to_string());
        self.kubectl.claim("e2e", &registration.to_string());
        let available = ["wait", "--for=condition=Available", "--timeout=120s", "apiservice", API_SERVICE];
        self.kubectl.run(&available);
    }

    /// Has the group lead where it led before.
    fn unregister(&self) -> bool {
        match &self.before {
            None => self.kubectl.succeeds(&["delete", "apiservice", API_SERVICE, "--ignore-not-found"]),
            Some(spec) => {
                let patch = json!({"spec": spec}).to_string();
                self.kubectl.succeeds(&["patch", "apiservice", API_SERVICE, "--type=merge", "--patch", &patch])
            }
        }
    }

    /// Asks it to end, as whoever runs it does, and waits until it has.
    ///
    /// # Panics
    ///
    /// When it does not end well within `patience`.
    pub fn end(mut self, patience: Duration) {
        assert!(self.unregister(), "the group leads where it led before");
        run(Command::new("kill").args(["-s", "TERM", &self.process.id().to_string()]));
        let ended = eventually("the example ends", patience, || self.process.try_wait().unwrap());
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Flunders {
    fn drop(&mut self) {
        // A test that fails leaves as little as it can; a second time changes nothing.
        self.unregister();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
