//! DeploymentReport: the answer to the reports of clusters.
//!
//! Nothing of this kind is stored. A report is checked whole before any of it is recorded. Transitions are durable before the
//! answer. Repeated states change the memory of this replica alone.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use async_trait::async_trait;
use futures_util::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use stoa_machinery::{
    ApiError, Object, RequestContext, ResourceDefinition, definition::CreateHandler, registry::Api, status::FieldError,
    strategy::DefaultStrategy,
};
use stoa_types::hub::{
    DeploymentReport, DeploymentReportSpec, DeploymentReportStatus, MAX_REPORTED_DEPLOYMENTS, Reconciler,
    ReportWarning, ReportedDeployment, Transition, normal_endpoint,
};

use super::{
    memory::Hub,
    reconciler::{MAX_WAITING, is_full, record, to_micros},
};
use crate::{
    errors,
    kind::{Kind, Surroundings},
    lookup::Lookup,
    rights::{OBJECTS, Role, right},
};

/// How far a clock of a cluster may be ahead without a warning.
const AHEAD: SignedDuration = SignedDuration::from_mins(10);
/// How many Reconcilers are written at once.
const AT_ONCE: usize = 16;

/// The kind DeploymentReport.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, hub, .. }| {
        let definition = definition.ephemeral(Arc::new(Reports { lookup, hub }));
        builder.register(definition, DefaultStrategy::<DeploymentReport>::default())
    },
    rights: &[right(&[Role::Owner], OBJECTS, &["create"])],
    ..Kind::of::<DeploymentReport>()
};

fn definition() -> ResourceDefinition {
    let mut definition = ResourceDefinition::of::<DeploymentReport>();
    definition.has_status = false;
    definition.verbs = vec!["create"];
    definition
}

/// Answers reports.
#[derive(Debug)]
struct Reports {
    lookup: Lookup,
    hub: Hub,
}

/// The reported deployments of one Reconciler, in the order of their times, with their positions in the report.
type OfReconciler = Vec<(usize, Transition)>;

/// The transitions of one Reconciler that a report brings.
#[derive(Debug)]
struct Change {
    reconciler: String,
    endpoint: String,
    deployments: OfReconciler,
}

fn field(position: usize, name: &str) -> String {
    format!("spec.deployments[{position}].{name}")
}

fn warning(position: usize, name: &str, reason: &str, message: String) -> ReportWarning {
    ReportWarning { field: field(position, name), reason: reason.to_owned(), message }
}

/// The deployments by Reconciler. A time in the future becomes now; one before the retention is left out.
fn by_reconciler(
    spec: &DeploymentReportSpec,
    now: Timestamp,
    retention: SignedDuration,
    warnings: &mut Vec<ReportWarning>,
) -> BTreeMap<String, OfReconciler> {
    let mut found = BTreeMap::<String, OfReconciler>::new();
    for (position, deployment) in spec.deployments.iter().enumerate() {
        let ReportedDeployment { reconciler, git_ops_commit_id, status, status_message, time } = deployment.clone();
        let reported = time.map_or(now, |time| to_micros(time.0));
        let ahead = reported.duration_since(now);
        if ahead > AHEAD {
            let message =
                format!("{reported} is in the future and is recorded as {now}; check the clock of the cluster");
            warnings.push(warning(position, "time", "TimeInFuture", message));
        }
        let of = found.entry(reconciler).or_default();
        if -ahead > retention {
            let message = format!("{reported} is before the retention of the archive and is not recorded");
            warnings.push(warning(position, "time", "OlderThanRetention", message));
            continue;
        }
        let time = MicroTime(reported.min(now));
        of.push((position, Transition { time, git_ops_commit_id, status, status_message }));
    }
    // Equal times stay in the order of the report.
    found.values_mut().for_each(|of| of.sort_by(|a, b| a.1.time.cmp(&b.1.time)));
    found
}

fn transitions(deployments: &OfReconciler) -> Vec<Transition> {
    deployments.iter().map(|(_, transition)| transition.clone()).collect()
}

