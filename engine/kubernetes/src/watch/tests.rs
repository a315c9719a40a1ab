//! Tests of the requests of watches.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use serde_json::json;
use stoa_engine::{Resource, StateResource};
use stoa_runtime::{ApplyRequest, Health, Runtime as _, RuntimeError};
use tokio::task::JoinHandle;

use crate::KubernetesRuntime;
use crate::testing::{Server, widget};

type HealthWait = JoinHandle<Result<Health, RuntimeError>>;

/// Waits for the health of an object.
fn wait(runtime: &Arc<KubernetesRuntime>, desired: Resource) -> HealthWait {
    let runtime = Arc::clone(runtime);
    tokio::spawn(async move { runtime.wait_healthy(&desired, &|_, _| {}).await })
}

/// Lets everybody do what they can do now.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// Applies so many widgets that are not ready yet.
async fn applied(server: &Server, runtime: &KubernetesRuntime, count: usize) -> Vec<Resource> {
    let widgets: Vec<Resource> = (0..count).map(|n| widget("shop", &format!("w{n}"))).collect();
    for desired in &widgets {
        runtime.apply(&ApplyRequest::new(desired, None)).await.unwrap();
        server.set_ready("shop", desired.attributes["metadata"]["name"].as_str().unwrap(), "False");
        // The health as of the apply, which knew of no condition, is not what is waited for here.
        runtime.take_applied(&desired.id);
    }
    server.asked();
    widgets
}

#[tokio::test(start_paused = true)]
async fn objects_of_kind_share_one_watch() {
    let server = Server::default();
    let runtime = Arc::new(server.runtime());
    let widgets = applied(&server, &runtime, 200).await;
    let waiting: Vec<HealthWait> = widgets.iter().map(|desired| wait(&runtime, desired.clone())).collect();
    settle().await;
    // Of each is asked how it is, since it changed after it was applied.
    let asked = server.asked();
    let watches: Vec<&String> = asked.iter().filter(|asked| !asked.starts_with("GET shop/widgets/w")).collect();
    assert_eq!((watches, asked.len()), (vec![&"WATCH shop/widgets".to_owned()], 201));
    assert_eq!(server.open_watches(), 1);
    // However long it takes, nothing more is asked.
    tokio::time::sleep(Duration::from_secs(250)).await;
    assert_eq!(server.asked(), [""; 0]);
    for n in 0..200 {
        server.set_ready("shop", &format!("w{n}"), "True");
    }
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap(), Health::Current);
    }
    settle().await;
    assert_eq!((server.asked(), server.open_watches()), (Vec::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_reported_until_answer() {
    let said = ["cluster main does not answer: waiting for WATCH /apis/example.com/v1/namespaces/shop/widgets"];
    let server = Server::default();
    let runtime = Arc::new(server.runtime());
    let widgets = applied(&server, &runtime, 2).await;
    // One that is not even begun.
    server.hold(Some("watch="));
    let waiting: Vec<HealthWait> = widgets.iter().map(|desired| wait(&runtime, desired.clone())).collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(runtime.awaited(), said);
    server.hold(None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(runtime.awaited(), [""; 0]);
    // Nothing happens, which is as it should be.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(runtime.awaited(), [""; 0]);
    }
    // Nothing comes from the server any more.
    server.hold(Some("/"));
    tokio::time::sleep(super::QUIET + Duration::from_secs(5)).await;
    assert_eq!(runtime.awaited(), said);
    server.hold(None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(runtime.awaited(), [""; 0]);
    for n in 0..2 {
        server.set_ready("shop", &format!("w{n}"), "True");
    }
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap(), Health::Current);
    }
}

#[tokio::test(start_paused = true)]
async fn applied_object_is_not_read_again() {
    let server = Server::default();
    let runtime = Arc::new(server.runtime());
    let widgets: Vec<Resource> = (0..50).map(|n| widget("shop", &format!("w{n}"))).collect();
    let mut states = Vec::new();
    for desired in &widgets {
        states.push(runtime.apply(&ApplyRequest::new(desired, None)).await.unwrap().live);
    }
    server.asked();
    let cluster = runtime.cluster(0);
    let (_, target) = runtime.desired_target(&widgets[0]).unwrap();
    let api = crate::target::Api { plural: "widgets".to_owned(), namespaced: true };
    let mut followed: Vec<_> = widgets
        .iter()
        .zip(states)
        .map(|(desired, live)| {
            let target = crate::target::Target {
                name: desired.attributes["metadata"]["name"].as_str().unwrap().to_owned(),
                ..target.clone()
            };
            super::Followed::new(cluster, &target, &api, Some(live))
        })
        .collect();
    for followed in &mut followed {
        assert!(followed.next().await.unwrap().is_some(), "what is known is told first");
    }
    for n in 0..50 {
        server.set_ready("shop", &format!("w{n}"), "True");
    }
    let news = futures_util::future::join_all(followed.iter_mut().map(super::Followed::next)).await;
    for (n, state) in news.into_iter().enumerate() {
        let state = state.unwrap().unwrap();
        assert_eq!(
            (&state["metadata"]["name"], &state["status"]["conditions"][0]["status"]),
            (&json!(format!("w{n}")), &json!("True"))
        );
    }
    assert_eq!(server.asked(), ["WATCH shop/widgets"]);
}

#[tokio::test(start_paused = true)]
async fn broken_watch_resumes_at_its_version() {
    let server = Server::default();
    let runtime = Arc::new(server.runtime());
    let widgets = applied(&server, &runtime, 3).await;
    let waiting: Vec<HealthWait> = widgets.iter().map(|desired| wait(&runtime, desired.clone())).collect();
    settle().await;
    server.asked();
    server.set_ready("shop", "w0", "True");
    settle().await;
    server.end_watches();
    // It happens while nobody watches.
    server.set_ready("shop", "w1", "True");
    server.set_ready("shop", "w2", "True");
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap(), Health::Current);
    }
    assert_eq!(server.asked(), ["WATCH shop/widgets"]);
}

