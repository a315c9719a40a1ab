//! The timeout of one resource, from its extension or annotation.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Map, Value};

use crate::problem::{Problem, reason};
use crate::spec::{setting, setting_field};

/// The extension or annotation with the timeout of a resource: a duration such as `90s`, `15m` or `1h30m`. It limits a call
/// with all retries, and then the wait for health.
pub const TIMEOUT: &str = "stoa.dev/timeout";

/// The longest timeout.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The timeout of a wanted or recorded resource, by its extensions and attributes; `None` without one.
pub fn timeout(extensions: &Map<String, Value>, attributes: &Map<String, Value>) -> Result<Option<Duration>, Problem> {
    let text = match setting(extensions, attributes, TIMEOUT) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text,
        Some(_) => return Err(invalid(extensions, "must be a duration such as \"15m\"")),
    };
    let length = text.parse::<SignedDuration>().ok().and_then(|length| Duration::try_from(length).ok());
    match length {
        None => Err(invalid(extensions, &format!("`{text}` is not a duration such as 90s, 15m or 1h30m"))),
        Some(length) if length.is_zero() || length > LONGEST => {
            Err(invalid(extensions, &format!("`{text}` is not longer than 0s and at most 24h")))
        }
        Some(length) => Ok(Some(length)),
    }
}

fn invalid(extensions: &Map<String, Value>, message: &str) -> Problem {
    Problem::new(reason::INVALID_RESOURCE, message).at(setting_field(extensions, TIMEOUT))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn timeout_is_read_from_extension_or_annotation() {
        let annotated = |text: &str| map(json!({"metadata": {"annotations": {TIMEOUT: text}}}));
        let none = Map::new();
        assert_eq!(timeout(&none, &none), Ok(None));
        for (text, seconds) in [("90s", 90), ("15m", 900), ("1h30m", 5400), ("24h", 86_400)] {
            let expected = Ok(Some(Duration::from_secs(seconds)));
            assert_eq!(timeout(&map(json!({TIMEOUT: text})), &annotated("1s")), expected);
            assert_eq!(timeout(&none, &annotated(text)), expected);
        }
    }

    #[test]
    fn invalid_timeout_is_reported() {
        for value in
            [json!(""), json!("soon"), json!("5"), json!(5), json!("0s"), json!("-1m"), json!("25h"), json!("9e99h")]
        {
            let problem = timeout(&map(json!({TIMEOUT: value})), &Map::new()).unwrap_err();
            assert_eq!(
                (problem.reason.as_str(), problem.field.as_str()),
                (reason::INVALID_RESOURCE, "extensions[\"stoa.dev/timeout\"]")
            );
        }
        let problem = timeout(&Map::new(), &map(json!({"metadata": {"annotations": {TIMEOUT: "x"}}}))).unwrap_err();
        assert_eq!(problem.field, "attributes.metadata.annotations[\"stoa.dev/timeout\"]");
    }
}
