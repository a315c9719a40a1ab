//! The end of a server that is asked to end.

use std::time::Duration;

use kube::Client;
use stoa_e2e::{new_leader, unique};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep, timeout};

use crate::{BACKENDS, Bed, DELAY, PATIENCE, backend, version};

/// What a pod is given in `manifests/ha`.
const GRACE: Duration = Duration::from_secs(90);
const IN_FLIGHT: &str = "apiserver_current_inflight_requests{request_kind=\"mutating\"} ";

/// How many requests that change something a Stoa works on.
async fn in_flight(stoa: &Client) -> usize {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = stoa.request_text(request).await.unwrap();
    metrics.lines().find_map(|line| line.strip_prefix(IN_FLIGHT)).map_or(0, |count| count.parse().unwrap())
}

impl Bed {
    pub(crate) async fn ends_in_order(mut self) {
        let (name, replicas) = (unique("end"), self.cluster.replicas());
        let anybody = self.cluster.directly(None);
        let query =
            format!("resourceVersion={}&fieldSelector=metadata.name={name}", version(&self.create(&name).await));
        let watches = self.watch(&query).await;
        let direct = self.raw.connect(Some("admin")).await.unwrap();
        let mut posts = Vec::new();
        for (door, mut post) in [("direct", direct), ("behind", self.raw_front.connect(Some("admin")).await.unwrap())] {
            let text = backend(&format!("{name}-{door}")).to_string();
            let (begin, rest) = text.split_at(text.len() - 1);
            let headers = [("Content-Type", "application/json"), ("Content-Length", &text.len().to_string())];
            post.begin(&format!("POST {BACKENDS}"), &headers, begin).await.unwrap();
            posts.push((post, rest.to_owned()));
        }
        let deadline = Instant::now() + PATIENCE;
        while in_flight(&replicas[0]).await < posts.len() {
            assert!(Instant::now() < deadline, "what was begun did not arrive within {PATIENCE:?}");
            sleep(Duration::from_millis(50)).await;
        }

        self.stoa.terminate();
        let began = Instant::now();
        let ready = async || {
            let mut probe = self.raw.connect(None).await.expect("it still takes connections");
            probe.begin("GET /readyz", &[], "").await.unwrap();
            probe.reply().await.unwrap().code
        };
        while ready().await == 200 {
            assert!(began.elapsed() < DELAY, "it is ready as long as it takes connections");
        }
        assert_eq!(ready().await, 500);
        assert_eq!(self.front.get(&format!("{BACKENDS}/{name}"), &[]).await.code, 200, "it still serves");
        assert_eq!(anybody.get("/livez", &[]).await.code, 200, "it need not be killed");

        for mut watch in watches {
            let events = timeout(PATIENCE, watch.events()).await.expect("watches end").expect("they end in order");
            assert!(events.iter().all(|event| event["type"] != "ERROR"), "{events:?}");
        }
        while self.raw.connect(None).await.is_ok() {
            assert!(began.elapsed() < GRACE, "it takes connections for ever");
            sleep(Duration::from_millis(50)).await;
        }
        assert!(self.stoa.has_ended().is_none(), "what was begun is waited for");
        for (post, rest) in &mut posts {
            post.write(rest).await.unwrap();
            assert_eq!(timeout(PATIENCE, post.reply()).await.unwrap().unwrap().code, 201, "what was begun is done");
        }
        let ended = block_in_place(|| self.stoa.ended(GRACE));
        let took = began.elapsed();
        eprintln!("it ended after {took:.1?}");
        assert!(ended.success() && took < GRACE, "{ended} after {took:?}");

        assert_eq!(new_leader(&replicas, PATIENCE).await, 1);
        for door in ["direct", "behind"] {
            let path = format!("{BACKENDS}/{name}-{door}");
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            replicas[1].request_text(request).await.expect("what was acknowledged is there");
        }
    }
}
