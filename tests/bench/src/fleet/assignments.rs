//! Pages of assignments, whose cluster types and targets are stored objects.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::generator::{Dimensions, cluster_type};
use super::{ms, of_stoa};
use crate::client::Call;
use crate::lists::next_page;
use crate::load;
use crate::measure::{Bench, MeasuredCollection, Side, percentile_ms};
use crate::process::resident;
use crate::report::Better;
use crate::scene::Scene;
use crate::size::MANY_CLIENTS;

/// The most pages that are read.
const MOST_PAGES: usize = 200;
const API_VERSION: &str = "scheduler.kalypso.io/v1alpha1";

fn object(kind: &str, name: &str, labels: &Value, spec: &Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, "labels": labels}, "spec": spec})
}

fn target(number: usize, environment: &str) -> Value {
    let (name, workload) = (format!("app-{number:03}-main"), format!("app-{number:03}"));
    let manifests = json!({"repo": format!("https://git.example.com/{workload}"), "branch": "prod", "path": "main"});
    let spec = json!({"environment": environment, "manifests": manifests});
    object("DeploymentTarget", &name, &json!({"workload": workload}), &spec)
}

/// Creates a fleet of stored objects, and measures pages and a get of its assignments.
///
/// # Errors
///
/// When a request fails, or an answer is wrong.
pub(super) async fn measure(bench: &mut Bench, scene: &Scene) -> Result<()> {
    let dimensions = Dimensions { cluster_types: bench.size.stored_cluster_types, workloads: bench.size.workloads };
    let namespace = scene.name.clone();
    let path = |plural: &str| format!("/apis/{API_VERSION}/namespaces/{namespace}/{plural}");
    let before = resident(bench.bed.servers.stoa)?;
    let endpoint = bench.bed.stoa.clone();
    let (types, targets, environment) = (path("clustertypes"), path("deploymenttargets"), namespace.clone());
    let create_type = move |number: usize| {
        let spec = json!({"reconciler": "flux", "namespaceService": "default"});
        Call::post(types.clone(), &object("ClusterType", &cluster_type(number), &json!({}), &spec))
    };
    let create_target = move |number: usize| Call::post(targets.clone(), &target(number, &environment));
    let created = load::all(&endpoint, MANY_CLIENTS, dimensions.cluster_types, create_type).await?;
    load::all(&endpoint, MANY_CLIENTS, dimensions.workloads, create_target).await?;
    let assignments = MeasuredCollection::new(Side::Stoa, endpoint, path("assignments"));
    let any = json!({"labelSelector": {}});
    let spec = json!({"deploymentTargetSelector": any, "clusterTypeSelector": any});
    let policy = object("SchedulingPolicy", "all", &json!({}), &spec);
    assignments.ask(&Call::post(path("schedulingpolicies"), &policy)).await?;
    bench.settle().await?;

    let (page, number) = (bench.size.page, dimensions.assignments());
    let first = format!("{}?limit={page}", assignments.collection);
    let mut clients = assignments.clients(1).await?;
    let (mut next, mut times, mut last, mut found) = (Some(first.clone()), Vec::new(), String::new(), 0);
    while let Some(path) = next.take().filter(|_| times.len() < MOST_PAGES) {
        let began = Instant::now();
        let answer = clients[0].succeed(&Call::get(path)).await?;
        times.push(began.elapsed());
        next = next_page(&answer)?.map(|token| format!("{first}&continue={token}"));
        let list = answer.json()?;
        for item in list["items"].as_array().context("a list has items")? {
            let name = item["metadata"]["name"].as_str().unwrap_or_default();
            ensure!(*name > *last, "{name} comes after {last}");
            name.clone_into(&mut last);
            found += 1;
        }
    }
    let expected = number.min(page * MOST_PAGES);
    ensure!(found == expected, "the pages have {found} assignments, not {expected}");
    let mut gets = Vec::new();
    for at in 0..bench.size.lists {
        let name = format!("app-000-app-000-main-{}", cluster_type(at % dimensions.cluster_types));
        let began = Instant::now();
        let found = clients[0].succeed(&Call::get(assignments.object(&name))).await?;
        gets.push(began.elapsed());
        ensure!(found.json()?["metadata"]["name"] == name.as_str(), "asked for {name}");
    }
    assignments.put_back(clients);
    let grown = resident(bench.bed.servers.stoa)?.saturating_sub(before) as f64 / 1e6;

    bench.report.section(format!("{number} assignments of {} stored cluster types", dimensions.cluster_types));
    bench.report.row("create the cluster types", "s", Better::Less, of_stoa(created.as_secs_f64()));
    // The slowest page is the first one, which schedules everything.
    let mut add = |title: &str, mut times: Vec<Duration>| {
        let slowest = times.iter().max().copied().map_or(f64::NAN, ms);
        times.sort_unstable();
        bench.report.row(title, "p50 ms", Better::Less, of_stoa(percentile_ms(&times, 0.5)));
        bench.report.row(title, "max ms", Better::Less, of_stoa(slowest));
    };
    add(&format!("page of {page}"), times);
    add("get", gets);
    bench.report.row("growth of stoa-apiserver", "MB", Better::Less, of_stoa(grown));
    Ok(())
}
