//! The statuses of the objects of an environment. Each is written where it differs.

use std::collections::BTreeMap;

use stoa_controller::{
    blocking::on_own_thread, conditions::set_condition, events::Kind as EventKind, object::Kind, queue,
};
use stoa_fleet::{Fleet, Severity, render::Tree};
use stoa_machinery::ApiError;
use stoa_runs::Services;
use stoa_types::{
    common::{Condition, condition},
    reason,
    scheduler::{
        BaseRepo, BrokenAssignment, Environment, GitOpsRepo, GitOpsRepoStatus, InvalidResult, ReplacedValues,
        SchedulingPolicy, Workload, WorkloadRegistration,
    },
};

use crate::fleet::{Failed, Known, ProposalState, Reading, Served, SourceKey};

/// The most broken assignments that a status has, and the most characters of a message.
const BROKEN: usize = 1000;
const MESSAGE: usize = 2000;
/// The most bytes of the messages of one list in a status. Etcd stores 1.5 MiB in all.
const MESSAGES: usize = 256 << 10;
/// How many problems a message names.
const NAMED: usize = 5;

/// Changes the status of an object where that makes a difference.
pub(super) async fn write<K: Kind + PartialEq>(
    services: &Services,
    (namespace, name): (&str, &str),
    change: impl Fn(&mut K) + Send + Sync,
) -> Result<(), ApiError> {
    let api = services.lookup.api::<K>()?;
    let Some(current) = api.get_opt(namespace, name).await? else { return Ok(()) };
    let mut changed = current.clone();
    change(&mut changed);
    if changed == current {
        return Ok(());
    }
    queue::unless_gone(api.update_status_with(namespace, name, |object: &mut K| change(object)).await).map(drop)
}

/// A message of several problems.
fn listed(problems: &[String]) -> String {
    let shown = problems.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
    let message = match problems.len() {
        0..=NAMED => shown,
        count => format!("{count} problems; the first: {shown}"),
    };
    short(message)
}

pub(super) fn short(message: String) -> String {
    if message.chars().count() <= MESSAGE { message } else { message.chars().take(MESSAGE).chain(['…']).collect() }
}

/// The state of a source, as conditions.
struct SourceState {
    commit: String,
    failed: Option<Failed>,
    problems: Vec<String>,
}

impl SourceState {
    fn of(reading: &Reading, key: &SourceKey, served: &Served) -> Self {
        let counts = |problem: &&stoa_fleet::Problem| problem.severity > Severity::Warning && key.has(problem);
        let mut problems: Vec<String> = reading.plane.problems.iter().filter(counts).map(ToString::to_string).collect();
        // An object that the server rejects names its file.
        if *key == SourceKey::Environment {
            problems.extend(served.problems.iter().cloned());
        }
        let commit = reading.folders.get(key).map(|folder| folder.commit.clone()).unwrap_or_default();
        Self { commit, failed: reading.failed.get(key).cloned(), problems }
    }

    fn set(&self, commit: &mut String, conditions: &mut Vec<Condition>, generation: Option<i64>) {
        if !self.commit.is_empty() {
            commit.clone_from(&self.commit);
        }
        match &self.failed {
            Some(Failed { reason, message }) => {
                let kept = if self.commit.is_empty() { "" } else { "; the last files stay, and nothing is deleted" };
                let message = short(format!("{message}{kept}"));
                set_condition(conditions, reason::READY, false, reason, message, generation);
            }
            None => {
                let message = "the repository was read";
                set_condition(conditions, reason::READY, true, reason::OBJECTS_SERVED, message, generation);
            }
        }
        let (are_valid, why, message) = match self.problems.is_empty() {
            true => (true, reason::AVAILABLE, "all files are valid".to_owned()),
            false => (false, reason::INVALID_FILES, listed(&self.problems)),
        };
        set_condition(conditions, reason::FILES_VALID, are_valid, why, message, generation);
    }
}

