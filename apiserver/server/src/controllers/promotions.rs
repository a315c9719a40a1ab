//! Promotion: brings one commit of a base repository into environments in order.
//!
//! Each step of an environment is in the status before the next begins, and every effect may be repeated, so that any replica continues
//! after a crash: a commit is made where the branch lacks it, and an environment has the commit when its GitOpsRepo says so.

use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::{Timestamp, civil::Time as TimeOfDay, tz::TimeZone};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::{Deserialize, de::IgnoredAny};
use stoa_controller::{
    conditions::set_condition,
    index::{Index, Member},
    object::ObjectKey,
    queue::{self, Trigger},
};
use stoa_machinery::ApiError;
use stoa_types::{
    delivery::{
        PromotedEnvironment, Promotion, PromotionPhase, PromotionSpec, PromotionStep, PromotionStepPhase,
        PromotionWindow,
    },
    reason,
    scheduler::{Environment, FleetPullRequest, GitOpsRepo},
};
use tokio_util::sync::CancellationToken;

use crate::fleet::FleetService;

/// How many promotions are carried out at once.
const AT_ONCE: usize = 8;
/// The time between two steps of a promotion in progress.
const AGAIN: Duration = Duration::from_secs(5);
/// The time between two steps of one that waits for people, or for a GitOpsRepo, whose changes end the wait.
const WAIT: Duration = Duration::from_secs(30);
/// The BaseRepo without another name.
const MAIN: &str = "main";
/// How many broken assignments a message names.
const NAMED: usize = 5;

/// The part of a GitOpsRepo's status that promotions wait for.
#[derive(Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
struct Delivery {
    promoted_commit: String,
    changed_files: Option<i64>,
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
    if promotion.metadata.deletion_timestamp.is_some()
        || matches!(status.phase, PromotionPhase::Canceled | PromotionPhase::RolledBack)
        || (status.phase == PromotionPhase::Succeeded && !promotion.spec.roll_back)
    {
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
                PromotionPhase::Succeeded => reason::SUCCEEDED,
                PromotionPhase::Canceled | PromotionPhase::RolledBack => reason::CANCELED,
            };
            let message = summary(&environments);
            set_condition(&mut status.conditions, reason::COMPLETE, is_complete, why, message, generation);
        })
        .await;
    queue::unless_gone(written)?;
    Ok(wait)
}

fn summary(environments: &[PromotedEnvironment]) -> String {
    let all = environments.len();
    let promoted = environments.iter().filter(|it| it.phase == PromotionStepPhase::Promoted).count();
    format!("{promoted} of {all} environments have the commit")
}

/// When to go on.
enum Next {
    Ended(PromotionPhase),
    In(Duration),
}

struct Walk<'w> {
    service: &'w FleetService,
    promotion: &'w Promotion,
    environments: Vec<PromotedEnvironment>,
    now: Timestamp,
}

