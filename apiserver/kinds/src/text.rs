//! Truncation of texts that users or other servers write.
//!
//! Elsewhere: the log of Runs and the reports to pull requests cut at the end of a line.

/// A text, or the first `most` characters of it, with an ellipsis behind them where there are more.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_behind_so_many_characters_and_says_so() {
        assert_eq!(cut("", 0), "");
        assert_eq!(cut("éé", 2), "éé");
        assert_eq!(cut("ééé", 2), "éé…");
    }
}
