//! The action of a data source or an ephemeral resource, whose values are only read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::PlanInput;
use super::decision::Decision;
use crate::diff::of_new;
use crate::import::{IMPORT_ID, is_never_deleted};
use crate::plan::{Action, PlannedAction, Preview};
use crate::problem::{Problem, reason};
use crate::resolve::Resolved;
use crate::spec::{Resource, ResourceId};
use crate::state::StateResource;

/// Decides about a data source or an ephemeral resource. Attributes of a data source are shown only if the apply has to read
/// them: those that the plan knows are shown where others refer to them.
///
/// # Errors
///
/// Its id has a recorded object, which a read would leave without an owner.
pub(super) fn decide(
    input: &PlanInput<'_>,
    resource: &Resource,
    prior: Option<&StateResource>,
    resolved: &Resolved<'_>,
) -> Result<Decision, Problem> {
    if prior.is_some() {
        let message = "an object is recorded under this id, and what is only read has none; give it another id";
        return Err(Problem::new(reason::INVALID_RESOURCE, message).of(&resource.id).at("extensions.mode"));
    }
    if is_never_deleted(&resource.extensions) {
        let message = "it is only read, so it cannot be imported; remove one of both extensions";
        let field = format!("extensions.{IMPORT_ID}");
        return Err(Problem::new(reason::INVALID_RESOURCE, message).of(&resource.id).at(field));
    }
    let changes = match input.previews.get(&resource.id) {
        Some(Preview::Planned(plan)) if !plan.unknown.is_empty() && !resource.is_ephemeral() => {
            let after = Resolved {
                attributes: Cow::Borrowed(&plan.after),
                unknown: plan.unknown.clone(),
                sensitive: resolved.sensitive.union(&plan.sensitive).cloned().collect(),
            };
            of_new(&resource.id, resource.kind, &after, input.keys)
        }
        Some(_) | None => Vec::new(),
    };
    Ok(Decision { changes, ..Decision::new(Action::Read) })
}

/// Whether a data source has to be read after changes of resources that it depends on, by a sketch of their actions: after
/// any change if `dependsOn` names the resource, and else after a new object, which an argument may name.
pub fn is_read_later(resource: &Resource, before: &ResourceId, actions: &BTreeMap<ResourceId, PlannedAction>) -> bool {
    let Some(planned) = actions.get(before) else { return false };
    let is_explicit = resource.depends_on.contains(before);
    match planned.action {
        Action::Create | Action::Replace => true,
        Action::Update | Action::Adopt => is_explicit,
        Action::Read => is_explicit && planned.is_shown(),
        Action::Delete | Action::Forget | Action::Import | Action::Unchanged => false,
    }
}
