//! Validation of a Workflow's spec by itself.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use stoa_engine::{ResourceId, graph::Graph};
use stoa_machinery::{selector::LabelSelector, status::FieldError};
use stoa_types::delivery::{HealthGate, Operation, RunStep, Step, Wave, When, WorkflowSpec, WorkflowTemplate};

use super::{hook, previewing, run_spec, stack_of};
use crate::{run, validation, values};

/// So many steps may a workflow have.
const MOST_STEPS: usize = 100;
/// So many waves may a step have.
const MOST_WAVES: usize = 100;
/// So many runs of a step may be under way at once.
const MOST_PARALLEL: i64 = 100;
/// So many bytes may the parameters of a template have, with their names.
const MOST_PARAMETERS: usize = 64 << 10;
/// What a name is that is no RFC 1123 label.
pub(super) const NO_LABEL: &str =
    "must be at most 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit";
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Finds what is wrong with a spec.
pub(super) fn spec(spec: &WorkflowSpec, errors: &mut Vec<FieldError>) {
    match &spec.template {
        None => steps(spec, errors),
        Some(template) => self::template(spec, template, errors),
    }
    if let Some(timeout) = &spec.timeout {
        validation::duration("spec.timeout", timeout, Duration::from_secs(1)..=90 * DAY, errors);
    }
    if let Some(seconds) = spec.ttl_seconds_after_finished.filter(|s| *s < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.ttlSecondsAfterFinished", seconds, detail));
    }
}

/// Finds what nothing would come of, in a spec that is new: an earlier version took it.
pub(super) fn new(spec: &WorkflowSpec) -> Vec<FieldError> {
    let steps = spec.steps.iter().enumerate().filter_map(|(i, step)| Some((i, step.run.as_ref()?)));
    let unused = steps.filter(|(_, run)| !run.parameters.is_empty() && !super::deploys(run) && run.plan_of.is_none());
    let mut errors: Vec<FieldError> = unused
        .map(|(i, _)| FieldError::forbidden(format!("spec.steps[{i}].run.parameters"), run::RENDERS_NOTHING))
        .collect();
    for (i, step) in spec.steps.iter().enumerate() {
        let names = step.run.iter().flat_map(|run| run.parameters.keys());
        errors.extend(values::parameter_names(&format!("spec.steps[{i}].run.parameters"), names));
    }
    errors
}

fn template(spec: &WorkflowSpec, template: &WorkflowTemplate, errors: &mut Vec<FieldError>) {
    if !spec.steps.is_empty() {
        errors.push(FieldError::forbidden("spec.steps", "may not be set together with template"));
    }
    for (field, value) in [("project", &template.project), ("path", &template.path)] {
        if value.is_empty() {
            errors.push(FieldError::required(format!("spec.template.{field}"), ""));
        }
    }
    validation::repository_path("spec.template.path", &template.path, errors);
    hook::validate(spec, errors);
    let size: usize = template.parameters.iter().map(|(name, value)| name.len() + value.len()).sum();
    if size > MOST_PARAMETERS {
        let detail = format!("must have at most {MOST_PARAMETERS} bytes in all");
        errors.push(FieldError::invalid("spec.template.parameters", size, detail));
    }
}

fn steps(spec: &WorkflowSpec, errors: &mut Vec<FieldError>) {
    if spec.steps.is_empty() {
        errors.push(FieldError::required("spec.steps", "must have at least one step"));
    }
    if spec.steps.len() > MOST_STEPS {
        let detail = format!("must have at most {MOST_STEPS} items");
        errors.push(FieldError::invalid("spec.steps", spec.steps.len(), detail));
        return;
    }
    let names: HashSet<&str> = spec.steps.iter().map(|step| step.name.as_str()).collect();
    let mut seen = HashSet::new();
    let mut is_graph = true;
    for (i, step) in spec.steps.iter().enumerate() {
        let path = format!("spec.steps[{i}]");
        if !is_label(&step.name) {
            errors.push(FieldError::invalid(format!("{path}.name"), &step.name, NO_LABEL));
        }
        if !seen.insert(step.name.as_str()) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &step.name));
            is_graph = false;
        }
        let mut before = HashSet::new();
        for (j, name) in step.depends_on.iter().enumerate() {
            let at = format!("{path}.dependsOn[{j}]");
            if !names.contains(name.as_str()) {
                errors.push(FieldError::not_found(at, name));
            } else if !before.insert(name.as_str()) {
                errors.push(FieldError::duplicate(at, name));
            }
        }
        self::step(spec, step, &path, errors);
        if let Some(run) = &step.run {
            plan_of(spec, step, run, &format!("{path}.run"), errors);
        }
    }
    hook::validate(spec, errors);
    if is_graph {
        cycles(&spec.steps, errors);
    }
}

