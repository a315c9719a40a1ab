//! PackageOperation: one change of many packages, with the permissions of its creator.
//!
//! Elsewhere: the controller `package_operations` plans and executes it.

use async_trait::async_trait;
use kube::ResourceExt as _;
use serde_json::Value;
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, Part, SelectableField},
    object::Object,
    selector::LabelSelector,
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{
    delivery::{
        PackageOperation, PackageOperationPhase, PackageOperationSpec, PackageOperationStatus, PackageOperationType,
    },
    porch::{Lifecycle, PackageRevision, PackageRevisionResources},
    porchconfig::Function,
};

use crate::{
    approval::{self, is_same_person, require_own, sentence, too_long},
    columns, errors,
    kind::{Kind, Surroundings},
    lookup::require,
    package_names, package_revision,
    rights::{APPROVED, DEVELOPED, OWNED, READ, READERS, right},
    run::identity,
    validation,
};

/// The subresource through which the plan is approved and rejected.
pub const APPROVAL: &str = "approval";

/// The most packages that change at once.
const MOST_PARALLEL: i64 = 50;

/// The kind PackageOperation.
pub static KIND: Kind = Kind {
    definition,
    register: |builder, definition, _: Surroundings| builder.register(definition, PackageOperationStrategy),
    rights: &[
        right(READERS, &["", "status"], READ),
        right(READERS, &["log", "plan"], &["get"]),
        DEVELOPED,
        OWNED,
        APPROVED,
    ],
    ..Kind::of::<PackageOperation>()
};

fn definition() -> ResourceDefinition {
    ResourceDefinition::of::<PackageOperation>()
        .columns(&[
            Column::new("Operation", Cell::Path(&["spec", "operation"]), "The operation."),
            Column::new("Phase", Cell::Path(&["status", "phase"]), "The phase."),
            Column::new("Progress", Cell::Compute(progress), "The number of packages that have ended."),
            Column::new("Failed", Cell::Path(&["status", "progress", "failed"]), "The number of failed packages.")
                .kind("integer"),
            Column::age(),
            columns::requester("The user who created the operation."),
            columns::explanation(),
        ])
        .selectable(&[
            SelectableField { name: "spec.operation", path: &["spec", "operation"] },
            SelectableField { name: "status.phase", path: &["status", "phase"] },
        ])
        .part(Part { name: APPROVAL, path: &["status", "approval"] })
}

fn progress(object: &Object) -> Value {
    let number = |field| object.get_path(&["status", "progress", field]).and_then(Value::as_i64).unwrap_or_default();
    match number("total") {
        0 => "".into(),
        total => format!("{}/{total}", number("succeeded") + number("failed") + number("skipped")).into(),
    }
}

/// The workspace of the new revisions.
pub fn workspace_of(operation: &PackageOperation) -> String {
    let named = &operation.spec.workspace_name;
    if named.is_empty() { operation.name_any() } else { named.clone() }
}

/// Requires the permissions for the change in each package of the namespace.
///
/// # Errors
///
/// 403 that names the verb and the objects.
async fn require_change(context: &RequestContext, operation: &PackageOperation) -> Result<(), ApiError> {
    let namespace = operation.namespace().unwrap_or_default();
    match operation.spec.operation {
        PackageOperationType::Validate => {
            return require::<PackageRevisionResources>(context, "get", "", &namespace, "").await;
        }
        PackageOperationType::AddFunction => {
            require::<PackageRevisionResources>(context, "update", "", &namespace, "").await?;
        }
        PackageOperationType::Upgrade | PackageOperationType::Rollback => {}
    }
    require::<PackageRevision>(context, "create", "", &namespace, "").await?;
    if operation.spec.lifecycle != Lifecycle::Draft {
        require::<PackageRevision>(context, "update", "", &namespace, "").await?;
    }
    Ok(())
}

