//! What is recorded of requests.

use std::{
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
};

use stoa_registry::metrics::Families;

use super::{fake_cluster::FakeCluster, *};
use crate::{
    audit::{Auditor, LogFile, LogMode, LogOptions, Policy},
    auth::{AnyOf, SubjectAccessReviewer},
};

/// A log in a folder of its own, by a policy.
struct Log {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

/// Records by a policy what there is in a file.
fn record(setup: &mut Setup, path: &Path, rules: &str) {
    let policy = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rules}");
    let options = LogOptions { path: path.to_owned(), ..LogOptions::default() };
    let log = LogFile::open(options).unwrap();
    let policy = Policy::parse(policy.as_bytes()).unwrap();
    setup.auditor = Some(Auditor::new(policy, log, &Families::default()).unwrap());
}

impl Log {
    fn start(setup: &mut Setup, rules: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        record(setup, &path, rules);
        Self { _folder: folder, path }
    }

    /// The events so far, once there are as many as that.
    async fn events(&self, count: usize) -> Vec<Value> {
        let read = async || {
            loop {
                let text = std::fs::read_to_string(&self.path).unwrap();
                // The last line may be half of one.
                let whole = text.rfind('\n').map_or("", |end| &text[..end]);
                let events: Vec<Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
                if events.len() >= count {
                    return events;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), read()).await.expect("the events are written")
    }
}

fn stages(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["stage"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn audit_records_request_at_arrival_and_answer() {
    let mut setup = Setup::default();
    let log = Log::start(&mut setup, "rules: [{level: Metadata}]");
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let headers = [("user-agent", "kubectl/v1.36"), ("audit-id", "my-id"), ("x-forwarded-for", "192.0.2.7")];
    client.get_with("/apis/g.io/v1/namespaces/a/stacks/s?x=y", &headers).await;
    let events = log.events(2).await;
    assert_eq!(stages(&events), ["RequestReceived", "ResponseComplete"]);
    let mut last = events[1].clone();
    let extra = last["user"].as_object_mut().unwrap().remove("extra").unwrap();
    let credential = extra["authentication.kubernetes.io/credential-id"][0].as_str().unwrap().to_owned();
    assert!(credential.starts_with("X509SHA256="), "{credential}");
    for field in ["requestReceivedTimestamp", "stageTimestamp"] {
        let time = last.as_object_mut().unwrap().remove(field).unwrap();
        let time = time.as_str().unwrap().to_owned();
        assert!(time.len() == "2026-01-02T03:04:05.678901Z".len() && time.ends_with('Z'), "{time}");
    }
    assert_eq!(
        last,
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "my-id",
            "stage": "ResponseComplete", "requestURI": "/apis/g.io/v1/namespaces/a/stacks/s?x=y", "verb": "get",
            "user": {"username": "ann", "groups": ["system:authenticated"]},
            "sourceIPs": ["192.0.2.7", "127.0.0.1"], "userAgent": "kubectl/v1.36",
            "objectRef": {
                "resource": "stacks", "namespace": "a", "name": "s", "apiGroup": "g.io", "apiVersion": "v1",
            },
            "responseStatus": {"metadata": {}, "code": 200},
            "annotations": {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""},
        })
    );
    assert!(events[0].get("annotations").is_none() && events[0].get("responseStatus").is_none(), "{:#}", events[0]);
    server.end().await;
}

#[tokio::test]
async fn audit_records_authorization_decision_of_cluster() {
    let fake = FakeCluster::start(|spec| spec["user"] == "ann").await;
    let authorizer = AnyOf::delegating(Arc::new(SubjectAccessReviewer::new(fake.client.clone())));
    let mut setup = Setup { authorizer: Arc::new(authorizer), ..Setup::default() };
    let log = Log::start(&mut setup, "omitStages: [RequestReceived]\nrules: [{level: Metadata}]");
    let server = setup.start().await;
    for (number, (user, decision, reason)) in
        [("ann", "allow", "the fake says so"), ("bob", "forbid", "the fake says no")].into_iter().enumerate()
    {
        let identity = setup.cas.client(user);
        server.connect(Identity::Certificate(&identity)).await.get("/apis/g.io/v1/namespaces/a/stacks").await;
        let event = log.events(number + 1).await.remove(number);
        let expected = json!({"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": reason});
        assert_eq!(event["annotations"], expected, "{event:#}");
    }
    server.end().await;
}

#[tokio::test]
async fn audit_records_start_and_end_of_watch() {
    let mut setup = Setup::default();
    let log = Log::start(&mut setup, "omitStages: [RequestReceived]\nrules: [{level: Metadata}]");
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let watching = client.send(Method::GET, "/apis/g.io/v1/stacks?watch=true", &[]).await.unwrap();
    assert_eq!(stages(&log.events(1).await), ["ResponseStarted"]);
    server.stop.cancel();
    read(watching).await;
    let events = log.events(2).await;
    assert_eq!(stages(&events), ["ResponseStarted", "ResponseComplete"]);
    assert_eq!(events[1]["verb"], "watch");
}

#[tokio::test]
async fn audit_records_request_after_client_disconnect() {
    let early = json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200});
    let check = async |h2: bool, (method, target): (Method, &str), expected: &[&str]| {
        let mut setup = Setup::default();
        let log = Log::start(&mut setup, "rules: [{level: Metadata}]");
        let server = setup.start().await;
        let ann = setup.cas.client("ann");
        let identity = Identity::Certificate(&ann);
        let (mut client, connection) = server.try_connect(identity, h2, &rustls::version::TLS13).await.unwrap();
        // A stream is reset when nobody waits for its answer any more, and a connection of HTTP/1.1 ends.
        tokio::select! {
            answer = client.send(method, target, &[]) => panic!("it is answered: {answer:?}"),
            () = server.echo.begun.notified() => {}
        }
        if !h2 {
            connection.abort();
        }
        let events = log.events(expected.len()).await;
        assert_eq!(stages(&events), expected);
        for event in &events[1..] {
            assert_eq!(event["responseStatus"], early, "{event:#}");
            assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "allow", "{event:#}");
        }
        server.end().await;
    };
    for h2 in [false, true] {
        let delete = (Method::DELETE, "/apis/g.io/v1/slows/s");
        check(h2, delete, &["RequestReceived", "ResponseComplete"]).await;
        let watch = (Method::GET, "/apis/g.io/v1/slows?watch=true");
        check(h2, watch, &["RequestReceived", "ResponseStarted", "ResponseComplete"]).await;
    }
}

