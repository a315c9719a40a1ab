//! Stack: the desired version and Workspaces of one deployable unit, and the rules of its deletion.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition, content,
    definition::{Cell, Column, SelectableField},
    object::Object,
    registry::{ListOptions, Stored},
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{
    DeletionPolicy, Project, Stack, Subject, Workspace,
    config::{Access, Deployment, GeneratorType},
    labels,
};

use super::{access, deletion, lookup::Lookup, ready, source::short, trigger};
use crate::{
    cluster::{self, Cluster},
    deployed::{self, Live, require_destroy, used_by},
    errors, event_types,
    kind::{InGit, Kind, Surroundings},
    readiness,
    rights::{DEVELOPED, MEMBERS, OBJECTS, OWNED, PUSHED, READ, READERS, Role, right},
    validation, values,
};

/// The parameters of the generator.
const PARAMETERS: &str = "spec.generator.parameters";

/// Looking for drift reads everything that is deployed.
const SHORTEST_DRIFT_INTERVAL: Duration = Duration::from_secs(10);

/// The kind Stack.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, cluster, .. }| {
        builder.register(definition, StackStrategy { lookup, cluster })
    },
    in_git: Some(InGit::at("organizations/{namespace}/projects/{spec.project}/stacks/{name}.yaml")),
    events: &event_types::stacks::ALL,
    rights: &[
        right(READERS, OBJECTS, READ),
        right(MEMBERS, &["status"], READ),
        right(READERS, &["graph"], READ),
        right(&[Role::Owner], &["state"], READ),
        DEVELOPED,
        OWNED,
        right(&[Role::Developer, Role::Owner], &["generate", "preview", "apply", "rollback"], &["create"]),
        right(&[Role::Owner], &["import", "destroy"], &["create"]),
        PUSHED,
    ],
    ..Kind::of::<Stack>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Stack>()
        .columns(&[
            Column::new("Project", Cell::Path(&["spec", "project"]), "The project that the stack belongs to."),
            Column::new("Desired", Cell::Path(&["spec", "desiredVersion"]), "The version to deploy."),
            Column::new("Workspaces", Cell::Compute(workspaces), "The workspaces of the stack."),
            Column::new("Release", Cell::Compute(releases), "The last release, per workspace where there are several."),
            ready::status("Whether a release is completely deployed."),
            Column::age(),
            Column::new("Path", Cell::Path(&["spec", "path"]), "The folder in the Source.").wide(),
            Column::new(
                "Commit",
                Cell::Compute(commits),
                "The deployed commit, per workspace where there are several.",
            )
            .wide(),
            Column::new(
                "Observed",
                Cell::Compute(|o| short(o.get_path(&["status", "observedCommit"]))),
                "The commit of the desired version at the last fetch.",
            )
            .wide(),
            Column::new("Resources", Cell::Compute(resources), "The number of live resources.").kind("integer").wide(),
            Column::new("Drifted", Cell::Compute(drifted), "Whether the last check found drift.").wide(),
            ready::reason(),
            ready::message(),
        ])
        .selectable(&[SelectableField { name: "spec.project", path: &["spec", "project"] }])
}

fn drifted(object: &Object) -> Value {
    let drifted: Vec<bool> = deployments(object).iter().filter_map(|d| d["drifted"].as_bool()).collect();
    if drifted.is_empty() {
        "Unknown".into()
    } else if drifted.contains(&true) {
        "True".into()
    } else {
        "False".into()
    }
}

