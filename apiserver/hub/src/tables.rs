//! Tables from transitions: the history of reconcilers, and the rollouts of commits.

use std::{cmp::Reverse, collections::HashMap, sync::Arc};

use crate::Transition;

/// The most reconcilers, each counted once for each of its commits, that [`Rollouts`] keeps in memory.
pub const MAX_DEPLOYMENTS: usize = 2_000_000;

/// Takes transitions in any order. A transition may come twice.
pub trait Collector {
    /// Takes a transition.
    fn add(&mut self, row: Transition);

    /// The time before which transitions make no difference any more, in microseconds since the Unix epoch. Readers pass over
    /// segments that end before it.
    fn since(&mut self) -> i64 {
        i64::MIN
    }
}

/// The newest of many transitions.
#[derive(Clone, Debug)]
pub struct Newest {
    most: usize,
    rows: Vec<Transition>,
    /// The time of the oldest row, once there are enough.
    since: i64,
}

impl Newest {
    /// An empty table, which keeps the newest `most` transitions.
    pub fn new(most: usize) -> Self {
        Self { most, rows: Vec::new(), since: i64::MIN }
    }

    fn cut(&mut self) {
        self.rows.sort_unstable_by(|a, b| (Reverse(a.time), a).cmp(&(Reverse(b.time), b)));
        self.rows.dedup();
        self.rows.truncate(self.most);
        if self.rows.len() == self.most {
            self.since = self.rows.last().map_or(i64::MIN, |oldest| oldest.time);
        }
    }

    /// The transitions, the newest first, each once. A row that repeats the commit and status of its reconciler is left out.
    pub fn into_rows(mut self) -> Vec<Transition> {
        self.cut();
        let mut later: HashMap<Arc<str>, usize> = HashMap::new();
        let mut is_repeated = vec![false; self.rows.len()];
        for (at, row) in self.rows.iter().enumerate() {
            if let Some(newer) = later.insert(row.reconciler.clone(), at) {
                let newer_row = &self.rows[newer];
                is_repeated[newer] = newer_row.commit == row.commit && newer_row.status == row.status;
            }
        }
        let rows = self.rows.into_iter().zip(is_repeated);
        rows.filter_map(|(row, is_repeated)| (!is_repeated).then_some(row)).collect()
    }
}

impl Collector for Newest {
    fn add(&mut self, row: Transition) {
        if row.time < self.since {
            return;
        }
        self.rows.push(row);
        if self.rows.len() > self.most.saturating_mul(2).max(1000) {
            self.cut();
        }
    }

    fn since(&mut self) -> i64 {
        self.cut();
        self.since
    }
}

/// The rollout of a commit of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    /// The endpoint of the manifests.
    pub endpoint: Arc<str>,
    /// The commit.
    pub commit: Arc<str>,
    /// The time of the first transition to the commit anywhere, in microseconds since the Unix epoch.
    pub start: i64,
    /// The time of the last first success of a reconciler; `None` where none succeeded.
    pub end: Option<i64>,
    /// The number of reconcilers that reported the commit.
    pub reconcilers: usize,
    /// The number of those that succeeded.
    pub succeeded: usize,
    /// The number of those that failed and never succeeded.
    pub failed: usize,
    /// The microseconds from the start to the success of half, of nine tenths, and of all of those that succeeded.
    pub lags: Option<[i64; 3]>,
}

/// The deployment of a commit by a reconciler.
#[derive(Clone, Copy, Debug, Default)]
struct Deployed {
    success: Option<i64>,
    has_failed: bool,
}

/// The start of a rollout, and its deployments by reconciler.
type Started = (i64, HashMap<Arc<str>, Deployed>);

/// Counts rollouts.
#[derive(Clone, Debug, Default)]
pub struct Rollouts {
    /// By endpoint and commit.
    found: HashMap<(Arc<str>, Arc<str>), Started>,
    deployments: usize,
}

/// There are more deployments than [`MAX_DEPLOYMENTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the rollouts have more than {} deployments; ask for fewer days", MAX_DEPLOYMENTS)]
pub struct TooMany;

impl Collector for Rollouts {
    fn add(&mut self, row: Transition) {
        if self.deployments > MAX_DEPLOYMENTS {
            return;
        }
        let (start, of) = self.found.entry((row.endpoint, row.commit)).or_insert_with(|| (row.time, HashMap::new()));
        *start = row.time.min(*start);
        let before = of.len();
        let deployed = of.entry(row.reconciler).or_default();
        match &*row.status {
            "success" => deployed.success = Some(deployed.success.map_or(row.time, |time| time.min(row.time))),
            "failure" => deployed.has_failed = true,
            _ => {}
        }
        self.deployments += of.len() - before;
    }
}

