//! Removes documents from their stores, each store at its own pace.
//!
//! Start at [`remove`]. A store that is slow, or lets nothing be removed, keeps no other's documents: neither from being removed nor
//! from being put. What refers to documents is read once for as many stores as are ready for it together.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    error::Error,
    sync::Arc,
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use parking_lot::Mutex;
use stoa_storage::documents::{Digest, DocumentStore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Going, Holds};
use crate::StepError;

/// Documents of a store that are removed per look at all references.
const BATCH: usize = 1_000;
/// From so many stores documents are removed at once.
pub(super) const AT_ONCE: usize = 16;
/// How long documents of one store are removed before the rest is left for the next round.
const LONGEST: Duration = Duration::from_secs(600);
/// So many documents of one store may stay before the rest is left for the next round.
const MOST_FAILURES: usize = 5;
/// How long a removal whose answer was lost may be on its way.
const LATE: Duration = Duration::from_secs(60);

/// Documents of a stack in a store that nothing has referred to for long enough.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) backend: String,
    pub(super) store: Arc<dyn DocumentStore>,
    pub(super) scope: String,
    pub(super) digests: Vec<Digest>,
}

/// A document that its store did not remove.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stuck {
    backend: String,
    scope: String,
    digest: Digest,
}

/// The documents that their stores did not remove. It is shared with the tasks that remove, which go on where others break off.
pub(super) type AllStuck = Arc<Mutex<HashSet<Stuck>>>;

/// Puts documents last that their stores did not remove before, so that they block no others.
pub(super) fn put_stuck_last(due: Vec<Due>, stuck: &mut HashSet<Stuck>) -> Vec<Due> {
    let (mut all, mut last, mut known) = (Vec::new(), Vec::new(), HashSet::new());
    for Due { backend, store, scope, digests } in due {
        let mut again = Vec::new();
        let mut others = Vec::new();
        for digest in digests {
            let document = Stuck { backend: backend.clone(), scope: scope.clone(), digest };
            if stuck.contains(&document) {
                known.insert(document);
                again.push(digest);
            } else {
                others.push(digest);
            }
        }
        if !again.is_empty() {
            last.push(Due { backend: backend.clone(), store: store.clone(), scope: scope.clone(), digests: again });
        }
        if !others.is_empty() {
            all.push(Due { backend, store, scope, digests: others });
        }
    }
    *stuck = known;
    all.extend(last);
    all
}

/// Removes documents without `references`; returns their number, and adds those that stay to `stuck`.
pub(super) async fn remove<F>(
    due: Vec<Due>,
    holds: &Arc<Holds>,
    grace: Duration,
    references: impl Fn() -> F,
    end: &CancellationToken,
    stuck: &AllStuck,
) -> Result<usize, StepError>
where
    F: Future<Output = Result<HashSet<Digest>, StepError>>,
{
    let mut queue = by_store(due);
    let mut under_way = FuturesUnordered::new();
    let mut all_removed = 0;
    loop {
        let mut begun = Vec::new();
        while under_way.len() + begun.len() < AT_ONCE
            && let Some(mut work) = queue.pop_front()
        {
            let going = work.begin(holds, grace, BATCH);
            begun.push((work, going));
        }
        if !begun.is_empty() {
            // Whatever refers to one of them since the last look is there now, and nothing can begin to any more.
            let referenced = Arc::new(references().await?);
            // Tasks of their own: what is being removed must not be put again before it is gone, whatever becomes of us.
            let begin = |(work, going): (Work, _)| {
                tokio::spawn(work.remove(going, referenced.clone(), end.clone(), stuck.clone()))
            };
            under_way.extend(begun.into_iter().map(begin));
        }
        let Some(ended) = under_way.next().await else { return Ok(all_removed) };
        let mut ended = Some(ended);
        while let Some(part) = ended {
            match part {
                Ok(Part { removed, rest }) => {
                    all_removed += removed;
                    queue.extend(rest);
                }
                Err(error) => tracing::error!(error = &error as &dyn Error, "removing documents broke off"),
            }
            ended = under_way.next().now_or_never().flatten();
        }
    }
}

/// What is to be removed from one store.
#[derive(Debug)]
struct Work {
    backend: String,
    store: Arc<dyn DocumentStore>,
    /// Scopes, and documents in them.
    due: VecDeque<(String, Vec<Digest>)>,
    spent: Duration,
    failures: usize,
}

