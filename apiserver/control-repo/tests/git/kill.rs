//! A process that merges packs beside everything else is killed, again and again: no object and no version is lost.
//!
//! The test starts itself as that process.

#![expect(clippy::unwrap_used, reason = "this is a test, helpers and all")]

use std::{
    collections::BTreeMap,
    env, fs,
    io::{BufRead as _, BufReader, Lines},
    path::Path,
    process::{ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use stoa_control_repo::GitHistory;
use stoa_git::testing::committed;
use stoa_machinery::{
    log::{Key, Version},
    registry::{History as _, Past},
};
use tempfile::TempDir;

use crate::{
    past::past,
    support::{Bench, Clone, git, packs, put},
};

const DIRECTORY: &str = "STOA_KILL_TEST_DIRECTORY";
const ROUNDS: u64 = 12;
/// It goes on for so many, as long as no kill hit a merge.
const MOST_ROUNDS: u64 = 120;
/// How long a process may take to get to something.
const PATIENCE: Duration = Duration::from_secs(120);

/// Writes until it is killed, and prints each version with its value once it is acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs only as the process that the other test kills"]
async fn victim() {
    let directory = env::var(DIRECTORY).expect("the other test says where");
    let bench = Bench::at(Path::new(&directory)).repacked_every(Duration::from_millis(1)).run();
    for n in 0_u64.. {
        let value = format!("n: {}{n:05}", std::process::id());
        let name = format!("t{:02}", n % 40);
        let version = bench.write(put(&name, &value, "anna")).await;
        println!("written {version} {name} {value}");
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
}

/// What was acknowledged, by its version: the name of a thing and what it was set to.
type Acknowledged = BTreeMap<Version, (String, String)>;

fn remember(acknowledged: &mut Acknowledged, line: &str) {
    let told = || {
        let mut words = line.split_once("written ")?.1.splitn(3, ' ');
        let version = Version(words.next()?.parse().ok()?);
        Some((version, (words.next()?.to_owned(), words.next()?.to_owned())))
    };
    acknowledged.extend(told());
}

/// Waits until a merge is being written, or none is.
fn until_merging(repository: &Path, is_so: bool) {
    let deadline = Instant::now() + PATIENCE;
    while is_merging(repository) != is_so {
        assert!(Instant::now() < deadline, "no packs are merged, or for too long");
        thread::sleep(Duration::from_micros(20));
    }
}

/// Whether there is anything of a pack that others are being merged to.
fn is_merging(repository: &Path) -> bool {
    fs::read_dir(repository.join("unfinished-repacks")).is_ok_and(|mut files| files.next().is_some())
}

/// Lets a process write for a while, and kills it, often at some moment of a merge.
fn live_and_die(directory: &Path, random: &mut StdRng, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["kill::victim", "--exact", "--ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines: Lines<BufReader<ChildStdout>> = BufReader::new(child.stdout.take().unwrap()).lines();
    let least: usize = random.random_range(5..40);
    lines.by_ref().take(least).for_each(|line| remember(acknowledged, &line.unwrap()));
    let (repository, moment) = (directory.join("control.git"), random.random_range(0..4));
    // When it is written, or when it is put in place and what it replaces goes. Before the first there may be no repository.
    if moment > 0 || acknowledged.len() <= least {
        until_merging(&repository, true);
    }
    if moment > 1 {
        until_merging(&repository, false);
    }
    thread::sleep(Duration::from_micros(random.random_range(0..3_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    // What it had still got out. The last line may be half of one.
    let mut rest: Vec<String> = lines.map_while(Result::ok).collect();
    rest.pop();
    rest.iter().for_each(|line| remember(acknowledged, line));
}

#[tokio::test]
async fn killed_pack_merge_loses_no_object() {
    let seed = env::var("STOA_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(rand::random);
    eprintln!("STOA_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let directory = TempDir::new().unwrap();
    let repository = directory.path().join("control.git");
    let (mut acknowledged, mut broken_off, mut round) = (Acknowledged::new(), 0, 0);
    while round < ROUNDS || broken_off == 0 {
        assert!(round < MOST_ROUNDS, "no merge broke off");
        live_and_die(directory.path(), &mut random, &mut acknowledged);
        broken_off += u64::from(is_merging(&repository));
        // Nobody holds it any more, which is known a minute later otherwise.
        for name in ["refs/heads/main.lock", "HEAD.lock", "packed-refs.lock"] {
            let _ = fs::remove_file(repository.join(name));
        }
        git(&repository, &["fsck", "--strict", "--full", "--no-dangling", "--no-progress"]);
        if round % 4 == 3 {
            // Loose objects, which are merged, too.
            let clone = Clone::of(&repository);
            clone.write(&format!("things/pushed{round:02}.yaml"), &format!("round: {round}\n"));
            clone.commit_and_push(&format!("push {round}"));
        }
        round += 1;
    }

    let bench = Bench::at(directory.path()).run();
    bench.ingested(&git(&repository, &["rev-parse", "main"])).await;
    let last = bench.write(put("t00", "n: 0", "anna")).await;
    bench.projected(last).await;
    acknowledged.insert(last, ("t00".to_owned(), "n: 0".to_owned()));
    let history = GitHistory::new(repository.clone(), |_| true, bench.record().await);
    for (version, (name, value)) in &acknowledged {
        let one = Past { prefix: format!("/registry/things/{name}"), ..past(*version, 1) };
        let found = history.read(one).await.unwrap().expect("the history goes back to the beginning");
        let expected = format!(r#"{{"n":{}}}"#, value.trim_start_matches("n: "));
        assert_eq!((found[0].version, &found[0].value[..]), (*version, expected.as_bytes()), "{name}");
    }
    for round in (3..round).step_by(4) {
        let name = format!("pushed{round:02}");
        let one = Past { prefix: format!("/registry/things/{name}"), ..past(last, 1) };
        let key = Key::new(one.prefix.clone());
        assert_eq!(history.read(one).await.unwrap().unwrap()[0].key, key);
        assert_eq!(bench.value(&name).await, Some(format!("round: {round}")));
    }
    let commits = committed(&repository);
    let missing: Vec<_> = acknowledged.keys().filter(|version| commits.get(&version.0) != Some(&1)).collect();
    assert!(missing.is_empty(), "no commit, or more than one, for {missing:?}");
    git(&repository, &["fsck", "--strict", "--full", "--no-dangling", "--no-progress"]);
    bench.until("packs are few", |_| packs(&repository) <= 16).await;
    eprintln!("{} writes, {broken_off} merges broke off, {} packs", acknowledged.len(), packs(&repository));
}