/// Writes the state of every repository into the object that names it.
pub(super) async fn of_sources(
    services: &Services,
    namespace: &str,
    reading: &Reading,
    served: &Served,
) -> Result<(), ApiError> {
    if let Some(environment) = &reading.environment {
        let state = SourceState::of(reading, &SourceKey::Environment, served);
        if let Some(Failed { reason, message }) = &state.failed {
            services.recorder.record(environment, EventKind::Warning, reason, message);
        }
        let key = queue::key_of(environment);
        write(services, (&key.0, &key.1), |object: &mut Environment| {
            let generation = object.metadata.generation;
            let status = object.status.get_or_insert_default();
            state.set(&mut status.commit, &mut status.conditions, generation);
        })
        .await?;
    }
    for name in reading.plane.base_repos.keys() {
        let state = SourceState::of(reading, &SourceKey::Base(name.clone()), served);
        write(services, (namespace, name), |object: &mut BaseRepo| {
            let generation = object.metadata.generation;
            let status = object.status.get_or_insert_default();
            state.set(&mut status.commit, &mut status.conditions, generation);
        })
        .await?;
    }
    for name in reading.plane.registrations.keys() {
        let state = SourceState::of(reading, &SourceKey::Registration(name.clone()), served);
        write(services, (namespace, name), |object: &mut WorkloadRegistration| {
            let generation = object.metadata.generation;
            let status = object.status.get_or_insert_default();
            state.set(&mut status.commit, &mut status.conditions, generation);
        })
        .await?;
    }
    Ok(())
}

/// Writes the number of assignments into every policy.
pub(super) async fn of_policies(services: &Services, namespace: &str, fleet: &Fleet) -> Result<(), ApiError> {
    let counted = fleet.clone();
    let counts = on_own_thread(move || {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for assignment in counted.schedule().assignments() {
            for policy in assignment.policies() {
                *counts.entry(policy).or_default() += 1;
            }
        }
        counts
    });
    let counts = counts.await;
    for (name, policy) in &fleet.inputs().policies {
        let count = counts.get(name).copied().unwrap_or_default();
        let (is_ready, why, message) = match fleet.inputs().is_undecided(policy) {
            true => (false, reason::UNDECIDED, "the external scheduler has not decided; no file is deleted".to_owned()),
            false => (true, reason::ASSIGNMENTS_CREATED, format!("{count} assignments follow from the policy")),
        };
        write(services, (namespace, name), |object: &mut SchedulingPolicy| {
            let generation = object.metadata.generation;
            let conditions = &mut object.status.get_or_insert_default().conditions;
            set_condition(conditions, reason::READY, is_ready, why, &*message, generation);
        })
        .await?;
    }
    Ok(())
}

/// Writes the number of deployment targets into every Workload.
pub(super) async fn of_workloads(services: &Services, namespace: &str, reading: &Reading) -> Result<(), ApiError> {
    for (name, workload) in &reading.plane.workloads {
        let targets = workload.spec.deployment_targets.iter();
        let count = targets.filter(|target| target.spec.environment == namespace).count();
        let message = format!("{count} deployment targets are for this environment");
        write(services, (namespace, name), |object: &mut Workload| {
            let generation = object.metadata.generation;
            let conditions = &mut object.status.get_or_insert_default().conditions;
            set_condition(conditions, reason::READY, true, reason::DEPLOYMENT_TARGETS_CREATED, &*message, generation);
        })
        .await?;
    }
    Ok(())
}

fn broken(tree: &Tree) -> Vec<BrokenAssignment> {
    let all = tree
        .broken
        .values()
        .map(|broken| BrokenAssignment { name: broken.assignment.clone(), message: listed(&broken.problems) });
    let mut all: Vec<_> = all.collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.truncate(BROKEN);
    all
}

/// Shortens the messages of a list to the bytes that a status may have.
fn fitted<T>(mut all: Vec<T>, message: impl Fn(&mut T) -> &mut String) -> Vec<T> {
    let size: usize = all.iter_mut().map(|it| message(it).len()).sum();
    if size > MESSAGES {
        let most = MESSAGES / all.len();
        for it in &mut all {
            let text = message(it);
            if text.len() > most {
                text.truncate(text.floor_char_boundary(most));
                text.push('…');
            }
        }
    }
    all
}

/// The assignments that a status names.
#[derive(Debug)]
pub(super) struct Named {
    broken: Vec<BrokenAssignment>,
    replaced: Vec<ReplacedValues>,
    invalid: Vec<InvalidResult>,
}

