//! The documents of a file with several, which lines of `---` separate.

use std::collections::BTreeMap;
use std::ops::Range;

/// Where the documents of a text are that say something, without the lines between them.
pub fn documents(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        if is_marker(line) {
            found.push(start..at);
            start = end;
        }
        at = end;
    }
    found.push(start..text.len());
    found.retain(|range| says_something(&text[range.clone()]));
    found
}

/// The text with some of its [`documents`], by where they start, replaced or removed. A line between documents goes with one
/// that is removed; the text is empty once all are.
pub fn rewritten(text: &str, changes: &BTreeMap<usize, Option<String>>) -> String {
    let (mut out, mut at) = (String::new(), 0);
    // Whether a document stays before, and whether the next line between documents has none before it.
    let (mut has_document, mut is_first_removed) = (false, false);
    for range in documents(text) {
        let between = &text[at..range.start];
        at = range.end;
        let between = if is_first_removed { without_marker(between, true) } else { between.to_owned() };
        is_first_removed = false;
        match changes.get(&range.start) {
            Some(None) if has_document => out.push_str(&without_marker(&between, false)),
            Some(None) => {
                is_first_removed = true;
                out.push_str(&between);
            }
            changed => {
                let document = changed.and_then(Option::as_deref).unwrap_or(&text[range.clone()]);
                out.push_str(&between);
                out.push_str(document);
                if !document.ends_with('\n') && range.end < text.len() {
                    out.push('\n');
                }
                has_document = true;
            }
        }
    }
    if !has_document {
        return String::new();
    }
    out + &text[at..]
}

/// What is between two documents without its first or last line of `---`.
fn without_marker(between: &str, first: bool) -> String {
    let lines: Vec<&str> = between.split_inclusive('\n').collect();
    let mut markers = lines.iter().enumerate().filter(|(_, line)| is_marker(line)).map(|(at, _)| at);
    let marker = if first { markers.next() } else { markers.next_back() };
    lines.iter().enumerate().filter(|(at, _)| Some(*at) != marker).map(|(_, line)| *line).collect()
}

/// The text with one more document at its end.
pub fn appended(text: &str, document: &str) -> String {
    if documents(text).is_empty() {
        return format!("{text}{document}");
    }
    let newline = if text.ends_with('\n') { "" } else { "\n" };
    // A line at the end has nothing behind it yet.
    let line = if text.lines().next_back().is_some_and(is_marker) { "" } else { "---\n" };
    format!("{text}{newline}{line}{document}")
}

/// Whether a line is between documents.
fn is_marker(line: &str) -> bool {
    let rest = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
    rest.is_some_and(|rest| {
        let text = rest.trim();
        text.is_empty() || (rest.starts_with([' ', '\t']) && text.starts_with('#'))
    })
}

fn says_something(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim();
        !(line.is_empty() || line.starts_with('#') || line.starts_with('%'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# the head\n---\na: 1\n--- # the second\nb: |\n  text\n  ---\n---\n# nothing\n---\nc: 1\n";

    fn said(text: &str) -> Vec<&str> {
        documents(text).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn documents_are_apart_by_lines_of_their_own() {
        assert_eq!(said(FILE), ["a: 1\n", "b: |\n  text\n  ---\n", "c: 1\n"]);
        assert_eq!(said("a: 1"), ["a: 1"]);
        assert_eq!(said("---x: 1\n"), ["---x: 1\n"]);
        assert_eq!(said("# nothing\n"), [""; 0]);
    }

    #[test]
    fn removed_document_leaves_the_others_as_they_are() {
        for (number, expected) in [
            "# the head\n---\nb: |\n  text\n  ---\n---\n# nothing\n---\nc: 1\n",
            "# the head\n---\na: 1\n---\n# nothing\n---\nc: 1\n",
            "# the head\n---\na: 1\n--- # the second\nb: |\n  text\n  ---\n---\n# nothing\n",
        ]
        .into_iter()
        .enumerate()
        {
            let left = rewritten(FILE, &[(documents(FILE)[number].start, None)].into());
            assert_eq!(left, expected, "{number}");
            assert_eq!(said(&left).len(), 2);
        }
        assert_eq!(rewritten("# head\na: 1\n---\nb: 1\n", &[(0, None)].into()), "b: 1\n");
        assert_eq!(rewritten("---\na: 1\n", &[(4, None)].into()), "");
        let changes = [(0, None), (9, Some("b: 2".to_owned())), (18, None)].into();
        assert_eq!(rewritten("a: 1\n---\nb: 1\n---\nc: 1\n", &changes), "b: 2\n");
    }

    #[test]
    fn appended_document_is_the_last() {
        for text in ["a: 1\n", "a: 1", "a: 1\n---\n"] {
            assert_eq!(appended(text, "b: 1\n"), "a: 1\n---\nb: 1\n", "{text:?}");
        }
        assert_eq!(appended("# head\n", "b: 1\n"), "# head\nb: 1\n");
    }
}