fn deployments(object: &Object) -> &[Value] {
    object.get_path(&["status", "deployments"]).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn workspaces(object: &Object) -> Value {
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let mut names: Vec<String> = deployments(object).iter().filter_map(|d| d.get("workspace").and_then(text)).collect();
    if let Some(wanted) = object.get_path(&["spec", "workspaces"]).and_then(Value::as_array) {
        names.extend(wanted.iter().filter_map(text));
    }
    names.sort();
    names.dedup();
    names.join(",").into()
}

fn releases(object: &Object) -> Value {
    per_workspace(object, |deployment| Some(deployment.get("release")?.as_i64()?.to_string()))
}

fn commits(object: &Object) -> Value {
    per_workspace(object, |deployment| Some(short(deployment.get("commit")).as_str()?.to_owned()))
}

/// What deployments have; with their workspaces where there are several.
fn per_workspace(object: &Object, of: impl Fn(&Value) -> Option<String>) -> Value {
    let found: Vec<(&str, String)> = deployments(object)
        .iter()
        .filter_map(|deployment| Some((deployment.get("workspace")?.as_str()?, of(deployment)?)))
        .collect();
    match found.as_slice() {
        [] => "".into(),
        [(_, one)] => one.as_str().into(),
        many => many.iter().map(|(w, text)| format!("{w}={text}")).collect::<Vec<_>>().join(",").into(),
    }
}

fn resources(object: &Object) -> Value {
    deployments(object).iter().filter_map(|d| d.get("resources")?.as_i64()).sum::<i64>().into()
}

/// Whether anything that the stack deployed is still live.
pub fn is_deployed(stack: &Stack) -> bool {
    live_workspaces(stack).next().is_some()
}

/// Gives a stack that has no name inside its project its own; also when an update leaves it out.
fn set_stack_name(stack: &mut Stack) {
    // A name that is to be generated is there when this is called again.
    if let Some(name) = stack.metadata.name.as_ref().filter(|_| stack.spec.stack_name.is_empty()) {
        stack.spec.stack_name.clone_from(name);
    }
}

/// The stacks of a project.
///
/// # Errors
///
/// When they cannot be read.
pub async fn of_project(lookup: &Lookup, namespace: &str, project: &str) -> Result<Vec<Stack>, ApiError> {
    lookup.api::<Stack>()?.list_with(Some(namespace), &in_project(project)).await
}

/// The stacks of a project of which anything is still live, or may be by now.
///
/// # Errors
///
/// When they cannot be read.
pub(crate) async fn live_of_project(lookup: &Lookup, namespace: &str, project: &str) -> Result<Vec<Live>, ApiError> {
    deployed::live_of(lookup, namespace, &in_project(project)).await
}

/// The stacks of a project, as they are stored: none is decoded.
///
/// # Errors
///
/// When they cannot be read.
pub async fn stored_of_project(lookup: &Lookup, namespace: &str, project: &str) -> Result<Vec<Arc<Stored>>, ApiError> {
    let stacks = lookup.api::<Stack>()?;
    Ok(stacks.store().list(Some(namespace), &in_project(project)).await?.items)
}

fn in_project(project: &str) -> ListOptions {
    ListOptions { field_selector: Some(format!("spec.project={project}")), ..ListOptions::default() }
}

#[derive(Debug)]
pub(crate) struct StackStrategy {
    pub lookup: Lookup,
    pub cluster: Arc<dyn Cluster>,
}

impl StackStrategy {
    async fn project(&self, stack: &Stack) -> Result<Option<Project>, ApiError> {
        self.lookup.api::<Project>()?.get_opt(&stack.namespace().unwrap_or_default(), &stack.spec.project).await
    }

    /// Refuses another folder for a live stack, unless the stack says that it is meant: the next run removes what the new
    /// folder lacks.
    async fn refuse_move(&self, new: &Stack, old: &Stack) -> Result<(), ApiError> {
        let fields = [
            ("spec.stackName", &new.spec.stack_name, &old.spec.stack_name),
            ("spec.path", &new.spec.path, &old.spec.path),
        ];
        let moved = fields.into_iter().filter(|(_, new, old)| new != old);
        let moved: Vec<FieldError> = moved.map(|(path, new, _)| validation::not_moved(path, new)).collect();
        if moved.is_empty() || validation::allows_move(new) || used_by(&self.lookup, old).await?.is_empty() {
            return Ok(());
        }
        Err(errors::invalid::<Stack>(&new.name_any(), &moved))
    }

    /// Requires leave to destroy a live stack that comes to be destroyed by its deletion.
    async fn require_policy(&self, context: &RequestContext, new: &Stack, old: &Stack) -> Result<(), ApiError> {
        let destroys = async |stack: &Stack| {
            let effective = deletion::of_stack(&self.lookup, stack).await?;
            Ok::<_, ApiError>(effective.policy == DeletionPolicy::Destroy)
        };
        if !destroys(new).await? || destroys(old).await? {
            return Ok(());
        }
        let used = used_by(&self.lookup, old).await?;
        if used.is_empty() { Ok(()) } else { require_destroy(&self.lookup, context, old, &used).await }
    }

    /// A project can restrict who writes its stacks to those who may edit the project.
    async fn require_project_access(
        &self,
        context: &RequestContext,
        stack: &Stack,
        project: Option<Project>,
    ) -> Result<(), ApiError> {
        let Some(owners) = restricted_to(project) else { return Ok(()) };
        let namespace = stack.namespace().unwrap_or_default();
        access::require_edit(context, (&namespace, &stack.spec.project), &owners).await
    }
}

/// Whether a change is of what somebody wants of a stack, and not the garbage collector's part alone.
fn is_written(new: &Stack, old: &Stack) -> bool {
    let is_as_before = new.spec == old.spec && new.labels() == old.labels() && new.annotations() == old.annotations();
    !is_as_before || access::decides_end(&new.metadata, &old.metadata, labels::INFRASTRUCTURE_FINALIZER)
}

/// The owners of a project that restricts who writes its stacks.
fn restricted_to(project: Option<Project>) -> Option<Vec<Subject>> {
    project.filter(|project| project.spec.access == Access::Owners).map(|project| project.spec.owners)
}

#[async_trait]
impl Strategy for StackStrategy {
    type Object = Stack;

    fn set_defaults(&self, object: &mut Stack) {
        set_stack_name(object);
    }

    fn prepare_for_create(&self, context: &RequestContext, object: &mut Stack) {
        validation::keep_finalizer(object, labels::INFRASTRUCTURE_FINALIZER);
        readiness::observe(&self.lookup, object);
        trigger::note(context, object, None);
    }

    fn prepare_for_update(&self, context: &RequestContext, new: &mut Stack, old: &Stack) {
        validation::keep_finalizer(new, labels::INFRASTRUCTURE_FINALIZER);
        let is_changed = new.spec != old.spec;
        validation::observe_change(new, is_changed, |stack| readiness::observe(&self.lookup, stack));
        trigger::note(context, new, Some(old));
    }

    fn prepare_for_deletion(&self, context: &RequestContext, object: &mut Stack) {
        validation::note_who(context, &mut object.status.get_or_insert_default().deleted_by);
        validation::warn_of_destruction(context, object, deletion::cached_of_stack(&self.lookup, object));
    }

    fn validate(&self, object: &Stack) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validation::label_name(&object.name_any(), &mut errors);
        let spec = &object.spec;
        validation::subjects("spec.owners", &spec.owners, &mut errors);
        if spec.project.is_empty() {
            errors.push(FieldError::required("spec.project", ""));
        }
        validation::repository_path("spec.path", &spec.path, &mut errors);
        validation::repository_path("spec.stackName", &spec.stack_name, &mut errors);
        if spec.desired_version.is_empty() {
            errors.push(FieldError::required("spec.desiredVersion", "use latest for the head of the Source"));
        }
        validation::names("spec.workspaces", &spec.workspaces, &mut errors);
        let week = Duration::from_secs(7 * 24 * 3600);
        validation::duration("spec.driftInterval", &spec.drift_interval, Duration::ZERO..=week, &mut errors);
        if spec.drift_interval.parse().is_ok_and(|d| d > Duration::ZERO && d < SHORTEST_DRIFT_INTERVAL) {
            let least = format!("must be 0s, for never, or at least {}s", SHORTEST_DRIFT_INTERVAL.as_secs());
            errors.push(FieldError::invalid("spec.driftInterval", spec.drift_interval.to_string(), least));
        }
        if let Some(release) = &spec.generator.helm {
            let kind = spec.generator.kind;
            if !matches!(kind, GeneratorType::Auto | GeneratorType::Helm) {
                let why = format!("is only for the generators Helm and Auto; the type is {kind:?}");
                errors.push(FieldError::forbidden("spec.generator.helm", why));
            }
            for (field, name) in [("name", &release.name), ("namespace", &release.namespace)] {
                if !name.is_empty() {
                    let invalid = |why| FieldError::invalid(format!("spec.generator.helm.{field}"), name, why);
                    errors.extend(content::dns_label(name).iter().map(invalid));
                }
            }
        }
        if spec.generator.kind == GeneratorType::Kpt {
            validation::not_available("spec.generator.type", "this generator", &mut errors);
        }
        errors
    }

    fn validate_create(&self, context: &RequestContext, object: &Stack) -> Vec<FieldError> {
        let (namespace, project) = (object.namespace().unwrap_or_default(), &object.spec.project);
        // It is decided about by `admit`. Beside other errors it is reported as well, so that one try shows all of them.
        let is_missing = !project.is_empty() && !self.lookup.is_cached::<Project>(&namespace, project);
        let error = || FieldError::not_found("spec.project", project);
        let mut errors: Vec<FieldError> =
            (is_missing && !self.validate(object).is_empty()).then(error).into_iter().collect();
        // The repository is the record: what it has from before this rule is made again of it.
        if !validation::is_pushed(context) {
            errors.extend(values::parameter_names(PARAMETERS, object.spec.generator.parameters.keys()));
        }
        errors
    }

    fn validate_update(&self, new: &Stack, old: &Stack) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validation::immutable("spec.project", &new.spec.project, &old.spec.project, &mut errors);
        let before = &old.spec.generator.parameters;
        let added = new.spec.generator.parameters.keys().filter(|name| !before.contains_key(*name));
        errors.extend(values::parameter_names(PARAMETERS, added));
        errors
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Stack>) -> Result<(), ApiError> {
        match change {
            Admission::Create(stack) => {
                let project = self.project(stack).await?;
                let (name, of) = (stack.name_any(), &stack.spec.project);
                let Some(Project { metadata, .. }) = &project else {
                    let error = FieldError::not_found("spec.project", of);
                    return Err(errors::invalid::<Stack>(&name, &[error]));
                };
                // It would outlive its project, which has looked already at what it takes along.
                if metadata.deletion_timestamp.is_some() {
                    let why = format!("project {of:?} is being deleted");
                    return Err(errors::forbidden::<Stack>(&name, why));
                }
                self.require_project_access(context, stack, project).await?;
                trigger::require(&self.lookup, context, stack).await
            }
            Admission::Update { new, old, subresource: "" } => {
                if trigger::is_decided(new, Some(old)) {
                    trigger::require(&self.lookup, context, new).await?;
                }
                if new.spec.deletion_policy != old.spec.deletion_policy {
                    self.require_policy(context, new, old).await?;
                }
                self.refuse_move(new, old).await?;
                if is_written(new, old) {
                    self.require_project_access(context, new, self.project(new).await?).await?;
                }
                Ok(())
            }
            Admission::Update { new, old, .. } => {
                // What was started is not started again, by whose leave is told to auditors, and what is live decides who may
                // delete the stack.
                let of = |stack: &Stack| {
                    stack.status.clone().map(|status| (status.trigger, status.deleted_by, status.deployments))
                };
                if of(new).unwrap_or_default() == of(old).unwrap_or_default() {
                    return Ok(());
                }
                let part = "status.trigger, status.deletedBy and status.deployments are";
                validation::part_written_by_server::<Stack>(context, &new.name_any(), part)
            }
            Admission::Delete(stack) => {
                if let Some(owners) = restricted_to(self.project(stack).await?) {
                    let (namespace, project) = (stack.namespace().unwrap_or_default(), &stack.spec.project);
                    access::require_delete(context, &*self.cluster, (&namespace, project), &owners).await?;
                }
                let effective = deletion::of_stack(&self.lookup, stack).await?;
                if effective.policy == DeletionPolicy::Orphan {
                    return Ok(());
                }
                let used = used_by(&self.lookup, stack).await?;
                if used.is_empty() {
                    return Ok(());
                }
                if effective.policy == DeletionPolicy::Refuse {
                    let what = if is_deployed(stack) { "is still live" } else { "is being created by a run" };
                    let why = format!(
                        "its infrastructure {what} and its deletionPolicy is {effective}; destroy it first, or set the \
                         policy to Destroy or Orphan"
                    );
                    return Err(errors::forbidden::<Stack>(&stack.name_any(), why));
                }
                let decided = require_destroy(&self.lookup, context, stack, &used).await;
                cluster::unless_emptied(&*self.cluster, &stack.namespace().unwrap_or_default(), decided).await
            }
        }
    }
}

