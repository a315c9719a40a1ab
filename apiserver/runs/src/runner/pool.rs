//! The runners that there are, how each of them is, and which is asked next.
//!
//! A call goes to the runner with the fewest calls under way, of which large ones weigh as several, among those that say that
//! they take any (`grpc.health.v1`). What a health check says may be old, so that a runner is left for another when a call finds it busy
//! or away; and where no runner is known to be well, all are tried. A call in whose middle two went away is made no more, or one
//! where that happened to its caller before: what it asks for may be what ends them.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use stoa_proto::{function_runner_client::FunctionRunnerClient, function_runner_server::SERVICE_NAME};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tonic::{
    Code, Status,
    transport::{Channel, ClientTlsConfig, Error},
};
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient};

use super::{
    addresses::Address,
    metrics::Metrics,
    verdict::{self, Verdict},
};

/// The largest message either side takes, in bytes: a Spec with everything in it.
pub(super) const MAX_MESSAGE: usize = 256 << 20;
/// How often every runner is asked how it is, and how long its answer may take.
const CHECK: Duration = Duration::from_secs(2);
/// How often names are resolved.
const RESOLVE: Duration = Duration::from_secs(10);
/// How soon all that is done when a call found a runner away.
const DOUBT: Duration = Duration::from_millis(200);
/// So many runners are named that cannot be reached.
const NAMED: usize = 3;
/// So many runners at most may go away in the middle of a call that is made again at once, unless its caller says otherwise.
pub(crate) const BREAKS: usize = 2;
/// Whoever did not say for so long that it takes calls was not there when a connection to it broke: nobody believes its
/// certificate, or it none of ours, which may show only after the call was sent.
const ABSENT: Duration = Duration::from_secs(60);
/// How long a call waits until the names are resolved for the first time.
const PATIENCE: Duration = Duration::from_secs(6);

/// How a runner is, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Availability {
    /// It says that it takes calls.
    Serving,
    /// Nobody has asked yet.
    Unknown,
    /// It takes none, or cannot be asked.
    Away,
}

/// One runner, at one address.
#[derive(Debug)]
struct Member {
    /// Which name it was found by.
    address: usize,
    to: SocketAddr,
    /// The address as metrics and logs have it.
    name: String,
    /// The same for people, with the name that it was found by.
    place: String,
    channel: RwLock<Channel>,
    standing: Mutex<Availability>,
    /// When it last said that it takes calls.
    served: Mutex<Option<Instant>>,
    /// Whether the name has better addresses of another family: each runner is asked at one address.
    is_alternative: AtomicBool,
    /// How many calls of ours are under way, by their weights.
    calls: AtomicUsize,
    /// Which process it was when it last said so.
    process: Mutex<Option<String>>,
    doubted: Arc<Notify>,
    metrics: Metrics,
}

impl Member {
    fn channel(&self) -> Channel {
        self.channel.read().clone()
    }

    fn set(&self, standing: Availability, why: &str) {
        if standing == Availability::Serving {
            *self.served.lock() = Some(Instant::now());
        }
        let before = std::mem::replace(&mut *self.standing.lock(), standing);
        self.metrics.set_up(&self.name, standing == Availability::Serving);
        if before == standing {
            return;
        }
        match standing {
            Availability::Serving => tracing::info!(runner = self.name, "a function-runner takes calls"),
            Availability::Away => tracing::warn!(runner = self.name, why, "a function-runner takes no calls"),
            Availability::Unknown => {}
        }
    }

    /// Asks it how it is.
    async fn check(&self) {
        let request = HealthCheckRequest { service: SERVICE_NAME.to_owned() };
        match tokio::time::timeout(CHECK, HealthClient::new(self.channel()).check(request)).await {
            Ok(Ok(answer)) if answer.get_ref().status() == ServingStatus::Serving => {
                self.set(Availability::Serving, "")
            }
            Ok(Ok(_)) => self.set(Availability::Away, "it is shutting down"),
            // It is of a version that does not tell, and it is there.
            Ok(Err(status)) if matches!(status.code(), Code::Unimplemented | Code::NotFound) => {
                self.set(Availability::Serving, "");
            }
            Ok(Err(status)) => self.set(Availability::Away, status.message()),
            Err(_) => self.set(Availability::Away, "it does not answer"),
        }
    }

