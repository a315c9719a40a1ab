//! `deploymentqueries/rows`: the history of deployments, their numbers, the differences of two environments, and rollouts, as
//! tables.
//!
//! A table is a list of objects with the same fields, which data sources of Grafana for JSON read as it is.

mod counted;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stoa_hub::{
    Transition,
    segment::Filter,
    tables::{Newest, Rollout, Rollouts},
};
use stoa_kinds::hub::{
    deployment_query::{self, COUNTS, DIFFERENCES, HISTORY},
    descriptors,
};
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
    status::FieldError,
};
use stoa_types::{
    DurationString,
    hub::{DeploymentDescriptor, DeploymentQuery, DeploymentState, Reconciler},
    names,
};

use self::counted::Counted;
use super::{
    format::{Format, bad_parameter},
    non_empty,
};
use crate::hub::{Found, HubService};

const FORMATS: &[Format<Vec<Value>>] = &[Format::Json, Format::Yaml];
/// The default of `since`.
const SINCE: &str = "7d";
/// The default and the most of `limit`.
const LIMIT: usize = 1000;
const MOST: usize = 100_000;

/// The rows of a query.
pub(super) async fn rows(hub: HubService, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
    let format = Format::choose(&call, FORMATS)?;
    if !deployment_query::exists(&call.name) {
        let (group, plural) = (names::group::<DeploymentQuery>(), names::plural::<DeploymentQuery>());
        return Err(ApiError::not_found(group, plural, &call.name));
    }
    let rows = match call.name.as_str() {
        COUNTS => counts(&hub, &call).await?,
        HISTORY => history(&hub, &call).await?,
        DIFFERENCES => differences(&hub, &call).await?,
        _ => lag(&hub, &call).await?,
    };
    format.write(&call, &rows)
}

/// A time of a parameter: RFC 3339, or a duration before now, in days too.
fn moment(query: &[(String, String)], name: &str, default: &str, now: Timestamp) -> Result<Timestamp, ApiError> {
    let text = non_empty(query, name).unwrap_or(default);
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u16>().ok());
    let before = match days {
        Some(days) => Some(SignedDuration::from_hours(24 * i64::from(days))),
        None => DurationString::from(text).parse().ok().and_then(|before| SignedDuration::try_from(before).ok()),
    };
    before.and_then(|before| now.checked_sub(before).ok()).ok_or_else(|| {
        let detail = "it is a time such as 2026-01-31T12:00:00Z, or a duration before now such as 30d or 12h";
        bad_parameter(&FieldError::invalid(name, text, detail))
    })
}

fn filter(call: &SubresourceCall) -> Result<Filter, ApiError> {
    let now = Timestamp::now();
    let since = moment(&call.query, "since", SINCE, now)?;
    let until = moment(&call.query, "until", "0s", now)?;
    let text = |name: &str| non_empty(&call.query, name).map(str::to_owned);
    Ok(Filter {
        times: (since.as_microsecond(), until.as_microsecond()),
        host: text("host"),
        reconciler: text("reconciler"),
        endpoints: None,
        has_details: true,
    })
}

fn limit(call: &SubresourceCall) -> Result<usize, ApiError> {
    let Some(text) = non_empty(&call.query, "limit") else { return Ok(LIMIT) };
    let limit = text.parse::<usize>().ok().filter(|limit| (1..=MOST).contains(limit));
    limit.ok_or_else(|| {
        let detail = format!("it is a number from 1 to {MOST}");
        bad_parameter(&FieldError::invalid("limit", text, detail))
    })
}

/// What a reader has collected. Segments that cannot be read become warnings.
fn warned<T>(call: &SubresourceCall, found: Found<T>) -> T {
    for problem in found.problems {
        call.context.warn(format!("the history is incomplete: {problem}"));
    }
    found.collected
}

fn time(micros: i64) -> String {
    Timestamp::from_microsecond(micros).unwrap_or_default().to_string()
}

/// The descriptors of a namespace.
struct Descriptors(Arc<descriptors::Descriptors>);

/// A descriptor and the version of a commit.
struct Described<'d> {
    descriptor: &'d DeploymentDescriptor,
    version: String,
}

impl Descriptors {
    async fn read(hub: &HubService, namespace: &str) -> Result<Self, ApiError> {
        let lookup = &hub.services().lookup;
        lookup.api::<DeploymentDescriptor>()?.store().reach_current().await?;
        Ok(Self(hub.memory().descriptors(lookup, namespace).await?))
    }

    /// The endpoints that may have rows of the wanted environment and workload; `None` where all are wanted.
    fn endpoints(&self, call: &SubresourceCall) -> Option<HashSet<String>> {
        let (environment, workload) = (non_empty(&call.query, "environment"), non_empty(&call.query, "workload"));
        if environment.is_none() && workload.is_none() {
            return None;
        }
        let is_wanted = |descriptor: &&DeploymentDescriptor| {
            environment.is_none_or(|wanted| descriptor.spec.deployment_target.environment == wanted)
                && workload.is_none_or(|wanted| descriptor.spec.workload.name == wanted)
        };
        Some(self.0.all().filter(is_wanted).map(|descriptor| descriptor.spec.endpoint()).collect())
    }