fn cycles(steps: &[Step], errors: &mut Vec<FieldError>) {
    let id = |name: &String| ResourceId(name.clone());
    let before: BTreeMap<ResourceId, BTreeSet<ResourceId>> =
        steps.iter().map(|step| (id(&step.name), step.depends_on.iter().map(id).collect())).collect();
    for cycle in Graph::new(&before).cycles() {
        let detail = "the steps form a cycle, where → means \"depends on\"";
        errors.push(FieldError::invalid("spec.steps", cycle.to_string(), detail));
    }
}

fn step(spec: &WorkflowSpec, step: &Step, path: &str, errors: &mut Vec<FieldError>) {
    match (&step.run, &step.approval) {
        (None, None) => errors.push(FieldError::required(path, "run or approval must be set")),
        (Some(_), Some(_)) => {
            errors.push(FieldError::forbidden(format!("{path}.approval"), "may not be set together with run"));
        }
        (Some(_), None) | (None, Some(_)) => {}
    }
    if step.when != When::Success && step.depends_on.is_empty() {
        errors.push(FieldError::forbidden(format!("{path}.when"), "may only be set together with dependsOn"));
    }
    if let Some(run) = &step.run {
        self::run(spec, run, &format!("{path}.run"), errors);
    }
}

fn run(spec: &WorkflowSpec, step: &RunStep, path: &str, errors: &mut Vec<FieldError>) {
    let at = |field: &str| format!("{path}.{field}");
    if step.operation == Operation::Import {
        let supported = ["Preview", "Apply", "Destroy", "Rollback", "Refresh"];
        errors.push(FieldError::not_supported(at("operation"), step.operation, &supported));
    } else {
        let mut of_run = run_spec(spec, step, "");
        // The workflow's version is for the steps that deploy.
        of_run.version.clone_from(&step.version);
        errors.extend(run::validate_spec(&of_run, path));
    }
    if step.version.is_some() && !super::deploys(step) && step.plan_of.is_none() {
        let detail = "this operation deploys no version";
        if !errors.iter().any(|error| error.field == at("version")) {
            errors.push(FieldError::forbidden(at("version"), detail));
        }
    }
    if !(1..=MOST_PARALLEL).contains(&step.max_parallel) {
        let detail = format!("must be from 1 to {MOST_PARALLEL}");
        errors.push(FieldError::invalid(at("maxParallel"), step.max_parallel, detail));
    }
    if step.max_failures < 0 {
        errors.push(FieldError::invalid(at("maxFailures"), step.max_failures, "must be greater than or equal to 0"));
    }
    if let Some(gate) = &step.health {
        self::gate(step, gate, &at("health"), errors);
    }
    let mut seen = HashSet::new();
    workspaces(&step.workspaces, path, &mut seen, errors);
    if !step.waves.is_empty() && !step.workspaces.is_empty() {
        errors.push(FieldError::forbidden(at("waves"), "may not be set together with workspaces"));
    }
    if step.waves.len() > MOST_WAVES {
        let detail = format!("must have at most {MOST_WAVES} items");
        errors.push(FieldError::invalid(at("waves"), step.waves.len(), detail));
        return;
    }
    for (i, wave) in step.waves.iter().enumerate() {
        self::wave(wave, &format!("{path}.waves[{i}]"), &mut seen, errors);
    }
    let is_of_one = step.waves.is_empty() && step.workspaces.len() <= 1;
    if step.release.is_some() && !is_of_one {
        errors.push(FieldError::forbidden(at("release"), "releases are numbered per workspace; name one workspace"));
    }
}