impl Named {
    pub(super) fn of(tree: &Tree, known: &Known) -> Self {
        let replaced = known.replaced.iter().map(|it| {
            let overrides: Vec<String> = it.overrides.iter().map(ToString::to_string).collect();
            ReplacedValues { name: it.assignment.clone(), message: listed(&overrides) }
        });
        let invalid = known.invalid.by_assignment(&known.fleet).into_iter();
        let invalid = invalid.map(|(name, problems)| InvalidResult { name, message: listed(&problems) });
        Self {
            broken: fitted(broken(tree), |it| &mut it.message),
            replaced: fitted(replaced.collect(), |it| &mut it.message),
            invalid: fitted(invalid.collect(), |it| &mut it.message),
        }
    }

    fn write(&self, status: &mut GitOpsRepoStatus, generation: Option<i64>) {
        status.broken_assignments.clone_from(&self.broken);
        status.replaced_values.clone_from(&self.replaced);
        status.invalid_results.clone_from(&self.invalid);
        let first = self.replaced.first().map(|it| (it.name.as_str(), it.message.as_str(), self.replaced.len()));
        let none = "no general ConfigMap replaces a value of a specific one";
        warn(status, reason::VALUES_REPLACED, first, none, generation);
        let first = self.invalid.first().map(|it| (it.name.as_str(), it.message.as_str(), self.invalid.len()));
        warn(status, reason::RESULTS_INVALID, first, "no result violates a known schema", generation);
    }
}

/// Sets a condition that warns about assignments: `first` has the name and the message of the first, and their number.
fn warn(
    status: &mut GitOpsRepoStatus,
    kind: &'static str,
    first: Option<(&str, &str, usize)>,
    none: &str,
    generation: Option<i64>,
) {
    let (is_true, why, message) = match first {
        None => (false, reason::AVAILABLE, none.to_owned()),
        Some((name, message, count)) => {
            let more = if count == 1 { String::new() } else { format!(", and {} more", count - 1) };
            (true, kind, short(format!("assignment {name}{more}: {message}")))
        }
    };
    set_condition(&mut status.conditions, kind, is_true, why, message, generation);
}

/// Writes why no files are rendered.
pub(super) async fn of_unrendered(services: &Services, repo: &GitOpsRepo, error: &ApiError) -> Result<(), ApiError> {
    let key = queue::key_of(repo);
    let message = short(error.message().to_owned());
    write(services, (&key.0, &key.1), |object: &mut GitOpsRepo| {
        let generation = object.metadata.generation;
        let conditions = &mut object.status.get_or_insert_default().conditions;
        set_condition(conditions, reason::READY, false, reason::RENDER_FAILED, &*message, generation);
    })
    .await
}

