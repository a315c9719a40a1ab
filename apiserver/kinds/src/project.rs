//! Project: a folder of a Source, which never changes.

use std::sync::Arc;

use async_trait::async_trait;
use kube::ResourceExt as _;
use stoa_controller::conditions::set_condition_to;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{DeletionPolicy, Project, Source, Stack, common::condition, config::Access, labels, reason};

use super::{
    access, changes,
    deletion::{self, Owner, Policies},
    lookup::Lookup,
    ready, stack, trigger,
};
use crate::{
    cluster::{self, Cluster},
    errors,
    kind::{InGit, Kind, Surroundings},
    readiness,
    rights::{DEVELOPED, EDIT, MEMBERS, OBJECTS, OWNED, PUSHED, READ, READERS, Right, Role, right},
    validation,
};

/// The kind Project.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, cluster, .. }| {
        builder.register(definition, ProjectStrategy { lookup, cluster })
    },
    in_git: Some(InGit::at("organizations/{namespace}/projects/{name}/project.yaml")),
    rights: &[
        right(READERS, OBJECTS, READ),
        right(MEMBERS, &["status"], READ),
        right(&[Role::Viewer, Role::Developer, Role::Owner, Role::PlatformEngineer], &["graph"], READ),
        DEVELOPED,
        OWNED,
        Right {
            note: "Writes a Project with `access: Owners`, and its Stacks.",
            ..right(&[Role::Owner], OBJECTS, EDIT)
        },
        PUSHED,
        Right {
            note: "A push has no author, so the owners of a Project cannot include it.",
            ..right(&[Role::Git], OBJECTS, EDIT)
        },
        right(&[Role::GarbageCollector], OBJECTS, EDIT),
    ],
    ..Kind::of::<Project>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Project>()
        .columns(&[
            Column::new("Source", Cell::Path(&["spec", "source", "name"]), "The Source of the configuration."),
            Column::new("Path", Cell::Path(&["spec", "path"]), "The folder in the Source."),
            Column::new("Stacks", Cell::Path(&["status", "stacks"]), "The number of stacks.").kind("integer"),
            ready::status("Whether the Source exists, is readable, and has the folder."),
            Column::age(),
            Column::new("Description", Cell::Path(&["spec", "description"]), "The description of the project.").wide(),
            ready::reason(),
            ready::message(),
        ])
        .selectable(&[SelectableField { name: "spec.source.name", path: &["spec", "source", "name"] }])
}

/// Brings a project's condition `Ready` to whether there is its Source, that can be read, and it has the folder, as the watch
/// cache has it; whatever changes there comes to the controller of projects.
pub fn observe(lookup: &Lookup, project: &mut Project) {
    let source = &project.spec.source.name;
    let namespace = project.namespace().unwrap_or_default();
    let template = project.spec.template.iter().map(|template| &template.source.name);
    let lacks = |name: &&String| !lookup.is_cached::<Source>(&namespace, name);
    let missing: Vec<String> = [source]
        .into_iter()
        .chain(template.filter(|name| *name != source))
        .filter(lacks)
        .map(|name| format!("source {name:?} does not exist"))
        .collect();
    let status = lookup.cached_status::<Source>(&namespace, source).unwrap_or_default();
    let lacked = project.status.as_ref().and_then(|status| status.missing_folder.as_ref());
    let lacked = lacked.filter(|lacked| lacked.path == project.spec.path);
    let (ready, why, message) = match condition(&status.conditions, reason::READY) {
        _ if !missing.is_empty() => ("False", reason::REFERENCE_NOT_FOUND.to_owned(), missing.join("; ")),
        None => ("Unknown", reason::PROGRESSING.to_owned(), format!("source {source:?} was not fetched yet")),
        Some(of) if of.status != "True" => ("False", of.reason.clone(), format!("source {source:?} is not ready")),
        Some(_) => match lacked {
            Some(lacked) => {
                let message = readiness::no_folder(source, &lacked.path, &lacked.commit);
                ("False", reason::PATH_NOT_FOUND.to_owned(), message)
            }
            None => ("True", reason::AVAILABLE.to_owned(), "the source can be read".to_owned()),
        },
    };
    let generation = project.metadata.generation;
    let status = project.status.get_or_insert_default();
    set_condition_to(&mut status.conditions, reason::READY, ready, &why, message, generation);
}

#[derive(Debug)]
pub(crate) struct ProjectStrategy {
    pub lookup: Lookup,
    pub cluster: Arc<dyn Cluster>,
}

impl ProjectStrategy {
    /// Refuses another folder for a project whose live stacks have theirs in it, unless the project says that it is meant.
    async fn refuse_move(&self, new: &Project) -> Result<(), ApiError> {
        if validation::allows_move(new) {
            return Ok(());
        }
        let (namespace, name) = (new.namespace().unwrap_or_default(), new.name_any());
        let live = stack::live_of_project(&self.lookup, &namespace, &name).await?;
        if live.iter().all(|of| !of.stack.spec.path.is_empty()) {
            return Ok(());
        }
        let error = validation::not_moved("spec.path", &new.spec.path);
        Err(errors::invalid::<Project>(&name, &[error]))
    }
}

