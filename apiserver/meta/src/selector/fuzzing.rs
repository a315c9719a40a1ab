//! Properties of selectors.

use super::{FieldSelector, LabelSelector};
use crate::fuzzing::WIDGET;

/// A label selector that was printed selects the same, a field selector never matches both ways, and anything else is
/// a bad request.
pub fn selectors(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match LabelSelector::parse(&text) {
        Ok(selector) => {
            let printed = selector.to_string();
            assert_eq!(LabelSelector::parse(&printed).expect("it was printed"), selector, "{printed}");
            let labels = [("a", "1"), ("env", "dev"), ("tier", "")];
            let get = |key: &str| labels.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
            if selector.is_empty() {
                assert!(selector.matches(get));
            }
        }
        Err(error) => assert_eq!((error.code(), error.reason()), (400, "BadRequest")),
    }
    for declared in [&[][..], &WIDGET.selectable_fields] {
        match FieldSelector::parse(&text, declared) {
            Ok(selector) => {
                let matches = |namespace: &str, name: &str| selector.matches(namespace, name, |_| "Fast");
                if selector.is_empty() {
                    assert!(matches("", "x"));
                }
                // What can only be one name is that or nothing.
                if let Some(name) = selector.exact_name() {
                    assert!(!matches(selector.exact_namespace().unwrap_or("default"), &format!("{name}x")));
                }
            }
            Err(error) => assert_eq!((error.code(), error.reason()), (400, "BadRequest")),
        }
    }
}