/// What came of a part of it.
#[derive(Debug)]
struct Part {
    removed: usize,
    rest: Option<Work>,
}

fn by_store(due: Vec<Due>) -> VecDeque<Work> {
    let mut all: BTreeMap<String, Work> = BTreeMap::new();
    for Due { backend, store, scope, digests } in due {
        let new = || Work { backend: backend.clone(), store, due: VecDeque::new(), spent: Duration::ZERO, failures: 0 };
        all.entry(backend.clone()).or_insert_with(new).due.push_back((scope, digests));
    }
    all.into_values().collect()
}

impl Work {
    /// Begins to remove so many documents at most.
    fn begin(&mut self, holds: &Arc<Holds>, grace: Duration, most: usize) -> Vec<Going> {
        let (mut left, mut begun) = (most, Vec::new());
        while left > 0
            && let Some((scope, mut digests)) = self.due.pop_front()
        {
            let later = digests.split_off(left.min(digests.len()));
            left -= digests.len();
            begun.push(holds.begin(&scope, &digests, grace));
            if !later.is_empty() {
                self.due.push_front((scope, later));
            }
        }
        begun
    }

    /// Removes what was begun with, but for what is referred to.
    async fn remove(
        mut self,
        begun: Vec<Going>,
        referenced: Arc<HashSet<Digest>>,
        end: CancellationToken,
        stuck: AllStuck,
    ) -> Part {
        let (start, mut removed) = (Instant::now(), 0);
        for mut going in begun {
            while let Some(digest) = going.digests.last().copied() {
                if referenced.contains(&digest) {
                    going.release_last();
                    continue;
                }
                if end.is_cancelled() || self.spent + start.elapsed() >= LONGEST {
                    return Part { removed, rest: None };
                }
                let deleted = self.store.delete(&going.scope, &digest).await;
                match deleted {
                    Ok(()) => {
                        removed += 1;
                        going.release_last();
                    }
                    Err(error) => {
                        let error = &error as &dyn Error;
                        tracing::warn!(error, backend = self.backend, "a document that nothing refers to stays");
                        let (backend, scope) = (self.backend.clone(), going.scope.clone());
                        stuck.lock().insert(Stuck { backend, scope, digest });
                        // It may arrive yet, and must not remove what is put by then.
                        let late = going.split_last();
                        tokio::spawn(async move {
                            tokio::time::sleep(LATE).await;
                            drop(late);
                        });
                        self.failures += 1;
                        if self.failures >= MOST_FAILURES {
                            return Part { removed, rest: None };
                        }
                    }
                }
            }
        }
        self.spent += start.elapsed();
        Part { removed, rest: (!self.due.is_empty()).then_some(self) }
    }
}

#[cfg(test)]
mod tests {
    use stoa_storage::documents::LocalDocuments;

    use super::*;

    #[test]
    fn documents_are_removed_in_bounded_parts() {
        let folder = tempfile::TempDir::new().unwrap();
        let store: Arc<dyn DocumentStore> = Arc::new(LocalDocuments::open(folder.path().to_owned()).unwrap());
        let digests: Vec<Digest> = (0..7_u8).map(|number| Digest::of(&[number])).collect();
        let due = |backend: &str, scope: &str, digests: &[Digest]| Due {
            backend: backend.to_owned(),
            store: store.clone(),
            scope: scope.to_owned(),
            digests: digests.to_vec(),
        };
        let all = vec![
            due("b", "shop/a", &digests[..2]),
            due("a", "shop/b", &digests[..1]),
            due("b", "shop/c", &digests[2..2]),
            due("b", "shop/d", &digests[2..7]),
        ];
        let mut queue = by_store(all);
        assert_eq!(queue.iter().map(|work| work.backend.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let (holds, work) = (Arc::new(Holds::default()), &mut queue[1]);
        let mut parts = Vec::new();
        while !work.due.is_empty() {
            parts.push(work.begin(&holds, Duration::ZERO, 3));
        }
        let sizes = |part: &Vec<Going>| part.iter().map(|going| going.digests.len()).collect::<Vec<_>>();
        assert_eq!(parts.iter().map(sizes).collect::<Vec<_>>(), [vec![2, 0, 1], vec![3], vec![1]]);
        let begun: Vec<Digest> = parts.iter().flatten().flat_map(|going| going.digests.clone()).collect();
        assert_eq!(begun, digests);
    }
}
