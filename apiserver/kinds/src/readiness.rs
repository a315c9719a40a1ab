//! The conditions of a Stack: `Ready`, `LastRun` and `Drifted`.
//!
//! `Ready` says whether a release is deployed as a whole, and compares it with the desired version. `LastRun`
//! says how the last Run of each deployment ended. `Drifted` says whether live resources differ from the
//! release.

use kube::ResourceExt as _;
use serde::Deserialize;
use stoa_controller::{conditions::set_condition, index::Member};
use stoa_types::{
    Project, Run, Source, Stack, Workspace,
    config::{CommitOrder, Deployment, EarlierRun, EndedRun, ObservedVersion, ProjectSpec, SourcePackage},
    delivery::{Operation, RunPhase},
    reason,
};

use crate::{lookup::Lookup, package_source, source::short_revision, source_path::path_below};

/// The most runs that a message names.
const NAMED: usize = 5;

/// The Project and the Source of a Stack, as the watch cache has them.
#[derive(Debug)]
pub struct Origin {
    project: ProjectSpec,
    has_source: bool,
    source: Option<OfSourceStatus>,
    /// The folder of the package that the Source is.
    package_folder: Option<String>,
}

/// What counts of the spec of a Source.
#[derive(Deserialize)]
struct OfSourceSpec {
    package: Option<SourcePackage>,
}

impl Origin {
    /// Reads them; nothing where the Project does not exist.
    pub fn of(lookup: &Lookup, stack: &Stack) -> Option<Self> {
        let namespace = stack.namespace().unwrap_or_default();
        let project = lookup.cached_spec::<Project>(&namespace, &stack.spec.project)?;
        let name = &project.source.name;
        let has_source = lookup.is_cached::<Source>(&namespace, name);
        let part: Option<Member<OfSourceSpec, OfSourceStatus>> = lookup.cached_part::<Source, _>(&namespace, name);
        let (package, source) = part.map_or((None, None), |part| (part.spec.package, part.status));
        let package_folder = package.map(|package| package_source::cached_folder(lookup, &namespace, &package));
        Some(Self { project, has_source, source, package_folder })
    }

    /// The source of the stack and its path there.
    pub fn folder(&self, stack: &Stack) -> (String, String) {
        let path = match &self.package_folder {
            Some(folder) => package_source::path(folder, stack, &self.project.path),
            None => path_below(stack, &self.project.path),
        };
        (self.project.source.name.clone(), path)
    }
}

/// Brings a stack's status to what there is: the commit that it would be deployed from, and whether it is ready. What it
/// refers to is read from the watch cache; whatever changes there comes to the controller of stacks.
pub fn observe(lookup: &Lookup, stack: &mut Stack) {
    let origin = Origin::of(lookup, stack);
    observe_from(lookup, origin.as_ref(), stack);
}

/// The same of a stack whose origin was read.
pub fn observe_from(lookup: &Lookup, origin: Option<&Origin>, stack: &mut Stack) {
    let head = head_of(origin, stack);
    stack.status.get_or_insert_default().observed_commit = head;
    set_from(lookup, origin, stack, None);
}

/// Whether nobody has to be asked for the commit of a version besides the latest one: it is that, or a commit.
pub fn is_told_by_itself(version: &str) -> bool {
    version == "latest" || is_commit(version)
}

/// The start of a digest, which is the revision of an artifact or chart.
pub(crate) const DIGEST: &str = "sha256:";

