//! Events of Flux's notification controller, as its provider `generic-hmac` sends them.
//!
//! Start at [`deployment`], which reads an event as a deployment of a Reconciler. Follows Flux's API `Event` v1beta1 and the
//! reasons of kustomize-controller and helm-controller.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::Deserialize;
use serde_json::Value;
use stoa_engine::revision::identity;
use stoa_kinds::text::cut;
use stoa_types::hub::{DeploymentStatus, ReconcilerSpec, ReportedDeployment};

/// The maximum length of a message, in characters, before the mark of a cut one.
const MESSAGE: usize = 1000;
/// The keys of a revision, the commit of an artifact's origin first. A controller writes its API group before the key, which the
/// notification controller removes.
const REVISIONS: [&str; 2] = ["originRevision", "revision"];
/// The reasons of a reconciliation that continues.
const CONTINUING: [&str; 4] = ["Progressing", "ProgressingWithRetry", "DependencyNotReady", "ArtifactFailed"];
/// The reasons of a release that helm-controller took back.
const TAKEN_BACK: [&str; 2] = ["RollbackSucceeded", "UninstallSucceeded"];

/// The reason for which an event is no deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoDeployment {
    /// It is no event of Flux.
    Malformed,
    /// It is about an object that the Reconciler does not stand for.
    OtherObject,
    /// It names no revision.
    NoRevision,
}

/// The part of an event that is read.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    involved_object: InvolvedObject,
    #[serde(default)]
    severity: String,
    #[serde(default)]
    timestamp: Option<String>,
    #[serde(default)]
    message: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    metadata: Option<BTreeMap<String, Value>>,
}

#[derive(Debug, Deserialize)]
struct InvolvedObject {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

impl Event {
    fn revision(&self) -> Option<String> {
        let metadata = self.metadata.as_ref()?;
        let of = |key: &&str| {
            let is_key = |name: &String| name.rsplit('/').next() == Some(*key);
            metadata.iter().find(|(name, _)| is_key(name)).and_then(|(_, value)| identity(value.as_str()?))
        };
        REVISIONS.iter().find_map(of)
    }

    fn status(&self) -> DeploymentStatus {
        let reason = self.reason.as_str();
        if TAKEN_BACK.contains(&reason) {
            DeploymentStatus::Failure
        } else if reason.ends_with("Succeeded") {
            DeploymentStatus::Success
        } else if self.severity == "error" && !CONTINUING.contains(&reason) {
            DeploymentStatus::Failure
        } else {
            DeploymentStatus::InProgress
        }
    }

