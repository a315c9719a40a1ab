//! Profiles, as clients ask for them.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use nix::sys::{
    pthread::{Pthread, pthread_kill, pthread_self},
    signal::Signal,
};
use tokio::time::sleep;

use super::*;
use crate::{
    auth::{AnyOf, MastersOnly},
    profile::{self, tests::alone},
};

#[tokio::test]
async fn paths_of_profiles_are_answered_as_by_go() {
    let setup = Setup::default();
    let server = setup.start().await;
    let mut client = server.connect(Identity::Nobody).await;
    let answer = client.get("/debug/pprof").await;
    assert_eq!((answer.code, answer.headers["location"].as_bytes()), (StatusCode::FOUND, &b"/debug/pprof/"[..]));
    let answer = client.get("/debug/pprof/").await;
    assert_eq!(
        (answer.code, answer.headers["content-type"].as_bytes()),
        (StatusCode::OK, &b"text/html; charset=utf-8"[..])
    );
    assert!(answer.text.contains("<a href='profile'>"));
    for name in ["heap", "goroutine", "block", "mutex", "cmdline", "trace", "symbol", "x/y"] {
        let answer = client.get(&format!("/debug/pprof/{name}")).await;
        assert_eq!((answer.code, &*answer.text), (StatusCode::NOT_FOUND, "Unknown profile\n"), "{name}");
        assert_eq!(answer.headers["x-go-pprof"], "1");
        assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    }
    server.end().await;

    // Without profiles they are paths like all others.
    let server = Setup { profiling: false, ..Setup::default() }.start().await;
    let mut client = server.connect(Identity::Nobody).await;
    for path in ["/debug/pprof", "/debug/pprof/", "/debug/pprof/profile"] {
        assert_eq!(client.get(path).await.json()["path"], path);
    }
    server.end().await;
}

#[tokio::test]
async fn profiles_take_permission() {
    let setup = Setup { authorizer: Arc::new(AnyOf::delegating(Arc::new(MastersOnly))), ..Setup::default() };
    let server = setup.start().await;
    let ann = setup.cas.client("ann");
    let mut client = server.connect(Identity::Certificate(&ann)).await;
    for path in ["/debug/pprof", "/debug/pprof/", "/debug/pprof/profile", "/debug/pprof/heap"] {
        let answer = client.get(path).await;
        assert_eq!(answer.code, StatusCode::FORBIDDEN);
        let message = format!("forbidden: User \"ann\" cannot get path \"{path}\"");
        assert!(answer.json()["message"].as_str().unwrap().starts_with(&message), "{answer:?}");
    }
    server.end().await;
}

