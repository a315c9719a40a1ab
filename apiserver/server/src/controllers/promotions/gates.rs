//! The gates of an environment: its window, its checks, and the reports of its clusters.
//!
//! Everything here is a function of values. [`Tally::of`] counts reports, and [`Tally::verdict`] decides about them.

use std::collections::BTreeSet;

use jiff::{Timestamp, civil::Time as TimeOfDay, tz::TimeZone};
use stoa_types::{
    delivery::{CheckResult, PromotionCheck, PromotionReports, PromotionWindow, ReportCounts},
    hub::{DeploymentStatus, ObservedDeployment},
};

/// The most commits of a GitOps branch that an environment remembers.
const COMMITS: usize = 20;
/// How many Reconcilers a message names.
const NAMED: usize = 5;
/// The most characters of a reported message.
const MESSAGE: usize = 200;

/// What a gate has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// It may pass later.
    Waits(String),
    Failed(String),
}

/// Whether a window is open. One that ends before it begins ends on the next day.
pub(super) fn is_open(window: &PromotionWindow, now: Timestamp) -> bool {
    let time = |text: &str| TimeOfDay::strptime("%H:%M", text).ok();
    let (Some(from), Some(to)) = (time(&window.from), time(&window.to)) else { return true };
    let now = now.to_zoned(TimeZone::UTC).time();
    if from <= to { from <= now && now < to } else { from <= now || now < to }
}

/// Decides about checks of an environment. A failed one comes before one without a result.
pub(super) fn checks(names: &[String], environment: &str, results: &[PromotionCheck]) -> Verdict {
    let mut missing = None;
    for name in names {
        let found = results.iter().find(|check| check.environment == environment && check.name == *name);
        match found {
            Some(PromotionCheck { result: CheckResult::Passed, .. }) => {}
            Some(PromotionCheck { result: CheckResult::Failed, message, .. }) if message.is_empty() => {
                return Verdict::Failed(format!("check {name} failed"));
            }
            Some(PromotionCheck { result: CheckResult::Failed, message, .. }) => {
                return Verdict::Failed(format!("check {name} failed: {message}"));
            }
            None => missing = missing.or(Some(name)),
        }
    }
    missing.map_or(Verdict::Passed, |name| {
        Verdict::Waits(format!("check {name} has no result; add one to status.checks by the subresource checks"))
    })
}

/// Remembers a commit of a GitOps branch.
pub(super) fn remember(commits: &mut Vec<String>, commit: &str) {
    if !commit.is_empty() && !commits.iter().any(|known| known == commit) {
        commits.push(commit.to_owned());
        let surplus = commits.len().saturating_sub(COMMITS);
        commits.drain(..surplus);
    }
}

/// Whether an endpoint is of one of these branches, and of no cluster type of a later wave. Both are normal endpoints.
pub(super) fn is_of(endpoint: &str, branches: &[String], later: &BTreeSet<String>) -> bool {
    branches.iter().any(|branch| match endpoint.strip_prefix(branch.as_str()) {
        Some("") => true,
        Some(rest) => {
            rest.strip_prefix('/').is_some_and(|folder| !later.contains(folder.split('/').next().unwrap_or_default()))
        }
        None => false,
    })
}

/// The reports of the Reconcilers of an environment.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) counts: ReportCounts,
    /// The first failures by name, each with its commit and message.
    failures: Vec<String>,
    /// The first names of those without a success.
    missing: Vec<String>,
}

