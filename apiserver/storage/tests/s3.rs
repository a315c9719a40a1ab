//! Documents in a bucket, against a real S3 server, and against it as OSS is: the contract, what these alone have, and faults.
//!
//! `STOA_TEST_S3` names the program versitygw; `hack/test` sets it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::{
    fs,
    ops::Deref,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use stoa_storage::documents::{
    Digest, DocumentError, DocumentStore, Refusal, S3Documents, conformance,
    s3::{AccessKey, AccessKeys, Addressing, KeyError, Patience, S3Location, S3Transport, Writes},
};
use stoa_test_s3::{Fault, Faults, OssServer, REGION, S3Server};

const SCOPE: &str = "shop/5f0c7f44";
const SECRET: &str = "hunter2hunter2";

/// One key, or the lack of one.
#[derive(Debug)]
struct Keys {
    key: Result<AccessKey, KeyError>,
    refused: AtomicU64,
}

impl Keys {
    fn of(id: &str, secret: &str) -> Arc<Self> {
        let key = AccessKey { id: id.to_owned(), secret: secret.to_owned(), session_token: None };
        Arc::new(Self { key: Ok(key), refused: AtomicU64::new(0) })
    }

    fn none(error: KeyError) -> Arc<Self> {
        Arc::new(Self { key: Err(error), refused: AtomicU64::new(0) })
    }
}

#[async_trait]
impl AccessKeys for Keys {
    async fn key(&self) -> Result<AccessKey, KeyError> {
        self.key.clone()
    }

    fn refused(&self) {
        self.refused.fetch_add(1, SeqCst);
    }
}

fn location(endpoint: String) -> S3Location {
    S3Location {
        bucket: "documents".to_owned(),
        prefix: "team/stoa".to_owned(),
        region: REGION.to_owned(),
        endpoint,
        addressing: Addressing::Path,
        writes: Writes::Conditional,
    }
}

/// The same, where OSS is.
fn oss(endpoint: String) -> S3Location {
    S3Location { addressing: Addressing::VirtualHosted, writes: Writes::ForbidOverwrite, ..location(endpoint) }
}

fn open(location: &S3Location, keys: Arc<Keys>) -> S3Documents {
    open_with(location, keys, Patience::default())
}

fn open_with(location: &S3Location, keys: Arc<Keys>, patience: Patience) -> S3Documents {
    S3Documents::open(location, keys, &S3Transport::default(), patience).unwrap()
}

/// A server.
enum Service {
    S3(S3Server),
    Oss(OssServer),
}

impl Deref for Service {
    type Target = S3Server;

    fn deref(&self) -> &S3Server {
        match self {
            Self::S3(server) => server,
            Self::Oss(server) => server,
        }
    }
}

/// A server, a proxy before it, and a store that goes through the proxy.
struct World {
    server: Service,
    faults: Faults,
    store: S3Documents,
}

impl World {
    fn new() -> Self {
        Self::s3(Patience::default())
    }

    fn s3(patience: Patience) -> Self {
        let server = S3Server::start("documents");
        let faults = Faults::before(server.port());
        let here = location(faults.url());
        Self::at(Service::S3(server), faults, &here, patience)
    }

    fn oss(patience: Patience) -> Self {
        let server = OssServer::start("documents");
        let faults = Faults::before(server.port());
        let here = oss(OssServer::url_at(faults.port()));
        Self::at(Service::Oss(server), faults, &here, patience)
    }

    /// One of each.
    fn both() -> [Self; 2] {
        Self::both_with(Patience::default())
    }

    fn both_with(patience: Patience) -> [Self; 2] {
        [Self::s3(patience), Self::oss(patience)]
    }

    fn at(server: Service, faults: Faults, location: &S3Location, patience: Patience) -> Self {
        let store = open_with(location, Keys::of(&server.access_key, &server.secret_key), patience);
        Self { server, faults, store }
    }

    /// How many puts OSS kept from writing over something.
    fn kept(&self) -> Option<u64> {
        match &self.server {
            Service::S3(_) => None,
            Service::Oss(server) => Some(server.kept()),
        }
    }

