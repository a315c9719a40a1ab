//! Texts from anywhere, of which only the beginning is kept.
//!
//! Elsewhere: what is cut where a line ends is so beside whoever shows lines (`runs::journal`, `controllers::pull_requests::report`).

/// A text, or the first `most` characters of it, with an ellipsis behind them where there are more.
pub(crate) fn cut(text: &str, most: usize) -> String {
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
