//! A search for sensitive texts within other texts.
//!
//! A Secret may have hundreds of thousands of texts, and the object around it as many. Therefore equal texts are looked
//! up in a set, and substrings by binary search in the sorted texts.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::forms::in_json;

/// Shorter texts are not searched for inside others: they would be found everywhere.
pub(super) const SEARCHED: usize = 4;
/// Up to this number, texts are searched one by one, which is faster than the index.
const FEW: usize = if cfg!(test) { 8 } else { 64 };
/// The maximum number of compared bytes for one text. Beyond it, the text counts as sensitive; long repetitions would take
/// hours.
const COMPARED: usize = if cfg!(test) { 1 << 22 } else { 1 << 30 };

/// Texts, and how they are searched for. Clones share both until one of them gets another text.
#[derive(Clone, Default)]
pub(super) struct Texts {
    all: Arc<BTreeSet<Arc<str>>>,
    /// Those of them that are not looked for inside values, only inside messages.
    words: Arc<BTreeSet<Arc<str>>>,
    /// The searched texts, sorted, without those that start with another one. Built on first use.
    shortest: Arc<OnceLock<Vec<Arc<str>>>>,
}

impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all && self.words == other.words
    }
}

impl Eq for Texts {}

/// Never shows a text.
impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Texts").field("count", &self.all.len()).finish_non_exhaustive()
    }
}

impl From<BTreeSet<Arc<str>>> for Texts {
    fn from(texts: BTreeSet<Arc<str>>) -> Self {
        Self { all: Arc::new(texts), ..Self::default() }
    }
}

