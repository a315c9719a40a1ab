//! Measures what the packs of the control repository cost, and what the same costs with other tools.
//!
//! One run writes the same objects in each way: with the packs merged here (`merged here`), with `git repack --geometric=2 -d`
//! as a subprocess (`git`, and `git, no deltas` with `--window=0`), and with no merges (`none`).
//!
//! ```text
//! cargo run --release -p stoa-control-repo --example packs -- [WRITES] [OBJECTS] [WRITES A BATCH]
//! ```

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "this is a measurement, which a person reads")]

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Map, Value, json};
use stoa_control_repo::{
    CommitInfo, GitHistory, GitOptions, GitPath, GitPaths, GitProjector, Ingest, IngestError, KindLayout,
    ProjectionState, PushedFile, document,
};
use stoa_machinery::{
    log::{Change, Expect, Key, Log, MemoryLog, Origin, Version, Write},
    registry::{History as _, Observer as _, Past},
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// How often packs are merged. A server does so every 30 seconds and writes a pack in 800 milliseconds at most; here both are
/// some forty times as often.
const REPACK: Duration = Duration::from_millis(750);
const PACE: Duration = Duration::from_millis(20);
/// So many packs are merged, as in `repack`.
const SMALL: usize = 8;
const READS: u64 = 200;

static THING: GitPath = GitPath {
    group: "example.com",
    version: "v1",
    kind: "Thing",
    singular: "thing",
    plural: "things",
    pattern: "organizations/shop/things/{name}.yaml",
    removal_waits_for_references: false,
    document: document::<Map<String, Value>>,
};

/// Nobody pushes.
#[derive(Debug)]
struct Nobody;

#[async_trait]
impl Ingest for Nobody {
    async fn apply(&self, _: PushedFile<'_>) -> Result<(), IngestError> {
        Ok(())
    }
    async fn remove(&self, _: &str, _: &CommitInfo) -> Result<(), IngestError> {
        Ok(())
    }
    async fn invalid(&self, _: &str, _: &str, _: &CommitInfo) -> Result<(), IngestError> {
        Ok(())
    }
    async fn valid_again(&self, _: &str) -> Result<(), IngestError> {
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Here,
    Git(&'static [&'static str]),
    None,
}

/// Seconds of CPU of this process, and of its children that ended.
fn cpu() -> (f64, f64) {
    let text = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<f64> =
        text.rsplit_once(") ").unwrap().1.split(' ').map(|field| field.parse().unwrap_or(0.0)).collect();
    // From the state on, which is the third; a tick is a hundredth of a second.
    ((fields[11] + fields[12]) / 100.0, (fields[13] + fields[14]) / 100.0)
}

fn packs(repository: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(repository.join("objects/pack")).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|extension| extension == "pack")).collect()
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| if entry.path().is_dir() { size(&entry.path()) } else { entry.metadata().unwrap().len() }).sum()
}

fn value(name: &str, number: usize) -> Vec<u8> {
    let text = format!("The thing called {name}, for those who need it. ").repeat(6);
    let spec =
        json!({"number": number, "description": text, "workspaces": ["dev", "prod"], "path": format!("apps/{name}")});
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}).to_string().into_bytes()
}

