//! The steps of a Promotion: one environment after the other, and back.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use stoa_controller::queue;
use stoa_machinery::ApiError;
use stoa_types::{
    delivery::{PromotedEnvironment, Promotion, PromotionCheck, PromotionPhase, PromotionStep, PromotionStepPhase},
    scheduler::{Environment, FleetWave, GitOpsRepo},
};

use super::{
    gates::{self, Verdict},
    verify::has_files,
};
use crate::fleet::{FleetService, name_of};

/// The time between two steps of a promotion in progress.
pub(super) const AGAIN: Duration = Duration::from_secs(5);
/// The time between two steps of one that waits for people, or for a GitOpsRepo, whose changes end the wait.
pub(super) const WAIT: Duration = Duration::from_secs(30);
/// The BaseRepo without another name.
const MAIN: &str = "main";
/// How many broken assignments a message names.
const NAMED: usize = 5;

/// When to go on.
pub(super) enum Next {
    Ended(PromotionPhase),
    In(Duration),
}

/// A pass over the environments of a Promotion.
pub(super) struct Walk<'w> {
    pub(super) service: &'w FleetService,
    pub(super) promotion: &'w Promotion,
    pub(super) environments: Vec<PromotedEnvironment>,
    pub(super) now: Timestamp,
}

impl Walk<'_> {
    fn base(&self) -> &str {
        if self.promotion.spec.base_repo.is_empty() { MAIN } else { &self.promotion.spec.base_repo }
    }

    pub(super) fn set(&mut self, at: usize, phase: PromotionStepPhase, message: impl Into<String>) {
        let environment = &mut self.environments[at];
        environment.message = message.into();
        if environment.phase != phase {
            environment.phase = phase;
            environment.since = Some(Time(self.now));
        }
    }

    /// The results of checks.
    pub(super) fn results(&self) -> &[PromotionCheck] {
        self.promotion.status.as_ref().map_or(&[], |status| status.checks.as_slice())
    }

    /// The wave of an environment, as the status of its GitOpsRepo is to have it.
    pub(super) fn wave(&self, at: usize) -> Option<FleetWave> {
        let number = self.environments[at].wave?;
        Some(FleetWave { promotion: name_of(self.promotion), number, ..FleetWave::default() })
    }

    /// Whether cluster types of an environment are in a later wave.
    pub(super) fn has_later_wave(&self, at: usize) -> bool {
        let waves = self.promotion.spec.environments[at].waves.len();
        self.environments[at].wave.is_some_and(|number| usize::try_from(number).is_ok_and(|number| number <= waves))
    }

    /// Continues with the first environment that lacks the commit.
    pub(super) async fn promote(&mut self) -> Result<Next, ApiError> {
        for at in 0..self.environments.len() {
            let step = self.promotion.spec.environments[at].clone();
            match self.environments[at].phase {
                PromotionStepPhase::Promoted => {
                    if let Some(next) = self.soak(at, &step).await? {
                        return Ok(next);
                    }
                }
                PromotionStepPhase::Soaking => {
                    return match self.soak(at, &step).await? {
                        Some(next) => Ok(next),
                        None => Ok(self.next_wave(at, &step)),
                    };
                }
                PromotionStepPhase::Proposed => {
                    let commit = self.promotion.spec.commit.clone();
                    if let Some(why) = self.lacks(at, &commit).await? {
                        self.set(at, PromotionStepPhase::Proposed, why);
                        return Ok(Next::In(WAIT));
                    }
                    self.set(at, PromotionStepPhase::Verifying, "");
                    return self.settle(at, &step).await;
                }
                PromotionStepPhase::Verifying | PromotionStepPhase::Failed => return self.settle(at, &step).await,
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

    /// Begins the next wave of an environment. Its GitOpsRepos then have other files.
    fn next_wave(&mut self, at: usize, step: &PromotionStep) -> Next {
        if let Some(why) = self.closed(step) {
            self.set(at, PromotionStepPhase::Soaking, why);
            return Next::In(WAIT);
        }
        self.set(at, PromotionStepPhase::Proposed, "");
        let environment = &mut self.environments[at];
        environment.wave = environment.wave.map(|number| number + 1);
        // A cluster reports this wave by a commit with its files.
        environment.git_ops_commits.clear();
        environment.reports = None;
        Next::In(AGAIN)
    }

    /// The reason for which neither an environment nor a wave of it may begin now.
    fn closed(&self, step: &PromotionStep) -> Option<String> {
        if self.promotion.spec.paused {
            return Some("the promotion is paused; set spec.paused to false".to_owned());
        }
        let window = step.window.as_ref().filter(|window| !gates::is_open(window, self.now))?;
        Some(format!("the window is from {} to {} UTC", window.from, window.to))
    }

    /// The reason for which an environment may not begin now.
    async fn gate(&self, step: &PromotionStep) -> Result<Option<String>, ApiError> {
        let spec = &self.promotion.spec;
        if let Some(why) = self.closed(step) {
            return Ok(Some(why));
        }
        let mut approvals = self.promotion.status.iter().flat_map(|status| &status.approvals);
        if step.approval && !approvals.any(|approval| approval.environment == step.environment) {
            return Ok(Some(
                "an approval is missing; add one to status.approvals by the subresource approval".to_owned(),
            ));
        }
        // It would bring an earlier commit back, without its waves: the newest Promotion decides about folders.
        if let Some(newer) = self.service.newer_promotion(self.promotion, &step.environment).await? {
            return Ok(Some(format!(
                "promotion {newer} is newer, and has begun in environment {}; roll it back, or create another Promotion",
                step.environment
            )));
        }
        let before = step.checks.as_ref().map_or(&[][..], |checks| checks.before.as_slice());
        match gates::checks(before, &step.environment, self.results()) {
            Verdict::Passed => {}
            Verdict::Waits(why) | Verdict::Failed(why) => return Ok(Some(why)),
        }
        let namespace = self.promotion.namespace().unwrap_or_default();
        let environment = self.service.environment(&step.environment).await?;
        if let Some(why) = foreign(&namespace, &step.environment, environment.as_ref()) {
            return Ok(Some(why));
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
        let mut is_new = false;
        if self.environments[at].previous_commit.is_empty() {
            match self.service.base_commit(&step.environment, &base).await {
                Ok(commit) => self.environments[at].previous_commit = commit,
                Err(error) => {
                    self.set(at, PromotionStepPhase::Waiting, error.message());
                    return Ok(Next::In(WAIT));
                }
            }
            is_new = !self.environments[at].previous_commit.is_empty();
        }
        if !step.waves.is_empty() && self.environments[at].wave.is_none() {
            self.environments[at].wave = Some(1);
            is_new = true;
        }
        // Both are recorded before the branch has another commit.
        if is_new {
            return Ok(Next::In(Duration::ZERO));
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

    /// The reason for which the GitOps branch of an environment does not have the files of a commit yet, as far as its wave goes.
    async fn lacks(&self, at: usize, commit: &str) -> Result<Option<String>, ApiError> {
        let (environment, wave) = (self.environments[at].environment.as_str(), self.wave(at));
        let repos = self.service.services().lookup.api::<GitOpsRepo>()?.list(Some(environment), "").await?;
        if repos.is_empty() {
            return Ok(Some(format!("environment {environment} has no GitOpsRepo; add one to its branch")));
        }
        for repo in repos {
            let status = repo.status.clone().unwrap_or_default();
            if has_files(&status, commit, wave.as_ref()) {
                continue;
            }
            if let Some(newer) = self.service.newer_promotion(self.promotion, environment).await? {
                return Ok(Some(format!(
                    "promotion {newer} is newer, and has begun in environment {environment}; cancel this one, or roll back {newer}"
                )));
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
    pub(super) async fn roll_back(&mut self) -> Result<Next, ApiError> {
        for at in (0..self.environments.len()).rev() {
            let PromotedEnvironment { environment, previous_commit, phase, .. } = self.environments[at].clone();
            match phase {
                PromotionStepPhase::RolledBack => {}
                PromotionStepPhase::Pending | PromotionStepPhase::Waiting if previous_commit.is_empty() => {}
                PromotionStepPhase::Pending | PromotionStepPhase::Waiting => {
                    let current = self.service.current_base_commit(&environment, self.base()).await;
                    match current {
                        Ok(current) if is_unrecorded(&self.promotion.spec.commit, &current, &previous_commit) => {
                            let phase = PromotionStepPhase::RollingBack;
                            return self.write(at, &environment, &previous_commit, phase).await;
                        }
                        Err(error) if error.code() != 404 => {
                            self.set(at, phase, error.message());
                            return Ok(Next::In(WAIT));
                        }
                        Ok(_) | Err(_) => {}
                    }
                }
                _ if previous_commit.is_empty() => {
                    self.set(at, PromotionStepPhase::RolledBack, "it had no commit before");
                }
                PromotionStepPhase::Proposed
                | PromotionStepPhase::Verifying
                | PromotionStepPhase::Failed
                | PromotionStepPhase::Soaking
                | PromotionStepPhase::Promoted => {
                    return self.write(at, &environment, &previous_commit, PromotionStepPhase::RollingBack).await;
                }
                PromotionStepPhase::RollingBack => {
                    // The commit may have failed, or somebody may have undone it.
                    let has_it = self.service.base_commit(&environment, self.base()).await;
                    if has_it.is_ok_and(|commit| commit != previous_commit) {
                        return self.write(at, &environment, &previous_commit, PromotionStepPhase::RollingBack).await;
                    }
                    if let Some(why) = self.lacks(at, &previous_commit).await? {
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

/// The reason for which the Environment that an environment follows is none of a namespace. Its waves would not count, and its
/// repository has an owner of its own.
fn foreign(namespace: &str, name: &str, environment: Option<&Environment>) -> Option<String> {
    match environment.map(|environment| environment.namespace().unwrap_or_default()) {
        Some(of) if of == namespace => None,
        Some(_) => Some(format!(
            "an older Environment {name} is in another namespace than {namespace}; create the Promotion there, or delete that \
             Environment"
        )),
        None => Some(format!("Environment {namespace}/{name} does not exist; create it")),
    }
}

/// Whether an environment has the commit though its status does not say so: the server ended before it wrote the status, or the
/// answer of the Git server was lost.
fn is_unrecorded(commit: &str, current: &str, previous: &str) -> bool {
    current == commit && current != previous
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_in_the_namespace_of_its_environment() {
        let mut environment = Environment::default();
        environment.metadata.namespace = Some("acme".to_owned());
        assert_eq!(foreign("acme", "prod", Some(&environment)), None);
        let why = foreign("other", "prod", Some(&environment)).unwrap();
        assert!(why.contains("in another namespace than other") && !why.contains("acme"), "{why}");
        assert_eq!(foreign("acme", "prod", None).unwrap(), "Environment acme/prod does not exist; create it");
    }

    #[test]
    fn commit_that_no_status_has_is_rolled_back() {
        assert!(is_unrecorded("new", "new", "old"));
        assert!(!is_unrecorded("new", "old", "old"), "it has not begun");
        assert!(!is_unrecorded("new", "other", "old"), "somebody else moved it");
        assert!(!is_unrecorded("new", "new", "new"), "it had the commit before");
    }
}