    /// What it is chosen by, the least first. `turn` is another number for every member and every call.
    fn order(&self, last: Option<&str>, turn: usize) -> impl Ord + use<> {
        let is_last = last.is_some() && self.process.lock().as_deref() == last;
        let is_alternative = self.is_alternative.load(Relaxed);
        (*self.standing.lock(), !is_last, is_alternative, self.calls.load(Relaxed), turn)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.metrics.forget(&self.name);
    }
}

#[derive(Debug)]
pub(super) struct Pool {
    addresses: Vec<Address>,
    tls: RwLock<Option<ClientTlsConfig>>,
    members: RwLock<Vec<Arc<Member>>>,
    /// Whether the names were resolved yet.
    is_known: watch::Sender<bool>,
    /// Set when a call found a runner away.
    doubted: Arc<Notify>,
    turns: AtomicUsize,
    metrics: Metrics,
}

impl Pool {
    /// # Errors
    ///
    /// When there is no address, or the certificates cannot be used.
    pub(super) fn new(
        addresses: Vec<Address>,
        tls: Option<ClientTlsConfig>,
        metrics: Metrics,
    ) -> anyhow::Result<Arc<Self>> {
        anyhow::ensure!(!addresses.is_empty(), "there is no --runner");
        for address in &addresses {
            address.channel(SocketAddr::from(([0, 0, 0, 0], 0)), tls.as_ref())?;
        }
        Ok(Arc::new(Self {
            addresses,
            tls: RwLock::new(tls),
            members: RwLock::default(),
            is_known: watch::Sender::new(false),
            doubted: Arc::default(),
            turns: AtomicUsize::default(),
            metrics,
        }))
    }

    pub(super) fn addresses(&self) -> String {
        self.addresses.iter().map(Address::url).collect::<Vec<_>>().join(",")
    }

    /// Makes new connections with other certificates; calls under way keep theirs.
    pub(super) fn set_tls(&self, tls: ClientTlsConfig) -> Result<(), Error> {
        // Kept while the channels are made: a member that is found meanwhile is to have the same.
        let mut current = self.tls.write();
        self.addresses[0].channel(SocketAddr::from(([0, 0, 0, 0], 0)), Some(&tls))?;
        for member in &*self.members.read() {
            *member.channel.write() = self.addresses[member.address].channel(member.to, Some(&tls))?;
        }
        *current = Some(tls);
        drop(current);
        self.doubted.notify_one();
        Ok(())
    }

    async fn resolve(&self) {
        self.found(join_all(self.addresses.iter().map(Address::resolve)).await);
    }

    /// Takes note of what the names stand for. The runners of a name that cannot be resolved now stay.
    pub(super) fn found(&self, found: Vec<io::Result<Vec<SocketAddr>>>) {
        let tls = self.tls.read();
        let mut members = self.members.write();
        let mut now: Vec<Arc<Member>> = Vec::new();
        for (index, (address, found)) in self.addresses.iter().zip(found).enumerate() {
            let before = members.iter().filter(|member| member.address == index);
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(%error, address = address.url(), "the function-runners cannot be looked up");
                    now.extend(before.cloned());
                    continue;
                }
            };
            let preferred = found.first().map(SocketAddr::is_ipv4);
            for to in found {
                if now.iter().any(|other| other.to == to && self.addresses[other.address] == *address) {
                    continue;
                }
                let member = match before.clone().find(|member| member.to == to) {
                    Some(member) => member.clone(),
                    None => match address.channel(to, tls.as_ref()) {
                        Ok(channel) => Arc::new(self.member(index, to, channel)),
                        Err(error) => {
                            tracing::error!(%error, %to, "there can be no connection to a function-runner");
                            continue;
                        }
                    },
                };
                member.is_alternative.store(preferred != Some(to.is_ipv4()), Relaxed);
                now.push(member);
            }
        }
        *members = now;
        self.is_known.send_replace(true);
    }

    fn member(&self, address: usize, to: SocketAddr, channel: Channel) -> Member {
        let (name, url) = (to.to_string(), self.addresses[address].url());
        self.metrics.know(&name);
        let place = if url.ends_with(&format!("//{name}")) { url } else { format!("{url} ({name})") };
        Member {
            address,
            to,
            name,
            place,
            channel: RwLock::new(channel),
            standing: Mutex::new(Availability::Unknown),
            served: Mutex::default(),
            is_alternative: AtomicBool::default(),
            calls: AtomicUsize::default(),
            process: Mutex::default(),
            doubted: self.doubted.clone(),
            metrics: self.metrics.clone(),
        }
    }

    pub(super) fn clients(&self) -> Vec<FunctionRunnerClient<Channel>> {
        let members = self.members.read();
        let there = members.iter().filter(|member| *member.standing.lock() != Availability::Away);
        there.map(|member| FunctionRunnerClient::new(member.channel())).collect()
    }

    /// Looks for a runner to make a call. Of two that are equally well, the process `last` is chosen.
    pub(super) fn search<'p>(&'p self, method: &'static str, last: Option<&'p str>) -> Search<'p> {
        let (tried, unreached, broken) = (Vec::new(), Vec::new(), Vec::new());
        let (weight, breaks) = (1, BREAKS);
        Search { pool: self, method, last, weight, breaks, tried, busy: None, away: None, unreached, broken }
    }
}

