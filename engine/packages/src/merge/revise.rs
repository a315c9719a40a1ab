//! Writes a merged object into its local text.

use serde_json::Value;
use stoa_yaml_edit::{Revision, revised};

use super::ListTypes;
use crate::text::{read, written};

/// The text of an object with the value `new`. Comments stay at their fields and items, or are left out. New parts come from
/// the source, a text and its value, with their comments.
pub(crate) fn revise(
    text: &str,
    (old, new): (&Value, &Value),
    lists: &ListTypes,
    source: Option<(&str, &Value)>,
) -> String {
    if text.contains("\r\n") && !text.replace("\r\n", "").contains('\n') {
        let plain = source.map(|(text, value)| (text.replace("\r\n", "\n"), value));
        let plain = plain.as_ref().map(|(text, value)| (text.as_str(), *value));
        return revise(&text.replace("\r\n", "\n"), (old, new), lists, plain).replace('\n', "\r\n");
    }
    let pairs = |path: &[String], old: &[Value], new: &[Value]| lists.pairs(path, old, new);
    let says = |text: &str| read(text).as_ref() == Ok(new);
    revised(text, &Revision { old, new, pairs: &pairs, source, says: &says }).unwrap_or_else(|| written(new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, new: &Value, expected: &str) {
        let lists = ListTypes::default();
        assert_eq!(revise(text, (&read(text).unwrap(), new), &lists, None), expected);
    }

    #[test]
    fn texts_of_yaml_1_1_stay_texts() {
        for value in ["yes", "0o7", "0777", "1_000", "12:30:45", "0x1f", "1e3", "null", "~", "", "2001-01-01"] {
            let new = json!({"a": value, "b": {"c": value}});
            assert_eq!(read(&revise("a: 1 # one\n", (&json!({"a": 1}), &new), &ListTypes::default(), None)), Ok(new));
        }
    }

    #[test]
    fn line_ends_stay() {
        check("a: 1 # one\r\nb: 2\r\n", &json!({"a": 1, "b": 3}), "a: 1 # one\r\nb: 3\r\n");
    }

    #[test]
    fn comments_of_lists_of_scalars_stay_with_their_items() {
        check("a:\n- b # b\n- c # c\n", &json!({"a": ["d", "c"]}), "a:\n- d\n- c # c\n");
    }
}