/// Writes why the files cannot be compared or proposed.
pub(super) async fn of_refused(
    services: &Services,
    repo: &GitOpsRepo,
    named: &Named,
    (why, message): (&'static str, String),
) -> Result<(), ApiError> {
    services.recorder.record(repo, EventKind::Warning, why, &message);
    let key = queue::key_of(repo);
    let message = short(message);
    write(services, (&key.0, &key.1), |object: &mut GitOpsRepo| {
        let generation = object.metadata.generation;
        let status = object.status.get_or_insert_default();
        named.write(status, generation);
        set_condition(&mut status.conditions, reason::READY, false, why, &*message, generation);
    })
    .await
}

/// Writes a comparison and its pull request.
pub(super) async fn of_proposed(
    services: &Services,
    repo: &GitOpsRepo,
    named: &Named,
    state: &ProposalState,
) -> Result<(), ApiError> {
    let key = queue::key_of(repo);
    if let Some((why, message)) = &state.blocked {
        services.recorder.record(repo, EventKind::Warning, why, message);
    }
    write(services, (&key.0, &key.1), |object: &mut GitOpsRepo| {
        let generation = object.metadata.generation;
        let status = object.status.get_or_insert_default();
        let drifted = drifted(status, state);
        status.base_commit.clone_from(&state.base_commit);
        status.repo_content_hash.clone_from(&state.digest);
        if state.changed.is_empty() {
            status.promoted_commit.clone_from(&state.promoted);
        }
        status.changed_files = i64::try_from(state.changed.len()).ok();
        status.wave.clone_from(&state.wave);
        status.pull_request.clone_from(&state.pull);
        named.write(status, generation);
        let conditions = &mut status.conditions;
        let (is_drifted, why, message) = match drifted {
            Some(message) => (true, reason::BRANCH_DRIFTED, message),
            None => (false, reason::IN_SYNC, "no commit of others changes the rendered files".to_owned()),
        };
        set_condition(conditions, reason::BRANCH_DRIFTED, is_drifted, why, message, generation);
        let waits = !state.changed.is_empty() && state.pull.is_none();
        let message = if waits { "rendered files wait for a pull request" } else { "no rendered file waits" };
        set_condition(conditions, reason::READY_TO_PR, waits, reason::PROGRESSING, message, generation);
        let (is_ready, why, message) = match (&state.blocked, &state.pull) {
            (Some((why, message)), _) => (false, *why, short(message.clone())),
            (None, Some(pull)) => {
                let files = state.changed.len();
                (true, reason::PR_CREATED, format!("pull request {} proposes {files} files", pull.number))
            }
            (None, None) => (true, reason::IN_SYNC, "the branch has the rendered files".to_owned()),
        };
        set_condition(conditions, reason::READY, is_ready, why, message, generation);
    })
    .await
}

/// The files that others changed in the branch: it had the same rendered files before, and has them no more.
fn drifted(before: &GitOpsRepoStatus, state: &ProposalState) -> Option<String> {
    let has_same = before.repo_content_hash == state.digest;
    let was_in_sync = before.changed_files == Some(0);
    let had_drifted = condition(&before.conditions, reason::BRANCH_DRIFTED).is_some_and(|it| it.status == "True");
    if state.changed.is_empty() || !has_same || !(was_in_sync || had_drifted) {
        return None;
    }
    let shown = state.changed.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let pull = state.pull.as_ref().map(|pull| format!("; pull request {} restores them", pull.number));
    Some(short(format!(
        "a commit of others changed {} rendered files ({shown}){}",
        state.changed.len(),
        pull.unwrap_or_default()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_others_make_a_branch_drift() {
        let state = |digest: &str, changed: &[&str]| ProposalState {
            digest: digest.to_owned(),
            changed: changed.iter().map(|path| (*path).to_owned()).collect(),
            ..ProposalState::default()
        };
        let status = |digest: &str, changed: i64| GitOpsRepoStatus {
            repo_content_hash: digest.to_owned(),
            changed_files: Some(changed),
            ..GitOpsRepoStatus::default()
        };
        assert_eq!(drifted(&status("a", 0), &state("a", &[])), None, "nothing differs");
        assert_eq!(drifted(&status("a", 0), &state("b", &["x"])), None, "the fleet changed");
        assert_eq!(drifted(&status("a", 2), &state("a", &["x"])), None, "the proposal is not merged yet");
        let message = drifted(&status("a", 0), &state("a", &["x"])).unwrap();
        assert_eq!(message, "a commit of others changed 1 rendered files (x)");
    }

    #[test]
    fn messages_of_a_list_fit_into_a_status() {
        let named = |count: usize, message: &str| {
            let one = || InvalidResult { name: "web".to_owned(), message: message.to_owned() };
            fitted(std::iter::repeat_with(one).take(count).collect(), |it| &mut it.message)
        };
        assert_eq!(named(2, "é")[1].message, "é");
        let many = named(1000, &"é".repeat(1000));
        assert_eq!(many.len(), 1000);
        assert!(many.iter().all(|it| it.message.starts_with('é') && it.message.ends_with('…')));
        assert!(many.iter().map(|it| it.message.len()).sum::<usize>() <= MESSAGES + 1000 * '…'.len_utf8());
    }

    #[test]
    fn long_messages_name_the_first_problems() {
        let problems: Vec<String> = (0..7).map(|at| format!("p{at}")).collect();
        assert_eq!(listed(&problems), "7 problems; the first: p0; p1; p2; p3; p4");
        assert_eq!(listed(&problems[..2]), "p0; p1");
    }
}
