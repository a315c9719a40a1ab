//! Free ports on loopback for servers that are about to start.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

/// Below the range from which Linux takes ports for outgoing connections, so that no client can
/// sit on a port in the moment before its server binds it.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Finds a port that nothing listens on, different from those in `taken`.
///
/// The search begins anywhere, so that two test beds that start at once hardly meet.
pub(crate) fn free(taken: &[u16]) -> Result<u16> {
    let start = RandomState::new().hash_one(0) % u64::from(COUNT);
    let start = u16::try_from(start).expect("less than COUNT");
    (0..COUNT)
        .map(|step| FIRST + (start + step) % COUNT)
        .find(|port| !taken.contains(port) && is_free(*port))
        .context("no free port on loopback")
}

/// Whether a server could bind `port` now.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Whether something accepts connections on `port`.
pub(crate) fn accepts(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Waits until nothing accepts connections on `port`: threads of a process that was killed may outlive it for a moment, and its
/// sockets with them, which would pass for those of the next one.
pub(crate) fn wait_until_free(port: u16, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    while accepts(port) {
        ensure!(Instant::now() < deadline, "something listens on port {port}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_with_a_listener_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!is_free(port) && accepts(port));
        assert_ne!(free(&[]).unwrap(), port);
    }
}
