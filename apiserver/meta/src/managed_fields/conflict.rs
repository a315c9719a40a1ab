//! The error of a conflict between field managers: 409 with a cause per field.
//!
//! Follows `k8s.io/apimachinery/pkg/util/managedfields/internal/conflict.go`.

use super::{path::Shown, updater::Conflict};
use crate::status::ApiError;

/// 409 `Conflict`, naming every field and who owns it.
pub(super) fn error(conflicts: &[Conflict]) -> ApiError {
    let mut error = ApiError::new(409, "Conflict", message(conflicts));
    for conflict in conflicts {
        let text = format!("conflict with {}", conflict.manager.describe());
        error = error.with_cause("FieldManagerConflict", &Shown(&conflict.path).to_string(), text);
    }
    error
}

fn message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        let manager = only.manager.describe();
        return format!("Apply failed with 1 conflict: conflict with {manager}: {}", Shown(&only.path));
    }
    let mut lines = Vec::new();
    for (index, conflict) in conflicts.iter().enumerate() {
        if index == 0 || conflicts[index - 1].manager != conflict.manager {
            lines.push(format!("conflicts with {}:", conflict.manager.describe()));
        }
        lines.push(format!("- {}", Shown(&conflict.path)));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
