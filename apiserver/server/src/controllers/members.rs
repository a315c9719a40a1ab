//! Owners and members of an Organization, as role bindings in its namespace.
//!
//! One binding for each role, of which Stoa writes the subjects. That the requester may bind the role was checked when
//! the Organization was written. A binding that somebody else made is left alone, and one of ours that leads to another role by
//! now keeps nobody who is to lose it.

use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::{Resource as _, ResourceExt as _};
use stoa_controller::{
    conditions::set_condition,
    events::Kind,
    queue::{self, FirstError},
};
use stoa_machinery::ApiError;
use stoa_runs::Services;
use stoa_types::{Organization, labels, reason};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Writes the role bindings and the condition about them. One that fails keeps no other waiting.
pub(super) async fn bind(services: &Services, organization: &Organization) -> Result<(), ApiError> {
    let name = organization.name_any();
    let mut wanted = wanted(organization);
    let Some(found) = services.cluster.role_bindings(&name).await? else {
        let message = "a standalone server has no RBAC: owners and members are recorded and get no roles";
        return note(services, organization, false, reason::NO_RBAC, message).await;
    };
    let found: Vec<_> = found.into_iter().filter(|binding| is_of(binding, organization)).collect();
    let existing = |binding: &RoleBinding| found.iter().find(|found| found.name_any() == binding.name_any());
    let mut failed = FirstError::default();
    for binding in &found {
        if !wanted.iter().any(|wanted| wanted.name_any() == binding.name_any()) {
            let deleted = services.cluster.delete_role_binding(&name, &binding.name_any()).await;
            if failed.note(deleted).is_some() {
                let message = format!("removed {} from all subjects", binding.role_ref.name);
                services.recorder.record(organization, Kind::Normal, "RoleUnbound", message);
            }
        }
    }
    wanted.sort_by_key(|binding| existing(binding).is_none_or(|existing| !is_lost_by_somebody(existing, binding)));
    let mut obstacle = None;
    for mut binding in wanted {
        let mut existing = existing(&binding);
        if let Some(other) = existing.filter(|it| it.role_ref != binding.role_ref) {
            if failed.note(withdraw(services, organization, other, &binding).await) == Some(true) {
                existing = None;
            } else {
                // Where a binding leads never changes: whoever made it so, it takes another.
                let RoleRef { kind, name: role, .. } = &other.role_ref;
                let (binding, wanted) = (binding.name_any(), &binding.role_ref.name);
                let message = format!(
                    "rolebinding {name}/{binding} refers to {kind} {role} instead of ClusterRole {wanted}; delete it, \
                     and Stoa creates it anew"
                );
                obstacle.get_or_insert((reason::ROLE_BINDING_EXISTS, message));
                continue;
            }
        }
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
                let binding = binding.name_any();
                let message = format!("rolebinding {name}/{binding} exists and was not made for this organization");
                obstacle.get_or_insert((reason::ROLE_BINDING_EXISTS, message));
            }
            Err(error) => {
                // One that somebody changed meanwhile is read again.
                if queue::is_refusal(&error) && error.code() != 409 {
                    obstacle.get_or_insert((reason::ROLE_BINDING_REFUSED, error.message().to_owned()));
                }
                failed.note(Err::<(), _>(error));
            }
        }
    }
    if let Some((why, message)) = obstacle {
        failed.note(note(services, organization, false, why, &message).await);
        return failed.told();
    }
    failed.told()?;
    note(services, organization, true, reason::AVAILABLE, "owners and members have their roles").await
}

/// Takes the role that a binding of ours leads to, which is another than ours, from those who are not to have ours. Whether the
/// binding is gone with that: nobody else had it, or it could not be changed. Only who may bind a role changes a binding to it.
async fn withdraw(
    services: &Services,
    organization: &Organization,
    other: &RoleBinding,
    wanted: &RoleBinding,
) -> Result<bool, ApiError> {
    let wanted = wanted.subjects.as_deref().unwrap_or_default();
    let subjects = other.subjects.iter().flatten().cloned();
    let (kept, lost): (Vec<Subject>, Vec<Subject>) = subjects.partition(|subject| wanted.contains(subject));
    if lost.is_empty() {
        return Ok(false);
    }
    let is_changed = if kept.is_empty() {
        false
    } else {
        let rest = RoleBinding { subjects: Some(kept), ..other.clone() };
        match services.cluster.write_role_binding(&rest).await {
            Ok(()) => true,
            Err(error) if error.code() == 403 => false,
            Err(error) => return Err(error),
        }
    };
    if !is_changed {
        services.cluster.delete_role_binding(&organization.name_any(), &other.name_any()).await?;
    }
    let from: Vec<&str> = lost.iter().map(|subject| subject.name.as_str()).collect();
    let message = format!("removed {} from {}", other.role_ref.name, from.join(", "));
    services.recorder.record(organization, Kind::Normal, "RoleUnbound", message);
    Ok(!is_changed)
}

