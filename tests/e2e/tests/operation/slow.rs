//! Watchers that stop reading.

use std::time::Duration;

use serde_json::{Value, json};
use stoa_e2e::{Connection, unique};
use tokio::time::{Instant, timeout};

use crate::{BACKENDS, Bed, PATIENCE, version};

/// How many stop reading, half of them behind kube-apiserver.
const STUCK: usize = 40;
/// An object may have annotations of 256 KiB.
const SIZE: usize = 200_000;
/// Sockets and kube-apiserver keep less than three quarters of that for one who does not read.
const CHANGES: usize = 75;
/// What the server may take more in the meantime. If it kept what they do not read it would be 40 times 15 MB.
const MEMORY: u64 = 300 << 20;
/// After that time the connection of a client that takes nothing is given up.
const STALL: Duration = Duration::from_secs(60);
/// What the last change says.
const END: &str = "end";

/// Reads a watch until the last change; the versions on the way.
async fn follow(watch: &mut Connection) -> Vec<u64> {
    let (mut text, mut versions) = (Vec::new(), Vec::new());
    loop {
        text.extend(watch.chunk().await.unwrap().expect("the watch goes on"));
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let event: Value = serde_json::from_slice(&text.drain(..=end).collect::<Vec<_>>()).unwrap();
            assert_ne!(event["type"], "ERROR", "{event}");
            versions.push(version(&event["object"]).parse().unwrap());
            if event["object"]["metadata"]["annotations"]["x"] == END {
                return versions;
            }
        }
    }
}

impl Bed {
    pub(crate) async fn slow_watchers_are_cut_off_and_cost_nothing(&self) {
        let name = unique("slow");
        let query =
            format!("resourceVersion={}&fieldSelector=metadata.name={name}", version(&self.create(&name).await));
        let mut stuck = Vec::new();
        for _ in 0..STUCK / 2 {
            stuck.extend(self.watch(&query).await);
        }
        let [mut direct, mut behind] = self.watch(&query).await;
        let (before, began) = (self.stoa.memory(), Instant::now());
        let write = async {
            let mut written = Vec::new();
            for number in 0..CHANGES {
                let changed = self.annotate(&name, &format!("{number:010}").repeat(SIZE / 10)).await;
                written.push(version(&changed).parse::<u64>().unwrap());
            }
            self.annotate(&name, END).await;
            written
        };
        let all = async { tokio::join!(write, follow(&mut direct), follow(&mut behind)) };
        let (written, direct, behind) = timeout(2 * PATIENCE, all).await.expect("those that read hear of everything");
        let grown = self.stoa.memory().saturating_sub(before);
        eprintln!("{STUCK} watchers that do not read: {} MiB more after {:.1?}", grown >> 20, began.elapsed());
        assert!(grown < MEMORY, "{STUCK} watchers that do not read cost {grown} bytes");
        for heard in [direct, behind] {
            assert!(heard.is_sorted_by(|a, b| a < b), "{heard:?}");
            assert!(
                written.iter().all(|version| heard.contains(version)),
                "{written:?} were written, heard: {heard:?}"
            );
        }

        // None of them was sent as much as that.
        let path = format!("{BACKENDS}?limit=1&resourceVersion={}", written[CHANGES * 3 / 4]);
        let deadline = Instant::now() + PATIENCE;
        while self.front.get(&path, &[]).await.code != 410 {
            assert!(Instant::now() < deadline, "not forgotten within {PATIENCE:?}");
            self.annotate(&name, &format!("{:?}", deadline - Instant::now())).await;
        }
        for (number, mut watch) in stuck.into_iter().enumerate() {
            match timeout(PATIENCE, watch.events()).await.expect("it ends") {
                Ok(events) => {
                    let (last, sent) = events.split_last().expect("there are events");
                    assert_eq!(json!([last["type"], last["object"]["code"]]), json!(["ERROR", 410]), "watch {number}");
                    assert!(sent.iter().all(|event| event["type"] != "ERROR"), "watch {number}");
                }
                // Who takes nothing for so long is not waited for; kube-apiserver, which is in between, takes other things.
                Err(error) => assert!(number.is_multiple_of(2) && began.elapsed() > STALL, "watch {number}: {error}"),
            }
        }
    }
}
