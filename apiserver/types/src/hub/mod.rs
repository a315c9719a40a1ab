//! `hub.kalypso.io/v1alpha1`: which version of a workload is on which cluster, by the names of Kalypso's observability hub.
//!
//! A [`DeploymentDescriptor`] says what a version of a workload is, a [`Reconciler`] stands for a reconciler of a host. Clusters
//! send a [`DeploymentReport`]. [`DeploymentState`] and [`DeploymentQuery`] are computed. All kinds are namespaced.

mod deployment_descriptor;
mod deployment_query;
mod deployment_report;
mod deployment_state;
mod reconciler;
#[cfg(test)]
mod tests;

pub use deployment_descriptor::{
    Application, AssignedVersion, DeploymentDescriptor, DeploymentDescriptorSpec, DeploymentDescriptorStatus,
    DescribedTarget, DescribedWorkload, WorkloadVersion, Workspace,
};
pub use deployment_query::{DeploymentQuery, DeploymentQuerySpec, QueryParameter};
pub use deployment_report::{
    DeploymentReport, DeploymentReportSpec, DeploymentReportStatus, MAX_REPORTED_DEPLOYMENTS, ReportWarning,
    ReportedDeployment,
};
pub use deployment_state::{DeploymentState, DeploymentStateSpec, DeploymentStateStatus};
pub use reconciler::{
    Deployment, DeploymentStatus, ObservedDeployment, Reconciler, ReconcilerSpec, ReconcilerStatus, Transition,
};

/// The endpoint of a folder of manifests, by which descriptors and reconcilers find each other: repository, branch and folder,
/// joined by `/`. Spellings of the same folder (`./web`, `web/`, `.`) give the same endpoint.
pub fn manifests_endpoint(repo: &str, branch: &str, path: &str) -> String {
    normal_endpoint(&format!("{}/{branch}/{path}", repo.trim_end_matches('/')))
}

/// An endpoint as [`manifests_endpoint`] writes it: without segments `.`, and without `/` at the end.
pub fn normal_endpoint(endpoint: &str) -> String {
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("", endpoint));
    let segments: Vec<&str> = rest.split('/').filter(|segment| !matches!(*segment, "" | ".")).collect();
    let joined = segments.join("/");
    if scheme.is_empty() { joined } else { format!("{scheme}://{joined}") }
}
