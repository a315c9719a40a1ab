//! Promotion: the permission to start one, the validation of its environments, and who approves and checks them.
//!
//! Elsewhere: the controller `promotions` carries it out.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError, Object, RequestContext, ResourceDefinition, content,
    definition::{Cell, Column, Part},
    selector::LabelSelector,
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{
    delivery::{Promotion, PromotionCheck, PromotionChecks, PromotionReports, PromotionStep},
    hub::Reconciler,
    scheduler::Environment,
};

use crate::{
    errors,
    kind::Kind,
    lookup::require,
    rights::{APPROVED, DECIDE, DEVELOPED, OWNED, READ, READERS, Right, Role, right},
    validation,
};

/// The subresource through which environments are approved.
const APPROVAL: &str = "approval";
/// The subresource through which programs report checks.
const CHECKS: &str = "checks";

/// The most waves of an environment, and the most checks before it, and after it.
const MOST_WAVES: usize = 20;
const MOST_CHECKS: usize = 10;
/// The most characters of the message of a check.
const LONGEST_MESSAGE: usize = 1024;

/// The longest time between two environments: a year.
const LONGEST_SOAK: Duration = Duration::from_secs(366 * 24 * 3600);

/// The verb on an Environment that a promotion needs.
const PROMOTE: &str = "promote";

/// The kind Promotion.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, _| builder.register(definition, PromotionStrategy),
    rights: &[right(READERS, &["", "status"], READ), DEVELOPED, OWNED, APPROVED, CHECKED],
    ..Kind::of::<Promotion>()
};

/// Who reports checks. A program gets a role with this alone.
const CHECKED: Right = right(&[Role::Approver, Role::Owner], &[CHECKS], DECIDE);

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Promotion>()
        .columns(&[
            Column::new("Commit", Cell::Path(&["spec", "commit"]), "The commit."),
            Column::new("Phase", Cell::Path(&["status", "phase"]), "The phase."),
            Column::new("Environment", Cell::Compute(current), "The environment in progress, and its phase."),
            Column::new("Reports", Cell::Compute(reports), "The reports of success, of all Reconcilers."),
            Column::age(),
            Column::new("Message", Cell::Compute(message), "The cause of a wait or a failure.").wide(),
        ])
        .part(Part { name: APPROVAL, path: &["status", "approvals"] })
        .part(Part { name: CHECKS, path: &["status", "checks"] })
}

/// The first environment that has not ended.
fn open(object: &Object) -> Option<&Value> {
    let all = object.get_path(&["status", "environments"])?.as_array()?;
    all.iter().find(|step| !matches!(step["phase"].as_str(), Some("Promoted" | "RolledBack" | "Pending")))
}

fn current(object: &Object) -> Value {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    open(object).map_or(Value::Null, |step| format!("{}: {}", text(&step["environment"]), text(&step["phase"])).into())
}

/// The reports of the environment in progress.
fn reports(object: &Object) -> Value {
    let Some(counts) = open(object).map(|step| &step["reports"]).filter(|counts| counts.is_object()) else {
        return Value::Null;
    };
    let number = |field: &str| counts[field].as_i64().unwrap_or_default();
    format!("{}/{}", number("succeeded"), number("total")).into()
}

fn message(object: &Object) -> Value {
    open(object).map_or(Value::Null, |step| step["message"].clone())
}

#[derive(Debug)]
struct PromotionStrategy;

#[async_trait]
impl Strategy for PromotionStrategy {
    type Object = Promotion;

    fn prepare_for_part(&self, context: &RequestContext, part: &str, new: &mut Promotion, old: &Promotion) {
        if part == CHECKS {
            return merge_checks(&context.user.name, new, old);
        }
        let before = old.status.as_ref().map_or(&[][..], |status| status.approvals.as_slice());
        for approval in new.status.iter_mut().flat_map(|status| &mut status.approvals) {
            let same =
                before.iter().find(|it| it.environment == approval.environment && it.comment == approval.comment);
            approval.approver = same.map_or_else(|| context.user.name.clone(), |it| it.approver.clone());
        }
    }

