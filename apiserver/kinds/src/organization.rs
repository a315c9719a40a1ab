//! Organization: a team or business unit with a namespace of its own, whose name must be free.

use std::sync::Arc;

use async_trait::async_trait;
use kube::ResourceExt as _;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column},
    registry::ListOptions,
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{DeletionPolicy, Organization, Subject, labels};

use super::{
    deletion::{self, Owner, Policies},
    lookup::{self, Lookup},
    ready,
};
use crate::{
    cluster::Cluster,
    deployed::{self, Live},
    errors,
    kind::{InGit, Kind, Surroundings},
    rights::{PUSHED, Role, right},
    validation,
};

/// Namespaces that belong to Kubernetes or to Stoa.
const RESERVED: &[&str] = &["default", "stoa-system"];

/// The kind Organization.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, cluster, .. }| {
        builder.register(definition, OrganizationStrategy { lookup, cluster })
    },
    in_git: Some(InGit::at("organizations/{name}/organization.yaml")),
    rights: &[
        right(
            &[Role::PlatformEngineer],
            &["", "status", "graph"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
        ),
        PUSHED,
    ],
    ..Kind::of::<Organization>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Organization>().columns(&[
        Column::new(
            "Namespace",
            Cell::Path(&["status", "namespace"]),
            "The namespace that was created for the organization.",
        ),
        ready::status("Whether the namespace exists and belongs to the organization."),
        Column::age(),
        Column::new("Description", Cell::Path(&["spec", "description"]), "The description of the organization.").wide(),
        ready::reason(),
        ready::message(),
    ])
}

#[derive(Debug)]
pub(crate) struct OrganizationStrategy {
    pub lookup: Lookup,
    pub cluster: Arc<dyn Cluster>,
}

impl OrganizationStrategy {
    /// The stacks of an organization of which anything is still live, or may be by now, and the policies that they go by.
    async fn live(&self, organization: &Organization) -> Result<(Vec<Live>, Policies), ApiError> {
        let live = deployed::live_of(&self.lookup, &organization.name_any(), &ListOptions::default()).await?;
        let mut policies = Policies::of_organization(organization);
        policies.read_projects(&self.lookup, live.iter().map(|of| &of.stack)).await?;
        Ok((live, policies))
    }
}

#[async_trait]
impl Strategy for OrganizationStrategy {
    type Object = Organization;

    fn prepare_for_create(&self, _: &RequestContext, object: &mut Organization) {
        validation::keep_finalizer(object, labels::NAMESPACE_FINALIZER);
    }

    fn prepare_for_update(&self, _: &RequestContext, new: &mut Organization, _: &Organization) {
        validation::keep_finalizer(new, labels::NAMESPACE_FINALIZER);
    }

    fn prepare_for_deletion(&self, context: &RequestContext, object: &mut Organization) {
        validation::note_who(context, &mut object.status.get_or_insert_default().deleted_by);
        validation::warn_of_destruction(context, object, object.spec.deletion_policy.unwrap_or_default());
    }

    fn validate(&self, object: &Organization) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let name = object.name_any();
        let is_label = name.len() <= 63
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-');
        if !is_label {
            errors.push(FieldError::invalid(
                "metadata.name",
                &name,
                "must be usable as the name of a namespace: at most 63 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit",
            ));
        }
        if RESERVED.contains(&name.as_str()) || name.starts_with("kube-") {
            errors.push(FieldError::invalid("metadata.name", &name, "the name is reserved"));
        }
        validation::subjects("spec.owners", &object.spec.owners, &mut errors);
        for (i, member) in object.spec.members.iter().enumerate() {
            validation::subject(&format!("spec.members[{i}].subject"), &member.subject, &mut errors);
        }
        errors
    }

    fn validate_update(&self, new: &Organization, old: &Organization) -> Vec<FieldError> {
        unbindable(new, Some(old))
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Organization>) -> Result<(), ApiError> {
        match change {
            Admission::Create(object) => {
                let name = object.name_any();
                let errors = unbindable(object, None);
                if !errors.is_empty() {
                    return Err(errors::invalid::<Organization>(&name, &errors));
                }
                require_bind_of_new(context, object, None).await?;
                if self.cluster.namespace(&name).await?.is_some() {
                    let error = ApiError::already_exists("", "namespaces", &name);
                    return Err(ApiError::new(
                        409,
                        "AlreadyExists",
                        format!(
                            "{}; an organization owns the namespace that is created with it and adopts none",
                            error.message()
                        ),
                    ));
                }
                Ok(())
            }
            Admission::Delete(object) => {
                let (name, (live, policies)) = (object.name_any(), self.live(object).await?);
                let policy = policies.organization().policy;
                let owner = Owner { kind: "organization", name: &name, policy };
                owner.require_deletion(&self.lookup, context, &name, live, &policies).await
            }
            Admission::Update { new, old, subresource } => {
                let of = |organization: &Organization| organization.status.clone().map(|status| status.deleted_by);
                if !subresource.is_empty() && of(new).unwrap_or_default() != of(old).unwrap_or_default() {
                    let (name, part) = (new.name_any(), "status.deletedBy is");
                    validation::part_written_by_server::<Organization>(context, &name, part)?;
                }
                let destroys = |of: &Organization| of.spec.deletion_policy == Some(DeletionPolicy::Destroy);
                if destroys(new) && !destroys(old) {
                    let (live, of_new) = self.live(new).await?;
                    let of_old = of_new.clone().with_organization(old);
                    deletion::require_change(&self.lookup, context, &new.name_any(), live, (&of_new, &of_old)).await?;
                }
                require_bind_of_new(context, new, Some(old)).await
            }
        }
    }
}

/// Finds what is wrong with those who are to get a role and were not to before: there would be no binding for anybody who is to
/// have it. What was wrong before that was looked for keeps nobody from changing the rest.
fn unbindable(new: &Organization, old: Option<&Organization>) -> Vec<FieldError> {
    let was = |subject: &Subject| {
        let mut all = old
            .into_iter()
            .flat_map(|old| old.spec.owners.iter().chain(old.spec.members.iter().map(|member| &member.subject)));
        all.any(|was| was == subject)
    };
    let owners = new.spec.owners.iter().enumerate().map(|(i, owner)| (format!("spec.owners[{i}]"), owner));
    let members = new.spec.members.iter().enumerate();
    let members = members.map(|(i, member)| (format!("spec.members[{i}].subject"), &member.subject));
    let mut errors = Vec::new();
    for (path, subject) in owners.chain(members).filter(|(_, subject)| !was(subject)) {
        validation::account(&path, subject, &mut errors);
    }
    errors
}

/// Requires that the requester may bind every role that somebody is to get who has not got it yet.
async fn require_bind_of_new(
    context: &RequestContext,
    new: &Organization,
    old: Option<&Organization>,
) -> Result<(), ApiError> {
    let had = old.map(|old| old.spec.subjects_by_role()).unwrap_or_default();
    for (role, subjects) in new.spec.subjects_by_role() {
        let has = |subject| had.get(&role).is_some_and(|had| had.contains(subject));
        if !subjects.iter().all(has) {
            lookup::require_bind(context, &new.name_any(), role.cluster_role()).await?;
        }
    }
    Ok(())
}
