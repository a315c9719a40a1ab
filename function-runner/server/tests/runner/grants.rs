//! A runner that its caller does not hear of any more, and presumes dead, changes nothing.

use std::time::{Duration, Instant};

use serde_json::json;
use stoa_engine::Spec;
use stoa_git::testing::{Behaviour, GitServer};
use stoa_proto::PlanResponse;
use stoa_proto::apply_event::Event;
use tonic::Code;

use crate::caller::Reaction;
use crate::delivery::Scene;

/// How long calls may be under way without an ack, where there is one that does not come.
const LEASE: Duration = Duration::from_secs(3);
/// The same where all of them come: several times what is between two of them. What is held up twice as long is not given up
/// by Git yet, which waits 30 s for a server.
pub(crate) const ACKED: Duration = Duration::from_secs(8);
/// Longer than what was held up takes once it is let go.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A scene whose repository is at a server that can hold up what it is asked, and a plan.
pub(crate) async fn at_a_server() -> (Scene, GitServer, Spec, PlanResponse) {
    at_a_server_with(&[]).await
}

/// The same with more arguments of the runner.
pub(crate) async fn at_a_server_with(arguments: &[&str]) -> (Scene, GitServer, Spec, PlanResponse) {
    let mut scene = Scene::start_with(arguments).await;
    // Over HTTP, pushes are refused unless this is set.
    git2::Repository::open_bare(&scene.deploy).unwrap().config().unwrap().set_bool("http.receivepack", true).unwrap();
    let server = GitServer::start(scene.deploy.parent().unwrap(), "secret", None).await;
    let gitops =
        json!({"gitops": {"repository": server.url("http", "deploy.git"), "branch": "main", "createBranch": true}});
    let workspace = scene.caller.target.workspace.as_mut().unwrap();
    workspace.spec = gitops.to_string().into_bytes().into();
    workspace.credentials =
        [("username", "bot"), ("password", "secret")].map(|(key, value)| (key.to_owned(), value.into())).into();
    scene.caller.lease = LEASE;
    let spec = scene.spec(1).await;
    let plan = scene.caller.plan(&spec, false).await.unwrap();
    server.behave(Behaviour::Held);
    (scene, server, spec, plan)
}

