//! Queries over 30 days, and lists of DeploymentStates.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::clusters::{Clusters, ENVIRONMENTS};
use super::row;
use crate::client::{Call, Client};
use crate::lists::next_page;
use crate::measure::{Bench, percentile_ms};

/// The rows of the longest answer.
const LIMIT: usize = 1000;

/// Asks each question several times, and reads all DeploymentStates in pages.
///
/// # Errors
///
/// When a request fails, or an answer lacks rows.
pub(super) async fn measure(bench: &mut Bench, clusters: &Clusters) -> Result<()> {
    let mut client = clusters.endpoint.connect().await?;
    bench.report.section(format!("queries over 30 days of {} transitions", clusters.number * clusters.transitions));
    let [one, other] = ENVIRONMENTS;
    let (host, workload) = (Clusters::host(0), Clusters::workload(0));
    let of_workload = clusters.transitions / 2;
    let newest = LIMIT.min(clusters.number * clusters.transitions);
    for (title, query, least) in [
        ("history, the newest", format!("history/rows?since=30d&limit={LIMIT}"), newest),
        ("history of a host", format!("history/rows?since=30d&host={host}"), clusters.transitions),
        ("lag of a workload", format!("lag/rows?since=30d&environment={one}&workload={workload}"), of_workload),
        ("lag of a day", "lag/rows?since=1d".to_owned(), 1),
        ("differences", format!("differences/rows?environment={one}&with={other}"), 100),
        ("counts", "counts/rows".to_owned(), 1),
    ] {
        let path = clusters.path(&format!("deploymentqueries/{query}"));
        let mut times = Vec::new();
        for _ in 0..bench.size.lists {
            let (rows, time) = rows(&mut client, &path).await.context(title)?;
            ensure!(rows.len() >= least, "{title} has {} rows, not {least}", rows.len());
            if title == "lag of a workload" {
                // Each commit but those of live reports is on all clusters of the workload.
                let (expected, last) = (clusters.like_the_first(), rows.last().context("there are rows")?);
                ensure!(last["reconcilers"] == expected, "the first rollout has {last}, not {expected} reconcilers");
            }
            times.push(time);
        }
        add(bench, title, times);
    }
    states(bench, clusters, &mut client).await.context("deploymentstates")
}

fn add(bench: &mut Bench, title: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    row(bench, title, "p50 ms", percentile_ms(&times, 0.5));
    row(bench, title, "max ms", percentile_ms(&times, 1.0));
}

async fn rows(client: &mut Client, path: &str) -> Result<(Vec<Value>, Duration)> {
    let began = Instant::now();
    let answer = client.succeed(&Call::get(path)).await?;
    let time = began.elapsed();
    let Value::Array(rows) = answer.json()? else { anyhow::bail!("the answer is no table") };
    Ok((rows, time))
}

/// All states in pages. The first page pairs all Reconcilers with their descriptors.
async fn states(bench: &mut Bench, clusters: &Clusters, client: &mut Client) -> Result<()> {
    let page = bench.size.page;
    let first = format!("{}?limit={page}", clusters.path("deploymentstates"));
    let (mut next, mut times, mut found) = (Some(first.clone()), Vec::new(), 0);
    let started = Instant::now();
    while let Some(path) = next.take() {
        let began = Instant::now();
        let answer = client.succeed(&Call::get(path)).await?;
        times.push(began.elapsed());
        next = next_page(&answer)?.map(|token| format!("{first}&continue={token}"));
        found += answer.json()?["items"].as_array().map_or(0, Vec::len);
    }
    let whole = started.elapsed();
    ensure!(found == clusters.number, "there are {found} states of {} clusters", clusters.number);
    add(bench, &format!("page of {page} DeploymentStates"), times);
    row(bench, "all DeploymentStates in pages", "s", whole.as_secs_f64());
    Ok(())
}
