//! From the statuses of Reconcilers to segments: moving, merging, and removal after the retention.
//!
//! Each step can be repeated after a crash. Segments are stored before the index names them, and the index names them before the
//! statuses lose their transitions. A document that no index names after a crash is garbage of at most one step.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::future::try_join_all;
use jiff::Timestamp;
use stoa_controller::blocking::on_own_thread;
use stoa_hub::{
    Transition,
    segment::{self, Filter, MAX_ROWS, Packed, SegmentError},
};
use stoa_machinery::{ApiError, RequestContext, registry::Api};
use stoa_storage::{Digest, documents::DocumentError};
use stoa_types::hub::{Reconciler, Transition as Waiting};

use super::{
    HubService,
    index::{self, Index, Segment},
    scope, unavailable,
    waiting::{self, Names},
};

/// A segment with fewer rows is small.
const SMALL: usize = 50_000;
/// So many small segments become one.
const MANY: usize = 16;
/// How many Reconcilers are written at once.
const AT_ONCE: usize = 16;

/// A Reconciler with transitions that wait for the archive.
#[derive(Debug)]
struct Source {
    name: String,
    transitions: Vec<Waiting>,
}

impl HubService {
    /// Moves all waiting transitions to segments, merges small segments, and removes old ones. A namespace that fails is logged,
    /// and the next call tries again.
    ///
    /// # Errors
    ///
    /// When Reconcilers or indexes cannot be listed.
    pub(crate) async fn tend(&self) -> Result<(), ApiError> {
        let mut waiting: Names = self.names_of_waiting().await?;
        let indexed = index::namespaces(&*self.services.log).await?;
        let namespaces: BTreeSet<String> = waiting.keys().cloned().chain(indexed).collect();
        for namespace in namespaces {
            let moved = self.archive_all(&namespace, waiting.remove(&namespace).unwrap_or_default()).await;
            let done = match moved {
                Ok(()) => self.clean(&namespace).await,
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                tracing::warn!(namespace, %error, "the history of deployments is not archived; it is tried again");
            }
        }
        Ok(())
    }

    /// Moves the transitions of Reconcilers to segments, as many at once as a segment has.
    async fn archive_all(&self, namespace: &str, names: BTreeSet<String>) -> Result<(), ApiError> {
        let (mut rows, mut sources) = (Vec::new(), Vec::new());
        for name in names {
            let Some(reconciler) = self.reconciler(namespace, &name).await? else { continue };
            rows.extend(waiting::rows(&reconciler));
            let transitions = reconciler.status.unwrap_or_default().transitions;
            sources.push(Source { name, transitions });
            if rows.len() >= MAX_ROWS {
                self.archive(namespace, std::mem::take(&mut rows), std::mem::take(&mut sources)).await?;
            }
        }
        self.archive(namespace, rows, sources).await
    }

    /// Moves transitions to segments.
    async fn archive(&self, namespace: &str, rows: Vec<Transition>, sources: Vec<Source>) -> Result<(), ApiError> {
        if rows.is_empty() {
            return Ok(());
        }
        let new = self.put(namespace, rows).await?;
        index::update(&*self.services.log, namespace, |index| {
            add(index, &new);
            true
        })
        .await?;
        let api = self.services.lookup.api::<Reconciler>()?.with_context(RequestContext::internal("hub"));
        for some in sources.chunks(AT_ONCE) {
            let writes: Vec<_> = some.iter().map(|source| take(&api, namespace, source)).collect();
            try_join_all(writes).await?;
        }
        Ok(())
    }

    /// Stores rows as new segments.
    async fn put(&self, namespace: &str, rows: Vec<Transition>) -> Result<Vec<Segment>, ApiError> {
        let packed = on_own_thread(move || segment::pack(rows)).await;
        let packed = packed.map_err(|error| ApiError::internal(error.to_string()))?;
        let store = self.store(&self.backend).await?;
        let mut segments = Vec::new();
        for Packed { bytes, rows, times: (from, to) } in packed {
            let put = store.put_owed(&scope(namespace), bytes).await;
            let digest = put.map_err(|error| unavailable("a segment of the hub cannot be stored", &error))?;
            let backend = self.backend.clone();
            segments.push(Segment { digest, backend, rows, from, to, set_aside: String::new() });
        }
        Ok(segments)
    }

