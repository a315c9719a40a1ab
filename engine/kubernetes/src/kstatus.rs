//! Health of an object by its own fields (kstatus).
//!
//! The rules are those of kstatus (sigs.k8s.io/cli-utils/pkg/kstatus/status), with six differences:
//!
//! * A Pod that cannot be scheduled stays InProgress, since a cluster may grow and no clock is read here.
//! * An APIService follows its `Available` condition.
//! * A Service of type LoadBalancer needs an address, since references may name it.
//! * A failed Pod is Failed.
//! * A condition with an `observedGeneration` does not count for a later generation.
//! * A finished Job with `ttlSecondsAfterFinished` is not Terminating, since Kubernetes deletes it for that.

use serde_json::{Map, Value};
use stoa_runtime::Health;

use crate::target::Gvk;

/// A health with its reason.
pub(crate) type Verdict = (Health, String);

/// Kinds without a status: their objects are Current as soon as they exist.
pub(crate) fn is_current_at_once(gvk: &Gvk) -> bool {
    match gvk.group.as_str() {
        "" => matches!(
            gvk.kind.as_str(),
            "ConfigMap"
                | "Secret"
                | "Namespace"
                | "ServiceAccount"
                | "Endpoints"
                | "LimitRange"
                | "ResourceQuota"
                | "Event"
        ),
        "rbac.authorization.k8s.io" | "scheduling.k8s.io" | "admissionregistration.k8s.io" | "coordination.k8s.io" => {
            true
        }
        "storage.k8s.io" => matches!(gvk.kind.as_str(), "StorageClass" | "CSIDriver"),
        "networking.k8s.io" => matches!(gvk.kind.as_str(), "NetworkPolicy" | "IngressClass"),
        "batch" => gvk.kind == "CronJob",
        _ => false,
    }
}

/// The health of an object as a server reported it.
pub(crate) fn health(gvk: &Gvk, object: &Map<String, Value>) -> Verdict {
    let o = View(object);
    if is_deleted_when_finished(gvk, object) && has_ended(object) {
        // Kubernetes may be deleting it for that.
        return job(&o);
    }
    if let Some(verdict) = generic(&o) {
        return verdict;
    }
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        _ if is_current_at_once(gvk) => current("it exists"),
        ("", "Service") => service(&o),
        ("", "Pod") => pod(&o),
        ("", "PersistentVolumeClaim") => volume_claim(&o),
        ("apps", "Deployment") => deployment(&o),
        ("apps", "StatefulSet") => stateful_set(&o),
        ("apps", "DaemonSet") => daemon_set(&o),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => replica_set(&o),
        ("batch", "Job") => job(&o),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(&o),
        ("apiregistration.k8s.io", "APIService") => {
            by_condition(&o, "Available").unwrap_or_else(|| in_progress("not yet available"))
        }
        _ => by_condition(&o, "Ready").unwrap_or_else(|| current("it exists")),
    }
}

/// The health of a terminating object, or of one whose last change was not observed yet. Its other fields do not count
/// then.
pub(crate) fn unobserved(object: &Map<String, Value>) -> Option<Verdict> {
    let o = View(object);
    if o.at(&["metadata", "deletionTimestamp"]).is_some() {
        return Some((Health::Terminating, "it is being deleted".to_owned()));
    }
    if let (Some(observed), Some(generation)) =
        (o.int(&["status", "observedGeneration"]), o.int(&["metadata", "generation"]))
        && observed != generation
    {
        return Some(in_progress(&format!("generation {generation} is not observed yet, only {observed}")));
    }
    outdated(&o)
}

/// The health of an object whose decisive condition is of an earlier generation: many kinds have `observedGeneration`
/// in their conditions only. Other conditions may be older, since controllers do not observe every change, unless no
/// condition is of this generation.
fn outdated(o: &View<'_>) -> Option<Verdict> {
    let generation = o.int(&["metadata", "generation"])?;
    let conditions: Vec<Condition<'_>> = o.conditions().filter(|c| c.observed.is_some()).collect();
    let is_outdated = |c: &&Condition<'_>| c.observed.is_some_and(|observed| observed < generation);
    let decides = |c: &&Condition<'_>| match c.name {
        "Ready" => true,
        "Available" => o.condition("Ready").is_none(),
        "Reconciling" | "Stalled" => c.is("True"),
        _ => false,
    };
    let has_observed = o.int(&["status", "observedGeneration"]).is_some();
    let is_of_nobody = !has_observed && conditions.iter().all(|c| is_outdated(&c));
    let of_it = conditions.iter().find(|c| is_outdated(c) && (decides(c) || is_of_nobody))?;
    let observed = of_it.observed.unwrap_or_default();
    Some(in_progress(&format!(
        "condition {} is of generation {observed}, and {generation} is not observed yet",
        of_it.name
    )))
}

