use std::collections::BTreeSet;

use stoa_machinery::log::Entry;
use tempfile::TempDir;

use super::{
    index::{VERSIONS, index_of},
    read::collect,
    *,
};
use crate::{
    repository::{ControlRepository, open},
    trees::encoded,
};

const LOG: &str = "one";

fn step(version: u64, name: &str, value: Option<&str>) -> Step {
    let key = Key::new(format!("/registry/config.stoa.dev/stacks/{name}"));
    Step { version: Version(version), key, value: value.map(|value| value.as_bytes().to_vec()) }
}

fn batch(at: u64, steps: &[Step]) -> Batch {
    Batch::new(Version(at), steps.to_vec())
}

fn shown(repository: &Repository, at: u64, prefix: &str, after: Option<&str>, max: usize) -> Option<Vec<String>> {
    let prefix = format!("/registry/config.stoa.dev/stacks/{prefix}");
    let after = after.map(|after| format!("/registry/config.stoa.dev/stacks/{after}"));
    let range = Range { prefix: &prefix, after: after.as_deref(), max };
    let entries = read(repository, LOG, Version(at), range).unwrap()?;
    let text = |entry: &Entry| {
        let name = entry.key.as_str().strip_prefix("/registry/config.stoa.dev/stacks/").unwrap();
        format!("{name}@{}={}", entry.version, std::str::from_utf8(&entry.value).unwrap())
    };
    Some(entries.iter().map(text).collect())
}

#[test]
fn every_version_shows_what_was_there() {
    let directory = TempDir::new().unwrap();
    let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
    let steps = [
        step(7, "shop/b", Some("1")),
        step(9, "shop/a", Some("1")),
        step(300, "shop/b", Some("2")),
        step(300, "shop-x/c", Some("1")),
        step(70_000, "shop/b", None),
        step(70_001, "shop/a.b", Some("1")),
    ];
    let mut end = None;
    // In batches, as they come.
    for steps in [&steps[..0], &steps[..3], &steps[3..4], &steps[4..]] {
        let bases: Vec<Oid> = end.into_iter().collect();
        end = Some(control.append_history(&bases, &batch(5, steps)).unwrap());
    }
    control.set_history(end.unwrap(), None).unwrap();
    let repository = open(directory.path()).unwrap();
    let all = |at: u64| shown(&repository, at, "", None, 100);
    let list = |items: &[&str]| Some(items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>());
    assert_eq!(all(4), None);
    assert_eq!(all(5), list(&[]));
    assert_eq!(all(8), list(&["shop/b@7=1"]));
    assert_eq!(all(299), list(&["shop/a@9=1", "shop/b@7=1"]));
    // In the order of keys, in which "shop-" comes before "shop/".
    assert_eq!(all(300), list(&["shop-x/c@300=1", "shop/a@9=1", "shop/b@300=2"]));
    assert_eq!(all(70_000), list(&["shop-x/c@300=1", "shop/a@9=1"]));
    assert_eq!(all(u64::MAX), list(&["shop-x/c@300=1", "shop/a@9=1", "shop/a.b@70001=1"]));
    assert_eq!(shown(&repository, 300, "shop/", None, 1), list(&["shop/a@9=1"]));
    assert_eq!(shown(&repository, 300, "shop/", Some("shop/a"), 9), list(&["shop/b@300=2"]));
    assert_eq!(shown(&repository, 300, "", Some("shop-x/c"), 9), list(&["shop/a@9=1", "shop/b@300=2"]));
    assert_eq!(shown(&repository, 300, "shop/b", None, 9), list(&["shop/b@300=2"]));
    // What is there already makes no step, and neither does what nobody knows.
    let known = [(steps[1].key.clone(), "1"), (steps[0].key.clone(), "3")];
    let mut wanted: BTreeMap<_, _> = known.map(|(key, value)| (key, Some(value.into()))).into();
    wanted.insert(steps[5].key.clone(), None);
    let mut changes = difference(&repository, &[end.unwrap()], None, Version(80_000), wanted).unwrap().steps;
    changes.sort_by(|a, b| a.key.cmp(&b.key));
    let names: Vec<(&str, bool)> =
        changes.iter().map(|s| (s.key.as_str().rsplit('/').next().unwrap(), s.value.is_some())).collect();
    assert_eq!(names, [("c", false), ("b", true)]);
}

