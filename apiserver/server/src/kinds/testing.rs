//! What tests of several modules begin with.

use serde_json::Value;
use stoa_types::Stack;

/// Has the status of a stack name these deployments.
pub(crate) fn deploying(deployments: Value) -> impl Fn(&mut Stack) + Send {
    move |stack| {
        stack.status.get_or_insert_default().deployments = serde_json::from_value(deployments.clone()).unwrap();
    }
}
