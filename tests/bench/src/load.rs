//! Clients that make one call after the other, each waiting for its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use http::StatusCode;
use tokio::task::JoinSet;

use crate::client::{Answer, Call, Client, Endpoint};
use crate::measure::{MeasuredCollection, Turn};

/// How long a call is made again that the server wants later.
const PATIENCE: Duration = Duration::from_secs(300);
/// The time after which it is.
const LATER: Duration = Duration::from_millis(250);

/// How often each client calls: until `least` is over, and at most `most` times; at least once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) least: Duration,
    pub(crate) most: usize,
}

impl Load {
    /// Until each client has made all of its calls.
    pub(crate) const ALL: Self = Self { least: Duration::MAX, most: usize::MAX };
}

/// One call that succeeded.
#[derive(Debug)]
pub(crate) struct Done {
    /// Which client made it.
    pub(crate) client: usize,
    /// How many it had made before.
    pub(crate) number: usize,
    pub(crate) answer: Answer,
}

/// Lets all clients call at the same time. Each call has to succeed.
///
/// `call` is given the number of the client and how many calls it has made; without a next call the client is done.
///
/// # Errors
///
/// The first one that any client has.
pub(crate) async fn run(
    target: &MeasuredCollection,
    clients: Vec<Client>,
    load: Load,
    call: impl Fn(usize, usize) -> Option<Call> + Clone + Send + 'static,
) -> Result<Turn<Vec<Done>>> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for (number, client) in clients.into_iter().enumerate() {
        let call = call.clone();
        tasks.spawn(one(client, number, load, started, move |count| call(number, count)));
    }
    let (mut latencies, mut output, mut used) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(finished) = tasks.join_next().await {
        let (client, times, done) = finished.context("a client panicked")??;
        used.push(client);
        latencies.extend(times);
        output.extend(done);
    }
    let elapsed = started.elapsed();
    target.put_back(used);
    Ok(Turn { units: latencies.len(), latencies, elapsed, output })
}

/// Makes a call that has to succeed, again while the server answers 429.
///
/// # Errors
///
/// Any other answer, and 429 after minutes.
pub(crate) async fn insist(client: &mut Client, call: &Call) -> Result<Answer> {
    let began = Instant::now();
    loop {
        let answer = client.call(call).await?;
        match answer.status {
            StatusCode::OK | StatusCode::CREATED => return Ok(answer),
            StatusCode::TOO_MANY_REQUESTS if began.elapsed() < PATIENCE => tokio::time::sleep(LATER).await,
            status => bail!("{status} {}", String::from_utf8_lossy(&answer.text()?).trim()),
        }
    }
}

/// Makes calls by their numbers with many connections, and keeps no answer. How long it all took.
///
/// # Errors
///
/// The first one that any client has.
pub(crate) async fn all(
    endpoint: &Endpoint,
    clients: usize,
    number: usize,
    call: impl Fn(usize) -> Call + Clone + Send + 'static,
) -> Result<Duration> {
    let (next, started, mut tasks) = (Arc::new(AtomicUsize::new(0)), Instant::now(), JoinSet::new());
    for _ in 0..clients {
        let (mut client, next, call) = (endpoint.connect().await?, Arc::clone(&next), call.clone());
        tasks.spawn(async move {
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                if turn >= number {
                    return anyhow::Ok(());
                }
                insist(&mut client, &call(turn)).await?;
            }
        });
    }
    while let Some(finished) = tasks.join_next().await {
        finished.context("a client panicked")??;
    }
    Ok(started.elapsed())
}

async fn one(
    mut client: Client,
    number: usize,
    load: Load,
    started: Instant,
    call: impl Fn(usize) -> Option<Call>,
) -> Result<(Client, Vec<Duration>, Vec<Done>)> {
    let (mut latencies, mut done) = (Vec::new(), Vec::new());
    while done.len() < load.most && (done.is_empty() || started.elapsed() < load.least) {
        let Some(call) = call(done.len()) else { break };
        let asked = Instant::now();
        let answer = client.succeed(&call).await?;
        latencies.push(asked.elapsed());
        done.push(Done { client: number, number: done.len(), answer });
    }
    Ok((client, latencies, done))
}
