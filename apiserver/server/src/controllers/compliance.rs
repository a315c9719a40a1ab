//! Compliance: reads back whether clusters have what was committed for them, one look for all stacks of a workspace.
//!
//! What a look asks is asked when it is the turn of the workspace ([`ProbeSlots`]), which has one at a time: as many workspaces as there
//! are turns ([`ASKING`]), whose clusters or Git servers do not answer, keep others waiting for as long as these are waited for.
//! What is not compliant is looked at less and less often, so that they seldom do.
//!
//! Elsewhere: what is asked and how it is kept is in `stoa_runs::compliance`.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use stoa_controller::{
    events::Kind,
    index::{Index, Member},
    object::ObjectKey,
    probes::{NamespaceSlots, ProbeSlots},
    queue::{self, Trigger},
};
use stoa_machinery::ApiError;
use stoa_runs::{Services, StepError, compliance};
use stoa_types::{
    Stack, Workspace,
    config::{ComplianceState, Deployment, DeploymentCompliance},
    reason,
};
use tokio_util::sync::CancellationToken;

/// The shortest wait before another look while something is not compliant: a twentieth of the time for which it is so.
const SOONEST: Duration = Duration::from_secs(3);
/// How many workspaces are looked at at once: all, since a look waits for its turn to ask.
const AT_ONCE: usize = usize::MAX;
/// How many workspaces are asked about at once: half of the calls that a function-runner takes.
const ASKING: usize = 128;
/// How many commits are asked for at once: an answer says of each what every reconciler says.
const ASKED: usize = 200;

/// What of a stack says what it committed.
#[derive(Deserialize, PartialEq)]
struct Committed {
    #[serde(default)]
    deployments: Vec<CommittedTo>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
struct CommittedTo {
    workspace: String,
    gitops_commit: Option<String>,
}

fn workspaces_of(stack: &Member<IgnoredAny, Committed>) -> impl Iterator<Item = &str> {
    let deployments = stack.status.iter().flat_map(|status| &status.deployments);
    deployments.filter(|of| of.gitops_commit.is_some()).map(|of| of.workspace.as_str())
}

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let Ok(registry) = services.lookup.registry() else { return };
    let by_workspace: Index<String> = Index::default();
    let key = |workspace: &str| (String::new(), workspace.to_owned());
    let of_stack = |stack: &Member<IgnoredAny, Committed>| workspaces_of(stack).map(str::to_owned).collect();
    let moved = by_workspace.follow(&registry.api::<Stack>(), of_stack);
    let triggers = vec![
        Trigger::on_change(&registry.api::<Workspace>(), |workspace: &Member<Value, IgnoredAny>| vec![workspace.key()]),
        Trigger::new(moved.map(move |moved| moved.groups.iter().map(|workspace| key(workspace)).collect()).boxed()),
        Trigger::on_change(&registry.api::<Stack>(), move |stack: &Member<IgnoredAny, Committed>| {
            workspaces_of(stack).map(key).collect()
        }),
    ];
    let turns = Arc::new(ProbeSlots::new(ASKING));
    let look = |key| look(services.clone(), by_workspace.clone(), turns.clone(), key);
    queue::drive_some(services.queues.of("compliance"), AT_ONCE, triggers, end, look).await;
}

