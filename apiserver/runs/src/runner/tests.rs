//! Several runners, of which some are busy, away or about to end.

use std::{
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    time::{Duration, Instant},
};

use prost::Message as _;
use stoa_pki::{CertificateAuthority, CertificateRequest};
use stoa_proto::{HeartbeatEvent, function_runner_server::FunctionRunnerServer};
use stoa_tls::{MutualTls, ServingCertificate};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::Semaphore};
use tonic::{
    Request,
    transport::{Server, server::TcpIncoming},
};
use tonic_health::server::HealthReporter;

use super::{
    testing::{Answer, Events, FakeRunner, runner_at_each, service},
    verdict::Verdict,
    *,
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A runner that answers as the test says.
#[derive(Clone)]
struct Fake {
    name: &'static str,
    calls: Arc<AtomicUsize>,
    /// How many calls it may answer.
    leave: Arc<Semaphore>,
    /// What it says instead.
    refusal: Arc<Mutex<Option<(Code, &'static str)>>>,
}

impl Fake {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            calls: Arc::default(),
            leave: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)),
            refusal: Arc::default(),
        }
    }

    fn refusing(self, code: Code, reason: &'static str) -> Self {
        *self.refusal.lock() = Some((code, reason));
        self
    }

    /// Lets it answer no more calls until it has leave again.
    fn held(mut self) -> Self {
        self.leave = Arc::new(Semaphore::new(0));
        self
    }

    fn start(&self) -> SocketAddr {
        self.clone().serve()
    }

    /// The same in a process that ends over the first call, as far as others see.
    fn start_mortal(&self) -> SocketAddr {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let entered = runtime.enter();
        let address = self.clone().held().serve();
        drop(entered);
        let calls = self.calls.clone();
        // A runtime cannot end in another one.
        std::thread::spawn(move || {
            let start = Instant::now();
            while calls.load(SeqCst) == 0 && start.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
            runtime.shutdown_background();
        });
        address
    }

    /// The same with a word about how it is.
    async fn start_with_health(&self) -> (SocketAddr, HealthReporter) {
        let incoming = TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = incoming.local_addr().unwrap();
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_serving::<FunctionRunnerServer<Fake>>().await;
        let server = Server::builder().add_service(health).add_service(service(self.clone()));
        tokio::spawn(server.serve_with_incoming(incoming));
        (address, reporter)
    }

    async fn called(&self) -> Result<(), Status> {
        self.calls.fetch_add(1, SeqCst);
        self.leave.acquire().await.unwrap().forget();
        let Some((code, reason)) = *self.refusal.lock() else { return Ok(()) };
        let problem = Problem { reason: reason.to_owned(), message: self.name.to_owned(), ..Problem::default() };
        Err(Status::with_details(code, self.name, problem.encode_to_vec().into()))
    }

    fn count(&self) -> usize {
        self.calls.load(SeqCst)
    }
}

#[tonic::async_trait]
impl FakeRunner for Fake {
    async fn resolve(&self, _: Request<ResolveRequest>) -> Answer<ResolveResponse> {
        self.called().await?;
        Ok(Response::new(ResolveResponse { commit: self.name.to_owned(), ..ResolveResponse::default() }))
    }

