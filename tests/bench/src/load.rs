//! Clients that make one call after the other, each waiting for its answer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::task::JoinSet;

use crate::client::{Answer, Call, Client};
use crate::measure::{MeasuredCollection, Turn};

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
