//! How long one resource may take, where it says so itself.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Map, Value};

use crate::problem::{Problem, reason};
use crate::spec::{place, setting};

/// The extension, or annotation, of a resource that takes longer than others, or is to fail sooner: a duration such as `90s`,
/// `15m` or `1h30m`. A call for it may take as long, with all tries, and so may it afterwards until it is healthy.
pub const TIMEOUT: &str = "stoa.dev/timeout";

/// The longest that one may take.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads what a resource says, wanted or recorded, by its extensions and attributes; nothing when it says nothing.
///
/// # Errors
///
/// What is wrong with it, without the resource's id.
pub fn timeout(extensions: &Map<String, Value>, attributes: &Map<String, Value>) -> Result<Option<Duration>, Problem> {
    let text = match setting(extensions, attributes, TIMEOUT) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text,
        Some(_) => return Err(invalid(extensions, "a duration such as \"15m\" is wanted here")),
    };
    let length = text.parse::<SignedDuration>().ok().and_then(|length| Duration::try_from(length).ok());
    match length {
        None => Err(invalid(extensions, &format!("`{text}` is no duration such as 90s, 15m or 1h30m"))),
        Some(length) if length.is_zero() || length > LONGEST => {
            Err(invalid(extensions, &format!("`{text}` is not more than nothing and at most 24h")))
        }
        Some(length) => Ok(Some(length)),
    }
}

fn invalid(extensions: &Map<String, Value>, message: &str) -> Problem {
    Problem::new(reason::INVALID_RESOURCE, message).at(place(extensions, TIMEOUT))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn durations_are_read_from_extensions_or_else_annotations() {
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
    fn what_is_no_duration_is_refused_with_its_place() {
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