#[tokio::test(start_paused = true)]
async fn expired_history_needs_one_list() {
    let server = Server::default();
    let runtime = Arc::new(server.runtime());
    let widgets = applied(&server, &runtime, 4).await;
    let mut waiting: Vec<HealthWait> = widgets.iter().map(|desired| wait(&runtime, desired.clone())).collect();
    settle().await;
    server.asked();
    server.forget();
    // Nobody tells of these any more, and the versions before them are too old.
    server.set_ready("shop", "w0", "True");
    server.remove("shop", "w1");
    server.forget();
    assert_eq!(waiting.remove(0).await.unwrap().unwrap(), Health::Current);
    assert_eq!(waiting.remove(0).await.unwrap().unwrap(), Health::Failed, "it was removed");
    server.set_ready("shop", "w2", "True");
    server.set_ready("shop", "w3", "True");
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap(), Health::Current);
    }
    assert_eq!(server.asked(), ["LIST shop/widgets", "WATCH shop/widgets"]);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_advance_idle_watch() {
    let server = Server::default();
    let runtime = Arc::new(server.runtime());
    let widgets = applied(&server, &runtime, 1).await;
    let waiting = wait(&runtime, widgets[0].clone());
    settle().await;
    server.asked();
    for n in 0..9 {
        server.set("elsewhere", &format!("w{n}"), json!({}));
    }
    server.tell_of_versions();
    settle().await;
    server.forget_before_now();
    server.set_ready("shop", "w0", "True");
    assert_eq!(waiting.await.unwrap().unwrap(), Health::Current);
    assert_eq!(server.asked(), ["WATCH shop/widgets"], "it was not too old");
}

