//! A real runner process with its own certificates, and clients of it.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering::SeqCst};

use serde_json::Value;
use stoa_pki::{CertificateAuthority, CertificateRequest};
use stoa_proto::Problem;
use stoa_proto::function_runner_client::FunctionRunnerClient;
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Status};

pub(crate) type Client = FunctionRunnerClient<Channel>;

pub(crate) struct Bed {
    pub(crate) directory: TempDir,
    pub(crate) authority: CertificateAuthority,
    pub(crate) address: String,
    child: Child,
    stdin: Option<ChildStdin>,
    /// How often it said that it cannot use what its files of certificates have become.
    failed_reloads: Arc<AtomicUsize>,
}

impl Bed {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with more arguments.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::start_in(&[], arguments)
    }

    /// The same with more variables of the environment.
    pub(crate) fn start_in(environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let authority = CertificateAuthority::new("runner test").unwrap();
        let server = authority.issue(&CertificateRequest::server("runner").loopback()).unwrap();
        server.write(directory.path(), "runner").unwrap();
        std::fs::write(directory.path().join("ca.crt"), authority.certificate_pem()).unwrap();
        let file = |name: &str| directory.path().join(name);
        let mut child = Command::new(env!("CARGO_BIN_EXE_function-runner"))
            .args(["--listen", "127.0.0.1:0", "--exit-on-stdin-close", "--log-format", "json"])
            .arg("--tls-cert")
            .arg(file("runner.crt"))
            .arg("--tls-key")
            .arg(file("runner.key"))
            .arg("--client-ca")
            .arg(file("ca.crt"))
            .arg("--local-repositories=/")
            .arg("--cache-dir")
            .arg(file("cache"))
            .arg("--address-file")
            .arg(file("address"))
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let serving = lines.by_ref().map_while(Result::ok).any(|line| {
            serde_json::from_str::<Value>(&line).is_ok_and(|event| event["fields"]["message"] == "serving")
        });
        assert!(serving, "the runner did not come up");
        // What else it logs is shown with the test's output; nobody reading would stop it.
        let failed_reloads = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&failed_reloads);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.contains("keeping what was loaded before") {
                    counted.fetch_add(1, SeqCst);
                }
                eprintln!("{line}");
            }
        });
        let address = std::fs::read_to_string(file("address")).unwrap().trim().to_owned();
        Self { directory, authority, address, child, stdin, failed_reloads }
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) async fn client(&self) -> Client {
        self.client_of(&self.authority).await.unwrap()
    }

    /// A client whose certificate another authority may have made.
    pub(crate) async fn client_of(&self, authority: &CertificateAuthority) -> Result<Client, tonic::transport::Error> {
        let issued = authority.issue(&CertificateRequest::client("stoa-apiserver")).unwrap();
        let tls = self.tls().identity(Identity::from_pem(issued.certificate_pem, issued.key_pem));
        Ok(FunctionRunnerClient::new(self.endpoint(tls).connect().await?))
    }

    /// A connection of a client that is let in.
    pub(crate) async fn channel(&self) -> Channel {
        let issued = self.authority.issue(&CertificateRequest::client("stoa-apiserver")).unwrap();
        let tls = self.tls().identity(Identity::from_pem(issued.certificate_pem, issued.key_pem));
        self.endpoint(tls).connect().await.unwrap()
    }

    pub(crate) fn tls(&self) -> ClientTlsConfig {
        ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(self.authority.certificate_pem()))
            .domain_name("localhost")
    }

    pub(crate) fn endpoint(&self, tls: ClientTlsConfig) -> Endpoint {
        Endpoint::from_shared(format!("https://{}", self.address)).unwrap().tls_config(tls).unwrap()
    }

    /// How often it said that it cannot use what its files of certificates have become.
    pub(crate) fn failed_reloads(&self) -> usize {
        self.failed_reloads.load(SeqCst)
    }

    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Sends a signal to it and to the processes that it started, as when a machine stands still.
    pub(crate) fn signal_all(&self, name: &str) {
        self.signal(name);
        for process in self.children() {
            // It may have ended by now.
            let _ = Command::new("kill").args(["-s", name, &process.to_string()]).status();
        }
    }

    /// The processes that it started and that have not ended.
    pub(crate) fn children(&self) -> Vec<u32> {
        let processes =
            std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        processes.filter(|pid| parent(*pid) == Some(self.child.id())).collect()
    }

    /// Its workers: those of its processes that have no source in hand.
    pub(crate) fn workers(&self) -> Vec<u32> {
        let is_worker = |pid: &u32| {
            // One that has just ended says nothing.
            let said = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            said.contains("--memory=") && !said.contains("--cache=")
        };
        self.children().into_iter().filter(is_worker).collect()
    }

    /// The most memory that the process ever had, in bytes.
    pub(crate) fn most_memory(&self) -> u64 {
        most_memory(self.child.id())
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) async fn ended(mut self) -> ExitStatus {
        // The stdin of a process that is waited for would be closed; it is kept open on purpose.
        let _stdin = self.stdin.take();
        tokio::task::spawn_blocking(move || {
            let status = self.child.wait().unwrap();
            drop(self);
            status
        })
        .await
        .unwrap()
    }
}

