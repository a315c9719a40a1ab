//! Leader election: one replica at a time runs the controllers, projects to Git and compacts the log.
//!
//! A replica leads for a [`Term`]. The term ends before another replica can acquire the lease, and all its work
//! has ended before the next term begins here. Writes that must not happen twice carry the term's fence, which
//! holds whatever a clock says.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::Context as _;
use prometheus::{IntGaugeVec, Opts};
use stoa_machinery::{
    log::{Fence, Log, LogError},
    metrics::Families,
};
use tokio::{task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::lease::HeldLease;

/// The name of the lease.
const LEASE: &str = "controllers";

/// How a lease is kept.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long it lasts without renewal; after a crash it takes that long until another replica leads.
    ttl: Duration,
    /// How often it is renewed.
    renew: Duration,
    /// How long after a renewal the term goes on without another. What is left of the lease is for ending it.
    safe: Duration,
    /// How long what the term started may take to end; then it is dropped.
    last_words: Duration,
    /// How often a replica that does not lead tries to.
    retry: Duration,
}

const TIMING: Timing = Timing {
    ttl: Duration::from_secs(10),
    renew: Duration::from_millis(2500),
    safe: Duration::from_millis(7500),
    last_words: Duration::from_secs(2),
    retry: Duration::from_secs(1),
};

/// How long a term goes on that a part of is missing: what always panics is not to keep the others from their work.
const PART_LESS: Duration = Duration::from_secs(60);

/// A stretch of time in which this replica alone leads.
#[derive(Clone, Debug)]
pub struct Term {
    /// Proof for the log; none where there are no other replicas.
    pub fence: Option<Fence>,
    /// Fires when the term is over.
    pub end: CancellationToken,
}

/// What a leader does; it ends when the term does, and may be dropped a little after that.
pub trait Work: Send + Sync + 'static {
    /// Leads for one term.
    fn lead(&self, term: Term) -> impl Future<Output = anyhow::Result<()>> + Send;
}

/// Who may lead.
#[derive(Clone)]
pub enum Candidate {
    /// Nobody else could.
    Alone,
    /// One of several replicas.
    Replica {
        /// Where the lease is.
        log: Arc<dyn Log>,
        /// The replica's name, which it alone has.
        identity: String,
        /// Shows who leads.
        metric: IntGaugeVec,
        /// How the lease is kept.
        timing: Timing,
    },
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => f.write_str("Alone"),
            Self::Replica { identity, .. } => f.debug_tuple("Replica").field(identity).finish(),
        }
    }
}

impl Candidate {
    /// One of several replicas on a log.
    ///
    /// # Errors
    ///
    /// When the metric is there already.
    pub fn replica(log: Arc<dyn Log>, identity: String, families: &Families) -> prometheus::Result<Self> {
        // As `k8s.io/component-base/metrics/prometheus/clientgo/leaderelection` has it.
        let help = "[ALPHA] Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 \
                    indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.";
        // A reset leaves it: it is told once for a term, and who leads is to be seen throughout.
        let metric =
            families.register(IntGaugeVec::new(Opts::new("leader_election_master_status", help), &["name"])?)?;
        metric.with_label_values(&[LEASE]).set(0);
        Ok(Self::Replica { log, identity, metric, timing: TIMING })
    }

    /// Leads whenever it may, until the token ends.
    pub async fn run(self, work: impl Work, end: CancellationToken) {
        match self {
            Self::Alone => {
                while !end.is_cancelled() {
                    let term = Term { fence: None, end: end.child_token() };
                    tell(work.lead(term.clone()).await);
                    term.end.cancel();
                    // It could not even begin, most likely, and would not at once either.
                    end.run_until_cancelled(tokio::time::sleep(TIMING.retry)).await;
                }
            }
            Self::Replica { log, identity, metric, timing } => {
                let master = metric.with_label_values(&[LEASE]);
                while let Some(lease) = end.run_until_cancelled(win(&*log, &identity, timing)).await {
                    master.set(1);
                    tracing::info!(identity, token = lease.fence().token, "this replica leads");
                    serve_term(&*log, &lease, &work, timing, &end).await;
                    master.set(0);
                    tracing::info!(identity, "this replica leads no more");
                }
            }
        }
    }
}

