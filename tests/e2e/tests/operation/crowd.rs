//! More requests than a server can work on: it turns away those of a crowd, and nobody whom the cluster depends on.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use stoa_e2e::{Caller, Connection, Server as _, unique};
use tokio::sync::watch;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, sleep, timeout};

use crate::{BACKENDS, Bed, MUTATING, PATIENCE, READING, backend};

const CROWD: &str = "crowd";
/// Of the cluster, and no master.
const CONTROLLER: &str = "system:serviceaccount:kube-system:generic-garbage-collector";
/// How often the others are looked at, and for how long: what is held meanwhile is timed out after a minute.
const ROUNDS: usize = 8;
const LOOKING: Duration = Duration::from_secs(20);
/// How long a request is silent that is worked on.
const SILENCE: Duration = Duration::from_secs(5);
/// How long the others may have to wait, where tests are run beside each other.
const LONGEST: Duration = Duration::from_secs(30);

/// Reads everything there is again and again, in the form that takes the most work.
struct Readers {
    tasks: JoinSet<()>,
    end: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    refused: Arc<AtomicUsize>,
}

impl Readers {
    fn start(callers: impl IntoIterator<Item = Caller>) -> Self {
        let mut readers =
            Self { tasks: JoinSet::new(), end: Arc::default(), answered: Arc::default(), refused: Arc::default() };
        for caller in callers {
            let (end, answered, refused) = (readers.end.clone(), readers.answered.clone(), readers.refused.clone());
            readers.tasks.spawn(async move {
                let headers = [("X-Remote-User", CROWD), ("Accept", "application/yaml")];
                while !end.load(SeqCst) {
                    let answer = caller.get(BACKENDS, &headers).await;
                    match answer.code {
                        200 => answered.fetch_add(1, SeqCst),
                        429 => {
                            assert_eq!(answer.headers["retry-after"], "1", "{answer:?}");
                            sleep(Duration::from_millis(20)).await;
                            refused.fetch_add(1, SeqCst)
                        }
                        _ => panic!("{answer:?}"),
                    };
                }
            });
        }
        readers
    }

