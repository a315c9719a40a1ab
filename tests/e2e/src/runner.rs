//! Function-runners, and other programs of their binary, that a test starts and ends by itself.

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::command::{eventually, run, setting};
use crate::server::{Cluster, PATIENCE, free_port};

/// A function-runner beside the test bed's own. It ends with the value.
#[derive(Debug)]
pub struct Runner {
    process: Child,
    port: u16,
    log: PathBuf,
}

impl Cluster {
    /// Starts another function-runner, which calls the cluster as its admin.
    pub fn another_runner(&self) -> Runner {
        self.another_runner_at(free_port())
    }

    /// The same at a port of loopback.
    pub fn another_runner_at(&self, port: u16) -> Runner {
        self.another_runner_with(port, &self.pki(), &[])
    }

    /// The same with more arguments, and with the files of certificates in a folder: `runner.crt`, `runner.key` and
    /// `runner-ca.crt`.
    pub fn another_runner_with(&self, port: u16, certificates: &Path, arguments: &[&str]) -> Runner {
        let log = self.dir().join(format!("logs/function-runner-at-{port}.log"));
        let file = File::options().create(true).append(true).open(&log).unwrap();
        let process = Command::new(setting("STOA_TEST_BIN_DIR").join("function-runner"))
            .arg(format!("--listen=127.0.0.1:{port}"))
            .arg("--tls-cert")
            .arg(certificates.join("runner.crt"))
            .arg("--tls-key")
            .arg(certificates.join("runner.key"))
            .arg("--client-ca")
            .arg(certificates.join("runner-ca.crt"))
            .arg("--cache-dir")
            .arg(self.dir().join(format!("runner-cache-at-{port}")))
            .arg("--kubeconfig")
            .arg(self.dir().join("kubeconfig"))
            .args(["--local-repositories=/", "--provider-mirrors=/"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let runner = Runner { process, port, log };
        let listens = || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok();
        eventually("another function-runner listens", PATIENCE, listens);
        runner
    }
}

impl Runner {
    /// Where it listens on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it, and those at its port before it, have logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Asks it to end, as a rolling restart does, and waits until it has.
    ///
    /// # Panics
    ///
    /// When it does not end well within `patience`.
    pub fn end(mut self, patience: Duration) {
        run(Command::new("kill").args(["-s", "TERM", &self.process.id().to_string()]));
        let ended = eventually("the function-runner ends", patience, || self.process.try_wait().unwrap());
        assert!(ended.success(), "{ended}");
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An agent of the function-runner, which reports what the test bed's cluster deployed to its hub. It ends with the value, as a
/// crash does.
#[derive(Debug)]
pub struct Agent(Child);

impl Cluster {
    /// Starts an agent for the Reconcilers of a host in a namespace, as the admin of the cluster.
    pub fn agent(&self, namespace: &str, host: &str, queue: &Path) -> Agent {
        let log = self.dir().join(format!("logs/agent-of-{host}.log"));
        let file = File::options().create(true).append(true).open(log).unwrap();
        let process = Command::new(setting("STOA_TEST_BIN_DIR").join("function-runner"))
            .args(["agent", "--heartbeat-seconds=10", "--host", host, "--namespace", namespace])
            .arg("--hub-kubeconfig")
            .arg(self.dir().join("kubeconfig"))
            .arg("--kubeconfig")
            .arg(self.dir().join("kubeconfig"))
            .arg("--queue-file")
            .arg(queue)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        Agent(process)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The scheduler of the function-runner with the decisions of Open Cluster Management. It ends with the value, as a crash does.
#[derive(Debug)]
pub struct OcmScheduler(Child);

impl Cluster {
    /// Starts a scheduler with the Placements of the test bed's cluster, as its admin, at a port of loopback. The folder has the files
    /// of certificates: `runner.crt`, `runner.key` and `runner-ca.crt`.
    pub fn ocm_scheduler(&self, port: u16, certificates: &Path) -> OcmScheduler {
        let log = self.dir().join(format!("logs/ocm-scheduler-at-{port}.log"));
        let file = File::options().create(true).append(true).open(log).unwrap();
        let process = Command::new(setting("STOA_TEST_BIN_DIR").join("function-runner"))
            .args(["ocm-scheduler", &format!("--listen=127.0.0.1:{port}")])
            .arg("--tls-cert")
            .arg(certificates.join("runner.crt"))
            .arg("--tls-key")
            .arg(certificates.join("runner.key"))
            .arg("--client-ca")
            .arg(certificates.join("runner-ca.crt"))
            .arg("--kubeconfig")
            .arg(self.dir().join("kubeconfig"))
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        OcmScheduler(process)
    }
}

impl Drop for OcmScheduler {
    fn drop(&mut self) {
        // It may have ended by itself, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