/// Whether somebody has the role who is not to have it any more.
fn is_lost_by_somebody(existing: &RoleBinding, wanted: &RoleBinding) -> bool {
    let wanted = wanted.subjects.as_deref().unwrap_or_default();
    existing.subjects.iter().flatten().any(|subject| !wanted.contains(subject))
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
    use std::{collections::BTreeMap, sync::Arc};
    use stoa_controller::events::EventSink;

    use async_trait::async_trait;
    use k8s_openapi::api::core::v1::{Event, Secret};
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use stoa_kinds::cluster::{Cluster, NamespaceInfo};
    use stoa_machinery::status::FieldError;
    use stoa_types::common::condition;

    use super::*;
    use crate::testing::TestServer;

    /// A cluster with RBAC, which refuses bindings of one role, and those to roles that are not ours.
    #[derive(Debug)]
    struct Rbac {
        rest: Arc<dyn Cluster>,
        there: Mutex<Vec<RoleBinding>>,
        refused: &'static str,
        calls: Mutex<Vec<String>>,
    }

    #[async_trait]
    impl Cluster for Rbac {
        async fn namespace(&self, name: &str) -> Result<Option<NamespaceInfo>, ApiError> {
            self.rest.namespace(name).await
        }

        async fn create_namespace(&self, organization: &Organization) -> Result<NamespaceInfo, ApiError> {
            self.rest.create_namespace(organization).await
        }

        async fn ensure_namespace(&self, name: &str, environment: &str) -> Result<(), ApiError> {
            self.rest.ensure_namespace(name, environment).await
        }

        async fn delete_namespace(&self, name: &str, uid: &str) -> Result<(), ApiError> {
            self.rest.delete_namespace(name, uid).await
        }

        async fn role_bindings(&self, _: &str) -> Result<Option<Vec<RoleBinding>>, ApiError> {
            Ok(Some(self.there.lock().clone()))
        }

        async fn write_role_binding(&self, binding: &RoleBinding) -> Result<(), ApiError> {
            let name = binding.name_any();
            let subjects: Vec<&str> = binding.subjects.iter().flatten().map(|s| s.name.as_str()).collect();
            self.calls.lock().push(format!("{name}: {}", subjects.join(" ")));
            if name == self.refused {
                let error = FieldError::invalid("subjects[0].name", subjects[0], "is no name");
                return Err(ApiError::invalid(RBAC, "RoleBinding", &name, &[error]));
            }
            if !binding.role_ref.name.starts_with("stoa:") {
                return Err(ApiError::forbidden(RBAC, "rolebindings", &name, "it is more than you have"));
            }
            let is_there = self.there.lock().iter().any(|there| there.name_any() == name);
            if is_there && binding.resource_version().is_none() {
                return Err(ApiError::already_exists(RBAC, "rolebindings", &name));
            }
            Ok(())
        }

        async fn delete_role_binding(&self, _: &str, name: &str) -> Result<(), ApiError> {
            self.calls.lock().push(format!("{name} goes"));
            self.there.lock().retain(|there| there.name_any() != name);
            Ok(())
        }

        async fn secret(&self, namespace: &str, name: &str) -> Result<Option<BTreeMap<String, Vec<u8>>>, ApiError> {
            self.rest.secret(namespace, name).await
        }

        async fn write_secret(&self, secret: &Secret) -> Result<(), ApiError> {
            self.rest.write_secret(secret).await
        }
    }

    #[async_trait]
    impl EventSink for Rbac {
        async fn record(&self, event: Event) -> Result<(), ApiError> {
            self.rest.record(event).await
        }
    }

    /// What is done about these members where these bindings are there, of somebody else where they have no users, and to
    /// another role where they name one, as in `stoa:viewer to admin`; and with what it ends.
    async fn bound(
        refused: &'static str,
        there: &[(&str, &[&str])],
        members: &[(&str, &str)],
    ) -> (Vec<String>, String, Option<u16>) {
        let mut world = TestServer::with_secrets().await;
        let user = |name: &str| json!({"kind": "User", "name": name});
        let members: Vec<Value> =
            members.iter().map(|(name, role)| json!({"subject": user(name), "role": role})).collect();
        let spec = serde_json::from_value(json!({"owners": [], "members": members})).unwrap();
        let organizations = world.registry.api::<Organization>();
        let organization = organizations.create(&Organization::new("acme", spec)).await.unwrap();
        let binding = |(role, users): &(&str, &[&str])| -> RoleBinding {
            let (name, role) = role.split_once(" to ").unwrap_or((*role, *role));
            let uid = organization.uid().filter(|_| !users.is_empty()).unwrap_or_default();
            let annotations = BTreeMap::from([(labels::ORGANIZATION_UID, uid)]);
            let users = users.iter().map(|name| json!({"kind": "User", "name": name, "apiGroup": RBAC}));
            serde_json::from_value(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": name, "namespace": "acme", "resourceVersion": "1", "annotations": annotations},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": users.collect::<Vec<_>>(),
            }))
            .unwrap()
        };
        let there = Mutex::new(there.iter().map(binding).collect());
        let rest = world.services.cluster.clone();
        let rbac = Arc::new(Rbac { rest, there, refused, calls: Mutex::default() });
        world.services.cluster = rbac.clone();
        let failed = bind(&world.services, &organization).await.err();
        let conditions = organizations.get("", "acme").await.unwrap().status.unwrap().conditions;
        let told = condition(&conditions, reason::ROLES_BOUND).unwrap();
        let told = format!("{} {}: {}", told.status, told.reason, told.message);
        let calls = std::mem::take(&mut *rbac.calls.lock());
        (calls, told, failed.map(|error| error.code()))
    }

    #[tokio::test]
    async fn binder_removes_lost_roles_before_adding_others() {
        let (calls, told, failed) = bound(
            "",
            &[("stoa:owner", &[]), ("stoa:developer", &["bob", "eve"]), ("stoa:approver", &["eve"])],
            &[("ann", "owner"), ("bob", "developer"), ("cat", "viewer")],
        )
        .await;
        let expected = ["stoa:approver goes", "stoa:developer: bob", "stoa:owner: ann", "stoa:viewer: cat"];
        assert_eq!((calls, failed), (expected.map(str::to_owned).to_vec(), None));
        let message = "rolebinding acme/stoa:owner exists and was not made for this organization";
        assert_eq!(told, format!("False RoleBindingExists: {message}"));

        let (calls, told, failed) = bound(
            "stoa:developer",
            &[("stoa:developer", &["bob"]), ("stoa:viewer", &["cat", "eve"])],
            &[("b b", "developer"), ("cat", "viewer"), ("dan", "approver")],
        )
        .await;
        let expected = ["stoa:developer: b b", "stoa:viewer: cat", "stoa:approver: dan"];
        assert_eq!((calls, failed), (expected.map(str::to_owned).to_vec(), Some(422)));
        assert!(told.starts_with("False RoleBindingRefused: ") && told.contains("subjects[0].name"), "{told}");
    }

    /// What is told where these calls were made and nothing failed.
    #[track_caller]
    fn as_expected((calls, told, failed): (Vec<String>, String, Option<u16>), expected: &[&str]) -> String {
        assert_eq!(calls, expected);
        assert_eq!(failed, None);
        told
    }

    #[tokio::test]
    async fn mismatched_binding_reports_error_and_blocks_none() {
        // Those who are to lose the role lose this one, too.
        for (users, expected) in [
            (&["bob"][..], &["stoa:viewer: cat"][..]),
            (&["bob", "eve"][..], &["stoa:developer: bob", "stoa:viewer: cat"][..]),
        ] {
            let there = [("stoa:developer to stoa:owner", users), ("stoa:viewer", &["eve"][..])];
            let bound = bound("", &there, &[("bob", "developer"), ("cat", "viewer")]).await;
            let told = as_expected(bound, expected);
            let message = "rolebinding acme/stoa:developer refers to ClusterRole stoa:owner instead of ClusterRole \
                           stoa:developer; delete it, and Stoa creates it anew";
            assert_eq!(told, format!("False RoleBindingExists: {message}"));
        }
    }

    #[tokio::test]
    async fn binder_recreates_mismatched_binding_losing_members() {
        for (there, users, expected) in [
            // Nobody is left.
            ("stoa:developer to stoa:owner", &["eve"][..], &["stoa:developer goes", "stoa:developer: bob"][..]),
            // The first of these is refused.
            (
                "stoa:developer to cluster-admin",
                &["bob", "eve"][..],
                &["stoa:developer: bob", "stoa:developer goes", "stoa:developer: bob"][..],
            ),
        ] {
            let told = as_expected(bound("", &[(there, users)], &[("bob", "developer")]).await, expected);
            assert!(told.starts_with("True "), "{told}");
        }
    }

    #[test]
    fn each_role_yields_one_binding_of_members() {
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
