//! Workspace: a deployment target, reached in exactly one way.

mod clusters;
mod modules;
pub mod referents;
mod secret_store;
mod terraform;

use std::time::Duration;

use async_trait::async_trait;
use kube::ResourceExt as _;
use stoa_cel::{Declarations, Program};
use stoa_controller::conditions::set_condition_to;
use stoa_engine::{health::VARIABLES, object::split_api_version, validation::KUBERNETES_VERSIONS};
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    registry::ListOptions,
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_pulls::{Address, InvalidAddress, Provider};
use stoa_types::{
    Backend, Release, Run, Workspace,
    common::condition,
    platform::{CommitMode, Compliance, GitOpsTarget, HealthPolicy, PullRequestProvider, PullRequests, WorkspaceSpec},
    reason,
};

pub(crate) use self::modules::{is_path as is_module_path, is_version as is_module_version};
use self::referents::Referents;
use super::{
    lookup::{self, Lookup},
    module, ready, stack, variable_set,
};
use crate::{
    errors, event_types,
    kind::{InGit, Kind, Surroundings},
    rights::PUSHED,
    validation,
};

/// So many kinds may have a health policy.
const MOST_HEALTH_POLICIES: usize = 100;

/// The kind Workspace.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, Surroundings { lookup, .. }| {
        builder.register(definition, WorkspaceStrategy { lookup })
    },
    in_git: Some(InGit::at("platform/workspaces/{name}.yaml")),
    events: &event_types::workspaces::ALL,
    rights: &[PUSHED],
    ..Kind::of::<Workspace>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<Workspace>()
        .columns(&[
            Column::new("Target", Cell::Compute(target), "The targets: Kubernetes or GitOps, and Terraform."),
            Column::new(
                "Backend",
                Cell::Path(&["spec", "backend", "name"]),
                "The Backend with the workspace's documents.",
            ),
            Column::new("Stacks", Cell::Path(&["status", "stacks"]), "The number of stacks deployed to the workspace.")
                .kind("integer"),
            ready::status("Whether the backend is ready, and all referenced objects exist."),
            Column::age(),
            ready::reason(),
            ready::message(),
        ])
        .selectable(&[SelectableField { name: "spec.backend.name", path: &["spec", "backend", "name"] }])
}

fn target(object: &stoa_machinery::Object) -> serde_json::Value {
    let has = |field: &str| object.get_path(&["spec", field]).is_some();
    let objects = if has("kubernetes") { Some("Kubernetes") } else { has("gitops").then_some("GitOps") };
    let targets: Vec<&str> = objects.into_iter().chain(has("terraform").then_some("Terraform")).collect();
    targets.join(",").into()
}