#[tokio::test(start_paused = true)]
async fn forbidden_collection_is_watched_by_name() {
    let server = Server::default();
    server.refuse("watch=true&allowWatchBookmarks=true&resourceVersion", 403);
    let runtime = Arc::new(server.runtime());
    let widgets = applied(&server, &runtime, 2).await;
    let waiting: Vec<HealthWait> = widgets.iter().map(|desired| wait(&runtime, desired.clone())).collect();
    settle().await;
    server.set_ready("shop", "w0", "True");
    server.end_watches();
    server.set_ready("shop", "w1", "True");
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap(), Health::Current);
    }
    let mut asked: Vec<String> = server.asked().into_iter().filter(|asked| asked.starts_with("WATCH")).collect();
    asked.sort();
    asked.dedup();
    assert_eq!(asked, ["WATCH shop/widgets", "WATCH shop/widgets only w0", "WATCH shop/widgets only w1"]);
    // It is not tried again for the next.
    server.set_ready("shop", "w0", "False");
    let waiting = wait(&runtime, widgets[0].clone());
    settle().await;
    server.set_ready("shop", "w0", "True");
    assert_eq!(waiting.await.unwrap().unwrap(), Health::Current);
    assert!(!server.asked().contains(&"WATCH shop/widgets".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn name_with_special_characters_is_watched() {
    let server = Server::default();
    server.refuse("watch=true&allowWatchBookmarks=true&resourceVersion", 403);
    let runtime = Arc::new(server.runtime());
    // As in the names of roles.
    let desired = widget("shop", "system:a&b=c,d+e");
    runtime.apply(&ApplyRequest::new(&desired, None)).await.unwrap();
    server.set_ready("shop", "system:a&b=c,d+e", "False");
    runtime.take_applied(&desired.id);
    let waiting = wait(&runtime, desired);
    settle().await;
    server.set_ready("shop", "system:a&b=c,d+e", "True");
    assert_eq!(waiting.await.unwrap().unwrap(), Health::Current);
    assert!(server.asked().contains(&"WATCH shop/widgets only system:a&b=c,d+e".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn short_outage_is_not_reported() {
    let server = Server::default();
    let runtime = Arc::new(server.runtime());
    let widgets = applied(&server, &runtime, 1).await;
    let waiting = wait(&runtime, widgets[0].clone());
    settle().await;
    server.refuse("watch=true", 503);
    server.end_watches();
    tokio::time::sleep(Duration::from_secs(10)).await;
    server.refuse_nothing();
    server.set_ready("shop", "w0", "True");
    assert_eq!(waiting.await.unwrap().unwrap(), Health::Current);

    server.set_ready("shop", "w0", "False");
    let waiting = wait(&runtime, widgets[0].clone());
    settle().await;
    server.refuse("watch=true", 503);
    server.end_watches();
    server.asked();
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let tries = server.asked().len();
    assert!((3..10).contains(&tries), "{tries} tries in half a minute");
}

#[tokio::test(start_paused = true)]
async fn deletions_share_the_watch() {
    let server = Server::default();
    let runtime = Arc::new(server.runtime());
    let widgets = applied(&server, &runtime, 3).await;
    let cluster = runtime.cluster(0);
    let api = crate::target::Api { plural: "widgets".to_owned(), namespaced: true };
    let mut gone = Vec::new();
    for desired in &widgets {
        let record = StateResource::named_by(&desired.id).unwrap();
        let (_, target) = runtime.prior_target(&record).unwrap();
        let (path, api) = (cluster.path(&target, &api), api.clone());
        gone.push(async move {
            let first = cluster.get(&path).await.unwrap();
            let mut followed = super::Followed::new(cluster, &target, &api, first);
            while followed.next().await.unwrap().is_some() {}
        });
    }
    let gone = futures_util::future::join_all(gone);
    let remove = async {
        settle().await;
        widgets
            .iter()
            .for_each(|desired| server.remove("shop", desired.attributes["metadata"]["name"].as_str().unwrap()));
    };
    futures_util::future::join(gone, remove).await;
    assert_eq!(server.asked().iter().filter(|asked| asked.starts_with("WATCH")).count(), 1);
}

#[test]
fn late_subscriber_misses_no_change() {
    for version in 1..20_000_u64 {
        let (before, now) = ((version - 1).to_string(), version.to_string());
        let waiting = super::Waiters::default();
        let _first = waiting.begin("first", Some(before.clone()));
        let barrier = Barrier::new(2);
        let (seen, is_late) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                barrier.wait();
                if !waiting.pass("w", &now) {
                    waiting.report("w", &now, None);
                }
            });
            barrier.wait();
            let joined = waiting.add("w", Some(&before)).unwrap();
            watch.join().unwrap();
            joined
        });
        assert!(is_late || seen.has_changed().unwrap(), "the change of version {version} is lost");
    }
}

#[tokio::test(start_paused = true)]
async fn cancelled_read_is_repeated() {
    let server = Server::default();
    let runtime = Arc::new(server.runtime());
    let widgets = applied(&server, &runtime, 2).await;
    let cluster = runtime.cluster(0);
    let api = crate::target::Api { plural: "widgets".to_owned(), namespaced: true };
    let object = |name: &str| server.object("shop", name).unwrap().as_object().cloned();
    let follow = |n: usize| {
        let (_, target) = runtime.desired_target(&widgets[n]).unwrap();
        super::Followed::new(cluster, &target, &api, object(&format!("w{n}")))
    };
    let (mut first, mut late) = (follow(0), follow(1));
    assert!(first.next().await.unwrap().is_some() && late.next().await.unwrap().is_some());
    // The watch is past a change of the other when that one joins.
    let join = async { first.next().await.unwrap() };
    let change = async {
        settle().await;
        server.set_ready("shop", "w1", "True");
        server.set_ready("shop", "w0", "True");
    };
    tokio::join!(join, change);
    assert!(tokio::time::timeout(Duration::ZERO, late.next()).await.is_err(), "it takes an answer");
    let state = tokio::time::timeout(Duration::from_secs(60), late.next()).await.expect("it is not lost");
    assert_eq!(state.unwrap().unwrap()["status"]["conditions"][0]["status"], json!("True"));
}

#[tokio::test(start_paused = true)]
async fn oversized_event_is_cut() {
    let server = Server::default();
    let runtime = Arc::new(server.runtime());
    let desired = applied(&server, &runtime, 1).await.remove(0);
    let waiting = wait(&runtime, desired);
    settle().await;
    server.send_oversized_answers();
    server.set_ready("shop", "w0", "True");
    let start = tokio::time::Instant::now();
    assert_eq!(waiting.await.unwrap().unwrap(), Health::Current);
    assert!(start.elapsed() < Duration::from_secs(30), "it is asked for again at once: {:?}", start.elapsed());
}
