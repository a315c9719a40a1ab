//! Fields that are wanted here and that somebody else manages, as server-side apply tells of them.
//!
//! What others changed without saying that it is theirs, as an edit by hand does, is drift, and a plan takes it back.
//! Whoever applies a field claims it, and so does whoever has one of a resource that is not recorded: it is taken only
//! where the resource says so by [`FORCE`].

use serde::{Deserialize, Serialize};

use crate::sensitive::Sensitive;
use crate::spec::Resource;

/// The extension, or annotation, of a resource by which fields are taken from whoever manages them: `"true"`.
pub const FORCE: &str = "stoa.dev/force-conflicts";

/// The fields that are wanted here and that one other manager has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FieldConflict {
    /// The other manager, such as `kubectl-edit`.
    pub manager: String,
    /// Whether it applies these fields, rather than having changed them once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub applies: bool,
    /// The fields, such as `.spec.replicas`.
    pub fields: Vec<String>,
}

/// Whether a resource takes these fields, if nobody said so when it was planned. `is_recorded` when it is known as ours.
pub fn may_take(resource: &Resource, is_recorded: bool, conflicts: &[FieldConflict]) -> bool {
    resource.is_set(FORCE) || is_recorded && conflicts.iter().all(|conflict| !conflict.applies)
}

/// As plans have them: an item of a list may be told apart by a sensitive value, which is in the field's path.
pub fn masked(conflicts: &[FieldConflict], sensitive: &Sensitive) -> Vec<FieldConflict> {
    let fields = |of: &FieldConflict| of.fields.iter().map(|field| sensitive.redact(field)).collect();
    conflicts.iter().map(|of| FieldConflict { fields: fields(of), ..of.clone() }).collect()
}

/// Whether a plan that takes some fields takes these, which are masked as the plan's are.
pub fn are_planned(planned: &[FieldConflict], conflicts: &[FieldConflict]) -> bool {
    conflicts.iter().all(|conflict| {
        let planned = planned.iter().find(|planned| planned.manager == conflict.manager);
        planned.is_some_and(|planned| conflict.fields.iter().all(|field| planned.fields.contains(field)))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resource(extensions: Value, annotations: Value) -> Resource {
        serde_json::from_value(json!({"id": "v1:ConfigMap:a", "type": "Kubernetes", "extensions": extensions,
            "attributes": {"metadata": {"name": "a", "annotations": annotations}}}))
        .unwrap()
    }

    fn conflict(manager: &str, applies: bool, fields: &[&str]) -> FieldConflict {
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        FieldConflict { manager: manager.to_owned(), applies, fields }
    }

    #[test]
    fn an_edit_is_taken_back_and_a_claim_is_not() {
        let (plain, none) = (resource(json!({}), json!({})), json!({}));
        let (edit, claim) = (conflict("kubectl-edit", false, &[".data.a"]), conflict("flux", true, &[".data.b"]));
        assert!(may_take(&plain, true, std::slice::from_ref(&edit)));
        assert!(!may_take(&plain, false, std::slice::from_ref(&edit)), "nobody knows it as ours");
        assert!(!may_take(&plain, true, &[edit.clone(), claim.clone()]));
        for (extensions, annotations, forced) in [
            (json!({FORCE: "true"}), none.clone(), true),
            (json!({FORCE: true}), none.clone(), true),
            (none.clone(), json!({FORCE: "true"}), true),
            (json!({FORCE: "false"}), json!({FORCE: "true"}), false),
            (json!({FORCE: 1}), none.clone(), false),
        ] {
            let resource = resource(extensions, annotations);
            assert_eq!(may_take(&resource, false, &[edit.clone(), claim.clone()]), forced, "{resource:?}");
        }
    }

    #[test]
    fn only_what_was_planned_is_taken_as_planned() {
        let planned = [conflict("hand", false, &[".data.a", ".data.b"]), conflict("flux", true, &[".data.c"])];
        assert!(are_planned(&planned, &[conflict("hand", false, &[".data.b"])]));
        assert!(are_planned(&planned, &[]) && are_planned(&planned, &planned));
        assert!(!are_planned(&planned, &[conflict("hand", false, &[".data.b", ".data.c"])]));
        assert!(!are_planned(&[], &planned));
    }
}
