//! Watches: how long until the last watcher knows, and what each event costs.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::client::{Call, Client, Lines};
use crate::measure::{Experiment, MeasuredCollection, Turn};
use crate::scene;

const PATIENCE: Duration = Duration::from_secs(60);

/// One client writes at a steady pace while others watch.
#[derive(Debug)]
pub(crate) struct Watches {
    pub(crate) watchers: usize,
    /// How many watchers have a connection together, as those of one client-go process have with HTTP/2.
    pub(crate) sharing: usize,
    pub(crate) writes: usize,
    pub(crate) interval: Duration,
}

#[derive(Debug, Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    object: Object<'a>,
}

#[derive(Debug, Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    spec: Spec<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    resource_version: &'a str,
}

#[derive(Debug, Deserialize)]
struct Spec<'a> {
    #[serde(alias = "reference")]
    description: &'a str,
}

/// What one watcher heard.
#[derive(Debug)]
struct Heard {
    /// When each write was delivered, by its number.
    deliveries: Vec<Instant>,
    /// All events, also those of what controllers write.
    events: usize,
}

/// Waits for all the writes, in order.
async fn receive(mut lines: Lines, prefix: String, writes: usize) -> Result<Heard> {
    let (mut deliveries, mut version, mut events) = (Vec::with_capacity(writes), 0, 0);
    while deliveries.len() < writes {
        let goes_on = lines
            .next(|line| {
                let now = Instant::now();
                let event: Event<'_> = serde_json::from_slice(line)
                    .with_context(|| format!("a watch says {}", String::from_utf8_lossy(line)))?;
                ensure!(event.r#type == "MODIFIED", "a watch says {}", event.r#type);
                let next: u64 = event.object.metadata.resource_version.parse()?;
                ensure!(next > version, "an event of version {next} follows one of {version}");
                version = next;
                events += 1;
                let Some(number) = event.object.spec.description.strip_prefix(&prefix) else { return Ok(()) };
                let number: usize = number.parse()?;
                // A controller that writes the status of what was written before makes one more event of it.
                if number >= deliveries.len() {
                    ensure!(number == deliveries.len(), "write {number} comes in the place of {}", deliveries.len());
                    deliveries.push(now);
                }
                Ok(())
            })
            .await?;
        ensure!(goes_on || deliveries.len() == writes, "a watch ended after {} of {writes} events", deliveries.len());
    }
    Ok(Heard { deliveries, events })
}

/// What is open before the first write.
#[derive(Debug)]
pub(crate) struct Ready {
    writer: Client,
    /// The watchers' connections.
    clients: Vec<Client>,
    watchers: JoinSet<Result<Heard>>,
}

impl Watches {
    fn prefix(&self, target: &MeasuredCollection, round: usize) -> String {
        format!("Watched by {} x {} from {:?}, turn {round}, write ", self.watchers, self.sharing, target.side)
    }
}

impl Experiment for Watches {
    type Ready = Ready;
    type Output = ();

    async fn prepare(&self, target: &MeasuredCollection, round: usize) -> Result<Ready> {
        let list = target.ask(&Call::get(format!("{}?limit=1", target.collection))).await?;
        let version = list["metadata"]["resourceVersion"].as_str().context("the list has no resourceVersion")?;
        let call = Call::get(format!("{}?watch=true&resourceVersion={version}", target.collection));
        let (mut watchers, mut clients) = (JoinSet::new(), Vec::new());
        while watchers.len() < self.watchers {
            let mut client = target.endpoint.connect().await?;
            let sharing = if client.is_multiplexed() { self.sharing } else { 1 };
            for _ in 0..sharing.min(self.watchers - watchers.len()) {
                let lines = client.stream(&call).await?;
                watchers.spawn(receive(lines, self.prefix(target, round), self.writes));
            }
            clients.push(client);
        }
        let writer = target.clients(1).await?.pop().context("there is no client")?;
        Ok(Ready { writer, clients, watchers })
    }

    async fn work(&self, target: &MeasuredCollection, round: usize, ready: Ready) -> Result<Turn<()>> {
        let Ready { mut writer, clients, watchers } = ready;
        let mut pace = interval(self.interval);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (started, mut written) = (Instant::now(), Vec::with_capacity(self.writes));
        for number in 0..self.writes {
            let description = format!("{}{number}", self.prefix(target, round));
            let call = Call::merge(
                target.object(&scene::name(number)),
                &json!({"spec": scene::describe(target, &description)}),
            );
            pace.tick().await;
            written.push(Instant::now());
            writer.succeed(&call).await?;
        }
        let delivered =
            timeout(PATIENCE, watchers.join_all()).await.context("not every watcher hears of every write")?;
        let elapsed = started.elapsed();
        drop(clients);
        target.put_back(vec![writer]);
        let (mut last, mut units) = (written.clone(), 0);
        for heard in delivered {
            let Heard { deliveries, events } = heard?;
            units += events;
            for (last, delivery) in last.iter_mut().zip(deliveries) {
                *last = (*last).max(delivery);
            }
        }
        let latencies = last.into_iter().zip(written).map(|(last, written)| last - written).collect();
        Ok(Turn { latencies, elapsed, units, output: () })
    }

    async fn check(&self, _: &MeasuredCollection, _: usize, (): ()) -> Result<usize> {
        // The watchers count and compare as they go.
        Ok(0)
    }
}
