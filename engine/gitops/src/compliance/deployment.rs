//! The deployment that an object of Flux or Argo CD reports: its revision, how far it is, and since when.
//!
//! Start at [`Deployment::kustomization`]. A reconciler that repeats what it applied before is no deployment: Flux sets the
//! condition Ready to Unknown at each interval.

use serde_json::{Map, Value};
use stoa_engine::revision::identity;

use super::{Reading, ReconcilerState, ready, ready_state, revisions, text};

/// How far a deployment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The reconciler applies the revision, or waits for its health.
    Progressing,
    /// The revision is applied and healthy.
    Ready,
    /// The revision cannot be applied, or is not healthy.
    Failed,
}

/// The deployment of a reconciler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deployment {
    /// The commit. Where the source is no Git repository, the digest of an artifact or the version of a chart. At most 100
    /// characters.
    pub revision: String,
    /// How far it is.
    pub progress: Progress,
    /// The message of the reconciler, on one line. Empty for [`Progress::Ready`].
    pub message: String,
    /// The time of the reconciler's own status, as it writes it (RFC 3339). Empty where it writes none.
    pub since: String,
}

impl Deployment {
    fn new(revision: Option<String>, progress: Progress, message: String, since: String) -> Option<Self> {
        revision.map(|revision| Self { revision, progress, message, since })
    }

    /// The deployment of an object of Flux, by its condition Ready.
    fn of_flux(object: &Map<String, Value>, applied: Option<String>, attempted: Option<String>) -> Option<Self> {
        let status = object.get("status").unwrap_or(&Value::Null);
        let since = ready(status).map(|ready| text(ready, "lastTransitionTime")).unwrap_or_default();
        match ready_state(object) {
            ReconcilerState::Ready => Self::new(applied, Progress::Ready, String::new(), since),
            ReconcilerState::Failed(why) => Self::new(attempted.or(applied), Progress::Failed, why, since),
            ReconcilerState::Progressing(why) if attempted != applied => {
                Self::new(attempted, Progress::Progressing, why, since)
            }
            ReconcilerState::Progressing(_) | ReconcilerState::Unknown(_) => None,
        }
    }

    /// The deployment of a Kustomization of Flux (`kustomize.toolkit.fluxcd.io`). `None` while it has nothing new.
    pub fn kustomization(object: &Map<String, Value>) -> Option<Self> {
        let status = object.get("status").unwrap_or(&Value::Null);
        let (last, tried) = (text(status, "lastAppliedRevision"), text(status, "lastAttemptedRevision"));
        // The commit of an artifact that was made from a repository.
        let origin = text(status, "lastAppliedOriginRevision");
        let applied = identity(if origin.is_empty() { &last } else { &origin });
        let attempted = if tried == last { applied.clone() } else { identity(&tried) };
        Self::of_flux(object, applied, attempted)
    }

    /// The deployment of a HelmRelease of Flux (`helm.toolkit.fluxcd.io`): the version of its chart. `None` while it has nothing
    /// new.
    pub fn helm_release(object: &Map<String, Value>) -> Option<Self> {
        let status = object.get("status").unwrap_or(&Value::Null);
        // Since v2, the history has the version instead, the newest first.
        let mut history = status.get("history").and_then(Value::as_array).into_iter().flatten();
        let deployed = history.find(|release| text(release, "status") == "deployed");
        let applied = identity(&text(status, "lastAppliedRevision"))
            .or_else(|| identity(&text(deployed.unwrap_or(&Value::Null), "chartVersion")));
        Self::of_flux(object, applied, identity(&text(status, "lastAttemptedRevision")))
    }