#[tokio::test(flavor = "multi_thread")]
async fn long_fetch_ends_without_its_caller() {
    for answers in [true, false] {
        let (mut scene, server, spec, plan) = at_a_server().await;
        if answers {
            scene.caller.lease = ACKED;
        }
        let start = Instant::now();
        let mut heartbeats = 0;
        let applied = scene
            .caller
            .apply_with(&spec, &plan, &[], |event| {
                if !matches!(event.event, Some(Event::Heartbeat(_))) {
                    return Reaction::Keep;
                }
                heartbeats += 1;
                if heartbeats > 1 && !answers {
                    return Reaction::Ignore;
                }
                if start.elapsed() > ACKED {
                    server.behave(Behaviour::Normal);
                }
                Reaction::Keep
            })
            .await;
        if answers {
            assert!(applied.finished().succeeded && heartbeats > 2, "{applied:?}");
            assert_eq!(scene.commits(), std::slice::from_ref(&applied.finished().gitops_commit));
            continue;
        }
        let took = start.elapsed();
        assert!((LEASE..PATIENCE).contains(&took), "{took:?}");
        assert_eq!(applied.error.as_ref().map(tonic::Status::code), Some(Code::Unavailable), "{applied:?}");
        let outcomes = applied.outcomes();
        assert!(outcomes.len() == 3 && outcomes.iter().all(|(_, _, outcome)| *outcome == "Unknown"), "{outcomes:?}");
        server.behave(Behaviour::Normal);
        tokio::time::sleep(AFTERWARDS).await;
        assert!(scene.commits().is_empty(), "it was presumed dead, and wrote all the same");
        let again = scene.caller.apply(&spec, &plan).await;
        assert!(again.finished().succeeded && scene.commits().len() == 1, "{again:?}");
        assert!(!again.instance.is_empty() && again.instance == applied.instance, "the process is the same");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_push_begins_while_the_caller_answers() {
    let (mut scene, server, spec, plan) = at_a_server().await;
    scene.caller.lease = ACKED;
    server.behave(Behaviour::HeldPushes);
    let start = Instant::now();
    let applied = scene.caller.apply_with(&spec, &plan, &[], |_| {
        // By now what was known of the grant when the push was asked for is over.
        if start.elapsed() > 2 * ACKED {
            server.behave(Behaviour::Normal);
        }
        Reaction::Keep
    });
    let applied = applied.await;
    assert!(applied.finished().succeeded && start.elapsed() > 2 * ACKED, "{applied:?}");
    assert_eq!(scene.commits(), std::slice::from_ref(&applied.finished().gitops_commit));
    assert_eq!(server.pushes(), 1, "it was not begun anew");
}

/// What is pushed of it is more than is on its way to a server that reads nothing.
fn large() -> Spec {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(LETTERS[(state >> 58) as usize])
    };
    // A cluster takes at most 1 MiB of data an object.
    let resources: Vec<_> = (0..10)
        .map(|number| {
            let text: String = (0..900_000).map(|_| letter()).collect();
            let name = format!("large-{number}");
            json!({"id": format!("v1:ConfigMap:shop:{name}"), "type": "Kubernetes", "attributes": {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "shop"}, "data": {"a": text}}})
        })
        .collect();
    serde_json::from_value(json!({"resources": resources})).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn long_push_ends_though_the_runner_is_suspended() {
    let spec = large();
    for answers in [true, false] {
        let (mut scene, server, ..) = at_a_server().await;
        server.behave(Behaviour::Normal);
        scene.caller.lease = ACKED;
        scene.caller.client = scene.caller.client.clone().max_decoding_message_size(64 << 20);
        let plan = scene.caller.plan(&spec, false).await.unwrap();
        server.behave(Behaviour::HeldPacks);
        let (bed, mut begun) = (&scene.bed, None);
        let applied = scene.caller.apply_with(&spec, &plan, &[], |_| {
            if server.packs() == 0 {
                return Reaction::Keep;
            }
            if !answers {
                // Its process goes on.
                bed.signal("STOP");
                return Reaction::HangUp;
            }
            // By now what was known of the grant when the push began is over.
            if begun.get_or_insert_with(Instant::now).elapsed() > 2 * ACKED {
                server.behave(Behaviour::Normal);
            }
            Reaction::Keep
        });
        let applied = applied.await;
        if answers {
            assert!(applied.finished().succeeded && begun.unwrap().elapsed() > 2 * ACKED, "{:?}", applied.finished());
            assert_eq!(scene.commits(), std::slice::from_ref(&applied.finished().gitops_commit));
            assert_eq!(server.packs(), 1, "it was not begun anew");
            continue;
        }
        assert!(applied.finished.is_none() && applied.error.is_none(), "{:?}", applied.error);
        tokio::time::sleep(ACKED + AFTERWARDS).await;
        server.behave(Behaviour::Normal);
        tokio::time::sleep(AFTERWARDS).await;
        assert!(scene.commits().is_empty(), "others may be at work by now, and it wrote all the same");
        scene.bed.signal("CONT");
        let again = scene.caller.apply(&spec, &plan).await;
        assert!(again.finished().succeeded && scene.commits().len() == 1, "{:?}", again.error);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_runner_changes_nothing() {
    // It may notice first that its time is over, or that it has an answer, and only then there is something to stop.
    for _ in 0..5 {
        if suspended().await {
            return;
        }
    }
    panic!("it never went on with what was held up");
}

/// Suspends a runner until it is presumed dead. Whether it went on with what was held up; nothing comes of it in any case.
async fn suspended() -> bool {
    let (mut scene, server, spec, plan) = at_a_server().await;
    let (bed, before) = (&scene.bed, server.requests());
    let suspended = scene
        .caller
        .apply_with(&spec, &plan, &[], |event| {
            if !matches!(event.event, Some(Event::Heartbeat(_))) || server.requests() == before {
                return Reaction::Keep;
            }
            // It waits for the server's answer.
            bed.signal_all("STOP");
            Reaction::HangUp
        })
        .await;
    assert!(suspended.finished.is_none() && suspended.results.is_empty(), "{suspended:?}");
    // The answer is there before it goes on, and so is the end of its time.
    server.behave(Behaviour::Normal);
    tokio::time::sleep(LEASE).await;
    let asked = server.requests();
    scene.bed.signal_all("CONT");
    tokio::time::sleep(AFTERWARDS).await;
    assert!(scene.commits().is_empty(), "it was presumed dead, and wrote all the same");
    let went_on = server.requests() > asked;

    let again = scene.caller.apply(&spec, &plan).await;
    assert!(again.finished().succeeded && scene.commits().len() == 1, "{again:?}");
    went_on
}

#[tokio::test]
async fn nothing_begins_before_the_caller_allows_it() {
    let mut scene = Scene::new().await;
    let spec = scene.spec(1).await;
    let plan = scene.caller.plan(&spec, false).await.unwrap();
    let mut heard = Vec::new();
    let applied = scene.caller.apply_with(&spec, &plan, &[], |event| {
        heard.push(event.event.clone());
        Reaction::Ignore
    });
    tokio::time::timeout(LEASE, applied).await.unwrap_err();
    assert!(matches!(heard.as_slice(), [Some(Event::Heartbeat(_))]), "{heard:?}");
    assert!(scene.commits().is_empty());

    // An ack that brings no time lets it do nothing either.
    scene.caller.lease = Duration::ZERO;
    let applied = scene.caller.apply(&spec, &plan).await;
    assert_eq!(applied.error.as_ref().map(tonic::Status::code), Some(Code::Unavailable), "{applied:?}");
    assert!(applied.results.is_empty() && scene.commits().is_empty(), "{applied:?}");
}
