//! Sets of paths, kept as a tree.
//!
//! Follows `structured-merge-diff/v6/fieldpath/set.go`: a member is a path that ends here, a child leads on. Both are
//! sorted, and no child is without members.

use serde_json::{Map, Value};

use super::path::{PathElement, PathElementError};

/// The key in `fieldsV1` that says that the path which ends here is a member.
const SELF: &str = ".";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    members: Vec<PathElement>,
    children: Vec<(PathElement, Set)>,
}

impl Set {
    /// The set of these paths, each made of names of fields.
    pub(super) fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<_> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.iter().all(|(_, child)| child.is_empty())
    }

    pub(super) fn members(&self) -> &[PathElement] {
        &self.members
    }

    pub(super) fn children(&self) -> &[(PathElement, Set)] {
        &self.children
    }

    pub(super) fn has_member(&self, element: &PathElement) -> bool {
        self.members.binary_search(element).is_ok()
    }

    /// Whether a path is a member; the empty one never is.
    pub(super) fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.has_member(last),
            [first, rest @ ..] => self.child(first).is_some_and(|child| child.has(rest)),
        }
    }

    /// The rests of the paths that begin with this element.
    pub(super) fn child(&self, element: &PathElement) -> Option<&Set> {
        let index = self.children.binary_search_by(|(child, _)| child.cmp(element)).ok()?;
        Some(&self.children[index].1)
    }

    /// Adds a path; the empty one, which stands for the whole object, is left out.
    pub(super) fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => self.insert_member(last.clone()),
            [first, rest @ ..] => {
                let index = self.children.binary_search_by(|(child, _)| child.cmp(first)).unwrap_or_else(|index| {
                    self.children.insert(index, (first.clone(), Self::default()));
                    index
                });
                self.children[index].1.insert(rest);
            }
        }
    }

    pub(super) fn insert_member(&mut self, element: PathElement) {
        // Objects are walked in order, so the end is where most members go.
        if self.members.last().is_none_or(|last| *last < element) {
            self.members.push(element);
        } else if let Err(index) = self.members.binary_search(&element) {
            #[cfg(test)]
            tests::MOVED.set(tests::MOVED.get() + self.members.len() - index);
            self.members.insert(index, element);
        }
    }

    /// Adds all paths that begin with an element; an empty set adds nothing.
    pub(super) fn insert_child(&mut self, element: PathElement, child: Set) {
        if child.is_empty() {
            return;
        }
        if self.children.last().is_none_or(|(last, _)| *last < element) {
            self.children.push((element, child));
            return;
        }
        match self.children.binary_search_by(|(there, _)| there.cmp(&element)) {
            Ok(index) => self.children[index].1 = self.children[index].1.union(&child),
            Err(index) => self.children.insert(index, (element, child)),
        }
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let members = merge(&self.members, &other.members, PathElement::clone, |a, _| a.clone());
        let children = merge_by(
            &self.children,
            &other.children,
            |(a, _), (b, _)| a.cmp(b),
            Clone::clone,
            |(element, a), (_, b)| (element.clone(), a.union(b)),
        );
        Self { members, children }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let members = self.members.iter().filter(|member| other.has_member(member)).cloned().collect();
        let children = self
            .children
            .iter()
            .filter_map(|(element, child)| Some((element.clone(), child.intersection(other.child(element)?))))
            .filter(|(_, child)| !child.is_empty())
            .collect();
        Self { members, children }
    }

    /// The paths that are not in the other set. What lies below a path of the other set stays.
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// The paths that are neither in the other set nor lie below one of its paths.
    pub(super) fn recursive_difference(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    /// Where the paths of this set part from those of another one: the shortest beginnings of paths that lead to
    /// nothing there.
    pub(super) fn parting(&self, other: &Self) -> Self {
        let mut parting = Self::default();
        for member in &self.members {
            if !other.has_member(member) && other.child(member).is_none() {
                parting.insert_member(member.clone());
            }
        }
        let nothing = Self::default();
        for (element, child) in &self.children {
            match other.child(element) {
                Some(there) => parting.insert_child(element.clone(), child.parting(there)),
                None if other.has_member(element) => {
                    parting.insert_child(element.clone(), child.parting(&nothing));
                }
                None => parting.insert_member(element.clone()),
            }
        }
        parting
    }

    fn without(&self, other: &Self, recursive: bool) -> Self {
        let members = self.members.iter().filter(|member| !other.has_member(member)).cloned().collect();
        let children = self
            .children
            .iter()
            .filter(|(element, _)| !(recursive && other.has_member(element)))
            .filter_map(|(element, child)| match other.child(element) {
                None => Some((element.clone(), child.clone())),
                Some(taken) => {
                    let rest = child.without(taken, recursive);
                    (!rest.is_empty()).then(|| (element.clone(), rest))
                }
            })
            .collect();
        Self { members, children }
    }

    /// Every path, those that end at a place before those that lead on from it.
    pub(super) fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, paths: &mut Vec<Vec<PathElement>>) {
        for member in &self.members {
            let mut path = prefix.clone();
            path.push(member.clone());
            paths.push(path);
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect(prefix, paths);
            prefix.pop();
        }
    }

    pub(super) fn encode(&self) -> Map<String, Value> {
        let mut out = Map::new();
        for member in &self.members {
            out.insert(member.encode(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            let mut encoded = child.encode();
            if self.has_member(element) {
                encoded.insert(SELF.to_owned(), Value::Object(Map::new()));
            }
            out.insert(element.encode(), Value::Object(encoded));
        }
        out
    }

    /// Reads `fieldsV1`. Elements of unknown types are left out, with what they lead to.
    pub(super) fn decode(fields: &Value) -> Result<Self, String> {
        decode(fields).map(|(set, _)| set.unwrap_or_default())
    }
}

/// The paths that lead on, if any, and whether one ends here.
fn decode(fields: &Value) -> Result<(Option<Set>, bool), String> {
    let entries = match fields {
        Value::Null => return Ok((None, true)),
        Value::Object(entries) => entries,
        other => return Err(format!("ReadMapCB: expect {{ or n, but found {}", super::value::Plain(other))),
    };
    let mut members = Vec::new();
    let mut children: Vec<(PathElement, Set)> = Vec::new();
    let (mut found, mut ends) = (false, false);
    for (key, value) in entries {
        if key == SELF {
            ends = true;
            continue;
        }
        let element = match PathElement::decode(key) {
            Ok(element) => element,
            Err(PathElementError::UnknownType) => continue,
            Err(error) => return Err(format!("parsing key as path element: {error}")),
        };
        let (child, is_member) = decode(value)?;
        found = true;
        if is_member {
            members.push(element.clone());
        }
        children.extend(child.map(|child| (element, child)));
    }
    if !found {
        return Ok((None, true));
    }
    // Keys are sorted as texts, which is not the order of what they stand for.
    members.sort();
    children.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut set = Set::default();
    members.into_iter().for_each(|member| set.insert_member(member));
    children.into_iter().for_each(|(element, child)| set.insert_child(element, child));
    Ok((Some(set), ends))
}

fn merge<T: Ord>(a: &[T], b: &[T], one: impl Fn(&T) -> T, both: impl Fn(&T, &T) -> T) -> Vec<T> {
    merge_by(a, b, T::cmp, one, both)
}

/// Merges two sorted lists into one.
fn merge_by<T>(
    a: &[T],
    b: &[T],
    compare: impl Fn(&T, &T) -> std::cmp::Ordering,
    one: impl Fn(&T) -> T,
    both: impl Fn(&T, &T) -> T,
) -> Vec<T> {
    let mut out = Vec::with_capacity(a.len().max(b.len()));
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        match compare(&a[i], &b[j]) {
            std::cmp::Ordering::Less => {
                out.push(one(&a[i]));
                i += 1;
            }
            std::cmp::Ordering::Greater => {
                out.push(one(&b[j]));
                j += 1;
            }
            std::cmp::Ordering::Equal => {
                out.push(both(&a[i], &b[j]));
                i += 1;
                j += 1;
            }
        }
    }
    out.extend(a[i..].iter().map(&one));
    out.extend(b[j..].iter().map(&one));
    out
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use serde_json::json;

    use super::*;

    thread_local! {
        /// How many members were moved to make room for others.
        pub(super) static MOVED: Cell<usize> = const { Cell::new(0) };
    }

    fn set(fields: Value) -> Set {
        Set::decode(&fields).expect("fields")
    }

    #[test]
    fn fields_read_back_as_they_were_written() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:ports": {r#"k:{"port":80}"#: {".": {}, "f:port": {}}}, "f:set": {r#"v:"x""#: {}}, "f:n": {}},
        });
        assert_eq!(Value::Object(set(fields.clone()).encode()), fields);
        assert_eq!(Set::decode(&json!({})), Ok(Set::default()));
        assert_eq!(set(json!({"f:a": null, "x:b": {"f:c": {}}})), set(json!({"f:a": {}})));
        Set::decode(&json!({"f:a": 1})).unwrap_err();
        Set::decode(&json!({"a": {}})).unwrap_err();
    }

    #[test]
    fn set_decodes_elements_without_moving_others() {
        let fields: Map<String, Value> = (0..20_000).map(|n| (format!("v:-{n}"), json!({}))).collect();
        assert_eq!(set(Value::Object(fields)).members().len(), 20_000);
        assert_eq!(MOVED.get(), 0);
        let mut backwards = Set::default();
        (0..3).rev().for_each(|n| backwards.insert_member(PathElement::field(&n.to_string())));
        assert_eq!(MOVED.get(), 3, "it is counted");
    }

    #[test]
    fn algebra_is_that_of_sets_of_paths() {
        let a = set(json!({"f:a": {}, "f:b": {".": {}, "f:c": {}, "f:d": {}}}));
        let b = set(json!({"f:b": {"f:d": {}, "f:e": {}}, "f:z": {}}));
        assert_eq!(a.union(&b), set(json!({"f:a": {}, "f:b": {".": {}, "f:c": {}, "f:d": {}, "f:e": {}}, "f:z": {}})));
        assert_eq!(a.intersection(&b), set(json!({"f:b": {"f:d": {}}})));
        assert_eq!(a.difference(&b), set(json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}})));
        let whole = set(json!({"f:b": {}}));
        assert_eq!(a.difference(&whole), set(json!({"f:a": {}, "f:b": {"f:c": {}, "f:d": {}}})));
        assert_eq!(a.recursive_difference(&whole), set(json!({"f:a": {}})));
        assert!(a.difference(&a).is_empty());
    }

    #[test]
    fn sets_part_at_the_shortest_path() {
        let a = set(json!({"f:a": {}, "f:b": {"f:c": {}, "f:d": {"f:e": {}}}, "f:l": {"f:x": {}, "f:y": {"f:z": {}}}}));
        let b = set(json!({"f:b": {"f:c": {}}, "f:l": {}, "f:n": {}}));
        let parting = json!({"f:a": {}, "f:b": {"f:d": {}}, "f:l": {"f:x": {}, "f:y": {}}});
        assert_eq!(a.parting(&b), set(parting));
        assert!(a.parting(&a).is_empty());
    }

    #[test]
    fn members_come_before_what_lies_below() {
        let a = set(json!({"f:b": {".": {}, "f:c": {}}, "f:a": {"f:x": {}}}));
        let paths: Vec<_> = a.paths().iter().map(|path| super::super::path::Shown(path).to_string()).collect();
        assert_eq!(paths, [".b", ".a.x", ".b.c"]);
        assert!(a.paths().iter().all(|path| a.has(path)));
        assert!(!a.has(&[]));
    }
}
