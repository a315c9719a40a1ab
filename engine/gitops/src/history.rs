//! Commit history within a limit: which commits are ancestors of which.
//!
//! Start at [`History`]. A repository may have a history of any length, with any parents. libgit2's own walks have no
//! limit, and sorted ones read the whole history first.
//!
//! `merge_base` and `beyond` follow `paint_down_to_common` in Git's `commit-reach.c`: from two commits at once, newest
//! first, until only common ancestors are left.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};

use git2::{Commit, Oid, Repository};

use crate::bounded;

/// The maximum number of visited parents, each as often as it is named. Each needs some 200 bytes.
const LONGEST: usize = 1_000_000;

/// The number of commits in a row that are older than all searched ones, after which a joint walk ends. Commits may claim
/// any age, and one with an old date may have new ancestors. Git has such a number in `revision.c` (`SLOP`).
const MOST_OLDER: usize = 1_000;

/// The first of two commits leads to it.
const ONE: u8 = 1;
/// The second does.
const OTHER: u8 = 2;
const BOTH: u8 = ONE | OTHER;
/// A commit does that both lead to.
const STALE: u8 = 4;
/// The commit was visited.
const SEEN: u8 = 8;

/// The history of a repository. All its queries share one limit.
pub(crate) struct History<'r> {
    repository: &'r Repository,
    /// The maximum number of visited parents.
    longest: usize,
    /// The remaining number.
    left: Cell<usize>,
    /// Usually [`MOST_OLDER`].
    most_older: usize,
}

impl<'r> History<'r> {
    pub(crate) fn of(repository: &'r Repository) -> Self {
        Self::within(repository, LONGEST)
    }

    pub(crate) fn within(repository: &'r Repository, longest: usize) -> Self {
        Self { repository, longest, left: Cell::new(longest), most_older: MOST_OLDER }
    }

    /// Counts a visited parent.
    fn count(&self) -> Result<(), git2::Error> {
        let left = self.left.get().checked_sub(1).ok_or_else(|| bounded::too_long(self.longest))?;
        self.left.set(left);
        Ok(())
    }

    /// A commit and what it leads to, the newest first.
    pub(crate) fn newest(&self, head: Oid) -> Result<Newest<'r, '_>, git2::Error> {
        let mut queue = Queue::new(self.repository);
        queue.push(head)?;
        Ok(Newest { history: self, queue, seen: HashSet::from([head]) })
    }

    /// Whether a commit is another one, or its descendant.
    ///
    /// # Errors
    ///
    /// Also when the limit is reached before that is known, which [`bounded::is_too_large`] detects.
    pub(crate) fn leads_to(&self, from: Oid, to: Oid) -> Result<bool, git2::Error> {
        let reached = self.leads_to_which(from, &BTreeSet::from([to]))?;
        reached.cut.map_or_else(|| Ok(reached.found.contains(&to)), Err)
    }

    /// Which of the wanted commits are another one, or its ancestors, in one walk from the newest to the oldest. The walk
    /// ends after [`MOST_OLDER`] commits that are older than the wanted ones. A walk from each missing commit then finds out
    /// whether it is an ancestor, since dates alone do not show that.
    ///
    /// # Errors
    ///
    /// The history cannot be read. At the limit, the results so far are returned.
    pub(crate) fn leads_to_which(&self, from: Oid, wanted: &BTreeSet<Oid>) -> Result<Reached, git2::Error> {
        let mut oldest = i64::MAX;
        for id in wanted {
            oldest = oldest.min(bounded::commit(self.repository, *id)?.time().seconds());
        }
        let mut found = BTreeSet::new();
        let cut = match self.collect_ancestors(from, wanted, oldest, &mut found) {
            Ok(()) => None,
            Err(err) if bounded::is_too_large(&err) => Some(err),
            Err(err) => return Err(err),
        };
        Ok(Reached { found, cut })
    }