    /// The bytes of a segment: `Ok(None)` where the document is absent, and an error in words where it is corrupt.
    pub(super) async fn bytes(
        &self,
        namespace: &str,
        segment: &Segment,
    ) -> Result<Result<Option<Bytes>, String>, ApiError> {
        let store = self.store(&segment.backend).await?;
        match store.get(&scope(namespace), &segment.digest).await {
            Ok(bytes) => Ok(Ok(bytes)),
            Err(error @ DocumentError::Corrupt { .. }) => Ok(Err(error.to_string())),
            Err(error) => Err(unavailable("a segment of the hub cannot be read", &error)),
        }
    }

    /// Notes that a segment is not to be read any more, and why.
    pub(super) async fn set_aside(&self, namespace: &str, digest: Digest, why: &str) -> Result<(), ApiError> {
        tracing::warn!(namespace, %digest, why, "a segment of the hub is set aside; restore the document from a backup");
        index::update(&*self.services.log, namespace, |index| {
            let found = index.segments.iter_mut().find(|segment| segment.digest == digest);
            found.is_some_and(|segment| {
                let is_new = segment.set_aside.is_empty();
                segment.set_aside = why.to_owned();
                is_new
            })
        })
        .await
    }

    /// Removes segments after the retention, and merges small ones.
    async fn clean(&self, namespace: &str) -> Result<(), ApiError> {
        let oldest = Timestamp::now().checked_sub(self.memory.retention()).unwrap_or(Timestamp::MIN).as_microsecond();
        let index = index::read(&*self.services.log, namespace).await?;
        let old: Vec<Segment> = index.segments.iter().filter(|segment| segment.to < oldest).cloned().collect();
        if !old.is_empty() {
            self.replace(namespace, &old, &[]).await?;
        }
        let is_small =
            |segment: &&Segment| segment.to >= oldest && segment.rows < SMALL && segment.set_aside.is_empty();
        let small: Vec<Segment> = index.segments.iter().filter(is_small).cloned().collect();
        if small.len() < MANY {
            return Ok(());
        }
        self.merge(namespace, small).await
    }

    /// Merges segments into as few as possible.
    async fn merge(&self, namespace: &str, segments: Vec<Segment>) -> Result<(), ApiError> {
        let (mut rows, mut merged) = (Vec::new(), Vec::new());
        for segment in segments {
            if rows.len() + segment.rows > MAX_ROWS {
                break;
            }
            let read = match self.bytes(namespace, &segment).await? {
                Ok(Some(bytes)) => on_own_thread(move || all_rows(&bytes)).await.map_err(|error| error.to_string()),
                Ok(None) => Err("the document is absent".to_owned()),
                Err(why) => Err(why),
            };
            match read {
                Ok(read) => {
                    rows.extend(read);
                    merged.push(segment);
                }
                Err(why) => self.set_aside(namespace, segment.digest, &why).await?,
            }
        }
        if merged.len() < 2 {
            return Ok(());
        }
        let new = self.put(namespace, rows).await?;
        self.replace(namespace, &merged, &new).await
    }

    /// Replaces segments in the index, and removes their documents. Does nothing where another write has replaced one of them.
    async fn replace(&self, namespace: &str, old: &[Segment], new: &[Segment]) -> Result<(), ApiError> {
        let mut is_replaced = false;
        index::update(&*self.services.log, namespace, |index| {
            is_replaced = old.iter().all(|segment| index.segments.contains(segment));
            if is_replaced {
                index.segments.retain(|segment| !old.contains(segment));
                add(index, new);
            }
            is_replaced
        })
        .await?;
        let is_gone = |segment: &&Segment| is_replaced && !new.iter().any(|other| other.digest == segment.digest);
        for segment in old.iter().filter(is_gone) {
            let store = self.store(&segment.backend).await?;
            let deleted = store.delete(&scope(namespace), &segment.digest).await;
            deleted.map_err(|error| unavailable("a replaced segment of the hub cannot be removed", &error))?;
        }
        Ok(())
    }
}

/// Adds segments that are not there.
fn add(index: &mut Index, new: &[Segment]) {
    for segment in new {
        if !index.segments.iter().any(|known| known.digest == segment.digest) {
            index.segments.push(segment.clone());
        }
    }
}

fn all_rows(bytes: &Bytes) -> Result<Vec<Transition>, SegmentError> {
    let mut rows = Vec::new();
    segment::read(bytes, &Filter::all(), |row| rows.push(row))?;
    Ok(rows)
}

/// Takes archived transitions out of a status. Later ones stay.
async fn take(api: &Api<Reconciler>, namespace: &str, source: &Source) -> Result<(), ApiError> {
    let remove = |reconciler: &mut Reconciler| {
        if let Some(status) = &mut reconciler.status {
            status.transitions.retain(|transition| !source.transitions.contains(transition));
        }
    };
    match api.update_status_with(namespace, &source.name, remove).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
