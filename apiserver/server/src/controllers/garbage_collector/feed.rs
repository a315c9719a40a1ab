//! Keeps the graph in step with the watch caches of all resources.
//!
//! **Invariant:** whoever asks ([`GraphFeed::ask`]) is answered from a graph in which is all that was answered to any writer before.
//! That is in the watch caches by then, as a change that is told or as something that was missed. So nobody is answered
//! before all changes were asked for once more after the question and there was none, and nothing is missed:
//!
//! - `biased` has [`Feed::run`] ask for changes first, in each turn, and answer last.
//! - `unconstrained` has that there is none mean what it says: else Tokio says so, too, to a task that had its share.
//! - What was missed is in no change until it is listed, which may take any time. That it is due says the `Listing`.
//!
//! A list is taken up before anything else is asked for, on another thread, since it takes long.

use std::{
    collections::HashSet,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::{StreamExt as _, stream::BoxStream};
use parking_lot::Mutex;
use stoa_controller::{blocking::on_own_thread, object::ObjectKey};
use stoa_machinery::{
    ApiError,
    registry::{
        Store, Stored,
        api::{Change, Listing},
    },
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    graph::Graph,
    objects::{Found, Objects},
};

/// How many objects of a list are taken up while the graph is locked.
const AT_ONCE: usize = 256;

#[derive(Clone, Debug)]
pub(super) struct GraphFeed {
    graph: Arc<Mutex<Graph>>,
    asks: mpsc::UnboundedSender<oneshot::Sender<()>>,
}

impl GraphFeed {
    /// What `of` finds in a graph with all writes before this call: see the invariant above.
    pub(super) async fn ask<T>(&self, of: impl FnOnce(&Graph) -> T) -> Result<T, ApiError> {
        let ends = || ApiError::service_unavailable("the garbage collector ends");
        let (caught_up, is_caught_up) = oneshot::channel();
        self.asks.send(caught_up).map_err(|_| ends())?;
        is_caught_up.await.map_err(|_| ends())?;
        Ok(self.at_hand(of))
    }

    /// What `of` finds in the graph as it is.
    pub(super) fn at_hand<T>(&self, of: impl FnOnce(&Graph) -> T) -> T {
        of(&self.graph.lock())
    }
}

/// What happens to the objects of one resource.
struct Changes {
    store: Arc<Store>,
    changes: BoxStream<'static, Change<Arc<Stored>>>,
    listing: Listing,
    /// Whether what there was at the beginning was told.
    has_begun: bool,
}

pub(super) struct Feed {
    graph: Arc<Mutex<Graph>>,
    resources: Vec<Changes>,
    asks: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    due: mpsc::UnboundedSender<Vec<ObjectKey>>,
}

impl Feed {
    /// Follows all objects that are collected, and tells `due` what is to be looked at, once all have been seen.
    pub(super) fn new(objects: &Objects, due: mpsc::UnboundedSender<Vec<ObjectKey>>) -> (Self, GraphFeed) {
        let (asks, asked) = mpsc::unbounded_channel();
        let graph: Arc<Mutex<Graph>> = Arc::default();
        let resources = objects.collected().map(|store| {
            let (changes, listing) = store.subscribe_listing(None);
            Changes { store: Arc::clone(store), changes: changes.fuse().boxed(), listing, has_begun: false }
        });
        let feed = Self { graph: Arc::clone(&graph), resources: resources.collect(), asks: asked, due };
        (feed, GraphFeed { graph, asks })
    }

    /// Feeds the graph until the token ends. To be run unconstrained: see the invariant above.
    pub(super) async fn run(mut self, end: CancellationToken) {
        let mut is_whole = false;
        let mut asked = Vec::new();
        let listings: Vec<Listing> = self.resources.iter().map(|of| of.listing.clone()).collect();
        loop {
            tokio::select! {
                biased;
                () = end.cancelled() => return,
                (index, change) = poll_fn(|context| next_change(&mut self.resources, context)) => {
                    let due = self.take(index, change).await;
                    let was_whole = std::mem::replace(&mut is_whole, self.resources.iter().all(|of| of.has_begun));
                    match (was_whole, is_whole) {
                        (true, _) => self.tell(due),
                        // Before, owners may be missing that are only yet to be seen.
                        (false, true) => {
                            let unsettled = self.graph.lock().unsettled();
                            self.tell(unsettled);
                        }
                        (false, false) => {}
                    }
                }
                Some(ask) = self.asks.recv() => asked.push(ask),
                // Nothing has changed since all of them asked.
                () = poll_fn(|_| unless_due(&listings)), if is_whole && !asked.is_empty() => {
                    for ask in asked.drain(..) {
                        // Whoever does not listen any more needs no answer.
                        let _ = ask.send(());
                    }
                }
            }
        }
    }

    /// Takes a change into the graph; the keys of what is due for it.
    async fn take(&mut self, index: usize, change: Change<Arc<Stored>>) -> Vec<ObjectKey> {
        let resource = &mut self.resources[index];
        match change {
            Change::Restarted(all) => {
                resource.has_begun = true;
                let (graph, store) = (Arc::clone(&self.graph), Arc::clone(&resource.store));
                on_own_thread(move || restart(&graph, &store, &all, |stored| Found::new(&store, Arc::clone(stored))))
                    .await
            }
            Change::Applied(stored) => {
                let found = Found::new(&resource.store, stored);
                self.graph.lock().put(found)
            }
            Change::Deleted(stored) => self.graph.lock().remove(stored.uid()),
        }
    }

    fn tell(&self, due: Vec<ObjectKey>) {
        if !due.is_empty() {
            // Nobody looks any more when the server ends.
            let _ = self.due.send(due);
        }
    }
}

/// Takes up everything there is of a resource; the keys of what is due for it. Whoever looks into the graph meanwhile waits
/// for no more than a few objects of it, none of which is read then, and sees the others as they were or as they are.
pub(super) fn restart(
    graph: &Mutex<Graph>,
    store: &Arc<Store>,
    all: &[Arc<Stored>],
    read: impl Fn(&Arc<Stored>) -> Found,
) -> Vec<ObjectKey> {
    let there: HashSet<&str> = all.iter().map(|stored| stored.uid()).collect();
    let mut due = graph.lock().retain(store, &there);
    for some in all.chunks(AT_ONCE) {
        let found: Vec<Found> = some.iter().map(&read).collect();
        let mut graph = graph.lock();
        due.extend(found.into_iter().flat_map(|found| graph.put(found)));
    }
    due
}

/// Ready unless a resource is listed anew: that it is listed is a change, which wakes.
fn unless_due(listings: &[Listing]) -> Poll<()> {
    if listings.iter().any(Listing::is_due) { Poll::Pending } else { Poll::Ready(()) }
}

/// The next change and the index of its resource; all are polled, so that none is left.
fn next_change(resources: &mut [Changes], context: &mut Context<'_>) -> Poll<(usize, Change<Arc<Stored>>)> {
    for (index, resource) in resources.iter_mut().enumerate() {
        if let Poll::Ready(Some(change)) = resource.changes.poll_next_unpin(context) {
            return Poll::Ready((index, change));
        }
    }
    Poll::Pending
}
