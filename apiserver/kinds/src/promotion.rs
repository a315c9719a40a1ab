//! Promotion: the permission to start one, and the validation of its environments.
//!
//! Elsewhere: the controller `promotions` carries it out.

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError, Object, RequestContext, ResourceDefinition,
    definition::{Cell, Column, Part},
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{delivery::Promotion, scheduler::Environment};

use crate::{
    errors,
    kind::Kind,
    lookup::require,
    rights::{APPROVED, DEVELOPED, OWNED, READ, READERS, right},
    validation,
};

/// The subresource through which environments are approved.
const APPROVAL: &str = "approval";

/// The longest time between two environments: a year.
const LONGEST_SOAK: Duration = Duration::from_secs(366 * 24 * 3600);

/// The verb on an Environment that a promotion needs.
const PROMOTE: &str = "promote";

/// The kind Promotion.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, _| builder.register(definition, PromotionStrategy),
    rights: &[right(READERS, &["", "status"], READ), DEVELOPED, OWNED, APPROVED],
    ..Kind::of::<Promotion>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Promotion>()
        .columns(&[
            Column::new("Commit", Cell::Path(&["spec", "commit"]), "The commit."),
            Column::new("Phase", Cell::Path(&["status", "phase"]), "The phase."),
            Column::new("Environment", Cell::Compute(current), "The environment in progress, and its phase."),
            Column::age(),
            Column::new("Message", Cell::Compute(message), "The cause of a wait.").wide(),
        ])
        .part(Part { name: APPROVAL, path: &["status", "approvals"] })
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

fn message(object: &Object) -> Value {
    open(object).map_or(Value::Null, |step| step["message"].clone())
}

#[derive(Debug)]
struct PromotionStrategy;

#[async_trait]
impl Strategy for PromotionStrategy {
    type Object = Promotion;

    fn prepare_for_part(&self, context: &RequestContext, _: &str, new: &mut Promotion, old: &Promotion) {
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
        }
        errors
    }

    fn validate_create(&self, _: &RequestContext, object: &Promotion) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (i, step) in object.spec.environments.iter().enumerate() {
            if let Some(soak) = &step.soak {
                let path = format!("spec.environments[{i}].soak");
                validation::duration(&path, soak, Duration::ZERO..=LONGEST_SOAK, &mut errors);
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
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stoa_types::{
        DurationString,
        delivery::{PromotionSpec, PromotionStep},
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