/// The workspaces in which something of a stack is live.
pub fn live_workspaces(stack: &Stack) -> impl Iterator<Item = &str> {
    live_among(stack.status.iter().flat_map(|status| &status.deployments))
}

/// The workspaces of these deployments in which something is live.
pub fn live_among<'a>(deployments: impl Iterator<Item = &'a Deployment>) -> impl Iterator<Item = &'a str> {
    deployments.filter(|deployment| deployment.resources > 0).map(|deployment| deployment.workspace.as_str())
}

/// Refuses to delete a workspace that a stack which is live there, or may be, cannot do without. One that leaves its
/// infrastructure behind can.
///
/// # Errors
///
/// 409 that names the stack.
pub(crate) async fn refuse_while_used(lookup: &Lookup, workspace: &str) -> Result<(), ApiError> {
    match user(lookup, workspace, Spared::Orphans).await? {
        None => Ok(()),
        Some(user) => Err(errors::conflict::<Workspace>(workspace, user)),
    }
}

/// Refuses to change fields of a workspace that every stack which is live there goes on with, whatever becomes of its
/// infrastructure in the end.
///
/// # Errors
///
/// 409 that names the fields and the stack.
pub(crate) async fn refuse_while_deployed(lookup: &Lookup, workspace: &str, fields: &[&str]) -> Result<(), ApiError> {
    match user(lookup, workspace, Spared::None).await? {
        None => Ok(()),
        Some(user) => {
            let why = format!("{}: {user}", fields.join(", "));
            Err(errors::conflict::<Workspace>(workspace, why))
        }
    }
}

