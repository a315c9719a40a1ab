//! Truncation of texts that users or other servers write, and of lists.
//!
//! Elsewhere: the log of Runs and the reports to pull requests cut at the end of a line.

/// A text, or the first `most` characters of it, with an ellipsis behind them where there are more.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// The first `most` items of a list, and the number of the others: `a, b, and 3 more`.
pub fn first(items: &[impl AsRef<str>], most: usize, separator: &str) -> String {
    let more = items.len().saturating_sub(most);
    let more = (more > 0).then(|| format!("and {more} more"));
    let named = items.iter().take(most).map(AsRef::as_ref).chain(more.as_deref());
    named.collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_marks_truncated_text() {
        assert_eq!(cut("", 0), "");
        assert_eq!(cut("éé", 2), "éé");
        assert_eq!(cut("ééé", 2), "éé…");
    }

    #[test]
    fn long_list_ends_with_the_number_of_the_others() {
        assert_eq!(first(&["a", "b"], 2, ", "), "a, b");
        assert_eq!(first(&["a", "b", "c", "d"], 2, "; "), "a; b; and 2 more");
    }
}
