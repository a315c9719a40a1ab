//! Clusters with one Reconciler each, the descriptors of their workloads, and their deployments of the last 30 days.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::client::{Call, Endpoint};
use crate::load;
use crate::measure::Bench;
use crate::scene::Scene;
use crate::size::MANY_CLIENTS;

/// The environments, each with the same workloads.
pub(super) const ENVIRONMENTS: [&str; 2] = ["dev", "prod"];
/// The workloads of an environment.
const WORKLOADS: usize = 100;
/// The days of the history.
const DAYS: i64 = 30;
/// The most deployments of a report.
const MOST: usize = 1000;
/// Clients that report the history. The server works on 20,000 deployments at once.
const CLIENTS: usize = 16;
const API_VERSION: &str = "hub.kalypso.io/v1alpha1";

/// Clusters, by their numbers.
#[derive(Clone, Debug)]
pub(super) struct Clusters {
    pub(super) endpoint: Endpoint,
    pub(super) number: usize,
    /// The transitions of each before the first live report: each commit is in progress, and then succeeds.
    pub(super) transitions: usize,
    namespace: String,
    now: Timestamp,
}

impl Clusters {
    pub(super) fn new(bench: &Bench, scene: &Scene) -> Self {
        Self {
            endpoint: bench.bed.stoa.clone(),
            number: bench.size.reporting_clusters,
            transitions: bench.size.transitions_before,
            namespace: scene.name.clone(),
            now: Timestamp::now(),
        }
    }

    /// The path of a collection.
    pub(super) fn path(&self, plural: &str) -> String {
        format!("/apis/{API_VERSION}/namespaces/{}/{plural}", self.namespace)
    }

    pub(super) fn host(number: usize) -> String {
        format!("host-{number:06}")
    }

    pub(super) fn reconciler(number: usize) -> String {
        format!("host-{number:06}-app")
    }

    pub(super) fn workload(number: usize) -> String {
        format!("app-{:03}", number % WORKLOADS)
    }

    fn environment(number: usize) -> &'static str {
        ENVIRONMENTS[number / WORKLOADS % ENVIRONMENTS.len()]
    }

    /// The clusters with the workload and the environment of the first one.
    pub(super) fn like_the_first(&self) -> usize {
        (0..self.number).step_by(WORKLOADS * ENVIRONMENTS.len()).count()
    }

    /// A commit of the manifests of a cluster's workload in its environment.
    pub(super) fn commit(number: usize, version: usize) -> String {
        format!("{:08x}{version:032x}", number % (WORKLOADS * ENVIRONMENTS.len()))
    }

    /// The version that is deployed when the history ends.
    pub(super) fn last_version(&self) -> usize {
        (self.transitions / 2).saturating_sub(1)
    }

    fn create_reconciler(&self, number: usize) -> Call {
        let (environment, workload) = (Self::environment(number), Self::workload(number));
        let spec = json!({
            "hostName": Self::host(number), "reconcilerName": "app", "reconcilerType": "flux",
            "manifestsEndpoint": format!("https://git.example.com/{workload}/{environment}/main"),
        });
        let metadata = json!({"name": Self::reconciler(number)});
        let object = json!({"apiVersion": API_VERSION, "kind": "Reconciler", "metadata": metadata, "spec": spec});
        Call::post(self.path("reconcilers"), &object)
    }

    /// A descriptor that has the last version of the history.
    fn create_descriptor(&self, number: usize) -> Call {
        let (environment, workload) = (Self::environment(number), Self::workload(number));
        let manifests =
            json!({"repo": format!("https://git.example.com/{workload}"), "branch": environment, "path": "main"});
        let application = json!({"name": "shop", "workspace": {"name": "team"}});
        let spec = json!({
            "workload": {"name": workload, "source": manifests, "application": application},
            "deploymentTarget": {"name": "main", "environment": environment, "manifests": manifests},
            "workloadVersion": {"version": "1.0.0", "commit": "abc"},
        });
        let commit = Self::commit(number, self.last_version());
        let metadata = json!({
            "name": format!("{workload}-{environment}"), "annotations": {"stoa.dev/gitops-commit-id": commit},
        });
        let kind = "DeploymentDescriptor";
        let object = json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec});
        Call::post(self.path("deploymentdescriptors"), &object)
    }

    /// Creates all Reconcilers and descriptors; how long the Reconcilers took.
    pub(super) async fn create(&self) -> Result<Duration> {
        let this = self.clone();
        let descriptor = move |number| this.create_descriptor(number);
        load::all(&self.endpoint, MANY_CLIENTS, WORKLOADS * ENVIRONMENTS.len(), descriptor).await?;
        let this = self.clone();
        load::all(&self.endpoint, MANY_CLIENTS, self.number, move |number| this.create_reconciler(number)).await
    }

    /// A report of deployments.
    pub(super) fn report(&self, deployments: Vec<Value>) -> Call {
        let spec = json!({ "deployments": deployments });
        Call::post(
            self.path("deploymentreports"),
            &json!({"apiVersion": API_VERSION, "kind": "DeploymentReport", "spec": spec}),
        )
    }

    /// The deployments of a cluster in the last 30 days, but for the last hour.
    fn history(&self, number: usize) -> Vec<Value> {
        let hours = DAYS * 24 - 2;
        let deployment = |at: usize| {
            let at_seconds = hours * 3600 * at as i64 / self.transitions as i64;
            // Clusters do not change at the same second.
            let second = 3600 + at_seconds + (number % 3000) as i64;
            let time = self.now - SignedDuration::from_hours(DAYS * 24) + SignedDuration::from_secs(second);
            json!({
                "reconciler": Self::reconciler(number),
                "gitOpsCommitId": Self::commit(number, at / 2),
                "status": if at.is_multiple_of(2) { "in_progress" } else { "success" },
                "time": format!("{time:.6}"),
            })
        };
        (0..self.transitions).map(deployment).collect()
    }

    /// Reports the history of all clusters, of several at once; how long that took. Each segment of the archive then has 30 days,
    /// which is worse for queries than segments of clusters that report in time.
    pub(super) async fn report_history(&self) -> Result<Duration> {
        let (this, of_report) = (self.clone(), (MOST / self.transitions).max(1));
        let report = move |turn: usize| {
            let clusters = turn * of_report..((turn + 1) * of_report).min(this.number);
            this.report(clusters.flat_map(|number| this.history(number)).collect())
        };
        load::all(&self.endpoint, CLIENTS, self.number.div_ceil(of_report), report).await
    }
}
