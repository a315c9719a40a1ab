//! Whether clusters have what was committed for them, where a workspace says what brings it there.
//!
//! Start at [`look`], which asks a function-runner. What it finds is kept in the status of stacks by the controller of the same
//! name; a run may wait for it, and so do gates of workflows.

use std::{collections::HashMap, mem};

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::conditions::set_condition_to;
use stoa_kinds::text;
use stoa_proto::LookAtComplianceRequest;
use stoa_types::{
    Stack, Workspace,
    config::{ComplianceState, Deployment, DeploymentCompliance, ReconcilerCompliance},
    platform::Compliance,
    reason,
};

use super::{Services, StepError, runner, target};

/// Where it is read, if anywhere.
pub fn of(workspace: &Workspace) -> Option<&Compliance> {
    workspace.spec.gitops.as_ref()?.compliance.as_ref()
}

/// How each of these commits and what the clusters have compare; whose they are is not named where they are of several
/// organizations.
///
/// # Errors
///
/// Failed when the workspace names what does not exist, Retry when no function-runner answers.
pub async fn look(
    services: &Services,
    organization: &str,
    workspace: &Workspace,
    commits: Vec<String>,
) -> Result<HashMap<String, DeploymentCompliance>, StepError> {
    let mut kubeconfigs = HashMap::new();
    for reconciler in of(workspace).into_iter().flat_map(|compliance| &compliance.reconcilers) {
        let Some(reference) = &reconciler.kubeconfig_secret_ref else { continue };
        // One that is not there is told of its reconciler alone.
        let keys = services.cluster.secret(&reference.namespace, &reference.name).await?.unwrap_or_default();
        let kubeconfig = keys.into_iter().find(|(key, _)| *key == reference.key);
        kubeconfigs.extend(kubeconfig.map(|(_, bytes)| (reconciler.name.clone(), Bytes::from(bytes))));
    }
    let workspace = Some(target::workspace(services, workspace).await?);
    let organization = organization.to_owned();
    let request = LookAtComplianceRequest { workspace, kubeconfigs, commits, organization };
    let answer = services.runner.look_at_compliance(request).await;
    let answer = answer.map_err(|status| runner::halt(&status, reason::COMPLIANCE_UNKNOWN))?.into_inner();
    let now = services.now();
    let read = |of: stoa_proto::Compliance| {
        let reconcilers = of.reconcilers.into_iter().map(|of| ReconcilerCompliance {
            name: of.name,
            state: match of.state.as_str() {
                "Compliant" => ComplianceState::Compliant,
                "Pending" => ComplianceState::Pending,
                "NonCompliant" => ComplianceState::NonCompliant,
                _ => ComplianceState::Unknown,
            },
            revision: Some(of.revision).filter(|revision| !revision.is_empty()),
            message: of.message,
        });
        (of.commit.clone(), compared(of.commit, reconcilers.collect(), now))
    };
    Ok(answer.commits.into_iter().map(read).collect())
}

/// That it is not known of any reconciler.
pub fn unknown(workspace: &Workspace, commit: &str, why: &str, now: Timestamp) -> DeploymentCompliance {
    let reconcilers = of(workspace).into_iter().flat_map(|compliance| &compliance.reconcilers);
    let unknown =
        |name: &String| ReconcilerCompliance { name: name.clone(), message: why.to_owned(), ..Default::default() };
    compared(commit.to_owned(), reconcilers.map(|reconciler| unknown(&reconciler.name)).collect(), now)
}

fn compared(commit: String, reconcilers: Vec<ReconcilerCompliance>, now: Timestamp) -> DeploymentCompliance {
    let worst = reconcilers.iter().map(|of| of.state).max();
    DeploymentCompliance { state: worst.unwrap_or_default(), commit, time: Some(Time(now)), reconcilers }
}

/// Notes that a deployment has another commit, which nobody has looked for.
pub(super) fn begin(deployment: &mut Deployment, commit: &str, now: Timestamp) {
    let Some(before) = deployment.compliance.as_mut() else { return };
    let pending = |of: ReconcilerCompliance| ReconcilerCompliance {
        state: ComplianceState::Pending,
        message: "not checked since the commit".to_owned(),
        ..of
    };
    let reconcilers = mem::take(&mut before.reconcilers).into_iter().map(pending).collect();
    *before = compared(commit.to_owned(), reconcilers, now);
}

/// Notes what was found of a deployment's commit; whether the state is another than before.
pub fn note(deployment: &mut Deployment, found: &DeploymentCompliance) -> bool {
    let before = deployment.compliance.as_ref().filter(|before| before.commit == found.commit);
    let is_same = before.is_some_and(|before| before.state == found.state);
    let time = if is_same { before.and_then(|before| before.time.clone()) } else { found.time.clone() };
    deployment.compliance = Some(DeploymentCompliance { time, ..found.clone() });
    !is_same
}

/// Why a deployment is not compliant, by its reconcilers; empty when it is.
pub fn reasons(found: &DeploymentCompliance) -> String {
    let lacking = found.reconcilers.iter().filter(|of| of.state != ComplianceState::Compliant);
    let mut lacking: Vec<&ReconcilerCompliance> = lacking.collect();
    // What is worst comes first.
    lacking.sort_by_key(|of| std::cmp::Reverse(of.state));
    let said: Vec<String> = lacking.iter().map(|of| format!("{}: {}", of.name, of.message)).collect();
    text::first(&said, 3, "; ")
}

