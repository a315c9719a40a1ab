//! A Stoa that is run for real, behind kube-apiserver and beside another on the same etcd: its certificate is replaced, clients
//! stop reading, a crowd asks for more than it can do, and it is asked to end.
//!
//! Elsewhere: `slow` are clients that do not read, `crowd` are too many of them, `end` is the end. The first two take minutes, and
//! run with `STOA_TEST_ALL`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod crowd;
mod end;
mod slow;

use std::time::Duration;

use serde_json::{Value, json};
use stoa_e2e::repeat::is_in_full;
use stoa_e2e::{Caller, Child, Cluster, Connection, Door, unique};
use stoa_pki::{CertificateAuthority, CertificateRequest};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, timeout};

/// How long anything that has to happen may take on a machine that is busy building.
const PATIENCE: Duration = Duration::from_secs(120);
const BACKENDS: &str = "/apis/platform.stoa.dev/v1alpha1/backends";
/// How many requests it takes that read, and that change something.
const READING: usize = 12;
const MUTATING: usize = 6;
/// How long it still takes requests once it is asked to end.
const DELAY: Duration = Duration::from_secs(20);

/// Two Stoas, of which the registered one is a child of this process.
struct Bed {
    stoa: Child,
    cluster: Cluster,
    /// kube-apiserver, as the admin.
    front: Caller,
    /// Both by hand.
    raw_front: Door,
    raw: Door,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn server_survives_any_client_and_stops_in_order() {
    let arguments = [
        format!("--max-requests-inflight={READING}"),
        format!("--max-mutating-requests-inflight={MUTATING}"),
        format!("--shutdown-delay-duration={}s", DELAY.as_secs()),
        // Short, but not so short that one who reads as fast as it can on a busy machine would be cut off.
        "--history-records=100".to_owned(),
        "--history-seconds=10".to_owned(),
    ];
    let cluster = block_in_place(|| Cluster::replicated_with(2, &arguments));
    let stoa = block_in_place(|| cluster.take_over_stoa());
    let (raw_front, raw) = (cluster.raw_front_door(), cluster.raw_door());
    let bed = Bed { stoa, front: cluster.front_door(), cluster, raw_front, raw };
    if is_in_full() {
        tokio::join!(
            bed.certificate_is_replaced_while_watches_go_on(),
            bed.slow_watchers_are_cut_off_and_cost_nothing()
        );
        bed.crowd_starves_nobody().await;
    } else {
        bed.certificate_is_replaced_while_watches_go_on().await;
    }
    bed.ends_in_order().await;
}

fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
}

fn backend(name: &str) -> Value {
    json!({
        "apiVersion": "platform.stoa.dev/v1alpha1", "kind": "Backend", "metadata": {"name": name},
        "spec": {"type": "Local", "local": {"directory": name}},
    })
}

impl Bed {
    async fn create(&self, name: &str) -> Value {
        let answer = self.front.ask("POST", BACKENDS, &[("Content-Type", "application/json")], &backend(name)).await;
        assert_eq!(answer.code, 201, "{answer:?}");
        answer.body
    }

    /// Sets an annotation.
    async fn annotate(&self, name: &str, value: &str) -> Value {
        let (path, patch) = (format!("{BACKENDS}/{name}"), json!({"metadata": {"annotations": {"x": value}}}));
        let answer = self.front.ask("PATCH", &path, &[("Content-Type", "application/merge-patch+json")], &patch).await;
        assert_eq!(answer.code, 200, "{answer:?}");
        answer.body
    }

    /// Watches backends on a connection each, directly and behind kube-apiserver.
    async fn watch(&self, query: &str) -> [Connection; 2] {
        let direct = self.raw.connect(Some("admin")).await.unwrap();
        let mut connections = [direct, self.raw_front.connect(Some("admin")).await.unwrap()];
        for connection in &mut connections {
            connection.begin(&format!("GET {BACKENDS}?watch=true&{query}"), &[], "").await.unwrap();
            assert_eq!(connection.reply().await.unwrap().code, 200);
        }
        connections
    }

    async fn certificate_is_replaced_while_watches_go_on(&self) {
        let shown = async || self.raw.connect(None).await.unwrap().server_certificate();
        let (before, name) = (shown().await, unique("certificate"));
        let query =
            format!("resourceVersion={}&fieldSelector=metadata.name={name}", version(&self.create(&name).await));
        let watches = self.watch(&query).await;
        let pki = self.cluster.pki();
        let authority = CertificateAuthority::load_or_create(&pki, "stoa-ca", "").unwrap();
        let request = CertificateRequest::server("replaced").loopback().dns("stoa-apiserver.stoa-system.svc");
        authority.issue(&request).unwrap().write(&pki, "stoa").unwrap();
        let deadline = Instant::now() + PATIENCE;
        while shown().await == before {
            assert!(Instant::now() < deadline, "the old certificate is shown after {PATIENCE:?}");
            sleep(Duration::from_millis(200)).await;
        }
        self.annotate(&name, "replaced").await;
        for mut watch in watches {
            let heard = timeout(PATIENCE, async {
                let mut text = String::new();
                while !text.contains("replaced") {
                    let chunk = watch.chunk().await.unwrap().expect("the watch goes on");
                    text.push_str(std::str::from_utf8(&chunk).unwrap());
                }
            });
            heard.await.expect("the watch hears of what is written");
        }
    }
}