/// Brings a workspace's condition `Ready` to whether its Backend exists and is ready, as the watch cache has it, and its
/// Secrets, repository and branch exist, as far as that is known. The controller of workspaces finds changes of these. Of
/// its clusters only the function-runner knows whether they can be reached.
pub fn observe(lookup: &Lookup, workspace: &mut Workspace, referents: &Referents) {
    let backend = &workspace.spec.backend.name;
    let is_ready = |found: Backend| {
        let status = found.status.unwrap_or_default();
        condition(&status.conditions, reason::READY).is_some_and(|ready| ready.status == "True")
    };
    let conditions = workspace.status.as_ref().map_or(&[][..], |status| status.conditions.as_slice());
    let was_unready = condition(conditions, reason::READY).is_some_and(|ready| ready.status == "False");
    // Whoever was told that it is not ready is told when it is again: nobody knows that yet.
    let unknown = if was_unready { "False" } else { "Unknown" };
    let (ready, why, mut message) = match (lookup.cached::<Backend>("", backend).map(is_ready), referents) {
        (None, referents) => {
            let mut message = format!("backend {backend:?} does not exist");
            if let Referents::Missing(what) = referents {
                message += referents::BETWEEN;
                message += what;
            }
            ("False", reason::REFERENCE_NOT_FOUND, message)
        }
        (Some(_), Referents::Missing(what)) => ("False", reason::REFERENCE_NOT_FOUND, what.clone()),
        (Some(false), _) => ("False", reason::BACKEND_UNAVAILABLE, format!("backend {backend:?} is not ready")),
        (Some(true), Referents::Unread(why)) => (unknown, reason::UNREADABLE_SECRET, why.clone()),
        (Some(true), Referents::Unusable(why, message)) => ("False", *why, message.clone()),
        (Some(true), Referents::Unreachable(why)) => (unknown, reason::SOURCE_UNREACHABLE, why.clone()),
        (Some(true), Referents::Unseen) => {
            let what = if workspace.spec.gitops.is_some() { "repository and the Secrets" } else { "Secrets" };
            (unknown, reason::PROGRESSING, format!("Stoa has not checked the {what} yet"))
        }
        (Some(true), Referents::Found) => ("True", reason::AVAILABLE, "the backend is ready".to_owned()),
    };
    let mut clusters = workspace.spec.kubernetes.iter().flat_map(|kubernetes| &kubernetes.clusters);
    let (mut ready, mut why) = (ready, why);
    if ready == "True"
        && let Some(missing) = module::missing(lookup, &workspace.spec)
    {
        (ready, why, message) = ("False", reason::REFERENCE_NOT_FOUND, missing);
    }
    if ready == "True"
        && lookup.is_standalone()
        && let Some(cluster) = clusters.find(|cluster| cluster.in_cluster)
    {
        message.push_str(&format!(
            "; a standalone server has no cluster of its own: inCluster of cluster {:?} uses --kubeconfig of the \
             function-runner, and runs fail without it",
            cluster.name
        ));
    }
    let generation = workspace.metadata.generation;
    let status = workspace.status.get_or_insert_default();
    set_condition_to(&mut status.conditions, reason::READY, ready, why, message, generation);
}

/// What the controller found before of the Secrets and the repository that a workspace names, if these are the same.
pub fn known_referents(new: &Workspace, old: Option<&Workspace>) -> Referents {
    if !referents::has_referents(&new.spec) {
        return Referents::Found;
    }
    let old = old.filter(|old| referents::have_same_referents(&new.spec, &old.spec));
    let conditions = old.and_then(|old| old.status.as_ref()).map_or(&[][..], |status| status.conditions.as_slice());
    let ready = condition(conditions, reason::READY);
    let unusable = ready.and_then(|ready| referents::UNUSABLE.into_iter().find(|why| ready.reason == *why));
    match ready {
        Some(ready) if ready.reason == reason::REFERENCE_NOT_FOUND => referents::missing_in(&ready.message),
        Some(ready) if ready.reason == reason::UNREADABLE_SECRET => Referents::Unread(ready.message.clone()),
        Some(ready) if ready.reason == reason::SOURCE_UNREACHABLE => Referents::Unreachable(ready.message.clone()),
        Some(ready) if ready.status == "True" => Referents::Found,
        Some(ready) => unusable.map_or(Referents::Unseen, |why| Referents::Unusable(why, ready.message.clone())),
        None => Referents::Unseen,
    }
}

/// Requires the verb `use` on a workspace and, if it is there, on its backend.
///
/// # Errors
///
/// 403 that names the verb and the object.
pub async fn require_use(lookup: &Lookup, context: &RequestContext, name: &str) -> Result<Option<Workspace>, ApiError> {
    lookup::require_use::<Workspace>(context, name).await?;
    let workspace = lookup.api::<Workspace>()?.get_opt("", name).await?;
    if let Some(workspace) = &workspace {
        lookup::require_use::<Backend>(context, &workspace.spec.backend.name).await?;
    }
    Ok(workspace)
}

/// A kind of server, as its client calls it.
pub fn provider(provider: PullRequestProvider) -> Provider {
    match provider {
        PullRequestProvider::Gitea => Provider::Gitea,
        PullRequestProvider::GitHub => Provider::GitHub,
        PullRequestProvider::GitLab => Provider::GitLab,
    }
}

