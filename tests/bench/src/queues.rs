//! Many stacks at once: a preview without a change of each, queued at the same time by several tenants, of which the first
//! has half of them and comes first. And one stack that is large.
//!
//! Nobody else does this, so that Stoa's numbers stand alone: how long until all is done, how long until the small tenants
//! are, and what the function-runner had in memory at most.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::client::{Call, Client};
use crate::measure::{Bench, Side};
use crate::process::peak_with_workers;
use crate::report::{Better, Numbers};
use crate::scene::{Scene, git};
use crate::size::MANY_CLIENTS;

const PATIENCE: Duration = Duration::from_secs(900);
/// Organizations; the first has half of the stacks.
const TENANTS: usize = 10;
/// Resources of a stack.
const RESOURCES: usize = 10;
/// Runs that the server has carried out at once, if it is not told otherwise.
const PLACES: usize = 64;
/// What the function-runner and its workers may have in memory, in bytes.
const MEMORY: u64 = 1 << 30;
const VERSION: &str = "v1alpha1";
/// The label that tells runs of one kind from others.
const BATCH: &str = "bench.stoa.dev/batch";

/// A stack to be deployed.
#[derive(Clone, Debug)]
struct Planned {
    tenant: usize,
    name: String,
    resources: usize,
}

/// When each tenant's runs had ended, from the beginning.
type Ends = BTreeMap<String, Vec<Duration>>;

/// Makes the stacks, deploys them and measures previews of them.
///
/// # Errors
///
/// When a run fails, or finds something to change.
pub(crate) async fn measure(bench: &mut Bench, scene: &Scene) -> Result<()> {
    let (stacks, large) = (bench.size.stacks, bench.size.large_stack);
    let stage = Stage { scene };
    let small: Vec<Planned> = (0..stacks)
        .map(|number| Planned {
            tenant: if number < stacks / 2 { 0 } else { 1 + number % (TENANTS - 1) },
            name: format!("queued-{number:04}"),
            resources: RESOURCES,
        })
        .collect();
    let one = Planned { tenant: 0, name: "large".to_owned(), resources: large };
    stage.build(&small, &one).await.context("preparing tenants")?;
    stage.run(bench, &small, "Apply").await.context("deploying the stacks")?;
    bench.settle().await?;
    bench.report.section(format!("{stacks} stacks of {TENANTS} tenants, {RESOURCES} resources each"));
    let ends = stage.run(bench, &small, "Preview").await.context("previews")?;
    let last = |ends: &mut dyn Iterator<Item = &Duration>| ends.max().copied().unwrap_or_default().as_secs_f64();
    let first_tenant = stage.organization(0);
    let all = last(&mut ends.values().flatten());
    let others = last(&mut ends.iter().filter(|(tenant, _)| **tenant != first_tenant).flat_map(|(_, ends)| ends));
    let stoa = |number: f64| [(Side::Stoa, number)].into_iter().collect::<Numbers>();
    bench.report.row("previews at once, no change", "s, all", Better::Less, stoa(all));
    bench.report.row("previews at once, no change", "s, others", Better::Less, stoa(others));
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let runner = bench.bed.servers.runner;
    bench.report.row("function-runner, at most", "MB", Better::Less, stoa(megabytes(peak_with_workers(runner)?)));
    // With fewer all of them have a place at once.
    if stacks > 2 * PLACES {
        ensure!(
            others < all,
            "tenants who have little to do waited for the one who asked for half of all and came first"
        );
    }
    bench.report.section(format!("one stack of {large} resources"));
    for (operation, title) in [("Apply", "apply, all new"), ("Preview", "preview, no change")] {
        let ends = stage.run(bench, std::slice::from_ref(&one), operation).await.context(title)?;
        bench.report.row(title, "s", Better::Less, stoa(last(&mut ends.values().flatten())));
        bench.settle().await?;
    }
    let most = peak_with_workers(runner)?;
    bench.report.row("function-runner, at most", "MB", Better::Less, stoa(megabytes(most)));
    ensure!(most < MEMORY, "the function-runner and its workers had {} MB", megabytes(most));
    bench.report.note(
        "Of the stacks that are previewed at once one tenant has half, and asks first; the others are those of nine more",
    );
    stage.remove().await
}

/// Where it happens.
struct Stage<'a> {
    scene: &'a Scene,
}

