//! The table columns of the condition `Ready`: its status, and for `-o wide` its reason and message.

use serde_json::Value;
use stoa_machinery::{
    definition::{Cell, Column},
    object::Object,
};
use stoa_types::reason;

/// Whether it is, or `Unknown` as long as nobody has looked.
pub(super) fn status(description: &'static str) -> Column {
    Column::new("Ready", Cell::Compute(|o| field(o, "status").unwrap_or_else(|| "Unknown".into())), description)
}

/// Why, in one word.
pub(super) fn reason() -> Column {
    let cell = Cell::Compute(|o| field(o, "reason").unwrap_or_default());
    Column::new("Reason", cell, "The reason of the condition Ready.").wide()
}

/// Why, for people.
pub(super) fn message() -> Column {
    let cell = Cell::Compute(|o| field(o, "message").unwrap_or_default());
    Column::new("Message", cell, "The message of the condition Ready.").wide()
}

fn field(object: &Object, name: &str) -> Option<Value> {
    let conditions = object.get_path(&["status", "conditions"])?.as_array()?;
    let ready = conditions.iter().find(|condition| condition["type"] == reason::READY)?;
    ready.get(name).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(object: Value) -> [Value; 3] {
        let Value::Object(map) = object else { unreachable!("a map") };
        let object = Object(map);
        [status(""), reason(), message()].map(|column| match column.cell {
            Cell::Compute(find) => find(&object),
            Cell::Name | Cell::Since(_) | Cell::Path(_) | Cell::Age(_) | Cell::JsonPath(_) => {
                unreachable!("they are computed")
            }
        })
    }

    #[test]
    fn columns_say_whether_an_object_is_ready_and_why() {
        let other = json!({"type": "Drifted", "status": "True", "reason": "InSync", "message": "no"});
        let ready = json!({"type": "Ready", "status": "False", "reason": "Unreachable", "message": "it is away"});
        let object = json!({"status": {"conditions": [other, ready]}});
        assert_eq!(shown(object), ["False", "Unreachable", "it is away"]);
        assert_eq!(shown(json!({})), [json!("Unknown"), Value::Null, Value::Null]);
    }
}
