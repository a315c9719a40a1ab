//! Whose sources are fetched where the caches have too much.

use std::sync::Arc;

use stoa_fairness::MaxShare;
use tokio::sync::Notify;

use super::*;

#[tokio::test]
async fn organization_above_its_share_fetches_nothing() {
    let (one, two) = (Origin::new(), Origin::new());
    one.commit("first", &[("a.yaml", "a: 1")]);
    let first = two.commit("first", &[("a.yaml", "a: 1")]).to_string();
    let folders = Folders::new(one.caches.path().to_owned()).of_at_most(1);
    let sources = Sources { caches: folders.clone(), ..one.sources() };
    let of = |origin: &Origin, organization: &str| Source { organization: organization.to_owned(), ..origin.source() };
    sources.resolve(&of(&one, "a"), "", "").await.unwrap();
    let used = folders.take_for("git", &cache_name(&one.source()), "a");
    check(sources.resolve(&of(&two, "a"), "", "").await, Code::ResourceExhausted, reason::BUSY);
    for other in ["b", ""] {
        assert_eq!(sources.resolve(&of(&two, other), "", "").await.unwrap().commit, first, "{other:?} uses none");
    }
    // What is here is told.
    sources.read(&of(&two, "a"), &first, "a.yaml").await.unwrap();
    let second = two.commit("second", &[("a.yaml", "a: 2")]).to_string();
    check(sources.resolve(&of(&two, "a"), "", "").await, Code::ResourceExhausted, reason::BUSY);
    let path = used.path().to_owned();
    assert!(path.exists(), "it is in use");
    drop(used);
    assert_eq!(sources.resolve(&of(&two, "a"), "", "").await.unwrap().commit, second);
    assert!(!path.exists(), "it made room");
}

#[tokio::test]
async fn queued_source_makes_room_for_others() {
    let (one, two) = (Origin::new(), Origin::new());
    let first = one.commit("first", &[("a.yaml", "a: 1")]).to_string();
    let second = two.commit("second", &[("a.yaml", "a: 2")]).to_string();
    let folders = Folders::new(one.caches.path().to_owned()).of_at_most(1);
    // An organization alone gets one of two.
    let sources = Sources {
        caches: folders,
        readers: ReaderPool::in_process().with_slots(2, MaxShare::ThreeQuarters),
        ..one.sources()
    };
    let of = |origin: &Origin| Source { organization: "a".to_owned(), ..origin.source() };
    let (of_one, of_two) = (of(&one), of(&two));
    sources.resolve(&of_one, "", "").await.unwrap();
    let path = one.caches.path().join("git").join(cache_name(&of_one));
    assert!(path.exists());

    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let of_visit = (Arc::clone(&begun), Arc::clone(&go));
    let mut at_work = Box::pin(sources.with_cache(&of_two, move |visit: &mut Visit| {
        let ((begun, go), path) = (of_visit.clone(), path.clone());
        async move {
            begun.notify_one();
            go.notified().await;
            let reply = visit.ask(Question::Resolve(ResolveRequest::default())).await?;
            Ok::<_, Failure>((reply, path.exists()))
        }
        .boxed()
    }));
    assert!(at_work.as_mut().now_or_never().is_none());
    begun.notified().await;
    let mut waits = Box::pin(sources.resolve(&of_one, "", ""));
    assert!(waits.as_mut().now_or_never().is_none(), "another has the process");
    go.notify_one();
    let (reply, is_there) = at_work.await.unwrap();
    assert!(matches!(reply, Reply::Resolved(resolved) if resolved.commit == second));
    assert!(!is_there, "it made room");
    assert_eq!(waits.await.unwrap().commit, first);
}
