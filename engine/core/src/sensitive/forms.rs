//! The forms in which a generator may write a secret text.
//!
//! Templates trim, quote, indent and encode texts. A text in such a form is as secret as the text itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use crate::object::encoded;

/// Shorter lines of a text stand in other texts by chance.
const LINE: usize = 8;

/// Adds the forms of a text: as it is, without the space around it, each of its long lines, in base64, and as it is inside
/// quotes of JSON and YAML. A text of white space has none.
pub(super) fn collect(text: &str, forms: &mut BTreeSet<Arc<str>>) {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return;
    }
    let lines = trimmed.lines().map(str::trim).filter(|line| line.len() >= LINE && !is_border(line));
    for part in [text, trimmed].into_iter().chain(lines) {
        forms.insert(part.into());
        let in_json = in_json(part);
        forms.insert(in_go(&in_json).into());
        forms.insert(in_json.into());
        forms.insert(part.replace('\'', "''").into());
    }
    forms.extend([text, trimmed].map(|text| Arc::from(encoded(text))));
}

/// Whether a line is the first or last one of a PEM block, which all of them have.
fn is_border(line: &str) -> bool {
    line.starts_with("-----")
}

/// A text as it is between the quotes of JSON.
pub(super) fn in_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// A text in JSON as Go writes it by default, which templates in Go do: fit for HTML.
fn in_go(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
            _ => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(text: &str) -> Vec<String> {
        let mut forms = BTreeSet::new();
        collect(text, &mut forms);
        forms.iter().map(|form| form.to_string()).collect()
    }

    #[test]
    fn quotes_and_space_make_other_forms() {
        assert_eq!(forms("pass\n"), ["cGFzcw==", "cGFzcwo=", "pass", "pass\n", "pass\\n"]);
        assert_eq!(forms("a\"b'c&d"), ["YSJiJ2MmZA==", "a\"b''c&d", "a\"b'c&d", "a\\\"b'c&d", "a\\\"b'c\\u0026d"]);
        assert_eq!(forms(" \n "), [""; 0]);
    }

    #[test]
    fn long_lines_are_forms_but_borders_are_not() {
        let forms = forms("-----BEGIN KEY-----\nMIIEowIBAAKC\nshort\n-----END KEY-----\n");
        assert!(forms.iter().any(|form| form == "MIIEowIBAAKC"), "{forms:?}");
        assert!(!forms.iter().any(|form| form == "short" || form == "-----BEGIN KEY-----"), "{forms:?}");
    }
}
