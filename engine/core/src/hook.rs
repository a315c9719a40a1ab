//! Hooks of charts: objects that a Run creates at an event and waits for, in Helm's order. They are no part of the state.
//!
//! Start at [`split`], which separates the hooks of a Spec from its other resources, and at [`planned`], which orders those of
//! an operation. A hook is an object with the annotation [`HOOK`], whichever generator made it.
//!
//! Elsewhere: `stoa-apply` runs them. Source: Helm's `pkg/action/hooks.go` and `pkg/release/util/manifest_sorter.go`.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::object::ObjectRef;
use crate::plan::Plan;
use crate::problem::{Problem, reason};
use crate::resolve::refers;
use crate::spec::{Resource, ResourceId, ResourceType, Spec};

/// The annotation of a hook: its events, with commas in between.
pub const HOOK: &str = "helm.sh/hook";

/// The annotation with the weight of a hook, a whole number; 0 without one. Smaller weights come first.
pub const WEIGHT: &str = "helm.sh/hook-weight";

/// The annotation with the times at which the object of a hook is deleted, with commas in between.
pub const DELETE_POLICY: &str = "helm.sh/hook-delete-policy";

/// The annotation of an object that is never deleted: `keep`.
pub const RESOURCE_POLICY: &str = "helm.sh/resource-policy";

/// The message about an object that its [resource policy](RESOURCE_POLICY) keeps.
pub const LEFT_BY_POLICY: &str = "its annotation helm.sh/resource-policy keeps it";

/// The annotation of a created hook: the uid of the Run, a slash and the event. A Run that is resumed finds by it what it
/// has created already.
pub const CREATED_BY: &str = "stoa.dev/hook-run";

/// The operation of a Run, as its hooks know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HookOperation {
    /// An Apply of something that is not deployed.
    Install,
    /// An Apply of something that is deployed.
    Upgrade,
    /// A Rollback.
    Rollback,
    /// A Destroy.
    Delete,
}

impl HookOperation {
    /// Every operation.
    pub const ALL: [Self; 4] = [Self::Install, Self::Upgrade, Self::Rollback, Self::Delete];

    /// The events before and after the changes.
    pub fn events(self) -> [HookEvent; 2] {
        match self {
            Self::Install => [HookEvent::PreInstall, HookEvent::PostInstall],
            Self::Upgrade => [HookEvent::PreUpgrade, HookEvent::PostUpgrade],
            Self::Rollback => [HookEvent::PreRollback, HookEvent::PostRollback],
            Self::Delete => [HookEvent::PreDelete, HookEvent::PostDelete],
        }
    }
}

impl fmt::Display for HookOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// When a hook runs. Its text is Helm's, such as `pre-install`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookEvent {
    /// Before the changes of an installation.
    PreInstall,
    /// After them.
    PostInstall,
    /// Before the changes of an upgrade.
    PreUpgrade,
    /// After them.
    PostUpgrade,
    /// Before the changes of a rollback.
    PreRollback,
    /// After them.
    PostRollback,
    /// Before the deletions of a Destroy.
    PreDelete,
    /// After them.
    PostDelete,
    /// Never: a Run has no tests.
    Test,
}

impl HookEvent {
    /// Parses the text of one event, as Helm does.
    fn parse(text: &str) -> Option<Self> {
        Some(match text.trim().to_lowercase().as_str() {
            "pre-install" => Self::PreInstall,
            "post-install" => Self::PostInstall,
            "pre-upgrade" => Self::PreUpgrade,
            "post-upgrade" => Self::PostUpgrade,
            "pre-rollback" => Self::PreRollback,
            "post-rollback" => Self::PostRollback,
            "pre-delete" => Self::PreDelete,
            "post-delete" => Self::PostDelete,
            "test" | "test-success" => Self::Test,
            _ => return None,
        })
    }

    /// Whether it comes before the changes.
    pub fn is_before(self) -> bool {
        matches!(self, Self::PreInstall | Self::PreUpgrade | Self::PreRollback | Self::PreDelete)
    }

    /// Whether it is for the creation of something, so that a tool of a repository may run it.
    fn is_of_changes(self) -> bool {
        matches!(self, Self::PreInstall | Self::PostInstall | Self::PreUpgrade | Self::PostUpgrade)
    }
}

