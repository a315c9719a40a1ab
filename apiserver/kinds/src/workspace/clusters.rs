//! The clusters of a Workspace: their names and credentials.

use stoa_machinery::{content, status::FieldError};
use stoa_types::{
    common::SecretKeyReference,
    platform::{Cluster, KubernetesTarget, WorkspaceSpec},
};

use crate::validation;

const CLUSTERS: &str = "spec.kubernetes.clusters";

/// Finds what is wrong with the clusters.
pub(super) fn validate(target: &KubernetesTarget, errors: &mut Vec<FieldError>) {
    if target.clusters.is_empty() {
        errors.push(FieldError::required(CLUSTERS, "must have at least one cluster"));
    }
    for (i, cluster) in target.clusters.iter().enumerate() {
        let path = format!("{CLUSTERS}[{i}]");
        if cluster.name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if target.clusters[..i].iter().any(|c| c.name == cluster.name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &cluster.name));
        }
        access(&path, cluster.in_cluster, cluster.kubeconfig_secret_ref.as_ref(), errors);
    }
}

/// Finds what is wrong with how a cluster is reached.
pub(super) fn access(
    path: &str,
    in_cluster: bool,
    kubeconfig: Option<&SecretKeyReference>,
    errors: &mut Vec<FieldError>,
) {
    let field = format!("{path}.kubeconfigSecretRef");
    match (in_cluster, kubeconfig) {
        (true, Some(_)) => errors.push(FieldError::forbidden(field, "may not be set together with inCluster")),
        (false, None) => errors.push(FieldError::required(field, "kubeconfigSecretRef or inCluster must be set")),
        (true, None) | (false, Some(_)) => {}
    }
}

/// Finds names that are none, and references to kubeconfigs that lack a part. What a workspace has from before this was
/// refused keeps nobody from changing it.
pub(super) fn validate_new(new: &WorkspaceSpec, old: Option<&WorkspaceSpec>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (i, cluster) in clusters(new).enumerate() {
        let is_old = old.is_some_and(|old| clusters(old).any(|it| it.name == cluster.name));
        // That it has none is told by `validate`.
        if is_old || cluster.name.is_empty() {
            continue;
        }
        // It is a part of ids, behind a slash.
        let complaints = content::dns_label(&cluster.name);
        let path = format!("{CLUSTERS}[{i}].name");
        errors.extend(complaints.iter().map(|text| FieldError::invalid(path.clone(), &cluster.name, text)));
    }
    for (path, reference) in kubeconfigs(new) {
        let is_old = old.is_some_and(|old| kubeconfigs(old).any(|(_, it)| it == reference));
        if !is_old {
            validation::secret_key(&path, reference, &mut errors);
        }
    }
    errors
}

fn clusters(spec: &WorkspaceSpec) -> impl Iterator<Item = &Cluster> {
    spec.kubernetes.iter().flat_map(|kubernetes| &kubernetes.clusters)
}

/// The references to kubeconfigs, and where they are.
pub(super) fn kubeconfigs(spec: &WorkspaceSpec) -> impl Iterator<Item = (String, &SecretKeyReference)> {
    let compliance = spec.gitops.iter().filter_map(|gitops| gitops.compliance.as_ref());
    let reconcilers = compliance.flat_map(|compliance| &compliance.reconcilers).enumerate();
    let reconcilers = reconcilers
        .map(|(i, it)| (format!("spec.gitops.compliance.reconcilers[{i}]"), it.kubeconfig_secret_ref.as_ref()));
    clusters(spec)
        .enumerate()
        .map(|(i, it)| (format!("{CLUSTERS}[{i}]"), it.kubeconfig_secret_ref.as_ref()))
        .chain(reconcilers)
        .filter_map(|(path, reference)| Some((format!("{path}.kubeconfigSecretRef"), reference?)))
}
