//! The table columns of kinds that execute something: the requester, and the cause of a wait or a result.

use serde_json::Value;
use stoa_machinery::{
    definition::{Cell, Column},
    object::Object,
};

/// The user who requested the object, for `-o wide`.
pub(super) fn requester(description: &'static str) -> Column {
    Column::new("Requester", Cell::Path(&["status", "requester", "username"]), description).wide()
}

/// The message of the condition that explains the phase, for `-o wide`.
pub(super) fn explanation() -> Column {
    Column::new("Message", Cell::Compute(explaining), "The cause of a failure or a wait, or the result.").wide()
}

fn explaining(object: &Object) -> Value {
    let conditions = object.get_path(&["status", "conditions"]).and_then(Value::as_array);
    let explains = |c: &&Value| {
        matches!(c["type"].as_str(), Some("Complete" | "Failed" | "Waiting" | "AwaitingApproval"))
            && c["status"] == "True"
    };
    conditions.and_then(|list| list.iter().find(explains)).map_or(Value::Null, |c| c["message"].clone())
}
