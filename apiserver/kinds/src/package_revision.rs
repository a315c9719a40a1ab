//! PackageRevision: one version of a package, from its draft to its publication.
//!
//! The effects on documents and Git are behind [`Packages`]. Elsewhere: `package_resources` shows the files.

use std::sync::Arc;

use async_trait::async_trait;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, Part, SelectableField},
    object::Object,
    registry::ListOptions,
    status::FieldError,
    strategy::{Admission, Completion, Strategy},
};
use stoa_types::{
    porch::{LATEST_REVISION, Lifecycle, PackageRevision, PackageRevisionResources, PackageRevisionSpec, Task},
    porchconfig::Repository,
    reason,
};

use crate::{
    cluster::{self, Cluster},
    errors,
    kind::{Kind, Surroundings},
    lookup::{self, Lookup},
    package_access::{self, RepositoryVerb},
    package_evaluation,
    package_names::{self, revision_name},
    package_repositories::Packages,
    package_upstream,
    package_variant::OWNER_LABEL,
    rights::{APPROVED, DEVELOPED, MEMBERS, OBJECTS, OWNED, READ, READERS, right},
    validation::{self, without_credentials},
};

/// The subresource that publishes and rejects.
pub const APPROVAL: &str = "approval";

/// The fields that selectors of package revisions and of their resources may name.
pub(crate) const FIELDS: [SelectableField; 5] = [
    SelectableField { name: "spec.revision", path: &["spec", "revision"] },
    SelectableField { name: "spec.packageName", path: &["spec", "packageName"] },
    SelectableField { name: "spec.repository", path: &["spec", "repository"] },
    SelectableField { name: "spec.workspaceName", path: &["spec", "workspaceName"] },
    SelectableField { name: "spec.lifecycle", path: &["spec", "lifecycle"] },
];

/// The fields that selectors of package revisions may name.
const SELECTABLE: [SelectableField; 12] = {
    const fn field(name: &'static str, path: &'static [&'static str]) -> SelectableField {
        SelectableField { name, path }
    }
    let [revision, package, repository, workspace, lifecycle] = FIELDS;
    [
        revision,
        package,
        repository,
        workspace,
        lifecycle,
        field("status.deployment", &["status", "deployment"]),
        field("status.upstream.repository", &["status", "upstream", "repository"]),
        field("status.upstream.package", &["status", "upstream", "package"]),
        field("status.upstream.name", &["status", "upstream", "name"]),
        field("status.upstream.revision", &["status", "upstream", "revision"]),
        field("status.upstream.outdated", &["status", "upstream", "outdated"]),
        // With the key in brackets: `spec.packageMetadata.labels[tier]=gold`.
        field("spec.packageMetadata.labels[*]", &["spec", "packageMetadata", "labels"]),
    ]
};

/// The types of tasks.
const TASKS: [&str; 4] = ["init", "clone", "edit", "upgrade"];

/// The merge strategies of kpt.
const STRATEGIES: [&str; 4] = ["resource-merge", "fast-forward", "force-delete-replace", "copy-merge"];

/// The kind PackageRevision.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, cluster, packages, .. }| {
        builder.register(definition, PackageRevisionStrategy { lookup, cluster, packages })
    },
    rights: &[
        right(READERS, OBJECTS, READ),
        right(MEMBERS, &["status"], READ),
        right(READERS, &["diff"], &["get"]),
        DEVELOPED,
        OWNED,
        APPROVED,
    ],
    ..Kind::of::<PackageRevision>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<PackageRevision>()
        .columns(&[
            Column::name(),
            Column::new("Package", Cell::Path(&["spec", "packageName"]), "The path of the package."),
            Column::new("WorkspaceName", Cell::Path(&["spec", "workspaceName"]), "The workspace of the revision."),
            Column::new("Revision", Cell::Compute(revision), "The number of the revision.").kind("integer"),
            Column::new("Latest", Cell::Compute(is_latest), "Whether it is the newest published revision.")
                .kind("boolean"),
            Column::new("Lifecycle", Cell::Path(&["spec", "lifecycle"]), "The lifecycle of the revision."),
            Column::new("Repository", Cell::Path(&["spec", "repository"]), "The repository of the package."),
            Column::new("Upstream", Cell::Compute(upstream), "The revision of upstream that it has.").wide(),
            Column::new("Newest", Cell::Path(&["status", "upstream", "newest"]), "The newest revision of upstream.")
                .kind("integer")
                .wide(),
            Column::new("Deployable", Cell::Compute(is_deployable), "Whether its repository is for deployments.")
                .kind("boolean")
                .wide(),
            Column::new("Deployed", Cell::Compute(deployed), "The Workspaces that Stacks deploy it to.").wide(),
            Column::new("Author", Cell::Path(&["status", "publishedBy"]), "The user who published it.").wide(),
        ])
        .selectable(&SELECTABLE)
        .part(Part { name: APPROVAL, path: &["spec", "lifecycle"] })
}

