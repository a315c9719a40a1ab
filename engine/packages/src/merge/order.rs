//! The order of the items of a merged list.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use super::Sides;

/// The keys of a merged list, those in `present`, in their order.
///
/// The order is the local one, unless upstream alone changed the order of the items that both have. An item of the other side
/// comes before the next item of its list that both have, or last. So items that upstream appended come last, as in kyaml.
pub(super) fn merged<K: Clone + Eq + Hash>(keys: Sides<&[K]>, present: &HashSet<K>) -> Vec<K> {
    let upstream = with(keys.upstream, present);
    let local = with(keys.local, present);
    let was_reordered = shared(&local, keys.origin) != shared(keys.origin, &local);
    if shared(&local, &upstream) == shared(&upstream, &local) || was_reordered {
        inserted(&local, &upstream)
    } else {
        inserted(&upstream, &local)
    }
}

fn with<K: Clone + Eq + Hash>(keys: &[K], present: &HashSet<K>) -> Vec<K> {
    keys.iter().filter(|key| present.contains(key)).cloned().collect()
}

/// The keys of a list that another list has, too.
fn shared<'k, K: Eq + Hash>(keys: &'k [K], other: &[K]) -> Vec<&'k K> {
    let other: HashSet<&K> = other.iter().collect();
    keys.iter().filter(|key| other.contains(key)).collect()
}

/// A list with the further items of another list.
fn inserted<K: Clone + Eq + Hash>(base: &[K], other: &[K]) -> Vec<K> {
    let known: HashSet<&K> = base.iter().collect();
    let mut before: HashMap<Option<&K>, Vec<&K>> = HashMap::new();
    let mut next = None;
    for key in other.iter().rev() {
        if known.contains(key) {
            next = Some(key);
        } else {
            before.entry(next).or_default().push(key);
        }
    }
    let mut merged = Vec::new();
    for key in base.iter().map(Some).chain([None]) {
        merged.extend(before.remove(&key).into_iter().flatten().rev().cloned());
        merged.extend(key.cloned());
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(origin: &str, upstream: &str, local: &str) -> String {
        let keys = |text: &str| text.chars().collect::<Vec<char>>();
        let [origin, upstream, local] = [origin, upstream, local].map(keys);
        let present = upstream.iter().chain(&local).copied().collect();
        merged(Sides { origin: &origin, upstream: &upstream, local: &local }, &present).into_iter().collect()
    }

    #[test]
    fn new_items_stay_before_their_successor() {
        for (origin, upstream, local, expected) in [
            ("ab", "abc", "ab", "abc"),
            ("ab", "abc", "abx", "abxc"),
            ("ab", "nab", "ab", "nab"),
            ("ab", "anb", "axb", "axnb"),
            ("", "ab", "x", "xab"),
        ] {
            assert_eq!(order(origin, upstream, local), expected, "{origin} {upstream} {local}");
        }
    }

    #[test]
    fn order_changes_on_one_side_alone() {
        for (origin, upstream, local, expected) in [
            ("abc", "cab", "abc", "cab"),
            ("abc", "cab", "abxc", "xcab"),
            ("abc", "abc", "cab", "cab"),
            ("abc", "cab", "bac", "bac"),
        ] {
            assert_eq!(order(origin, upstream, local), expected, "{origin} {upstream} {local}");
        }
    }
}