    fn validate(&self, object: &Promotion) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object.spec;
        let is_whole = matches!(spec.commit.len(), 40 | 64) && spec.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_whole {
            let detail = "must be the whole id of a commit, in hexadecimal digits";
            errors.push(FieldError::invalid("spec.commit", &spec.commit, detail));
        }
        let mut names = BTreeSet::new();
        for (i, step) in spec.environments.iter().enumerate() {
            let path = format!("spec.environments[{i}]");
            if step.environment.is_empty() {
                errors.push(FieldError::required(format!("{path}.environment"), "must name an Environment"));
            } else if !names.insert(&step.environment) {
                errors.push(FieldError::duplicate(format!("{path}.environment"), &step.environment));
            }
            gates(step, &path, &mut errors);
        }
        errors
    }

    fn validate_create(&self, _: &RequestContext, object: &Promotion) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (i, step) in object.spec.environments.iter().enumerate() {
            let path = format!("spec.environments[{i}]");
            let waves = step.waves.iter().enumerate();
            let waves = waves.map(|(at, wave)| (format!("{path}.waves[{at}].soak"), &wave.soak));
            let timeout = step.reports.iter().map(|reports| (format!("{path}.reports.timeout"), &reports.timeout));
            let all = waves.chain(timeout).chain([(format!("{path}.soak"), &step.soak)]);
            for (path, time) in all.filter_map(|(path, time)| Some((path, time.as_ref()?))) {
                validation::duration(&path, time, Duration::ZERO..=LONGEST_SOAK, &mut errors);
            }
        }
        errors
    }

    fn validate_update(&self, new: &Promotion, old: &Promotion) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let (is, was) = (&new.spec, &old.spec);
        for (path, changes) in [
            ("spec.commit", is.commit != was.commit),
            ("spec.baseRepo", is.base_repo != was.base_repo),
            ("spec.environments", is.environments != was.environments),
        ] {
            if changes {
                errors.push(FieldError::forbidden(path, "field is immutable; create another Promotion"));
            }
        }
        for (path, ends) in
            [("spec.cancel", was.cancel && !is.cancel), ("spec.rollBack", was.roll_back && !is.roll_back)]
        {
            if ends {
                errors.push(FieldError::forbidden(path, "it has begun; create another Promotion"));
            }
        }
        errors
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Promotion>) -> Result<(), ApiError> {
        if context.is_internal() {
            return Ok(());
        }
        let (new, needs) = match change {
            Admission::Create(new) => (new, true),
            Admission::Update { new, old, subresource: "" } => (new, new.spec != old.spec),
            Admission::Update { new, subresource: APPROVAL, .. } => {
                let steps: BTreeSet<&str> =
                    new.spec.environments.iter().map(|step| step.environment.as_str()).collect();
                let approvals = new.status.iter().flat_map(|status| &status.approvals);
                let mut unknown = approvals.filter(|approval| !steps.contains(approval.environment.as_str()));
                return match unknown.next() {
                    None => Ok(()),
                    Some(approval) => {
                        let detail = "is no environment of the promotion";
                        let error = FieldError::invalid("status.approvals", &approval.environment, detail);
                        Err(errors::invalid::<Promotion>(&new.name_any(), &[error]))
                    }
                };
            }
            Admission::Update { new, subresource: CHECKS, .. } => return unknown_check(new),
            // Approvals have a subresource of their own, which knows the approver.
            Admission::Update { subresource: "status", new, .. } => {
                return validation::part_written_by_server::<Promotion>(context, &new.name_any(), "status is");
            }
            Admission::Update { .. } | Admission::Delete(_) => return Ok(()),
        };
        if needs {
            let namespace = new.namespace().unwrap_or_default();
            for step in &new.spec.environments {
                require::<Environment>(context, PROMOTE, "", &namespace, &step.environment).await?;
                // The status has what they report.
                if let Some(PromotionReports { namespace: of, .. }) = &step.reports {
                    let of = if of.is_empty() { &namespace } else { of };
                    require::<Reconciler>(context, "list", "", of, "").await?;
                }
            }
        }
        Ok(())
    }
}

