//! Clusters that report their deployments to the hub, and queries over 30 days.
//!
//! Start at [`measure`]. `clusters` has the Reconcilers and what they report, `reports` the clients that report at a rate,
//! `queries` what is asked afterwards. There is no other side: Kalypso's hub writes an object for each report.

mod clusters;
mod queries;
mod reports;

use std::time::Duration;

use anyhow::{Context as _, Result};

use self::clusters::Clusters;
use self::reports::{Phase, Reporters};
use crate::measure::{Bench, Side, percentile_ms};
use crate::process::resident;
use crate::report::{Better, Numbers};
use crate::scene::Scene;

/// The time in which each cluster reports once.
const PERIOD: Duration = Duration::from_secs(300);
/// Connections that report at the same time.
const CONNECTIONS: usize = 32;
/// Deployments of a batch, as an agent or a gateway sends it.
const BATCH: usize = 100;

/// Measures reports, reads meanwhile, and queries.
///
/// # Errors
///
/// When a request fails, or an answer is wrong.
pub(crate) async fn measure(bench: &mut Bench, scene: &Scene) -> Result<()> {
    let clusters = Clusters::new(bench, scene);
    let number = clusters.number;
    bench.settle().await?;
    let empty = megabytes(bench)?;
    let created = clusters.create().await.context("reconcilers")?;
    bench.settle().await?;
    let full = megabytes(bench)?;
    let recorded = clusters.report_history().await.context("history")?;
    // The archive takes the transitions over meanwhile.
    bench.settle().await?;
    bench.report.section(format!("{number} clusters at the hub"));
    bench.report.note(&format!(
        "hub: {} transitions of each cluster in 30 days, reported late; clients and servers share the cores",
        clusters.transitions
    ));
    row(bench, "create a Reconciler", "ms", created.as_secs_f64() * 1e3 / number as f64);
    let transitions = (number * clusters.transitions) as f64;
    bench.report.row("late transitions", "per second", Better::More, of_stoa(transitions / recorded.as_secs_f64()));
    row(bench, "a Reconciler in memory", "kB", (full - empty) * 1e3 / number as f64);

    let rate = number as f64 / PERIOD.as_secs_f64();
    let phases = [
        ("single reports at their rate", Phase { batch: 1, rate: Some(rate) }),
        ("batches of 100 at their rate", Phase { batch: BATCH, rate: Some(rate / BATCH as f64) }),
        ("single reports, without a pause", Phase { batch: 1, rate: None }),
        ("batches of 100, without a pause", Phase { batch: BATCH, rate: None }),
    ];
    let mut reporters = Reporters::connect(&clusters, CONNECTIONS).await?;
    for (title, phase) in phases {
        bench.settle().await?;
        let before = bench.bed.servers.cpu()?;
        let measured = reporters.run(&clusters, phase, bench.size.reporting).await.context(title)?;
        let [used, ..] = (bench.bed.servers.cpu()? - before).of_servers();
        row(bench, title, "p50 ms", percentile_ms(&measured.reports, 0.5));
        row(bench, title, "p99 ms", percentile_ms(&measured.reports, 0.99));
        row(bench, title, "get p50 ms", percentile_ms(&measured.gets, 0.5));
        row(bench, title, "get p99 ms", percentile_ms(&measured.gets, 0.99));
        let seconds = measured.elapsed.as_secs_f64();
        let per_second = measured.deployments as f64 / seconds;
        bench.report.row(title, "per second", Better::More, of_stoa(per_second));
        row(bench, title, "CPU ms/s", used.as_secs_f64() * 1e3 / seconds);
    }
    bench.settle().await?;
    let reported = megabytes(bench)?;
    queries::measure(bench, &clusters).await.context("queries")?;
    let asked = megabytes(bench)?;
    bench.report.section("memory of stoa-apiserver with the hub");
    for (title, number) in [("at first", empty), ("with the Reconcilers", full), ("with their reports", reported)] {
        row(bench, title, "MB", number);
    }
    row(bench, "after the queries", "MB", asked);
    Ok(())
}

fn of_stoa(number: f64) -> Numbers {
    [(Side::Stoa, number)].into_iter().collect()
}

/// Adds a number of which less is better.
fn row(bench: &mut Bench, title: &str, measure: &'static str, number: f64) {
    bench.report.row(title, measure, Better::Less, of_stoa(number));
}

fn megabytes(bench: &Bench) -> Result<f64> {
    Ok(resident(bench.bed.servers.stoa)? as f64 / 1e6)
}
