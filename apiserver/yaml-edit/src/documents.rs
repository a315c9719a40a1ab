//! The documents of a file with several, apart by lines of `---`.

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

/// The text without one of its [`documents`], and without the line that was between it and another; empty when it was the
/// only one.
pub fn without(text: &str, document: &Range<usize>) -> String {
    let others: Vec<Range<usize>> = documents(text).into_iter().filter(|it| it != document).collect();
    if others.is_empty() {
        return String::new();
    }
    let (before, after) = (&text[..document.start], &text[document.end..]);
    // The line before it goes with it, or the one behind it where it is the first.
    let before_line = before.trim_end_matches('\n').rfind('\n').map_or(0, |newline| newline + 1);
    if is_marker(&before[before_line..]) && others.iter().any(|it| it.end <= before_line) {
        return format!("{}{after}", &before[..before_line]);
    }
    let after = after.split_once('\n').map_or("", |(line, rest)| if is_marker(line) { rest } else { after });
    format!("{before}{after}")
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
            let left = without(FILE, &documents(FILE)[number]);
            assert_eq!(left, expected, "{number}");
            assert_eq!(said(&left).len(), 2);
        }
        assert_eq!(without("# head\na: 1\n---\nb: 1\n", &(0..12)), "b: 1\n");
        assert_eq!(without("---\na: 1\n", &(4..9)), "");
    }

    #[test]
    fn appended_document_is_the_last() {
        for text in ["a: 1\n", "a: 1", "a: 1\n---\n"] {
            assert_eq!(appended(text, "b: 1\n"), "a: 1\n---\nb: 1\n", "{text:?}");
        }
        assert_eq!(appended("# head\n", "b: 1\n"), "# head\nb: 1\n");
    }
}
