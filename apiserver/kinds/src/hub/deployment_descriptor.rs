//! DeploymentDescriptor: a version of a workload, and the commits of the manifests that have it.

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    strategy::{Completion, Strategy},
};
use stoa_types::{
    hub::{AssignedVersion, DeploymentDescriptor, DeploymentDescriptorStatus, WorkloadVersion},
    labels::GITOPS_COMMIT_ID,
};

use super::reconciler::to_micros;
use crate::{
    kind::Kind,
    rights::{MEMBERS, OBJECTS, OWNED, READ, READERS, right},
};

/// The most commits that a descriptor remembers.
const MAX_COMMITS: usize = 100;

/// The kind DeploymentDescriptor.
pub(crate) static KIND: Kind = Kind {
    definition,
    register: |builder, definition, _| builder.register(definition, DescriptorStrategy),
    rights: &[right(READERS, OBJECTS, READ), right(MEMBERS, &["status"], READ), OWNED],
    ..Kind::of::<DeploymentDescriptor>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<DeploymentDescriptor>()
        .columns(&[
            Column::new("Workload", Cell::Path(&["spec", "workload", "name"]), "The workload."),
            Column::new("Target", Cell::Path(&["spec", "deploymentTarget", "name"]), "The deployment target."),
            Column::new("Environment", Cell::Path(&["spec", "deploymentTarget", "environment"]), "The environment."),
            Column::new("Version", Cell::Path(&["spec", "workloadVersion", "version"]), "The version."),
            Column::new("Commit", Cell::Path(&["status", "gitOpsCommitId"]), "The commit of the manifests."),
            Column::age(),
        ])
        .selectable(&[
            SelectableField { name: "spec.workload.name", path: &["spec", "workload", "name"] },
            SelectableField {
                name: "spec.deploymentTarget.environment",
                path: &["spec", "deploymentTarget", "environment"],
            },
            SelectableField { name: "spec.workloadVersion.version", path: &["spec", "workloadVersion", "version"] },
        ])
}

/// Sets the commit that the annotation has, and remembers a new commit with the version of now.
fn assign(new: &mut DeploymentDescriptor, old: Option<&DeploymentDescriptorStatus>) {
    let annotations = new.metadata.annotations.as_ref();
    let annotated = annotations.and_then(|all| all.get(GITOPS_COMMIT_ID)).filter(|commit| !commit.is_empty()).cloned();
    if annotated.is_none() && new.status.is_none() {
        return;
    }
    let status = new.status.get_or_insert_default();
    if let Some(commit) = annotated {
        status.git_ops_commit_id = commit;
    }
    // The list is the server's.
    status.assigned_versions = old.map(|old| old.assigned_versions.clone()).unwrap_or_default();
    let commit = &status.git_ops_commit_id;
    if commit.is_empty() || status.assigned_versions.iter().any(|known| known.git_ops_commit_id == *commit) {
        return;
    }
    let WorkloadVersion { version, build, commit: source, .. } = new.spec.workload_version.clone();
    status.assigned_versions.push(AssignedVersion {
        git_ops_commit_id: commit.clone(),
        version,
        build,
        commit: source,
        time: MicroTime(to_micros(Timestamp::now())),
    });
    let surplus = status.assigned_versions.len().saturating_sub(MAX_COMMITS);
    status.assigned_versions.drain(..surplus);
}

#[derive(Debug)]
struct DescriptorStrategy;

#[async_trait]
impl Strategy for DescriptorStrategy {
    type Object = DeploymentDescriptor;

    fn completes(&self) -> bool {
        true
    }

    async fn complete(&self, _: &RequestContext, change: Completion<'_, DeploymentDescriptor>) -> Result<(), ApiError> {
        match change {
            Completion::Create(new) => assign(new, None),
            Completion::Update { new, old, .. } => assign(new, old.status.as_ref()),
            Completion::Delete(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_commit_is_remembered_with_its_version() {
        let mut descriptor = DeploymentDescriptor::default();
        assign(&mut descriptor, None);
        assert_eq!(descriptor.status, None);
        for (version, commit) in [("1.0", "c1"), ("1.1", "c2"), ("1.1", "c2")] {
            descriptor.spec.workload_version.version = version.to_owned();
            let old = descriptor.status.clone();
            let annotations = descriptor.metadata.annotations.get_or_insert_default();
            annotations.insert(GITOPS_COMMIT_ID.to_owned(), commit.to_owned());
            assign(&mut descriptor, old.as_ref());
        }
        let status = descriptor.status.clone().unwrap();
        let versions: Vec<_> =
            status.assigned_versions.iter().map(|it| (it.git_ops_commit_id.as_str(), it.version.as_str())).collect();
        assert_eq!(versions, [("c1", "1.0"), ("c2", "1.1")]);

        // A client that writes the status sets the commit, and cannot drop what is remembered.
        descriptor.metadata.annotations = None;
        let written = DeploymentDescriptorStatus { git_ops_commit_id: "c3".to_owned(), ..Default::default() };
        descriptor.status = Some(written);
        assign(&mut descriptor, Some(&status));
        assert_eq!(descriptor.status.unwrap().assigned_versions.len(), 3);
    }
}