/// Finds what is wrong with the step whose plans another one carries out.
fn plan_of(spec: &WorkflowSpec, step: &Step, run: &RunStep, path: &str, errors: &mut Vec<FieldError>) {
    let Some(name) = &run.plan_of else { return };
    let at = |field: &str| format!("{path}.{field}");
    if run.operation != Operation::Apply {
        errors.push(FieldError::forbidden(at("planOf"), "may only be set for an Apply"));
        return;
    }
    for (field, is_set) in [("version", run.version.is_some()), ("parameters", !run.parameters.is_empty())] {
        if is_set {
            let detail = "may not be set together with planOf, whose Preview has it";
            errors.push(FieldError::forbidden(at(field), detail));
        }
    }
    let Some(preview) = previewing(spec, run) else {
        errors.push(FieldError::not_found(at("planOf"), name));
        return;
    };
    if preview.operation != Operation::Preview {
        errors.push(FieldError::invalid(at("planOf"), name, "must be a step that runs a Preview"));
        return;
    }
    if !comes_before(&spec.steps, name, step) {
        let detail = "must come before this step; name it in dependsOn, or have a step there depend on it";
        errors.push(FieldError::invalid(at("planOf"), name, detail));
    }
    let (stack, previewed) = (stack_of(spec, run), stack_of(spec, preview));
    if stack != previewed {
        let detail = format!("must be the stack of step {name}, {previewed:?}");
        errors.push(FieldError::invalid(at("stack"), stack, detail));
    }
    // The workspaces of selectors are known once a step begins.
    let is_selected = |of: &RunStep| of.waves.iter().any(|wave| wave.workspace_selector.is_some());
    if !is_selected(preview) {
        let planned: HashSet<&String> = listed(preview).collect();
        for workspace in listed(run).filter(|workspace| !planned.contains(workspace)) {
            let detail = format!("step {name} makes no plan in this workspace");
            errors.push(FieldError::invalid(at("workspaces"), workspace, detail));
        }
    }
}

/// The workspaces that a step lists, in its waves too.
fn listed(run: &RunStep) -> impl Iterator<Item = &String> {
    run.workspaces.iter().chain(run.waves.iter().flat_map(|wave| &wave.workspaces))
}

/// Whether a step of this name ends before another one begins.
fn comes_before(steps: &[Step], name: &str, step: &Step) -> bool {
    let mut seen = HashSet::new();
    let mut left: Vec<&String> = step.depends_on.iter().collect();
    while let Some(before) = left.pop() {
        if before == name {
            return true;
        }
        if seen.insert(before) {
            left.extend(steps.iter().filter(|step| step.name == *before).flat_map(|step| &step.depends_on));
        }
    }
    false
}

fn gate(step: &RunStep, gate: &HealthGate, path: &str, errors: &mut Vec<FieldError>) {
    if !matches!(step.operation, Operation::Apply | Operation::Rollback) {
        errors.push(FieldError::forbidden(path, "may only be set for an Apply or a Rollback"));
    }
    let before = errors.len();
    validation::duration(&format!("{path}.healthyFor"), &gate.healthy_for, Duration::ZERO..=DAY, errors);
    validation::duration(&format!("{path}.timeout"), &gate.timeout, Duration::from_secs(1)..=7 * DAY, errors);
    if errors.len() == before && gate.timeout.parse().ok() < gate.healthy_for.parse().ok() {
        let detail = "must be at least healthyFor, which it includes";
        errors.push(FieldError::invalid(format!("{path}.timeout"), &gate.timeout, detail));
    }
}

fn wave<'a>(wave: &'a Wave, path: &str, seen: &mut HashSet<&'a str>, errors: &mut Vec<FieldError>) {
    match (&wave.workspace_selector, wave.workspaces.is_empty()) {
        (None, true) => errors.push(FieldError::required(path, "workspaces or workspaceSelector must be set")),
        (Some(_), false) => errors.push(FieldError::forbidden(
            format!("{path}.workspaceSelector"),
            "may not be set together with workspaces",
        )),
        (Some(selector), true) => {
            errors.extend(LabelSelector::validate(&format!("{path}.workspaceSelector"), selector));
        }
        (None, false) => {}
    }
    workspaces(&wave.workspaces, path, seen, errors);
    if let Some(pause) = &wave.pause_after {
        validation::duration(&format!("{path}.pauseAfter"), pause, Duration::ZERO..=30 * DAY, errors);
    }
}

fn workspaces<'a>(names: &'a [String], path: &str, seen: &mut HashSet<&'a str>, errors: &mut Vec<FieldError>) {
    for (i, name) in names.iter().enumerate() {
        let at = format!("{path}.workspaces[{i}]");
        if name.is_empty() {
            errors.push(FieldError::required(at, ""));
        } else if !seen.insert(name) {
            errors.push(FieldError::duplicate(at, name));
        }
    }
}

/// As `k8s.io/apimachinery/pkg/util/validation` has it of an RFC 1123 label.
pub(super) fn is_label(name: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 63
        && is_end(bytes.first())
        && is_end(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}