/// Whether a version is a revision by itself: a commit, or the digest of an artifact or chart.
fn is_commit(version: &str) -> bool {
    let (digits, length) = version.strip_prefix(DIGEST).map_or((version, 40), |digits| (digits, 64));
    digits.len() == length && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// The commit that a stack's desired version stood for when its source was last looked at.
pub fn head(lookup: &Lookup, stack: &Stack) -> Option<String> {
    head_of(Origin::of(lookup, stack).as_ref(), stack)
}

/// The same of a stack whose origin was read.
pub fn head_of(origin: Option<&Origin>, stack: &Stack) -> Option<String> {
    let version = &stack.spec.desired_version;
    if is_commit(version) {
        return Some(version.clone());
    }
    let status = origin?.source.as_ref()?;
    if version == "latest" {
        return status.observed_commit.clone();
    }
    status.versions.iter().find(|observed| observed.version == *version)?.commit.clone()
}

/// The name of the source that the stacks of a project come from.
pub fn source_of(lookup: &Lookup, namespace: &str, project: &str) -> Option<String> {
    Some(lookup.cached_spec::<Project>(namespace, project)?.source.name)
}

/// The commit that a source's ref pointed to at the last look.
pub fn latest(lookup: &Lookup, namespace: &str, source: &str) -> Option<String> {
    lookup.cached_status::<Source>(namespace, source)?.observed_commit
}

/// What keeps every run of a stack from succeeding, as far as the watch cache has it: references that do not exist, and a
/// folder that the source lacks. The reason is that of the first.
fn obstacle(lookup: &Lookup, origin: Option<&Origin>, stack: &Stack) -> Option<(&'static str, String)> {
    let mut missing = Vec::new();
    match origin {
        None => missing.push(format!("project {:?} does not exist", stack.spec.project)),
        Some(origin) if !origin.has_source => {
            missing.push(format!("source {:?} does not exist", origin.project.source.name));
        }
        Some(_) => {}
    }
    let workspaces = stack.spec.workspaces.iter().filter(|name| !lookup.is_cached::<Workspace>("", name));
    missing.extend(workspaces.map(|name| format!("workspace {name:?} does not exist")));
    let why = if missing.is_empty() { reason::PATH_NOT_FOUND } else { reason::REFERENCE_NOT_FOUND };
    let status = stack.status.as_ref();
    let mut deployments = status.iter().flat_map(|status| &status.deployments);
    let is_deployed = deployments.any(|of| of.release.is_some() || of.resources > 0);
    let lacked = status.and_then(|status| status.missing_folder.as_ref());
    if let Some(((source, path), lacked)) = origin.map(|origin| origin.folder(stack)).zip(lacked)
        && lacked.path == path
        // A stack that is deployed is not looked for at later commits.
        && (!is_deployed || status.and_then(|status| status.observed_commit.as_ref()) == Some(&lacked.commit))
    {
        missing.push(no_folder(&source, &path, &lacked.commit));
    }
    (!missing.is_empty()).then(|| (why, missing.join("; ")))
}

/// A sentence about a folder that a source lacks.
pub(crate) fn no_folder(source: &str, path: &str, commit: &str) -> String {
    format!("source {source:?} has no folder or file {path:?} at commit {}", short_revision(commit))
}

/// The commits that the desired versions of stacks stand for: all of a Source that a Stack depends on.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct OfSourceStatus {
    observed_commit: Option<String>,
    #[serde(default)]
    versions: Vec<ObservedVersion>,
}

/// Brings a stack's condition `Ready` to what its spec and status say. `ended` is a run that has just ended without
/// success, and what it ended with.
pub fn set(lookup: &Lookup, stack: &mut Stack, ended: Option<(&str, &str)>) {
    let origin = Origin::of(lookup, stack);
    set_from(lookup, origin.as_ref(), stack, ended);
}

fn set_from(lookup: &Lookup, origin: Option<&Origin>, stack: &mut Stack, ended: Option<(&str, &str)>) {
    let obstacle = obstacle(lookup, origin, stack);
    let (generation, namespace) = (stack.metadata.generation, stack.namespace().unwrap_or_default());
    let wanted = &stack.spec.workspaces;
    let status = stack.status.get_or_insert_default();
    let observed = status.observed_commit.as_deref();
    let counting: Vec<&Deployment> = status.deployments.iter().filter(|of| counts(lookup, wanted, of)).collect();
    let (ready, why, mut message) = readiness(&counting, observed, obstacle, ended);
    let mut why = why.to_owned();
    if let Some((_, failed)) =
        unsuccessful(&counting).filter(|_| matches!(&*why, reason::RUN_FAILED | reason::RUN_CANCELED))
    {
        let known = operation(lookup, &namespace, &failed.run);
        if let Some(operation) = known.filter(|_| why == reason::RUN_FAILED) {
            operation_failed(operation).clone_into(&mut why);
        }
        let before = status.conditions.iter().find(|condition| condition.type_ == reason::READY);
        // Whoever ended the run knew why; whoever looks later does not, and may not find the run any more.
        if let Some(before) = before.filter(|before| before.message.starts_with(&message)) {
            message.clone_from(&before.message);
            if known.is_none() && why == reason::RUN_FAILED {
                why.clone_from(&before.reason);
            }
        }
    }
    match last_run(&counting) {
        Some((succeeded, why, message)) => {
            set_condition(&mut status.conditions, reason::LAST_RUN, succeeded, &why, message, generation);
        }
        None => status.conditions.retain(|condition| condition.type_ != reason::LAST_RUN),
    }
    set_condition(&mut status.conditions, reason::READY, ready, &why, message, generation);
}