    /// Adds those of [`leads_to_which`](Self::leads_to_which) to `found`. All wanted commits are as new as `oldest`.
    fn collect_ancestors(
        &self,
        from: Oid,
        wanted: &BTreeSet<Oid>,
        oldest: i64,
        found: &mut BTreeSet<Oid>,
    ) -> Result<(), git2::Error> {
        let (mut newest, mut older) = (self.newest(from)?, 0);
        while found.len() < wanted.len() && older < self.most_older {
            let Some(commit) = newest.next().transpose()? else { return Ok(()) };
            older = if commit.time().seconds() < oldest { older + 1 } else { 0 };
            if wanted.contains(&commit.id()) {
                found.insert(commit.id());
            }
        }
        for missing in wanted {
            if !found.contains(missing) && self.paint([from, *missing])?.is(*missing, ONE) {
                found.insert(*missing);
            }
        }
        Ok(())
    }

    /// A commit in the history of both, or the one of them that the other leads to.
    pub(crate) fn merge_base(&self, one: Oid, other: Oid) -> Result<Option<Oid>, git2::Error> {
        let painted = self.paint([one, other])?;
        let own = [one, other].into_iter().find(|id| painted.is(*id, BOTH));
        let is_base = |id: &Oid| painted.is(*id, BOTH) && !painted.is(*id, STALE);
        Ok(own.or_else(|| painted.order.iter().copied().find(is_base)))
    }

    /// The commits of a branch that are not in the history of `base`, the newest first.
    pub(crate) fn beyond(&self, base: Oid, branch: Oid) -> Result<Vec<Oid>, git2::Error> {
        let painted = self.paint([base, branch])?;
        Ok(painted.order.iter().copied().filter(|id| !painted.is(*id, ONE)).collect())
    }

    /// Finds out which of two commits lead to which, until that is known of all that are not in the history of both.
    fn paint(&self, [one, other]: [Oid; 2]) -> Result<Painted, git2::Error> {
        let mut painted = Painted::default();
        let mut queue = Queue::new(self.repository);
        // Queued commits that are not known to be common ancestors.
        let mut fresh = HashSet::new();
        // The time of the oldest visited commit that is not a common ancestor.
        let mut oldest = i64::MAX;
        for (id, mark) in [(one, ONE), (other, OTHER)] {
            *painted.marks.entry(id).or_default() |= mark;
            queue.push(id)?;
            fresh.insert(id);
        }
        // A common ancestor may lead to a missing commit while it is no older.
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

/// Which wanted commits another one leads to.
#[derive(Default)]
pub(crate) struct Reached {
    found: BTreeSet<Oid>,
    /// Why there may be more: the history has what is too large, or is.
    pub(crate) cut: Option<git2::Error>,
}

impl Reached {
    /// Whether a wanted commit is an ancestor, if known.
    pub(crate) fn has(&self, wanted: Oid) -> Option<bool> {
        if self.found.contains(&wanted) { Some(true) } else { self.cut.is_none().then_some(false) }
    }
}

/// The known marks of commits.
#[derive(Default)]
struct Painted {
    marks: HashMap<Oid, u8>,
    /// Visited commits, newest first.
    order: Vec<Oid>,
}

impl Painted {
    /// Whether a commit has these marks.
    fn is(&self, id: Oid, marks: u8) -> bool {
        self.marks.get(&id).is_some_and(|found| found & marks == marks)
    }
}

/// A queued commit. The newest is the greatest; within one second, the first one that was queued. Its parents are read
/// when it is next, since many queued commits may have the same ones.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Queued {
    time: i64,
    place: Reverse<usize>,
    id: Oid,
}

/// Queued commits, newest first.
struct Queue<'r> {
    repository: &'r Repository,
    heap: BinaryHeap<Queued>,
    /// The number of commits that were ever queued.
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

    /// The time of the next commit, in seconds since the Unix epoch.
    fn next_time(&self) -> Option<i64> {
        self.heap.peek().map(|next| next.time)
    }
}

/// The commits of a history, newest first. Reads only the requested ones and their parents.
pub(crate) struct Newest<'r, 'h> {
    history: &'h History<'r>,
    queue: Queue<'r>,
    seen: HashSet<Oid>,
}

impl<'r> Newest<'r, '_> {
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