    /// The message on one line; a success needs none.
    fn message(&self, status: DeploymentStatus) -> String {
        if status == DeploymentStatus::Success {
            return String::new();
        }
        let line: String = self.message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        cut(line.trim(), MESSAGE)
    }
}

/// Reads an event as the deployment of the Reconciler with this name. Without a time that can be read, the deployment is of now.
///
/// # Errors
///
/// The event is no deployment of it.
pub(super) fn deployment(body: &[u8], name: &str, spec: &ReconcilerSpec) -> Result<ReportedDeployment, NoDeployment> {
    let event: Event = serde_json::from_slice(body).map_err(|_| NoDeployment::Malformed)?;
    let InvolvedObject { kind, namespace, name: object } = &event.involved_object;
    // Events of sources have revisions, too, before anything is applied.
    if !matches!(kind.as_str(), "Kustomization" | "HelmRelease") || !spec.stands_for(kind, namespace, object) {
        return Err(NoDeployment::OtherObject);
    }
    let git_ops_commit_id = event.revision().ok_or(NoDeployment::NoRevision)?;
    let status = event.status();
    let time = event.timestamp.as_ref().and_then(|time| time.parse().ok()).map(MicroTime);
    let status_message = event.message(status);
    Ok(ReportedDeployment { reconciler: name.to_owned(), git_ops_commit_id, status, status_message, time })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const COMMIT: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    fn spec() -> ReconcilerSpec {
        ReconcilerSpec {
            host_name: "drone".to_owned(),
            reconciler_name: "web".to_owned(),
            reconciler_type: "flux".to_owned(),
            ..ReconcilerSpec::default()
        }
    }

    fn event(severity: &str, reason: &str) -> Value {
        json!({
            "involvedObject": {"kind": "Kustomization", "namespace": "flux-system", "name": "web", "uid": "1",
                "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "resourceVersion": "7"},
            "severity": severity, "timestamp": "2026-03-01T12:00:00Z", "message": "Deployment/shop/web\nconfigured",
            "reason": reason, "metadata": {"revision": format!("main@sha1:{COMMIT}"), "summary": "drone"},
            "reportingController": "kustomize-controller", "reportingInstance": "kustomize-controller-1",
        })
    }

    fn read(event: &Value) -> Result<ReportedDeployment, NoDeployment> {
        deployment(event.to_string().as_bytes(), "drone-web", &spec())
    }

    #[test]
    fn event_has_commit_status_and_time() {
        use DeploymentStatus::{Failure, InProgress, Success};
        for (severity, reason, status) in [
            ("info", "ReconciliationSucceeded", Success),
            ("info", "UpgradeSucceeded", Success),
            ("info", "Progressing", InProgress),
            ("error", "DependencyNotReady", InProgress),
            ("error", "HealthCheckFailed", Failure),
            ("info", "RollbackSucceeded", Failure),
        ] {
            let found = read(&event(severity, reason)).unwrap();
            assert_eq!(found.status, status, "{reason}");
            let message = if status == Success { "" } else { "Deployment/shop/web configured" };
            assert_eq!(found.status_message, message, "{reason}");
            assert_eq!((found.reconciler.as_str(), found.git_ops_commit_id.as_str()), ("drone-web", COMMIT));
            assert_eq!(found.time.unwrap().0.as_second(), 1_772_366_400);
        }
    }

    #[test]
    fn revision_of_the_origin_comes_first() {
        let mut artifact = event("info", "ReconciliationSucceeded");
        artifact["metadata"] = json!({
            "kustomize.toolkit.fluxcd.io/revision": "latest@sha256:abc",
            "kustomize.toolkit.fluxcd.io/originRevision": format!("main@sha1:{COMMIT}"),
        });
        assert_eq!(read(&artifact).unwrap().git_ops_commit_id, COMMIT);
        artifact["metadata"] = json!({"revision": "latest@sha256:abc"});
        assert_eq!(read(&artifact).unwrap().git_ops_commit_id, "sha256:abc");
    }

    #[test]
    fn other_events_are_no_deployment() {
        let mut other = event("info", "ReconciliationSucceeded");
        other["involvedObject"]["name"] = json!("api");
        assert_eq!(read(&other), Err(NoDeployment::OtherObject));
        let mut source = event("info", "NewArtifact");
        source["involvedObject"]["kind"] = json!("GitRepository");
        assert_eq!(read(&source), Err(NoDeployment::OtherObject));
        let mut bare = event("info", "ReconciliationSucceeded");
        bare["metadata"] = json!({"revision": ""});
        assert_eq!(read(&bare), Err(NoDeployment::NoRevision));
        bare["metadata"] = Value::Null;
        assert_eq!(read(&bare), Err(NoDeployment::NoRevision));
        for malformed in [json!({}), json!([]), json!({"involvedObject": "web"})] {
            assert_eq!(read(&malformed), Err(NoDeployment::Malformed));
        }
        let mut timeless = event("info", "Progressing");
        timeless["timestamp"] = json!("yesterday");
        assert_eq!(read(&timeless).unwrap().time, None);
    }

    /// A deployment has the limits of a report, whatever the event has.
    fn deployments_fit_into_a_report(input: &[u8]) {
        let Ok(found) = deployment(input, "drone-web", &spec()) else { return };
        assert_eq!(found.reconciler, "drone-web");
        let commit = found.git_ops_commit_id.chars().count();
        assert!((1..=100).contains(&commit), "{found:?}");
        assert!(found.status_message.chars().count() <= 1024, "{found:?}");
        assert!(!found.status_message.chars().any(char::is_control), "{found:?}");
    }

    mod fuzz {
        #[test]
        fn flux_events() {
            stoa_fuzz::run::test("flux_events", super::deployments_fit_into_a_report);
        }
    }
}