    /// The file that a document is.
    fn file(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        self.server.bucket("documents").join(format!("team/stoa/{SCOPE}/sha256/{}/{hex}", &hex[..2]))
    }

    /// The same fault for the next requests of a method.
    fn next(&self, mut count: u64, method: &'static str, fault: Fault) {
        self.faults.rule(move |request| {
            if count == 0 || request.method != method {
                return None;
            }
            count -= 1;
            Some(fault.clone())
        });
    }
}

#[tokio::test]
async fn conforms() {
    let world = World::new();
    conformance::all(&world.store, "shop").await;
}

#[tokio::test]
async fn conforms_with_oss() {
    let server = OssServer::start("documents");
    let location = S3Location { prefix: String::new(), ..oss(server.url()) };
    conformance::all(&open(&location, Keys::of(&server.access_key, &server.secret_key)), "shop").await;
}

#[tokio::test]
async fn more_documents_than_one_answer_names_are_listed() {
    for world in World::both() {
        let mut put = Vec::new();
        for n in 0..1_001_u32 {
            let digest = Digest::of(&n.to_be_bytes());
            let file = world.file(&digest);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, n.to_be_bytes()).unwrap();
            put.push(digest);
        }
        put.sort_unstable();
        assert!(world.store.list(SCOPE).await.unwrap() == put);
        assert_eq!(world.faults.requests(), 2);
    }
}

#[tokio::test]
async fn nothing_is_written_over() {
    for world in World::both() {
        let plan = Bytes::from_static(b"plan");
        let digest = world.store.put(SCOPE, plan.clone()).await.unwrap();
        let file = world.file(&digest);
        assert_eq!(fs::read(&file).unwrap(), plan);
        fs::write(&file, b"plot").unwrap();
        let again = world.store.put(SCOPE, plan.clone()).await;
        assert!(matches!(again, Err(DocumentError::Conflict { .. })), "{again:?}");
        assert_eq!(fs::read(&file).unwrap(), b"plot");
        let read = world.store.get(SCOPE, &digest).await;
        assert!(matches!(read, Err(DocumentError::Corrupt { .. })), "{read:?}");
    }
}

#[tokio::test]
async fn lost_put_answer_causes_no_conflict() {
    for world in World::both() {
        for (n, fault) in [Fault::Lost, Fault::AnswerAfter(500, "InternalError"), Fault::AnswerAfter(503, "SlowDown")]
            .into_iter()
            .enumerate()
        {
            world.next(1, "PUT", fault);
            let bytes = Bytes::from(format!("plan {n}"));
            let digest = world.store.put(SCOPE, bytes.clone()).await.unwrap();
            assert_eq!(fs::read(world.file(&digest)).unwrap(), bytes);
        }
        assert_eq!(world.faults.faults(), 3);
        assert_eq!(world.store.list(SCOPE).await.unwrap().len(), 3);
        assert!(world.kept().is_none_or(|kept| kept == 3), "each was found by its second try");
    }
}