    /// Asks to begin, and echoes by health events what it hears then.
    async fn apply(&self, request: Request<Streaming<ApplyRequest>>) -> Answer<Events> {
        self.called().await?;
        let (events, stream) = mpsc::channel(16);
        let instance = self.name.to_owned();
        tokio::spawn(async move {
            let mut requests = request.into_inner();
            let mut sequence = 0;
            while let Ok(Some(_)) = requests.message().await {
                sequence += 1;
                let event = Some(Event::Heartbeat(HeartbeatEvent { instance: instance.clone() }));
                events.send(Ok(ApplyEvent { sequence, event })).await.unwrap();
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

async fn resolve(runner: &Runner) -> Result<String, Status> {
    let answer = tokio::time::timeout(PATIENCE, runner.resolve(ResolveRequest::default())).await.unwrap();
    answer.map(|answer| answer.into_inner().commit)
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runner_with_the_fewest_calls_gets_a_call() {
    let fakes = ["a", "b", "c"].map(|name| Fake::new(name).held());
    let runner = runner_at_each(&fakes.each_ref().map(Fake::start));
    until("all serve", || runner.pool.serving() == 3).await;
    let calls: Vec<_> = (0..9)
        .map(|_| {
            let runner = runner.clone();
            tokio::spawn(async move { resolve(&runner).await })
        })
        .collect();
    until("all are called", || fakes.iter().map(Fake::count).sum::<usize>() == 9).await;
    assert_eq!(fakes.each_ref().map(Fake::count), [3, 3, 3]);
    // Two calls of the second end, so that the next two are its own.
    fakes[1].leave.add_permits(2);
    let under_way = || runner.pool.calls().iter().sum::<usize>();
    until("two have ended", || under_way() == 7).await;
    let more: Vec<_> = (0..2)
        .map(|_| {
            let runner = runner.clone();
            tokio::spawn(async move { resolve(&runner).await })
        })
        .collect();
    until("two more are called", || fakes[1].count() == 5).await;
    fakes.iter().for_each(|fake| fake.leave.add_permits(100));
    for call in calls.into_iter().chain(more) {
        call.await.unwrap().unwrap();
    }
    assert_eq!((under_way(), fakes.each_ref().map(Fake::count)), (0, [3, 5, 3]));
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_runner_gets_a_call_when_all_are_busy() {
    let (busy, free) = (Fake::new("busy").refusing(Code::ResourceExhausted, "Busy"), Fake::new("free"));
    let runner = runner_at_each(&[busy.start(), free.start()]);
    until("both serve", || runner.pool.serving() == 2).await;
    for _ in 0..4 {
        assert_eq!(resolve(&runner).await.unwrap(), "free");
    }
    assert!(busy.count() > 0, "it was asked, too");
    let free = free.refusing(Code::ResourceExhausted, "Busy");
    let (before, status) = (busy.count() + free.count(), resolve(&runner).await.unwrap_err());
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(busy.count() + free.count(), before + 2, "each was asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn error_about_the_request_is_final() {
    let fakes = ["a", "b"].map(|name| Fake::new(name).refusing(Code::NotFound, "SourceNotFound"));
    let runner = runner_at_each(&fakes.each_ref().map(Fake::start));
    assert_eq!(resolve(&runner).await.unwrap_err().code(), Code::NotFound);
    assert_eq!(fakes.iter().map(Fake::count).sum::<usize>(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn terminating_runner_gets_no_calls() {
    let (ending, other) = (Fake::new("ending"), Fake::new("other"));
    let (address, reporter) = ending.start_with_health().await;
    let (another, _reporter) = other.start_with_health().await;
    let runner = runner_at_each(&[address, another]);
    until("both serve", || runner.pool.serving() == 2).await;
    reporter.set_not_serving::<FunctionRunnerServer<Fake>>().await;
    until("one serves", || runner.pool.serving() == 1).await;
    for _ in 0..8 {
        assert_eq!(resolve(&runner).await.unwrap(), "other");
    }
    assert_eq!(ending.count(), 0);
    reporter.set_serving::<FunctionRunnerServer<Fake>>().await;
    until("both serve again", || runner.pool.serving() == 2).await;
    for _ in 0..2 {
        resolve(&runner).await.unwrap();
    }
    assert_eq!(ending.count(), 1);

    // What it says to a call is known before it is asked how it is.
    let ending = ending.refusing(Code::Unavailable, "Draining");
    for _ in 0..4 {
        assert_eq!(resolve(&runner).await.unwrap(), "other");
    }
    assert!(ending.count() > 1, "it was asked, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_runner_is_skipped_at_once() {
    let there = Fake::new("there");
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let runner = runner_at_each(&[gone, there.start()]);
    let start = Instant::now();
    for _ in 0..10 {
        assert_eq!(resolve(&runner).await.unwrap(), "there");
    }
    // A single connection may take as long.
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let nobody = runner_at_each(&[gone]);
    assert_eq!(resolve(&nobody).await.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_ends_runners_is_tried_twice() {
    let fakes = ["a", "b", "c"].map(Fake::new);
    let runner = runner_at_each(&fakes.each_ref().map(Fake::start_mortal));
    until("all serve", || runner.pool.serving() == 3).await;
    let called = || fakes.iter().map(Fake::count).sum::<usize>();
    let said = resolve(&runner).await.unwrap_err();
    assert_eq!((broken_calls(&said), called()), (2, 2), "{said}");
    assert_eq!(halt(&said, reason::PLAN_FAILED), StepError::Retry(said.message().to_owned()));
    // Those that are gone do not count.
    let are_known_to_be_gone = async {
        while runner.pool.unconnected().await < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, are_known_to_be_gone).await.expect("their connections are closed");
    let said = resolve(&runner).await.unwrap_err();
    assert_eq!((broken_calls(&said), called()), (1, 3), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_has_a_limit_of_ended_runners() {
    let fakes = ["a", "b", "c"].map(Fake::new);
    let runner = runner_at_each(&fakes.each_ref().map(Fake::start_mortal));
    until("all serve", || runner.pool.serving() == 3).await;
    let said = resolve(&runner.ending(1)).await.unwrap_err();
    assert_eq!((broken_calls(&said), fakes.iter().map(Fake::count).sum::<usize>()), (1, 1), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_runner_answers_an_interrupted_call() {
    let (mortal, well) = (Fake::new("mortal"), Fake::new("well"));
    let runner = runner_at_each(&[mortal.start_mortal(), well.start()]);
    until("both serve", || runner.pool.serving() == 2).await;
    for _ in 0..2 {
        assert_eq!(resolve(&runner).await.unwrap(), "well");
    }
    assert_eq!(mortal.count(), 1, "it was asked, too");
}

#[tokio::test(flavor = "multi_thread")]
async fn runners_that_cannot_be_reached_are_named() {
    let gone = async || TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gone = [gone().await, gone().await, gone().await, gone().await, gone().await];
    let said = resolve(&runner_at_each(&gone[..2])).await.unwrap_err();
    for address in &gone[..2] {
        let named = format!("the function-runner at http://{address} cannot be reached: ");
        assert!(said.message().contains(&named), "{said}");
    }
    assert_eq!(halt(&said, reason::PLAN_FAILED), StepError::Retry(said.message().to_owned()));
    let said = resolve(&runner_at_each(&gone)).await.unwrap_err();
    assert!(said.message().ends_with("; 2 others cannot be reached either"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_prefers_the_process_that_had_it() {
    let fakes = ["a", "b"].map(Fake::new);
    let runner = runner_at_each(&fakes.each_ref().map(Fake::start));
    until("both serve", || runner.pool.serving() == 2).await;
    let open = async |last| runner.apply(ApplyStart::default(), last).await.unwrap().instance;
    let begun = [open(None).await, open(None).await];
    assert_eq!(
        {
            let mut both = begun.clone();
            both.sort();
            both
        },
        ["a", "b"]
    );
    for _ in 0..3 {
        assert_eq!(open(Some("a")).await, "a");
        assert_eq!(open(Some("b")).await, "b");
    }
    *fakes[0].refusal.lock() = Some((Code::ResourceExhausted, "Busy"));
    assert_eq!(open(Some("a")).await, "b");
    assert_eq!(open(None).await, "b");
    assert_eq!(runner.pool.calls(), [0, 0], "what was opened was dropped");
}

#[tokio::test]
async fn runners_follow_the_addresses_of_a_name() {
    let runner = runner_at_each(&["127.0.0.1:1".parse().unwrap()]);
    let pool = &runner.pool;
    let known = |texts: &[&str]| {
        pool.found(vec![Ok(texts.iter().map(|text| text.parse().unwrap()).collect())]);
        pool.names()
    };
    assert_eq!(known(&["10.0.0.1:7443", "10.0.0.2:7443"]), ["10.0.0.1:7443", "10.0.0.2:7443"]);
    let held = pool.search("Plan", None).next().await.unwrap();
    assert_eq!(known(&["10.0.0.2:7443", "10.0.0.3:7443"]), ["10.0.0.2:7443", "10.0.0.3:7443"]);
    drop(held);
    pool.found(vec![Err(std::io::ErrorKind::TimedOut.into())]);
    assert_eq!(pool.names(), ["10.0.0.2:7443", "10.0.0.3:7443"], "nobody knows better");
    // Both addresses of a runner are its own: it is asked at the one that the resolver prefers.
    known(&["[::1]:7443", "10.0.0.3:7443"]);
    for _ in 0..3 {
        let lent = pool.search("Plan", None).next().await.unwrap();
        assert!(format!("{lent:?}").contains("[::1]"), "{lent:?}");
        std::mem::forget(lent);
    }
}

#[tokio::test]
async fn large_calls_weigh_as_several() {
    let runner = runner_at_each(&["127.0.0.1:1".parse().unwrap()]);
    let pool = &runner.pool;
    pool.found(vec![Ok(["10.0.0.1:7443", "10.0.0.2:7443"].map(|text| text.parse().unwrap()).to_vec())]);
    let recorded = StateEntry { resource: vec![0_u8; 2 * WEIGHT].into(), ..StateEntry::default() };
    let weight = weight(&vec![0_u8; WEIGHT].into(), &[recorded]);
    let large = pool.search("Plan", None).weighing(weight).next().await.unwrap();
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(pool.search("Plan", None).next().await.unwrap());
    }
    assert!(others.iter().all(|other| other.name() != large.name()), "{others:?}");
    assert_eq!(pool.calls(), [4, 4]);
    drop((large, others));
    assert_eq!(pool.calls(), [0, 0]);
}

#[tokio::test]
async fn metrics_name_only_present_or_busy_runners() {
    let runner = runner_at_each(&["127.0.0.1:1".parse().unwrap()]);
    let pool = &runner.pool;
    let known = |texts: &[&str]| pool.found(vec![Ok(texts.iter().map(|text| text.parse().unwrap()).collect())]);
    let call = async || pool.search("Plan", None).next().await.unwrap();
    known(&["10.0.0.1:7443"]);
    let (mut answered, held) = (call().await, call().await);
    answered.answered();
    drop((answered, call().await));
    assert_eq!(pool.told(), ["10.0.0.1:7443"]);
    known(&["10.0.0.2:7443"]);
    assert_eq!(pool.told(), ["10.0.0.1:7443"], "it has a call, and the other none yet");
    // It is back before its last call is over, which is none of its own any more.
    known(&["10.0.0.1:7443"]);
    drop(call().await);
    drop(held);
    assert_eq!(pool.told(), ["10.0.0.1:7443"]);
    known(&["10.0.0.3:7443"]);
    assert!(pool.told().is_empty(), "{:?}", pool.told());
}

/// The certificates of both sides in a folder.
struct Pki {
    folder: TempDir,
}

impl Pki {
    fn new(ca: &CertificateAuthority) -> Self {
        // Whichever test comes first installs it for all.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let pki = Self { folder: TempDir::new().unwrap() };
        pki.trust("runner-ca", &[ca]);
        pki.trust("server-ca", &[ca]);
        pki.issue(ca);
        pki
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn trust(&self, name: &str, authorities: &[&CertificateAuthority]) {
        let bundle: String = authorities.iter().map(|ca| ca.certificate_pem()).collect();
        std::fs::write(self.path().join(name), bundle).unwrap();
    }

    fn issue(&self, ca: &CertificateAuthority) {
        ca.issue(&CertificateRequest::server("runner").loopback()).unwrap().write(self.path(), "runner").unwrap();
        ca.issue(&CertificateRequest::client("server")).unwrap().write(self.path(), "server").unwrap();
    }

    /// A runner with these certificates, and what has it take up new ones.
    async fn serve(&self, fake: &Fake) -> (SocketAddr, Arc<MutualTls>) {
        let certificate =
            ServingCertificate::from_files(self.path().join("runner.crt"), self.path().join("runner.key")).unwrap();
        let tls = Arc::new(MutualTls::new(certificate, self.path().join("server-ca"), &[b"h2"]).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (accepted, incoming) = mpsc::channel(1);
        let serving = tls.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                if let Ok(stream) = tokio_rustls::TlsAcceptor::from(serving.config()).accept(stream).await {
                    accepted.send(std::io::Result::Ok(stream)).await.unwrap();
                }
            }
        });
        let service = service(fake.clone());
        let server = Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(ReceiverStream::new(incoming)));
        (address, tls)
    }

    fn client(&self, url: String) -> (Runner, Arc<dyn Reload>) {
        let certificates = RunnerCertificates {
            ca: self.path().join("runner-ca"),
            certificate: self.path().join("server.crt"),
            key: self.path().join("server.key"),
        };
        Runner::new(&RunnerSettings { addresses: vec![url], certificates }, &prometheus::Registry::new()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bundle_replaces_an_authority_under_a_stream() {
    let (old, new) = (CertificateAuthority::new("old").unwrap(), CertificateAuthority::new("new").unwrap());
    let pki = Pki::new(&old);
    let fake = Fake::new("runner");
    let (address, tls) = pki.serve(&fake).await;
    let (runner, reload) = pki.client(format!("https://localhost:{}", address.port()));
    let mut opened = runner.apply(ApplyStart::default(), None).await.unwrap();
    assert!(!reload.reload().unwrap() && !tls.reload().unwrap(), "nothing is new");
    let step = async |what: &str| {
        assert!(reload.reload().unwrap() | tls.reload().unwrap(), "{what}");
        assert_eq!(resolve(&runner).await.unwrap(), "runner", "{what}");
    };
    pki.trust("runner-ca", &[&old, &new]);
    pki.trust("server-ca", &[&old, &new]);
    step("both are believed").await;
    pki.issue(&new);
    step("the certificates are of the new one").await;
    pki.trust("runner-ca", &[&new]);
    pki.trust("server-ca", &[&new]);
    step("the new one alone is believed").await;

    // The conversation that began with the first of all goes on.
    opened.requests.send(ApplyRequest::default()).await.unwrap();
    let event = tokio::time::timeout(PATIENCE, opened.events.message()).await.unwrap().unwrap().unwrap();
    assert_eq!(event.sequence, 2);

    // Half of a replacement changes nothing.
    let other = CertificateAuthority::new("other").unwrap();
    let issued = other.issue(&CertificateRequest::client("server")).unwrap();
    std::fs::write(pki.path().join("server.key"), &issued.key_pem).unwrap();
    reload.reload().unwrap_err();
    assert_eq!(resolve(&runner).await.unwrap(), "runner");
    // A client that the runner does not believe is refused, and so is a runner that the client does not.
    issued.write(pki.path(), "server").unwrap();
    assert!(reload.reload().unwrap());
    assert_eq!(verdict::of(&resolve(&runner).await.unwrap_err()), Verdict::Away);
    pki.issue(&new);
    pki.trust("runner-ca", &[&old]);
    assert!(reload.reload().unwrap());
    assert_eq!(verdict::of(&resolve(&runner).await.unwrap_err()), Verdict::Away);
}

#[tokio::test(flavor = "multi_thread")]
async fn runner_needs_a_certificate_for_its_name() {
    let ca = CertificateAuthority::new("ca").unwrap();
    let pki = Pki::new(&ca);
    let fake = Fake::new("runner");
    let (address, _) = pki.serve(&fake).await;
    let url = format!("https://localhost:{}", address.port());
    assert_eq!(resolve(&pki.client(url.clone()).0).await.unwrap(), "runner");

    // It is for the address that the name stands for, and not for the name.
    let request = CertificateRequest::server("runner").ip(address.ip());
    ca.issue(&request).unwrap().write(pki.path(), "runner").unwrap();
    let (address, _) = pki.serve(&fake).await;
    let url = format!("https://localhost:{}", address.port());
    assert_eq!(resolve(&pki.client(url).0).await.unwrap_err().code(), Code::Unavailable);
}

#[test]
fn what_is_reloaded_is_named_without_its_key() {
    let [ca, certificate, key] = ["ca", "certificate", "hunter2"].map(str::to_owned);
    let loaded = Mutex::new(Loaded { ca, certificate, key, authorities: 1 });
    assert!(!format!("{loaded:?}").contains("hunter2"));
}