    /// The deployment of an Application of Argo CD (`argoproj.io`). `None` where it waits for a synchronization, or its state is
    /// unknown.
    pub fn application(object: &Map<String, Value>) -> Option<Self> {
        let reading = Reading::application(object);
        let none = Value::Null;
        let status = object.get("status").unwrap_or(&none);
        let sync = status.get("sync").unwrap_or(&none);
        let operation = status.get("operationState").unwrap_or(&none);
        let synced = operation.get("syncResult").unwrap_or(&none);
        let first = |of: &Value| revisions(of).first().and_then(|revision| identity(revision));
        let applied = reading.applied.first().cloned();
        let applied = applied.or_else(|| identity(reading.revision.split(", ").next().unwrap_or_default()));
        let health = status.get("health").unwrap_or(&none);
        let is_of_operation = applied.is_some() && applied == first(synced);
        let since = if is_of_operation {
            text(operation, "finishedAt").max(text(health, "lastTransitionTime"))
        } else {
            text(status, "reconciledAt")
        };
        match reading.stands {
            ReconcilerState::Ready => Self::new(applied, Progress::Ready, String::new(), since),
            ReconcilerState::Failed(why) if applied.is_some() => Self::new(applied, Progress::Failed, why, since),
            ReconcilerState::Failed(why) => {
                Self::new(first(synced), Progress::Failed, why, text(operation, "finishedAt"))
            }
            ReconcilerState::Progressing(_) if text(operation, "phase") == "Running" => {
                let wanted = operation.get("operation").and_then(|of| of.get("sync")).and_then(first);
                let message = super::message(operation, "message");
                Self::new(wanted.or_else(|| first(sync)), Progress::Progressing, message, text(operation, "startedAt"))
            }
            ReconcilerState::Progressing(why) if text(sync, "status") == "Synced" => {
                Self::new(applied, Progress::Progressing, why, since)
            }
            ReconcilerState::Progressing(_) | ReconcilerState::Unknown(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OLD: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const NEW: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const AT: &str = "2026-03-01T12:00:00Z";

    fn object(status: Value) -> Map<String, Value> {
        Map::from_iter([("metadata".to_owned(), json!({"generation": 1})), ("status".to_owned(), status)])
    }

    fn deployment(revision: &str, progress: Progress, message: &str) -> Option<Deployment> {
        Deployment::new(Some(revision.to_owned()), progress, message.to_owned(), AT.to_owned())
    }

    fn with_ready(mut status: Value, state: &str, reason: &str) -> Map<String, Value> {
        status["observedGeneration"] = 1.into();
        status["conditions"] = json!([
            {"type": "Ready", "status": state, "reason": reason, "message": "why", "lastTransitionTime": AT},
        ]);
        object(status)
    }

    #[test]
    fn kustomization_deploys_a_commit() {
        let of = |applied: &str, attempted: &str, state: &str, reason: &str| {
            let revision = |commit: &str| format!("main@sha1:{commit}");
            let status =
                json!({"lastAppliedRevision": revision(applied), "lastAttemptedRevision": revision(attempted)});
            Deployment::kustomization(&with_ready(status, state, reason))
        };
        assert_eq!(of(NEW, NEW, "True", "ReconciliationSucceeded"), deployment(NEW, Progress::Ready, ""));
        assert_eq!(of(OLD, NEW, "Unknown", "Progressing"), deployment(NEW, Progress::Progressing, "why"));
        assert_eq!(of(OLD, NEW, "False", "HealthCheckFailed"), deployment(NEW, Progress::Failed, "why"));
        assert_eq!(of(OLD, NEW, "False", "DependencyNotReady"), deployment(NEW, Progress::Progressing, "why"));
        // It repeats what it applied before.
        assert_eq!(of(NEW, NEW, "Unknown", "Progressing"), None);
        assert_eq!(Deployment::kustomization(&object(json!({}))), None);
    }

    #[test]
    fn artifact_without_commit_deploys_its_digest() {
        let mut status =
            json!({"lastAppliedRevision": "latest@sha256:abc", "lastAttemptedRevision": "latest@sha256:abc"});
        let of = |status: &Value| Deployment::kustomization(&with_ready(status.clone(), "True", "Succeeded"));
        assert_eq!(of(&status), deployment("sha256:abc", Progress::Ready, ""));
        status["lastAppliedOriginRevision"] = format!("main@sha1:{NEW}").into();
        assert_eq!(of(&status), deployment(NEW, Progress::Ready, ""));
    }

    #[test]
    fn helm_release_deploys_a_chart_version() {
        let old = json!({"lastAppliedRevision": "1.0.0", "lastAttemptedRevision": "1.1.0"});
        let found = Deployment::helm_release(&with_ready(old, "False", "UpgradeFailed"));
        assert_eq!(found, deployment("1.1.0", Progress::Failed, "why"));
        let current = json!({
            "lastAttemptedRevision": "1.1.0",
            "history": [{"chartVersion": "1.1.0", "status": "deployed"}, {"chartVersion": "1.0.0", "status": "superseded"}],
        });
        let found = Deployment::helm_release(&with_ready(current, "True", "UpgradeSucceeded"));
        assert_eq!(found, deployment("1.1.0", Progress::Ready, ""));
    }

    #[test]
    fn application_deploys_a_commit() {
        let of = |sync: &str, health: &str, phase: &str, synced: &str| {
            let earlier = "2026-03-01T11:00:00Z";
            let (started, finished) = if phase == "Running" { (AT, "") } else { (earlier, earlier) };
            Deployment::application(&object(json!({
                "sync": {"status": sync, "revision": NEW},
                "health": {"status": health, "lastTransitionTime": AT, "message": "why"},
                "operationState": {"phase": phase, "startedAt": started, "finishedAt": finished, "message": "sync",
                    "operation": {"sync": {"revision": NEW}}, "syncResult": {"revision": synced}},
            })))
        };
        assert_eq!(of("Synced", "Healthy", "Succeeded", NEW), deployment(NEW, Progress::Ready, ""));
        assert_eq!(of("Synced", "Degraded", "Succeeded", NEW), deployment(NEW, Progress::Failed, "why"));
        assert_eq!(of("Synced", "Progressing", "Succeeded", NEW), deployment(NEW, Progress::Progressing, "why"));
        assert_eq!(of("OutOfSync", "Healthy", "Running", OLD), deployment(NEW, Progress::Progressing, "sync"));
        // It waits for a synchronization.
        assert_eq!(of("OutOfSync", "Healthy", "Succeeded", OLD), None);
        let failed = of("OutOfSync", "Healthy", "Failed", NEW).unwrap();
        assert_eq!(
            (failed.revision.as_str(), failed.progress, failed.message.as_str()),
            (NEW, Progress::Failed, "sync")
        );
        assert_eq!(failed.since, "2026-03-01T11:00:00Z");
    }
}