/// The number of the revision, which is left out of the object when it is 0.
pub(crate) fn revision(object: &Object) -> Value {
    object.get_path(&["spec", "revision"]).cloned().unwrap_or_else(|| 0.into())
}

/// The upstream package with the number of its revision.
fn upstream(object: &Object) -> Value {
    let Some(upstream) = object.get_path(&["status", "upstream"]) else { return Value::Null };
    let text = |field: &str| upstream.get(field).and_then(Value::as_str).unwrap_or_default();
    match upstream.get("revision").and_then(Value::as_i64).unwrap_or_default() {
        0 => format!("{}/{}", text("repository"), text("package")).into(),
        number => format!("{}/{}@v{number}", text("repository"), text("package")).into(),
    }
}

fn is_deployable(object: &Object) -> Value {
    object.get_path(&["status", "deployment"]).and_then(Value::as_bool).unwrap_or_default().into()
}

fn deployed(object: &Object) -> Value {
    let deployments = object.get_path(&["status", "deployments"]).and_then(Value::as_array);
    let mut workspaces: Vec<&str> =
        deployments.into_iter().flatten().filter_map(|deployment| deployment.get("workspace")?.as_str()).collect();
    workspaces.sort_unstable();
    workspaces.dedup();
    workspaces.join(",").into()
}

fn is_latest(object: &Object) -> Value {
    let label = object.get_path(&["metadata", "labels"]).and_then(|labels| labels.get(LATEST_REVISION));
    (label.and_then(Value::as_str) == Some("true")).into()
}

#[derive(Debug)]
pub(crate) struct PackageRevisionStrategy {
    pub lookup: Lookup,
    pub cluster: Arc<dyn Cluster>,
    pub packages: Packages,
}