impl Tally {
    /// Counts what Reconcilers have deployed. Only deployments of these commits count: others are of before.
    pub(super) fn of(mut reconcilers: Vec<(String, Option<ObservedDeployment>)>, commits: &[String]) -> Self {
        reconcilers.sort_by(|a, b| a.0.cmp(&b.0));
        let mut tally = Self::default();
        for (name, deployment) in reconcilers {
            tally.counts.total += 1;
            let deployment = deployment.filter(|of| commits.contains(&of.git_ops_commit_id));
            match deployment.as_ref().map(|of| (of.status, of)) {
                Some((DeploymentStatus::Success, _)) => tally.counts.succeeded += 1,
                Some((DeploymentStatus::Failure, ObservedDeployment { git_ops_commit_id, status_message, .. })) => {
                    tally.counts.failed += 1;
                    if tally.failures.len() < NAMED {
                        let message: String = status_message.chars().take(MESSAGE).collect();
                        let why = if message.is_empty() { String::new() } else { format!(": {message}") };
                        tally.failures.push(format!("Reconciler {name} reports failure of {git_ops_commit_id}{why}"));
                    }
                }
                Some((DeploymentStatus::InProgress, _)) | None => {
                    tally.counts.in_progress += 1;
                    if tally.missing.len() < NAMED {
                        tally.missing.push(name);
                    }
                }
            }
        }
        tally
    }

    /// Decides whether the environment is done. `branches` are those of its GitOpsRepos.
    pub(super) fn verdict(&self, reports: &PromotionReports, namespace: &str, branches: &[String]) -> Verdict {
        let ReportCounts { total, succeeded, failed, .. } = self.counts;
        if total == 0 {
            let branches = branches.join(" or ");
            return Verdict::Waits(format!(
                "no Reconciler of namespace {namespace} has a manifestsEndpoint in {branches}; create one, or change its labels"
            ));
        }
        let percent = reports.min_success_percent.unwrap_or(100);
        let suffices = |count: i64| count * 100 >= percent * total;
        if suffices(succeeded) {
            return Verdict::Passed;
        }
        if !suffices(total - failed) {
            return Verdict::Failed(listed(&self.failures, failed, "; "));
        }
        let missing = listed(&self.missing, total - succeeded - failed, ", ");
        Verdict::Waits(format!("{succeeded} of {total} Reconcilers report success; waiting for {missing}"))
    }
}