/// Finds what is wrong with where a repository has its pull requests.
fn pull_requests(pulls: &PullRequests, repository: &str, errors: &mut Vec<FieldError>) {
    const PATH: &str = "spec.gitops.pullRequest";
    // The values are left out of the messages, because they may hold what should not be shown.
    match Address::new(provider(pulls.provider), repository, Some(&pulls.url)) {
        Ok(_) => {}
        Err(error @ InvalidAddress::Unnamed) => {
            errors.push(FieldError::forbidden(
                "spec.gitops.repository",
                format_args!("{error}, which mode PullRequest needs"),
            ));
        }
        Err(error @ InvalidAddress::NoServer) => {
            errors.push(FieldError::required(format!("{PATH}.url"), error.to_string()))
        }
        Err(error @ (InvalidAddress::Url | InvalidAddress::InClear)) => {
            errors.push(FieldError::forbidden(format!("{PATH}.url"), error));
        }
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/');
    let prefix = &pulls.branch_prefix;
    if !prefix.chars().all(is_plain) || prefix.starts_with(['/', '-']) || prefix.contains("//") {
        let message = "must be a prefix of branch names: letters, digits, '-' and '_', with '/' in between";
        errors.push(FieldError::invalid(format!("{PATH}.branchPrefix"), prefix, message));
    }
    if let Some(secret) = &pulls.secret_ref {
        validation::secret_anywhere(&format!("{PATH}.secretRef"), secret, errors);
    }
}

/// Finds what is wrong with where it is read whether clusters have what is committed.
fn compliance(settings: &Compliance, errors: &mut Vec<FieldError>) {
    const PATH: &str = "spec.gitops.compliance";
    let range = Duration::from_secs(3)..=Duration::from_secs(24 * 3600);
    validation::duration(&format!("{PATH}.interval"), &settings.interval, range.clone(), errors);
    if let Some(wait) = &settings.wait {
        validation::duration(&format!("{PATH}.wait"), wait, range, errors);
    }
    if settings.reconcilers.is_empty() {
        errors.push(FieldError::required(format!("{PATH}.reconcilers"), "must have at least one reconciler"));
    }
    for (i, reconciler) in settings.reconcilers.iter().enumerate() {
        let path = format!("{PATH}.reconcilers[{i}]");
        if reconciler.name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if settings.reconcilers[..i].iter().any(|of| of.name == reconciler.name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), &reconciler.name));
        }
        clusters::access(&path, reconciler.in_cluster, reconciler.kubeconfig_secret_ref.as_ref(), errors);
        let named = match (&reconciler.kustomization, &reconciler.application) {
            (Some(named), None) => Some(("kustomization", named)),
            (None, Some(named)) => Some(("application", named)),
            (None, None) => {
                errors.push(FieldError::required(
                    format!("{path}.kustomization"),
                    "kustomization or application must be set",
                ));
                None
            }
            (Some(_), Some(_)) => {
                let message = "may not be set together with kustomization";
                errors.push(FieldError::forbidden(format!("{path}.application"), message));
                None
            }
        };
        let Some((field, named)) = named else { continue };
        // They are parts of a URL.
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        for (part, text) in [("namespace", &named.namespace), ("name", &named.name)] {
            let path = format!("{path}.{field}.{part}");
            if text.is_empty() {
                errors.push(FieldError::required(path, ""));
            } else if text.len() > 253 || !text.chars().all(is_name) || text.starts_with('.') {
                errors.push(FieldError::invalid(path, text, "must be a name: lower-case letters, digits, '-' and '.'"));
            }
        }
    }
}

