//! What leads to what in a history, of which so much is looked at and no more: anybody may have made one of any length, and
//! commits with any parents.
//!
//! Start at [`History`]. libgit2's own walks end with the history or with the memory, and those that sort have read all of it
//! before they tell the first commit.
//!
//! Follows `paint_down_to_common` in Git's `commit-reach.c`: from two commits at once, from what is new to what is old, until
//! all that is left is known to be led to by both.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use git2::{Commit, Oid, Repository};

use crate::bounded;

/// So many parents of commits are looked at, each as often as it is come to. Each takes some 100 bytes meanwhile.
const LONGEST: usize = 1_000_000;

/// The first of two commits leads to it.
const ONE: u8 = 1;
/// The second does.
const OTHER: u8 = 2;
const BOTH: u8 = ONE | OTHER;
/// A commit does that both lead to.
const STALE: u8 = 4;
/// It was looked at.
const SEEN: u8 = 8;

/// The history that a repository has of its commits. All that it is asked has one bound together.
pub(crate) struct History<'r> {
    repository: &'r Repository,
    /// How many parents of commits are looked at.
    longest: usize,
    /// How many may still be.
    left: Cell<usize>,
}

impl<'r> History<'r> {
    pub(crate) fn of(repository: &'r Repository) -> Self {
        Self::within(repository, LONGEST)
    }

    fn within(repository: &'r Repository, longest: usize) -> Self {
        Self { repository, longest, left: Cell::new(longest) }
    }

    /// Counts a parent that is looked at.
    fn count(&self) -> Result<(), git2::Error> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| bounded::too_long(self.longest))?;
        self.left.set(left);
        Ok(())
    }

    /// A commit and what it leads to, the newest first.
    ///
    /// # Errors
    ///
    /// As [`leads_to`](Self::leads_to), here and with each of them.
    pub(crate) fn newest(self, head: Oid) -> Result<Newest<'r>, git2::Error> {
        let mut queue = Queue::new(self.repository);
        queue.push(head)?;
        Ok(Newest { history: self, queue, seen: HashSet::from([head]) })
    }

    /// Whether a commit is another one, or has it in its history.
    ///
    /// # Errors
    ///
    /// Also when that is not known after so many parents, which [`bounded::is_too_large`] tells.
    pub(crate) fn leads_to(&self, from: Oid, to: Oid) -> Result<bool, git2::Error> {
        Ok(from == to || self.paint([from, to], Some(to))?.is(to, ONE))
    }

    /// A commit in the history of both, or the one of them that the other leads to.
    ///
    /// # Errors
    ///
    /// As [`leads_to`](Self::leads_to).
    pub(crate) fn merge_base(&self, one: Oid, other: Oid) -> Result<Option<Oid>, git2::Error> {
        let painted = self.paint([one, other], None)?;
        let own = [one, other].into_iter().find(|id| painted.is(*id, BOTH));
        let is_base = |id: &Oid| painted.is(*id, BOTH) && !painted.is(*id, STALE);
        Ok(own.or_else(|| painted.order.iter().copied().find(is_base)))
    }

    /// The commits of a branch that are not in the history of `base`, the newest first.
    ///
    /// # Errors
    ///
    /// As [`leads_to`](Self::leads_to).
    pub(crate) fn beyond(&self, base: Oid, branch: Oid) -> Result<Vec<Oid>, git2::Error> {
        let painted = self.paint([base, branch], None)?;
        Ok(painted.order.iter().copied().filter(|id| !painted.is(*id, ONE)).collect())
    }

    /// Finds out which of two commits lead to which, until that is known of all that are not in the history of both, or the
    /// first is known to lead to the `goal`.
    fn paint(&self, [one, other]: [Oid; 2], goal: Option<Oid>) -> Result<Painted, git2::Error> {
        let mut painted = Painted::default();
        let mut queue = Queue::new(self.repository);
        // Those in the queue to which no commit leads that both lead to, as far as is known.
        let mut fresh = HashSet::new();
        // The time of the oldest that was looked at and to which nothing leads that both lead to.
        let mut oldest = i64::MAX;
        for (id, mark) in [(one, ONE), (other, OTHER)] {
            *painted.marks.entry(id).or_default() |= mark;
            queue.push(id)?;
            fresh.insert(id);
        }
        // What both lead to may lead to one of those for as long as it is no older.
        while !fresh.is_empty() || queue.next_time().is_some_and(|time| time >= oldest) {
            let Some(Queued { time, id, .. }) = queue.heap.pop() else { break };
            fresh.remove(&id);
            let marks = painted.marks.entry(id).or_default();
            if *marks & SEEN == 0 {
                *marks |= SEEN;
                painted.order.push(id);
            }
            if *marks & STALE == 0 {
                oldest = oldest.min(time);
            }
            let led_to = *marks & (BOTH | STALE);
            let passed = if led_to & BOTH == BOTH { led_to | STALE } else { led_to };
            for parent in bounded::commit(self.repository, id)?.parent_ids() {
                self.count()?;
                let marks = painted.marks.entry(parent).or_default();
                if *marks & passed == passed {
                    continue;
                }
                *marks |= passed;
                if goal == Some(parent) && *marks & ONE != 0 {
                    return Ok(painted);
                }
                if *marks & STALE == 0 {
                    fresh.insert(parent);
                } else {
                    fresh.remove(&parent);
                }
                queue.push(parent)?;
            }
        }
        Ok(painted)
    }
}