/// The health by the API conventions, for every kind.
fn generic(o: &View<'_>) -> Option<Verdict> {
    if let Some(verdict) = unobserved(o.0) {
        return Some(verdict);
    }
    if let Some(c) = o.condition("Reconciling").filter(|c| c.is("True")) {
        return Some((Health::InProgress, c.text()));
    }
    if let Some(c) = o.condition("Stalled").filter(|c| c.is("True")) {
        return Some((Health::Failed, c.text()));
    }
    None
}

fn by_condition(o: &View<'_>, name: &str) -> Option<Verdict> {
    let condition = o.condition(name)?;
    Some(if condition.is("True") { current(&condition.text()) } else { (Health::InProgress, condition.text()) })
}

fn service(o: &View<'_>) -> Verdict {
    if o.str(&["spec", "type"]) == Some("LoadBalancer") {
        if o.str(&["spec", "clusterIP"]).is_none_or(str::is_empty) {
            return in_progress("no cluster IP is assigned");
        }
        if o.at(&["status", "loadBalancer", "ingress"]).and_then(Value::as_array).is_none_or(Vec::is_empty) {
            return in_progress("no load balancer is assigned");
        }
    }
    current("it is ready")
}

fn pod(o: &View<'_>) -> Verdict {
    match o.str(&["status", "phase"]) {
        Some("Succeeded") => current("it has succeeded"),
        Some("Failed") => (Health::Failed, o.str(&["status", "message"]).unwrap_or("it has failed").to_owned()),
        Some("Running") => {
            if o.condition("Ready").is_some_and(|c| c.is("True")) {
                return current("it is ready");
            }
            let crashing: Vec<&str> = ["initContainerStatuses", "containerStatuses"]
                .iter()
                .filter_map(|key| o.at(&["status", key])?.as_array())
                .flatten()
                .filter(|c| c.pointer("/state/waiting/reason").and_then(Value::as_str) == Some("CrashLoopBackOff"))
                .filter_map(|c| c.get("name")?.as_str())
                .collect();
            if crashing.is_empty() {
                in_progress("it is running and not ready")
            } else {
                (Health::Failed, format!("containers crash repeatedly: {}", crashing.join(", ")))
            }
        }
        _ => match o.condition("PodScheduled").filter(|c| c.is("False")) {
            Some(condition) => (Health::InProgress, condition.text()),
            None => in_progress("it is not running yet"),
        },
    }
}

fn volume_claim(o: &View<'_>) -> Verdict {
    match o.str(&["status", "phase"]) {
        Some("Bound") => current("it is bound"),
        phase => in_progress(&format!("it is {}, not Bound", phase.unwrap_or("new"))),
    }
}

fn deployment(o: &View<'_>) -> Verdict {
    let progressing = o.condition("Progressing");
    if let Some(c) = progressing.as_ref().filter(|c| c.reason == "ProgressDeadlineExceeded") {
        return (Health::Failed, c.text());
    }
    if o.int(&["status", "observedGeneration"]).is_none() {
        return in_progress("the controller has not observed it yet");
    }
    let wanted = o.int(&["spec", "replicas"]).unwrap_or(1);
    let replicas = o.count("replicas");
    let updated = o.count("updatedReplicas");
    let available = o.count("availableReplicas");
    let ready = o.count("readyReplicas");
    if let Some(verdict) = [
        (replicas < wanted, format!("{replicas} of {wanted} replicas exist")),
        (updated < wanted, format!("{updated} of {wanted} replicas are updated")),
        (replicas > wanted, format!("{} replicas are still terminating", replicas - wanted)),
        (available < updated, format!("{available} of {updated} updated replicas are available")),
        (ready < wanted, format!("{ready} of {wanted} replicas are ready")),
    ]
    .into_iter()
    .find(|(applies, _)| *applies)
    {
        return in_progress(&verdict.1);
    }
    // A Deployment with no deadline never reports that its new replica set is complete.
    let without_deadline = o.int(&["spec", "progressDeadlineSeconds"]) == Some(i64::from(i32::MAX));
    let complete = progressing.is_some_and(|c| c.is("True") && c.reason == "NewReplicaSetAvailable");
    if !without_deadline && !complete {
        return in_progress("its replica set is not complete");
    }
    if !o.condition("Available").is_some_and(|c| c.is("True")) {
        return in_progress("it is not available");
    }
    current(&format!("{replicas} replicas are available"))
}