/// Whether the last run of each deployment succeeded, with the reason and the message of those that did not. Nothing before a
/// run has ended.
fn last_run(deployments: &[&Deployment]) -> Option<(bool, String, String)> {
    let ended = deployments.iter().filter_map(|of| Some((of.workspace.as_str(), of.last_end.as_ref()?)));
    let (succeeded, failed): (Vec<_>, Vec<_>) = ended.partition(|(_, end)| end.phase == RunPhase::Succeeded);
    let shown = if failed.is_empty() { &succeeded } else { &failed };
    let (_, first) = shown.first()?;
    let sentence = |(workspace, end): &(&str, &EndedRun)| {
        let EndedRun { run, message, .. } = end;
        format!("run {run} in workspace {workspace}: {message}")
    };
    let sentences: Vec<String> = shown.iter().take(NAMED).map(sentence).collect();
    let more = shown.len() - sentences.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Some((failed.is_empty(), first.reason.clone(), sentences.join("; ") + &more))
}

/// What a run was to do, as long as there is the run.
fn operation(lookup: &Lookup, namespace: &str, run: &str) -> Option<Operation> {
    Some(lookup.cached_spec::<Run>(namespace, run)?.operation)
}

/// The reason for which a stack is not ready of which this failed.
fn operation_failed(operation: Operation) -> &'static str {
    match operation {
        Operation::Apply => reason::APPLY_FAILED,
        Operation::Destroy => reason::DESTROY_FAILED,
        Operation::Rollback => reason::ROLLBACK_FAILED,
        Operation::Import => reason::IMPORT_FAILED,
        Operation::Preview | Operation::Refresh => reason::RUN_FAILED,
    }
}

/// Brings a stack's condition `Drifted` to what its deployments say. `found` is what was just found in a workspace.
pub fn set_drifted(stack: &mut Stack, found: Option<(&str, &str)>) {
    let generation = stack.metadata.generation;
    let status = stack.status.get_or_insert_default();
    let drifted: Vec<&str> =
        status.deployments.iter().filter(|d| d.drifted).map(|deployment| deployment.workspace.as_str()).collect();
    let before = status.conditions.iter().find(|condition| condition.type_ == reason::DRIFTED);
    // Nobody has looked yet.
    if before.is_none() && found.is_none() {
        return;
    }
    let others = drifted.iter().copied().filter(|workspace| found.is_none_or(|(found, _)| found != *workspace));
    let others = others.map(|workspace| format!("workspace {workspace} drifted"));
    let message = found.map(|(workspace, message)| format!("workspace {workspace}: {message}"));
    let message = message.into_iter().chain(others).collect::<Vec<_>>().join("; ");
    let message = if message.is_empty() { "the release was applied since the last check".to_owned() } else { message };
    let (is_drifted, why) = if drifted.is_empty() { (false, reason::IN_SYNC) } else { (true, reason::DRIFTED) };
    set_condition(&mut status.conditions, reason::DRIFTED, is_drifted, why, message, generation);
}

/// Whether a deployment says something of how the stack is: what has ended and left nothing does so only where the stack is
/// to be deployed, since nothing else is going to be done about it.
fn counts(lookup: &Lookup, wanted: &[String], of: &Deployment) -> bool {
    let has_ended = of.phase.is_none_or(RunPhase::is_terminal);
    let is_wanted = || wanted.is_empty() || wanted.contains(&of.workspace);
    of.resources > 0 || !has_ended || (is_wanted() && lookup.is_cached::<Workspace>("", &of.workspace))
}

