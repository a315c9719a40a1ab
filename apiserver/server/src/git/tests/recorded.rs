//! What organizations are told of the remote.

use std::time::Duration;

use stoa_machinery::registry::{Api, api::Change};
use stoa_storage::git::GitStatus;
use stoa_types::{Organization, common::condition, reason};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    fixture::{Fixture, next},
    status::{RECORDED_HERE, tell_with},
};

/// What a leader tells, of a projection that has this problem.
fn leader(organizations: &Api<Organization>, problem: Option<&'static str>, end: &CancellationToken) -> JoinHandle<()> {
    let status = GitStatus { commit: Some("0".repeat(40)), remote_problem: problem, ..GitStatus::default() };
    let (organizations, end) = (organizations.clone(), end.clone());
    let (_, status) = watch::channel(status);
    tokio::spawn(async move {
        tell_with(status, organizations, RECORDED_HERE, end, Duration::ZERO, Duration::from_millis(5)).await;
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
async fn a_leader_without_a_remote_takes_back_what_was_said_of_one() {
    let fixture = Fixture::new().await;
    fixture.create_shop("ann").await;
    let organizations = fixture.registry.api::<Organization>();
    let end = CancellationToken::new();
    let before = leader(&organizations, Some("RemoteUnavailable"), &end);
    assert!(told(&organizations, "False").await.starts_with("RemoteUnavailable: "));
    end.cancel();
    before.await.expect("it ends");
    let end = CancellationToken::new();
    let _leader = leader(&organizations, None, &end);
    assert_eq!(told(&organizations, "True").await, format!("Available: {RECORDED_HERE}"));
}
