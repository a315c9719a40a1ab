//! The texts that are sensitive, and whether one of them is in another text.
//!
//! A Secret may have hundreds of thousands of them, and the object around it as many other texts. So they are not compared one
//! with the other: equal ones are looked up, and what is inside another text is found in one pass over that.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use serde_json::Value;

/// Shorter texts are not searched for inside others: they would be found everywhere.
pub(super) const SEARCHED: usize = 4;
/// So few are searched for one after the other, which takes no memory, and less time than to make an automaton.
const FEW: usize = if cfg!(test) { 8 } else { 64 };
/// How many bytes the texts of an automaton may have together, which takes up to 80 times as much while it is made. It is more than
/// a Secret may hold, with what is behind base64 and in it.
const MOST: usize = 4 << 20;

/// Texts, and how they are searched for. Clones share both until one of them gets another text.
#[derive(Clone, Default)]
pub(super) struct Texts {
    all: Arc<BTreeSet<Arc<str>>>,
    /// Made when it is needed first.
    search: Arc<OnceLock<Search>>,
}

impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
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
        Self { all: Arc::new(texts), search: Arc::default() }
    }
}

impl Texts {
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
        if !new.is_empty() {
            Arc::make_mut(&mut self.all).extend(new);
            self.search = Arc::default();
        }
    }

    /// Whether a text is one of them, or has one in it that is long enough to be searched for.
    pub(super) fn are_in(&self, text: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        self.all.contains(text)
            || (text.len() >= SEARCHED && self.search.get_or_init(|| Search::of(self.searched().cloned())).finds(text))
    }

    /// A message with `mask` in the place of each of them that is long enough to be searched for, also as JSON quotes it.
    pub(super) fn masked(&self, message: &str, mask: &str) -> String {
        // Most begin with what is nowhere in the message, which is told without a pass over it for each.
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
        match Search::of(found) {
            Search::Few(mut texts) => {
                // Longer ones first, so that a text that contains another goes as a whole.
                texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
                texts.iter().fold(message.to_owned(), |message, text| message.replace(&**text, mask))
            }
            Search::Automaton(automaton) => without(message, &automaton, mask),
            Search::TooMuch => mask.to_owned(),
        }
    }

    fn searched(&self) -> impl Iterator<Item = &Arc<str>> {
        self.all.iter().filter(|text| text.len() >= SEARCHED)
    }
}

/// The text as it is inside a text of JSON, where that differs: servers quote what they refuse, and then a key of several lines
/// has none.
fn quoted(text: &str) -> Option<Arc<str>> {
    let is_escaped = |byte: u8| byte < b' ' || matches!(byte, b'"' | b'\\');
    text.bytes().any(is_escaped).then(|| Value::from(text).to_string().trim_matches('"').into())
}

/// The message with `mask` in the place of everything that matches, whether matches overlap or not.
fn without(message: &str, automaton: &AhoCorasick, mask: &str) -> String {
    // By their ends: of those that overlap the last one grows to its beginning.
    let mut covered: Vec<Range<usize>> = Vec::new();
    for found in automaton.find_overlapping_iter(message) {
        let mut range = found.range();
        while let Some(last) = covered.pop_if(|last| range.start < last.end) {
            range.start = range.start.min(last.start);
        }
        covered.push(range);
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

/// How texts are searched for.
enum Search {
    /// One after the other.
    Few(Vec<Arc<str>>),
    /// All at once.
    Automaton(AhoCorasick),
    /// Not at all, for want of memory: whatever is long enough counts as if one were in it.
    TooMuch,
}

impl Search {
    /// For texts that are long enough.
    fn of(texts: impl IntoIterator<Item = Arc<str>>) -> Self {
        let texts: Vec<Arc<str>> = texts.into_iter().collect();
        if texts.len() <= FEW {
            return Self::Few(texts);
        }
        if texts.iter().map(|text| text.len()).sum::<usize>() > MOST {
            return Self::TooMuch;
        }
        // The other kinds take several times as much memory.
        let built = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(texts.iter().map(|text| text.as_bytes()));
        built.map_or(Self::TooMuch, Self::Automaton)
    }

    fn finds(&self, text: &str) -> bool {
        match self {
            Self::Few(texts) => texts.iter().any(|sensitive| text.contains(&**sensitive)),
            Self::Automaton(automaton) => automaton.is_match(text),
            Self::TooMuch => true,
        }
    }
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
        fn a_text_is_found_as_by_looking_for_each(
            sensitive in btree_set("[abé]{1,6}", 0..40),
            others in prop::collection::vec("[abé]{0,9}", 1..8),
        ) {
            let texts = texts(sensitive.iter().map(String::as_str));
            for other in &others {
                prop_assert_eq!(texts.are_in(other), are_in(&sensitive, other), "{:?} in {:?}", sensitive, other);
            }
        }

        #[test]
        fn no_text_is_left_in_a_message(sensitive in btree_set("[ab\"\n]{1,6}", 0..40), message in "[ab\"\\\\\nn]{0,30}") {
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
    fn more_than_can_be_searched_for_hides_whatever_may_have_it() {
        let texts = numbered(MOST / 1000 + 1, 1000);
        assert!(texts.are_in("none of them") && !texts.are_in("abc"));
        let fewer = numbered(MOST / 1000, 1000);
        assert!(!fewer.are_in("none of them") && fewer.are_in(&format!("<{}>", "0".repeat(1000))));
    }

    #[test]
    fn clones_share_a_search_until_one_gets_another_text() {
        let first = numbered(100, 8);
        let mut second = Texts::default();
        second.extend(&first);
        assert!(first.are_in("<00000007>"));
        assert!(second.search.get().is_some(), "it is made once");
        second.extend(&texts(["00000007"]));
        assert!(Arc::ptr_eq(&first.search, &second.search), "nothing is new");
        second.extend(&texts(["another"]));
        assert!(second.are_in("<another>") && !first.are_in("<another>"));
        assert!(first == numbered(100, 8) && first != second);
    }
}