    /// The descriptor with a commit; without one, a descriptor of the endpoint, and no version.
    fn of(&self, endpoint: &str, commit: &str) -> Option<Described<'_>> {
        let candidates = self.0.of(endpoint);
        let with_commit = candidates.iter().find_map(|descriptor| {
            let mut assigned = descriptor.status.iter().flat_map(|status| &status.assigned_versions);
            let assigned = assigned.find(|it| it.git_ops_commit_id == commit)?;
            Some(Described { descriptor, version: assigned.version.clone() })
        });
        with_commit.or_else(|| {
            let descriptor = candidates.first()?;
            Some(Described { descriptor, version: String::new() })
        })
    }
}

/// The fields of a row that say what is deployed.
fn described(described: Option<&Described<'_>>) -> Value {
    let spec = described.map(|of| of.descriptor.spec.clone()).unwrap_or_default();
    json!({
        "workspace": spec.workload.application.workspace.name,
        "application": spec.workload.application.name,
        "workload": spec.workload.name,
        "deploymentTarget": spec.deployment_target.name,
        "environment": spec.deployment_target.environment,
        "version": described.map(|of| of.version.clone()).unwrap_or_default(),
    })
}

/// A row with the fields of two objects.
fn joined(mut row: Value, more: Value) -> Value {
    if let (Some(row), Value::Object(more)) = (row.as_object_mut(), more) {
        row.extend(more);
    }
    row
}

async fn history(hub: &HubService, call: &SubresourceCall) -> Result<Vec<Value>, ApiError> {
    let (filter, limit) = (filter(call)?, limit(call)?);
    let found = hub.collect(&call.namespace, filter, Newest::new(limit)).await?;
    let transitions = warned(call, found).into_rows();
    let descriptors = Descriptors::read(hub, &call.namespace).await?;
    let row = |row: Transition| {
        let of = descriptors.of(&row.endpoint, &row.commit);
        let fields = json!({
            "time": time(row.time),
            "host": &*row.host,
            "reconciler": &*row.reconciler,
            "gitOpsCommitId": &*row.commit,
            "status": &*row.status,
            "statusMessage": &*row.message,
        });
        joined(fields, described(of.as_ref()))
    };
    Ok(transitions.into_iter().map(row).collect())
}

async fn lag(hub: &HubService, call: &SubresourceCall) -> Result<Vec<Value>, ApiError> {
    let (mut filter, limit) = (filter(call)?, limit(call)?);
    let descriptors = Descriptors::read(hub, &call.namespace).await?;
    filter.endpoints = descriptors.endpoints(call);
    filter.has_details = false;
    let found = hub.collect(&call.namespace, filter, Rollouts::default()).await?;
    let rollouts = warned(call, found).finish();
    let rollouts = rollouts.map_err(|error| {
        let message = format!("since: {error}, or for one environment or workload");
        ApiError::new(422, "Invalid", message)
    })?;
    let row = |rollout: Rollout| {
        joined(described(descriptors.of(&rollout.endpoint, &rollout.commit).as_ref()), lags(&rollout))
    };
    let is_wanted = |row: &Value| {
        let is = |name: &str| non_empty(&call.query, name).is_none_or(|wanted| row[name] == wanted);
        is("environment") && is("workload")
    };
    Ok(rollouts.into_iter().map(row).filter(is_wanted).take(limit).collect())
}

#[expect(clippy::cast_precision_loss, reason = "seconds for people")]
fn lags(rollout: &Rollout) -> Value {
    let seconds = |position: usize| rollout.lags.map(|lags| lags[position] as f64 / 1e6);
    json!({
        "gitOpsCommitId": &*rollout.commit,
        "start": time(rollout.start),
        "end": rollout.end.map(time),
        "reconcilers": rollout.reconcilers,
        "succeeded": rollout.succeeded,
        "failed": rollout.failed,
        "p50Seconds": seconds(0),
        "p90Seconds": seconds(1),
        "maxSeconds": seconds(2),
    })
}

async fn counts(hub: &HubService, call: &SubresourceCall) -> Result<Vec<Value>, ApiError> {
    let lookup = &hub.services().lookup;
    lookup.api::<Reconciler>()?.store().reach_current().await?;
    let text = |name: &str| non_empty(&call.query, name).map(str::to_owned);
    let counted = Counted::new(text("environment"), text("workload"));
    let counted = hub.memory().fold_states(lookup, &call.namespace, counted, Counted::add).await?;
    Ok(counted.into_rows())
}

/// The deployments of a workload in an environment.
#[derive(Debug, Default)]
struct InEnvironment {
    versions: BTreeSet<String>,
    hosts: BTreeSet<String>,
}