#[cfg(test)]
impl Pool {
    pub(super) fn names(&self) -> Vec<String> {
        self.members.read().iter().map(|member| member.name.clone()).collect()
    }

    pub(super) fn told(&self) -> Vec<String> {
        self.metrics.told()
    }

    pub(super) fn calls(&self) -> Vec<usize> {
        self.members.read().iter().map(|member| member.calls.load(Relaxed)).collect()
    }

    /// At how many addresses there is nobody, as those find who call.
    pub(super) async fn unconnected(&self) -> usize {
        let members = self.members.read().clone();
        let asked = members.iter().map(|member| async move {
            let asked = HealthClient::new(member.channel()).check(HealthCheckRequest::default()).await;
            asked.is_err_and(|status| status.code() == Code::Unavailable)
        });
        join_all(asked).await.into_iter().filter(|is_unconnected| *is_unconnected).count()
    }

    pub(super) fn serving(&self) -> usize {
        self.members.read().iter().filter(|member| *member.standing.lock() == Availability::Serving).count()
    }
}

/// Keeps track of the runners for as long as it is polled.
pub(super) async fn watch_over(pool: Arc<Pool>) {
    let mut is_doubted = true;
    let mut resolved = Instant::now();
    loop {
        if is_doubted || resolved.elapsed() >= RESOLVE {
            pool.resolve().await;
            resolved = Instant::now();
        }
        let members = pool.members.read().clone();
        join_all(members.iter().map(|member| member.check())).await;
        drop(members);
        is_doubted = tokio::select! {
            () = tokio::time::sleep(CHECK) => false,
            () = pool.doubted.notified() => {
                tokio::time::sleep(DOUBT).await;
                true
            }
        };
    }
}

/// One call's way from runner to runner.
pub(super) struct Search<'p> {
    pool: &'p Pool,
    method: &'static str,
    last: Option<&'p str>,
    /// As how many calls it counts.
    weight: usize,
    /// How many may go away in the middle of it.
    breaks: usize,
    tried: Vec<Arc<Member>>,
    /// What a runner said that had no time.
    busy: Option<Status>,
    /// What a runner said that is about to end.
    away: Option<Status>,
    /// Which could not be reached, and why.
    unreached: Vec<String>,
    /// Which went away in the middle of the call, and how.
    broken: Vec<String>,
}

