//! What organizations are told of the remote.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::core::v1::Event;
use stoa_control_repo::GitStatus;
use stoa_machinery::registry::{Api, api::Change};
use stoa_types::{Organization, common::condition, reason};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    fixture::{Fixture, next},
    status::{Audience, RECORDED_HERE, tell_with},
};

/// What a leader tells, of a projection that has this problem.
fn leader(fixture: &Fixture, problem: Option<&'static str>, end: &CancellationToken) -> JoinHandle<()> {
    let status = GitStatus { commit: Some("0".repeat(40)), remote_problem: problem, ..GitStatus::default() };
    let audience = Audience { organizations: fixture.registry.api(), recorder: fixture.recorder.clone() };
    let end = end.clone();
    let (_, status) = watch::channel(status);
    tokio::spawn(async move {
        tell_with(status, audience, RECORDED_HERE, end, Duration::ZERO, Duration::from_millis(5)).await;
    })
}

async fn told(organizations: &Api<Organization>, expected: &str) -> String {
    next(&mut organizations.subscribe(None), |change| {
        let objects = match change {
            Change::Restarted(all) => all,
            Change::Applied(object) => vec![object],
            Change::Deleted(_) => Vec::new(),
        };
        let conditions = objects.into_iter().find_map(|organization| Some(organization.status.clone()?.conditions))?;
        let found = condition(&conditions, reason::RECORDED).filter(|found| found.status == expected)?;
        Some(format!("{}: {}", found.reason, found.message))
    })
    .await
}

#[tokio::test]
async fn leader_without_remote_clears_remote_condition() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let organizations = fixture.registry.api::<Organization>();
    let end = CancellationToken::new();
    let before = leader(&fixture, Some("RemoteUnavailable"), &end);
    assert!(told(&organizations, "False").await.starts_with("RemoteUnavailable: "));
    end.cancel();
    before.await.expect("it ends");
    let end = CancellationToken::new();
    let _leader = leader(&fixture, None, &end);
    assert_eq!(told(&organizations, "True").await, format!("Available: {RECORDED_HERE}"));
}

#[tokio::test]
async fn events_report_remote_outage_and_recovery_once() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let organizations = fixture.registry.api::<Organization>();
    let uid = organizations.list(None, "").await.expect("listed")[0].metadata.uid.clone();
    // Away and back, and the same again by a later leader.
    for count in 1..=2 {
        for (problem, status, why, kind) in
            [(Some("RemoteUnavailable"), "False", "RemoteUnavailable", "Warning"), (None, "True", "Recorded", "Normal")]
        {
            let end = CancellationToken::new();
            let leader = leader(&fixture, problem, &end);
            told(&organizations, status).await;
            let event =
                fixture.event_that(|event| event.reason.as_deref() == Some(why) && event.count == Some(count)).await;
            assert_eq!(event.type_.as_deref(), Some(kind));
            let about = &event.involved_object;
            assert_eq!((about.kind.as_deref(), about.name.as_deref()), (Some("Organization"), Some("shop")));
            assert_eq!((&about.uid, event.metadata.namespace.as_deref()), (&uid, Some("default")));
            // It looks every few milliseconds, and says so once.
            tokio::time::sleep(Duration::from_millis(50)).await;
            end.cancel();
            leader.await.expect("it ends");
        }
    }
    let events = fixture.registry.api::<Event>().list(None, "").await.expect("listed");
    let of_remote = events.iter().filter_map(|event| {
        let reason = event.reason.as_deref().filter(|reason| ["RemoteUnavailable", "Recorded"].contains(reason))?;
        Some((reason, event.count?))
    });
    let of_remote: BTreeSet<_> = of_remote.collect();
    assert_eq!(of_remote, BTreeSet::from([("RemoteUnavailable", 2), ("Recorded", 2)]));
}
