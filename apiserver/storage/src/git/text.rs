//! YAML files as people keep them.

use serde_json::Value;

/// Whether two files say the same, whatever their comments and order. A file that does not parse
/// says nothing, so it equals none but itself.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    one == other || parse(one).is_some_and(|value| Some(value) == parse(other))
}

fn parse(text: &[u8]) -> Option<Value> {
    serde_saphyr::from_str(std::str::from_utf8(text).ok()?).ok()
}

/// What becomes of the file `current` when its object rendered as `before` and now as `after`.
pub(super) fn updated(current: Option<&[u8]>, _before: Option<&str>, after: &str) -> Option<String> {
    match current {
        Some(current) if same(current, after.as_bytes()) => None,
        _ => Some(after.to_owned()),
    }
}
