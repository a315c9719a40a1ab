//! A process that writes is killed, again and again: what it reported as written is there.
//!
//! The test starts itself as that process.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    sync::Arc,
};

use futures_util::StreamExt as _;
use stoa_machinery::log::{Change, Entry, Expect, Key, Log, Record, Version, Write};
use stoa_storage::{LocalLog, local::LocalOptions};
use tempfile::TempDir;

const DIRECTORY: &str = "STOA_KILL_TEST_DIRECTORY";

fn open(path: impl AsRef<std::path::Path>) -> LocalLog {
    LocalLog::open(path, LocalOptions { segment_bytes: 4_000, ..LocalOptions::default() }).expect("the log opens")
}

/// Writes until it is killed, and prints each version with its value once it is acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs only as the process that the other test kills"]
async fn victim() {
    let log = Arc::new(open(std::env::var(DIRECTORY).expect("the other test says where")));
    let writers = (0..8).map(|writer| {
        let log = Arc::clone(&log);
        tokio::spawn(async move {
            for n in 0_u64.. {
                let value = format!("{}-{writer}-{n}", std::process::id());
                let write =
                    Write::new(Key::new(format!("/k/{writer}")), Expect::Any, Change::Put(value.clone().into()));
                let version = log.append(write).await.expect("append");
                println!("written {version} {value}");
                if version.0 % 101 == 0 {
                    log.compact(Version(version.0 - 50)).await.expect("compact");
                }
            }
        })
    });
    futures_util::future::join_all(writers).await;
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_by_a_kill() {
    let directory = TempDir::new().unwrap();
    let mut acknowledged = BTreeMap::new();
    for round in 0..8 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["victim", "--exact", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // After some number of writes, which is some moment as far as the writer can tell.
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut remember = |line: String| {
            let mut words = line.split("written ").nth(1)?.split(' ');
            let version: u64 = words.next()?.parse().ok()?;
            acknowledged.insert(Version(version), words.next()?.to_owned())
        };
        for line in lines.by_ref().take(60 + round * 37) {
            remember(line.unwrap());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What it had still got out. The last line may be half of one.
        let mut rest: Vec<String> = lines.map_while(Result::ok).collect();
        rest.pop();
        rest.into_iter().for_each(|line| drop(remember(line)));

        let log = open(directory.path());
        let head = log.head().await.unwrap();
        assert!(head >= *acknowledged.last_key_value().unwrap().0);
        let oldest = log.oldest();
        // All of every version is what the records up to it make of the oldest, and each has what was acknowledged.
        let scan = async |at| log.scan("/k/", Some(at)).await.unwrap().entries;
        let mut then: BTreeMap<Key, Entry> =
            scan(oldest).await.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        let mut records = log.follow(oldest).await.unwrap();
        for version in (oldest.0..=head.0).map(Version) {
            if version > oldest {
                let Record { version, key, change, .. } = records.next().await.unwrap().unwrap();
                let Change::Put(value) = change else { panic!("nothing is deleted here") };
                then.insert(key.clone(), Entry { key, version, value });
            }
            assert_eq!(scan(version).await, then.values().cloned().collect::<Vec<_>>(), "{version} in round {round}");
            if let Some(value) = acknowledged.get(&version) {
                let there = then.values().find(|entry| entry.version == version).map(|entry| entry.value.as_ref());
                assert_eq!(there, Some(value.as_bytes()), "version {version} in round {round}");
            }
        }
    }
    assert!(acknowledged.len() > 1_000);
}