fn stateful_set(o: &View<'_>) -> Verdict {
    if o.str(&["spec", "updateStrategy", "type"]) == Some("OnDelete") {
        return current("its pods are updated when they are deleted");
    }
    if o.int(&["status", "observedGeneration"]).is_none() {
        return in_progress("the controller has not observed it yet");
    }
    let wanted = o.int(&["spec", "replicas"]).unwrap_or(1);
    let replicas = o.count("replicas");
    let ready = o.count("readyReplicas");
    let updated = o.count("updatedReplicas");
    let current_replicas = o.count("currentReplicas");
    if replicas < wanted {
        return in_progress(&format!("{replicas} of {wanted} replicas exist"));
    }
    if ready < wanted {
        return in_progress(&format!("{ready} of {wanted} replicas are ready"));
    }
    if replicas > wanted {
        return in_progress(&format!("{} replicas are still terminating", replicas - wanted));
    }
    if let Some(partition) = o.int(&["spec", "updateStrategy", "rollingUpdate", "partition"]).filter(|p| *p > 0) {
        let wanted = (wanted - partition).max(0);
        return if updated < wanted {
            in_progress(&format!("{updated} of {wanted} replicas of the partition are updated"))
        } else {
            current("the partition is rolled out")
        };
    }
    if current_replicas < wanted {
        return in_progress(&format!("{current_replicas} of {wanted} replicas are current"));
    }
    if o.str(&["status", "currentRevision"]) != o.str(&["status", "updateRevision"]) {
        return in_progress("its replicas are being updated");
    }
    current(&format!("{replicas} replicas are ready"))
}

fn daemon_set(o: &View<'_>) -> Verdict {
    if o.int(&["status", "observedGeneration"]).is_none() {
        return in_progress("the controller has not observed it yet");
    }
    let Some(wanted) = o.int(&["status", "desiredNumberScheduled"]) else {
        return in_progress("its desired number of nodes is unknown");
    };
    let mut counts = ["currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"]
        .into_iter()
        .map(|key| (key, o.count(key)));
    match counts.find(|(_, count)| *count < wanted) {
        Some((key, count)) => in_progress(&format!("{key} is {count} of {wanted}")),
        None => current(&format!("its pods are ready on {wanted} nodes")),
    }
}

fn replica_set(o: &View<'_>) -> Verdict {
    if let Some(c) = o.condition("ReplicaFailure").filter(|c| c.is("True")) {
        return (Health::InProgress, c.text());
    }
    let wanted = o.int(&["spec", "replicas"]).unwrap_or(1);
    for key in ["fullyLabeledReplicas", "availableReplicas", "readyReplicas"] {
        let count = o.count(key);
        if count < wanted {
            return in_progress(&format!("{key} is {count} of {wanted}"));
        }
    }
    let replicas = o.count("replicas");
    if replicas > wanted {
        return in_progress(&format!("{} replicas are still terminating", replicas - wanted));
    }
    current(&format!("{replicas} replicas are available"))
}

/// Whether an object is a Job that Kubernetes deletes after its end.
pub(crate) fn is_deleted_when_finished(gvk: &Gvk, object: &Map<String, Value>) -> bool {
    gvk.is("batch", "Job") && View(object).int(&["spec", "ttlSecondsAfterFinished"]).is_some()
}