/// The immutable fields of a revision.
fn identity(spec: &PackageRevisionSpec) -> [(&'static str, &str); 3] {
    [
        ("spec.packageName", &spec.package_name),
        ("spec.repository", &spec.repository_name),
        ("spec.workspaceName", &spec.workspace_name),
    ]
}

impl PackageRevisionStrategy {
    /// Checks that the repository takes new revisions, and that the task fits the revisions of the package.
    async fn admit_create(&self, context: &RequestContext, revision: &PackageRevision) -> Result<(), ApiError> {
        let PackageRevisionSpec { repository_name, package_name, tasks, .. } = &revision.spec;
        let namespace = revision.namespace().unwrap_or_default();
        let repository = self.lookup.api::<Repository>()?.get(&namespace, repository_name).await?;
        if repository.metadata.deletion_timestamp.is_some() {
            let why = format!("repository {repository_name:?} is being unregistered");
            return Err(errors::conflict::<PackageRevision>(&revision.name_any(), why));
        }
        package_access::require_change(context, &self.lookup, RepositoryVerb::Edit, revision).await?;
        self.require_clone(context, revision).await?;
        let is_new = tasks.first().is_none_or(|task| matches!(&*task.kind, "init" | "clone"));
        if is_new {
            let of_package = self.of_package(&namespace, repository_name, package_name).await?;
            if let Some(other) = of_package.first() {
                let detail = format!(
                    "package {package_name:?} exists in repository {repository_name:?} as {}; use a task of type edit or \
                     upgrade for its next revision",
                    other.name_any()
                );
                let error = FieldError::forbidden("spec.tasks", detail);
                return Err(errors::invalid::<PackageRevision>(&revision.name_any(), &[error]));
            }
        }
        Ok(())
    }

    /// Requires leave to clone the upstream of a new revision. Another revision of the package itself needs none.
    async fn require_clone(&self, context: &RequestContext, revision: &PackageRevision) -> Result<(), ApiError> {
        let namespace = revision.namespace().unwrap_or_default();
        let upstream = revision.spec.tasks.first().and_then(|task| match task.kind.as_str() {
            "clone" => task.clone.as_ref()?.upstream.upstream_ref.as_ref().map(|upstream| &upstream.name),
            "upgrade" => task.upgrade.as_ref().map(|upgrade| &upgrade.new_upstream.name),
            _ => None,
        });
        let Some(name) = upstream else { return Ok(()) };
        // The task itself reports an upstream that does not exist.
        let Some(upstream) = self.lookup.api::<PackageRevision>()?.get_opt(&namespace, name).await? else {
            return Ok(());
        };
        if is_same_package(&upstream, revision) {
            return Ok(());
        }
        package_access::require(context, RepositoryVerb::Clone, (&namespace, &upstream.spec.repository_name)).await
    }

    async fn of_package(
        &self,
        namespace: &str,
        repository: &str,
        package: &str,
    ) -> Result<Vec<PackageRevision>, ApiError> {
        let selector = format!("spec.repository={repository},spec.packageName={package}");
        let options = ListOptions { field_selector: Some(selector), ..ListOptions::default() };
        self.lookup.api::<PackageRevision>()?.list_with(Some(namespace), &options).await
    }

    async fn admit_update(
        &self,
        context: &RequestContext,
        new: &PackageRevision,
        old: &PackageRevision,
        subresource: &str,
    ) -> Result<(), ApiError> {
        let mut found = Vec::new();
        if new.labels().get(LATEST_REVISION) != old.labels().get(LATEST_REVISION) {
            let detail = "the server sets this label on the newest published revision";
            found.push(FieldError::forbidden(format!("metadata.labels[{LATEST_REVISION}]"), detail));
        }
        lifecycle(new.spec.lifecycle, old.spec.lifecycle, subresource, &mut found);
        if subresource == "status" && new.status != old.status && !context.is_internal() {
            found.push(FieldError::forbidden("status", "the server writes the status of package revisions"));
        }
        if !found.is_empty() {
            return Err(errors::invalid::<PackageRevision>(&old.name_any(), &found));
        }
        if gets_owner(new, old) {
            let namespace = old.namespace().unwrap_or_default();
            package_access::require(context, RepositoryVerb::Edit, (&namespace, &old.spec.repository_name)).await?;
        }
        if package_evaluation::appended(&new.spec.tasks, &old.spec.tasks).is_some() {
            let (namespace, name) = (old.namespace().unwrap_or_default(), old.name_any());
            lookup::require::<PackageRevisionResources>(context, "update", "", &namespace, &name).await?;
            package_access::require_change(context, &self.lookup, RepositoryVerb::Edit, old).await?;
        }
        if let Some(verb) = package_access::verb_of(new.spec.lifecycle, old.spec.lifecycle, subresource) {
            package_access::require_change(context, &self.lookup, verb, old).await?;
        }
        if new.spec.lifecycle == Lifecycle::Published && !old.spec.lifecycle.is_published() {
            package_access::require_other_approver(context, old).await?;
            return readiness(old);
        }
        Ok(())
    }

    async fn admit_delete(&self, context: &RequestContext, revision: &PackageRevision) -> Result<(), ApiError> {
        let (namespace, name) = (revision.namespace().unwrap_or_default(), revision.name_any());
        if cluster::is_emptied(&*self.cluster, &namespace).await? {
            return Ok(());
        }
        package_access::require_writable(&self.lookup, revision).await?;
        if revision.spec.lifecycle == Lifecycle::Published {
            let why = "it is published; set spec.lifecycle to DeletionProposed first";
            return Err(errors::forbidden::<PackageRevision>(&name, why));
        }
        package_access::require_change(context, &self.lookup, RepositoryVerb::Edit, revision).await?;
        if !revision.spec.lifecycle.is_published() {
            return Ok(());
        }
        package_access::require_other_approver(context, revision).await?;
        let names = |other: PackageRevision| refers_to(&other, revision).then(|| other.name_any());
        let all = self.lookup.api::<PackageRevision>()?;
        let users = all.list_of(Some(&namespace), &ListOptions::default(), names).await?;
        if users.is_empty() {
            return Ok(());
        }
        let shown = users.iter().take(10).map(String::as_str).collect::<Vec<_>>().join(", ");
        let why =
            format!("{} package revisions have it as upstream ({shown}); upgrade or delete them first", users.len());
        Err(errors::forbidden::<PackageRevision>(&name, why))
    }
}

/// Whether a revision gets another owner, whose controller may delete it.
fn gets_owner(new: &PackageRevision, old: &PackageRevision) -> bool {
    let label = new.labels().get(OWNER_LABEL).filter(|label| old.labels().get(OWNER_LABEL) != Some(*label));
    let is_known = |uid: &str| old.owner_references().iter().any(|owner| owner.uid == uid);
    label.is_some() || new.owner_references().iter().any(|owner| !is_known(&owner.uid))
}

/// Keeps the fields that clients with older types of Porch leave out of an update.
fn keep_unknown_fields(new: &mut PackageRevisionSpec, old: &PackageRevisionSpec) {
    let is_same =
        |new: &[Task]| package_evaluation::are_equal_but_for_eval(&with_all_fields(new), &with_all_fields(&old.tasks));
    if new.tasks.is_empty() {
        new.tasks.clone_from(&old.tasks);
    } else if let Some(known) = new.tasks.get_mut(..old.tasks.len())
        && is_same(known)
    {
        // A further task may follow.
        known.clone_from_slice(&old.tasks);
    }
    if new.readiness_gates.is_empty() {
        new.readiness_gates.clone_from(&old.readiness_gates);
    }
    if new.package_metadata.is_none() {
        new.package_metadata.clone_from(&old.package_metadata);
    }
    if new.revision == 0 {
        new.revision = old.revision;
    }
}

/// Tasks as Go's types write them: a reference that is left out has an empty name.
fn with_all_fields(tasks: &[Task]) -> Vec<Task> {
    let mut tasks = tasks.to_vec();
    for git in tasks.iter_mut().filter_map(|task| task.clone.as_mut()?.upstream.git.as_mut()) {
        git.secret_ref.get_or_insert_default();
    }
    tasks
}

/// Records a user who proposes something.
fn note_proposal(context: &RequestContext, new: &mut PackageRevision, old: &PackageRevision) {
    let is_proposal = matches!(new.spec.lifecycle, Lifecycle::Proposed | Lifecycle::DeletionProposed);
    if is_proposal && new.spec.lifecycle != old.spec.lifecycle && !context.is_internal() {
        package_access::note_author(context, new);
    }
}

/// Whether two revisions of a namespace are of one package.
pub fn is_same_package(one: &PackageRevision, other: &PackageRevision) -> bool {
    let package = |of: &PackageRevision| (of.spec.repository_name.clone(), of.spec.package_name.clone());
    package(one) == package(other)
}

/// Whether a revision has another one as its upstream.
pub fn refers_to(one: &PackageRevision, upstream: &PackageRevision) -> bool {
    let (Some(lock), Some(found)) = (
        one.status.as_ref().and_then(|status| status.upstream_lock.as_ref()?.git.as_ref()),
        upstream.status.as_ref().and_then(|status| status.self_lock.as_ref()?.git.as_ref()),
    ) else {
        return false;
    };
    // Older locks have the address with its user.
    without_credentials(&lock.repo) == without_credentials(&found.repo)
        && lock.directory.trim_matches('/') == found.directory
        && lock.reference == found.reference
}

/// Finds errors in a change of the lifecycle.
fn lifecycle(new: Lifecycle, old: Lifecycle, subresource: &str, errors: &mut Vec<FieldError>) {
    use Lifecycle::{DeletionProposed, Draft, Proposed, Published};
    let is_permitted = match (old, new) {
        (old, new) if old == new => true,
        (Draft, Proposed) | (Published, DeletionProposed) => true,
        // Porch's clients withdraw both kinds of proposals by an update.
        (Proposed, Draft) | (DeletionProposed, Published) => true,
        (Proposed, Published) => subresource == APPROVAL,
        (Draft, Published | DeletionProposed)
        | (Proposed, DeletionProposed)
        | (Published | DeletionProposed, Draft | Proposed) => false,
        // Equal ones are above.
        (Draft, Draft) | (Proposed, Proposed) | (Published, Published) | (DeletionProposed, DeletionProposed) => true,
    };
    if is_permitted {
        return;
    }
    let detail = match (old, new) {
        (Proposed, Published) => "Proposed becomes Published through the subresource approval only".to_owned(),
        (Draft, Published) => {
            "a draft is proposed first, and then published through the subresource approval".to_owned()
        }
        _ => format!("{} cannot become {}", old.name(), new.name()),
    };
    errors.push(FieldError::invalid("spec.lifecycle", new.name(), detail));
}

/// Checks that the functions of the package succeeded, and that every readiness gate has its condition.
fn readiness(revision: &PackageRevision) -> Result<(), ApiError> {
    let conditions = revision.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let rendered = conditions.iter().find(|found| found.type_ == reason::RENDERED);
    if let Some(rendered) = rendered.filter(|rendered| rendered.status != "True") {
        let why = match rendered.status.as_str() {
            "Unknown" => "its functions still run; retry when the condition Rendered is True".to_owned(),
            _ => format!("its functions failed: {}; correct the package and save it again", rendered.message),
        };
        return Err(errors::conflict::<PackageRevision>(&revision.name_any(), why));
    }
    let is_true = |type_: &str| conditions.iter().any(|found| found.type_ == type_ && found.status == "True");
    let gates = revision.spec.readiness_gates.iter().map(|gate| gate.condition_type.as_str());
    let missing: Vec<&str> = gates.filter(|type_| !is_true(type_)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why =
        format!("the conditions of its readiness gates are not True: {}; see status.conditions", missing.join(", "));
    Err(errors::conflict::<PackageRevision>(&revision.name_any(), why))
}

/// Finds errors in the tasks of a new revision.
fn tasks(tasks: &[Task], errors: &mut Vec<FieldError>) {
    if tasks.len() > 1 {
        errors.push(FieldError::invalid("spec.tasks", tasks.len(), "must have at most one task"));
    }
    for (i, task) in tasks.iter().enumerate() {
        let path = format!("spec.tasks[{i}]");
        let missing = |field: &str, is_set: bool| {
            (!is_set).then(|| {
                FieldError::required(format!("{path}.{field}"), format!("the task of type {} needs it", task.kind))
            })
        };
        let mut strategy =
            |field: &str, value: &str| self::strategy(&format!("{path}.{field}.strategy"), value, errors);
        match task.kind.as_str() {
            "init" => {}
            "clone" => {
                strategy("clone", task.clone.as_ref().map_or("", |clone| clone.strategy.as_str()));
                let upstream = task.clone.as_ref().map(|clone| &clone.upstream);
                let is_oci = upstream.is_some_and(|upstream| upstream.oci.is_some());
                if is_oci {
                    let detail = "register the registry as a Repository of type oci, and name the package revision in \
                                  upstreamRef.upstreamRef";
                    errors.push(FieldError::forbidden(format!("{path}.clone.upstreamRef.oci"), detail));
                }
                if let Some(upstream) = upstream
                    && let Some(git) = &upstream.git
                    && (!git.repo.is_empty() || upstream.upstream_ref.is_none())
                {
                    let field = format!("{path}.clone.upstreamRef.git.repo");
                    validation::repository_address(&field, &git.repo, errors);
                    validation::new_repository_address(&field, &git.repo, errors);
                }
                let is_named =
                    upstream.is_some_and(|upstream| upstream.git.is_some() || upstream.upstream_ref.is_some());
                errors.extend(missing("clone.upstreamRef", is_named || is_oci));
            }
            "edit" => {
                errors.extend(missing("edit.sourceRef", task.edit.as_ref().is_some_and(|edit| edit.source.is_some())));
            }
            "upgrade" => {
                strategy("upgrade", task.upgrade.as_ref().map_or("", |upgrade| upgrade.strategy.as_str()));
                let upgrade = task.upgrade.as_ref();
                errors.extend(missing(
                    "upgrade.newUpstreamRef",
                    upgrade.is_some_and(|it| !it.new_upstream.name.is_empty()),
                ));
                errors.extend(missing(
                    "upgrade.localPackageRevisionRef",
                    upgrade.is_some_and(|it| !it.local.name.is_empty()),
                ));
            }
            other => errors.push(FieldError::not_supported(format!("{path}.type"), other, &TASKS)),
        }
    }
}

/// Finds errors in the name of a merge strategy, which may be empty.
pub(crate) fn strategy(path: &str, value: &str, errors: &mut Vec<FieldError>) {
    if !value.is_empty() && !STRATEGIES.contains(&value) {
        errors.push(FieldError::not_supported(path, value, &STRATEGIES));
    }
}

#[async_trait]
impl Strategy for PackageRevisionStrategy {
    type Object = PackageRevision;

    fn prepare_for_create(&self, context: &RequestContext, object: &mut PackageRevision) {
        let PackageRevisionSpec { repository_name, package_name, workspace_name, .. } = &object.spec;
        // As Porch: the name follows from the revision, whatever was sent.
        object.metadata.name = Some(revision_name(repository_name, package_name, workspace_name));
        object.metadata.generate_name = None;
        if !context.is_internal() {
            package_upstream::set_default(&self.lookup, object);
            object.metadata.labels.iter_mut().for_each(|labels| drop(labels.remove(LATEST_REVISION)));
            object.spec.revision = 0;
            object.spec.readiness_gates.clear();
            object.spec.package_metadata = None;
        }
    }

    fn prepare_for_update(&self, context: &RequestContext, new: &mut PackageRevision, old: &PackageRevision) {
        if !context.is_internal() {
            keep_unknown_fields(&mut new.spec, &old.spec);
        }
        note_proposal(context, new, old);
    }

    fn prepare_for_part(&self, context: &RequestContext, _: &str, new: &mut PackageRevision, old: &PackageRevision) {
        note_proposal(context, new, old);
    }

    fn validate(&self, object: &PackageRevision) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if object.spec.repository_name.is_empty() {
            errors.push(FieldError::required("spec.repository", "must name a Repository"));
        }
        errors
    }

    fn validate_create(&self, context: &RequestContext, object: &PackageRevision) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if context.is_internal() {
            return errors;
        }
        let PackageRevisionSpec { package_name, workspace_name, lifecycle, tasks, .. } = &object.spec;
        package_names::package("spec.packageName", package_name, &mut errors);
        package_names::workspace("spec.workspaceName", workspace_name, &mut errors);
        if *lifecycle != Lifecycle::Draft {
            let detail = "a new package revision is a Draft";
            errors.push(FieldError::invalid("spec.lifecycle", lifecycle.name(), detail));
        }
        self::tasks(tasks, &mut errors);
        errors
    }

    fn validate_update(&self, new: &PackageRevision, old: &PackageRevision) -> Vec<FieldError> {
        let changed = identity(&new.spec).into_iter().zip(identity(&old.spec)).filter(|(new, old)| new != old);
        let mut errors: Vec<_> =
            changed.map(|((path, value), _)| FieldError::invalid(path, value, "field is immutable")).collect();
        package_evaluation::validate(new, old, &mut errors);
        errors
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, PackageRevision>) -> Result<(), ApiError> {
        if context.is_internal() {
            return Ok(());
        }
        match change {
            Admission::Create(revision) => self.admit_create(context, revision).await,
            Admission::Update { new, old, subresource } => {
                let derived = [
                    ("spec.revision", new.spec.revision != old.spec.revision),
                    ("spec.readinessGates", new.spec.readiness_gates != old.spec.readiness_gates),
                    ("spec.packageMetadata", new.spec.package_metadata != old.spec.package_metadata),
                ];
                let changed = derived.into_iter().filter(|(_, is_changed)| *is_changed);
                let errors: Vec<_> = changed
                    .map(|(path, _)| {
                        let detail =
                            "the server reads this from the package; edit its Kptfile through PackageRevisionResources";
                        FieldError::forbidden(path, detail)
                    })
                    .collect();
                if !errors.is_empty() {
                    return Err(errors::invalid::<PackageRevision>(&old.name_any(), &errors));
                }
                self.admit_update(context, new, old, subresource).await
            }
            Admission::Delete(revision) => self.admit_delete(context, revision).await,
        }
    }

    fn completes(&self) -> bool {
        true
    }

    async fn complete(
        &self,
        context: &RequestContext,
        change: Completion<'_, PackageRevision>,
    ) -> Result<(), ApiError> {
        // Git has the content of the server's own writes already.
        if context.is_internal() {
            return Ok(());
        }
        match change {
            Completion::Create(revision) => {
                self.packages.get()?.create(context, revision).await?;
                package_access::note_author(context, revision);
                Ok(())
            }
            Completion::Update { new, old, .. } => {
                if let Some(task) = package_evaluation::appended(&new.spec.tasks, &old.spec.tasks) {
                    self.packages.get()?.evaluate(context, &task, new).await?;
                    package_access::note_author(context, new);
                    return Ok(());
                }
                let (is, was) = (new.spec.lifecycle, old.spec.lifecycle);
                // Drafts and proposals are pushed a moment after the write.
                if is == was || !(is.is_published() || was.is_published()) {
                    return Ok(());
                }
                self.packages.get()?.change_lifecycle(context, new, old).await
            }
            Completion::Delete(revision) => {
                let namespace = revision.namespace().unwrap_or_default();
                // The deletion of a namespace unregisters its repositories.
                if cluster::is_emptied(&*self.cluster, &namespace).await? {
                    return Ok(());
                }
                self.packages.get()?.remove(context, revision).await
            }
        }
    }
}