    async fn stop(mut self) {
        self.end.store(true, SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
    }
}

/// How long something took, again and again.
struct Times(&'static str, Vec<Duration>);

impl Times {
    async fn add<T>(&mut self, work: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let done = work.await;
        self.1.push(began.elapsed());
        done
    }

    fn check(mut self) {
        self.1.sort();
        let (median, longest) = (self.1[self.1.len() / 2], self.1[self.1.len() - 1]);
        eprintln!("{}: {median:.1?} as a rule, {longest:.1?} at most", self.0);
        assert!(longest < LONGEST, "{} took {median:?} as a rule, {longest:?} at most", self.0);
    }
}

impl Bed {
    /// How often a replica has lost its lease.
    fn terms_lost(&self) -> usize {
        let lost = |log| fs::read_to_string(log).unwrap().matches("this replica leads no more").count();
        self.cluster.logs().into_iter().map(lost).sum()
    }

    /// Begins to create objects as one of the crowd and does not end, until as many are worked on as there may be; with what
    /// is missing of each.
    async fn hold(&self) -> Vec<(Connection, String)> {
        let (full, is_full) = watch::channel(false);
        let mut begun = FuturesUnordered::new();
        for number in 0..2 * MUTATING {
            let text = backend(&unique(&format!("held-{number}"))).to_string();
            let (body, rest) = text.split_at(text.len() - 1);
            let length = text.len().to_string();
            let headers =
                [("X-Remote-User", CROWD), ("Content-Type", "application/json"), ("Content-Length", length.as_str())];
            let mut connection = self.raw.connect(Some("front-proxy-client")).await.unwrap();
            connection.begin(&format!("POST {BACKENDS}"), &headers, body).await.unwrap();
            let (rest, mut is_full) = (rest.to_owned(), is_full.clone());
            begun.push(async move {
                // One that is worked on says nothing, also when those that are refused had the time to hear it.
                let silence = async {
                    is_full.wait_for(|full| *full).await.expect("the test goes on");
                    sleep(SILENCE).await;
                };
                tokio::select! {
                    biased;
                    reply = connection.reply() => {
                        let reply = reply.unwrap();
                        assert_eq!((reply.code, reply.header("retry-after")), (429, Some("1")), "{reply:?}");
                        None
                    }
                    () = silence => Some((connection, rest)),
                }
            });
        }
        let (mut held, mut refused) = (Vec::new(), 0);
        while let Some(one) = timeout(PATIENCE, begun.next()).await.expect("too many are turned away") {
            match one {
                Some(one) => held.push(one),
                None => refused += 1,
            }
            // Once it is, it stays so.
            full.send_if_modified(|full| refused >= MUTATING && !std::mem::replace(full, true));
        }
        assert!(!held.is_empty(), "nothing is worked on");
        held
    }

    pub(crate) async fn crowd_starves_nobody(&self) {
        let kubectl = self.cluster.kubectl();
        let user = format!("--user={CROWD}");
        block_in_place(|| kubectl.run(&["create", "clusterrolebinding", CROWD, "--clusterrole=cluster-admin", &user]));
        // A list takes some time, and not so much that as many as there may be keep a program that is not optimised from
        // everything else.
        for _ in 0..5 {
            let name = unique("heavy");
            self.create(&name).await;
            self.annotate(&name, &"0123456789".repeat(2_000)).await;
        }
        let lost = self.terms_lost();

        let held = self.hold().await;
        // On the connection that a front proxy has.
        let proxies = [0, 1].map(|replica| self.cluster.directly_at(replica, Some("front-proxy-client")));
        let readers = Readers::start(proxies.iter().flat_map(|proxy| vec![proxy.clone(); 3 * READING]));
        // Whoever is turned away hears it behind kube-apiserver, too.
        let as_one_of_them = [("Impersonate-User", CROWD), ("Content-Type", "application/json")];
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.front.ask("POST", BACKENDS, &as_one_of_them, &backend(&unique("crowd"))).await;
            if answer.code == 429 {
                assert_eq!(answer.headers["retry-after"], "1", "{answer:?}");
                break;
            }
            assert!(Instant::now() < deadline, "nobody is turned away: {answer:?}");
        }

        let mut times = [Times("/readyz", vec![]), Times("a controller's list", vec![])];
        let (anybody, began) = (self.cluster.directly(None), Instant::now());
        for _ in 0..ROUNDS {
            let [ready, list] = &mut times;
            let answer = ready.add(anybody.get("/readyz", &[])).await;
            assert_eq!(answer.code, 200, "{answer:?}");
            let path = format!("{BACKENDS}?labelSelector=nothing");
            let controller = self.front.get(&path, &[("Impersonate-User", CONTROLLER)]);
            assert_eq!(list.add(controller).await.code, 200);
            if began.elapsed() > LOOKING {
                break;
            }
        }
        for (mut connection, rest) in held {
            connection.write(&rest).await.unwrap();
            assert_eq!(
                timeout(PATIENCE, connection.reply()).await.unwrap().unwrap().code,
                201,
                "what was begun is done"
            );
        }
        // Its controller asks for every kind of ours.
        block_in_place(|| {
            kubectl.run(&["create", "namespace", CROWD]);
            kubectl.run(&["delete", "namespace", CROWD, "--timeout=180s"]);
        });
        let (answered, refused) = (readers.answered.load(SeqCst), readers.refused.load(SeqCst));
        readers.stop().await;
        eprintln!("{answered} lists were answered, {refused} turned away");
        assert!(answered > 0 && refused > 0, "{answered} lists were answered, {refused} turned away");
        times.into_iter().for_each(Times::check);
        assert_eq!(self.terms_lost(), lost, "who leads went on to");

        let after = self.front.ask("POST", BACKENDS, &as_one_of_them, &backend(&unique("crowd"))).await;
        assert_eq!(after.code, 201, "{after:?}");
    }
}