/// The stacks that do not count as users of a workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spared {
    None,
    /// Those that leave their infrastructure behind.
    Orphans,
}

/// A sentence about a stack that is live in a workspace, or may be, and needs it, if there is one.
async fn user(lookup: &Lookup, workspace: &str, spared: Spared) -> Result<Option<String>, ApiError> {
    // Where one is live for certain, no other is needed.
    let mut is_certain = false;
    let seems_user = |stack: Stack| {
        let is_there = |of: &Deployment| of.workspace == workspace;
        let own = stack.spec.deletion_policy;
        let is_spared = spared == Spared::Orphans && own == Some(DeletionPolicy::Orphan);
        if is_certain || is_spared || !deployed::seemingly_used(&stack).any(is_there) {
            return None;
        }
        let needs = spared == Spared::None || own.is_some();
        is_certain = needs && live_workspaces(&stack).any(|live| live == workspace);
        Some(stack)
    };
    let seeming = lookup.api::<Stack>()?.list_of(None, &ListOptions::default(), seems_user).await?;
    for stack in &seeming {
        if spared == Spared::Orphans && deletion::of_stack(lookup, stack).await?.policy == DeletionPolicy::Orphan {
            continue;
        }
        let used = used_by(lookup, stack).await?;
        let Some(of) = used.into_iter().find(|of| of.workspace == workspace) else { continue };
        let name = format!("{}/{}", stack.namespace().unwrap_or_default(), stack.name_any());
        return Ok(Some(match of.last_run.as_ref().filter(|_| of.resources == 0) {
            Some(run) => {
                let under_way = format!("run {run} of stack {name} is under way in workspace {workspace}");
                format!("{under_way}; wait for its end or cancel it, then destroy its resources first")
            }
            None => format!("stack {name} is deployed in workspace {workspace}; destroy it first"),
        }));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use stoa_types::config::StackSpec;

    use super::*;
    use crate::cluster::standalone::StandaloneCluster;

    #[test]
    fn omitted_stack_name_defaults_to_object_name() {
        let spec: StackSpec = serde_json::from_value(serde_json::json!({"project": "web"})).expect("a spec");
        let lookup = Lookup::default();
        let strategy = StackStrategy { cluster: Arc::new(StandaloneCluster { lookup: lookup.clone() }), lookup };
        let mut new = Stack::new("web-dev", spec);
        new.metadata.generate_name = Some("web-".to_owned());
        let name = new.metadata.name.take();
        strategy.set_defaults(&mut new);
        assert_eq!(new.spec.stack_name, "", "a name that is yet to be generated");
        new.metadata.name = name;
        strategy.set_defaults(&mut new);
        assert_eq!(new.spec.stack_name, "web-dev");
    }

    #[test]
    fn columns_show_deployments_per_workspace() {
        let (dev, prod) = ("a".repeat(40), "b".repeat(40));
        let check = |deployments: Value, shown: [&str; 2]| {
            let Value::Object(map) = serde_json::json!({"status": {"deployments": deployments}}) else {
                unreachable!()
            };
            let object = Object(map);
            assert_eq!([releases(&object), commits(&object)], shown);
        };
        let of_dev = serde_json::json!({"workspace": "dev", "release": 3, "commit": dev});
        let of_prod = serde_json::json!({"workspace": "prod", "release": 1, "commit": prod});
        check(serde_json::json!([]), ["", ""]);
        check(serde_json::json!([of_dev]), ["3", "aaaaaaaa"]);
        check(serde_json::json!([of_dev, of_prod]), ["dev=3,prod=1", "dev=aaaaaaaa,prod=bbbbbbbb"]);
    }
}
