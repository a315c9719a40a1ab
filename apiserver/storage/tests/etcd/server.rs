//! etcd processes for tests: one member or several, on loopback, which end with their value.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use stoa_machinery::log::{Change, Expect, Key, Log, Origin, Write};
use stoa_pki::{CertificateAuthority, CertificateRequest, IssuedCertificate, Usage};
use stoa_storage::{
    EtcdLog,
    etcd::{EtcdOptions, EtcdTls},
};
use tempfile::TempDir;

/// How long a start, or anything else that has to happen, may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A port that nothing listens on, below the range of outgoing connections, so that none takes it meanwhile.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 9_000).unwrap();
    (0..10_000)
        .map(|_| 20_000 + (start + NEXT.fetch_add(1, SeqCst)) % 10_000)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .expect("one of ten thousand ports is free")
}

/// One member of an etcd cluster.
pub(crate) struct Member {
    directory: TempDir,
    pub(crate) port: u16,
    peer_port: u16,
    name: String,
    cluster: String,
    tls: Vec<String>,
    /// How large the database may be, in bytes.
    quota: Option<u64>,
    process: Option<Child>,
}

impl Member {
    fn new(name: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let (port, peer_port) = (free_port(), free_port());
        let (name, cluster) = (name.to_owned(), String::new());
        Self { directory, port, peer_port, name, cluster, tls: Vec::new(), quota: None, process: None }
    }

    fn peer(&self) -> String {
        format!("{}=http://127.0.0.1:{}", self.name, self.peer_port)
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_empty() { "http" } else { "https" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    pub(crate) fn spawn(&mut self) {
        let program = std::env::var_os("STOA_TEST_ETCD").expect("STOA_TEST_ETCD names the program etcd");
        let client = self.url();
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let process = Command::new(program)
            .arg(format!("--name={}", self.name))
            .arg(format!("--data-dir={}", self.directory.path().join("data").display()))
            .arg(format!("--listen-client-urls={client}"))
            .arg(format!("--advertise-client-urls={client}"))
            .arg(format!("--listen-peer-urls={peer}"))
            .arg(format!("--initial-advertise-peer-urls={peer}"))
            .arg(format!("--initial-cluster={}", self.cluster))
            // A leader is found soon, and leases may be as short as a second.
            .args(["--heartbeat-interval=20", "--election-timeout=200", "--log-level=error"])
            // What a process has written outlives it; only the machine's end would take it away.
            .arg("--unsafe-no-fsync")
            .args(&self.tls)
            .args(self.quota.map(|bytes| format!("--quota-backend-bytes={bytes}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.process = Some(process);
    }

    pub(crate) fn wait(&self) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "etcd does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Posts JSON to its gateway, for what the log has no call for, and returns the answer.
    pub(crate) fn post(&self, path: &str, body: &str) -> String {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        let length = body.len();
        write!(
            connection,
            "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        answer
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An etcd cluster.
pub(crate) struct Etcd {
    pub(crate) members: Vec<Member>,
    pub(crate) tls: EtcdTls,
}

impl Etcd {
    pub(crate) fn start() -> Self {
        Self::cluster(1)
    }

    /// One member whose database has this quota.
    pub(crate) fn with_quota(bytes: u64) -> Self {
        let mut member = Member::new("m0");
        member.quota = Some(bytes);
        Self::launch(vec![member], EtcdTls::default())
    }

    pub(crate) fn cluster(size: usize) -> Self {
        Self::launch((0..size).map(|n| Member::new(&format!("m{n}"))).collect(), EtcdTls::default())
    }

    fn launch(mut members: Vec<Member>, tls: EtcdTls) -> Self {
        let cluster: Vec<String> = members.iter().map(Member::peer).collect();
        for member in &mut members {
            member.cluster = cluster.join(",");
            member.spawn();
        }
        members.iter().for_each(Member::wait);
        Self { members, tls }
    }

    /// One member that takes only clients with a certificate; also returns the authority.
    pub(crate) fn with_tls() -> (Self, CertificateAuthority) {
        let mut member = Member::new("m0");
        let folder = member.directory.path().to_owned();
        let ca = CertificateAuthority::load_or_create(&folder, "ca", "etcd").unwrap();
        let server = CertificateRequest::new("etcd", Usage::Both).loopback();
        ca.issue(&server).unwrap().write(&folder, "etcd").unwrap();
        let path = |name: &str| -> PathBuf { folder.join(name) };
        member.tls = vec![
            format!("--cert-file={}", path("etcd.crt").display()),
            format!("--key-file={}", path("etcd.key").display()),
            format!("--trusted-ca-file={}", path("ca.crt").display()),
            "--client-cert-auth=true".to_owned(),
        ];
        let client = ca.issue(&CertificateRequest::client("stoa")).unwrap();
        let tls = tls(ca.certificate_pem(), Some(client));
        (Self::launch(vec![member], tls), ca)
    }

    pub(crate) fn options(&self) -> EtcdOptions {
        let servers = self.members.iter().map(Member::url).collect();
        EtcdOptions { tls: self.tls.clone(), patience: PATIENCE, ..EtcdOptions::new(servers, "/stoa") }
    }

    pub(crate) async fn open(&self) -> Arc<dyn Log> {
        open(self.options()).await
    }
}

pub(crate) async fn open(options: EtcdOptions) -> Arc<dyn Log> {
    Arc::new(EtcdLog::open(options).await.unwrap())
}

pub(crate) fn tls(ca: &str, client: Option<IssuedCertificate>) -> EtcdTls {
    // Whichever test comes first installs it for all.
    EtcdTls { ca_pem: Some(ca.to_owned()), client_pem: client.map(|client| (client.certificate_pem, client.key_pem)) }
}

/// A write of a text.
pub(crate) fn put(key: &str, expect: Expect, value: impl Into<Bytes>) -> Write {
    let origin = Origin { user: "ann".into(), verb: "update".into(), message: String::new() };
    Write { key: Key::new(key), expect, change: Change::Put(value.into()), fence: None, origin }
}