/// A port that nothing listens on, below the range of outgoing connections, so that none takes it meanwhile.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 2_000).unwrap();
    (0..2_000)
        .map(|_| 30_000 + (start + NEXT.fetch_add(1, SeqCst)) % 2_000)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("one of two thousand ports is free")
}

/// The most memory that a process ever had, in bytes.
pub(crate) fn most_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// Who started a process; nothing once it has ended.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have spaces and stands in parentheses.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    fields.next().filter(|state| *state != "Z")?;
    fields.next()?.parse().ok()
}

impl Drop for Bed {
    fn drop(&mut self) {
        // It has ended already in tests that wait for that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Git repository with a working tree.
pub(crate) struct Origin(git2::Repository);

impl Origin {
    pub(crate) fn new(directory: &Path) -> Self {
        let mut options = git2::RepositoryInitOptions::new();
        options.initial_head("main");
        Self(git2::Repository::init_opts(directory, &options).unwrap())
    }

    /// Commits exactly these files and returns the commit.
    pub(crate) fn commit(&self, files: &[(&str, &str)]) -> String {
        let mut index = self.0.index().unwrap();
        index.clear().unwrap();
        for (path, text) in files {
            let file = self.0.workdir().unwrap().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, text).unwrap();
            index.add_path(Path::new(path)).unwrap();
        }
        self.commit_index(index)
    }

    /// Commits exactly these files and a symbolic link, as its path and target.
    pub(crate) fn commit_with_link(&self, files: &[(&str, &str)], (path, target): (&str, &str)) -> String {
        self.commit(files);
        let link = self.0.workdir().unwrap().join(path);
        std::os::unix::fs::symlink(target, link).unwrap();
        let mut index = self.0.index().unwrap();
        index.add_path(Path::new(path)).unwrap();
        self.commit_index(index)
    }

    fn commit_index(&self, mut index: git2::Index) -> String {
        index.write().unwrap();
        let tree = self.0.find_tree(index.write_tree().unwrap()).unwrap();
        let author = git2::Signature::now("t", "t@example.com").unwrap();
        let parent = self.0.head().ok().map(|head| head.peel_to_commit().unwrap());
        let parents: Vec<_> = parent.iter().collect();
        self.0.commit(Some("HEAD"), &author, &author, "change", &tree, &parents).unwrap().to_string()
    }

    pub(crate) fn remote(&self) -> String {
        format!("file://{}", self.0.workdir().unwrap().display())
    }
}

/// The problem in a status' details, with the code it came with.
pub(crate) fn problem(status: &Status) -> (Code, Problem) {
    use prost::Message as _;
    (status.code(), Problem::decode(status.details()).unwrap())
}
