//! Tests with statuses as Flux and Argo CD write them.

use serde_json::json;

use super::*;
use crate::history::tests::TestHistory;

const OLD: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const WANTED: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const LATER: &str = "cccccccccccccccccccccccccccccccccccccccc";

/// A history in which these three follow each other.
fn lineage() -> Lineage {
    let has = [(OLD, false), (LATER, true)].map(|(of, has)| ((of.to_owned(), WANTED.to_owned()), has));
    Lineage { has: has.into(), ..Lineage::default() }
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else { panic!("{value}") };
    object
}

/// What of a Kustomization is wanted: the revisions that it applied and tried, and its condition Ready.
fn flux(applied: &str, attempted: &str, ready: [&str; 3]) -> Map<String, Value> {
    let [status, reason, message] = ready;
    let revision = |commit: &str| if commit.is_empty() { Value::Null } else { format!("main@sha1:{commit}").into() };
    object(json!({
        "metadata": {"generation": 2},
        "spec": {},
        "status": {
            "observedGeneration": 2, "lastAppliedRevision": revision(applied), "lastAttemptedRevision": revision(attempted),
            "conditions": [
                {"type": "Reconciling", "status": "True", "reason": "Progressing", "message": "of no importance"},
                {"type": "Ready", "status": status, "reason": reason, "message": message, "observedGeneration": 2},
            ],
        },
    }))
}

fn check(reading: &Reading, expected: Compliance, why: &str) {
    let (found, message) = reading.of(WANTED, &lineage());
    assert_eq!(found, expected, "{message}: {reading:?}");
    assert!(message.contains(why) && message.is_empty() == why.is_empty(), "{message}");
}

#[test]
fn kustomization_complies_at_commit_or_later() {
    use Compliance::{Compliant, NonCompliant, Pending, Unknown};
    let ready = ["True", "ReconciliationSucceeded", "Applied revision"];
    let unhealthy = ["False", "HealthCheckFailed", "timeout waiting for: [Deployment/shop/web]"];
    let running = ["Unknown", "Progressing", "Running health checks"];
    let away = ["False", "DependencyNotReady", "dependency 'flux-system/base' is not ready"];
    for (applied, attempted, ready, state, why) in [
        (WANTED, WANTED, ready, Compliant, ""),
        (LATER, LATER, ready, Compliant, ""),
        (OLD, OLD, ready, Pending, OLD),
        (OLD, WANTED, running, Pending, "Running health checks"),
        (OLD, WANTED, unhealthy, NonCompliant, "Deployment/shop/web"),
        (OLD, LATER, unhealthy, NonCompliant, "Deployment/shop/web"),
        // It has not tried it yet: what fails is another.
        (OLD, OLD, unhealthy, Pending, "Deployment/shop/web"),
        (OLD, WANTED, away, Pending, "flux-system/base"),
        (LATER, LATER, unhealthy, NonCompliant, "Deployment/shop/web"),
        ("", WANTED, unhealthy, NonCompliant, "Deployment/shop/web"),
        ("", "", running, Pending, "nothing yet"),
        ("dddddddddddddddddddddddddddddddddddddddd", "", ready, Unknown, "the repository has no such commit"),
    ] {
        check(&Reading::kustomization(&flux(applied, attempted, ready)), state, why);
    }
    // What it says is of an earlier spec of its own.
    let mut changed = flux(WANTED, WANTED, ready);
    changed["metadata"]["generation"] = 3.into();
    check(&Reading::kustomization(&changed), Pending, "its last change");
    let mut changed = flux(OLD, WANTED, unhealthy);
    changed["metadata"]["generation"] = 3.into();
    check(&Reading::kustomization(&changed), Pending, "its last change");
    let mut suspended = flux(OLD, OLD, ready);
    suspended["spec"]["suspend"] = true.into();
    check(&Reading::kustomization(&suspended), Pending, "it is suspended");
    check(&Reading::kustomization(&object(json!({"metadata": {"generation": 1}}))), Pending, "nothing yet");
    // An artifact that was made from the repository.
    let mut artifact = flux("", "", ready);
    artifact["status"]["lastAppliedRevision"] = format!("latest@sha256:{}", "e".repeat(64)).into();
    check(&Reading::kustomization(&artifact), Unknown, "sha256:");
    artifact["status"]["lastAppliedOriginRevision"] = format!("main@sha1:{WANTED}").into();
    check(&Reading::kustomization(&artifact), Compliant, "");
}

fn argo(sync: [&str; 2], health: &str, operation: Value) -> Map<String, Value> {
    let [status, revision] = sync;
    object(json!({"status": {
        "sync": {"status": status, "revision": revision}, "health": {"status": health}, "operationState": operation,
    }}))
}

