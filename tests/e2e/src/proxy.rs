//! Stands between two processes, and leads where the test says.

use std::io;
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes on connections to a port of this machine. It listens until the test's program ends.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    way: Arc<Mutex<Way>>,
}

#[derive(Debug, Default)]
struct Way {
    /// Nowhere yet.
    to: Option<u16>,
    open: Vec<TcpStream>,
}

impl Proxy {
    /// Starts one that leads nowhere.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Self { port: listener.local_addr().unwrap().port(), way: Arc::default() };
        let way = Arc::clone(&proxy.way);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // Whoever connects tries again.
                let _ = pass_on(&way, &client);
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
        let mut way = self.way.lock().unwrap();
        way.to = Some(port);
        for open in way.open.drain(..) {
            // It may have been closed already.
            let _ = open.shutdown(Shutdown::Both);
        }
    }
}

fn pass_on(way: &Mutex<Way>, client: &TcpStream) -> io::Result<()> {
    let mut way = way.lock().unwrap();
    let port = way.to.ok_or(io::ErrorKind::ConnectionRefused)?;
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    for (from, to) in [(client, &server), (&server, client)] {
        let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
        way.open.push(from.try_clone()?);
        thread::spawn(move || {
            // However it ends, the other end has to hear of it.
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