impl Search<'_> {
    /// The same for a call that counts as so many.
    pub(super) fn weighing(self, weight: usize) -> Self {
        Self { weight, ..self }
    }

    /// The same for a call in whose middle so many runners may go away at most.
    pub(super) fn ending(self, breaks: usize) -> Self {
        Self { breaks, ..self }
    }

    /// The best runner that was not tried yet.
    pub(super) async fn next(&mut self) -> Option<Lent> {
        let mut is_known = self.pool.is_known.subscribe();
        // Without an answer there are no members.
        let _ = tokio::time::timeout(PATIENCE, is_known.wait_for(|is_known| *is_known)).await;
        // One choice at a time, so that the next one sees this one's call.
        let members = self.pool.members.write();
        let turn = self.pool.turns.fetch_add(1, Relaxed);
        let count = members.len().max(1);
        let left =
            members.iter().enumerate().filter(|(_, member)| !self.tried.iter().any(|it| Arc::ptr_eq(it, member)));
        let (_, best) = left.min_by_key(|(at, member)| member.order(self.last, at.wrapping_add(turn) % count))?;
        self.tried.push(best.clone());
        Some(Lent::new(best.clone(), self.method, self.weight))
    }

    /// Takes note of a call that failed.
    ///
    /// # Errors
    ///
    /// The status, when no other runner would answer otherwise, or none is to be asked.
    pub(super) fn failed(&mut self, mut lent: Lent, status: Status) -> Result<(), Status> {
        match lent.failed(&status) {
            Verdict::Answer => return Err(status),
            Verdict::Busy => self.busy = Some(status),
            Verdict::Away if verdict::is_of_runner(&status) => self.away = Some(status),
            Verdict::Away if verdict::is_in_flight(&status) && lent.was_there() => {
                self.broken.push(lent.went_away(&status));
                if self.broken.len() >= self.breaks {
                    return Err(self.broke());
                }
            }
            Verdict::Away => {
                self.unreached.push(format!(
                    "the function-runner at {} cannot be reached: {}",
                    lent.place(),
                    why(&status)
                ));
            }
        }
        Ok(())
    }

    /// Says of the call that it broke in flight.
    fn broke(&self) -> Status {
        verdict::broke(self.broken.join("; "), self.broken.len())
    }

    /// Why there is no runner left to try.
    pub(super) fn verdict(self) -> Status {
        if !self.broken.is_empty() {
            return self.broke();
        }
        let unreached = || match self.unreached.as_slice() {
            [] => format!("no function-runner is known at {}", self.pool.addresses()),
            all => {
                let more = all.len().saturating_sub(NAMED);
                let more = if more > 0 { format!("; {more} others cannot be reached either") } else { String::new() };
                all[..all.len().min(NAMED)].join("; ") + &more
            }
        };
        self.busy.or(self.away).unwrap_or_else(|| Status::unavailable(unreached()))
    }
}

/// What a status says, or else what its code means.
pub(super) fn why(status: &Status) -> &str {
    if status.message().is_empty() { status.code().description() } else { status.message() }
}

/// A runner that has a call to make. The call counts as its own until this is dropped.
#[derive(Debug)]
pub(crate) struct Lent {
    member: Arc<Member>,
    method: &'static str,
    weight: usize,
    /// How it ended: if nothing else is known, whoever waited went away.
    code: Code,
}

impl Lent {
    fn new(member: Arc<Member>, method: &'static str, weight: usize) -> Self {
        member.calls.fetch_add(weight, Relaxed);
        member.metrics.began(&member.name);
        Self { member, method, weight, code: Code::Cancelled }
    }

    pub(crate) fn name(&self) -> &str {
        &self.member.name
    }

    pub(super) fn client(&self) -> FunctionRunnerClient<Channel> {
        FunctionRunnerClient::new(self.channel())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
    }

    pub(super) fn channel(&self) -> Channel {
        self.member.channel()
    }

    pub(super) fn is_process(&self, instance: &str) {
        *self.member.process.lock() = Some(instance.to_owned());
    }

    pub(crate) fn answered(&mut self) {
        self.code = Code::Ok;
    }

    /// Takes note of how the call ended; a runner that is away gets no other until it is known to be back.
    pub(super) fn failed(&mut self, status: &Status) -> Verdict {
        self.code = status.code();
        let verdict = verdict::of(status);
        if verdict == Verdict::Away {
            self.member.set(Availability::Away, status.message());
            self.member.doubted.notify_one();
        }
        verdict
    }

    /// Which runner it is, for people.
    fn place(&self) -> &str {
        &self.member.place
    }

    /// Whether it was there lately, as far as it says so itself.
    fn was_there(&self) -> bool {
        self.member.served.lock().is_some_and(|at| at.elapsed() < ABSENT)
    }

    /// How it ended a call that it had begun with.
    fn went_away(&self, status: &Status) -> String {
        format!("the function-runner at {} disconnected: {}", self.place(), why(status))
    }

    /// Takes note of how a conversation ended that had begun; what is said of it.
    pub(crate) fn broke(&mut self, status: Status) -> Status {
        match self.failed(&status) {
            Verdict::Away if !verdict::is_of_runner(&status) => {
                verdict::broke(self.went_away(&status), usize::from(verdict::is_in_flight(&status)))
            }
            _ => status,
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.member.calls.fetch_sub(self.weight, Relaxed);
        self.member.metrics.ended(&self.member.name, self.method, self.code);
    }
}
