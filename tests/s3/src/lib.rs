//! A real S3 server for tests ([`S3Server`]), what makes it one of Alibaba Cloud OSS ([`OssServer`]), and a proxy before
//! either that loses, delays and refuses ([`Faults`]).
//!
//! The server is versitygw, which keeps buckets as folders. `STOA_TEST_S3` names the program; `hack/test` builds it from
//! the Go module in this folder and sets it.

#![expect(clippy::unwrap_used, reason = "this is for tests, where a panic is how they fail")]

mod faults;
mod oss;
mod proxy;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering::SeqCst},
    time::{Duration, Instant},
};

use tempfile::TempDir;

pub use self::{
    faults::{Fault, Faults},
    oss::OssServer,
};

/// The region that the server takes requests for.
pub const REGION: &str = "eu-test-1";
const PATIENCE: Duration = Duration::from_secs(30);

/// An S3 server on loopback, with one account; ends with the value.
#[derive(Debug)]
pub struct S3Server {
    folder: TempDir,
    port: u16,
    process: Option<Child>,
    flags: Vec<String>,
    /// The account's key.
    pub access_key: String,
    /// What it signs with.
    pub secret_key: String,
}

impl S3Server {
    /// The program, where tests are to run with one.
    pub fn program() -> Option<PathBuf> {
        std::env::var_os("STOA_TEST_S3").map(PathBuf::from)
    }

    /// Starts it with a bucket.
    pub fn start(bucket: &str) -> Self {
        Self::start_with(bucket, |_| Vec::new())
    }

    /// The same with other flags, which may depend on its port.
    pub fn start_with(bucket: &str, flags: impl FnOnce(u16) -> Vec<String>) -> Self {
        let folder = TempDir::new().unwrap();
        let (access_key, secret_key) = ("first-key".to_owned(), "first-secret-of-the-tests".to_owned());
        let port = free_port();
        let mut server = Self { folder, port, process: None, flags: flags(port), access_key, secret_key };
        server.create_bucket(bucket);
        server.spawn();
        server
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Where it listens on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder that a bucket is.
    pub fn bucket(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a bucket, without asking the server.
    pub fn create_bucket(&self, name: &str) {
        fs::create_dir_all(self.bucket(name)).unwrap();
    }

    /// Ends it, as a crash does.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts it again where it was.
    pub fn resume(&mut self) {
        self.spawn();
    }

    /// Exchanges the account: the key that there was opens nothing any more.
    pub fn exchange_key(&mut self, access_key: &str, secret_key: &str) {
        self.stop();
        (self.access_key, self.secret_key) = (access_key.to_owned(), secret_key.to_owned());
        self.spawn();
    }

    fn spawn(&mut self) {
        let program = Self::program().expect("STOA_TEST_S3 names the program versitygw");
        let process = Command::new(program)
            .args(["--quiet", "--region", REGION])
            .arg(format!("--port=127.0.0.1:{}", self.port))
            .args(&self.flags)
            .env("ROOT_ACCESS_KEY", &self.access_key)
            .env("ROOT_SECRET_KEY", &self.secret_key)
            .arg("posix")
            .arg(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(process);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "the S3 server does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A port that nothing listens on, below the range of outgoing connections, so that none takes it meanwhile.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 2_000).unwrap();
    (0..2_000)
        .map(|_| 18_000 + (start + NEXT.fetch_add(1, SeqCst)) % 2_000)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("one of two thousand ports is free")
}