async fn look(
    services: Services,
    by_workspace: Index<String>,
    turns: Arc<ProbeSlots>,
    (_, name): ObjectKey,
) -> Result<Option<Duration>, ApiError> {
    let Some(workspace) = services.lookup.api::<Workspace>()?.get_opt("", &name).await? else { return Ok(None) };
    let members = by_workspace.members(&name);
    let stacks = members.iter().filter_map(|(namespace, name)| services.lookup.cached::<Stack>(namespace, name));
    let stacks: Vec<Stack> = stacks.collect();
    let Some(settings) = compliance::of(&workspace) else {
        for stack in stacks.iter().filter(|stack| of(stack, &name).is_some_and(|of| of.compliance.is_some())) {
            write(&services, stack, &name, None).await?;
        }
        return Ok(None);
    };
    let commits: BTreeSet<&str> =
        stacks.iter().filter_map(|stack| of(stack, &name)?.gitops_commit.as_deref()).collect();
    if commits.is_empty() {
        return Ok(None);
    }
    let commits: Vec<String> = commits.into_iter().map(str::to_owned).collect();
    // It is in no namespace, and is looked at once at a time.
    let found = find(&services, &turns.of(&name), &workspace, &commits).await?;
    let mut lacking: Option<Timestamp> = None;
    for stack in &stacks {
        let Some(deployment) = of(stack, &name) else { continue };
        let Some(found) = deployment.gitops_commit.as_ref().and_then(|commit| found.get(commit)) else { continue };
        let mut noted = deployment.clone();
        compliance::note(&mut noted, found);
        if noted != *deployment {
            write(&services, stack, &name, Some(found)).await?;
        }
        if found.state != ComplianceState::Compliant {
            let since = noted.compliance.and_then(|noted| noted.time).map(|Time(since)| since);
            lacking = lacking.max(since.or(Some(Timestamp::MIN)));
        }
    }
    let interval = settings.interval.parse().unwrap_or(SOONEST).max(SOONEST);
    Ok(Some(match lacking {
        None => interval,
        Some(since) => look_after(since, services.now()).min(interval),
    }))
}

/// How long to wait before another look at what is not compliant since then.
fn look_after(since: Timestamp, now: Timestamp) -> Duration {
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    (waited / 20).max(SOONEST)
}

fn of<'a>(stack: &'a Stack, workspace: &str) -> Option<&'a Deployment> {
    stack.status.as_ref()?.deployments.iter().find(|of| of.workspace == workspace)
}

async fn find(
    services: &Services,
    turns: &NamespaceSlots,
    workspace: &Workspace,
    commits: &[String],
) -> Result<HashMap<String, DeploymentCompliance>, ApiError> {
    let mut found = HashMap::new();
    for commits in commits.chunks(ASKED) {
        let turn = turns.take().await;
        let looked = compliance::look(services, "", workspace, commits.to_vec()).await;
        drop(turn);
        match looked {
            Ok(looked) => found.extend(looked),
            Err(StepError::Failed { message, .. }) => found.extend(
                commits
                    .iter()
                    .map(|commit| (commit.clone(), compliance::unknown(workspace, commit, &message, services.now()))),
            ),
            Err(halt) => return Err(ApiError::internal(format!("{halt:?}"))),
        }
    }
    Ok(found)
}

/// Notes what was found in the stack's status, or that nobody looks any more.
async fn write(
    services: &Services,
    stack: &Stack,
    workspace: &str,
    found: Option<&DeploymentCompliance>,
) -> Result<(), ApiError> {
    let (namespace, name) = queue::key_of(stack);
    let mut is_news = false;
    // Of several tries the last one counts.
    let update = |stack: &mut Stack| is_news = noted(stack, workspace, found);
    let written = services.lookup.api::<Stack>()?.update_status_with(&namespace, &name, update).await;
    if queue::unless_gone(written)?.is_none() {
        return Ok(());
    }
    if let Some(found) = found.filter(|_| is_news) {
        let commit = &found.commit;
        match found.state {
            ComplianceState::Compliant => {
                let message = format!("clusters of workspace {workspace} have commit {commit}");
                services.recorder.record(stack, Kind::Normal, reason::COMPLIANT, message);
            }
            ComplianceState::NonCompliant => {
                let why = compliance::reasons(found);
                let message = format!("commit {commit} failed in clusters of workspace {workspace}: {why}");
                services.recorder.record(stack, Kind::Warning, reason::NON_COMPLIANT, message);
            }
            ComplianceState::Pending | ComplianceState::Unknown => {}
        }
    }
    Ok(())
}