/// The first texts of a list of `count` texts, and the number of the others.
fn listed(first: &[String], count: i64, separator: &str) -> String {
    let more = usize::try_from(count).unwrap_or_default().saturating_sub(first.len());
    let first = first.join(separator);
    if more == 0 { first } else { format!("{first}, and {more} more") }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

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
    fn check_passes_fails_or_is_missing() {
        let check = |environment: &str, name: &str, result: CheckResult, message: &str| PromotionCheck {
            environment: environment.to_owned(),
            name: name.to_owned(),
            result,
            message: message.to_owned(),
            ..PromotionCheck::default()
        };
        let names = ["smoke", "load"].map(str::to_owned);
        let passed = check("dev", "smoke", CheckResult::Passed, "");
        let of_other = check("prod", "load", CheckResult::Failed, "");
        assert_eq!(checks(&[], "dev", &[]), Verdict::Passed);
        let Verdict::Waits(why) = checks(&names, "dev", &[passed.clone(), of_other]) else { panic!("it is missing") };
        assert!(why.starts_with("check load has no result"), "{why}");
        let failed = check("dev", "load", CheckResult::Failed, "p99 is 2s");
        let expected = Verdict::Failed("check load failed: p99 is 2s".to_owned());
        assert_eq!(checks(&names, "dev", std::slice::from_ref(&failed)), expected, "a failure is not overlooked");
        let both = [passed, check("dev", "load", CheckResult::Passed, "")];
        assert_eq!(checks(&names, "dev", &both), Verdict::Passed);
    }

    #[test]
    fn newest_commits_are_remembered_once() {
        let mut commits = Vec::new();
        remember(&mut commits, "");
        for number in 0..COMMITS + 2 {
            remember(&mut commits, &number.to_string());
            remember(&mut commits, &number.to_string());
        }
        assert_eq!((commits.len(), commits[0].as_str()), (COMMITS, "2"));
    }

    #[test]
    fn reconciler_is_of_the_branch_and_the_wave() {
        let branches = ["https://git.example.com/gitops/prod".to_owned()];
        let later = BTreeSet::from(["west".to_owned()]);
        for (folder, expected) in [
            ("", true),
            ("/east", true),
            ("/east/web", true),
            ("/west", false),
            ("/west/web", false),
            ("/western/web", true),
            ("-eu/east", false),
        ] {
            let endpoint = format!("https://git.example.com/gitops/prod{folder}");
            assert_eq!(is_of(&endpoint, &branches, &later), expected, "{folder}");
        }
        assert!(!is_of("https://git.example.com/gitops/dev/east", &branches, &later));
    }

    fn tally(reports: &[(&str, DeploymentStatus)]) -> Tally {
        let deployment = |(at, (commit, status)): (usize, &(&str, DeploymentStatus))| {
            let deployment = ObservedDeployment {
                git_ops_commit_id: (*commit).to_owned(),
                status: *status,
                status_message: "no image".to_owned(),
                since: MicroTime(Timestamp::UNIX_EPOCH),
            };
            (format!("drone-{at}"), Some(deployment).filter(|of| !of.git_ops_commit_id.is_empty()))
        };
        Tally::of(reports.iter().enumerate().map(deployment).collect(), &["c1", "c2"].map(str::to_owned))
    }

    fn verdict(reports: &[(&str, DeploymentStatus)], percent: Option<i64>) -> Verdict {
        let of = PromotionReports { min_success_percent: percent, ..PromotionReports::default() };
        tally(reports).verdict(&of, "drones", &["gitops/dev".to_owned()])
    }

    #[test]
    fn environment_is_done_when_all_report_success_of_its_commits() {
        use DeploymentStatus::{Failure, InProgress, Success};
        assert_eq!(verdict(&[("c1", Success), ("c2", Success)], None), Verdict::Passed, "or of a later one");
        let waiting = [("c1", Success), ("c0", Success), ("c0", Failure), ("c1", InProgress), ("", Success)];
        let counts = ReportCounts { total: 5, succeeded: 1, failed: 0, in_progress: 4 };
        assert_eq!(tally(&waiting).counts, counts, "reports of earlier commits do not count");
        let expected = "1 of 5 Reconcilers report success; waiting for drone-1, drone-2, drone-3, drone-4";
        assert_eq!(verdict(&waiting, None), Verdict::Waits(expected.to_owned()));
        let Verdict::Waits(why) = verdict(&[], None) else { panic!("nobody reports") };
        assert!(why.starts_with("no Reconciler of namespace drones has a manifestsEndpoint in gitops/dev"), "{why}");
    }

    #[test]
    fn failure_names_reconciler_and_message() {
        use DeploymentStatus::{Failure, Success};
        let expected = "Reconciler drone-1 reports failure of c1: no image";
        assert_eq!(verdict(&[("c1", Success), ("c1", Failure)], None), Verdict::Failed(expected.to_owned()));
        let Verdict::Failed(why) = verdict(&[("c1", Failure); 7], None) else { panic!("all failed") };
        assert!(why.ends_with("drone-4 reports failure of c1: no image, and 2 more"), "{why}");
    }

    #[test]
    fn share_of_successes_tolerates_failures() {
        use DeploymentStatus::{Failure, InProgress, Success};
        let reports = |last: DeploymentStatus| [("c1", Success), ("c1", Success), ("c1", Failure), ("c1", last)];
        assert_eq!(verdict(&reports(Success), Some(75)), Verdict::Passed);
        assert!(matches!(verdict(&reports(InProgress), Some(75)), Verdict::Waits(_)), "three of four are possible");
        assert!(matches!(verdict(&reports(Failure), Some(75)), Verdict::Failed(_)));
        assert!(matches!(verdict(&reports(InProgress), Some(76)), Verdict::Failed(_)), "three of four do not suffice");
    }
}