impl fmt::Display for HookEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PreInstall => "pre-install",
            Self::PostInstall => "post-install",
            Self::PreUpgrade => "pre-upgrade",
            Self::PostUpgrade => "post-upgrade",
            Self::PreRollback => "pre-rollback",
            Self::PostRollback => "post-rollback",
            Self::PreDelete => "pre-delete",
            Self::PostDelete => "post-delete",
            Self::Test => "test",
        })
    }
}

/// When the object of a hook is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeletePolicy {
    /// Before it is created again. The default.
    BeforeHookCreation,
    /// After all hooks of its event have succeeded, or a later one has failed.
    HookSucceeded,
    /// After it has failed.
    HookFailed,
}

/// A hook that a Run is to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedHook {
    /// The resource in the Spec.
    pub resource: ResourceId,
    /// When it runs.
    pub event: HookEvent,
    /// Its weight.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub weight: i64,
    /// When its object is deleted.
    pub delete: Vec<DeletePolicy>,
}

fn is_zero(weight: &i64) -> bool {
    *weight == 0
}

/// The first part of the [id](PlannedHook::id) of a hook. No resource has such an id, since it names a kind with a dash.
const ID: &str = "helm.sh/hook:";

impl PlannedHook {
    /// The id under which its result is recorded: `helm.sh/hook:<event>:<id of the resource>`.
    pub fn id(&self) -> ResourceId {
        ResourceId(format!("{ID}{}:{}", self.event, self.resource))
    }

    /// Whether its object is deleted at a time.
    pub fn is_deleted(&self, when: DeletePolicy) -> bool {
        self.delete.contains(&when)
    }
}

impl fmt::Display for PlannedHook {
    /// `pre-install batch/v1:Job:shop:migrate`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.event, self.resource)
    }
}

/// Whether an id is that of a hook's result, and not of a resource.
pub fn is_hook_id(id: &ResourceId) -> bool {
    id.0.starts_with(ID)
}

fn annotation<'a>(attributes: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    attributes.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

/// Whether a resource is a hook.
pub fn is_hook(resource: &Resource) -> bool {
    resource.kind == ResourceType::Kubernetes && annotation(&resource.attributes, HOOK).is_some()
}

/// Whether an object is never deleted, by its [resource policy](RESOURCE_POLICY).
pub fn is_kept(object: &Map<String, Value>) -> bool {
    annotation(object, RESOURCE_POLICY).is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
}