/// The deployment, if there is one, that is as no release says, and the run that left it so.
fn unsuccessful<'a>(deployments: &[&'a Deployment]) -> Option<(&'a Deployment, EarlierRun)> {
    deployments.iter().copied().find_map(|of| {
        let phase = of.phase.filter(|phase| phase.is_terminal())?;
        let is_unsuccessful = matches!(phase, RunPhase::Failed | RunPhase::Canceled);
        // An earlier version did not say which run had changed something.
        let last = || EarlierRun { run: of.last_run.clone().unwrap_or_default(), phase };
        let left = of.incomplete.clone().or_else(|| (is_unsuccessful && of.last_end.is_none()).then(last))?;
        Some((of, left))
    })
}

/// How a deployed commit compares with an observed one, as far as the status has that.
pub fn order(of: &Deployment, observed: Option<&str>) -> Option<CommitOrder> {
    let compared = of.compared.as_ref()?;
    let is_current = of.commit.as_ref() == Some(&compared.commit) && observed == Some(compared.desired.as_str());
    is_current.then_some(compared.order)
}

fn readiness(
    deployments: &[&Deployment],
    observed: Option<&str>,
    obstacle: Option<(&'static str, String)>,
    ended: Option<(&str, &str)>,
) -> (bool, &'static str, String) {
    if let Some((why, message)) = obstacle {
        return (false, why, message);
    }
    if let Some((failed, EarlierRun { run, phase })) = unsuccessful(deployments) {
        let why = ended.filter(|(ended, _)| *ended == run).map(|(_, message)| format!(": {message}"));
        let why = why.unwrap_or_default();
        let message = format!("run {run} in workspace {} did not succeed{why}", failed.workspace);
        let is_canceled = phase == RunPhase::Canceled;
        return (false, if is_canceled { reason::RUN_CANCELED } else { reason::RUN_FAILED }, message);
    }
    if let Some(going) = deployments.iter().find(|d| d.phase.is_some_and(|p| !p.is_terminal())) {
        let (run, workspace) = (going.last_run.as_deref().unwrap_or(""), &going.workspace);
        if going.phase == Some(RunPhase::AwaitingApproval) {
            let message = format!("the plan of run {run} in workspace {workspace} waits for approval");
            return (false, reason::AWAITING_APPROVAL, message);
        }
        if going.phase == Some(RunPhase::AwaitingMerge) {
            let message = format!("the changes of run {run} in workspace {workspace} wait to be merged");
            return (false, reason::AWAITING_MERGE, message);
        }
        return (false, reason::PROGRESSING, format!("run {run} is under way in workspace {workspace}"));
    }
    let live: Vec<&Deployment> = deployments.iter().copied().filter(|d| d.resources > 0).collect();
    if live.is_empty() {
        return (false, reason::NOT_DEPLOYED, "nothing is deployed".to_owned());
    }
    let what = |d: &&Deployment| match d.release {
        Some(release) => format!("release {release} is deployed in workspace {}", d.workspace),
        None => format!("it is deployed in workspace {}", d.workspace),
    };
    let mut message = live.iter().map(what).collect::<Vec<_>>().join(", ");
    let is_other = |d: &&&Deployment| d.commit.as_deref().is_some_and(|commit| Some(commit) != observed);
    if let Some((observed, other)) = observed.zip(live.iter().find(is_other)) {
        let which = if live.len() > 1 { format!("workspace {}", other.workspace) } else { "it".to_owned() };
        message += &compared(other, observed, &which);
    }
    (true, reason::AVAILABLE, message)
}

/// How a deployment of another commit than the observed one compares with that. `which` names the deployment.
fn compared(of: &Deployment, observed: &str, which: &str) -> String {
    let (deployed, desired) = (of.commit.as_deref().map(short_revision).unwrap_or_default(), short_revision(observed));
    match order(of, Some(observed)) {
        Some(CommitOrder::Behind) => {
            format!(
                "; {which} is behind: the desired version is at the later commit {desired}, and {deployed} is deployed"
            )
        }
        Some(CommitOrder::Ahead) => {
            format!(
                "; {which} is ahead: the desired version is at the earlier commit {desired}, and {deployed} is deployed"
            )
        }
        Some(CommitOrder::Diverged) => format!(
            "; {which} diverged: the desired version is at commit {desired}, and {deployed} is deployed, which is in another history"
        ),
        None => {
            format!("; the desired version is at commit {desired}, and {deployed} is deployed")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_types::{common::MissingFolder, config::ComparedCommits};

    use super::*;
    use crate::testing::TestRegistry;

    fn deployment(phase: RunPhase, resources: i64) -> Deployment {
        Deployment {
            workspace: "dev".to_owned(),
            release: Some(3),
            commit: Some("0123456789".to_owned()),
            last_run: Some("web-1".to_owned()),
            phase: Some(phase),
            resources,
            ..Deployment::default()
        }
    }

    #[test]
    fn condition_says_what_is_deployed_and_what_is_not() {
        let check = |deployments: &[Deployment], observed, obstacle: Option<&str>, ended| {
            let deployments: Vec<&Deployment> = deployments.iter().collect();
            let obstacle = obstacle.map(|message| (reason::REFERENCE_NOT_FOUND, message.to_owned()));
            let (ready, why, message) = readiness(&deployments, observed, obstacle, ended);
            (ready, why.to_owned() + ": " + &message)
        };
        let done = [deployment(RunPhase::Succeeded, 2)];
        let expected = "Available: release 3 is deployed in workspace dev";
        assert_eq!(check(&done, None, None, None), (true, expected.to_owned()));
        assert_eq!(check(&done, Some("0123456789"), None, None), (true, expected.to_owned()));
        for (compared, said) in [
            (None, "the desired version is at commit abcdefab, and 01234567 is deployed"),
            (
                Some(CommitOrder::Behind),
                "it is behind: the desired version is at the later commit abcdefab, and 01234567 is deployed",
            ),
            (
                Some(CommitOrder::Ahead),
                "it is ahead: the desired version is at the earlier commit abcdefab, and 01234567 is deployed",
            ),
            (
                Some(CommitOrder::Diverged),
                "it diverged: the desired version is at commit abcdefab, and 01234567 is deployed, which is in another history",
            ),
        ] {
            let (commit, desired) = ("0123456789".to_owned(), "abcdefabcd".to_owned());
            let compared = compared.map(|order| ComparedCommits { commit, desired, order });
            let other = [Deployment { compared, ..deployment(RunPhase::Succeeded, 2) }];
            assert_eq!(check(&other, Some("abcdefabcd"), None, None), (true, format!("{expected}; {said}")));
            let since = format!("{expected}; the desired version is at commit fedcbafe, and 01234567 is deployed");
            assert_eq!(check(&other, Some("fedcbafedc"), None, None), (true, since), "it was compared with another");
        }
        let expected = "ReferenceNotFound: workspace \"prod\" does not exist";
        assert_eq!(check(&done, None, Some("workspace \"prod\" does not exist"), None), (false, expected.to_owned()));
        let gone = [deployment(RunPhase::Succeeded, 0)];
        assert_eq!(check(&gone, None, None, None), (false, "NotDeployed: nothing is deployed".to_owned()));
        let going = [deployment(RunPhase::Applying, 2)];
        let expected = "Progressing: run web-1 is under way in workspace dev";
        assert_eq!(check(&going, None, None, None), (false, expected.to_owned()));
        let merging = [deployment(RunPhase::AwaitingMerge, 2)];
        let expected = "AwaitingMerge: the changes of run web-1 in workspace dev wait to be merged";
        assert_eq!(check(&merging, None, None, None), (false, expected.to_owned()));
        let waiting = [deployment(RunPhase::AwaitingApproval, 2)];
        let expected = "AwaitingApproval: the plan of run web-1 in workspace dev waits for approval";
        assert_eq!(check(&waiting, None, None, None), (false, expected.to_owned()));
        let failed = [deployment(RunPhase::Failed, 2)];
        let expected = "RunFailed: run web-1 in workspace dev did not succeed";
        assert_eq!(check(&failed, None, None, Some(("web-0", "no"))), (false, expected.to_owned()));
        assert_eq!(check(&failed, None, None, Some(("web-1", "no"))), (false, format!("{expected}: no")));
    }

    #[test]
    fn run_that_changed_nothing_leaves_the_stack_ready() {
        let end = |run: &str, phase, reason: &str, message: &str| {
            let (run, reason, message) = (run.to_owned(), reason.to_owned(), message.to_owned());
            Some(EndedRun { run, phase, reason, message })
        };
        let rejected = Deployment {
            last_end: end("web-1", RunPhase::Failed, reason::REJECTED, "bob rejected the plan"),
            ..deployment(RunPhase::Failed, 2)
        };
        let (ready, why, message) = readiness(&[&rejected], None, None, None);
        assert_eq!((ready, why, &*message), (true, reason::AVAILABLE, "release 3 is deployed in workspace dev"));
        let said = |deployments: &[&Deployment]| last_run(deployments).unwrap();
        let message = "run web-1 in workspace dev: bob rejected the plan";
        assert_eq!(said(&[&rejected]), (false, reason::REJECTED.to_owned(), message.to_owned()));

        let incomplete = Some(EarlierRun { run: "web-0".to_owned(), phase: RunPhase::Failed });
        let broken = Deployment { incomplete, ..rejected.clone() };
        let (ready, why, message) = readiness(&[&broken], None, None, None);
        assert_eq!((ready, why), (false, reason::RUN_FAILED));
        assert_eq!(message, "run web-0 in workspace dev did not succeed", "an earlier run left it so");
        let again = Deployment { phase: Some(RunPhase::Applying), ..broken };
        assert_eq!(readiness(&[&again], None, None, None).1, reason::PROGRESSING);

        let fine = Deployment {
            workspace: "prod".to_owned(),
            last_end: end("web-2", RunPhase::Succeeded, reason::SUCCEEDED, "release 3 is deployed"),
            ..deployment(RunPhase::Succeeded, 2)
        };
        assert_eq!(said(&[&fine, &rejected]).2, message_of(&rejected), "those that did not succeed are named");
        let message = "run web-2 in workspace prod: release 3 is deployed";
        assert_eq!(said(&[&fine]), (true, reason::SUCCEEDED.to_owned(), message.to_owned()));
        assert_eq!(last_run(&[&deployment(RunPhase::Applying, 2)]), None, "none has ended yet");
    }

    fn message_of(of: &Deployment) -> String {
        last_run(&[of]).unwrap().2
    }

    #[tokio::test]
    async fn ready_names_all_that_is_missing() {
        let world = TestRegistry::with_web().await;
        let lookup = &world.lookup;
        let mut stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap();
        let ready = |stack: &mut Stack| {
            observe(lookup, stack);
            let conditions = &stack.status.as_ref().unwrap().conditions;
            let ready = conditions.iter().find(|condition| condition.type_ == reason::READY).unwrap();
            format!("{}: {}", ready.reason, ready.message)
        };
        assert_eq!(ready(&mut stack), "NotDeployed: nothing is deployed");
        let commit = "a".repeat(40);
        stack.spec.desired_version.clone_from(&commit);
        let lacked = MissingFolder { path: "web".to_owned(), commit: commit.clone() };
        stack.status.get_or_insert_default().missing_folder = Some(lacked);
        let no_folder = "source \"config\" has no folder or file \"web\" at commit aaaaaaaa";
        assert_eq!(ready(&mut stack), format!("PathNotFound: {no_folder}"));
        stack.spec.workspaces = vec!["one".to_owned(), "two".to_owned()];
        let workspaces = "workspace \"one\" does not exist; workspace \"two\" does not exist";
        assert_eq!(ready(&mut stack), format!("ReferenceNotFound: {workspaces}; {no_folder}"));
        // A run has found the folder at another commit since.
        stack.spec.desired_version = "b".repeat(40);
        assert_eq!(ready(&mut stack), format!("ReferenceNotFound: {workspaces}; {no_folder}"));
        stack.status.get_or_insert_default().deployments = vec![deployment(RunPhase::Succeeded, 1)];
        assert_eq!(ready(&mut stack), format!("ReferenceNotFound: {workspaces}"));
        world.lose("/registry/config.stoa.dev/sources/shop/config").await;
        assert!(world.registry.api::<Source>().get_opt("shop", "config").await.unwrap().is_none());
        assert_eq!(ready(&mut stack), format!("ReferenceNotFound: source \"config\" does not exist; {workspaces}"));
        stack.spec.project = "gone".to_owned();
        assert_eq!(ready(&mut stack), format!("ReferenceNotFound: project \"gone\" does not exist; {workspaces}"));
    }

    #[tokio::test]
    async fn readiness_ignores_empty_failures_in_unwanted_workspaces() {
        let world = TestRegistry::with_web().await;
        world.create("Workspace", "prod", json!({"backend": {"name": "default"}})).await;
        let workspaces = world.registry.api::<Workspace>();
        workspaces.get("", "prod").await.unwrap();
        let mut stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap();
        for (wanted, workspace, phase, resources, why) in [
            (None, "dev", RunPhase::Failed, 0, reason::RUN_FAILED),
            (Some("dev"), "dev", RunPhase::Canceled, 0, reason::RUN_CANCELED),
            (Some("prod"), "dev", RunPhase::Failed, 0, reason::NOT_DEPLOYED),
            (Some("prod"), "dev", RunPhase::Failed, 1, reason::RUN_FAILED),
            (Some("prod"), "dev", RunPhase::Applying, 0, reason::PROGRESSING),
            (None, "gone", RunPhase::Failed, 0, reason::NOT_DEPLOYED),
            (None, "gone", RunPhase::Failed, 1, reason::RUN_FAILED),
            (Some("gone"), "gone", RunPhase::Failed, 0, reason::REFERENCE_NOT_FOUND),
        ] {
            stack.spec.workspaces = wanted.into_iter().map(str::to_owned).collect();
            let failed = Deployment { workspace: workspace.to_owned(), ..deployment(phase, resources) };
            stack.status.get_or_insert_default().deployments = vec![failed];
            observe(&world.lookup, &mut stack);
            let conditions = &stack.status.as_ref().unwrap().conditions;
            let ready = conditions.iter().find(|condition| condition.type_ == reason::READY).unwrap();
            assert_eq!(ready.reason, why, "{wanted:?} {workspace} {phase:?} {resources}");
        }
    }

    #[tokio::test]
    async fn readiness_reason_survives_run_deletion() {
        let world = TestRegistry::with_web().await;
        let lookup = &world.lookup;
        lookup.api::<Workspace>().unwrap().get("", "dev").await.unwrap();
        let mut stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap();
        let ready = |stack: &Stack| {
            let conditions = &stack.status.as_ref().unwrap().conditions;
            let ready = conditions.iter().find(|condition| condition.type_ == reason::READY).unwrap();
            (ready.reason.clone(), ready.message.clone())
        };
        for (operation, phase, why) in [
            ("Apply", RunPhase::Failed, reason::APPLY_FAILED),
            ("Destroy", RunPhase::Failed, reason::DESTROY_FAILED),
            ("Destroy", RunPhase::Canceled, reason::RUN_CANCELED),
        ] {
            let name = format!("{}-{}", operation.to_lowercase(), format!("{phase:?}").to_lowercase());
            world.create("Run", &name, json!({"stack": "web", "workspace": "dev", "operation": operation})).await;
            let runs = lookup.api::<Run>().unwrap();
            assert!(runs.get_opt("shop", &name).await.unwrap().is_some());
            let last = Deployment { last_run: Some(name.clone()), ..deployment(phase, 2) };
            stack.status.get_or_insert_default().deployments = vec![last];
            set(lookup, &mut stack, Some((name.as_str(), "it broke")));
            let expected = (why.to_owned(), format!("run {name} in workspace dev did not succeed: it broke"));
            assert_eq!(ready(&stack), expected, "{operation} {phase:?}");
            set(lookup, &mut stack, None);
            assert_eq!(ready(&stack), expected, "{operation} {phase:?} later");
            runs.delete("shop", &name, &Default::default()).await.unwrap();
            runs.update_with("shop", &name, |run: &mut Run| run.finalizers_mut().clear()).await.unwrap();
            assert!(runs.get_opt("shop", &name).await.unwrap().is_none());
            set(lookup, &mut stack, None);
            assert_eq!(ready(&stack), expected, "{operation} {phase:?} without the run");
        }
    }
}
