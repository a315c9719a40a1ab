//! Stands between two processes, leads where the test says, and can be cut like a cable.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// Passes on connections to a port of this machine. It listens until the test's program ends.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    way: Mutex<Way>,
    /// Told when the cut is over.
    healed: Condvar,
}

#[derive(Debug, Default)]
struct Way {
    /// Nowhere yet.
    to: Option<u16>,
    open: Vec<TcpStream>,
    /// Nothing goes through, and nobody hears of it.
    is_cut: bool,
    /// What is asked for with this in it gets through, and its answer does not.
    lost: Option<String>,
}

impl Proxy {
    /// Starts one that leads nowhere.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), shared: Arc::default() };
        let shared = Arc::clone(&proxy.shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.wait();
                    // Whoever connects tries again.
                    let _ = pass_on(&shared, &client);
                });
            }
        });
        proxy
    }

    /// Where it listens on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Lets connections lead to this port from now on. Those that are open break.
    pub fn lead_to(&self, port: u16) {
        let mut way = self.shared.way.lock().unwrap();
        way.to = Some(port);
        for open in way.open.drain(..) {
            // It may have been closed already.
            let _ = open.shutdown(Shutdown::Both);
        }
    }

    /// Lets nothing through any more, in either direction. Connections stay open, and what is sent is kept, as by a
    /// network that is cut.
    pub fn cut(&self) {
        self.shared.way.lock().unwrap().is_cut = true;
    }

    /// Loses the answers to requests in clear that have this in them, with whatever else is answered on their connections.
    pub fn lose_answers_to(&self, text: &str) {
        self.shared.way.lock().unwrap().lost = Some(text.to_owned());
    }

    /// Lets through what was kept, and what comes.
    pub fn heal(&self) {
        let mut way = self.shared.way.lock().unwrap();
        (way.is_cut, way.lost) = (false, None);
        self.shared.healed.notify_all();
    }
}

impl Shared {
    /// Waits while the way is cut.
    fn wait(&self) {
        drop(self.healed.wait_while(self.way.lock().unwrap(), |way| way.is_cut).unwrap());
    }

    /// Whether the answer to a request is to be lost that begins with these bytes.
    fn loses(&self, request: &[u8]) -> bool {
        let way = self.way.lock().unwrap();
        way.lost.as_ref().is_some_and(|lost| request.windows(lost.len()).any(|bytes| bytes == lost.as_bytes()))
    }

    fn copy(&self, from: &mut TcpStream, to: &mut TcpStream, direction: &Direction) -> io::Result<()> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let count = from.read(&mut bytes)?;
            self.wait();
            if count == 0 {
                return Ok(());
            }
            match direction {
                Direction::Requests(is_lost) if self.loses(&bytes[..count]) => is_lost.store(true, SeqCst),
                Direction::Answers(is_lost) if is_lost.load(SeqCst) => continue,
                Direction::Requests(_) | Direction::Answers(_) => {}
            }
            to.write_all(&bytes[..count])?;
        }
    }
}

/// What goes one way on a connection, and whether its answers are lost from now on.
enum Direction {
    Requests(Arc<AtomicBool>),
    Answers(Arc<AtomicBool>),
}

fn pass_on(shared: &Arc<Shared>, client: &TcpStream) -> io::Result<()> {
    let mut way = shared.way.lock().unwrap();
    let port = way.to.ok_or(io::ErrorKind::ConnectionRefused)?;
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let is_lost = Arc::new(AtomicBool::new(false));
    let directions = [Direction::Requests(Arc::clone(&is_lost)), Direction::Answers(is_lost)];
    for ((from, to), direction) in [(client, &server), (&server, client)].into_iter().zip(directions) {
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        way.open.push(from.try_clone()?);
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            // However it ends, the other end has to hear of it.
            let _ = shared.copy(&mut from, &mut to, &direction);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
