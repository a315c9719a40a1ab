//! The reporter: it writes statuses and comments to pull requests, apart from the reconciliation that found them.
//!
//! A slow server therefore delays no merge. A report stays queued until the next reconciliation replaces it. A
//! namespace reports for [`TURN`] at a time; the rest waits for its next turn. Each report is recorded by itself.

use std::{collections::HashSet, sync::Arc, time::Duration};

use kube::ResourceExt as _;
use stoa_controller::{object::ObjectKey, probes::NamespaceSlots};
use stoa_machinery::ApiError;
use stoa_pulls::{PullError, PullRequest, PullRequests};
use stoa_runs::Services;
use stoa_types::Source;
use tokio::time::Instant;

use super::{
    listing::{Known, Refusal},
    merges::Followed,
    publish::{note, tell},
    report::Plan,
    snapshot::{SourceSnapshot, Stop},
};

/// How long after the beginning of a turn something else is told.
const TURN: Duration = Duration::from_secs(60);

/// What a look found that there is to tell of a source.
#[derive(Debug)]
pub(super) struct News {
    /// Of which Source, and how it was.
    pub(super) of: (Option<String>, Option<i64>),
    pub(super) client: Arc<dyn PullRequests>,
    /// The numbers of those that are open: there may be something to take back of others.
    pub(super) open: HashSet<u64>,
    pub(super) planned: Vec<Planned>,
    pub(super) followed: Vec<Followed>,
}

/// The plans of a pull request at a commit, and how many more there would be.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) pull: PullRequest,
    pub(super) commit: String,
    pub(super) plans: Vec<Plan>,
    pub(super) left_out: usize,
}

enum Progress {
    /// All of it, but for this.
    Done(Option<Refusal>),
    /// The turn is over, or there is something else to tell.
    Unfinished,
    /// The server is away, or asks to be left alone.
    Refused(PullError),
}

/// Tells what there is to tell of a source; when to go on.
pub(super) async fn look(
    services: Services,
    known: Known,
    turns: NamespaceSlots,
    key: ObjectKey,
) -> Result<Option<Duration>, ApiError> {
    if known.news(&key).is_none() {
        return Ok(None);
    }
    if let Some(left) = known.rests_for(&key) {
        return Ok(Some(left));
    }
    let _turn = turns.take().await;
    // What there is by then.
    let Some(news) = known.news(&key) else { return Ok(None) };
    let found = services.lookup.api::<Source>()?.get_opt(&key.0, &key.1).await?;
    let is_same = |source: &Source| {
        source.metadata.deletion_timestamp.is_none() && (source.uid(), source.metadata.generation) == news.of
    };
    // Otherwise the next look has something else to tell, if anything.
    let Some(source) = found.filter(is_same) else { return Ok(None) };
    let world = SourceSnapshot { services, known, key, client: news.client.clone() };
    let (again, told) = match world.tell_news(source.clone(), &news).await? {
        Progress::Done(untold) => (None, world.known.note_untold(&world.key, untold)),
        Progress::Unfinished => return Ok(Some(Duration::ZERO)),
        Progress::Refused(error) => {
            let (wait, told) = world.known.note_refused(&world.key, &source, &error);
            (Some(wait), told)
        }
    };
    if let Some(told) = told {
        tell(&world.services, &source, told).await?;
    }
    Ok(again)
}

impl SourceSnapshot {
    async fn tell_news(&self, mut source: Source, news: &Arc<News>) -> Result<Progress, ApiError> {
        let until = Instant::now() + TURN;
        let is_over = || Instant::now() >= until || !self.known.is_news(&self.key, news);
        let mut untold = None;
        for followed in &news.followed {
            if is_over() {
                return Ok(Progress::Unfinished);
            }
            if let Err(error) = keep(self.tell_followed(followed).await, &mut untold) {
                return Ok(Progress::Refused(error));
            }
        }
        for Planned { pull, commit, plans, left_out } in &news.planned {
            if is_over() {
                return Ok(Progress::Unfinished);
            }
            let told = self.report(&mut source, pull, commit, plans, *left_out).await?;
            if let Err(error) = keep(told, &mut untold) {
                return Ok(Progress::Refused(error));
            }
        }
        let is_open = |number: i64| u64::try_from(number).is_ok_and(|number| news.open.contains(&number));
        let gone = source.status.iter().flat_map(|status| &status.pull_requests);
        for pull in gone.filter(|pull| !is_open(pull.number)).cloned().collect::<Vec<_>>() {
            if is_over() {
                return Ok(Progress::Unfinished);
            }
            if let Err(error) = self.part_with(&pull).await {
                return Ok(Progress::Refused(error));
            }
            source = note(&self.services, &source, pull.number, None).await?;
        }
        Ok(Progress::Done(untold))
    }
}

/// Keeps the first of what could not be told of one pull request, while the others are gone on with.
///
/// # Errors
///
/// What the server says that is to be left alone.
fn keep(told: Result<(), Stop>, untold: &mut Option<Refusal>) -> Result<(), PullError> {
    match told {
        Ok(()) | Err(Stop::Time) => Ok(()),
        Err(Stop::Server(error)) => Err(error),
        Err(Stop::One(why)) => {
            untold.get_or_insert(why);
            Ok(())
        }
        Err(Stop::Runner(message)) => {
            untold.get_or_insert((stoa_types::reason::SOURCE_UNREACHABLE, message));
            Ok(())
        }
    }
}
