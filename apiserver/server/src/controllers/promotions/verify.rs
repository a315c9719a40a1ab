//! The end of a wave and of an environment: what its clusters report, its checks, and its soak time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde::Deserialize;
use stoa_machinery::{ApiError, registry::ListOptions, selector::LabelSelector};
use stoa_types::{
    DurationString,
    delivery::{PromotedEnvironment, PromotionReports, PromotionStep, PromotionStepPhase},
    hub::{ObservedDeployment, Reconciler, manifests_endpoint, normal_endpoint},
    scheduler::{FleetWave, GitOpsRepo, GitOpsRepoStatus},
};

use super::{
    gates::{self, Tally, Verdict},
    walk::{AGAIN, Next, WAIT, Walk},
};

/// The fields of a Reconciler that decide about an environment, which may have a hundred thousand.
#[derive(Deserialize)]
struct Reporter {
    metadata: ReporterMetadata,
    spec: ReporterSpec,
    status: Option<ReporterStatus>,
}

#[derive(Deserialize)]
struct ReporterMetadata {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReporterSpec {
    manifests_endpoint: String,
}

#[derive(Deserialize)]
struct ReporterStatus {
    deployment: Option<ObservedDeployment>,
}

impl Walk<'_> {
    /// Ends the wave, or the environment, when reports and checks say so.
    pub(super) async fn settle(&mut self, at: usize, step: &PromotionStep) -> Result<Next, ApiError> {
        match self.verify(at, step).await? {
            Verdict::Passed => {
                let is_last = !self.has_later_wave(at);
                let phase = if is_last { PromotionStepPhase::Promoted } else { PromotionStepPhase::Soaking };
                self.set(at, phase, "");
                return Ok(Next::In(Duration::ZERO));
            }
            Verdict::Failed(why) => self.set(at, PromotionStepPhase::Failed, why),
            // What failed has not succeeded yet.
            Verdict::Waits(_) if self.environments[at].phase == PromotionStepPhase::Failed => {}
            Verdict::Waits(why) => {
                let timeout = step.reports.as_ref().and_then(|reports| reports.timeout.as_ref());
                let is_over = |text: &&DurationString| text.parse().is_ok_and(|timeout| timeout <= self.passed(at));
                match timeout.filter(is_over) {
                    Some(timeout) => self.set(at, PromotionStepPhase::Failed, format!("after {timeout}: {why}")),
                    None => self.set(at, PromotionStepPhase::Verifying, why),
                }
            }
        }
        Ok(Next::In(AGAIN))
    }

    /// What the clusters of the waves so far report, and the checks after the last wave.
    async fn verify(&mut self, at: usize, step: &PromotionStep) -> Result<Verdict, ApiError> {
        if let Some(reports) = &step.reports {
            let verdict = self.reported(at, step, reports).await?;
            if verdict != Verdict::Passed {
                return Ok(verdict);
            }
        }
        let after = step.checks.iter().filter(|_| !self.has_later_wave(at)).flat_map(|checks| &checks.after);
        let after: Vec<String> = after.cloned().collect();
        Ok(gates::checks(&after, &step.environment, self.results()))
    }

    async fn reported(
        &mut self,
        at: usize,
        step: &PromotionStep,
        reports: &PromotionReports,
    ) -> Result<Verdict, ApiError> {
        let lookup = &self.service.services().lookup;
        let (commit, wave) = (&self.promotion.spec.commit, self.wave(at));
        let mut branches = Vec::new();
        for repo in lookup.api::<GitOpsRepo>()?.list(Some(&step.environment), "").await? {
            branches.push(manifests_endpoint(&repo.spec.repo, &repo.spec.branch, "."));
            let status = repo.status.unwrap_or_default();
            if has_files(&status, commit, wave.as_ref()) {
                gates::remember(&mut self.environments[at].git_ops_commits, &status.base_commit);
            }
        }
        let later = match wave {
            None => BTreeSet::new(),
            Some(FleetWave { number, .. }) => match self.service.later_waves(step, number).await {
                Ok(later) => later,
                Err(error) => return Ok(Verdict::Waits(error.message().to_owned())),
            },
        };
        let selector = reports.selector.as_ref().map(LabelSelector::structured).transpose();
        let selector = selector.map_err(ApiError::bad_request)?;
        let own = self.promotion.namespace().unwrap_or_default();
        let namespace = if reports.namespace.is_empty() { &own } else { &reports.namespace };
        let is_wanted = |reconciler: &Reporter| {
            let labels = &reconciler.metadata.labels;
            let is_labeled = |selector: &LabelSelector| selector.matches(|key| labels.get(key).map(String::as_str));
            gates::is_of(&normal_endpoint(&reconciler.spec.manifests_endpoint), &branches, &later)
                && selector.as_ref().is_none_or(is_labeled)
        };
        let reconcilers = lookup.api::<Reconciler>()?.store().list(Some(namespace), &ListOptions::default()).await?;
        let reporters = reconcilers.items.iter().filter_map(|stored| stored.decode_part::<Reporter>().ok());
        let found = reporters.filter(is_wanted).map(|it| (it.metadata.name, it.status.and_then(|it| it.deployment)));
        let found = found.collect();
        let environment = &mut self.environments[at];
        let tally = Tally::of(found, &environment.git_ops_commits);
        environment.reports = Some(tally.counts.clone());
        Ok(tally.verdict(reports, namespace, &branches))
    }