#[test]
fn history_joins_ends_of_same_records() {
    let directory = TempDir::new().unwrap();
    let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
    let steps = [
        step(7, "shop/a", Some("1")),
        step(8, "shop/b", Some("1")),
        step(9, "shop/a", None),
        step(12, "shop/c", Some("1")),
    ];
    let root = control.append_history(&[], &batch(5, &[])).unwrap();
    let one = control.append_history(&[root], &batch(8, &steps[..2])).unwrap();
    let other = control.append_history(&[root], &batch(9, &steps[..3])).unwrap();
    // Whoever goes on begins with records that are in it in part.
    let end = control.append_history(&[one, other], &batch(12, &steps[1..])).unwrap();
    assert!(control.is_behind(one, end).unwrap() && control.is_behind(other, end).unwrap());
    assert_eq!(control.append_history(&[end], &batch(12, &steps[2..3])).unwrap(), end);
    control.set_history(one, None).unwrap();
    control.set_history(end, None).unwrap();
    let repository = open(directory.path()).unwrap();
    let all = |at: u64| shown(&repository, at, "", None, 100).unwrap();
    assert_eq!(all(6), [""; 0]);
    assert_eq!(all(7), ["shop/a@7=1"]);
    assert_eq!(all(8), ["shop/a@7=1", "shop/b@8=1"]);
    assert_eq!(all(11), ["shop/b@8=1"]);
    assert_eq!(all(12), ["shop/b@8=1", "shop/c@12=1"]);
    // The index is the same when it is made at once, elsewhere.
    let indexed = || versions(&repository, covered(&repository, LOG).unwrap().unwrap().0).unwrap().id();
    let before = indexed();
    repository.find_reference(&index_of(LOG)).unwrap().delete().unwrap();
    control.set_history(end, None).unwrap();
    assert_eq!(indexed(), before);
}

#[test]
fn a_chain_that_begins_with_steps_ends_in_them() {
    let directory = TempDir::new().unwrap();
    let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
    let repository = open(directory.path()).unwrap();
    let all = |at: u64| shown(&repository, at, "", None, 100);
    // The last record of the batch had nothing to do with Git.
    let begin = control.append_history(&[], &batch(9, &[step(7, "shop/a", Some("1"))])).unwrap();
    let end = control.append_history(&[begin], &batch(12, &[step(12, "shop/b", Some("1"))])).unwrap();
    control.set_history(end, None).unwrap();
    assert_eq!(all(6), None);
    assert_eq!(all(7).unwrap(), ["shop/a@7=1"]);
    assert_eq!(all(9).unwrap(), ["shop/a@7=1"]);
    assert_eq!(all(12).unwrap(), ["shop/a@7=1", "shop/b@12=1"]);
}

#[test]
fn history_extends_known_chain_like_read_chain() {
    let (known, read) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let control = ControlRepository::open(known.path(), false).unwrap().of_log(LOG);
    let mut past: Vec<Oid> = Vec::new();
    // Some are in trees of versions that others are not in.
    for (number, at) in [7, 8, 255, 256, 300, 70_000, 70_001, 70_300].into_iter().enumerate() {
        let batch = batch(at, &[step(at, &format!("shop/{}", number % 3), (number != 4).then_some("1"))]);
        let go_on = |control: &ControlRepository| {
            let (_, appended) = control.commit_with_history(None, &[], &past, &batch).unwrap();
            control.set_history(appended.end, appended.index).unwrap();
            appended
        };
        let appended = go_on(&control);
        assert_eq!(appended.index.is_some(), number > 0, "at {at}");
        let another = ControlRepository::open(read.path(), false).unwrap().of_log(LOG);
        assert_eq!(go_on(&another), appended, "at {at}");
        past = vec![appended.end];
    }
    let repository = open(known.path()).unwrap();
    let all = |at: u64| shown(&repository, at, "", None, 100).unwrap();
    assert_eq!(all(299), ["shop/0@256=1", "shop/1@8=1", "shop/2@255=1"]);
    assert_eq!(all(300), ["shop/0@256=1", "shop/2@255=1"]);
    assert_eq!(all(70_300), ["shop/0@70001=1", "shop/1@70300=1", "shop/2@70000=1"]);
}