impl Stage<'_> {
    /// The organization of a tenant, and so its namespace.
    fn organization(&self, tenant: usize) -> String {
        format!("{}-t{tenant}", self.scene.name)
    }

    /// The namespace that everything is deployed to.
    fn namespace(&self) -> String {
        format!("{}-queue", self.scene.name)
    }

    async fn build(&self, small: &[Planned], large: &Planned) -> Result<()> {
        let name = &self.scene.name;
        self.scene.ready_for_rollouts().await?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace()}});
        self.scene.kubernetes(&Call::post("/api/v1/namespaces", &namespace)).await?;
        for planned in small.iter().chain([large]) {
            let folder = self.scene.repository.path().join("queue").join(&planned.name);
            fs::create_dir_all(&folder)?;
            fs::write(folder.join("spec.yaml"), format!("{:#}\n", self.spec(planned)))?;
        }
        git(&self.scene.repository, &["add", "--all"])?;
        git(&self.scene.repository, &["commit", "--quiet", "--message=Stacks of many tenants"])?;
        let mut client = self.scene.stoa.endpoint.connect().await?;
        let remote = format!("file://{}", self.scene.repository.path().display());
        for tenant in 0..TENANTS {
            let organization = self.organization(tenant);
            let spec = json!({"deletionPolicy": "Orphan"});
            create(&mut client, "config", "Organization", "", &organization, spec, json!({})).await?;
            self.scene.wait_for_organization(&organization).await?;
            let source = json!({"remote": remote, "ref": "main", "pollInterval": "1h"});
            create(&mut client, "config", "Source", &organization, "config", source, json!({})).await?;
            let project = json!({"source": {"name": "config"}, "path": "queue", "deletionPolicy": "Orphan"});
            create(&mut client, "config", "Project", &organization, "queue", project, json!({})).await?;
        }
        for planned in small.iter().chain([large]) {
            let organization = self.organization(planned.tenant);
            let spec = json!({"project": "queue", "workspaces": [name], "deletionPolicy": "Orphan"});
            create(&mut client, "config", "Stack", &organization, &planned.name, spec, json!({})).await?;
        }
        Ok(())
    }

    fn spec(&self, planned: &Planned) -> Value {
        let namespace = self.namespace();
        let resource = |number: usize| {
            let name = format!("{}-{number:05}", planned.name);
            let object = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": namespace},
                "data": {"number": number.to_string(), "text": "what somebody has configured"},
            });
            json!({"id": format!("v1:ConfigMap:{namespace}:{name}"), "type": "Kubernetes", "attributes": object})
        };
        json!({"resources": (0..planned.resources).map(resource).collect::<Vec<_>>()})
    }

    /// Creates a Run of each stack, in their order, and waits until all have ended.
    async fn run(&self, bench: &Bench, stacks: &[Planned], operation: &str) -> Result<Ends> {
        let batch = format!("{}-{}-{operation}", self.scene.name, stacks.len()).to_lowercase();
        let runs = format!("/apis/delivery.stoa.dev/{VERSION}/runs");
        let mut client = self.scene.stoa.endpoint.connect().await?;
        let list = client.succeed(&Call::get(format!("{runs}?limit=1"))).await?.json()?;
        let version = list["metadata"]["resourceVersion"].as_str().context("the list has no version")?.to_owned();
        let path = format!("{runs}?watch=true&labelSelector={}%3D{batch}&resourceVersion={version}", encoded(BATCH));
        let mut lines = client.stream(&Call::get(path)).await?;
        let began = Instant::now();
        let creators = self.scene.stoa.clients(MANY_CLIENTS.min(stacks.len())).await?;
        let step = creators.len();
        let creating = stream::iter(creators.into_iter().enumerate().map(|(at, mut client)| {
            let batch = &batch;
            async move {
                // Whoever comes first is asked for first, by all clients.
                for planned in stacks.iter().skip(at).step_by(step) {
                    let spec = json!({"stack": planned.name, "operation": operation});
                    let name = format!("{}-{}", planned.name, operation.to_lowercase());
                    let organization = self.organization(planned.tenant);
                    let labels = json!({ BATCH: batch });
                    create(&mut client, "delivery", "Run", &organization, &name, spec, labels).await?;
                }
                Ok::<_, anyhow::Error>(client)
            }
        }));
        let creating = creating.buffer_unordered(MANY_CLIENTS).try_collect::<Vec<_>>();
        let mut ends = Ends::new();
        let watching = async {
            let (mut left, mut failed) = (stacks.len(), None);
            while left > 0 && failed.is_none() {
                let goes_on = lines.next(|line| {
                    let event: Value = serde_json::from_slice(line)?;
                    let run = &event["object"];
                    match run["status"]["phase"].as_str().unwrap_or_default() {
                        "Succeeded" => {
                            let tenant = run["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
                            ends.entry(tenant).or_default().push(began.elapsed());
                            let changes = &run["status"]["plan"]["summary"];
                            if operation == "Preview" && (changes["create"] != 0 || changes["update"] != 0) {
                                failed = Some(run.clone());
                            }
                            left -= 1;
                        }
                        "Failed" | "Canceled" => failed = Some(run.clone()),
                        _ => {}
                    }
                    Ok(())
                });
                ensure!(goes_on.await? || left == 0, "the watch of runs ended before they did");
            }
            match failed {
                Some(run) => bail!("run {} did not go as it should: {}", run["metadata"]["name"], run["status"]),
                None => Ok(()),
            }
        };
        let (clients, watched) = timeout(PATIENCE, async { tokio::join!(creating, watching) })
            .await
            .with_context(|| format!("the runs do not end; function-runner {}", bench.bed.servers.runner))?;
        watched?;
        self.scene.stoa.put_back(clients?);
        Ok(ends)
    }

    /// Removes what was made; what was deployed goes with its namespace.
    async fn remove(&self) -> Result<()> {
        let mut client = self.scene.stoa.endpoint.connect().await?;
        for tenant in 0..TENANTS {
            let path = format!("/apis/config.stoa.dev/{VERSION}/organizations/{}", self.organization(tenant));
            client.succeed(&Call::delete(path)).await?;
        }
        self.scene.kubernetes(&Call::delete(format!("/api/v1/namespaces/{}", self.namespace()))).await.map(drop)
    }
}

/// Makes an object of Stoa.
async fn create(
    client: &mut Client,
    group: &str,
    kind: &str,
    namespace: &str,
    name: &str,
    spec: Value,
    labels: Value,
) -> Result<()> {
    let group = format!("{group}.stoa.dev/{VERSION}");
    let scope = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    let path = format!("/apis/{group}{scope}/{}s", kind.to_lowercase());
    let metadata = json!({"name": name, "labels": labels});
    let object = json!({"apiVersion": group, "kind": kind, "metadata": metadata, "spec": spec});
    client.succeed(&Call::post(path, &object)).await.map(drop)
}

/// A label's name in a query.
fn encoded(name: &str) -> String {
    name.replace('/', "%2F")
}