#[test]
fn application_complies_when_synced_and_healthy() {
    use Compliance::{Compliant, NonCompliant, Pending, Unknown};
    let done = |revision: &str| json!({"phase": "Succeeded", "syncResult": {"revision": revision}});
    let failed = |revision: &str| json!({"phase": "Failed", "message": "one or more objects failed to apply", "syncResult": {"revision": revision}});
    for (sync, health, operation, state, why) in [
        (["Synced", WANTED], "Healthy", done(WANTED), Compliant, ""),
        // What was compared is newer than what was last synced, since nothing of it differs.
        (["Synced", LATER], "Healthy", done(OLD), Compliant, ""),
        (["Synced", OLD], "Healthy", done(OLD), Pending, OLD),
        (["Synced", WANTED], "Progressing", done(WANTED), Pending, "Progressing"),
        (["Synced", WANTED], "Degraded", done(WANTED), NonCompliant, "degraded"),
        (["Synced", WANTED], "Unknown", done(WANTED), Unknown, "unknown"),
        // Out of sync with the commit is not at it.
        (["OutOfSync", WANTED], "Healthy", done(OLD), Pending, OLD),
        (["OutOfSync", WANTED], "Missing", Value::Null, Pending, "nothing yet"),
        (["OutOfSync", WANTED], "Healthy", failed(WANTED), NonCompliant, "failed to apply"),
        (["OutOfSync", WANTED], "Healthy", failed(OLD), Pending, "failed to apply"),
        (["OutOfSync", LATER], "Healthy", done(LATER), Pending, "out of sync"),
        (["Unknown", ""], "Healthy", Value::Null, Unknown, "in sync"),
    ] {
        check(&Reading::application(&argo(sync, health, operation)), state, why);
    }
    let mut broken = argo(["Unknown", ""], "Healthy", Value::Null);
    broken["status"]["conditions"] = json!([{"type": "ComparisonError", "message": "repository not\naccessible"}]);
    check(&Reading::application(&broken), Unknown, "repository not accessible");
    // Of several sources one is the repository.
    let mut several = argo(["Synced", ""], "Healthy", Value::Null);
    several["status"]["sync"]["revisions"] = json!(["1.2.3", LATER]);
    check(&Reading::application(&several), Compliant, "");
}

#[test]
fn unknown_commit_has_unknown_compliance() {
    let ready = ["True", "ReconciliationSucceeded", ""];
    let reading = Reading::kustomization(&flux(LATER, LATER, ready));
    let away = Lineage::unknown("the repository cannot be reached".to_owned());
    let (found, why) = reading.of(WANTED, &away);
    assert_eq!(found, Compliance::Unknown);
    assert!(why.contains("cannot be reached"), "{why}");
    // The commit itself is itself, whoever is away.
    assert_eq!(Reading::kustomization(&flux(WANTED, WANTED, ready)).of(WANTED, &away).0, Compliance::Compliant);
    let lost = Lineage { lost: [(WANTED.to_owned(), "gone".to_owned())].into(), ..lineage() };
    assert_eq!(reading.of(WANTED, &lost), (Compliance::NonCompliant, "gone".to_owned()));
}

/// What an Application says that is healthy at a commit.
fn healthy(at: Oid) -> Reading {
    let mut object = argo(["Synced", ""], "Healthy", Value::Null);
    object["status"]["sync"]["revision"] = at.to_string().into();
    Reading::application(&object)
}

/// How each of the commits and what has a revision compare, and why all is not known, with a bound.
fn compared(
    bed: &TestHistory,
    longest: usize,
    head: Oid,
    [commits, revisions]: [&[Oid]; 2],
) -> (Vec<Vec<Compliance>>, Option<git2::Error>) {
    let names = |ids: &[Oid]| ids.iter().map(Oid::to_string).collect::<BTreeSet<_>>();
    let (branch, history) = (("main", Some(head)), bed.within(longest));
    let (lineage, cut) =
        Lineage::search(&bed.repository, &history, branch, &names(commits), &names(revisions)).unwrap();
    let of = |revision: &Oid| {
        commits.iter().map(|id| healthy(*revision).of(&id.to_string(), &lineage).0).collect::<Vec<_>>()
    };
    (revisions.iter().map(of).collect(), cut)
}

#[test]
fn all_commits_are_searched_in_one_walk() {
    let bed = TestHistory::new();
    let line = bed.line(0, 300, &[]);
    let revisions = [line[299], line[280], line[200], line[50]];
    let (found, cut) = compared(&bed, 2_000, line[299], [&line[100..], &revisions]);
    assert!(cut.is_none());
    for (newest, found) in [299, 280, 200, 50].into_iter().zip(found) {
        for (at, found) in (100..).zip(found) {
            let expected = if at <= newest { Compliance::Compliant } else { Compliance::Pending };
            assert_eq!(found, expected, "{newest} {at}");
        }
    }
}

#[test]
fn commits_within_search_limit_are_known() {
    use Compliance::{Compliant, NonCompliant, Unknown};
    let bed = TestHistory::new();
    let line = bed.line(0, 100, &[]);
    let (first, near, head) = (line[0], line[95], line[99]);
    // The head is asked what it has.
    let (found, cut) = compared(&bed, 10, head, [&[first, near, head], &[head]]);
    assert_eq!(found, [[Unknown, Compliant, Compliant]]);
    assert!(cut.is_some_and(|err| bounded::is_too_large(&err)));
    // Revisions are: it takes 5 from the head to the commit, and 4 from line[98]. From what the branch does not have it takes
    // more.
    let (found, cut) = compared(&bed, 9, head, [&[near], &[line[98], head]]);
    assert_eq!(found, [[Compliant], [Compliant]]);
    assert!(cut.is_none());
    let stray = bed.line(200, 10, &line[94..95])[9];
    let (found, cut) = compared(&bed, 10, head, [&[near], &[head, stray]]);
    assert_eq!(found, [[Compliant], [Unknown]]);
    assert!(cut.is_some_and(|err| bounded::is_too_large(&err)));
    let (found, cut) = compared(&bed, 1000, head, [&[near, stray], &[head]]);
    assert_eq!(found, [[Compliant, NonCompliant]]);
    assert!(cut.is_none());
}

#[test]
fn revisions_of_all_versions_name_commits() {
    for revision in
        [WANTED.to_owned(), format!("main@sha1:{WANTED}"), format!("main/{WANTED}"), format!("feat/x/{WANTED}")]
    {
        assert_eq!(commit_of(&revision).as_deref(), Some(WANTED), "{revision}");
    }
    for revision in ["", "main", "1.2.3", &WANTED[1..], &format!("latest@sha256:{}", "e".repeat(64))] {
        assert_eq!(commit_of(revision), None, "{revision}");
    }
}