impl Rollouts {
    /// The rollouts, the newest first.
    ///
    /// # Errors
    ///
    /// [`TooMany`].
    pub fn finish(self) -> Result<Vec<Rollout>, TooMany> {
        if self.deployments > MAX_DEPLOYMENTS {
            return Err(TooMany);
        }
        let mut rollouts: Vec<Rollout> = Vec::with_capacity(self.found.len());
        for ((endpoint, commit), (start, of)) in self.found {
            let mut successes: Vec<i64> = of.values().filter_map(|deployed| deployed.success).collect();
            successes.sort_unstable();
            let at = |hundredths: usize| -> Option<i64> {
                let rank = (successes.len() * hundredths).div_ceil(100);
                successes.get(rank.checked_sub(1)?).map(|time| time - start)
            };
            let lags = at(50).zip(at(90)).zip(at(100)).map(|((half, most), all)| [half, most, all]);
            let failed = of.values().filter(|deployed| deployed.has_failed && deployed.success.is_none()).count();
            rollouts.push(Rollout {
                endpoint,
                commit,
                start,
                end: successes.last().copied(),
                reconcilers: of.len(),
                succeeded: successes.len(),
                failed,
                lags,
            });
        }
        let key = |rollout: &Rollout| (Reverse(rollout.start), rollout.endpoint.clone(), rollout.commit.clone());
        rollouts.sort_by_cached_key(key);
        Ok(rollouts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(reconciler: &str, time: i64, commit: &str, status: &str) -> Transition {
        Transition {
            host: "drone".into(),
            reconciler: reconciler.into(),
            time,
            endpoint: "web".into(),
            commit: commit.into(),
            status: status.into(),
            message: "".into(),
        }
    }

    #[test]
    fn history_has_the_newest_rows_without_repetitions() {
        let mut newest = Newest::new(3);
        for (time, status) in [(1, "in_progress"), (4, "failure"), (3, "success"), (2, "success"), (4, "failure")] {
            newest.add(row("a", time, "c", status));
        }
        let shown: Vec<_> = newest.into_rows().iter().map(|row| (row.time, row.status.to_string())).collect();
        // The row of time 1 is beyond the limit, and that of time 3 repeats that of time 2.
        assert_eq!(shown, [(4, "failure".to_owned()), (2, "success".to_owned())]);
    }

    #[test]
    fn full_history_wants_no_older_rows() {
        let mut newest = Newest::new(2);
        newest.add(row("a", 5, "c1", "success"));
        assert_eq!(newest.since(), i64::MIN);
        newest.add(row("b", 7, "c1", "success"));
        newest.add(row("c", 3, "c1", "success"));
        assert_eq!(newest.since(), 5);
        for time in [4, 5, 6] {
            newest.add(row("d", time, "c1", "success"));
        }
        let times: Vec<i64> = newest.into_rows().iter().map(|row| row.time).collect();
        assert_eq!(times, [7, 6]);
        assert_eq!(Rollouts::default().since(), i64::MIN);
    }

    #[test]
    fn rollout_has_its_lags() {
        let mut rollouts = Rollouts::default();
        for _ in 0..2 {
            for at in 1..=10_i64 {
                rollouts.add(row(&format!("r{at}"), 100, "c1", "in_progress"));
                rollouts.add(row(&format!("r{at}"), 100 + at * 10, "c1", "success"));
            }
            rollouts.add(row("r11", 150, "c1", "failure"));
            rollouts.add(row("r1", 500, "c2", "in_progress"));
        }
        let found = rollouts.finish().unwrap();
        let [newer, older] = &found[..] else { panic!("two rollouts") };
        assert_eq!((&*newer.commit, newer.reconcilers, newer.end, newer.lags), ("c2", 1, None, None));
        assert_eq!((&*older.commit, older.start, older.end), ("c1", 100, Some(200)));
        assert_eq!((older.reconcilers, older.succeeded, older.failed), (11, 10, 1));
        assert_eq!(older.lags, Some([50, 90, 100]));
    }

    #[test]
    fn single_success_is_every_percentile() {
        let mut rollouts = Rollouts::default();
        rollouts.add(row("r1", 7, "c", "success"));
        assert_eq!(rollouts.finish().unwrap()[0].lags, Some([0, 0, 0]));
    }
}