/// Finds what is wrong with health policies: two for one kind, and expressions that cannot be read.
fn health_policies(policies: &[HealthPolicy], errors: &mut Vec<FieldError>) {
    const DECLARED: Declarations = Declarations { variables: VARIABLES, constructs: false };
    if policies.len() > MOST_HEALTH_POLICIES {
        let message = format!("must have at most {MOST_HEALTH_POLICIES} items");
        errors.push(FieldError::invalid("spec.healthPolicies", policies.len(), message));
        return;
    }
    let kind_of = |policy: &HealthPolicy| (split_api_version(&policy.api_version).0.to_owned(), policy.kind.clone());
    for (i, policy) in policies.iter().enumerate() {
        let at = |field: &str| format!("spec.healthPolicies[{i}].{field}");
        for (field, text) in [("apiVersion", &policy.api_version), ("kind", &policy.kind)] {
            if text.is_empty() {
                errors.push(FieldError::required(at(field), ""));
            }
        }
        let is_version = match policy.api_version.split_once('/') {
            Some((group, version)) => !(group.is_empty() || version.is_empty() || version.contains('/')),
            // A group alone would mean kinds without one.
            None => !policy.api_version.contains('.'),
        };
        if !is_version {
            let message = "must be <group>/<version>, or <version> for kinds without a group";
            errors.push(FieldError::invalid(at("apiVersion"), &policy.api_version, message));
        }
        if policies[..i].iter().any(|other| kind_of(other) == kind_of(policy)) {
            errors.push(FieldError::duplicate(format!("spec.healthPolicies[{i}]"), &policy.kind));
        }
        let HealthPolicy { current, failed, in_progress, .. } = policy;
        let written = [("current", Some(current)), ("failed", failed.as_ref()), ("inProgress", in_progress.as_ref())];
        for (field, source) in written {
            let Some(source) = source else { continue };
            if source.trim().is_empty() {
                errors.push(FieldError::required(at(field), "must be an expression in CEL"));
            } else if let Some(error) = Program::compile(source, &DECLARED).compile_error() {
                errors.push(FieldError::invalid(at(field), source, error));
            }
        }
    }
}

/// Finds what is wrong with what is new. What a workspace has from before this was refused keeps nobody from changing it.
fn validate_new(new: &WorkspaceSpec, old: Option<&WorkspaceSpec>) -> Vec<FieldError> {
    let mut errors = clusters::validate_new(new, old);
    errors.extend(modules::validate_new(new, old));
    let repository = |spec: &WorkspaceSpec| spec.gitops.as_ref().map(|gitops| gitops.repository.clone());
    if let Some(address) = repository(new).filter(|address| old.and_then(repository).as_ref() != Some(address)) {
        validation::new_repository_address("spec.gitops.repository", &address, &mut errors);
    }
    secret_store::validate_new(new, old, &mut errors);
    errors
}

/// What a workspace leads to.
enum Destination<'a> {
    /// Clusters, which are known by their names.
    Clusters,
    Repository(&'a GitOpsTarget),
    Nowhere,
}

impl<'a> Destination<'a> {
    fn of(spec: &'a WorkspaceSpec) -> Self {
        // One that has both since before this was refused leads to clusters.
        match (&spec.kubernetes, &spec.gitops) {
            (Some(kubernetes), _) if !kubernetes.clusters.is_empty() => Self::Clusters,
            (_, Some(gitops)) => Self::Repository(gitops),
            (_, None) => Self::Nowhere,
        }
    }
}

/// The fields that have a workspace lead away from where it led: what is deployed there nobody would find where it leads then.
fn led_away(old: &WorkspaceSpec, new: &WorkspaceSpec) -> Vec<&'static str> {
    match (Destination::of(old), Destination::of(new)) {
        (Destination::Nowhere, _) | (Destination::Clusters, Destination::Clusters) => Vec::new(),
        (Destination::Clusters, _) => vec!["spec.kubernetes"],
        (Destination::Repository(old), Destination::Repository(new)) => {
            let fields = [
                ("spec.gitops.repository", old.repository != new.repository),
                ("spec.gitops.branch", old.branch != new.branch),
                ("spec.gitops.directory", old.directory != new.directory),
            ];
            fields.into_iter().filter(|(_, is_changed)| *is_changed).map(|(field, _)| field).collect()
        }
        (Destination::Repository(_), _) => vec!["spec.gitops"],
    }
}

