//! Looks, and what is told apart from them.

use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::*;

/// Longer than anything here takes, and shorter than a server is waited for.
const LONG: Duration = Duration::from_secs(15);

impl Bed {
    /// Two pull requests whose plans are made and not told.
    async fn untold() -> Self {
        let bed = Self::with_two_plans().await;
        bed.look_only().await;
        bed
    }

    /// The first one is merged; its commit.
    async fn merge_the_first(&self) -> Oid {
        let at = self.forge.merge(1, Merge::Squash);
        self.commits.0.lock().insert(at.to_string(), "2".to_owned());
        self.observe(at).await;
        at
    }

    async fn merges_known_at(&self) -> Option<String> {
        self.source().await.status.unwrap().merges_known_at
    }

    async fn condition(&self) -> Condition {
        let status = self.source().await.status.unwrap();
        condition(&status.conditions, reason::PULL_REQUESTS_PLANNED).unwrap().clone()
    }

    /// Waits until the server is asked for something whose path has this.
    async fn is_asked_for(&self, part: &str) {
        let asked = async {
            while !self.forge.requests().iter().any(|request| request.contains(part)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LONG, asked).await.expect("it is asked");
    }
}

#[tokio::test]
async fn slow_comments_delay_no_merge_detection() {
    let bed = Box::pin(Bed::untold()).await;
    bed.forge.hold("/comments");
    let turns = ProbeSlots::default().of("shop");
    let telling = tokio::spawn(crate::controllers::pull_requests::reporter::look(
        bed.runs.services.clone(),
        bed.known.clone(),
        turns,
        key(),
    ));
    bed.is_asked_for("/comments").await;
    let at = bed.merge_the_first().await;
    tokio::time::timeout(LONG, bed.look_only()).await.expect("it does not wait");
    assert_eq!(bed.merges_known_at().await, Some(at.to_string()));
    bed.forge.release();
    let again = telling.await.unwrap().unwrap();
    assert_eq!(again, Some(Duration::ZERO), "there is something else to tell by now");
    assert_eq!((bed.forge.comments(1).len(), bed.forge.comments(2).len()), (0, 1));
    assert_eq!(bed.tell().await, None);
    assert_eq!(bed.noted().await, ["2 Succeeded 1"]);
}

#[tokio::test]
async fn failed_comments_retry_without_delaying_merges() {
    let bed = Box::pin(Bed::untold()).await;
    bed.forge.refuse_next(500, "0");
    assert!(bed.tell().await.is_some_and(|wait| wait > Duration::from_secs(60)));
    let expected = ("False".to_owned(), reason::PULL_REQUESTS_NOT_REPORTED.to_owned());
    let told = bed.condition().await;
    assert_eq!((told.status, told.reason), expected);
    let asked = bed.forge.requests().len();
    assert!(bed.tell().await.is_some());
    assert_eq!(bed.forge.requests().len(), asked, "it is left alone");
    let at = bed.merge_the_first().await;
    bed.look_only().await;
    assert_eq!(bed.merges_known_at().await, Some(at.to_string()));
    let told = bed.condition().await;
    assert_eq!((told.status, told.reason), expected, "that it cannot be told is still so");
    assert_eq!(bed.look().await.unwrap().status, "True");
    assert_eq!(bed.forge.comments(2).len(), 1);
}

#[tokio::test]
async fn look_waits_for_the_turn_of_its_namespace() {
    let bed = Bed::new().await;
    let turns = ProbeSlots::default();
    let of_shop = turns.of("shop");
    let mut taken = Vec::new();
    while let Some(turn) = of_shop.take().now_or_never() {
        taken.push(turn);
    }
    let mut looking = Box::pin(look(bed.runs.services.clone(), bed.known.clone(), turns.of("shop"), key()));
    // All that it does before it waits is done in so many turns of the runtime.
    for _ in 0..1_000 {
        assert!(futures_util::poll!(looking.as_mut()).is_pending(), "those of others keep it from asking");
        tokio::task::yield_now().await;
    }
    let looking = tokio::spawn(looking);
    // Whose pull requests are not planned any more waits for nobody.
    bed.change_source(|source| source.spec.pull_requests = None).await;
    let last = Box::pin(look(bed.runs.services.clone(), bed.known.clone(), turns.of("shop"), key()));
    tokio::time::timeout(LONG, last).await.expect("it asks nobody").unwrap();
    assert!(!looking.is_finished() && bed.forge.requests().is_empty(), "it waits on");
    taken.clear();
    tokio::time::timeout(LONG, looking).await.expect("it is its turn").unwrap().unwrap();
    assert!(bed.forge.requests().is_empty(), "the source is read when it is");
}

#[tokio::test]
async fn merges_beyond_deadline_wait_for_next_pass() {
    let bed = Box::pin(Bed::untold()).await;
    let at = bed.merge_the_first().await;
    let source = bed.source().await;
    let plans = source.spec.pull_requests.clone().unwrap();
    let services = bed.runs.services.clone();
    let client = bed.known.client(&services, &key(), &source, &plans).await.unwrap();
    let world = SourceSnapshot { services, known: bed.known.clone(), key: key(), client };
    let (runs, asked) = (bed.plans().await, bed.forge.requests().len());
    let merges = world.merges(&source, &runs, &[], Instant::now()).await.unwrap();
    assert_eq!((merges.is_partial, merges.kept.len()), (true, 2), "all of their plans stay");
    assert_eq!(bed.forge.requests().len(), asked);
    bed.look_only().await;
    assert_eq!(bed.merges_known_at().await, Some(at.to_string()));
}