/// Finds errors in the arguments of the operation.
fn arguments(spec: &PackageOperationSpec, errors: &mut Vec<FieldError>) {
    let PackageOperationSpec { operation, upgrade, rollback, add_function, .. } = spec;
    for (path, is_set, of) in [
        ("spec.upgrade", upgrade.is_some(), PackageOperationType::Upgrade),
        ("spec.rollback", rollback.is_some(), PackageOperationType::Rollback),
        ("spec.addFunction", add_function.is_some(), PackageOperationType::AddFunction),
    ] {
        if is_set && *operation != of {
            errors.push(FieldError::forbidden(path, format!("may only be set with operation {of:?}")));
        }
    }
    if let Some(upgrade) = upgrade {
        if upgrade.revision < 0 {
            errors.push(FieldError::invalid(
                "spec.upgrade.revision",
                upgrade.revision,
                "must be 0 or a number of a revision",
            ));
        }
        package_revision::strategy("spec.upgrade.strategy", &upgrade.strategy, errors);
    }
    if let Some(rollback) = rollback.as_ref().filter(|rollback| rollback.revision < 0) {
        errors.push(FieldError::invalid(
            "spec.rollback.revision",
            rollback.revision,
            "must be 0 or a number of a revision",
        ));
    }
    if *operation != PackageOperationType::AddFunction {
        return;
    }
    match add_function.as_ref().map(|added| (&added.mutator, &added.validator)) {
        Some((Some(mutator), None)) => function("spec.addFunction.mutator", mutator, errors),
        Some((None, Some(validator))) => function("spec.addFunction.validator", validator, errors),
        _ => errors.push(FieldError::required("spec.addFunction", "must have exactly one of mutator and validator")),
    }
}

fn function(path: &str, function: &Function, errors: &mut Vec<FieldError>) {
    if function.image.is_empty() == function.exec.is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), "must have exactly one of image and exec"));
    }
    if !function.config_path.is_empty() && !function.config_map.is_empty() {
        errors.push(FieldError::forbidden(format!("{path}.configPath"), "may not be set together with configMap"));
    }
}

#[derive(Debug)]
struct PackageOperationStrategy;

/// Decides whether somebody may decide so now.
async fn admit_approval(
    context: &RequestContext,
    new: &PackageOperation,
    old: &PackageOperation,
) -> Result<(), ApiError> {
    let (was, is) = (old.status.clone().unwrap_or_default(), new.status.clone().unwrap_or_default());
    if was.approval.is_some() && was.approval == is.approval {
        return Ok(());
    }
    let name = old.name_any();
    let conflict = |why: String| Err(errors::conflict::<PackageOperation>(&name, why));
    if let Some(before) = &was.approval {
        return conflict(format!("{}; a decision cannot be changed", sentence(before, None)));
    }
    if was.phase != PackageOperationPhase::AwaitingApproval {
        return conflict(format!("the operation does not wait for approval; its phase is {:?}", was.phase));
    }
    if old.spec.cancel || old.metadata.deletion_timestamp.is_some() {
        return conflict("the operation is being canceled".to_owned());
    }
    let waiting = &was.plan_digest;
    let invalid = |error| Err(errors::invalid::<PackageOperation>(&name, &[error]));
    let Some(approval) = &is.approval else {
        return invalid(FieldError::required("status.approval", format!("a decision about plan {waiting}")));
    };
    if approval.plan_digest != *waiting {
        let why = format!("the plan that waits for approval is {waiting}");
        return match approval.plan_digest.is_empty() {
            true => invalid(FieldError::required("status.approval.planDigest", why)),
            false => conflict(format!("{why}, not {}", approval.plan_digest)),
        };
    }
    if let Some(error) = too_long(approval::MESSAGE, &approval.message) {
        return invalid(error);
    }
    if is_same_person(&was.requester, &context.user) {
        return require_own(context, old, "plan").await;
    }
    Ok(())
}

#[async_trait]
impl Strategy for PackageOperationStrategy {
    type Object = PackageOperation;

    fn prepare_for_create(&self, context: &RequestContext, object: &mut PackageOperation) {
        let requester = identity(&context.user);
        object.status = Some(PackageOperationStatus { requester, ..PackageOperationStatus::default() });
    }

    fn prepare_for_part(
        &self,
        context: &RequestContext,
        part: &str,
        new: &mut PackageOperation,
        old: &PackageOperation,
    ) {
        if part != APPROVAL {
            return;
        }
        let before = old.status.as_ref().and_then(|status| status.approval.as_ref());
        if let Some(approval) = new.status.as_mut().and_then(|status| status.approval.as_mut()) {
            approval::sign(context, approval, before);
        }
    }