/// Refuses to keep documents in another Backend while there are releases or runs of a workspace that have theirs in this one:
/// they are looked for in the Backend of the workspace as it is then, not in the one that they were put in.
///
/// # Errors
///
/// 409 that names the release or run.
async fn refuse_while_kept(lookup: &Lookup, workspace: &str) -> Result<(), ApiError> {
    let refused = |why: String| {
        let why = format!("spec.backend: {why}");
        Err(errors::conflict::<Workspace>(workspace, why))
    };
    let of_workspace =
        ListOptions { field_selector: Some(format!("spec.workspace={workspace}")), ..ListOptions::default() };
    let unfinished = |run: Run| {
        let is_ended = run.status.as_ref().is_some_and(|status| status.phase.is_terminal());
        (!is_ended).then(|| format!("{}/{}", run.namespace().unwrap_or_default(), run.name_any()))
    };
    let runs = lookup.api::<Run>()?.list_of(None, &of_workspace, unfinished).await?;
    if let Some(run) = runs.first() {
        return refused(format!("run {run} is under way; wait for its end, or cancel it first"));
    }
    let one = ListOptions { limit: Some(1), ..of_workspace };
    let releases = lookup.api::<Release>()?.list_with(None, &one).await?;
    if let Some(release) = releases.first() {
        let release = format!("{}/{}", release.namespace().unwrap_or_default(), release.name_any());
        let why = format!(
            "release {release} has documents in the present backend; delete its stack and then the release first"
        );
        return refused(why);
    }
    Ok(())
}

#[derive(Debug)]
pub(crate) struct WorkspaceStrategy {
    pub lookup: Lookup,
}