#[tokio::test]
async fn slow_request_audit_lists_waiting_times() {
    let mut setup = Setup::default();
    let log = Log::start(&mut setup, "omitStages: [RequestReceived, ResponseStarted]\nrules: [{level: Metadata}]");
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    // On a busy machine the first ones may be slow as well.
    let mut slow = 0;
    loop {
        let began = tokio::time::Instant::now();
        client.get("/apis/g.io/v1/stacks").await;
        if began.elapsed() < Duration::from_millis(500) {
            break;
        }
        slow += 1;
    }
    let watching = client.send(Method::GET, "/apis/g.io/v1/stacks?watch=true", &[]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    server.stop.cancel();
    read(watching).await;
    let events = log.events(slow + 2).await.split_off(slow);
    let said = |event: &Value| {
        let said = event["annotations"].as_object().unwrap().keys();
        said.filter_map(|key| key.strip_prefix("apiserver.latency.k8s.io/")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(said(&events[0]).is_empty());
    assert_eq!(said(&events[1]), ["authentication", "authorization", "total"]);
    let total = events[1]["annotations"]["apiserver.latency.k8s.io/total"].as_str().unwrap();
    assert!(total.ends_with('s'), "{total}");
}

#[tokio::test]
async fn strangers_panics_and_impersonation_are_recorded() {
    let mut setup = Setup::default();
    let log = Log::start(&mut setup, "omitStages: [RequestReceived]\nrules: [{level: RequestResponse}]");
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    client.get_with("/apis/g.io/v1/stacks", &[("impersonate-user", "bob")]).await;
    client.get("/apis/g.io/v1/panics").await;
    let events = log.events(2).await;
    assert_eq!(events[0]["user"]["username"], "ann");
    assert_eq!(events[0]["impersonatedUser"], json!({"username": "bob", "groups": ["system:authenticated"]}));
    assert_eq!(events[0]["authenticationMetadata"], json!({"impersonationConstraint": "impersonate:user-info"}));
    assert_eq!(events[0]["responseObject"]["user"], "bob");
    assert_eq!(events[1]["stage"], "Panic");
    assert_eq!(events[1]["responseStatus"]["message"], "APIServer panic'd: as asked for");
    // A certificate of a CA that nobody trusts tells nobody's name.
    let other = Cas::new().client("ann");
    let mut stranger = server.connect(Identity::Certificate(&other)).await;
    let answer = stranger.get_with("/apis/g.io/v1/stacks", &[]).await;
    assert_eq!(answer.code, 401);
    server.end().await;
    let events = log.events(3).await;
    assert_eq!(stages(&events[2..]), ["ResponseStarted"]);
    assert_eq!(events[2]["responseStatus"]["reason"], "Unauthorized");
    assert_eq!(events[2]["responseObject"]["message"], "Unauthorized");
}

#[tokio::test]
async fn what_the_policy_does_not_want_is_not_recorded() {
    let mut setup = Setup::default();
    let log = Log::start(
        &mut setup,
        "omitStages: [RequestReceived]\nrules:\n- level: None\n  users: [bob]\n- level: None\n  nonResourceURLs: [/healthz*]\n\
         - level: Metadata\n  resources: [{group: g.io, resources: [stacks]}]",
    );
    let server = setup.start().await;
    let (ann, bob) = (setup.cas.client("ann"), setup.cas.client("bob"));
    server.connect(Identity::Certificate(&bob)).await.get("/apis/g.io/v1/stacks").await;
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    for target in ["/healthz/ping", "/apis/g.io/v1/stacks/s/status", "/apis/g.io/v1/others", "/apis/g.io/v1/stacks/s"] {
        client.get(target).await;
    }
    let events = log.events(1).await;
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["requestURI"], "/apis/g.io/v1/stacks/s");
    server.end().await;
}

#[tokio::test]
async fn early_failures_reach_audit_log_or_client() {
    let mut setup = Setup::default();
    let log = Log::start(&mut setup, "rules: [{level: Metadata}]");
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    assert_eq!(client.get("/apis/g.io/v1/stacks?timeout=soon").await.code, 400);
    server.end().await;
    let events = log.events(1).await;
    assert_eq!((stages(&events), &events[0]["user"]), (vec!["ResponseStarted"], &json!({})));
    assert_eq!(events[0]["responseStatus"]["reason"], "BadRequest");

    // A log that is full, and strict about it.
    let full = LogOptions { path: "/dev/full".into(), mode: LogMode::BlockingStrict, ..LogOptions::default() };
    let policy = Policy::parse(b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]").unwrap();
    let auditor = Auditor::new(policy, LogFile::open(full).unwrap(), &Families::default()).unwrap();
    let setup = Setup { auditor: Some(auditor), ..Setup::default() };
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let answer = server.connect(Identity::Certificate(&ann)).await.get("/apis/g.io/v1/stacks").await;
    assert_eq!(answer.code, 500);
    assert_eq!(answer.text, "Internal Server Error: \"/apis/g.io/v1/stacks\": failed to store audit event\n");
    server.end().await;
}

/// A pipe that takes nothing more until it is read.
fn full_pipe(folder: &Path) -> (PathBuf, std::fs::File) {
    let path = folder.join("audit.log");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Both of its ends, so that the log is opened though nobody reads.
    let mut pipe = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    pipe.write_all(&vec![b'\n'; 64 << 10]).unwrap();
    (path, pipe)
}

#[tokio::test]
async fn hanging_audit_storage_blocks_only_recorded_requests() {
    let check = async |h2: bool, method: Method| {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut storage) = full_pipe(folder.path());
        let mut setup = Setup::default();
        let rules =
            "omitStages: [RequestReceived]\nrules:\n- level: None\n  nonResourceURLs: [/healthz*]\n- level: Metadata";
        record(&mut setup, &path, rules);
        let server = setup.start().await;
        let ann = setup.cas.client("ann");
        let identity = || Identity::Certificate(&ann);
        let (mut client, _connection) = server.try_connect(identity(), h2, &rustls::version::TLS13).await.unwrap();
        let mut other = server.connect(identity()).await;
        let answer = tokio::spawn(async move {
            let slow = client.send(method, "/apis/g.io/v1/slows/s", &[]).await.unwrap();
            read(slow).await.code
        });
        server.echo.begun.notified().await;
        server.echo.release.notify_one();
        for _ in 0..20 {
            assert_eq!(other.get("/healthz/ping").await.code, 200);
        }
        assert!(!answer.is_finished());
        let reading = std::thread::spawn(move || {
            let (mut piece, mut text) = ([0; 4096], Vec::new());
            while memchr::memmem::find(&text, b"ResponseComplete").is_none() {
                let length = storage.read(&mut piece).unwrap();
                text.extend_from_slice(&piece[..length]);
            }
            storage
        });
        assert_eq!(answer.await.unwrap(), 200);
        drop(reading.join().unwrap());
        server.end().await;
    };
    for h2 in [false, true] {
        check(h2, Method::GET).await;
        // Of an answer without a body nobody asks for the end.
        check(h2, Method::HEAD).await;
    }
}

#[tokio::test]
async fn expired_request_skips_hanging_audit_storage() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _storage) = full_pipe(folder.path());
    let mut setup = Setup::default();
    record(&mut setup, &path, "rules: [{level: Metadata}]");
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let answer = server.connect(Identity::Certificate(&ann)).await.get("/apis/g.io/v1/stacks?timeout=1s").await;
    assert_eq!(answer.code, 504);
    server.end().await;
}
