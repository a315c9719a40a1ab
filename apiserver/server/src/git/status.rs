//! Reports the state of the projection: in metrics, in the condition `Recorded` of every Organization, and in Events.
//!
//! The condition reports a remote that is unavailable for long. Health checks ignore the remote: the server works without it, so
//! no check may take the server out of service.
//!
//! Start at [`count`] for metrics and [`tell`] for conditions.

use std::time::Duration;

use kube::ResourceExt as _;
use prometheus::{IntCounter, IntGauge, Registry};
use stoa_control_repo::GitStatus;
use stoa_controller::{
    conditions::set_condition,
    events::{Kind, Recorder},
};
use stoa_machinery::{ApiError, registry::Api};
use stoa_types::{Organization, reason};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The interval of checks, unless the patience is shorter. During a problem each check reads all organizations from memory
/// and writes changed conditions: some may be new.
const LOOK: Duration = Duration::from_secs(10);
/// The message without problems.
const RECORDED: &str = "what was decided is in the remote of the control repository";
/// The message without a remote, for organizations that had one.
pub(super) const RECORDED_HERE: &str = "what was decided is in the control repository, which has no remote";

/// The metrics of the projection in the replica that leads.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    backlog: IntGauge,
    failing: IntGauge,
    remote_up: IntGauge,
    commits: IntCounter,
    ingested: IntCounter,
    remote_pushes: IntCounter,
}

impl Metrics {
    /// # Errors
    ///
    /// When they are registered already.
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        Ok(Self {
            backlog: gauge("stoa_git_backlog_records", "Records of the log that are not looked at for Git yet.")?,
            failing: gauge("stoa_git_failing", "1 while the projection to Git is not getting on.")?,
            remote_up: gauge(
                "stoa_git_remote_up",
                "1 while the remote of the control repository can be used, 0 while it cannot or there is none.",
            )?,
            commits: counter("stoa_git_commits_total", "Commits made of records.")?,
            ingested: counter("stoa_git_ingested_pushes_total", "Pushes of others that were applied.")?,
            remote_pushes: counter("stoa_git_remote_pushes_total", "Pushes to the remote of the control repository.")?,
        })
    }
}

/// Keeps the metrics in step with the status until the term ends.
pub(super) async fn count(
    mut status: watch::Receiver<GitStatus>,
    metrics: Metrics,
    has_remote: bool,
    end: CancellationToken,
) {
    let mut before = GitStatus::default();
    loop {
        let now = status.borrow_and_update().clone();
        metrics.backlog.set(i64::try_from(now.backlog).unwrap_or(i64::MAX));
        metrics.failing.set(now.error.is_some().into());
        metrics.remote_up.set((has_remote && now.commit.is_some() && now.remote_problem.is_none()).into());
        metrics.commits.inc_by(now.commits.saturating_sub(before.commits));
        metrics.ingested.inc_by(now.pushes.saturating_sub(before.pushes));
        metrics.remote_pushes.inc_by(now.remote_pushes.saturating_sub(before.remote_pushes));
        before = now;
        if !matches!(end.run_until_cancelled(status.changed()).await, Some(Ok(()))) {
            // The next leader shows them.
            for gauge in [&metrics.backlog, &metrics.failing, &metrics.remote_up] {
                gauge.set(0);
            }
            return;
        }
    }
}

/// The recipients of reports about the remote.
pub(super) struct Audience {
    pub(super) organizations: Api<Organization>,
    /// Takes Events.
    pub(super) recorder: Recorder,
}

/// Reports to organizations when the remote is unavailable for long, and when it is back, until the term ends.
pub(super) async fn tell(
    status: watch::Receiver<GitStatus>,
    audience: Audience,
    has_remote: bool,
    patience: Duration,
    end: CancellationToken,
) {
    let well = if has_remote { RECORDED } else { RECORDED_HERE };
    tell_with(status, audience, well, end, patience, patience.min(LOOK)).await;
}

pub(super) async fn tell_with(
    status: watch::Receiver<GitStatus>,
    audience: Audience,
    well: &str,
    end: CancellationToken,
    patience: Duration,
    look: Duration,
) {
    // An earlier leader may have reported a problem.
    let (mut since, mut all_know) = (None, false);
    while end.run_until_cancelled(tokio::time::sleep(look)).await.is_some() {
        let (problem, message, works) = {
            let status = status.borrow();
            (status.remote_problem, status.error.clone().unwrap_or_default(), status.commit.is_some())
        };
        let said = match problem {
            Some(problem) => {
                let since = *since.get_or_insert_with(tokio::time::Instant::now);
                if since.elapsed() < patience {
                    continue;
                }
                (false, problem, format!("what is decided is kept, and pushed when the remote is back: {message}"))
            }
            // Nothing is known yet, or nothing new.
            None if !works || all_know => continue,
            None => {
                since = None;
                (true, reason::AVAILABLE, well.to_owned())
            }
        };
        match audience.tell(&said).await {
            Ok(()) => all_know = said.0,
            Err(error) => {
                all_know = false;
                tracing::warn!(%error, "organizations are not told how the remote of the control repository is");
            }
        }
    }
}

impl Audience {
    /// Sets the condition where it differs, and records an Event there. The message of a problem stays while the problem
    /// lasts.
    async fn tell(&self, said: &(bool, &str, String)) -> Result<(), ApiError> {
        let (is_recorded, why, message) = said;
        for organization in self.organizations.list(None, "").await? {
            let conditions = organization.status.as_ref().map_or(&[][..], |status| &status.conditions);
            let told = conditions.iter().find(|condition| condition.type_ == reason::RECORDED);
            let is_said = match told {
                Some(told) => (told.status == "True") == *is_recorded && told.reason == *why,
                // An organization without a reported problem needs no report of its end.
                None => *is_recorded,
            };
            if is_said || organization.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let change = |organization: &mut Organization| {
                let generation = organization.metadata.generation;
                let status = organization.status.get_or_insert_default();
                set_condition(&mut status.conditions, reason::RECORDED, *is_recorded, why, message.clone(), generation);
            };
            match self.organizations.update_status_with("", &organization.name_any(), change).await {
                Err(error) if error.code() == 404 => continue,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            // Without a condition beside it, the reason of an Event has to name its subject.
            let (kind, why) = if *is_recorded { (Kind::Normal, reason::RECORDED) } else { (Kind::Warning, *why) };
            self.recorder.record(&organization, kind, why, message.as_str());
        }
        Ok(())
    }
}