/// Finds errors in the waves, reports and checks of an environment.
fn gates(step: &PromotionStep, path: &str, errors: &mut Vec<FieldError>) {
    if step.waves.len() > MOST_WAVES {
        let detail = format!("must have at most {MOST_WAVES} items");
        errors.push(FieldError::invalid(format!("{path}.waves"), step.waves.len(), detail));
    }
    for (at, wave) in step.waves.iter().enumerate() {
        let path = format!("{path}.waves[{at}].clusterTypeSelector");
        errors.extend(LabelSelector::validate(&path, &wave.cluster_type_selector));
    }
    if let Some(PromotionReports { selector, min_success_percent, .. }) = &step.reports {
        if let Some(selector) = selector {
            errors.extend(LabelSelector::validate(&format!("{path}.reports.selector"), selector));
        }
        if let Some(percent) = min_success_percent.filter(|percent| !(1..=100).contains(percent)) {
            let path = format!("{path}.reports.minSuccessPercent");
            errors.push(FieldError::invalid(path, percent, "must be between 1 and 100"));
        }
    }
    let Some(PromotionChecks { before, after }) = &step.checks else { return };
    let mut names = BTreeSet::new();
    for (list, checks) in [("before", before), ("after", after)] {
        let path = format!("{path}.checks.{list}");
        if checks.len() > MOST_CHECKS {
            let detail = format!("must have at most {MOST_CHECKS} items");
            errors.push(FieldError::invalid(&path, checks.len(), detail));
        }
        for (at, name) in checks.iter().enumerate() {
            let path = format!("{path}[{at}]");
            errors.extend(content::dns_label(name).iter().map(|why| FieldError::invalid(&path, name, why)));
            if !names.insert(name) {
                errors.push(FieldError::duplicate(path, name));
            }
        }
    }
}

/// Keeps the results of checks that a write does not have: each program writes its own. A new result has its reporter.
fn merge_checks(reporter: &str, new: &mut Promotion, old: &Promotion) {
    let before = old.status.as_ref().map_or(&[][..], |status| status.checks.as_slice());
    let checks = &mut new.status.get_or_insert_default().checks;
    for check in checks.iter_mut() {
        let is_same = |it: &&PromotionCheck| {
            let PromotionCheck { environment, name, result, message, .. } = it;
            (environment, name, result, message) == (&check.environment, &check.name, &check.result, &check.message)
        };
        check.reporter = before.iter().find(is_same).map_or(reporter, |it| it.reporter.as_str()).to_owned();
    }
    let has = |it: &PromotionCheck, of: &PromotionCheck| (&it.environment, &it.name) == (&of.environment, &of.name);
    let mut all: Vec<PromotionCheck> =
        before.iter().filter(|of| !checks.iter().any(|it| has(it, of))).cloned().collect();
    all.append(checks);
    *checks = all;
}

