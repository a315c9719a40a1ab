//! The path of a Stack's folder in its Source.

use stoa_types::{Project, Stack};

/// A stack's path in its source.
pub fn path(stack: &Stack, project: &Project) -> String {
    path_below(stack, &project.spec.path)
}

/// The same, by the path of its project.
pub(crate) fn path_below(stack: &Stack, project: &str) -> String {
    if !stack.spec.path.is_empty() {
        return stack.spec.path.clone();
    }
    let base = project.trim_end_matches('/');
    if base.is_empty() { stack.spec.stack_name.clone() } else { format!("{base}/{}", stack.spec.stack_name) }
}