#[tokio::test]
async fn what_passes_is_waited_for() {
    let patience = Patience { answer: Duration::from_millis(500), ..Patience::default() };
    for world in World::both_with(patience) {
        for (count, fault) in [
            (3, Fault::Answer(500, "InternalError")),
            (3, Fault::Answer(503, "SlowDown")),
            (3, Fault::Answer(409, "ConditionalRequestConflict")),
            (3, Fault::Reset),
            (1, Fault::Slow(Duration::from_millis(300))),
            // Longer than an answer is waited for.
            (1, Fault::Slow(Duration::from_millis(800))),
        ] {
            let before = world.faults.faults();
            let bytes = Bytes::from(format!("{fault:?}").repeat(1_000));
            world.next(count, "PUT", fault.clone());
            let digest = world.store.put(SCOPE, bytes.clone()).await.unwrap();
            let is_read_fault = !matches!(fault, Fault::Answer(409, _));
            if is_read_fault {
                world.next(count, "GET", fault.clone());
            }
            assert_eq!(world.store.get(SCOPE, &digest).await.unwrap(), Some(bytes), "{fault:?}");
            let expected = if is_read_fault { 2 * count } else { count };
            assert_eq!(world.faults.faults() - before, expected, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_ends_too_soon_is_no_document() {
    for world in World::both() {
        let bytes = Bytes::from(vec![7; 100_000]);
        let digest = world.store.put(SCOPE, bytes.clone()).await.unwrap();
        world.next(2, "GET", Fault::Cut);
        assert_eq!(world.store.get(SCOPE, &digest).await.unwrap(), Some(bytes));
        assert_eq!(world.faults.faults(), 2);
    }
}

#[tokio::test]
async fn what_does_not_pass_is_told_in_time() {
    let patience = Patience { answer: Duration::from_secs(1), retries: Duration::from_secs(3) };
    for world in World::both_with(patience) {
        for fault in [Fault::Answer(500, "InternalError"), Fault::Reset, Fault::Slow(Duration::from_secs(60))] {
            world.next(u64::MAX, "PUT", fault.clone());
            let start = Instant::now();
            let put = world.store.put(SCOPE, Bytes::from_static(b"plan")).await;
            assert!(matches!(put, Err(DocumentError::Unavailable(_))), "{fault:?}: {put:?}");
            // The time for tries, the longest wait before the last one, and the time for its answer.
            assert!(start.elapsed() < Duration::from_secs(30), "{fault:?}: {:?}", start.elapsed());
        }
        world.faults.heal();
        assert!(world.store.list(SCOPE).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn store_reports_permanent_failures_immediately() {
    let (server, oss_server) = (S3Server::start("documents"), OssServer::start("documents"));
    let faults = Faults::before(server.port());
    somebody_has_to_see_to(&server, &faults, location(faults.url())).await;
    let faults = Faults::before(oss_server.port());
    somebody_has_to_see_to(&oss_server, &faults, oss(OssServer::url_at(faults.port()))).await;
}

async fn somebody_has_to_see_to(server: &S3Server, faults: &Faults, here: S3Location) {
    let put = async |location: &S3Location, keys: &Arc<Keys>| {
        let before = faults.requests();
        let error = open(location, keys.clone()).put(SCOPE, Bytes::from_static(b"plan")).await.unwrap_err();
        let told = format!("{error:?} {}", error.in_full());
        assert!(!told.contains(SECRET) && !told.contains(&server.access_key), "{told}");
        let DocumentError::Refused { refusal, .. } = error else { panic!("{told}") };
        (refusal, faults.requests() - before)
    };
    let right = Keys::of(&server.access_key, &server.secret_key);

    let wrong = Keys::of(&server.access_key, SECRET);
    assert_eq!(put(&here, &wrong).await, (Refusal::Access, 1));
    assert_eq!(wrong.refused.load(SeqCst), 1);
    assert_eq!(put(&here, &Keys::of("nobody", SECRET)).await, (Refusal::Access, 1));
    let elsewhere = S3Location { bucket: "elsewhere".to_owned(), ..here.clone() };
    assert_eq!(put(&elsewhere, &right).await, (Refusal::Bucket, 1));
    // What is asked for a size has no words for what is not there.
    let size = open(&elsewhere, right.clone()).size(SCOPE, &Digest::of(b"plan")).await;
    assert!(matches!(size, Err(DocumentError::Refused { refusal: Refusal::Bucket, .. })), "{size:?}");
    let other_region = S3Location { region: "us-test-1".to_owned(), ..here.clone() };
    assert_eq!(put(&other_region, &right).await, (Refusal::Request, 1));
    faults.rule(|_| Some(Fault::Answer(404, "")));
    assert_eq!(put(&here, &right).await, (Refusal::Request, 1), "that is no such service");
    faults.rule(|_| Some(Fault::Answer(301, "PermanentRedirect")));
    assert_eq!(put(&here, &right).await, (Refusal::Request, 1));
    let none = Keys::none(KeyError::Absent("secret stoa-system/s3 does not exist".to_owned()));
    assert_eq!(put(&here, &none).await, (Refusal::Credentials, 0));
    assert_eq!(right.refused.load(SeqCst), 0);

    faults.rule(|_| Some(Fault::Answer(507, "InsufficientStorage")));
    let full = open(&here, right).put(SCOPE, Bytes::from_static(b"plan")).await;
    assert!(matches!(full, Err(DocumentError::Full(_))), "{full:?}");
}

#[tokio::test]
async fn a_bucket_may_be_named_by_the_host() {
    let server = S3Server::start_with("documents", |_| vec!["--virtual-domain=localhost".to_owned()]);
    let endpoint = format!("http://localhost:{}", server.port());
    let location = S3Location { addressing: Addressing::VirtualHosted, ..location(endpoint) };
    let store = open(&location, Keys::of(&server.access_key, &server.secret_key));
    let digest = store.put(SCOPE, Bytes::from_static(b"plan")).await.unwrap();
    let hex = digest.hex();
    let file = server.bucket("documents").join(format!("team/stoa/{SCOPE}/sha256/{}/{hex}", &hex[..2]));
    assert_eq!(fs::read(file).unwrap(), b"plan");
    assert_eq!(store.list(SCOPE).await.unwrap(), [digest]);
}

#[tokio::test]
async fn a_bucket_may_have_a_domain_to_itself() {
    let server = OssServer::start("documents");
    let domain = format!("http://documents.localhost:{}", server.port());
    let location = S3Location { addressing: Addressing::CustomDomain, ..oss(domain) };
    let keys = Keys::of(&server.access_key, &server.secret_key);
    let digest = open(&location, keys.clone()).put(SCOPE, Bytes::from_static(b"plan")).await.unwrap();
    // It is the bucket that the service has otherwise, too.
    assert_eq!(open(&oss(server.url()), keys).list(SCOPE).await.unwrap(), [digest]);
}

#[tokio::test]
async fn oss_takes_nothing_that_is_meant_for_s3() {
    let server = OssServer::start("documents");
    let keys = Keys::of(&server.access_key, &server.secret_key);
    let put = async |location: S3Location| {
        let error = open(&location, keys.clone()).put(SCOPE, Bytes::from_static(b"plan")).await.unwrap_err();
        error.in_full()
    };
    let in_path = S3Location { addressing: Addressing::Path, ..oss(server.url()) };
    let said = put(in_path).await;
    assert!(said.contains("(SecondLevelDomainForbidden)"), "{said}");
    let with_condition = S3Location { writes: Writes::Conditional, ..oss(server.url()) };
    let said = put(with_condition).await;
    assert!(said.contains("(NotImplemented)"), "{said}");
}

#[tokio::test]
async fn oss_put_preserves_concurrent_object() {
    let world = World::oss(Patience::default());
    let plan = Bytes::from_static(b"plan");
    // The server takes no file for an object that it did not make itself.
    let file = world.file(&world.store.put(SCOPE, plan.clone()).await.unwrap());
    let aside = world.server.bucket("documents").join("aside");
    for (theirs, is_the_same) in [(b"plot", false), (b"plan", true)] {
        fs::write(&file, theirs).unwrap();
        fs::rename(&file, &aside).unwrap();
        let (from, to) = (aside.clone(), file.clone());
        world.faults.rule(move |request| {
            if request.method == "PUT" {
                fs::rename(&from, &to).unwrap();
            }
            None
        });
        let put = world.store.put(SCOPE, plan.clone()).await;
        assert_eq!(put.is_ok(), is_the_same, "{put:?}");
        assert!(is_the_same || matches!(put, Err(DocumentError::Conflict { .. })), "{put:?}");
        assert_eq!(fs::read(&file).unwrap(), theirs);
    }
    assert_eq!(world.kept(), Some(2));
}

#[tokio::test]
async fn versioned_oss_bucket_stores_each_document_once() {
    let server = OssServer::start("documents");
    server.enable_versions();
    let faults = Faults::before(server.port());
    let store = open(&oss(OssServer::url_at(faults.port())), Keys::of(&server.access_key, &server.secret_key));
    let digest = store.put(SCOPE, Bytes::from_static(b"plan")).await.unwrap();
    // Another put would make another version.
    faults.rule(|request| (request.method == "PUT").then_some(Fault::Answer(403, "AccessDenied")));
    assert_eq!(store.put(SCOPE, Bytes::from_static(b"plan")).await.unwrap(), digest);
    assert_eq!(faults.faults(), 0);
}