/// Waits for what a term is made of. Where a part of it panics, the others have some time, and then the term is over, so that
/// all of them are begun anew: nobody else would do its work.
///
/// # Errors
///
/// That a part has panicked.
pub async fn until_all_end(parts: &mut JoinSet<()>) -> anyhow::Result<()> {
    let mut ended_badly = None;
    while let Some(ended) = parts.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a controller ended badly; all are begun anew in {PART_LESS:?}");
            ended_badly = Some(error);
            break;
        }
    }
    let Some(error) = ended_badly else { return Ok(()) };
    let others = async { while parts.join_next().await.is_some() {} };
    // They may all end before, with the term.
    let _ = tokio::time::timeout(PART_LESS, others).await;
    Err(error).context("a controller ended badly")
}

fn tell(outcome: anyhow::Result<()>) {
    if let Err(error) = outcome {
        tracing::error!(error = format!("{error:#}"), "what the leader does has failed");
    }
}

/// Takes the lease as soon as it is free.
async fn win(log: &dyn Log, identity: &str, timing: Timing) -> HeldLease {
    loop {
        match HeldLease::acquire(log, LEASE, identity, timing.ttl).await {
            Ok(lease) => return lease,
            Err(LogError::Held { holder, .. }) => tracing::debug!(holder, "another replica leads"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "whether this replica leads is not known");
            }
        }
        tokio::time::sleep(timing.retry).await;
    }
}

async fn serve_term(log: &dyn Log, lease: &HeldLease, work: &impl Work, timing: Timing, end: &CancellationToken) {
    let term = Term { fence: Some(lease.fence()), end: end.child_token() };
    let started = Instant::now();
    let mut leading = std::pin::pin!(work.lead(term.clone()));
    tokio::select! {
        outcome = &mut leading => {
            tell(outcome);
            // What it left behind ends before another leads.
            term.end.cancel();
            let last_words = Instant::now() + timing.last_words;
            // It could not even begin, most likely, and would not at once either.
            tokio::time::sleep_until(last_words.max(started + timing.retry)).await;
            give_up(log, lease, timing).await;
            return;
        }
        () = lease.keep(log, timing.renew, timing.safe) => {}
        () = end.cancelled() => {}
    }
    term.end.cancel();
    match tokio::time::timeout(timing.last_words, leading).await {
        Ok(outcome) => tell(outcome),
        Err(_) => tracing::warn!("what the leader did is dropped, since it does not end"),
    }
    give_up(log, lease, timing).await;
}

