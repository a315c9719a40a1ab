//! Field conflicts of server-side apply: fields of the Spec that another manager has.
//!
//! A manual edit is drift, and a plan reverts it. A field that another manager applies is taken only if the resource
//! sets [`FORCE`]. The same holds for any field of an object that is not recorded.

use serde::{Deserialize, Serialize};

use crate::sensitive::Sensitive;
use crate::spec::Resource;

/// The extension or annotation of a resource that takes over fields of other managers: `"true"`.
pub const FORCE: &str = "stoa.dev/force-conflicts";

/// The fields that are wanted here and that one other manager has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FieldConflict {
    /// The other manager, such as `kubectl-edit`.
    pub manager: String,
    /// Whether the manager applies these fields, rather than having updated them once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub applies: bool,
    /// The fields, such as `.spec.replicas`.
    pub fields: Vec<String>,
}

/// Whether a resource takes these fields when the plan does not say so. `is_recorded` if the object is known as ours.
pub fn may_take(resource: &Resource, is_recorded: bool, conflicts: &[FieldConflict]) -> bool {
    resource.is_set(FORCE) || is_recorded && conflicts.iter().all(|conflict| !conflict.applies)
}

/// The conflicts as plans show them: the key of a list item may be sensitive, and is masked in the field's path.
pub fn masked(conflicts: &[FieldConflict], sensitive: &Sensitive) -> Vec<FieldConflict> {
    let fields = |of: &FieldConflict| of.fields.iter().map(|field| sensitive.redact(field)).collect();
    conflicts.iter().map(|of| FieldConflict { fields: fields(of), ..of.clone() }).collect()
}

/// Whether a plan that takes some fields covers these conflicts. Both are masked.
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
    fn edited_fields_are_taken_but_applied_ones_are_not() {
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
    fn only_planned_fields_are_taken() {
        let planned = [conflict("hand", false, &[".data.a", ".data.b"]), conflict("flux", true, &[".data.c"])];
        assert!(are_planned(&planned, &[conflict("hand", false, &[".data.b"])]));
        assert!(are_planned(&planned, &[]) && are_planned(&planned, &planned));
        assert!(!are_planned(&planned, &[conflict("hand", false, &[".data.b", ".data.c"])]));
        assert!(!are_planned(&[], &planned));
    }
}