/// Why what a stack committed for a workspace is not known to be in its clusters; nothing where it is, or nobody looks.
pub fn lacking(stack: &Stack, workspace: &Workspace) -> Option<String> {
    of(workspace)?;
    let deployments = stack.status.iter().flat_map(|status| &status.deployments);
    let deployment = deployments.into_iter().find(|of| of.workspace == workspace.name_any())?;
    let commit = deployment.gitops_commit.as_ref()?;
    let found = deployment.compliance.as_ref().filter(|found| found.commit == *commit);
    match found {
        None => Some(format!("not checked yet whether clusters have commit {commit}")),
        Some(found) if found.state == ComplianceState::Compliant => None,
        Some(found) => Some(format!("clusters do not have commit {commit}: {}", reasons(found))),
    }
}

/// Brings a stack's condition `Compliant` to what its deployments say.
pub fn set_condition(stack: &mut Stack) {
    let generation = stack.metadata.generation;
    let Some(status) = stack.status.as_mut() else { return };
    let found = || status.deployments.iter().filter_map(|of| Some((of.workspace.as_str(), of.compliance.as_ref()?)));
    let Some(worst) = found().map(|(_, found)| found.state).max() else {
        status.conditions.retain(|condition| condition.type_ != reason::COMPLIANT);
        return;
    };
    let (is, why) = match worst {
        ComplianceState::Compliant => ("True", reason::COMPLIANT),
        ComplianceState::Pending => ("False", reason::RECONCILING),
        ComplianceState::Unknown => ("Unknown", reason::COMPLIANCE_UNKNOWN),
        ComplianceState::NonCompliant => ("False", reason::NON_COMPLIANT),
    };
    let said: Vec<String> = found()
        .filter(|(_, found)| found.state != ComplianceState::Compliant)
        .map(|(workspace, found)| format!("workspace {workspace}: {}", reasons(found)))
        .collect();
    let message = if said.is_empty() { "clusters have what was committed".to_owned() } else { said.join("; ") };
    set_condition_to(&mut status.conditions, reason::COMPLIANT, is, why, message, generation);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, state: ComplianceState) -> ReconcilerCompliance {
        let message = if state == ComplianceState::Compliant { String::new() } else { format!("why {name}") };
        ReconcilerCompliance { name: name.to_owned(), state, revision: None, message }
    }

    #[test]
    fn condition_follows_the_worst_reconciler() {
        use ComplianceState::{Compliant, NonCompliant, Pending, Unknown};
        let check = |reconcilers: &[(&str, ComplianceState)]| {
            let reconcilers = reconcilers.iter().map(|(name, state)| of(name, *state)).collect();
            let compliance = Some(compared("c1".to_owned(), reconcilers, Timestamp::UNIX_EPOCH));
            let deployment = Deployment { workspace: "dev".to_owned(), compliance, ..Deployment::default() };
            let mut stack: Stack =
                serde_json::from_value(serde_json::json!({"metadata": {}, "spec": {"project": "web"}})).unwrap();
            stack.status.get_or_insert_default().deployments = vec![deployment];
            set_condition(&mut stack);
            let condition = stack.status.unwrap().conditions.remove(0);
            format!("{} {} {}", condition.status, condition.reason, condition.message)
        };
        assert_eq!(check(&[("a", Compliant), ("b", Compliant)]), "True Compliant clusters have what was committed");
        assert_eq!(check(&[("a", Compliant), ("b", Pending)]), "False Reconciling workspace dev: b: why b");
        let expected = "Unknown ComplianceUnknown workspace dev: b: why b; a: why a";
        assert_eq!(check(&[("a", Pending), ("b", Unknown)]), expected);
        let expected = "False NonCompliant workspace dev: c: why c; b: why b; a: why a; and 1 more";
        assert_eq!(check(&[("a", Pending), ("b", Unknown), ("c", NonCompliant), ("d", Pending)]), expected);
        assert!(check(&[]).starts_with("Unknown "), "nobody says that it is compliant");
    }

    #[test]
    fn new_commit_is_pending_until_a_look() {
        let mut deployment = Deployment::default();
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        begin(&mut deployment, "c1", at(1));
        assert_eq!(deployment.compliance, None, "nobody looks here");
        let found = |commit: &str, state, second| compared(commit.to_owned(), vec![of("a", state)], at(second));
        let since = |deployment: &Deployment| {
            let found = deployment.compliance.clone().unwrap();
            (found.commit, found.state, found.time.unwrap().0.as_second())
        };
        assert!(note(&mut deployment, &found("c1", ComplianceState::Compliant, 2)));
        assert!(!note(&mut deployment, &found("c1", ComplianceState::Compliant, 3)));
        assert_eq!(since(&deployment), ("c1".to_owned(), ComplianceState::Compliant, 2));
        begin(&mut deployment, "c2", at(4));
        assert_eq!(since(&deployment), ("c2".to_owned(), ComplianceState::Pending, 4));
    }
}