/// Lets another replica lead at once, instead of when the lease expires.
async fn give_up(log: &dyn Log, lease: &HeldLease, timing: Timing) {
    match tokio::time::timeout(timing.last_words, lease.release(log)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(error = &error as &dyn std::error::Error, "the lease is left to expire"),
        Err(_) => tracing::debug!("the lease is left to expire"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use stoa_machinery::log::MemoryLog;
    use tokio::sync::mpsc;

    use super::*;

    /// Tells who leads, and that it is one alone.
    struct Telling {
        name: &'static str,
        leading: Arc<AtomicUsize>,
        told: mpsc::UnboundedSender<(&'static str, Term)>,
    }

    impl Work for Telling {
        async fn lead(&self, term: Term) -> anyhow::Result<()> {
            assert_eq!(self.leading.fetch_add(1, SeqCst), 0, "two lead at once");
            self.told.send((self.name, term.clone()))?;
            term.end.cancelled().await;
            self.leading.fetch_sub(1, SeqCst);
            Ok(())
        }
    }

    const QUICK: Timing = Timing {
        ttl: Duration::from_millis(1000),
        renew: Duration::from_millis(100),
        safe: Duration::from_millis(700),
        last_words: Duration::from_millis(200),
        retry: Duration::from_millis(50),
    };
    /// How long something may take that has to happen.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn candidate(log: &Arc<dyn Log>, name: &str) -> Candidate {
        let mut candidate = Candidate::replica(log.clone(), name.to_owned(), &Families::default()).unwrap();
        if let Candidate::Replica { timing, .. } = &mut candidate {
            *timing = QUICK;
        }
        candidate
    }

    #[tokio::test(start_paused = true)]
    async fn one_leads_and_another_when_it_is_gone() {
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
        let (told, mut leaders) = mpsc::unbounded_channel();
        let leading = Arc::new(AtomicUsize::new(0));
        let start = |name: &'static str| {
            let end = CancellationToken::new();
            let work = Telling { name, leading: leading.clone(), told: told.clone() };
            (tokio::spawn(candidate(&log, name).run(work, end.clone())), end)
        };
        let (one, _end) = start("one");
        let (name, first) = leaders.recv().await.unwrap();
        assert_eq!(name, "one");
        let (two, end_two) = start("two");
        assert!(tokio::time::timeout(QUICK.ttl * 2, leaders.recv()).await.is_err(), "it leads as long as it renews");

        // A crash: nobody renews and nobody releases.
        one.abort();
        assert!(one.await.unwrap_err().is_cancelled());
        leading.store(0, SeqCst);
        let (name, second) = leaders.recv().await.unwrap();
        assert_eq!(name, "two");
        let token = |term: &Term| term.fence.as_ref().unwrap().token;
        assert!(token(&second) > token(&first));

        // An orderly end gives the lease up.
        let (_three, _end) = start("three");
        end_two.cancel();
        two.await.unwrap();
        let next = tokio::time::timeout(PATIENCE, leaders.recv()).await.expect("it was given up");
        assert_eq!(next.unwrap().0, "three");
    }

    #[tokio::test(start_paused = true)]
    async fn panicked_part_ends_term_after_grace_period() {
        let start = || {
            let (mut parts, others) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
            parts.spawn(async { panic!("of this test") });
            (parts, others)
        };
        let (mut parts, ticks) = start();
        let ticked = ticks.clone();
        parts.spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                ticked.fetch_add(1, SeqCst);
            }
        });
        let began = Instant::now();
        assert!(until_all_end(&mut parts).await.is_err());
        assert!(
            began.elapsed() >= PART_LESS && ticks.load(SeqCst) >= 59,
            "the others went on for {:?}",
            began.elapsed()
        );
        // Where they end, nothing is waited for.
        let (mut parts, _) = start();
        parts.spawn(tokio::time::sleep(Duration::from_secs(1)));
        let began = Instant::now();
        assert!(until_all_end(&mut parts).await.is_err() && began.elapsed() < PART_LESS);
        let mut parts = JoinSet::new();
        parts.spawn(async {});
        until_all_end(&mut parts).await.unwrap();
    }

    #[tokio::test]
    async fn nobody_leads_before_the_lease_of_another_has_expired() {
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
        let taken = Instant::now();
        log.acquire(LEASE, "one", QUICK.ttl).await.unwrap();
        let (told, mut leaders) = mpsc::unbounded_channel();
        let work = Telling { name: "two", leading: Arc::default(), told };
        let _two = tokio::spawn(candidate(&log, "two").run(work, CancellationToken::new()));
        leaders.recv().await.unwrap();
        assert!(taken.elapsed() >= QUICK.ttl, "it took only {:?}", taken.elapsed());
    }

    #[tokio::test]
    async fn a_term_ends_when_its_lease_is_taken() {
        let log: Arc<dyn Log> = Arc::new(MemoryLog::new());
        let (told, mut leaders) = mpsc::unbounded_channel();
        let work = Telling { name: "one", leading: Arc::default(), told };
        let end = CancellationToken::new();
        let running = tokio::spawn(candidate(&log, "one").run(work, end.clone()));
        let (_, first) = leaders.recv().await.unwrap();
        // An earlier life of the same replica takes it, as far as the first term can tell.
        log.acquire(LEASE, "one", QUICK.ttl).await.unwrap();
        tokio::time::timeout(PATIENCE, first.end.cancelled()).await.expect("it hears of it with the next renewal");
        let (_, second) = leaders.recv().await.unwrap();
        assert!(!second.end.is_cancelled());
        end.cancel();
        running.await.unwrap();
    }
}
