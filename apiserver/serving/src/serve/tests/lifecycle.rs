//! Limits, deadlines, panics, certificates that change, and the end.

use std::time::Duration;

use super::*;
use crate::auth::MASTERS;

const STACKS: &str = "/apis/g.io/v1/stacks";
const SLOWS: &str = "/apis/g.io/v1/slows";
const WATCH: &str = "/apis/g.io/v1/stacks?watch=true";

#[tokio::test]
async fn request_limit_spares_probes_and_masters() {
    let limits = Limits { reading: 1, mutating: 1, ..Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut slow = server.connect(Identity::Certificate(&ann)).await;
    let slow = tokio::spawn(async move { slow.get(SLOWS).await });
    server.echo.begun.notified().await;

    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let answer = client.get(STACKS).await;
    assert_eq!(answer.code, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(answer.text, "Too many requests, please try again later.\n");
    assert_eq!(client.get("/livez").await.text, "ok");
    // A watch is no part of the limit, and neither is it of the other limit.
    let watch = client.send(Method::GET, WATCH, &[]).await.unwrap();
    assert_eq!(watch.status(), StatusCode::OK);
    let admin = setup.cas.client.issue(&CertificateRequest::client("admin").organization(MASTERS)).unwrap();
    let mut admin = server.connect(Identity::Certificate(&admin)).await;
    assert_eq!(admin.get(STACKS).await.code, StatusCode::OK);
    let created = admin.send(Method::POST, STACKS, &[]).await.unwrap();
    assert_eq!(created.status(), StatusCode::OK);

    server.echo.release.notify_one();
    assert_eq!(slow.await.unwrap().code, StatusCode::OK);
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    assert_eq!(client.get(STACKS).await.code, StatusCode::OK);
    server.end().await;
}

#[tokio::test]
async fn panic_returns_500_and_preserves_connection() {
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let answer = client.get("/apis/g.io/v1/panics").await;
    assert_eq!(answer.code, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(answer.text, "This request caused apiserver to panic. Look in the logs for details.\n");
    assert!(!answer.text.contains("as asked for"), "{}", answer.text);
    assert_eq!(client.get(STACKS).await.code, StatusCode::OK);
    server.end().await;
}

#[tokio::test]
async fn timeout_returns_504_and_releases_slot() {
    let limits = Limits { reading: 1, ..Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let answer = client.get(&format!("{SLOWS}?timeout=20ms")).await;
    assert_eq!(answer.code, StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(answer.json()["reason"], "Timeout");
    assert_eq!(answer.json()["message"], "Timeout: request did not complete within the allotted timeout");
    assert_eq!(client.get(STACKS).await.code, StatusCode::OK);
    let answer = client.get(&format!("{STACKS}?timeout=soon")).await;
    assert_eq!(answer.code, StatusCode::BAD_REQUEST);
    let metrics = client.get("/metrics").await.text;
    assert!(metrics.contains("apiserver_request_terminations_total{code=\"504\""), "{metrics}");
    server.end().await;
}

#[tokio::test]
async fn stalled_client_occupies_slot_until_deadline() {
    let limits = Limits { reading: 1, ..Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut stuck = server.connect(Identity::Certificate(&ann)).await;
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let unread = stuck.send(Method::GET, "/apis/g.io/v1/endless?timeout=5s", &[]).await.unwrap();
    assert_eq!(unread.status(), StatusCode::OK);
    assert_eq!(client.get(STACKS).await.code, StatusCode::TOO_MANY_REQUESTS);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while client.get(STACKS).await.code != StatusCode::OK {
        assert!(tokio::time::Instant::now() < deadline, "the share was never given back");
    }
    // Reading on, the client sees that the answer is incomplete.
    assert!(unread.into_body().collect().await.is_err());
    server.end().await;
}

#[tokio::test]
async fn a_watch_outlives_the_deadline_and_counts_its_events() {
    let limits = Limits { request_timeout: Duration::from_millis(200), ..Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let mut watch = client.send(Method::GET, &format!("{WATCH}&timeout=10ms"), &[]).await.unwrap().into_body();
    let mut other = server.connect(Identity::Certificate(&ann)).await;
    // A request that runs into the deadline shows that more than that time has passed.
    assert_eq!(other.get(SLOWS).await.code, StatusCode::GATEWAY_TIMEOUT);
    server.echo.events.lock().as_ref().unwrap().send(Bytes::from_static(b"{}\n{}\n")).unwrap();
    assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "{}\n{}\n");
    // A busy machine may not answer this within the deadline either.
    let metrics = loop {
        let answer = other.get("/metrics").await;
        if answer.code != StatusCode::GATEWAY_TIMEOUT {
            break answer.text;
        }
    };
    assert!(
        metrics.contains("apiserver_watch_events_total{group=\"g.io\",resource=\"stacks\",version=\"v1\"} 2"),
        "{metrics}"
    );
    server.echo.events.lock().take();
    assert!(watch.frame().await.is_none());
    server.end().await;
}

#[tokio::test]
async fn an_audit_id_is_echoed_or_made() {
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    let answer = client.get_with(STACKS, &[("Audit-ID", "given")]).await;
    assert_eq!(answer.headers["audit-id"], "given");
    let made = client.get(STACKS).await.headers["audit-id"].clone();
    assert_eq!(made.len(), 36);
    let long = "x".repeat(1025);
    assert_eq!(client.get_with(STACKS, &[("Audit-ID", &long)]).await.headers["audit-id"].len(), 36);
    server.end().await;
}

#[tokio::test]
async fn the_end_fails_readiness_drains_requests_and_ends_watches() {
    let limits = Limits { shutdown_delay: Duration::from_secs(3600), ..Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut probe = server.connect(Identity::Certificate(&ann)).await;
    assert_eq!(probe.get("/readyz").await.text, "ok");
    server.stop.cancel();
    // Not ready any more, and still serving.
    while probe.get("/readyz").await.code == StatusCode::OK {
        tokio::task::yield_now().await;
    }
    assert_eq!(probe.get("/livez").await.text, "ok");
    assert_eq!(server.connect(Identity::Nobody).await.get(STACKS).await.code, StatusCode::OK);
    server.ended.abort();
}

#[tokio::test]
async fn requests_being_worked_on_finish_and_watches_end_cleanly() {
    let setup = Setup::default();
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let (mut slow, goaway) = server.connect_h2(Identity::Certificate(&ann)).await;
    let slow = tokio::spawn(async move { (slow.get(SLOWS).await, slow) });
    server.echo.begun.notified().await;
    let mut watcher = server.connect(Identity::Certificate(&ann)).await;
    let mut watch = watcher.send(Method::GET, WATCH, &[]).await.unwrap().into_body();
    server.echo.begun.notified().await;
    let mut idle = server.connect(Identity::Certificate(&ann)).await;
    assert_eq!(idle.get(STACKS).await.code, StatusCode::OK);

    server.stop.cancel();
    assert!(watch.frame().await.is_none(), "a watch ends, and is not broken off");
    assert!(idle.send(Method::GET, STACKS, &[]).await.is_err());
    assert!(TcpStream::connect(server.address).await.is_err());
    assert!(!server.ended.is_finished());
    server.echo.release.notify_one();
    let (answer, mut client) = slow.await.unwrap();
    assert_eq!(answer.code, StatusCode::OK);
    server.ended.await.unwrap();
    goaway.await.unwrap();
    assert!(client.send(Method::GET, STACKS, &[]).await.is_err());
}

#[tokio::test]
async fn what_outlasts_its_connection_is_waited_for() {
    let setup = Setup::default();
    let server = setup.start().await;
    let (last, lasts) = tokio::sync::oneshot::channel();
    *server.echo.lasts.lock() = Some(lasts);
    let ann = setup.cas.client("ann");
    let (mut client, ended) = server.connect_h2(Identity::Certificate(&ann)).await;
    assert_eq!(client.get("/apis/g.io/v1/lasting").await.code, StatusCode::OK);
    drop(client);
    ended.await.unwrap();
    server.stop.cancel();
    // The listener goes before anything is waited for.
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!server.ended.is_finished());
    drop(last);
    server.ended.await.unwrap();
}

#[tokio::test]
async fn what_does_not_end_in_time_is_broken_off() {
    let limits = Limits { drain_timeout: Duration::from_millis(20), ..Limits::default() };
    let setup = Setup { limits, ..Setup::default() };
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut slow = server.connect(Identity::Certificate(&ann)).await;
    let slow = tokio::spawn(async move { slow.send(Method::GET, SLOWS, &[]).await.map(drop) });
    server.echo.begun.notified().await;
    server.end().await;
    assert!(slow.await.unwrap().is_err());
}

#[tokio::test]
async fn a_new_certificate_is_served_without_a_restart() {
    let (old, new) = (Cas::new(), Cas::new());
    let folder = tempfile::tempdir().unwrap();
    let request = CertificateRequest::server("stoa").loopback();
    old.serving.issue(&request).unwrap().write(folder.path(), "serving").unwrap();
    let (crt, key) = (folder.path().join("serving.crt"), folder.path().join("serving.key"));
    let certificate = Arc::new(ServingCertificate::from_files(crt, key).unwrap());
    let limits = Limits { reload_interval: Duration::from_millis(5), ..Limits::default() };
    let setup = Setup { cas: old, certificate: Some(certificate.clone()), limits, ..Setup::default() };
    let mut server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut before = server.connect(Identity::Certificate(&ann)).await;
    assert_eq!(before.get(STACKS).await.code, StatusCode::OK);

    // Half of a replacement changes nothing.
    let replacement = new.serving.issue(&request).unwrap();
    stoa_pki::files::write_private(&folder.path().join("serving.key"), replacement.key_pem.as_bytes()).unwrap();
    let error = certificate.reload().unwrap_err();
    assert!(matches!(error, ReloadError::Certificate { .. }), "{error:?}");
    server.connect(Identity::Certificate(&ann)).await;

    replacement.write(folder.path(), "serving").unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(new.serving.certificate_pem().as_bytes()).unwrap()).unwrap();
    server.roots = Arc::new(roots);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    let mut after = loop {
        match server.try_connect(Identity::Certificate(&ann), false, &rustls::version::TLS13).await {
            Ok((client, _)) => break client,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
    };
    assert_eq!(after.get(STACKS).await.code, StatusCode::OK);
    assert_eq!(before.get(STACKS).await.code, StatusCode::OK, "connections live on");
    server.end().await;
}

#[tokio::test]
async fn a_ca_file_that_changes_changes_who_is_believed() {
    let (old, new) = (Cas::new(), Cas::new());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ca.crt");
    stoa_pki::files::write_public(&path, old.client.certificate_pem().as_bytes()).unwrap();
    let ca = Arc::new(DynamicCa::new("client CA"));
    let file = CaFile::new(&path, ca.clone()).unwrap();
    let ways: Vec<Arc<dyn Authenticator>> = vec![Arc::new(ClientCertificates::new(ca))];
    let setup = Setup { authenticator: Some(Arc::new(Union::new(ways))), ..Setup::default() };
    let server = setup.start().await;
    let (of_old, of_new) = (old.client("ann"), new.client("ann"));
    // The connection stays; whom its certificate makes is asked for each request.
    let mut with_old = server.connect(Identity::Certificate(&of_old)).await;
    let mut with_new = server.connect(Identity::Certificate(&of_new)).await;
    assert_eq!(with_old.get(STACKS).await.code, StatusCode::OK);
    assert_eq!(with_new.get(STACKS).await.code, StatusCode::UNAUTHORIZED);

    stoa_pki::files::write_public(&path, b"garbage").unwrap();
    assert!(matches!(file.reload().unwrap_err(), ReloadError::Ca { .. }));
    assert_eq!(with_old.get(STACKS).await.code, StatusCode::OK);
    stoa_pki::files::write_public(&path, new.client.certificate_pem().as_bytes()).unwrap();
    assert!(file.reload().unwrap());
    assert_eq!(with_old.get(STACKS).await.code, StatusCode::UNAUTHORIZED);
    assert_eq!(with_new.get(STACKS).await.code, StatusCode::OK);
    server.end().await;
}
