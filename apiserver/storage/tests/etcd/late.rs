//! A request that reaches etcd long after its writer has given it up, found out about it, and made it again.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use stoa_machinery::log::{Change, Expect, Key, Version};
use stoa_storage::etcd::EtcdOptions;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
    time::{Instant, timeout},
};

use super::server::{Etcd, PATIENCE, open, put};

/// For how long what comes is held back to be let through later. What comes after that is lost: the client's
/// word that it no longer wants an answer, in particular.
const HELD: Duration = Duration::from_secs(3);

/// The type of HTTP/2's frames in which answers are.
const DATA: u8 = 0;

/// Stands before etcd and can hold back what it is sent.
struct Lock {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
    open: Arc<Notify>,
    /// Hears of every answer that comes after what was held back was let through.
    answered: mpsc::UnboundedReceiver<()>,
}

impl Lock {
    async fn before(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (closed, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (told, answered) = mpsc::unbounded_channel();
        let (is_closed, opens) = (closed.clone(), open.clone());
        tokio::spawn(async move {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
            pass(client, server, is_closed, opens, told).await;
        });
        Self { address, closed, open, answered }
    }

    fn close(&self) {
        self.closed.store(true, SeqCst);
    }

    /// Lets through what was held back, and returns when etcd has answered it.
    async fn open(&mut self) {
        self.open.notify_one();
        timeout(PATIENCE, self.answered.recv()).await.expect("etcd answers what comes late").unwrap();
    }
}

async fn pass(
    client: TcpStream,
    server: TcpStream,
    closed: Arc<AtomicBool>,
    open: Arc<Notify>,
    told: mpsc::UnboundedSender<()>,
) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let late = Arc::new(AtomicBool::new(false));
    let is_late = late.clone();
    tokio::spawn(async move {
        let mut header = [0; 9];
        let mut payload = Vec::new();
        // Frame by frame: the length, in three bytes, is first in a frame's header, then its type.
        while from_server.read_exact(&mut header).await.is_ok() {
            payload.resize(usize::from(header[0]) << 16 | usize::from(header[1]) << 8 | usize::from(header[2]), 0);
            from_server.read_exact(&mut payload).await.unwrap();
            if is_late.load(SeqCst) && header[3] == DATA {
                // The test may be over.
                let _ = told.send(());
            }
            // The client may have hung up, and what etcd has to say is of interest all the same.
            let _ = to_client.write_all(&[&header, &payload[..]].concat()).await;
        }
    });
    let mut buffer = vec![0; 16 << 10];
    let mut held = Vec::new();
    let mut since = None;
    let mut client_is_gone = false;
    loop {
        tokio::select! {
            () = open.notified() => break,
            read = from_client.read(&mut buffer), if !client_is_gone => {
                let Ok(read @ 1..) = read else {
                    client_is_gone = true;
                    continue;
                };
                if closed.load(SeqCst) {
                    if since.get_or_insert_with(Instant::now).elapsed() < HELD {
                        held.extend_from_slice(&buffer[..read]);
                    }
                } else {
                    to_server.write_all(&buffer[..read]).await.unwrap();
                }
            }
        }
    }
    late.store(true, SeqCst);
    to_server.write_all(&held).await.unwrap();
    // The connection stays until the test is over.
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retried_write_ignores_its_late_original() {
    let etcd = Etcd::start();
    let mut lock = Lock::before(etcd.members[0].port).await;
    let mut servers = vec![format!("http://{}", lock.address)];
    servers.extend(etcd.options().servers);
    let log = open(EtcdOptions { servers, ..etcd.options() }).await;
    let first = log.append(put("/a", Expect::Any, "first")).await.unwrap();
    lock.close();
    // It waits in vain, and then asks the other server.
    let second = log.append(put("/a", Expect::Any, "second")).await.unwrap();
    let third = log.append(put("/a", Expect::At(second), "third")).await.unwrap();
    lock.open().await;
    let now = log.read(&Key::new("/a")).await.unwrap().unwrap();
    assert_eq!((now.value.as_ref(), now.version), (b"third".as_slice(), third));
    assert_eq!(log.head().await.unwrap(), third);
    let mut history = log.follow(Version(0)).await.unwrap();
    for (version, value) in [(first, "first"), (second, "second"), (third, "third")] {
        let record = timeout(PATIENCE, history.next()).await.unwrap().unwrap().unwrap();
        assert_eq!((record.version, record.change), (version, Change::Put(value.into())));
    }
}