#[test]
fn what_became_of_things_meanwhile_is_unknown() {
    let directory = TempDir::new().unwrap();
    let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
    let repository = open(directory.path()).unwrap();
    let all = |at: u64| shown(&repository, at, "", None, 100);
    let now = step(0, "shop/a", Some("2"));
    let wanted = || BTreeMap::from([(now.key.clone(), Some(b"2".to_vec()))]);
    let begin = control.append_history(&[], &batch(7, &[step(7, "shop/a", Some("1"))])).unwrap();
    let until_20 = difference(&repository, &[begin], Some(Version(9)), Version(20), wanted()).unwrap();
    let at_20 = control.append_history(&[begin], &until_20).unwrap();
    // It may have been something else in between, though it is the same now.
    let until_30 = difference(&repository, &[at_20], None, Version(30), wanted()).unwrap();
    assert!(until_30.steps.is_empty() && !until_30.is_empty());
    let at_30 = control.append_history(&[at_20], &until_30).unwrap();
    for until in [30, 31] {
        let nothing = difference(&repository, &[at_30], None, Version(until), wanted()).unwrap();
        assert!(nothing.is_empty(), "nothing is between 30 and {until}");
    }
    let end = control.append_history(&[at_30], &batch(33, &[step(32, "shop/a", None)])).unwrap();
    let check = || {
        for (known, expected) in [(7..=9, "shop/a@7=1"), (20..=20, "shop/a@20=2"), (30..=31, "shop/a@20=2")] {
            for at in known {
                assert_eq!(all(at).unwrap(), [expected], "at {at}");
            }
        }
        for at in (10..20).chain(21..30) {
            assert_eq!(all(at), None, "at {at}");
        }
        assert_eq!(all(32).unwrap(), [""; 0]);
    };
    control.set_history(end, None).unwrap();
    check();
    // The same where they come one by one.
    repository.find_reference(&index_of(LOG)).unwrap().delete().unwrap();
    for end in [begin, at_20, at_30, end] {
        control.set_history(end, None).unwrap();
    }
    check();
}

#[test]
fn what_changed_since_is_told_where_it_is_known() {
    let directory = TempDir::new().unwrap();
    let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
    let steps = [step(7, "shop/a", Some("1")), step(7, "shop/b", Some("1")), step(7, "shop/c", Some("1"))];
    let [a, b, c] = steps.each_ref().map(|step| step.key.clone());
    let begin = control.append_history(&[], &batch(7, &steps)).unwrap();
    let wanted = BTreeMap::from([(a.clone(), Some(b"1".to_vec())), (b.clone(), Some(b"2".to_vec()))]);
    let repository = open(directory.path()).unwrap();
    let changed = |end, at| changed_since(&repository, end, Version(at), &wanted).unwrap();
    // Another and gone.
    assert_eq!(changed(begin, 9), Some(BTreeSet::from([b, c])));
    assert_eq!(changed(begin, 6), None, "it begins later");
    let unknown = Batch { unknown: Some(Version(8)), ..batch(20, &[step(20, "shop/a", Some("2"))]) };
    let end = control.append_history(&[begin], &unknown).unwrap();
    assert_eq!(changed(end, 9), None);
    assert!(changed(end, 20).unwrap().contains(&a));
}

#[test]
fn an_index_has_nothing_of_another_chain() {
    let directory = TempDir::new().unwrap();
    let control = ControlRepository::open(directory.path(), false).unwrap().of_log(LOG);
    let repository = open(directory.path()).unwrap();
    let end = |steps: &[Step]| control.append_history(&[], &batch(5, steps)).unwrap();
    // As it was called before it was one log's.
    let (old, new) = (end(&[step(20, "shop/a", Some("1"))]), end(&[step(30, "shop/b", Some("1"))]));
    repository.reference(VERSIONS, old, true, "").unwrap();
    control.set_history(old, None).unwrap();
    assert!(repository.find_reference(VERSIONS).is_err());
    assert_eq!(shown(&repository, 20, "", None, 9).unwrap(), ["shop/a@20=1"]);
    // The old end was given up.
    control.set_history(new, None).unwrap();
    assert_eq!(shown(&repository, 20, "", None, 9).unwrap(), [""; 0]);
    assert_eq!(shown(&repository, 30, "", None, 9).unwrap(), ["shop/b@30=1"]);
    // Another log begins.
    let other = control.of_log("another");
    other.set_history(old, None).unwrap();
    assert_eq!(covered(&repository, LOG).unwrap(), None);
    assert!(read(&repository, "another", Version(20), Range { prefix: "", after: None, max: 9 }).unwrap().is_some());
}

#[test]
fn a_tree_that_is_too_deep_is_not_read() {
    let directory = TempDir::new().unwrap();
    ControlRepository::open(directory.path(), false).unwrap();
    let repository = open(directory.path()).unwrap();
    let odb = repository.odb().unwrap();
    let mut item = Item::File(odb.write(ObjectType::Blob, b"7\n1").unwrap());
    let mut read = |name: &str| {
        let tree = odb.write(ObjectType::Tree, &encoded(name, item)).unwrap();
        item = Item::Tree(tree);
        let range = Range { prefix: REGISTRY, after: None, max: 9 };
        collect(&repository, &repository.find_tree(tree).unwrap(), REGISTRY, range, &mut Vec::new())
    };
    for name in ["web", "shop", "stacks", "config.stoa.dev"] {
        read(name).unwrap();
    }
    for _ in 0..2_000 {
        assert!(read("more").is_err());
    }
}