impl InEnvironment {
    fn add(&mut self, state: DeploymentState) {
        let status = state.status.unwrap_or_default();
        self.hosts.insert(state.spec.host);
        // A commit without a version is still what is there.
        let version = if status.version.is_empty() { status.git_ops_commit_id } else { status.version };
        if !version.is_empty() {
            self.versions.insert(version);
        }
    }

    fn versions(&self) -> String {
        self.versions.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

async fn differences(hub: &HubService, call: &SubresourceCall) -> Result<Vec<Value>, ApiError> {
    let required = |name: &str| {
        let missing = || bad_parameter(&FieldError::required(name, "the name of an environment"));
        non_empty(&call.query, name).ok_or_else(missing)
    };
    let environments = [required("environment")?, required("with")?].map(str::to_owned);
    let lookup = &hub.services().lookup;
    lookup.api::<Reconciler>()?.store().reach_current().await?;
    let compared = Compared { environments, found: BTreeMap::new() };
    let compared = hub.memory().fold_states(lookup, &call.namespace, compared, Compared::add).await?;
    Ok(compared.into_rows())
}

/// The deployments of two environments.
#[derive(Debug)]
struct Compared {
    environments: [String; 2],
    /// By workspace, application and workload.
    found: BTreeMap<[String; 3], [InEnvironment; 2]>,
}

impl Compared {
    fn add(&mut self, state: DeploymentState) {
        let spec = &state.spec;
        let key = [spec.workspace.clone(), spec.application.clone(), spec.workload.clone()];
        for (position, environment) in self.environments.iter().enumerate() {
            if spec.environment == *environment {
                self.found.entry(key.clone()).or_default()[position].add(state.clone());
            }
        }
    }

    /// One row for each workload of either environment.
    fn into_rows(self) -> Vec<Value> {
        let row = |([workspace, application, workload], [one, other]): ([String; 3], [InEnvironment; 2])| {
            json!({
                "workspace": workspace,
                "application": application,
                "workload": workload,
                "versions": one.versions(),
                "hosts": one.hosts.len(),
                "otherVersions": other.versions(),
                "otherHosts": other.hosts.len(),
                "isSame": one.versions == other.versions,
            })
        };
        self.found.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use stoa_types::hub::{DeploymentStateSpec, DeploymentStateStatus};

    use super::*;

    #[test]
    fn times_are_moments_or_durations_before_now() {
        let now = "2026-02-01T00:00:00Z".parse::<Timestamp>().unwrap();
        let read = |text: &str| {
            let query = [("since".to_owned(), text.to_owned())];
            moment(&query, "since", SINCE, now).map(|time| time.to_string())
        };
        assert_eq!(read("").unwrap(), "2026-01-25T00:00:00Z");
        assert_eq!(read("1d").unwrap(), "2026-01-31T00:00:00Z");
        assert_eq!(read("90m").unwrap(), "2026-01-31T22:30:00Z");
        assert_eq!(read("2026-01-02T03:04:05Z").unwrap(), "2026-01-02T03:04:05Z");
        for wrong in ["soon", "-1d", "99999d", "7"] {
            assert_eq!(read(wrong).unwrap_err().code(), 400, "{wrong}");
        }
    }

    #[test]
    fn environments_are_compared_by_workload() {
        let state = |workload: &str, environment: &str, host: &str, version: &str| DeploymentState {
            metadata: Default::default(),
            spec: DeploymentStateSpec {
                workload: workload.to_owned(),
                environment: environment.to_owned(),
                host: host.to_owned(),
                ..DeploymentStateSpec::default()
            },
            status: Some(DeploymentStateStatus { version: version.to_owned(), ..DeploymentStateStatus::default() }),
        };
        let states = vec![
            state("web", "dev", "a", "1.1"),
            state("web", "dev", "b", "1.0"),
            state("web", "prod", "c", "1.0"),
            state("api", "prod", "c", "2.0"),
            state("api", "dev", "a", "2.0"),
            state("db", "stage", "d", "3.0"),
        ];
        let environments = ["dev", "prod"].map(str::to_owned);
        let mut compared = Compared { environments, found: BTreeMap::new() };
        states.into_iter().for_each(|state| compared.add(state));
        let rows = compared.into_rows();
        let shown: Vec<_> =
            rows.iter().map(|row| (&row["workload"], &row["versions"], &row["otherVersions"])).collect();
        let (api, web) = ((json!("api"), json!("2.0")), (json!("web"), json!("1.0, 1.1"), json!("1.0")));
        assert_eq!(shown, [(&api.0, &api.1, &api.1), (&web.0, &web.1, &web.2)]);
        assert_eq!((&rows[0]["isSame"], &rows[1]["isSame"]), (&json!(true), &json!(false)));
        assert_eq!((&rows[1]["hosts"], &rows[1]["otherHosts"]), (&json!(2), &json!(1)));
    }
}