impl Texts {
    /// Texts that are not looked for inside values.
    pub(super) fn of_words(words: BTreeSet<Arc<str>>) -> Self {
        let words = Arc::new(words);
        Self { all: Arc::clone(&words), words, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Also those of `other`.
    pub(super) fn extend(&mut self, other: &Self) {
        if self.is_empty() {
            self.clone_from(other);
            return;
        }
        let new: Vec<Arc<str>> = other.all.iter().filter(|text| !self.all.contains(*text)).cloned().collect();
        let is_searched = |texts: &Self, text: &Arc<str>| texts.all.contains(text) && !texts.words.contains(text);
        let is_word = |text: &&Arc<str>| !is_searched(self, text) && !is_searched(other, text);
        let words: BTreeSet<Arc<str>> = self.words.iter().chain(&*other.words).filter(is_word).cloned().collect();
        if !new.is_empty() || words != *self.words {
            Arc::make_mut(&mut self.all).extend(new);
            self.words = Arc::new(words);
            self.shortest = Arc::default();
        }
    }

    /// Whether a text is one of them, and long enough to be searched for.
    pub(super) fn have(&self, text: &str) -> bool {
        text.len() >= SEARCHED && self.all.contains(text)
    }

    /// Whether a text is one of them, or contains one that is long enough.
    pub(super) fn are_in(&self, text: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        self.all.contains(text)
            || (text.len() >= SEARCHED && has_one_of(text, self.shortest.get_or_init(|| self.shortest())))
    }

    fn shortest(&self) -> Vec<Arc<str>> {
        shortest(self.searched().filter(|text| !self.words.contains(*text)))
    }

    /// The message with `mask` in place of each text that is long enough, also in its JSON form.
    pub(super) fn masked(&self, message: &str, mask: &str) -> String {
        // Most texts start with bytes that are not in the message, which one set shows for all of them.
        let beginnings: HashSet<&[u8]> = message.as_bytes().windows(SEARCHED).collect();
        let may_be_there =
            |text: &str| text.len() <= message.len() && beginnings.contains(&text.as_bytes()[..SEARCHED]);
        let mut found: BTreeSet<Arc<str>> = BTreeSet::new();
        for text in self.searched() {
            if may_be_there(text) {
                found.insert(Arc::clone(text));
            }
            found.extend(quoted(text).filter(|text| text.len() >= SEARCHED && may_be_there(text)));
        }
        if found.is_empty() {
            return message.to_owned();
        }
        without(message, &found.into_iter().collect::<Vec<_>>(), mask)
    }

    fn searched(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all.iter().filter(|text| text.len() >= SEARCHED)
    }
}

/// The text as it is inside a text of JSON, where that differs: servers quote what they refuse, and then a key of several lines
/// has none.
fn quoted(text: &str) -> Option<Arc<str>> {
    let is_escaped = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\\');
    text.bytes().any(is_escaped).then(|| in_json(text).into())
}

/// The sorted texts that start with no other one.
fn shortest<'t>(texts: impl Iterator<Item = &'t Arc<str>>) -> Vec<Arc<str>> {
    let mut shortest: Vec<Arc<str>> = Vec::new();
    for text in texts {
        // Texts with a common prefix are adjacent.
        if shortest.last().is_none_or(|last| !text.starts_with(&**last)) {
            shortest.push(Arc::clone(text));
        }
    }
    shortest
}

/// Whether the text contains one of the [`shortest`].
fn has_one_of(text: &str, shortest: &[Arc<str>]) -> bool {
    if shortest.len() <= FEW {
        return shortest.iter().any(|sensitive| text.contains(&**sensitive));
    }
    let mut compared = 0;
    text.char_indices().map(|(at, _)| &text[at..]).any(|rest| {
        // Between one that the rest begins with and the rest itself there could only be others that begin with it.
        let next = last_up_to(rest, shortest).map_or(0, |last| last + 1);
        let (before, after) = shortest.split_at(next);
        let is_there = before.last().is_some_and(|last| rest.starts_with(&**last));
        compared +=
            [before.last(), after.first()].into_iter().flatten().map(|other| common(rest, other)).sum::<usize>();
        is_there || compared > COMPARED
    })
}

/// The length of the common prefix of two texts, in bytes.
fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

/// The position of the last sorted text that is not greater than this one.
fn last_up_to(text: &str, texts: &[Arc<str>]) -> Option<usize> {
    texts.partition_point(|other| **other <= *text).checked_sub(1)
}

/// The message with `mask` in place of each of the sorted texts, which may overlap.
fn without(message: &str, texts: &[Arc<str>], mask: &str) -> String {
    let beginnings = beginnings(texts);
    let mut compared = 0;
    let mut longest_at = |at: usize| {
        let rest = &message[at..];
        // Whatever the rest begins with, this one begins with too.
        let before = last_up_to(rest, texts);
        let next = before.map_or(0, |last| last + 1);
        let common = before.map_or(0, |last| common(rest, &texts[last]));
        compared += common + texts.get(next).map_or(0, |next| self::common(rest, next));
        if compared > COMPARED {
            return Some(at..message.len());
        }
        let mut last = before?;
        while texts[last].len() > common {
            last = beginnings[last]?;
        }
        Some(at..at + texts[last].len())
    };
    let mut covered: Vec<Range<usize>> = Vec::new();
    for found in message.char_indices().filter_map(|(at, _)| longest_at(at)) {
        match covered.last_mut() {
            Some(last) if found.start < last.end => last.end = last.end.max(found.end),
            Some(_) | None => covered.push(found),
        }
    }
    let mut masked = String::with_capacity(message.len());
    let mut end = 0;
    for range in covered {
        masked.push_str(&message[end..range.start]);
        masked.push_str(mask);
        end = range.end;
    }
    masked.push_str(&message[end..]);
    masked
}

/// For each of the sorted texts, the position of its longest proper prefix among them.
fn beginnings(texts: &[Arc<str>]) -> Vec<Option<usize>> {
    let mut beginnings = Vec::with_capacity(texts.len());
    let mut last: Option<usize> = None;
    for (at, text) in texts.iter().enumerate() {
        while let Some(shorter) = last.filter(|last| !text.starts_with(&*texts[*last])) {
            last = beginnings[shorter];
        }
        beginnings.push(last);
        last = Some(at);
    }
    beginnings
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    const MASK: &str = "(sensitive)";

    fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Texts {
        texts.into_iter().map(Arc::from).collect::<BTreeSet<Arc<str>>>().into()
    }

    /// So many texts, all of them of that length.
    fn numbered(count: usize, length: usize) -> Texts {
        (0..count).map(|number| Arc::from(format!("{number:0length$}"))).collect::<BTreeSet<Arc<str>>>().into()
    }

    /// By the rule alone.
    fn are_in(texts: &BTreeSet<String>, text: &str) -> bool {
        texts.iter().any(|sensitive| sensitive == text || (sensitive.len() >= SEARCHED && text.contains(&**sensitive)))
    }

    proptest! {
        #[test]
        fn search_finds_same_texts_as_naive_search(
            sensitive in btree_set("[abé]{1,6}", 0..40),
            others in prop::collection::vec("[abé]{0,9}", 1..8),
        ) {
            let texts = texts(sensitive.iter().map(String::as_str));
            for other in &others {
                prop_assert_eq!(texts.are_in(other), are_in(&sensitive, other), "{:?} in {:?}", sensitive, other);
            }
        }

        #[test]
        fn messages_contain_no_text(sensitive in btree_set("[ab\"\n]{1,6}", 0..40), message in "[ab\"\\\\\nn]{0,30}") {
            let masked = texts(sensitive.iter().map(String::as_str)).masked(&message, MASK);
            for text in sensitive.iter().filter(|text| text.len() >= SEARCHED) {
                prop_assert!(!masked.contains(&**text), "{text:?} is in {masked:?}");
            }
            prop_assert!(!sensitive.is_empty() || masked == message);
        }
    }

    #[test]
    fn many_texts_are_masked_as_few_are() {
        let told = "a <00000001> and <00000002><00000003>";
        let masked = "a <(sensitive)> and <(sensitive)><(sensitive)>";
        let few = texts(["00000001", "00000002", "00000003"]);
        assert_eq!(
            (few.masked(told, MASK), numbered(100, 8).masked(told, MASK)),
            (masked.to_owned(), masked.to_owned())
        );
        // Each of these begins in the one before.
        let overlapping: Vec<String> =
            (0..20_u8).map(|at| (at..at + 4).map(|letter| (b'a' + letter) as char).collect()).collect();
        let message = "<abcdefghijklmnopqrstuvw>";
        assert_eq!(texts(overlapping.iter().map(String::as_str)).masked(message, MASK), "<(sensitive)>");
    }

    #[test]
    fn expensive_comparison_counts_as_sensitive() {
        let few: Vec<String> = (0..20).map(|number| format!("other-{number}")).collect();
        let long = format!("{}b", "a".repeat(5_000));
        let texts = texts(few.iter().map(String::as_str).chain([long.as_str()]));
        assert!(texts.are_in(&"a".repeat(10_000)), "each place has 5,000 bytes in common");
        assert!(!texts.are_in(&"c".repeat(100_000)) && !texts.are_in(&"a".repeat(12)));
        let message = format!("before {}", "a".repeat(10_000));
        let masked = texts.masked(&message, "***");
        assert!(masked.starts_with("before a") && masked.ends_with("***") && masked.len() < 2_000, "{}", masked.len());
    }

    #[test]
    fn number_and_length_of_texts_are_unlimited() {
        let texts = numbered(10_000, 1000);
        assert!(!texts.are_in("none of them") && !texts.are_in(&"0".repeat(999)));
        assert!(texts.are_in(&format!("<{:01000}>", 9_999)) && !texts.are_in(&format!("<{:01000}>", 10_000)));
        let told = format!("<{:01000}> <{}>", 9_999, "0".repeat(999));
        assert_eq!(texts.masked(&told, MASK), format!("<(sensitive)> <{}>", "0".repeat(999)));
    }

    #[test]
    fn longest_match_is_redacted() {
        // The last of them up to `aaaaac` is `aaaaab`, and that up to `bbbbccce` is `bbbbcccd`; neither is there.
        let close = ["aaaa", "aaaaa", "aaaaaab", "aaaaab", "aaaab", "bbbb", "bbbbcccc", "bbbbcccd", "cccc", "dddd"];
        for (message, masked) in [
            ("<aaaa>", "<(sensitive)>"),
            ("<aaaaac>", "<(sensitive)c>"),
            ("<aaaaaa>", "<(sensitive)>"),
            ("<bbbbccce>", "<(sensitive)ccce>"),
            ("<bbbbcccb>", "<(sensitive)cccb>"),
            ("<bbbbccccdddd>", "<(sensitive)(sensitive)>"),
            ("<bbbccc>", "<bbbccc>"),
        ] {
            assert_eq!(texts(close).masked(message, MASK), masked, "{message}");
        }
    }

    #[test]
    fn clones_share_search_until_changed() {
        let first = numbered(100, 8);
        let mut second = Texts::default();
        second.extend(&first);
        assert!(first.are_in("<00000007>"));
        assert!(second.shortest.get().is_some(), "it is made once");
        second.extend(&texts(["00000007"]));
        assert!(Arc::ptr_eq(&first.shortest, &second.shortest), "nothing is new");
        second.extend(&texts(["another"]));
        assert!(second.are_in("<another>") && !first.are_in("<another>"));
        assert!(first == numbered(100, 8) && first != second);
    }
}
