//! The garbage collector of a standalone server, which does what kube-controller-manager's does in a cluster.
//!
//! - What is deleted in the foreground (finalizer `foregroundDeletion`) goes after the dependents that block it.
//! - What is deleted with the policy Orphan (finalizer `orphan`) goes after the references of its dependents to it.
//! - A dependent goes when all its owners are gone, and loses its references to those that are while others are there. An
//!   owner of another uid or in another namespace is none. What names a kind that is not served is left alone.
//!
//! Start at [`run`] and [`Collector::look`]. Looks go by what is there and not by what happened, so that one after a restart
//! or a failure finishes what another began. Follows `k8s.io/kubernetes/pkg/controller/garbagecollector`. Elsewhere: `graph`
//! knows who belongs to whom and finds what is due, `feed` keeps it up to date, and `objects` reads and writes.

mod feed;
mod graph;
mod objects;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, future::join_all};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use stoa_controller::{
    events::{Involved, Kind, Recorder},
    object::ObjectKey,
    queue::{self, FirstError, Trigger},
};
use stoa_machinery::{
    ApiError, Scope,
    registry::{FOREGROUND_DELETION, ORPHAN_DEPENDENTS, Registry},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use self::{
    feed::{Feed, GraphFeed},
    graph::Graph,
    objects::{Found, Objects, Phase, Propagation},
};

/// How many objects are looked at or written at once, as upstream (`--concurrent-gc-syncs`).
const AT_ONCE: usize = 20;

pub(crate) async fn run(registry: Arc<Registry>, recorder: Recorder, queues: queue::Metrics, end: CancellationToken) {
    let (feed, collector, keys) = Collector::new(registry, recorder);
    let triggers = vec![Trigger::new(UnboundedReceiverStream::new(keys).boxed())];
    let looks = queue::drive_some(queues.of("garbage-collector"), AT_ONCE, triggers, end.clone(), |key| {
        let collector = Arc::clone(&collector);
        async move { collector.look(key).await }
    });
    tokio::join!(tokio::task::unconstrained(feed.run(end)), looks);
}

#[derive(Debug)]
struct Collector {
    objects: Objects,
    seen: GraphFeed,
    /// Takes the keys of others that are due.
    due: mpsc::UnboundedSender<Vec<ObjectKey>>,
    recorder: Recorder,
}

impl Collector {
    /// One with what has to run beside it, and the keys of what it has to look at.
    fn new(registry: Arc<Registry>, recorder: Recorder) -> (Feed, Arc<Self>, mpsc::UnboundedReceiver<Vec<ObjectKey>>) {
        let (due, keys) = mpsc::unbounded_channel();
        let objects = Objects::new(registry);
        let (feed, seen) = Feed::new(&objects, due.clone());
        (feed, Arc::new(Self { objects, seen, due, recorder }), keys)
    }

    /// Does what there is to do about an object, as it is by now. What waits for others is due again when they have changed.
    async fn look(&self, key: ObjectKey) -> Result<Option<Duration>, ApiError> {
        let Some(object) = self.objects.read(&key).await? else { return Ok(None) };
        match object.phase() {
            Some(Phase::Orphaning) => self.orphan_dependents(&object).await?,
            Some(Phase::DeletingDependents) => self.delete_dependents(&object).await?,
            // It goes whoever owns it, and what belongs to it is due then.
            None if object.stored.is_deleting() => {}
            None => self.collect(&object).await?,
        }
        Ok(None)
    }

    /// Takes an object out of its dependents' owners, and lets it go.
    async fn orphan_dependents(&self, object: &Found) -> Result<(), ApiError> {
        let dependents = self.seen.ask(|graph| graph.dependents(object.uid())).await?;
        let uids = [object.uid().to_owned()];
        let mut failed = FirstError::default();
        for batch in dependents.chunks(AT_ONCE) {
            let written = join_all(batch.iter().map(|dependent| self.objects.remove_owners(dependent, &uids))).await;
            for outcome in written {
                failed.note(outcome);
            }
        }
        failed.told()?;
        self.objects.remove_finalizer(object, ORPHAN_DEPENDENTS).await
    }

    /// Lets an object go once none of its dependents blocks that; makes those due that do.
    async fn delete_dependents(&self, object: &Found) -> Result<(), ApiError> {
        let awaited = self.seen.ask(|graph| graph.awaited(object.uid())).await?;
        if awaited.is_empty() {
            return self.objects.remove_finalizer(object, FOREGROUND_DELETION).await;
        }
        // Those that delete their own dependents are at it.
        let due: Vec<ObjectKey> = awaited.iter().filter(|of| !of.deletes_dependents()).map(Found::key).collect();
        // Nobody looks any more when the server ends.
        let _ = self.due.send(due);
        Ok(())
    }

    /// Deletes an object that belongs to nothing that stays, and takes away references to what does not.
    async fn collect(&self, object: &Found) -> Result<(), ApiError> {
        if object.owners.is_empty() {
            return Ok(());
        }
        let namespace = object.stored.namespace();
        let (mut has_owner, mut is_waited_for, mut unneeded) = (false, false, Vec::new());
        for owner in &object.owners {
            self.tell_of_other_namespace(object, owner);
            let Some(store) = self.objects.of_kind(owner) else { return Ok(()) };
            if namespace.is_empty() && store.definition().scope == Scope::Namespaced {
                // Nobody can tell which namespace is meant.
                return Ok(());
            }
            match self.objects.owner(store, owner, namespace).await? {
                Some(found) if found.deletes_dependents() => {
                    is_waited_for = true;
                    unneeded.push(owner.uid.clone());
                }
                Some(_) => has_owner = true,
                None => unneeded.push(owner.uid.clone()),
            }
        }
        match (has_owner, unneeded.is_empty()) {
            (true, true) => Ok(()),
            // An owner that is deleted in the foreground would wait for it for ever.
            (true, false) => self.objects.remove_owners(object, &unneeded).await,
            (false, _) => {
                // Whoever waits for it waits for what belongs to it, too.
                let has_dependents = |graph: &Graph| graph.has_dependents(object.uid());
                let is_foreground = is_waited_for && self.seen.ask(has_dependents).await?;
                let propagation = if is_foreground { Propagation::Foreground } else { object.propagation() };
                self.objects.delete(object, propagation).await
            }
        }
    }

    /// Tells of an owner that is in another namespace than what refers to it, in upstream's words.
    fn tell_of_other_namespace(&self, object: &Found, owner: &OwnerReference) {
        let (stored, definition) = (&object.stored, object.definition());
        let namespace = stored.namespace();
        let elsewhere = self.seen.at_hand(|graph| graph.namespace_of(&owner.uid));
        if elsewhere.is_none_or(|elsewhere| elsewhere == namespace) {
            return;
        }
        let OwnerReference { api_version, kind, name, uid, .. } = owner;
        let message = format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in namespace \
             {namespace:?}"
        );
        let involved = Involved {
            api_version: definition.api_version(),
            kind: definition.kind.clone(),
            namespace: namespace.to_owned(),
            name: stored.name().to_owned(),
            uid: stored.uid().to_owned(),
        };
        self.recorder.record_about(involved, Kind::Warning, "OwnerRefInvalidNamespace", message);
    }
}