fn git(repository: &Path, arguments: &[&str]) {
    let done = Command::new("git").arg("-C").arg(repository).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Merges packs with git as often as they are merged here, until the other end of `stop` is dropped; returns how often it did.
fn keep_few_with_git(repository: &Path, options: &[&str], stop: &mpsc::Receiver<()>) -> usize {
    let (mut left, mut rounds) = (0, 0);
    while stop.recv_timeout(REPACK) == Err(mpsc::RecvTimeoutError::Timeout) {
        if packs(repository).len() >= left + SMALL {
            git(repository, &[&["repack", "--geometric=2", "-d", "-q"], options].concat());
            left = packs(repository).len();
            rounds += 1;
        }
    }
    rounds
}

async fn state(log: &dyn Log) -> ProjectionState {
    let state = ProjectionState::default();
    state.reset(&log.scan(ProjectionState::PREFIX, None).await.unwrap().entries);
    state
}

async fn measure(name: &str, side: Side, writes: usize, objects: usize, batch: usize) -> TempDir {
    let folder = TempDir::new_in(".").unwrap();
    let repository = folder.path().join("control.git");
    let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
    let never = Duration::from_secs(1 << 20);
    let options = GitOptions {
        linger: Duration::from_millis(1),
        pace: PACE,
        repack: if side == Side::Here { REPACK } else { never },
        ..GitOptions::default()
    };
    const PATHS: GitPaths = GitPaths(&[&THING]);
    let layout = KindLayout { paths: PATHS, ingest_user: "stoa:git:control" };
    let projector = GitProjector::new(log.clone(), &repository, Arc::new(layout), Arc::new(Nobody), options);
    let mut status = projector.status();
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { projector.run(stop).await }
    });
    status.wait_for(|status| status.commit.is_some()).await.unwrap();
    let put = |number: usize| {
        let thing = format!("thing-{:05}", number % objects);
        let origin = Origin { user: "ann".into(), verb: "update".into(), message: String::new() };
        let change = Change::Put(value(&thing, number).into());
        Write { origin, ..Write::new(Key::new(format!("/registry/example.com/things/{thing}")), Expect::Any, change) }
    };
    // The objects are there before.
    let mut last = Version(0);
    for number in 0..objects {
        last = log.append(put(number)).await.unwrap();
    }
    status.wait_for(|status| status.projected >= last).await.unwrap();
    let (ends, end) = mpsc::channel();
    let merges = if let Side::Git(options) = side {
        let repository = repository.clone();
        Some(thread::spawn(move || keep_few_with_git(&repository, options, &end)))
    } else {
        None
    };
    let mut random = StdRng::seed_from_u64(7);
    let (began, (own, others)) = (Instant::now(), cpu());
    let (mut delays, mut most) = (Vec::new(), 0);
    for first in (0..writes).step_by(batch) {
        let sent = Instant::now();
        for number in first..(first + batch).min(writes) {
            let thing = random.random_range(0..objects);
            last = log.append(put(number * objects + thing)).await.unwrap();
        }
        status.wait_for(|status| status.projected >= last).await.unwrap();
        delays.push(sent.elapsed());
        most = most.max(packs(&repository).len());
    }
    let wall = began.elapsed();
    drop(ends);
    let rounds = match merges {
        Some(merges) => tokio::task::spawn_blocking(|| merges.join().unwrap()).await.unwrap(),
        None => 0,
    };
    stop.cancel();
    running.await.unwrap();
    // Merges here have this lock until the last one is done.
    let lock = File::create(repository.join("repack.lock")).unwrap();
    tokio::task::spawn_blocking(move || lock.lock().unwrap()).await.unwrap();
    let (own_after, others_after) = cpu();
    let (own, others) = (own_after - own, others_after - others);
    delays.sort();
    let (median, late) = (delays[delays.len() / 2], delays[delays.len() * 99 / 100]);

    // Each read opens the repository.
    let state = state(&*log).await;
    let (began, before) = (Instant::now(), cpu().0);
    for read in 0..READS {
        let version = Version(last.0 - read * (writes as u64 / 2) / READS - 1);
        let history = GitHistory::new(repository.clone(), |_| true, state.clone());
        let past = Past { version, prefix: "/registry/example.com/things/thing-00007".into(), after: None, wanted: 1 };
        assert_eq!(history.read(past).await.unwrap().unwrap().len(), 1);
    }
    let read = began.elapsed().as_secs_f64() * 1000.0 / READS as f64;
    let read_cpu = (cpu().0 - before) * 1000.0 / READS as f64;
    println!(
        "{name:18} cpu {:6.2} s ({own:6.2} + git {others:5.2}, {rounds} runs)  wall {:6.2} s  delay {:5.1} ms, p99 {:6.1} ms  packs {:4}, most {most:4}  {:7.1} MiB  read {read:5.2} ms (cpu {read_cpu:5.2})",
        own + others,
        wall.as_secs_f64(),
        median.as_secs_f64() * 1000.0,
        late.as_secs_f64() * 1000.0,
        packs(&repository).len(),
        size(&repository.join("objects")) as f64 / (1 << 20) as f64,
    );
    git(&repository, &["fsck", "--strict", "--full", "--no-dangling", "--no-progress"]);
    folder
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().unwrap());
    let mut next = |default| arguments.next().unwrap_or(default);
    let (writes, objects, batch): (usize, usize, usize) = (next(10_000), next(1_000), next(10));
    println!("{writes} writes to {objects} objects, {batch} at a time");
    measure("merged here", Side::Here, writes, objects, batch).await;
    measure("git", Side::Git(&[]), writes, objects, batch).await;
    measure("git, no deltas", Side::Git(&["--window=0"]), writes, objects, batch).await;
    measure("merged here", Side::Here, writes, objects, batch).await;
    measure("git", Side::Git(&[]), writes, objects, batch).await;
    measure("none", Side::None, writes, objects, batch).await;
}