/// 422 for the result of a check that no environment has, or for two results of one.
fn unknown_check(promotion: &Promotion) -> Result<(), ApiError> {
    let known: BTreeSet<(&str, &str)> = promotion
        .spec
        .environments
        .iter()
        .flat_map(|step| {
            let checks = step.checks.iter().flat_map(|checks| checks.before.iter().chain(&checks.after));
            checks.map(move |check| (step.environment.as_str(), check.as_str()))
        })
        .collect();
    let mut found = BTreeSet::new();
    let mut errors = Vec::new();
    let results = promotion.status.iter().flat_map(|status| &status.checks);
    for PromotionCheck { environment, name, message, .. } in results {
        if !known.contains(&(environment.as_str(), name.as_str())) {
            let detail = format!("environment {environment:?} of the promotion has no such check");
            errors.push(FieldError::invalid("status.checks", name, detail));
        } else if !found.insert((environment, name)) {
            errors.push(FieldError::duplicate("status.checks", name));
        } else if message.chars().count() > LONGEST_MESSAGE {
            let detail = format!("the message must have at most {LONGEST_MESSAGE} characters");
            errors.push(FieldError::invalid("status.checks", name, detail));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(errors::invalid::<Promotion>(&promotion.name_any(), &errors)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_types::{
        DurationString,
        delivery::{CheckResult, PromotionSpec, PromotionStatus},
    };

    use super::*;

    fn promotion(commit: &str, environments: &[&str]) -> Promotion {
        let environments = environments
            .iter()
            .map(|name| PromotionStep { environment: (*name).to_owned(), ..PromotionStep::default() })
            .collect();
        let spec = PromotionSpec { commit: commit.to_owned(), environments, ..PromotionSpec::default() };
        Promotion { spec, ..Promotion::default() }
    }

    #[test]
    fn each_environment_is_there_once() {
        let fields = |object: &Promotion| -> Vec<String> {
            PromotionStrategy.validate(object).into_iter().map(|error| error.field).collect()
        };
        let commit = "0123456789012345678901234567890123456789";
        assert_eq!(fields(&promotion(commit, &["dev", "prod"])), [] as [&str; 0]);
        assert_eq!(
            fields(&promotion(commit, &["dev", "dev", ""])),
            ["spec.environments[1].environment", "spec.environments[2].environment"]
        );
        assert_eq!(fields(&promotion("main", &["dev"])), ["spec.commit"]);
    }

    #[test]
    fn time_between_environments_is_a_duration() {
        let mut soaking = promotion("0123456789012345678901234567890123456789", &["dev", "prod"]);
        for (soak, expected) in [("24h", None), ("a day", Some("spec.environments[0].soak"))] {
            soaking.spec.environments[0].soak = Some(DurationString(soak.to_owned()));
            let errors = PromotionStrategy.validate_create(&RequestContext::internal("test"), &soaking);
            assert_eq!(errors.first().map(|error| error.field.as_str()), expected, "{soak}");
        }
    }

    #[test]
    fn gates_of_an_environment_are_validated() {
        let fields = |step: Value| -> Vec<String> {
            let step: PromotionStep = serde_json::from_value(step).unwrap();
            let mut errors = Vec::new();
            gates(&step, "step", &mut errors);
            errors.into_iter().map(|error| error.field).collect()
        };
        let selector = json!({"matchLabels": {"ring": "1"}});
        let valid = json!({
            "environment": "prod",
            "waves": [{"clusterTypeSelector": selector, "soak": "1h"}],
            "reports": {"namespace": "drones", "selector": selector, "minSuccessPercent": 95, "timeout": "1h"},
            "checks": {"before": ["change-freeze"], "after": ["smoke-test"]},
        });
        assert_eq!(fields(valid), [] as [&str; 0]);
        let invalid = json!({
            "environment": "prod",
            "waves": [{"clusterTypeSelector": {"matchExpressions": [{"key": "ring", "operator": "In"}]}}],
            "reports": {"minSuccessPercent": 0},
            "checks": {"before": ["Freeze"], "after": ["smoke", "smoke"]},
        });
        let found = fields(invalid);
        assert!(found[0].starts_with("step.waves[0].clusterTypeSelector"), "{found:?}");
        assert_eq!(found[1..], ["step.reports.minSuccessPercent", "step.checks.before[0]", "step.checks.after[1]"]);
    }

    #[test]
    fn result_of_a_check_keeps_those_of_others() {
        let check = |name: &str, result: CheckResult, reporter: &str| PromotionCheck {
            environment: "dev".to_owned(),
            name: name.to_owned(),
            result,
            reporter: reporter.to_owned(),
            ..PromotionCheck::default()
        };
        let with = |checks: Vec<PromotionCheck>| {
            let mut promotion = promotion("a", &["dev"]);
            promotion.status = Some(PromotionStatus { checks, ..PromotionStatus::default() });
            let after = vec!["smoke".to_owned(), "load".to_owned()];
            promotion.spec.environments[0].checks = Some(PromotionChecks { before: Vec::new(), after });
            promotion
        };
        let old = with(vec![check("smoke", CheckResult::Passed, "ann")]);
        let mut new = with(vec![check("load", CheckResult::Failed, "eve")]);
        merge_checks("bob", &mut new, &old);
        let expected = [check("smoke", CheckResult::Passed, "ann"), check("load", CheckResult::Failed, "bob")];
        assert_eq!(new.status.as_ref().unwrap().checks, expected);
        assert!(unknown_check(&new).is_ok());
        // The same results keep their reporters, and another result has its own.
        let mut same = new.clone();
        merge_checks("eve", &mut same, &new);
        assert_eq!(same, new);
        let mut other = with(vec![check("load", CheckResult::Passed, "")]);
        merge_checks("eve", &mut other, &new);
        assert_eq!(other.status.as_ref().unwrap().checks[1], check("load", CheckResult::Passed, "eve"));
        let unknown = with(vec![check("other", CheckResult::Passed, "")]);
        assert_eq!(unknown_check(&unknown).unwrap_err().code(), 422);
    }

    #[test]
    fn only_pause_cancel_and_rollback_change() {
        let old = promotion("a", &["dev"]);
        let mut new = old.clone();
        (new.spec.paused, new.spec.cancel) = (true, true);
        assert!(PromotionStrategy.validate_update(&new, &old).is_empty());
        assert_eq!(PromotionStrategy.validate_update(&old, &new)[0].field, "spec.cancel");
        let other = promotion("b", &["dev"]);
        assert_eq!(PromotionStrategy.validate_update(&other, &old)[0].field, "spec.commit");
    }
}