impl Walk<'_> {
    fn base(&self) -> &str {
        if self.promotion.spec.base_repo.is_empty() { MAIN } else { &self.promotion.spec.base_repo }
    }

    fn set(&mut self, at: usize, phase: PromotionStepPhase, message: impl Into<String>) {
        let environment = &mut self.environments[at];
        environment.message = message.into();
        if environment.phase != phase {
            environment.phase = phase;
            environment.since = Some(Time(self.now));
        }
    }

    /// Continues with the first environment that lacks the commit.
    async fn promote(&mut self) -> Result<Next, ApiError> {
        for at in 0..self.environments.len() {
            let step = self.promotion.spec.environments[at].clone();
            match self.environments[at].phase {
                PromotionStepPhase::Promoted => {
                    if let Some(left) = self.soak(at, &step) {
                        return Ok(Next::In(left));
                    }
                }
                PromotionStepPhase::Proposed => {
                    let commit = self.promotion.spec.commit.clone();
                    if let Some(why) = self.lacks(&step.environment, &commit).await? {
                        self.set(at, PromotionStepPhase::Proposed, why);
                        return Ok(Next::In(WAIT));
                    }
                    self.set(at, PromotionStepPhase::Promoted, "");
                    return Ok(Next::In(Duration::ZERO));
                }
                PromotionStepPhase::Pending
                | PromotionStepPhase::Waiting
                | PromotionStepPhase::RollingBack
                | PromotionStepPhase::RolledBack => {
                    if let Some(why) = self.gate(&step).await? {
                        self.set(at, PromotionStepPhase::Waiting, why);
                        return Ok(Next::In(WAIT));
                    }
                    return self.begin(at, &step).await;
                }
            }
        }
        Ok(Next::Ended(PromotionPhase::Succeeded))
    }

    /// How long an environment still has the commit before the next one begins.
    fn soak(&self, at: usize, step: &PromotionStep) -> Option<Duration> {
        let soak: Duration = step.soak.as_ref()?.parse().ok()?;
        let Time(since) = self.environments[at].since.as_ref()?;
        let is_last = at + 1 == self.environments.len();
        let passed = Duration::try_from(self.now.duration_since(*since)).unwrap_or_default();
        soak.checked_sub(passed).filter(|left| !is_last && !left.is_zero())
    }

    /// The reason for which an environment may not begin now.
    async fn gate(&self, step: &PromotionStep) -> Result<Option<String>, ApiError> {
        let spec = &self.promotion.spec;
        if spec.paused {
            return Ok(Some("the promotion is paused; set spec.paused to false".to_owned()));
        }
        let mut approvals = self.promotion.status.iter().flat_map(|status| &status.approvals);
        if step.approval && !approvals.any(|approval| approval.environment == step.environment) {
            return Ok(Some(
                "an approval is missing; add one to status.approvals by the subresource approval".to_owned(),
            ));
        }
        if let Some(window) = step.window.as_ref().filter(|window| !is_open(window, self.now)) {
            return Ok(Some(format!("the window is from {} to {} UTC", window.from, window.to)));
        }
        let namespace = self.promotion.namespace().unwrap_or_default();
        let environments = self.service.services().lookup.api::<Environment>()?;
        if environments.get_opt(&namespace, &step.environment).await?.is_none() {
            return Ok(Some(format!("Environment {namespace}/{} does not exist; create it", step.environment)));
        }
        let broken = match self.service.broken_by(&step.environment, self.base(), &spec.commit).await {
            Ok(broken) => broken,
            Err(error) => return Ok(Some(error.message().to_owned())),
        };
        if broken.is_empty() {
            return Ok(None);
        }
        let shown = broken.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join("; ");
        Ok(Some(format!("the commit would break {} assignments: {shown}", broken.len())))
    }

    async fn begin(&mut self, at: usize, step: &PromotionStep) -> Result<Next, ApiError> {
        let base = self.base().to_owned();
        if self.environments[at].previous_commit.is_empty() {
            match self.service.base_commit(&step.environment, &base).await {
                Ok(commit) => self.environments[at].previous_commit = commit,
                Err(error) => {
                    self.set(at, PromotionStepPhase::Waiting, error.message());
                    return Ok(Next::In(WAIT));
                }
            }
            // It is recorded before the branch has another one.
            if !self.environments[at].previous_commit.is_empty() {
                return Ok(Next::In(Duration::ZERO));
            }
        }
        let commit = self.promotion.spec.commit.clone();
        self.write(at, &step.environment, &commit, PromotionStepPhase::Proposed).await
    }

    /// Gives an environment a commit.
    async fn write(
        &mut self,
        at: usize,
        environment: &str,
        commit: &str,
        phase: PromotionStepPhase,
    ) -> Result<Next, ApiError> {
        let (namespace, name) = queue::key_of(self.promotion);
        let owner = format!("promotion {namespace}/{name}");
        match self.service.set_base_commit(environment, self.base(), commit, &owner).await {
            Ok(()) => {
                self.set(at, phase, "");
                Ok(Next::In(AGAIN))
            }
            Err((_, message)) => {
                let waits = if phase == PromotionStepPhase::Proposed { PromotionStepPhase::Waiting } else { phase };
                self.set(at, waits, message);
                Ok(Next::In(AGAIN))
            }
        }
    }

    /// The reason for which the GitOps branch of an environment does not have the files of a commit yet.
    async fn lacks(&self, environment: &str, commit: &str) -> Result<Option<String>, ApiError> {
        let repos = self.service.services().lookup.api::<GitOpsRepo>()?.list(Some(environment), "").await?;
        if repos.is_empty() {
            return Ok(Some(format!("environment {environment} has no GitOpsRepo; add one to its branch")));
        }
        for repo in repos {
            let status = repo.status.clone().unwrap_or_default();
            if status.promoted_commit == commit && status.changed_files == Some(0) {
                continue;
            }
            let why = match status.pull_request {
                Some(pull) => format!("pull request {} of {} is not merged", pull.number, repo.spec.repo),
                None => format!("branch {} of {} does not have the files yet", repo.spec.branch, repo.spec.repo),
            };
            return Ok(Some(why));
        }
        Ok(None)
    }

    /// Gives the environments their earlier commits again, the last one first.
    async fn roll_back(&mut self) -> Result<Next, ApiError> {
        for at in (0..self.environments.len()).rev() {
            let PromotedEnvironment { environment, previous_commit, phase, .. } = self.environments[at].clone();
            match phase {
                PromotionStepPhase::Pending | PromotionStepPhase::Waiting | PromotionStepPhase::RolledBack => {}
                _ if previous_commit.is_empty() => {
                    self.set(at, PromotionStepPhase::RolledBack, "it had no commit before");
                }
                PromotionStepPhase::Proposed | PromotionStepPhase::Promoted => {
                    return self.write(at, &environment, &previous_commit, PromotionStepPhase::RollingBack).await;
                }
                PromotionStepPhase::RollingBack => {
                    // The commit may have failed, or somebody may have undone it.
                    let has_it = self.service.base_commit(&environment, self.base()).await;
                    if has_it.is_ok_and(|commit| commit != previous_commit) {
                        return self.write(at, &environment, &previous_commit, PromotionStepPhase::RollingBack).await;
                    }
                    if let Some(why) = self.lacks(&environment, &previous_commit).await? {
                        self.set(at, PromotionStepPhase::RollingBack, why);
                        return Ok(Next::In(WAIT));
                    }
                    self.set(at, PromotionStepPhase::RolledBack, "");
                }
            }
        }
        Ok(Next::Ended(PromotionPhase::RolledBack))
    }
}