/// Whether an object is a running Job that is deleted after its end. A suspended one does not run.
pub(crate) fn runs_to_its_end(gvk: &Gvk, object: &Map<String, Value>) -> bool {
    let is_suspended = || View(object).condition("Suspended").is_some_and(|condition| condition.is("True"));
    is_deleted_when_finished(gvk, object) && !has_ended(object) && !is_suspended()
}

/// Whether objects of a kind complete.
pub(crate) fn completes(gvk: &Gvk) -> bool {
    gvk.is("batch", "Job") || gvk.is("", "Pod")
}

/// Whether an object of such a kind has succeeded.
pub(crate) fn has_completed(gvk: &Gvk, object: &Map<String, Value>) -> bool {
    if gvk.is("", "Pod") {
        return View(object).str(&["status", "phase"]) == Some("Succeeded");
    }
    has_finished(object)
}

/// Whether a Job has succeeded or failed.
pub(crate) fn has_ended(job: &Map<String, Value>) -> bool {
    has_finished(job) || View(job).condition("Failed").is_some_and(|condition| condition.is("True"))
}

/// Whether a Job has succeeded.
pub(crate) fn has_finished(job: &Map<String, Value>) -> bool {
    View(job).condition("Complete").is_some_and(|condition| condition.is("True"))
}

/// A job counts as Current once it runs; it is Failed when it gives up.
fn job(o: &View<'_>) -> Verdict {
    for (name, health) in [("Failed", Health::Failed), ("Complete", Health::Current), ("Suspended", Health::Current)] {
        if let Some(c) = o.condition(name).filter(|c| c.is("True")) {
            return (health, c.text());
        }
    }
    if o.str(&["status", "startTime"]).is_none() {
        return in_progress("it has not started");
    }
    current(&format!("{} active, {} succeeded, {} failed", o.count("active"), o.count("succeeded"), o.count("failed")))
}

fn definition(o: &View<'_>) -> Verdict {
    if let Some(c) = o.condition("NamesAccepted").filter(|c| c.is("False")) {
        return (Health::Failed, c.text());
    }
    match o.condition("Established") {
        Some(c) if c.is("True") => current("it is established"),
        Some(c) if c.reason != "Installing" => (Health::Failed, c.text()),
        _ => in_progress("it is being installed"),
    }
}

fn current(message: &str) -> Verdict {
    (Health::Current, message.to_owned())
}

fn in_progress(message: &str) -> Verdict {
    (Health::InProgress, message.to_owned())
}

struct View<'a>(&'a Map<String, Value>);

impl<'a> View<'a> {
    fn at(&self, path: &[&str]) -> Option<&'a Value> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.0.get(*first)?, |value, key| value.get(key)).filter(|value| !value.is_null())
    }

    fn int(&self, path: &[&str]) -> Option<i64> {
        self.at(path)?.as_i64()
    }

    fn str(&self, path: &[&str]) -> Option<&'a str> {
        self.at(path)?.as_str()
    }

    /// A number in the status; those that are left out are 0.
    fn count(&self, key: &str) -> i64 {
        self.int(&["status", key]).unwrap_or(0)
    }

    fn conditions(&self) -> impl Iterator<Item = Condition<'a>> + use<'a> {
        let conditions = self.at(&["status", "conditions"]).and_then(Value::as_array);
        conditions.into_iter().flatten().filter_map(|condition| {
            let text = |key: &str| condition.get(key).and_then(Value::as_str);
            Some(Condition {
                name: text("type")?,
                status: text("status").unwrap_or(""),
                reason: text("reason").unwrap_or(""),
                message: text("message").unwrap_or(""),
                observed: condition.get("observedGeneration").and_then(Value::as_i64),
            })
        })
    }

    fn condition(&self, name: &str) -> Option<Condition<'a>> {
        self.conditions().find(|condition| condition.name == name)
    }
}

struct Condition<'a> {
    name: &'a str,
    status: &'a str,
    reason: &'a str,
    message: &'a str,
    /// Its generation, if it has one.
    observed: Option<i64>,
}

impl Condition<'_> {
    fn is(&self, status: &str) -> bool {
        self.status == status
    }

    fn text(&self) -> String {
        match (self.message, self.reason) {
            ("", "") => format!("{} is {}", self.name, self.status),
            ("", reason) => reason.to_owned(),
            (message, _) => message.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