#[tokio::test]
async fn profile_takes_requested_time_and_runs_alone() {
    let _alone = alone().await;
    let limits = Limits { request_timeout: Duration::from_millis(300), ..Limits::default() };
    let server = Setup { limits, ..Setup::default() }.start().await;
    let (mut client, mut other) = (server.connect(Identity::Nobody).await, server.connect(Identity::Nobody).await);
    let first = tokio::spawn(async move {
        read_bytes(client.send(Method::GET, "/debug/pprof/profile?seconds=5", &[]).await.unwrap()).await
    });
    while !profile::tests::in_use() {
        sleep(Duration::from_millis(20)).await;
    }
    let second = other.get("/debug/pprof/profile?seconds=5").await;
    assert_eq!(second.code, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(second.text, "Could not enable CPU profiling: cpu profiling already in use\n");
    assert_eq!(second.headers["x-go-pprof"], "1");
    let (code, headers, profile) = first.await.unwrap();
    assert_eq!((code, headers["content-type"].as_bytes()), (StatusCode::OK, &b"application/octet-stream"[..]));
    assert_eq!(headers["content-disposition"], "attachment; filename=\"profile\"");
    profile::tests::read(&profile);
    server.end().await;
}

#[tokio::test]
async fn server_rejects_profile_above_ten_minutes() {
    let server = Setup::default().start().await;
    let mut client = server.connect(Identity::Nobody).await;
    for seconds in ["601", "9223372036854775807"] {
        let answer = client.get(&format!("/debug/pprof/profile?seconds={seconds}")).await;
        let text = "profile duration exceeds the 600 seconds that one may take\n";
        assert_eq!((answer.code, &*answer.text), (StatusCode::BAD_REQUEST, text));
        assert_eq!(answer.headers["x-go-pprof"], "1");
    }
    server.end().await;
}

#[tokio::test]
async fn a_profile_ends_with_its_client_or_the_server() {
    let _alone = alone().await;
    let server = Setup::default().start().await;
    for h2 in [false, true] {
        let (mut client, connection) = server.try_connect(Identity::Nobody, h2, &rustls::version::TLS13).await.unwrap();
        let asked =
            tokio::spawn(async move { client.send(Method::GET, "/debug/pprof/profile?seconds=600", &[]).await });
        while !profile::tests::in_use() {
            sleep(Duration::from_millis(20)).await;
        }
        asked.abort();
        connection.abort();
        let ended = async {
            while profile::tests::in_use() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("a profile that ends");
    }
    let mut client = server.connect(Identity::Nobody).await;
    let asked =
        tokio::spawn(
            async move { read_bytes(client.send(Method::GET, "/debug/pprof/profile", &[]).await.unwrap()).await },
        );
    while !profile::tests::in_use() {
        sleep(Duration::from_millis(20)).await;
    }
    server.stop.cancel();
    let (code, _, profile) = asked.await.unwrap();
    assert_eq!(code, StatusCode::OK);
    profile::tests::read(&profile);
    server.end().await;
}

/// Waits until a profile can be taken.
async fn alone_again() -> profile::Profiling {
    loop {
        match profile::Profiling::start() {
            Ok(profiling) => return profiling,
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
    }
}

/// The threads of the test's runtime, which live as long as it does.
static THREADS: Mutex<Vec<Pthread>> = Mutex::new(Vec::new());

/// Interrupts every thread of the test's runtime, at work or waiting.
fn interrupt_all() {
    for thread in THREADS.lock().unwrap().iter() {
        pthread_kill(*thread, Signal::SIGPROF).unwrap();
    }
}

/// Thousands of interruptions a second, at any place: in TLS's assembly, the allocator, the loader, a lock, a system call.
#[test]
fn nothing_fails_while_profiles_are_taken() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .thread_keep_alive(Duration::from_secs(3600))
        .on_thread_start(|| THREADS.lock().unwrap().push(pthread_self()))
        .build()
        .unwrap();
    runtime.block_on(async {
        let _alone = alone().await;
        let setup = Setup::default();
        let server = Arc::new(setup.start().await);
        let ann = Arc::new(setup.cas.client("ann"));
        let over = Arc::<AtomicBool>::default();
        let (answered, interrupted) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let clients = (0..4).map(|number| {
            let (server, ann, over, answered) = (server.clone(), ann.clone(), over.clone(), answered.clone());
            tokio::spawn(async move {
                while !over.load(Relaxed) {
                    // Each with handshakes.
                    let mut client = if number % 2 == 0 {
                        server.connect(Identity::Certificate(&ann)).await
                    } else {
                        server.connect_h2(Identity::Certificate(&ann)).await.0
                    };
                    let answer = client.get("/apis/g.io/v1/stacks").await;
                    assert_eq!(answer.json()["path"], "/apis/g.io/v1/stacks");
                    let read = tokio::task::spawn_blocking(|| std::fs::read("/proc/self/maps"));
                    assert!(!read.await.unwrap().unwrap().is_empty());
                    answered.fetch_add(1, Relaxed);
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        let (ends, count) = (over.clone(), interrupted.clone());
        // The handler has to be there before the first signal.
        drop(alone_again().await.until(sleep(Duration::from_millis(50))).await.unwrap());
        let interrupts = std::thread::spawn(move || {
            while !ends.load(Relaxed) {
                interrupt_all();
                count.fetch_add(1, Relaxed);
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let (mut samples, mut profiles) = (0, 0);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        // A busy machine has less time for all of it.
        let is_enough = |samples: i64| answered.load(Relaxed) > 10 && interrupted.load(Relaxed) > 100 && samples > 20;
        while profiles < 2 || !is_enough(samples) && tokio::time::Instant::now() < deadline {
            let bytes = alone_again().await.until(sleep(Duration::from_millis(300))).await.unwrap();
            samples += profile::tests::read(&bytes).iter().map(|stack| stack.samples).sum::<i64>();
            profiles += 1;
        }
        let is_enough = is_enough(samples);
        over.store(true, Relaxed);
        interrupts.join().unwrap();
        for client in clients {
            client.await.unwrap();
        }
        let (answered, interrupted) = (answered.load(Relaxed), interrupted.load(Relaxed));
        assert!(is_enough, "{answered} {interrupted} {samples}");
        Arc::into_inner(server).unwrap().end().await;
    });
}

#[tokio::test]
async fn profiling_option_enables_metrics_reset() {
    for (profiling, text) in [(true, "metrics reset\n"), (false, "# HELP")] {
        let setup = Setup { profiling, ..Setup::default() };
        let server = setup.start().await;
        let admin = setup.cas.client("admin");
        let mut client = server.connect(Identity::Certificate(&admin)).await;
        for (path, counted) in [
            ("/metrics", "apiserver_request_total{code=\"200\",component=\"\""),
            ("/metrics/slis", "kubernetes_healthchecks_total{"),
        ] {
            assert_eq!(client.get("/readyz").await.text, "ok");
            assert!(client.get(path).await.text.contains(counted), "{path}");
            let answer = read(client.send(Method::DELETE, path, &[]).await.unwrap()).await;
            assert_eq!(answer.code, StatusCode::OK);
            assert!(answer.text.starts_with(text), "{path}: {}", answer.text);
            assert_eq!(client.get(path).await.text.contains(counted), !profiling, "{path}");
        }
        server.end().await;
    }
}