    /// How long an environment has its phase.
    fn passed(&self, at: usize) -> Duration {
        let since = self.environments[at].since.as_ref().map_or(self.now, |Time(since)| *since);
        Duration::try_from(self.now.duration_since(since)).unwrap_or_default()
    }

    /// Waits until a wave, or an environment before another one, has had the commit long enough. Clusters that report a failure
    /// meanwhile, and checks that fail, end the wait.
    pub(super) async fn soak(&mut self, at: usize, step: &PromotionStep) -> Result<Option<Next>, ApiError> {
        let phase = self.environments[at].phase;
        let number = self.environments[at].wave.and_then(|number| usize::try_from(number).ok());
        let soak = match phase {
            PromotionStepPhase::Soaking => {
                number.and_then(|number| step.waves.get(number.checked_sub(1)?)?.soak.as_ref())
            }
            _ => step.soak.as_ref(),
        };
        let has_begun = |next: &PromotedEnvironment| {
            !matches!(next.phase, PromotionStepPhase::Pending | PromotionStepPhase::Waiting)
        };
        // The last environment is done, and those before one that has begun are no more asked.
        if phase == PromotionStepPhase::Promoted && self.environments.get(at + 1).is_none_or(has_begun) {
            return Ok(None);
        }
        match self.verify(at, step).await? {
            Verdict::Passed => self.set(at, phase, ""),
            Verdict::Waits(why) => {
                self.set(at, phase, why);
                return Ok(Some(Next::In(AGAIN)));
            }
            Verdict::Failed(why) => {
                self.set(at, PromotionStepPhase::Failed, why);
                return Ok(Some(Next::In(AGAIN)));
            }
        }
        let soak = soak.and_then(|soak| soak.parse().ok()).unwrap_or_default();
        let left = soak.saturating_sub(self.passed(at));
        let again = if step.reports.is_some() { left.min(WAIT) } else { left };
        Ok((!left.is_zero()).then_some(Next::In(again)))
    }
}

/// Whether a GitOps branch has the files of a commit, and these were compared for this wave, or for all cluster types.
pub(super) fn has_files(status: &GitOpsRepoStatus, commit: &str, wave: Option<&FleetWave>) -> bool {
    let is_same = |of: &FleetWave| wave.is_some_and(|it| (&it.promotion, it.number) == (&of.promotion, of.number));
    status.promoted_commit == commit && status.changed_files == Some(0) && status.wave.as_ref().is_none_or(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_another_wave_or_promotion_do_not_count() {
        let wave =
            |promotion: &str, number| FleetWave { promotion: promotion.to_owned(), number, frozen_cluster_types: 3 };
        let status = |wave: Option<FleetWave>| GitOpsRepoStatus {
            promoted_commit: "c".to_owned(),
            changed_files: Some(0),
            wave,
            ..GitOpsRepoStatus::default()
        };
        let mine = FleetWave { frozen_cluster_types: 0, ..wave("acme/new", 2) };
        assert!(has_files(&status(Some(wave("acme/new", 2))), "c", Some(&mine)));
        assert!(!has_files(&status(Some(wave("acme/new", 1))), "c", Some(&mine)), "it is not compared yet");
        assert!(!has_files(&status(Some(wave("acme/old", 1))), "c", None), "an earlier promotion still holds folders");
        assert!(has_files(&status(None), "c", None));
        assert!(has_files(&status(None), "c", Some(&mine)), "a branch without waves has all files");
        assert!(!has_files(&status(None), "d", None));
        let changed = GitOpsRepoStatus { changed_files: Some(1), ..status(None) };
        assert!(!has_files(&changed, "c", None));
    }
}
