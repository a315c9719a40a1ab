//! Suggestions for misspelled words ("did you mean …").

/// The known word with the smallest edit distance to `word`: at most two insertions, deletions or substitutions, and for short
/// words fewer. Case does not matter.
pub fn suggestion<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let word = word.to_lowercase();
    let near = known.iter().map(|known| (distance(&word, &known.to_lowercase()), *known)).min();
    near.filter(|(distance, known)| *distance <= (known.len() / 2).min(2)).map(|(_, known)| known)
}

/// The Levenshtein distance of two texts, as far as it is small.
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(b.len() + 3).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let exchanged = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_word_is_suggested() {
        let known = ["cluster", "kubeConfig", "id"];
        for (word, expected) in [
            ("clusterr", Some("cluster")),
            ("Clusters", Some("cluster")),
            ("clutser", Some("cluster")),
            ("kubeconfig", Some("kubeConfig")),
            ("uid", Some("id")),
            ("cl", None),
            ("provider", None),
            ("", None),
        ] {
            assert_eq!(suggestion(word, &known), expected, "{word}");
        }
    }
}