/// What is known of commits.
#[derive(Default)]
struct Painted {
    marks: HashMap<Oid, u8>,
    /// Those that were looked at, the newest first.
    order: Vec<Oid>,
}

impl Painted {
    /// Whether a commit has these marks.
    fn is(&self, id: Oid, marks: u8) -> bool {
        self.marks.get(&id).is_some_and(|found| found & marks == marks)
    }
}

/// A commit whose parents come next. The newest is the greatest; of those that were made in one second it is the one that was
/// come to first. Its parents are read once it is next: many commits may name the same, and all of them be in the queue.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Queued {
    time: i64,
    place: Reverse<usize>,
    id: Oid,
}

/// Commits that were come to, of which the newest is next.
struct Queue<'r> {
    repository: &'r Repository,
    heap: BinaryHeap<Queued>,
    /// How many were ever in it.
    count: usize,
}

impl<'r> Queue<'r> {
    fn new(repository: &'r Repository) -> Self {
        Self { repository, heap: BinaryHeap::new(), count: 0 }
    }

    fn push(&mut self, id: Oid) -> Result<(), git2::Error> {
        let time = bounded::commit(self.repository, id)?.time().seconds();
        self.heap.push(Queued { time, place: Reverse(self.count), id });
        self.count += 1;
        Ok(())
    }

    /// When the next one was made, in seconds since the Unix epoch.
    fn next_time(&self) -> Option<i64> {
        self.heap.peek().map(|next| next.time)
    }
}

/// The commits of a history, the newest first. Reads no more of them than are asked for, and their parents.
pub(crate) struct Newest<'r> {
    history: History<'r>,
    queue: Queue<'r>,
    seen: HashSet<Oid>,
}

impl<'r> Newest<'r> {
    /// Reads a commit, and puts its parents into the queue.
    fn read(&mut self, id: Oid) -> Result<Commit<'r>, git2::Error> {
        let commit = bounded::commit(self.history.repository, id)?;
        for parent in commit.parent_ids() {
            self.history.count()?;
            if self.seen.insert(parent) {
                self.queue.push(parent)?;
            }
        }
        Ok(commit)
    }
}

impl<'r> Iterator for Newest<'r> {
    type Item = Result<Commit<'r>, git2::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.queue.heap.pop()?;
        Some(self.read(next.id))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use git2::{Signature, Time};
    use tempfile::TempDir;

    use super::*;

    struct Bed {
        _folder: TempDir,
        repository: Repository,
        /// How many commits there are, so that no two are one.
        count: Cell<usize>,
    }

    impl Bed {
        fn new() -> Self {
            let folder = TempDir::new().unwrap();
            let repository = Repository::init_bare(folder.path()).unwrap();
            Self { _folder: folder, repository, count: Cell::default() }
        }

        /// A commit that was made then.
        fn commit(&self, time: i64, parents: &[Oid]) -> Oid {
            let who = Signature::new("a", "a@example.com", &Time::new(time, 0)).unwrap();
            let empty = self.repository.treebuilder(None).unwrap().write().unwrap();
            let tree = self.repository.find_tree(empty).unwrap();
            let parents: Vec<Commit<'_>> = parents.iter().map(|id| self.repository.find_commit(*id).unwrap()).collect();
            let message = self.count.replace(self.count.get() + 1).to_string();
            self.repository.commit(None, &who, &who, &message, &tree, &parents.iter().collect::<Vec<_>>()).unwrap()
        }

        /// Commits one after the other.
        fn line(&self, start: i64, length: i64, first: &[Oid]) -> Vec<Oid> {
            let mut line: Vec<Oid> = Vec::new();
            for time in start..start + length {
                let parents = line.last().map_or(first.to_vec(), |last| vec![*last]);
                line.push(self.commit(time, &parents));
            }
            line
        }

