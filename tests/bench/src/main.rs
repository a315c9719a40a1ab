//! Measures Stoa against kube-apiserver and kubectl, both sides in one run, and prints both.
//!
//! `stoa-bench --dir BED` wants a running test bed (`hack/cluster up --stoa --dist`); `hack/bench` makes one. Start
//! at [`measure()`]. Slow is no failure here; an answer that is wrong or missing is.
//!
//! The sides take turns and each works alone: stoa-apiserver asked directly, the same through kube-apiserver's
//! aggregation layer, and kube-apiserver with the same objects as a custom resource. [`measure`](mod@measure) says what
//! counts; `scene` makes the objects; each of the other modules is one kind of work.

mod bed;
mod client;
mod fill;
mod fleet;
mod floor;
mod gets;
mod hub;
mod lists;
mod load;
mod measure;
mod packages;
mod process;
mod queues;
mod render;
mod report;
mod rollouts;
mod runner;
mod scene;
mod size;
mod terraform;
mod watches;
mod writes;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};

use crate::bed::Bed;
use crate::client::{Call, Protocol};
use crate::fill::Fill;
use crate::floor::Floor;
use crate::gets::Gets;
use crate::lists::{Form, Lists, Pages, Streaming};
use crate::load::Load;
use crate::measure::{Bench, Side};
use crate::process::resident;
use crate::report::{Better, Numbers};
use crate::rollouts::{Change, Rollout};
use crate::scene::Scene;
use crate::size::{LISTING_CLIENTS, MANY_CLIENTS, Size};
use crate::watches::Watches;
use crate::writes::{Creates, How, Patches};