fn check(spec: &DeploymentReportSpec) -> Vec<FieldError> {
    let count = spec.deployments.len();
    if count == 0 {
        return vec![FieldError::required("spec.deployments", "a report has at least one deployment")];
    }
    if count > MAX_REPORTED_DEPLOYMENTS {
        let detail = format!("a report has at most {MAX_REPORTED_DEPLOYMENTS} deployments; send several reports");
        return vec![FieldError::invalid("spec.deployments", count, detail)];
    }
    let mut counts = BTreeMap::<&str, usize>::new();
    for deployment in &spec.deployments {
        *counts.entry(&deployment.reconciler).or_default() += 1;
    }
    let surplus = counts.into_iter().filter(|(_, count)| *count > MAX_WAITING);
    surplus
        .map(|(reconciler, count)| {
            let detail = format!(
                "{count} deployments are of reconciler {reconciler:?}; a report has at most {MAX_WAITING} of each"
            );
            FieldError::invalid("spec.deployments", count, detail)
        })
        .collect()
}

/// A Reconciler as the watch cache has it.
async fn cached(api: &Api<Reconciler>, namespace: &str, name: &str) -> Result<Option<Reconciler>, ApiError> {
    match api.store().get(namespace, name, Some("0")).await {
        Ok(stored) => stored.decode().map(Some).map_err(ApiError::internal),
        Err(error) if error.code() == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

#[async_trait]
impl CreateHandler for Reports {
    async fn create(&self, context: &RequestContext, object: Object) -> Result<Object, ApiError> {
        let mut report: DeploymentReport =
            object.to_typed().map_err(|error| ApiError::bad_request(error.to_string()))?;
        let status = self.receive(context, (object.namespace(), object.name()), &report.spec).await?;
        report.status = Some(status);
        Object::from_typed(&report).map_err(ApiError::internal)
    }
}

impl Reports {
    /// Records a report.
    async fn receive(
        &self,
        context: &RequestContext,
        (namespace, name): (&str, &str),
        spec: &DeploymentReportSpec,
    ) -> Result<DeploymentReportStatus, ApiError> {
        let errors = check(spec);
        if !errors.is_empty() {
            return Err(errors::invalid::<DeploymentReport>(name, &errors));
        }
        let Some(_room) = self.hub.room(spec.deployments.len()) else {
            let message = "the server works on too many reports; send the report again later";
            return Err(ApiError::too_many_requests(message, 1));
        };
        let now = to_micros(Timestamp::now());
        let mut status = DeploymentReportStatus::default();
        let reported = by_reconciler(spec, now, self.hub.retention(), &mut status.warnings);
        let api = self.lookup.api::<Reconciler>()?.with_context(RequestContext::internal("hub"));
        let (changes, heartbeats) = self.changes(&api, (namespace, name), &reported, now).await?;
        let all: usize = reported.values().map(Vec::len).sum();
        status.heartbeats = i64::try_from(heartbeats).unwrap_or(i64::MAX);
        status.transitions = i64::try_from(all - heartbeats).unwrap_or(i64::MAX);
        if !changes.is_empty() {
            status.warnings.extend(self.unknown_commits(namespace, &changes).await?);
        }
        if context.dry_run {
            return Ok(status);
        }
        for some in changes.chunks(AT_ONCE) {
            let writes: Vec<_> = some.iter().map(|change| self.write(&api, namespace, change, now)).collect();
            try_join_all(writes).await?;
        }
        self.hub.note(namespace, reported.keys(), now);
        Ok(status)
    }

    /// The Reconcilers that a report changes, and the number of deployments that change nothing.
    async fn changes(
        &self,
        api: &Api<Reconciler>,
        (namespace, name): (&str, &str),
        reported: &BTreeMap<String, OfReconciler>,
        now: Timestamp,
    ) -> Result<(Vec<Change>, usize), ApiError> {
        // One wait for the latest writes, and not one for each Reconciler.
        api.store().reach_current().await?;
        let (mut changes, mut heartbeats) = (Vec::new(), 0);
        let (mut errors, mut full) = (Vec::new(), None);
        for (of, deployments) in reported {
            let Some(reconciler) = cached(api, namespace, of).await? else {
                let position = deployments.first().map_or(0, |(position, _)| *position);
                errors.push(FieldError::not_found(field(position, "reconciler"), of));
                continue;
            };
            let mut status = reconciler.status.unwrap_or_default();
            let recorded = record(&mut status, &transitions(deployments), now);
            heartbeats += recorded.heartbeats;
            if recorded.transitions == 0 {
                continue;
            }
            if status.transitions.len() > MAX_WAITING {
                full = Some(of);
            }
            if status.transitions.len() > MAX_WAITING / 2 {
                self.hub.ask_for_archive();
            }
            let endpoint = normal_endpoint(&reconciler.spec.manifests_endpoint);
            changes.push(Change { reconciler: of.clone(), endpoint, deployments: deployments.clone() });
        }
        if !errors.is_empty() {
            return Err(errors::invalid::<DeploymentReport>(name, &errors));
        }
        match full {
            Some(reconciler) => Err(is_full(&self.hub, reconciler)),
            None => Ok((changes, heartbeats)),
        }
    }

    /// Writes the transitions of one Reconciler. One that was deleted meanwhile has none.
    async fn write(
        &self,
        api: &Api<Reconciler>,
        namespace: &str,
        change: &Change,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let reported = transitions(&change.deployments);
        let set = |reconciler: &mut Reconciler| {
            let status = reconciler.status.get_or_insert_default();
            record(status, &reported, now);
            if status.transitions.len() > MAX_WAITING {
                return Err(is_full(&self.hub, &change.reconciler));
            }
            Ok(())
        };
        match api.update_status_with(namespace, &change.reconciler, set).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == 404 => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Warnings for commits that no descriptor has. The descriptor may come later.
    async fn unknown_commits(&self, namespace: &str, changes: &[Change]) -> Result<Vec<ReportWarning>, ApiError> {
        let descriptors = self.hub.descriptors(&self.lookup, namespace).await?;
        let (mut seen, mut warnings) = (HashSet::new(), Vec::new());
        for Change { endpoint, deployments, .. } in changes {
            for (position, Transition { git_ops_commit_id: commit, .. }) in deployments {
                // One warning for each pair.
                if seen.insert((endpoint, commit)) && !descriptors.know(endpoint, commit) {
                    let message = format!("no DeploymentDescriptor of {endpoint} has commit {commit}; it is recorded");
                    warnings.push(warning(*position, "gitOpsCommitId", "UnknownCommit", message));
                }
            }
        }
        Ok(warnings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(reconciler: &str, second: Option<i64>) -> ReportedDeployment {
        ReportedDeployment {
            reconciler: reconciler.to_owned(),
            git_ops_commit_id: "c".to_owned(),
            time: second.map(|second| MicroTime(Timestamp::from_second(second).unwrap())),
            ..ReportedDeployment::default()
        }
    }

    #[test]
    fn deployments_are_sorted_and_wrong_times_are_reported() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let times = [None, Some(999_000), Some(1_000_300), Some(1_000_601), Some(1000)];
        let spec = DeploymentReportSpec { deployments: times.map(|time| deployment("web", time)).into() };
        let mut warnings = Vec::new();
        let found = by_reconciler(&spec, now, SignedDuration::from_hours(24), &mut warnings);
        let shown: Vec<_> = found["web"].iter().map(|(at, it)| (*at, it.time.0.as_second())).collect();
        assert_eq!(shown, [(1, 999_000), (0, 1_000_000), (2, 1_000_000), (3, 1_000_000)]);
        let shown: Vec<_> = warnings.iter().map(|it| (it.field.as_str(), it.reason.as_str())).collect();
        let expected =
            [("spec.deployments[3].time", "TimeInFuture"), ("spec.deployments[4].time", "OlderThanRetention")];
        assert_eq!(shown, expected);
    }

    #[test]
    fn report_is_bounded() {
        let of = |names: Vec<String>| {
            let deployments = names.iter().map(|name| deployment(name, None)).collect();
            check(&DeploymentReportSpec { deployments }).len()
        };
        assert_eq!(of(Vec::new()), 1);
        assert_eq!(of((0..1000).map(|at| format!("r{at}")).collect()), 0);
        assert_eq!(of((0..1001).map(|at| format!("r{at}")).collect()), 1);
        assert_eq!(of(vec!["web".to_owned(); 100]), 0);
        assert_eq!(of(vec!["web".to_owned(); 101]), 1);
    }
}