        fn within(&self, longest: usize) -> History<'_> {
            History::within(&self.repository, longest)
        }
    }

    /// Numbers that look like chance, and are the same every time.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, most: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % most
        }
    }

    /// A history of this many commits, each with itself and all that it leads to. Where clocks differ they are of any time.
    fn drawn(bed: &Bed, chance: &mut Chance, commits: usize, is_skewed: bool) -> Vec<(Oid, BTreeSet<Oid>)> {
        let mut drawn: Vec<(Oid, BTreeSet<Oid>)> = Vec::new();
        for number in 0..commits {
            let parents: BTreeSet<usize> = (0..chance.below(3).min(number)).map(|_| chance.below(number)).collect();
            // Two are of one second.
            let time = if is_skewed { chance.below(commits) } else { number / 2 };
            let ids: Vec<Oid> = parents.iter().map(|parent| drawn[*parent].0).collect();
            let id = bed.commit(i64::try_from(time).unwrap(), &ids);
            let before = parents.iter().flat_map(|parent| drawn[*parent].1.iter().copied());
            let reached = before.chain([id]).collect();
            drawn.push((id, reached));
        }
        drawn
    }

    #[test]
    fn commits_are_related_as_their_parents_say() {
        for (seed, is_skewed) in (1..=8).flat_map(|seed| [(seed, false), (seed, true)]) {
            let bed = Bed::new();
            let commits = drawn(&bed, &mut Chance(seed), 24, is_skewed);
            let history = History::of(&bed.repository);
            for ((one, of_one), (other, of_other)) in
                commits.iter().flat_map(|one| commits.iter().map(move |other| (one, other)))
            {
                assert_eq!(history.leads_to(*one, *other).unwrap(), of_one.contains(other), "{seed}: {one} {other}");
                let base = history.merge_base(*one, *other).unwrap();
                let common: BTreeSet<Oid> = of_one.intersection(of_other).copied().collect();
                assert_eq!(base.is_some(), !common.is_empty(), "{seed}: {one} {other}");
                assert!(base.is_none_or(|base| common.contains(&base)), "{seed}: {one} {other}");
                if is_skewed {
                    continue;
                }
                let is_last = |base: Oid| {
                    commits.iter().all(|(id, reached)| *id == base || !common.contains(id) || !reached.contains(&base))
                };
                assert!(base.is_none_or(is_last), "{seed}: {one} {other}");
                let found: BTreeSet<Oid> = history.beyond(*one, *other).unwrap().into_iter().collect();
                assert_eq!(found, of_other.difference(of_one).copied().collect(), "{seed}: {one} {other}");
            }
        }
    }

    #[test]
    fn newest_commits_come_first() {
        let bed = Bed::new();
        let first = bed.line(0, 3, &[]);
        let [one, other] = [10, 11].map(|time| bed.commit(time, &first[2..]));
        let head = bed.commit(11, &[one, other]);
        let newest = History::of(&bed.repository).newest(head).unwrap();
        let ids: Vec<Oid> = newest.map(|commit| commit.unwrap().id()).collect();
        assert_eq!(ids, [head, other, one, first[2], first[1], first[0]]);
    }

    #[test]
    fn a_history_is_looked_at_as_far_as_it_takes_and_no_farther_than_its_bound() {
        let bed = Bed::new();
        let line = bed.line(0, 100, &[]);
        let (first, last) = (line[0], line[99]);
        // What is near is told, whatever is behind it.
        let history = || bed.within(10);
        assert!(history().leads_to(last, line[95]).unwrap() && !history().leads_to(line[95], last).unwrap());
        assert_eq!(history().merge_base(last, line[95]).unwrap(), Some(line[95]));
        let branch = bed.line(200, 2, &line[98..99]);
        assert_eq!(history().beyond(last, branch[1]).unwrap(), [branch[1], branch[0]]);
        let newest: Vec<Oid> = history().newest(last).unwrap().take(2).map(|commit| commit.unwrap().id()).collect();
        assert_eq!(newest, [last, line[98]]);
        // What is far is not.
        let stray = bed.commit(50, &[]);
        let errors = [
            history().leads_to(last, first).unwrap_err(),
            history().merge_base(last, stray).unwrap_err(),
            history().beyond(stray, last).unwrap_err(),
            history().newest(last).unwrap().find_map(Result::err).unwrap(),
        ];
        for error in errors {
            assert!(bounded::is_too_large(&error) && error.message().contains("more than 10 parents"), "{error}");
        }
        assert!(bed.within(101).leads_to(last, first).unwrap());
    }

    #[test]
    fn all_that_one_history_is_asked_has_one_bound() {
        let bed = Bed::new();
        let line = bed.line(0, 100, &[]);
        let history = bed.within(10);
        for _ in 0..2 {
            assert!(history.leads_to(line[99], line[95]).unwrap());
        }
        assert!(bounded::is_too_large(&history.leads_to(line[99], line[95]).unwrap_err()));
    }

    #[test]
    fn parents_count_each_time_that_a_commit_names_them() {
        let bed = Bed::new();
        let roots: Vec<Oid> = (0..10).map(|time| bed.commit(time, &[])).collect();
        let names_all: Vec<Oid> = (20..30).map(|time| bed.commit(time, &roots)).collect();
        let (head, stray) = (bed.commit(40, &names_all), bed.commit(0, &[]));
        // These are 22 commits.
        let newest = |longest| bed.within(longest).newest(head).unwrap().collect::<Result<Vec<_>, _>>();
        assert!(bounded::is_too_large(&newest(109).err().unwrap()));
        assert_eq!(newest(110).unwrap().len(), 21);
        assert!(bounded::is_too_large(&bed.within(109).leads_to(head, stray).unwrap_err()));
        assert!(!bed.within(110).leads_to(head, stray).unwrap());
    }
}
