//! Owners and members of an Organization, as role bindings in its namespace.
//!
//! One binding for each role, of which Stoa writes the subjects. That the requester may bind the role was checked when
//! the Organization was written. A binding that somebody else made is left alone.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::{Resource as _, ResourceExt as _};
use stoa_machinery::ApiError;
use stoa_types::{Organization, labels, reason};

use crate::{events::Kind, kinds::check::set_condition, runs::Services};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Makes the role bindings those that the organization wants, and says in its status whether they are.
pub(super) async fn bind(services: &Services, organization: &Organization) -> Result<(), ApiError> {
    let wanted = wanted(organization);
    let Some(found) = services.cluster.role_bindings(&organization.name_any()).await? else {
        let message = "a standalone server has no RBAC: owners and members are recorded and get no roles";
        return note(services, organization, false, reason::NO_RBAC, message).await;
    };
    let found: Vec<_> = found.into_iter().filter(|binding| is_of(binding, organization)).collect();
    for binding in &found {
        if !wanted.iter().any(|wanted| wanted.name_any() == binding.name_any()) {
            services.cluster.delete_role_binding(&organization.name_any(), &binding.name_any()).await?;
            let message = format!("nobody has {} any more", binding.role_ref.name);
            services.recorder.record(organization, Kind::Normal, "RoleUnbound", message);
        }
    }
    for mut binding in wanted {
        let existing = found.iter().find(|found| found.name_any() == binding.name_any());
        if existing.is_some_and(|existing| existing.subjects == binding.subjects) {
            continue;
        }
        binding.meta_mut().resource_version = existing.and_then(kube::ResourceExt::resource_version);
        match services.cluster.write_role_binding(&binding).await {
            Ok(()) => {
                let subjects: Vec<_> = binding.subjects.iter().flatten().map(|s| s.name.as_str()).collect();
                let message = format!("bound {} to {}", binding.role_ref.name, subjects.join(", "));
                services.recorder.record(organization, Kind::Normal, "RoleBound", message);
            }
            Err(error) if error.code() == 409 && existing.is_none() => {
                let message = format!(
                    "rolebinding {}/{} exists and was not made for this organization",
                    organization.name_any(),
                    binding.name_any()
                );
                return note(services, organization, false, reason::ROLE_BINDING_EXISTS, &message).await;
            }
            Err(error) => return Err(error),
        }
    }
    note(services, organization, true, reason::AVAILABLE, "owners and members have their roles").await
}

async fn note(
    services: &Services,
    organization: &Organization,
    bound: bool,
    why: &str,
    message: &str,
) -> Result<(), ApiError> {
    let change = |o: &mut Organization| {
        let generation = o.metadata.generation;
        let conditions = &mut o.status.get_or_insert_default().conditions;
        set_condition(conditions, reason::ROLES_BOUND, bound, why, message, generation);
    };
    let organizations = services.lookup.api::<Organization>()?;
    organizations.update_status_with("", &organization.name_any(), change).await?;
    Ok(())
}

/// Whether a binding was made for this organization, and not for another one of its name.
fn is_of(binding: &RoleBinding, organization: &Organization) -> bool {
    binding.annotations().get(labels::ORGANIZATION_UID) == organization.uid().as_ref()
}

/// The role bindings that an organization wants, one for each role that somebody has.
fn wanted(organization: &Organization) -> Vec<RoleBinding> {
    let name = organization.name_any();
    let by_role = organization.spec.subjects_by_role();
    by_role
        .into_iter()
        .map(|(role, subjects)| {
            let mut binding = RoleBinding {
                role_ref: RoleRef {
                    api_group: Some(RBAC.to_owned()),
                    kind: "ClusterRole".to_owned(),
                    name: role.cluster_role().to_owned(),
                },
                subjects: Some(subjects.into_iter().map(subject).collect()),
                ..RoleBinding::default()
            };
            binding.metadata.name = Some(role.cluster_role().to_owned());
            binding.metadata.namespace = Some(name.clone());
            binding.labels_mut().insert(labels::ORGANIZATION.to_owned(), name.clone());
            let uid = organization.uid().unwrap_or_default();
            binding.annotations_mut().insert(labels::ORGANIZATION_UID.to_owned(), uid);
            binding
        })
        .collect()
}

/// A subject as kube-apiserver stores it.
fn subject(subject: &stoa_types::Subject) -> Subject {
    let is_account = subject.kind == "ServiceAccount";
    Subject {
        kind: subject.kind.clone(),
        name: subject.name.clone(),
        api_group: (!is_account).then(|| RBAC.to_owned()),
        namespace: subject.namespace.clone().filter(|_| is_account),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_role_becomes_one_binding_of_all_who_have_it() {
        let organization: Organization = serde_json::from_value(json!({
            "apiVersion": "config.stoa.dev/v1alpha1",
            "kind": "Organization",
            "metadata": {"name": "shop", "uid": "u"},
            "spec": {
                "owners": [{"kind": "Group", "name": "leads"}],
                "members": [
                    {"subject": {"kind": "User", "name": "ann"}, "role": "developer"},
                    {"subject": {"kind": "Group", "name": "leads"}, "role": "owner"},
                    {"subject": {"kind": "User", "name": "eve"}, "role": "owner"},
                    {"subject": {"kind": "ServiceAccount", "name": "ci", "namespace": "ci"}, "role": "developer"},
                ],
            },
        }))
        .unwrap();
        let bindings = serde_json::to_value(wanted(&organization)).unwrap();
        let group = "rbac.authorization.k8s.io";
        assert_eq!(bindings.as_array().unwrap().len(), 2);
        assert_eq!(bindings[0]["metadata"]["name"], "stoa:owner");
        assert_eq!(bindings[0]["metadata"]["namespace"], "shop");
        assert_eq!(bindings[0]["roleRef"], json!({"apiGroup": group, "kind": "ClusterRole", "name": "stoa:owner"}));
        assert_eq!(
            bindings[0]["subjects"],
            json!([
                {"apiGroup": group, "kind": "Group", "name": "leads"},
                {"apiGroup": group, "kind": "User", "name": "eve"},
            ])
        );
        assert_eq!(
            bindings[1]["subjects"],
            json!([
                {"apiGroup": group, "kind": "User", "name": "ann"},
                {"kind": "ServiceAccount", "name": "ci", "namespace": "ci"},
            ])
        );
    }
}
