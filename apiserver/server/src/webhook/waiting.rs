//! The connections of which nobody knows yet whether they deliver anything: those that have said nothing, and those whose
//! delivery is still read or checked.
//!
//! One more is always let in. When there are too many then, the address that has most of them loses the one that it has had for
//! longest. So whoever holds connections open pushes out their own, and where one proxy stands before all, a delivery that comes
//! pushes out what has been silent: it says what it has to long before it is the oldest itself.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The places of connections that wait.
#[derive(Debug)]
pub(super) struct WaitingConnections {
    most: usize,
    held: Mutex<Peers>,
}

#[derive(Debug, Default)]
struct Peers {
    /// The number of the next connection: a later one has a higher number.
    next: u64,
    /// By whom and when they were made, and how they are told that their place is lost.
    peers: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
}

impl Peers {
    fn count(&self) -> usize {
        self.peers.values().map(BTreeMap::len).sum()
    }

    /// Takes the place of a connection away, if it has one.
    fn remove(&mut self, peer: IpAddr, number: u64) -> Option<CancellationToken> {
        let of_peer = self.peers.get_mut(&peer)?;
        let lost = of_peer.remove(&number);
        if of_peer.is_empty() {
            self.peers.remove(&peer);
        }
        lost
    }

    /// Takes away the oldest place of whoever has most.
    fn remove_one(&mut self) {
        let oldest =
            self.peers.iter().filter_map(|(peer, of_peer)| Some((of_peer.len(), *of_peer.keys().next()?, *peer)));
        let crowd = oldest.max_by_key(|(count, number, _)| (*count, Reverse(*number)));
        if let Some(lost) = crowd.and_then(|(_, number, peer)| self.remove(peer, number)) {
            lost.cancel();
        }
    }
}

impl WaitingConnections {
    /// So many places at most.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, held: Mutex::default() })
    }

    /// Gives a place to a connection from this address, if need be that of another.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> ConnectionSlot {
        let peer = network(peer);
        let lost = CancellationToken::new();
        let mut held = self.held.lock();
        let number = held.next;
        held.next += 1;
        held.peers.entry(peer).or_default().insert(number, lost.clone());
        if held.count() > self.most {
            held.remove_one();
        }
        drop(held);
        ConnectionSlot { waiting: self.clone(), peer, number, lost }
    }
}

/// The place of a connection that waits, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    waiting: Arc<WaitingConnections>,
    peer: IpAddr,
    number: u64,
    lost: CancellationToken,
}

impl ConnectionSlot {
    /// Ends when another connection gets this place, which none does once it is left.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Leaves the place: the connection is known to deliver something.
    pub(super) fn leave(&self) {
        self.waiting.held.lock().remove(self.peer, self.number);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Whom an address stands for: of IPv6 somebody has at least all of a /64.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        address @ IpAddr::V4(_) => address,
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has these addresses enter one after the other; which of them have lost their places.
    fn check(most: usize, peers: &[&str], expected: &[usize]) {
        let waiting = WaitingConnections::new(most);
        let places: Vec<ConnectionSlot> = peers.iter().map(|peer| waiting.enter(peer.parse().unwrap())).collect();
        let lost: Vec<usize> = (0..peers.len()).filter(|place| places[*place].lost.is_cancelled()).collect();
        assert_eq!(lost, expected, "{peers:?}");
        drop(places);
        assert!(waiting.held.lock().peers.is_empty(), "they are given back");
    }

    #[test]
    fn whoever_has_most_places_loses_the_oldest() {
        let (crowd, other, third) = ("192.0.2.1", "192.0.2.2", "192.0.2.3");
        check(3, &[other, crowd, crowd], &[]);
        check(3, &[other, crowd, crowd, crowd, crowd], &[1, 2]);
        check(3, &[crowd, crowd, other, third], &[0]);
        check(2, &[crowd, crowd, crowd, crowd], &[0, 1]);
        check(2, &[crowd, other, third], &[0]);
    }

    #[test]
    fn limiter_groups_ipv6_networks_and_mapped_ipv4() {
        check(2, &["192.0.2.1", "2001:db8::1", "2001:db8::ffff:1"], &[1]);
        check(2, &["2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:2::2"], &[1]);
        check(2, &["192.0.2.1", "192.0.2.2", "::ffff:192.0.2.2"], &[1]);
    }

    #[test]
    fn place_that_was_left_is_nobodys_to_lose() {
        let waiting = WaitingConnections::new(1);
        let peer = "192.0.2.1".parse().unwrap();
        let first = waiting.enter(peer);
        first.leave();
        let second = waiting.enter(peer);
        assert!(!first.lost.is_cancelled() && !second.lost.is_cancelled());
        drop(first);
        let third = waiting.enter(peer);
        assert!(second.lost.is_cancelled() && !third.lost.is_cancelled());
    }
}