/// The events of a hook. An event that Helm does not know makes the object no hook of any event, as there.
fn events(resource: &Resource) -> Vec<HookEvent> {
    let text = annotation(&resource.attributes, HOOK).unwrap_or_default();
    text.split(',').map(HookEvent::parse).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// The Spec without its hooks, and the hooks. `in_repository` are hooks of changes other resources: the tools that read the
/// repository know the annotations, or create the objects.
pub fn split(spec: &Spec, in_repository: bool) -> (Cow<'_, Spec>, Vec<&Resource>) {
    let is_run = |resource: &&Resource| {
        let is_delivered = in_repository && events(resource).into_iter().any(HookEvent::is_of_changes);
        is_hook(resource) && !is_delivered
    };
    let hooks: Vec<&Resource> = spec.resources.iter().filter(is_run).collect();
    if hooks.is_empty() {
        return (Cow::Borrowed(spec), hooks);
    }
    let is_other = |resource: &&Resource| !is_run(resource);
    let mut others: Vec<Resource> = spec.resources.iter().filter(is_other).cloned().collect();
    // All hooks before the changes come first anyway.
    let is_left = |id: &ResourceId| !hooks.iter().any(|hook| hook.id == *id);
    others.iter_mut().for_each(|resource| resource.depends_on.retain(is_left));
    let Spec { secret_store, context, .. } = spec.clone();
    (Cow::Owned(Spec { resources: others, secret_store, context }), hooks)
}

/// The Spec of a Destroy: the hooks of deletions alone.
pub fn of_deletion(spec: Spec) -> Spec {
    let is_of_deletion = |resource: &Resource| {
        is_hook(resource) && events(resource).iter().any(|it| HookOperation::Delete.events().contains(it))
    };
    Spec { resources: spec.resources.into_iter().filter(is_of_deletion).collect(), ..spec }
}

/// The hooks of an operation in their order: by event, then weight, kind and name.
///
/// # Errors
///
/// Problems of hooks that refer to other resources, or name no object.
pub fn planned(hooks: &[&Resource], operation: HookOperation) -> Result<Vec<PlannedHook>, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut found = Vec::new();
    for resource in hooks {
        let of_operation: Vec<HookEvent> =
            events(resource).into_iter().filter(|event| operation.events().contains(event)).collect();
        if of_operation.is_empty() {
            continue;
        }
        let Some(object) = ObjectRef::of(&resource.attributes) else {
            let problem = Problem::new(reason::INVALID_RESOURCE, "a hook needs apiVersion, kind and metadata.name");
            problems.push(problem.of(&resource.id).at("attributes"));
            continue;
        };
        if refers(&resource.attributes) {
            let message = "a hook cannot refer to other resources; write the value";
            problems.push(Problem::new(reason::INVALID_REFERENCE, message).of(&resource.id).at("attributes"));
            continue;
        }
        let (weight, delete) = (weight(resource), delete_policies(resource));
        for event in of_operation {
            let hook = PlannedHook { resource: resource.id.clone(), event, weight, delete: delete.clone() };
            let order = (!event.is_before(), weight, rank(&object.kind), object.kind.clone(), object.name.clone());
            found.push((order, hook));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    found.sort_by(|(one, first), (other, second)| one.cmp(other).then_with(|| first.resource.cmp(&second.resource)));
    let mut hooks: Vec<PlannedHook> = found.into_iter().map(|(_, hook)| hook).collect();
    hooks.dedup();
    Ok(hooks)
}

/// The weight of a hook; 0 where it is no number, as in Helm.
fn weight(resource: &Resource) -> i64 {
    annotation(&resource.attributes, WEIGHT).and_then(|weight| weight.parse().ok()).unwrap_or_default()
}

fn delete_policies(resource: &Resource) -> Vec<DeletePolicy> {
    let text = annotation(&resource.attributes, DELETE_POLICY).unwrap_or_default();
    let known = text.split(',').filter_map(|policy| match policy.trim().to_lowercase().as_str() {
        "before-hook-creation" => Some(DeletePolicy::BeforeHookCreation),
        "hook-succeeded" => Some(DeletePolicy::HookSucceeded),
        "hook-failed" => Some(DeletePolicy::HookFailed),
        _ => None,
    });
    let mut policies: Vec<DeletePolicy> = known.collect();
    policies.sort_unstable();
    policies.dedup();
    if policies.is_empty() { vec![DeletePolicy::BeforeHookCreation] } else { policies }
}

/// Kinds in the order in which Helm creates them. Others come last, by name.
const KINDS: [&str; 34] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

fn rank(kind: &str) -> usize {
    KINDS.iter().position(|known| *known == kind).unwrap_or(KINDS.len())
}

/// The objects of a Spec that a repository has because of hooks of changes, and the hooks that nothing runs there.
pub fn warnings_in_repository(spec: &Spec) -> Vec<String> {
    let named = |of: &dyn Fn(HookEvent) -> bool| {
        let ids = spec.resources.iter().filter(|it| is_hook(it) && events(it).into_iter().any(of));
        ids.map(|it| it.id.0.clone()).collect::<Vec<_>>()
    };
    let delivered = named(&HookEvent::is_of_changes);
    let left: Vec<String> = named(&|event| !event.is_of_changes() && event != HookEvent::Test)
        .into_iter()
        .filter(|id| !delivered.contains(id))
        .collect();
    let mut warnings = Vec::new();
    if !delivered.is_empty() {
        let all = delivered.join(", ");
        warnings.push(format!(
            "Stoa runs no hooks through a Git repository: {all}; Argo CD runs them by their annotations, and Flux creates \
             them with the other objects"
        ));
    }
    if !left.is_empty() {
        let all = left.join(", ");
        warnings.push(format!("hooks of deletions and rollbacks are not in the repository, and do not run: {all}"));
    }
    warnings
}

impl Plan {
    /// The hooks before the changes, or those after them.
    pub fn hooks(&self, is_before: bool) -> impl Iterator<Item = &PlannedHook> {
        self.hooks.iter().filter(move |hook| hook.event.is_before() == is_before)
    }
}

#[cfg(test)]
mod tests;