/// Measures Stoa against kube-apiserver and kubectl on a running test bed.
#[derive(Debug, Parser)]
struct Options {
    /// The test bed's folder
    #[arg(long, default_value = ".cluster")]
    dir: PathBuf,
    /// Measure everything once with little, in some two minutes
    #[arg(long)]
    small: bool,
    /// How many objects there are to read
    #[arg(long)]
    objects: Option<usize>,
    /// Measure only this; may be given several times
    #[arg(long)]
    only: Vec<Part>,
    /// Speak HTTP/1.1 rather than HTTP/2, which kubectl speaks
    #[arg(long)]
    http1: bool,
    /// Repeat what Stoa answers, with the certificate in this folder, until the standard input ends
    #[arg(long, hide = true)]
    repeat: Option<PathBuf>,
    /// Write the result to this file, too, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
}

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    List,
    Get,
    Watch,
    Patch,
    Create,
    Rollout,
    /// Many stacks that are previewed at once, and a large one
    Queue,
    /// Resources of a provider, by Stoa and by terraform
    Terraform,
    /// Kustomizations, charts and KCL, by a function-runner, by the commands and by the libraries
    Render,
    /// Package revisions, and the registration of a repository
    Packages,
    /// A fleet of a million assignments, and pull requests for commits to a control plane
    Fleet,
    /// Clusters that report their deployments, and queries over 30 days
    Hub,
    /// One object among a thousand, ten thousand and so on up to `--objects`
    Scale,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let protocol = if options.http1 { Protocol::Http1 } else { Protocol::Http2 };
    let mut size = if options.small { Size::small() } else { Size::full() };
    size.objects = options.objects.unwrap_or(size.objects);
    let mut bed = Bed::find(&options.dir, protocol)?;
    if let Some(certificates) = &options.repeat {
        return floor::serve(bed, certificates).await;
    }
    let floor = Floor::start(&options.dir, &bed, protocol)?;
    bed.servers.floor = Some(floor.pid());
    let started = Instant::now();

    let mut bench = Bench::start(bed, size).await?;
    notes(&mut bench, protocol).await?;
    let mut scene = Scene::new(&bench.bed, &floor, &bench.size)?;
    let measured = match scene.build().await {
        Ok(()) => measure(&mut bench, &scene, &options.only).await,
        Err(error) => Err(error),
    };
    let removed = scene.remove(bench.size.rounds).await;
    // What was measured before something failed is worth seeing, too.
    print(&bench);
    measured?;
    removed.context("removing the objects")?;
    if let Some(file) = &options.json {
        fs::write(file, format!("{:#}\n", bench.report.json()))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    eprintln!("measured in {:.0?}", started.elapsed());
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn print(bench: &Bench) {
    println!("{}", bench.report);
}

/// What a reader of the numbers has to know.
async fn notes(bench: &mut Bench, protocol: Protocol) -> Result<()> {
    let version = bench.bed.kubernetes.connect().await?.succeed(&Call::get("/version")).await?.json()?;
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let (idle, report) = (bench.idle(), &mut bench.report);
    report.note(&format!(
        "sample: objects as large in Go's sample-apiserver itself; reference: kube-apiserver {} with the same objects as a \
         custom resource; floor: Stoa's answers, repeated by a server that has them ready; {protocol:?}; {cores} cores \
         for servers and client; medians of {} turns of each side, each alone, of rollouts of 1,000 and more one",
        version["gitVersion"].as_str().unwrap_or("of unknown version"),
        bench.size.rounds
    ));
    report.note(
        "CPU is that of stoa-apiserver, function-runner, sample-apiserver, kube-apiserver, etcd and kubectl together per operation, less what \
         they use when idle; of writes until nothing is left to do",
    );
    let [stoa, apiserver, etcd] = idle.of_servers().map(|time| time.as_secs_f64() * 1e3);
    report.note(&format!(
        "when idle, stoa-apiserver uses {stoa:.1} ms of CPU a second, kube-apiserver {apiserver:.1}, etcd {etcd:.1}"
    ));
    report.note("a ratio above 1 is good for Stoa; kube-apiserver also writes the test bed's audit log");
    if bench.bed.servers.stoa_is_debug_build() {
        report.note("stoa-apiserver is a debug build: its numbers say nothing");
    }
    Ok(())
}

/// Makes the objects and measures what is asked for.
///
/// # Errors
///
/// When a request fails or an answer is wrong.
async fn measure(bench: &mut Bench, scene: &Scene, only: &[Part]) -> Result<()> {
    let wanted = |part: Part| only.is_empty() || only.contains(&part);
    if [Part::List, Part::Get, Part::Watch, Part::Patch, Part::Create, Part::Scale].into_iter().any(wanted) {
        fill(bench, scene, wanted(Part::List), wanted(Part::Scale)).await?;
    }
    if wanted(Part::List) {
        lists(bench, scene).await.context("list")?;
    }
    if wanted(Part::Get) {
        gets(bench, scene).await.context("get")?;
    }
    if wanted(Part::Watch) {
        watches(bench, scene).await.context("watch")?;
    }
    if wanted(Part::Patch) || wanted(Part::Create) {
        writes(bench, scene, wanted(Part::Patch), wanted(Part::Create)).await.context("write")?;
    }
    if wanted(Part::Rollout) {
        rollouts(bench, scene).await.context("rollout")?;
    }
    if wanted(Part::Queue) {
        queues::measure(bench, scene).await.context("queue")?;
    }
    if wanted(Part::Terraform) {
        terraform::measure(bench, scene).await.context("terraform")?;
    }
    if wanted(Part::Render) {
        render::measure(bench).await.context("render")?;
    }
    if wanted(Part::Packages) {
        packages::measure(bench, scene).await.context("packages")?;
    }
    if wanted(Part::Fleet) {
        fleet::measure(bench, scene).await.context("fleet")?;
    }
    if wanted(Part::Hub) {
        hub::measure(bench, scene).await.context("hub")?;
    }
    Ok(())
}

/// The resident megabytes of the API servers.
fn memory(bench: &Bench) -> Result<Numbers> {
    let servers = bench.bed.servers;
    let processes =
        [(Side::Stoa, Some(servers.stoa)), (Side::Sample, servers.sample), (Side::Reference, Some(servers.apiserver))];
    let processes = processes.into_iter().filter_map(|(side, pid)| Some((side, pid?)));
    processes.map(|(side, pid)| Ok((side, resident(pid)? as f64 / 1e6))).collect()
}

/// Makes the objects and, as long as nobody has asked through the aggregation layer, looks at what lists leave behind.
async fn fill(bench: &mut Bench, scene: &Scene, with_lists: bool, in_steps: bool) -> Result<()> {
    let objects = bench.size.objects;
    bench.settle().await?;
    let empty = memory(bench)?;
    let mut from = 0;
    let mut next = if in_steps { bench.size.step.min(objects) } else { objects };
    while from < objects {
        let summaries = bench.compare(&scene.own(), &Fill { scene, from, objects: next }).await.context("fill")?;
        bench.settle().await?;
        let title = format!("{MANY_CLIENTS} clients");
        bench.report.section(if from == 0 {
            format!("create {next} objects")
        } else {
            format!("create {from} to {next}")
        });
        bench.report.operation(&title, &summaries);
        bench.report.throughput(&title, &summaries);
        (from, next) = (next, (next * 10).min(objects));
        if in_steps {
            one_of_many(bench, scene, from).await.with_context(|| format!("one of {from} objects"))?;
        }
    }
    let filled = memory(bench)?;
    let mut memories = vec![("at first", empty.clone()), ("with the objects", filled.clone())];
    let mut last = filled;
    if with_lists {
        let lists = list_together(bench, Form::JSON);
        let mut summaries = bench.compare(&scene.own(), &lists).await.context("list")?;
        last = memory(bench)?;
        memories.push(("after the first lists", last.clone()));
        summaries.extend(bench.compare(&[&scene.aggregated, &scene.floor], &lists).await.context("list")?);
        bench.report.section(format!("list {objects} objects"));
        bench.report.operation(&format!("{}, {LISTING_CLIENTS} clients", Form::JSON.title), &summaries);
    }
    bench.report.section("memory of the API servers");
    memories.push(("growth", last.since(&empty)));
    for (title, numbers) in memories {
        bench.report.row(title, "MB", Better::Less, numbers);
    }
    Ok(())
}

/// What it costs to read and to write one of many objects, which is not to grow with their number.
async fn one_of_many(bench: &mut Bench, scene: &Scene, objects: usize) -> Result<()> {
    bench.report.section(format!("one of {objects} objects, 1 client"));
    let load = Load { least: bench.size.turn, most: usize::MAX };
    let summaries = bench.compare(&scene.own(), &Gets { clients: 1, objects, load }).await?;
    bench.report.operation("get", &summaries);
    let patches = Patches { scene, how: How::MergePatch, clients: 1, writes: bench.size.writes_alone, objects };
    let summaries = bench.compare(&scene.own(), &patches).await?;
    bench.report.operation("merge patch", &summaries);
    Ok(())
}

fn list_together(bench: &Bench, form: Form) -> Lists {
    let load = Load { least: bench.size.turn, most: (bench.size.lists / 4).max(1) };
    Lists { form, clients: LISTING_CLIENTS, objects: bench.size.objects, load }
}

async fn lists(bench: &mut Bench, scene: &Scene) -> Result<()> {
    let (objects, page) = (bench.size.objects, bench.size.page);
    let load = Load { least: bench.size.turn, most: bench.size.lists };
    bench.report.section(format!("list {objects} objects"));
    for form in [Form::JSON].into_iter().chain(Form::OTHERS) {
        let lists = Lists { form, clients: 1, objects, load };
        let summaries = bench.compare(&scene.readable(), &lists).await.context(form.title)?;
        bench.report.operation(form.title, &summaries);
        bench.report.size(form.title, &summaries);
    }
    let title = format!("{}, {LISTING_CLIENTS} clients", Form::GZIP.title);
    let summaries = bench.compare(&scene.readable(), &list_together(bench, Form::GZIP)).await.context("gzip")?;
    bench.report.operation(&title, &summaries);
    let summaries = bench.compare(&scene.all(), &Pages { page, objects, load }).await.context("pages")?;
    bench.report.operation(&format!("pages of {page}"), &summaries);
    let summaries = bench.compare(&scene.all(), &Streaming { objects, load }).await.context("streaming")?;
    bench.report.operation("streaming", &summaries);
    Ok(())
}

async fn gets(bench: &mut Bench, scene: &Scene) -> Result<()> {
    let objects = bench.size.objects;
    bench.report.section(format!("get one of {objects} objects"));
    for clients in [1, MANY_CLIENTS] {
        let load = Load { least: bench.size.turn, most: usize::MAX };
        let summaries = bench.compare(&scene.all(), &Gets { clients, objects, load }).await?;
        let title = clients_title(clients);
        bench.report.operation(&title, &summaries);
        bench.report.throughput(&title, &summaries);
    }
    Ok(())
}

async fn watches(bench: &mut Bench, scene: &Scene) -> Result<()> {
    let (writes, interval) = (bench.size.watched_writes, bench.size.watched_interval);
    bench.report.section(format!("watch, {:.0} writes a second", 1.0 / interval.as_secs_f64()));
    for (watchers, sharing) in bench.size.watchers.iter().copied() {
        let watches = Watches { watchers, sharing, writes, interval };
        let summaries = bench.compare(&scene.readable(), &watches).await.context("watching")?;
        let connections = watchers.div_ceil(sharing);
        let title = format!("{watchers} watchers, {connections} connections, write to last");
        bench.report.row(&title, "p50 ms", Better::Less, Numbers::of(&summaries, |side| side.latency_ms(0.5)));
        bench.report.row(&title, "p99 ms", Better::Less, Numbers::of(&summaries, |side| side.latency_ms(0.99)));
        let per_event = Numbers::of(&summaries, |side| side.cpu_ms() * 1e3);
        bench.report.row(&title, "CPU µs/event", Better::Less, per_event);
    }
    Ok(())
}

async fn writes(bench: &mut Bench, scene: &Scene, patch: bool, create: bool) -> Result<()> {
    let objects = bench.size.objects;
    let loads = [(1, bench.size.writes_alone), (MANY_CLIENTS, bench.size.writes_together)];
    bench.report.section(format!("write beside {objects} objects"));
    let ways = [(How::MergePatch, "merge patch"), (How::Apply, "server-side apply")];
    for (how, title) in ways.into_iter().filter(|_| patch) {
        for (clients, writes) in loads {
            let patches = Patches { scene, how, clients, writes, objects };
            let summaries = bench.compare(&scene.all(), &patches).await.context(title)?;
            let title = format!("{title}, {}", clients_title(clients));
            bench.report.operation(&title, &summaries);
            bench.report.throughput(&title, &summaries);
        }
    }
    for (clients, writes) in loads.into_iter().filter(|_| create) {
        let summaries = bench.compare(&scene.all(), &Creates { scene, clients, writes }).await.context("create")?;
        let title = format!("create, {}", clients_title(clients));
        bench.report.operation(&title, &summaries);
        bench.report.throughput(&title, &summaries);
    }
    Ok(())
}

async fn rollouts(bench: &mut Bench, scene: &Scene) -> Result<()> {
    scene.ready_for_rollouts().await?;
    let mut sides = vec![&scene.stoa, &scene.reference];
    if rollouts::has_kpt() {
        sides.push(&scene.kpt);
    } else {
        bench.report.note("kpt is not installed, so that nothing is compared with `kpt live apply`.");
    }
    let config_maps = bench.size.config_maps;
    let kubeconfig = bench.bed.kubeconfig.clone();
    bench.report.section(format!("{config_maps} ConfigMaps: Run, kubectl, kpt"));
    bench.report.note("For a preview kubectl compares (`diff --server-side`), and kpt applies what is there already.");
    for (change, title) in [
        (Change::Everything, "apply, all new"),
        (Change::Nothing, "apply, no change"),
        (Change::Preview, "preview, no change"),
        (Change::One, "apply, one change"),
    ] {
        let rollout = Rollout { scene, kubeconfig: &kubeconfig, config_maps, change };
        let summaries = bench.compare(&sides, &rollout).await.context(title)?;
        bench.report.operation(title, &summaries);
    }
    Ok(())
}

fn clients_title(clients: usize) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}