#[async_trait]
impl Strategy for WorkspaceStrategy {
    type Object = Workspace;

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Workspace>) -> Result<(), ApiError> {
        let has_two = |workspace: &Workspace| workspace.spec.kubernetes.is_some() && workspace.spec.gitops.is_some();
        match &change {
            Admission::Delete(workspace) => {
                let name = workspace.name_any();
                stack::refuse_while_used(&self.lookup, &name).await?;
            }
            Admission::Update { new, old, subresource: "" } => {
                let (name, mut fields) = (new.name_any(), led_away(&old.spec, &new.spec));
                let is_kept_elsewhere = new.spec.backend != old.spec.backend;
                fields.extend(is_kept_elsewhere.then_some("spec.backend"));
                if !fields.is_empty() {
                    stack::refuse_while_deployed(&self.lookup, &name, &fields).await?;
                }
                if is_kept_elsewhere {
                    refuse_while_kept(&self.lookup, &name).await?;
                }
            }
            Admission::Create(_) | Admission::Update { .. } => {}
        }
        match &change {
            Admission::Create(new) => module::admit_workspace(&self.lookup, context, new, None).await?,
            Admission::Update { new, old, subresource: "" } => {
                module::admit_workspace(&self.lookup, context, new, Some(old)).await?;
            }
            Admission::Update { .. } | Admission::Delete(_) => {}
        }
        match change {
            // One that is so since before this was refused can be changed in other ways.
            Admission::Update { old, subresource, .. } if has_two(old) || !subresource.is_empty() => Ok(()),
            Admission::Create(new) | Admission::Update { new, .. } if has_two(new) => {
                let message =
                    "may not be set together with kubernetes; a workspace has either clusters or a repository";
                let error = FieldError::forbidden("spec.gitops", message);
                Err(errors::invalid::<Workspace>(&new.name_any(), &[error]))
            }
            Admission::Create(_) | Admission::Update { .. } | Admission::Delete(_) => Ok(()),
        }
    }

    fn prepare_for_create(&self, _: &RequestContext, object: &mut Workspace) {
        let referents = known_referents(object, None);
        observe(&self.lookup, object, &referents);
    }

    fn prepare_for_update(&self, _: &RequestContext, new: &mut Workspace, old: &Workspace) {
        let is_changed = new.spec != old.spec;
        let referents = known_referents(new, Some(old));
        validation::observe_change(new, is_changed, |workspace| observe(&self.lookup, workspace, &referents));
    }

    fn validate(&self, object: &Workspace) -> Vec<FieldError> {
        let mut errors = Vec::new();
        validation::label_name(&object.name_any(), &mut errors);
        let spec = &object.spec;
        validation::subjects("spec.owners", &spec.owners, &mut errors);
        if spec.backend.name.is_empty() {
            errors.push(FieldError::required("spec.backend.name", ""));
        }
        if let Some(kubernetes) = &spec.kubernetes {
            clusters::validate(kubernetes, &mut errors);
        }
        if let Some(gitops) = &spec.gitops {
            validation::repository_address("spec.gitops.repository", &gitops.repository, &mut errors);
            validation::repository_path("spec.gitops.directory", &gitops.directory, &mut errors);
            if gitops.branch.is_empty() {
                errors.push(FieldError::required("spec.gitops.branch", ""));
            }
            if let Some(version) = &gitops.kubernetes_version
                && !KUBERNETES_VERSIONS.contains(&version.as_str())
            {
                let path = "spec.gitops.kubernetesVersion";
                errors.push(FieldError::not_supported(path, version, &KUBERNETES_VERSIONS));
            }
            match &gitops.pull_request {
                Some(pulls) => pull_requests(pulls, &gitops.repository, &mut errors),
                None if gitops.mode == CommitMode::PullRequest => {
                    errors.push(FieldError::required("spec.gitops.pullRequest", "must be set for mode PullRequest"));
                }
                None => {}
            }
            if let Some(secret) = &gitops.secret_ref {
                validation::secret_anywhere("spec.gitops.secretRef", secret, &mut errors);
            }
            if let Some(settings) = &gitops.compliance {
                compliance(settings, &mut errors);
            }
        }
        if let Some(target) = &spec.terraform {
            terraform::validate(target, &mut errors);
        }
        secret_store::validate(spec, &mut errors);
        secret_store::validate_sops(spec, &mut errors);
        variable_set::validate_values(("spec.values", spec.values.keys()), &spec.final_values, &mut errors);
        health_policies(&spec.health_policies, &mut errors);
        let retention = spec.retention.clone().unwrap_or_default();
        for (field, kept) in [("runs", retention.runs), ("releases", retention.releases)] {
            if let Some(kept) = kept.filter(|kept| *kept < 1) {
                errors.push(FieldError::invalid(format!("spec.retention.{field}"), kept, "must be at least 1"));
            }
        }
        let of_deleted = [
            ("deletedStackDays", retention.deleted_stack_days),
            ("deletedStackRecords", retention.deleted_stack_records),
        ];
        for (field, limit) in of_deleted {
            if let Some(limit) = limit.filter(|limit| *limit < 0) {
                let message = "must be at least 0, which turns it off";
                errors.push(FieldError::invalid(format!("spec.retention.{field}"), limit, message));
            }
        }
        errors
    }

    fn validate_create(&self, context: &RequestContext, object: &Workspace) -> Vec<FieldError> {
        // The repository is the record: what it has from before these rules is made again of it.
        if validation::is_pushed(context) {
            return Vec::new();
        }
        let mut errors = validate_new(&object.spec, None);
        let name = object.name_any();
        if name.contains('.') {
            let message = "must not contain dots, which separate the parts of the names of Releases and Resources";
            errors.push(FieldError::invalid("metadata.name", &name, message));
        }
        errors
    }

    fn validate_update(&self, new: &Workspace, old: &Workspace) -> Vec<FieldError> {
        validate_new(&new.spec, Some(&old.spec))
    }
}