/// Brings a stack to what was found; whether that is news of a deployment.
fn noted(stack: &mut Stack, workspace: &str, found: Option<&DeploymentCompliance>) -> bool {
    let mut deployments = stack.status.iter_mut().flat_map(|status| &mut status.deployments);
    let Some(deployment) = deployments.find(|of| of.workspace == workspace) else { return false };
    let is_news = match found {
        None => {
            deployment.compliance = None;
            false
        }
        // Another run may have committed meanwhile.
        Some(found) if deployment.gitops_commit.as_ref() == Some(&found.commit) => compliance::note(deployment, found),
        Some(_) => return false,
    };
    compliance::set_condition(stack);
    is_news
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_proto::{Compliance, LookAtComplianceRequest, LookAtComplianceResponse, ReconcilerCompliance};
    use stoa_runs::testing::{Answer, FakeRunner, runner_at};
    use tonic::{Request, Response};

    use super::*;
    use crate::testing::TestServer;

    /// Longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Says of the commits of workspace `dev` that they are there, and of no other's anything.
    #[derive(Clone, Copy, Debug)]
    struct Slow;

    #[tonic::async_trait]
    impl FakeRunner for Slow {
        async fn look_at_compliance(
            &self,
            request: Request<LookAtComplianceRequest>,
        ) -> Answer<LookAtComplianceResponse> {
            let LookAtComplianceRequest { workspace, commits, .. } = request.into_inner();
            if workspace.is_none_or(|workspace| workspace.name != "dev") {
                std::future::pending::<()>().await;
            }
            let hub = || ReconcilerCompliance {
                name: "hub".to_owned(),
                state: "Compliant".to_owned(),
                ..ReconcilerCompliance::default()
            };
            let commits = commits.into_iter().map(|commit| Compliance { commit, reconcilers: vec![hub()] }).collect();
            Ok(Response::new(LookAtComplianceResponse { commits }))
        }
    }

    #[tokio::test]
    async fn slow_workspaces_delay_no_other_compliance_check() {
        let world = TestServer::with_runner(runner_at(Slow.serve())).await;
        let reconciler = json!({
            "name": "hub", "inCluster": true, "application": { "namespace": "argocd", "name": "shop" },
        });
        let gitops = json!({ "repository": "file:///deploy.git", "compliance": { "reconcilers": [reconciler] } });
        // They come first in every order.
        let slow: Vec<String> = (0..100).map(|number| format!("a-slow-{number}")).collect();
        for name in &slow {
            world.create("Workspace", name, json!({ "backend": { "name": "default" }, "gitops": gitops })).await;
        }
        let read = |workspace: &mut Workspace| {
            workspace.spec.gitops = serde_json::from_value(gitops.clone()).unwrap();
        };
        world.registry.api::<Workspace>().update_with("", "dev", read).await.unwrap();
        let stacks = world.registry.api::<Stack>();
        let deployed = |stack: &mut Stack| {
            let workspaces = slow.iter().cloned().chain(["dev".to_owned()]);
            let deployments = workspaces.map(|workspace| Deployment {
                workspace,
                gitops_commit: Some("c1".to_owned()),
                ..Deployment::default()
            });
            stack.status.get_or_insert_default().deployments = deployments.collect();
        };
        stacks.update_status_with("shop", "web", deployed).await.unwrap();
        let end = CancellationToken::new();
        tokio::spawn(run(world.services.clone(), end.clone()));
        let _end = end.drop_guard();
        let is_found = async {
            let found = async || of(&stacks.get("shop", "web").await.unwrap(), "dev")?.compliance.clone();
            while found().await.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, is_found).await.expect("it is looked at");
    }

    #[test]
    fn new_commit_clears_old_compliance_result() {
        let mut stack: Stack =
            serde_json::from_value(serde_json::json!({"metadata": {}, "spec": {"project": "web"}})).unwrap();
        let of = |commit: &str| Deployment {
            workspace: "dev".to_owned(),
            gitops_commit: Some(commit.to_owned()),
            ..Deployment::default()
        };
        let found = DeploymentCompliance { commit: "c1".to_owned(), ..DeploymentCompliance::default() };
        stack.status.get_or_insert_default().deployments = vec![of("c1")];
        let news = |stack: &mut Stack, workspace: &str| noted(stack, workspace, Some(&found));
        assert!(!news(&mut stack, "prod"));
        assert!(news(&mut stack, "dev") && !news(&mut stack, "dev"));
        stack.status.get_or_insert_default().deployments = vec![of("c2")];
        assert!(!news(&mut stack, "dev"));
        assert_eq!(stack.status.unwrap().deployments[0].compliance, None);
    }

    #[test]
    fn noncompliant_deployment_recheck_interval_grows() {
        let since = Timestamp::from_second(1_000).unwrap();
        let after = |seconds: i64| look_after(since, Timestamp::from_second(1_000 + seconds).unwrap()).as_secs();
        assert_eq!([-10, 0, 60, 600, 6_000].map(after), [3, 3, 3, 30, 300]);
    }
}
