//! Promotion: brings one commit of a base repository into environments in order.
//!
//! Each step of an environment is in the status before the next begins, and every effect may be repeated, so that any replica continues
//! after a crash: a commit is made where the branch lacks it, and an environment has the commit when its GitOpsRepo says so.
//!
//! - `walk`: the steps; `verify`: the end of a wave and of an environment;
//! - `gates`: decides about windows, checks and reports of clusters.
//!
//! Elsewhere: `fleet::waves` has the folders that stay as they are in a wave.

mod gates;
mod verify;
mod walk;

use std::time::Duration;

use futures_util::StreamExt as _;
use serde::{Deserialize, de::IgnoredAny};
use stoa_controller::{
    conditions::set_condition,
    index::{Index, Member},
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_machinery::ApiError;
use stoa_types::{
    delivery::{PromotedEnvironment, Promotion, PromotionPhase, PromotionSpec, PromotionStep, PromotionStepPhase},
    reason,
    scheduler::{FleetPullRequest, FleetWave, GitOpsRepo},
};
use tokio_util::sync::CancellationToken;

use self::walk::{Next, Walk};
use crate::fleet::FleetService;

/// How many promotions are carried out at once.
const AT_ONCE: usize = 8;

/// The part of a GitOpsRepo's status that promotions wait for.
#[derive(Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
struct Delivery {
    base_commit: String,
    promoted_commit: String,
    changed_files: Option<i64>,
    wave: Option<FleetWave>,
    pull_request: Option<FleetPullRequest>,
}

pub(crate) async fn run(service: FleetService, end: CancellationToken) {
    let Ok(registry) = service.services().lookup.registry() else { return };
    let by_environment = Index::<String>::default();
    let moved = by_environment.follow(&registry.api::<Promotion>(), |promotion: &Member<PromotionSpec, IgnoredAny>| {
        promotion.spec.environments.iter().map(|step| step.environment.clone()).collect()
    });
    let triggers = vec![
        Trigger::new(moved.map(|moved| moved.objects.iter().map(queue::key_at).collect()).boxed()),
        Trigger::on_change(&registry.api::<GitOpsRepo>(), move |repo: &Member<IgnoredAny, Delivery>| {
            by_environment.members(&repo.namespace().to_owned())
        }),
    ];
    let reconcile = |key| reconcile(service.clone(), key);
    queue::drive_some(service.services().queues.of("promotions"), AT_ONCE, triggers, end, reconcile).await;
}

async fn reconcile(service: FleetService, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
    let promotions = service.services().lookup.api::<Promotion>()?;
    let Some(promotion) = promotions.get_opt(&key.0, &key.1).await? else { return Ok(None) };
    let status = promotion.status.clone().unwrap_or_default();
    if promotion.metadata.deletion_timestamp.is_some() || is_over(status.phase, promotion.spec.roll_back) {
        return Ok(None);
    }
    let known = |step: &PromotionStep| {
        let found = status.environments.iter().find(|it| it.environment == step.environment).cloned();
        found.unwrap_or_else(|| PromotedEnvironment {
            environment: step.environment.clone(),
            ..PromotedEnvironment::default()
        })
    };
    let environments = promotion.spec.environments.iter().map(known).collect();
    let mut walk = Walk { service: &service, promotion: &promotion, environments, now: service.services().now() };
    let next = match (promotion.spec.cancel, promotion.spec.roll_back) {
        (_, true) => walk.roll_back().await?,
        (true, false) => Next::Ended(PromotionPhase::Canceled),
        (false, false) => walk.promote().await?,
    };
    let (phase, wait) = match next {
        Next::Ended(phase) => (phase, None),
        Next::In(wait) => (PromotionPhase::Running, Some(wait)),
    };
    let environments = walk.environments;
    let failed = failure(&environments);
    let has_stopped = failed.is_some() && phase == PromotionPhase::Running;
    let phase = if has_stopped { PromotionPhase::Failed } else { phase };
    let written = promotions
        .update_status_with(&key.0, &key.1, |object: &mut Promotion| {
            if object.metadata.uid != promotion.metadata.uid {
                return;
            }
            let generation = object.metadata.generation;
            let status = object.status.get_or_insert_default();
            status.phase = phase;
            status.environments.clone_from(&environments);
            let is_complete = phase == PromotionPhase::Succeeded;
            let why = match phase {
                PromotionPhase::Running => reason::PROGRESSING,
                PromotionPhase::Failed => reason::ENVIRONMENT_FAILED,
                PromotionPhase::Succeeded => reason::SUCCEEDED,
                PromotionPhase::Canceled | PromotionPhase::RolledBack => reason::CANCELED,
            };
            let message = summary(&environments);
            set_condition(&mut status.conditions, reason::COMPLETE, is_complete, why, message, generation);
            let message = failed.clone().unwrap_or_else(|| "no environment failed".to_owned());
            set_condition(&mut status.conditions, reason::FAILED, failed.is_some(), why, message, generation);
        })
        .await;
    queue::unless_gone(written)?;
    Ok(wait)
}

/// Whether nothing is left to do. A promotion that succeeded or was canceled can be rolled back.
fn is_over(phase: PromotionPhase, roll_back: bool) -> bool {
    match phase {
        PromotionPhase::RolledBack => true,
        PromotionPhase::Succeeded | PromotionPhase::Canceled => !roll_back,
        PromotionPhase::Running | PromotionPhase::Failed => false,
    }
}

fn summary(environments: &[PromotedEnvironment]) -> String {
    let all = environments.len();
    let promoted = environments.iter().filter(|it| it.phase == PromotionStepPhase::Promoted).count();
    format!("{promoted} of {all} environments have the commit")
}

/// The failure of an environment, until it succeeds or is rolled back.
fn failure(environments: &[PromotedEnvironment]) -> Option<String> {
    let failed = environments.iter().find(|it| it.phase == PromotionStepPhase::Failed)?;
    Some(format!("environment {}: {}", failed.environment, failed.message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_counts_promoted_environments() {
        let environment = |phase| PromotedEnvironment { phase, ..PromotedEnvironment::default() };
        let all = [PromotionStepPhase::Promoted, PromotionStepPhase::Proposed].map(environment);
        assert_eq!(summary(&all), "1 of 2 environments have the commit");
    }

    #[test]
    fn canceled_promotion_can_be_rolled_back() {
        assert!(is_over(PromotionPhase::Canceled, false) && !is_over(PromotionPhase::Canceled, true));
        assert!(is_over(PromotionPhase::Succeeded, false) && !is_over(PromotionPhase::Succeeded, true));
        assert!(is_over(PromotionPhase::RolledBack, true) && !is_over(PromotionPhase::Failed, false));
    }

    #[test]
    fn failure_names_the_environment() {
        let of = |environment: &str, phase, message: &str| PromotedEnvironment {
            environment: environment.to_owned(),
            phase,
            message: message.to_owned(),
            ..PromotedEnvironment::default()
        };
        let dev = of("dev", PromotionStepPhase::Promoted, "");
        let stage = of("stage", PromotionStepPhase::Failed, "check smoke failed");
        assert_eq!(failure(&[dev.clone(), stage]).unwrap(), "environment stage: check smoke failed");
        assert_eq!(failure(&[dev]), None);
    }
}