/// Whether a window is open. One that ends before it begins ends on the next day.
fn is_open(window: &PromotionWindow, now: Timestamp) -> bool {
    let time = |text: &str| TimeOfDay::strptime("%H:%M", text).ok();
    let (Some(from), Some(to)) = (time(&window.from), time(&window.to)) else { return true };
    let now = now.to_zoned(TimeZone::UTC).time();
    if from <= to { from <= now && now < to } else { from <= now || now < to }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_may_pass_midnight() {
        let at = |text: &str| format!("2026-03-01T{text}:00Z").parse::<Timestamp>().unwrap();
        let window = |from: &str, to: &str| PromotionWindow { from: from.to_owned(), to: to.to_owned() };
        for (from, to, now, expected) in [
            ("08:00", "16:30", "08:00", true),
            ("08:00", "16:30", "16:30", false),
            ("22:00", "04:00", "23:00", true),
            ("22:00", "04:00", "03:59", true),
            ("22:00", "04:00", "12:00", false),
        ] {
            assert_eq!(is_open(&window(from, to), at(now)), expected, "{from} {to} {now}");
        }
    }

    #[test]
    fn summary_counts_promoted_environments() {
        let environment = |phase| PromotedEnvironment { phase, ..PromotedEnvironment::default() };
        let all = [PromotionStepPhase::Promoted, PromotionStepPhase::Proposed].map(environment);
        assert_eq!(summary(&all), "1 of 2 environments have the commit");
    }
}
