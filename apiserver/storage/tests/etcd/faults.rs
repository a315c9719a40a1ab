//! Members that are killed and answers that are lost, while many write: what was acknowledged is there
//! once, what was refused is not, and who follows sees everything once and in order.

use std::{
    collections::{BTreeMap, HashMap},
    net::{Ipv4Addr, SocketAddr},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, future::join_all};
use stoa_machinery::log::{Change, Expect, Key, Log, LogError, Version, Write};
use stoa_storage::etcd::EtcdOptions;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

use super::server::{Etcd, PATIENCE, open, put};

/// What a writer knows of what it wrote.
#[derive(Default)]
struct WriteRecord {
    /// By value: each is written once.
    acknowledged: HashMap<String, Version>,
    unknown: Vec<String>,
    refused: Vec<String>,
}

/// Several writers that count up one key each, and one that all of them share.
struct Load {
    writers: Vec<JoinHandle<WriteRecord>>,
    end: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
}

impl Load {
    fn start(logs: &[Arc<dyn Log>]) -> Self {
        let (end, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writers = logs
            .iter()
            .cycle()
            .take(8)
            .enumerate()
            .map(|(writer, log)| tokio::spawn(write(log.clone(), writer, end.clone(), written.clone())));
        Self { writers: writers.collect(), end, written }
    }

    /// Returns once so many more writes were acknowledged.
    async fn goes_on(&self, count: u64) {
        let goal = self.written.load(SeqCst) + count;
        let waited = timeout(PATIENCE, async {
            while self.written.load(SeqCst) < goal {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        waited.await.expect("writes go on");
    }

    async fn end(self) -> WriteRecord {
        self.end.store(true, SeqCst);
        let mut all = WriteRecord::default();
        for told in join_all(self.writers).await {
            let told = told.unwrap();
            all.acknowledged.extend(told.acknowledged);
            all.unknown.extend(told.unknown);
            all.refused.extend(told.refused);
        }
        all
    }
}

async fn write(log: Arc<dyn Log>, writer: usize, end: Arc<AtomicBool>, written: Arc<AtomicU64>) -> WriteRecord {
    let mut told = WriteRecord::default();
    let own = format!("/own/{writer}");
    let mut last: Option<Version> = None;
    for n in 0_u64.. {
        if end.load(SeqCst) {
            break;
        }
        let value = format!("{writer}-{n}");
        let (key, expect) = if n % 3 == 0 {
            let there = log.read(&Key::new("/shared")).await.ok().flatten();
            ("/shared", there.map_or(Expect::Absent, |entry| Expect::At(entry.version)))
        } else {
            (own.as_str(), last.map_or(Expect::Any, Expect::At))
        };
        match log.append(put(key, expect, value.clone())).await {
            Ok(version) => {
                written.fetch_add(1, SeqCst);
                told.acknowledged.insert(value, version);
                if key == own {
                    last = Some(version);
                }
            }
            Err(LogError::Conflict { found, .. }) => {
                // Nobody else writes it, so a conflict would mean that a write was called failed and was done.
                assert_ne!(key, own, "{found:?} was found where {last:?} was written");
                told.refused.push(value);
            }
            Err(LogError::Unavailable(_)) => {
                told.unknown.push(value);
                last = None;
            }
            Err(error) => panic!("{error}"),
        }
    }
    told
}

/// Checks what was told against the history, which is read twice: as it came to somebody who followed all the
/// time, and afterwards.
async fn check(log: &dyn Log, told: &WriteRecord, followed: Vec<(Version, String)>) {
    let head = log.head().await.unwrap();
    let afterwards = history(log.follow(Version(0)).await.unwrap(), head).await;
    assert_eq!(followed, afterwards, "who followed saw something else");
    assert!(afterwards.is_sorted_by(|a, b| a.0 < b.0));
    let mut versions: BTreeMap<&str, Version> = BTreeMap::new();
    for (version, value) in &afterwards {
        let twice = versions.insert(value, *version);
        assert_eq!(twice, None, "{value} was written twice");
    }
    for (value, version) in &told.acknowledged {
        assert_eq!(versions.remove(value.as_str()), Some(*version), "{value} was acknowledged");
    }
    for value in &told.refused {
        assert!(!versions.contains_key(value.as_str()), "{value} was refused");
    }
    for value in versions.keys() {
        assert!(told.unknown.iter().any(|unknown| unknown == value), "{value} came from nowhere");
    }
}

async fn history(stream: stoa_machinery::log::RecordStream, head: Version) -> Vec<(Version, String)> {
    let mut seen = Vec::new();
    let mut stream = stream;
    while seen.last().is_none_or(|(version, _)| *version < head) {
        let record = timeout(PATIENCE, stream.next()).await.expect("a record in time").unwrap().unwrap();
        let Change::Put(value) = record.change else { panic!("nothing is deleted here") };
        seen.push((record.version, String::from_utf8(value.to_vec()).unwrap()));
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_kill_under_load_loses_and_doubles_nothing() {
    let mut etcd = Etcd::start();
    let logs = [etcd.open().await, etcd.open().await];
    let stream = logs[1].follow(Version(0)).await.unwrap();
    let load = Load::start(&logs);
    for _ in 0..6 {
        load.goes_on(200).await;
        etcd.members[0].kill();
        etcd.members[0].spawn();
        etcd.members[0].wait();
    }
    load.goes_on(200).await;
    let told = load.end().await;
    assert!(told.unknown.is_empty(), "etcd came back in time: {:?}", told.unknown);
    let head = logs[0].head().await.unwrap();
    check(&*logs[0], &told, history(stream, head).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_survives_loss_of_any_member() {
    let mut etcd = Etcd::cluster(3);
    let logs = [etcd.open().await, etcd.open().await];
    let stream = logs[0].follow(Version(0)).await.unwrap();
    let load = Load::start(&logs);
    for member in [0, 1, 2, 0] {
        load.goes_on(100).await;
        etcd.members[member].kill();
        load.goes_on(100).await;
        etcd.members[member].spawn();
        etcd.members[member].wait();
    }
    load.goes_on(100).await;
    let told = load.end().await;
    let head = logs[0].head().await.unwrap();
    check(&*logs[0], &told, history(stream, head).await).await;
}

/// Stands between a log and etcd, and now and then drops a connection after it has let a request through.
struct Proxy {
    address: SocketAddr,
    cuts: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Drops connections after different numbers of bytes, so that they are cut at every stage of a call.
    async fn start(to: u16, allowed: Range<u64>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicU64::new(0));
        let counted = cuts.clone();
        let task = tokio::spawn(async move {
            for number in 0_u64.. {
                let (client, _) = listener.accept().await.unwrap();
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await else { continue };
                let allowed = allowed.start + number * 997 % (allowed.end - allowed.start);
                tokio::spawn(pass(client, server, allowed, counted.clone()));
            }
        });
        Self { address, cuts, task }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes so many bytes of requests on, and all of the answers until then. What comes after that reaches
/// the server for a little while yet, and no answer comes back.
async fn pass(client: TcpStream, server: TcpStream, allowed: u64, cuts: Arc<AtomicU64>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let deaf = Arc::new(AtomicBool::new(false));
    let answers = tokio::spawn({
        let deaf = deaf.clone();
        async move {
            let mut buffer = vec![0; 16 << 10];
            while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
                if !deaf.load(SeqCst) && to_client.write_all(&buffer[..read]).await.is_err() {
                    break;
                }
            }
        }
    });
    let mut buffer = vec![0; 16 << 10];
    let mut passed = 0;
    let mut end = None;
    loop {
        let read = match end {
            None => from_client.read(&mut buffer).await,
            Some(end) => match tokio::time::timeout_at(end, from_client.read(&mut buffer)).await {
                Ok(read) => read,
                Err(_) => break,
            },
        };
        let Ok(read @ 1..) = read else { break };
        passed += u64::try_from(read).unwrap();
        if passed > allowed && end.is_none() {
            cuts.fetch_add(1, SeqCst);
            deaf.store(true, SeqCst);
            end = Some(tokio::time::Instant::now() + Duration::from_millis(30));
        }
        if to_server.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
    answers.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_resolves_unanswered_write_exactly_once() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.members[0].port, 3_000..43_000).await;
    let through = || EtcdOptions { servers: vec![format!("http://{}", proxy.address)], ..etcd.options() };
    let counted = through();
    let metrics = counted.metrics.clone();
    // Two through the proxy, whose guards meet, and one that writes undisturbed.
    let logs = [open(counted).await, open(through()).await, etcd.open().await];
    let stream = logs[0].follow(Version(0)).await.unwrap();
    let load = Load::start(&logs);
    while proxy.cuts.load(SeqCst) < 60 {
        load.goes_on(50).await;
    }
    let told = load.end().await;
    assert!(told.unknown.is_empty(), "etcd was there all the time: {:?}", told.unknown);
    let head = logs[2].head().await.unwrap();
    check(&*logs[2], &told, history(stream, head).await).await;
    let text = prometheus::TextEncoder::new().encode_to_string(&metrics.gather()).unwrap();
    for outcome in ["written", "not_written"] {
        let there = text.contains(&format!("stoa_etcd_writes_resolved_total{{outcome=\"{outcome}\"}}"));
        assert!(there, "nothing was {outcome} whose answer was lost:\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_leave_lease_state_consistent() {
    let etcd = Etcd::start();
    let proxy = Proxy::start(etcd.members[0].port, 300..1_500).await;
    let through = EtcdOptions { servers: vec![format!("http://{}", proxy.address)], ..etcd.options() };
    let (log, other) = (open(through).await, etcd.open().await);
    let (ttl, mut last) = (Duration::from_secs(60), 0);
    for round in 0.. {
        if proxy.cuts.load(SeqCst) >= 60 {
            break;
        }
        let lease = log.acquire("leader", "one", ttl).await.unwrap();
        assert!(lease.token > last, "{} after {last}", lease.token);
        last = lease.token;
        let held = other.acquire("leader", "two", ttl).await;
        assert!(matches!(held, Err(LogError::Held { .. })), "round {round}: {held:?}");
        log.renew(&lease).await.unwrap();
        let write = Write { fence: Some(lease.fence()), ..put("/a", Expect::Any, "1") };
        other.append(write.clone()).await.unwrap();
        // Now and then whoever has it takes it again.
        if round % 3 == 0 {
            continue;
        }
        log.release(&lease).await.unwrap();
        let taken = other.acquire("leader", "two", ttl).await.unwrap();
        assert!(matches!(log.renew(&lease).await, Err(LogError::Fenced { .. })));
        assert!(matches!(other.append(write).await, Err(LogError::Fenced { .. })));
        log.release(&lease).await.unwrap();
        other.renew(&taken).await.unwrap();
        other.release(&taken).await.unwrap();
        last = taken.token;
    }
}

#[tokio::test]
async fn lease_survives_etcd_crash_until_expiry() {
    let mut etcd = Etcd::start();
    let log = etcd.open().await;
    let ttl = Duration::from_secs(10);
    let lease = log.acquire("leader", "one", ttl).await.unwrap();
    etcd.members[0].kill();
    etcd.members[0].spawn();
    log.renew(&lease).await.unwrap();
    let mut write = put("/a", Expect::Any, "1");
    write.fence = Some(lease.fence());
    log.append(write.clone()).await.unwrap();
    let taken = timeout(PATIENCE, async {
        loop {
            match log.acquire("leader", "two", ttl).await {
                Ok(lease) => break lease,
                Err(LogError::Held { .. }) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(error) => panic!("{error}"),
            }
        }
    });
    let taken = taken.await.expect("the lease expires");
    assert!(taken.token > lease.token);
    assert!(matches!(log.append(write).await, Err(LogError::Fenced { .. })));
    assert!(matches!(log.renew(&lease).await, Err(LogError::Fenced { .. })));
}