/// Requires leave to write a project that restricts who writes its stacks: as it was, where it did, so that nobody lifts that or
/// becomes an owner by themselves, or else as it is to be, so that nobody shuts themselves out.
async fn require_edit(context: &RequestContext, new: &Project, old: Option<&Project>) -> Result<(), ApiError> {
    let restricts = |project: &&Project| project.spec.access == Access::Owners;
    match old.into_iter().chain([new]).find(restricts) {
        Some(project) => {
            let (namespace, name) = (project.namespace().unwrap_or_default(), project.name_any());
            access::require_edit(context, (&namespace, &name), &project.spec.owners).await
        }
        None => Ok(()),
    }
}

/// Whether a change decides about what the triggers of its stacks start. VariableSets select by labels.
fn decides_about_triggers(new: &Project, old: &Project) -> bool {
    new.spec.path != old.spec.path || new.labels() != old.labels()
}

#[async_trait]
impl Strategy for ProjectStrategy {
    type Object = Project;

    fn prepare_for_create(&self, context: &RequestContext, object: &mut Project) {
        validation::keep_finalizer(object, labels::STACKS_FINALIZER);
        observe(&self.lookup, object);
        // As of a source: what stacks follow already is decided by whoever makes it anew.
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        if !self.lookup.cached_keys::<Stack>(&namespace, "spec.project", &name).is_empty() {
            let status = object.status.get_or_insert_default();
            changes::note(context, &mut status.set_by, &mut status.changed_by);
        }
    }

    fn prepare_for_update(&self, context: &RequestContext, new: &mut Project, old: &Project) {
        validation::keep_finalizer(new, labels::STACKS_FINALIZER);
        let is_changed = new.spec != old.spec;
        validation::observe_change(new, is_changed, |project| observe(&self.lookup, project));
        if decides_about_triggers(new, old) {
            let status = new.status.get_or_insert_default();
            changes::note(context, &mut status.set_by, &mut status.changed_by);
        }
    }

    fn prepare_for_deletion(&self, context: &RequestContext, object: &mut Project) {
        validation::note_who(context, &mut object.status.get_or_insert_default().deleted_by);
        validation::warn_of_destruction(context, object, deletion::cached_of_project(&self.lookup, object));
    }

    fn validate(&self, object: &Project) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validation::label_name(&object.name_any(), &mut errors);
        validation::subjects("spec.owners", &object.spec.owners, &mut errors);
        if object.spec.source.name.is_empty() {
            errors.push(FieldError::required("spec.source.name", ""));
        }
        validation::repository_path("spec.path", &object.spec.path, &mut errors);
        if let Some(template) = &object.spec.template {
            validation::repository_path("spec.template.path", &template.path, &mut errors);
        }
        errors
    }

    fn validate_update(&self, new: &Project, old: &Project) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validation::immutable("spec.source", &new.spec.source, &old.spec.source, &mut errors);
        errors
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Project>) -> Result<(), ApiError> {
        let object = match change {
            Admission::Delete(object) => object,
            // Stacks may be left of an earlier one of the name, and would follow this one.
            Admission::Create(project) => {
                require_edit(context, project, None).await?;
                return trigger::require_of_project(&self.lookup, context, project).await;
            }
            Admission::Update { new, old, subresource: "" } => {
                let (of_new, of_old) = (&new.metadata, &old.metadata);
                if new.spec != old.spec || access::decides_end(of_new, of_old, labels::STACKS_FINALIZER) {
                    require_edit(context, new, Some(old)).await?;
                }
                if decides_about_triggers(new, old) {
                    trigger::require_of_project(&self.lookup, context, new).await?;
                }
                if new.spec.path != old.spec.path {
                    self.refuse_move(new).await?;
                }
                if new.spec.deletion_policy != old.spec.deletion_policy {
                    let namespace = new.namespace().unwrap_or_default();
                    let of_new = Policies::of_project(&self.lookup, new).await?;
                    if of_new.project(&new.name_any()).policy == DeletionPolicy::Destroy {
                        let live = stack::live_of_project(&self.lookup, &namespace, &new.name_any()).await?;
                        let of_old = of_new.clone().with_project(old);
                        deletion::require_change(&self.lookup, context, &namespace, live, (&of_new, &of_old)).await?;
                    }
                }
                return Ok(());
            }
            Admission::Update { new, old, .. } => {
                let of = |project: &Project| {
                    project.status.clone().map(|status| (status.set_by, status.changed_by, status.deleted_by))
                };
                if of(new).unwrap_or_default() == of(old).unwrap_or_default() {
                    return Ok(());
                }
                let part = "status.setBy, status.changedBy and status.deletedBy are";
                return validation::part_written_by_server::<Project>(context, &new.name_any(), part);
            }
        };
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        if object.spec.access == Access::Owners {
            let owners = &object.spec.owners;
            access::require_delete(context, &*self.cluster, (&namespace, &name), owners).await?;
        }
        let policies = Policies::of_project(&self.lookup, object).await?;
        let live = stack::live_of_project(&self.lookup, &namespace, &name).await?;
        let owner = Owner { kind: "project", name: &name, policy: policies.project(&name).policy };
        // In a namespace that is being deleted each stack is asked for itself.
        let decided = owner.require_deletion(&self.lookup, context, &namespace, live, &policies).await;
        cluster::unless_emptied(&*self.cluster, &namespace, decided).await
    }
}