    fn validate(&self, object: &PackageOperation) -> Vec<FieldError> {
        let (mut errors, spec) = (Vec::new(), &object.spec);
        arguments(spec, &mut errors);
        if spec.operation != PackageOperationType::Validate {
            package_names::workspace("spec.workspaceName", &workspace_of(object), &mut errors);
        }
        if spec.lifecycle == Lifecycle::DeletionProposed {
            let supported = ["Draft", "Proposed", "Published"];
            errors.push(FieldError::not_supported("spec.lifecycle", spec.lifecycle.name(), &supported));
        }
        if !(1..=MOST_PARALLEL).contains(&spec.max_parallel) {
            let detail = format!("must be from 1 to {MOST_PARALLEL}");
            errors.push(FieldError::invalid("spec.maxParallel", spec.max_parallel, detail));
        }
        if spec.max_failures < 0 {
            errors.push(FieldError::invalid("spec.maxFailures", spec.max_failures, "must be 0 or more"));
        }
        for (path, selector) in [
            ("spec.selector.labelSelector", &spec.selector.label_selector),
            ("spec.selector.packageLabels", &spec.selector.package_labels),
        ] {
            errors.extend(selector.iter().flat_map(|selector| LabelSelector::validate(path, selector)));
        }
        if let Some(upstream) = &spec.selector.upstream {
            for (path, value) in
                [("spec.selector.upstream.repo", &upstream.repo), ("spec.selector.upstream.package", &upstream.package)]
            {
                if value.is_empty() {
                    errors.push(FieldError::required(path, ""));
                }
            }
        }
        errors
    }

    fn validate_update(&self, new: &PackageOperation, old: &PackageOperation) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let comparable = PackageOperationSpec { cancel: old.spec.cancel, ..new.spec.clone() };
        if comparable != old.spec {
            errors.push(FieldError::forbidden("spec", "an operation is immutable, except that cancel may become true"));
        }
        validation::cancel_is_final(new.spec.cancel, old.spec.cancel, &mut errors);
        errors
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, PackageOperation>) -> Result<(), ApiError> {
        match change {
            Admission::Create(operation) => require_change(context, operation).await,
            Admission::Update { subresource: "status", new, .. } => {
                validation::written_by_server::<PackageOperation>(context, &new.name_any())
            }
            Admission::Update { subresource: APPROVAL, new, old } => admit_approval(context, new, old).await,
            Admission::Update { .. } | Admission::Delete(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(spec: Value) -> Vec<String> {
        let operation = json!({"metadata": {"name": "upgrade-basens", "namespace": "shop"}, "spec": spec});
        let found = PackageOperationStrategy.validate(&serde_json::from_value(operation).unwrap());
        found.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn arguments_fit_the_operation() {
        let validator = json!({"validator": {"image": "starlark:v0.4.3"}});
        for good in [
            json!({"operation": "Upgrade", "upgrade": {"revision": 2, "strategy": "fast-forward"}}),
            json!({"operation": "Rollback"}),
            json!({"operation": "Validate", "selector": {"repositories": ["deployments"]}}),
            json!({"operation": "AddFunction", "addFunction": validator, "lifecycle": "Published"}),
        ] {
            assert_eq!(errors(good.clone()), [""; 0], "{good}");
        }
        for (wrong, field) in [
            (json!({"operation": "Upgrade", "rollback": {}}), "spec.rollback"),
            (json!({"operation": "Upgrade", "upgrade": {"strategy": "best"}}), "spec.upgrade.strategy"),
            (json!({"operation": "AddFunction"}), "spec.addFunction"),
            (json!({"operation": "AddFunction", "addFunction": {"mutator": {}}}), "spec.addFunction.mutator.image"),
            (json!({"operation": "Upgrade", "lifecycle": "DeletionProposed"}), "spec.lifecycle"),
            (json!({"operation": "Upgrade", "maxParallel": 51}), "spec.maxParallel"),
            (json!({"operation": "Upgrade", "workspaceName": "a.b"}), "spec.workspaceName"),
            (
                json!({"operation": "Upgrade", "selector": {"upstream": {"repo": "a"}}}),
                "spec.selector.upstream.package",
            ),
        ] {
            assert_eq!(errors(wrong.clone()), [field], "{wrong}");
        }
    }

    #[test]
    fn operation_is_immutable_but_for_its_cancellation() {
        let of = |spec: Value| -> PackageOperation {
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()
        };
        let old = of(json!({"operation": "Upgrade"}));
        let canceled = of(json!({"operation": "Upgrade", "cancel": true}));
        assert!(PackageOperationStrategy.validate_update(&canceled, &old).is_empty());
        assert_eq!(PackageOperationStrategy.validate_update(&old, &canceled).len(), 1);
        assert_eq!(PackageOperationStrategy.validate_update(&of(json!({"operation": "Rollback"})), &old).len(), 1);
    }
}