impl<'r> Iterator for Newest<'r, '_> {
    type Item = Result<Commit<'r>, git2::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.queue.heap.pop()?;
        Some(self.read(next.id))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use git2::{Signature, Time};
    use tempfile::TempDir;

    use super::*;

    pub(crate) struct TestHistory {
        _folder: TempDir,
        pub(crate) repository: Repository,
        /// The number of commits, which makes each unique.
        count: Cell<usize>,
    }

    impl TestHistory {
        pub(crate) fn new() -> Self {
            let folder = TempDir::new().unwrap();
            let repository = Repository::init_bare(folder.path()).unwrap();
            Self { _folder: folder, repository, count: Cell::default() }
        }

        /// A commit that was made then.
        pub(crate) fn commit(&self, time: i64, parents: &[Oid]) -> Oid {
            let who = Signature::new("a", "a@example.com", &Time::new(time, 0)).unwrap();
            let empty = self.repository.treebuilder(None).unwrap().write().unwrap();
            let tree = self.repository.find_tree(empty).unwrap();
            let parents: Vec<Commit<'_>> = parents.iter().map(|id| self.repository.find_commit(*id).unwrap()).collect();
            let message = self.count.replace(self.count.get() + 1).to_string();
            self.repository.commit(None, &who, &who, &message, &tree, &parents.iter().collect::<Vec<_>>()).unwrap()
        }

        /// Commits one after the other.
        pub(crate) fn line(&self, start: i64, length: i64, first: &[Oid]) -> Vec<Oid> {
            let mut line: Vec<Oid> = Vec::new();
            for time in start..start + length {
                let parents = line.last().map_or(first.to_vec(), |last| vec![*last]);
                line.push(self.commit(time, &parents));
            }
            line
        }

        pub(crate) fn within(&self, longest: usize) -> History<'_> {
            History::within(&self.repository, longest)
        }
    }

    /// A deterministic pseudorandom sequence.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, most: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % most
        }
    }

    /// A history of this many commits, each with itself and all that it leads to. Where clocks differ they are of any time.
    fn drawn(test: &TestHistory, chance: &mut Chance, commits: usize, is_skewed: bool) -> Vec<(Oid, BTreeSet<Oid>)> {
        let mut drawn: Vec<(Oid, BTreeSet<Oid>)> = Vec::new();
        for number in 0..commits {
            let parents: BTreeSet<usize> = (0..chance.below(3).min(number)).map(|_| chance.below(number)).collect();
            // Two are of one second.
            let time = if is_skewed { chance.below(commits) } else { number / 2 };
            let ids: Vec<Oid> = parents.iter().map(|parent| drawn[*parent].0).collect();
            let id = test.commit(i64::try_from(time).unwrap(), &ids);
            let before = parents.iter().flat_map(|parent| drawn[*parent].1.iter().copied());
            let reached = before.chain([id]).collect();
            drawn.push((id, reached));
        }
        drawn
    }

    #[test]
    fn commits_are_related_as_their_parents_say() {
        for (seed, is_skewed) in (1..=8).flat_map(|seed| [(seed, false), (seed, true)]) {
            let test = TestHistory::new();
            let commits = drawn(&test, &mut Chance(seed), 24, is_skewed);
            let history = History::of(&test.repository);
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
    fn joint_walk_equals_separate_walks() {
        for (seed, is_skewed) in (1..=4).flat_map(|seed| [(seed, false), (seed, true)]) {
            let test = TestHistory::new();
            let mut chance = Chance(seed);
            // More than a word has bits.
            let commits = drawn(&test, &mut chance, 70, is_skewed);
            let all: BTreeSet<Oid> = commits.iter().map(|(id, _)| *id).collect();
            let some: BTreeSet<Oid> = (0..5).map(|_| commits[chance.below(70)].0).collect();
            for (most_older, wanted) in [(1, &some), (MOST_OLDER, &some), (MOST_OLDER, &all)] {
                for (from, of_from) in &commits {
                    let history = History { most_older, ..History::of(&test.repository) };
                    let reached = history.leads_to_which(*from, wanted).unwrap();
                    for id in wanted {
                        assert_eq!(reached.has(*id), Some(of_from.contains(id)), "{seed}: {from} {id}");
                    }
                }
            }
            let of_none = History::of(&test.repository).leads_to_which(commits[0].0, &BTreeSet::new()).unwrap();
            assert!(of_none.found.is_empty() && of_none.cut.is_none());
        }
    }

    #[test]
    fn old_dates_hide_no_ancestors() {
        const YEAR: i64 = 365 * 86_400;
        let test = TestHistory::new();
        let line = test.line(50 * YEAR, 2_000, &[]);
        let wanted = BTreeSet::from([line[1_990], line[1_999]]);
        let ancestors = |head: Oid, longest: usize| {
            let reached = test.within(longest).leads_to_which(head, &wanted).unwrap();
            wanted.iter().map(|id| reached.has(*id)).collect::<Vec<_>>()
        };
        // Some commits with an old date are read at once.
        let few = test.line(YEAR, 3, &line[1_999..]);
        assert_eq!(ancestors(few[2], 13), [Some(true); 2]);
        // With more of them, the history of each commit is read.
        let most_older = i64::try_from(MOST_OLDER).unwrap();
        let many = test.line(YEAR, most_older + 1, &line[1_999..]);
        assert_eq!(ancestors(many[MOST_OLDER], LONGEST), [Some(true); 2]);
        assert_eq!(ancestors(many[MOST_OLDER], MOST_OLDER + 10), [None; 2]);
        // A lost commit is known without the whole history.
        let other = test.commit(51 * YEAR, &line[1_980..1_981]);
        assert_eq!(ancestors(other, 1_500), [Some(false); 2]);
    }

    #[test]
    fn results_before_limit_are_known() {
        let test = TestHistory::new();
        let line = test.line(0, 100, &[]);
        let wanted = BTreeSet::from([line[99], line[95], line[0]]);
        let reached = test.within(10).leads_to_which(line[99], &wanted).unwrap();
        assert_eq!([99, 95, 0].map(|at| reached.has(line[at])), [Some(true), Some(true), None]);
        assert!(reached.cut.is_some_and(|err| bounded::is_too_large(&err)));
    }

    #[test]
    fn newest_commits_come_first() {
        let test = TestHistory::new();
        let first = test.line(0, 3, &[]);
        let [one, other] = [10, 11].map(|time| test.commit(time, &first[2..]));
        let head = test.commit(11, &[one, other]);
        let history = History::of(&test.repository);
        let newest = history.newest(head).unwrap();
        let ids: Vec<Oid> = newest.map(|commit| commit.unwrap().id()).collect();
        assert_eq!(ids, [head, other, one, first[2], first[1], first[0]]);
    }

    #[test]
    fn walk_reads_no_more_than_its_limit() {
        let test = TestHistory::new();
        let line = test.line(0, 100, &[]);
        let (first, last) = (line[0], line[99]);
        // Near commits are known, whatever is beyond.
        let history = || test.within(10);
        assert!(history().leads_to(last, line[95]).unwrap());
        assert_eq!(history().merge_base(last, line[95]).unwrap(), Some(line[95]));
        let branch = test.line(200, 2, &line[98..99]);
        assert_eq!(history().beyond(last, branch[1]).unwrap(), [branch[1], branch[0]]);
        let newest: Vec<Oid> = history().newest(last).unwrap().take(2).map(|commit| commit.unwrap().id()).collect();
        assert_eq!(newest, [last, line[98]]);
        // Far ones are not.
        let stray = test.commit(50, &[]);
        let errors = [
            history().leads_to(last, first).unwrap_err(),
            history().merge_base(last, stray).unwrap_err(),
            history().beyond(stray, last).unwrap_err(),
            history().newest(last).unwrap().find_map(Result::err).unwrap(),
        ];
        for error in errors {
            assert!(bounded::is_too_large(&error) && error.message().contains("more than 10 parents"), "{error}");
        }
        assert!(test.within(101).leads_to(last, first).unwrap());
    }

    #[test]
    fn parents_are_counted_each_time() {
        let test = TestHistory::new();
        let roots: Vec<Oid> = (0..10).map(|time| test.commit(time, &[])).collect();
        let names_all: Vec<Oid> = (20..30).map(|time| test.commit(time, &roots)).collect();
        let (head, stray) = (test.commit(40, &names_all), test.commit(0, &[]));
        // These are 22 commits.
        let newest = |longest| test.within(longest).newest(head).unwrap().collect::<Result<Vec<_>, _>>();
        assert!(bounded::is_too_large(&newest(109).err().unwrap()));
        assert_eq!(newest(110).unwrap().len(), 21);
        assert!(bounded::is_too_large(&test.within(109).leads_to(head, stray).unwrap_err()));
        assert!(!test.within(110).leads_to(head, stray).unwrap());
    }
}
