//! Deletes: preconditions, finalizers, propagation, and whole collections.
//!
//! No kind here is deleted gracefully over time: an object goes at once, or when its last
//! finalizer is taken away.

use std::{pin::pin, sync::Arc};

use futures_util::{FutureExt as _, StreamExt as _, future::FusedFuture as _, stream::FuturesOrdered};
use stoa_log::Expect;
use stoa_meta::{object::Object, request::RequestContext, status::ApiError};
use tokio::sync::oneshot;

use super::{
    DeleteOptions, Deleted, List, ListOptions, Store, Stored, WatchOptions,
    append::Outcome,
    is_undecodable, metadata,
    options::{self, FOREGROUND, ORPHAN},
    update::{finalizers, has_deletion_timestamp},
};
use crate::cache::CacheEntry;

/// How many deletions of a collection are kept at a time, so that they share the log's commits.
const AT_ONCE: usize = 32;
/// How many objects of a collection are listed at a time.
const PAGE: u64 = 10_000;

/// Whether an object that is deleted was just listed. Who waits for the other end hears when nothing is left but to have the
/// log keep it.
enum Listed {
    No,
    Yes(Option<oneshot::Sender<()>>),
}

/// What becomes of the others once the deletion of one was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterRefusal {
    /// They stay, as upstream.
    Stop,
    /// They are deleted.
    GoOn,
}

impl Store {
    /// Deletes an object, or marks it as being deleted while it has finalizers.
    ///
    /// # Errors
    ///
    /// 404 when it does not exist; 409 `Conflict` when a precondition fails; 422 for options that
    /// do not go together; whatever the strategy answers. 500 when what is stored does not decode,
    /// unless `ignoreStoreReadErrorWithClusterBreakingPotential` is set and may be.
    pub async fn delete(
        &self,
        context: &RequestContext,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, ApiError> {
        self.remove(context, (namespace, name), name, options, Listed::No).await
    }

    /// [`delete`](Self::delete), which admission knows under a name of its own.
    async fn remove(
        &self,
        context: &RequestContext,
        (namespace, name): (&str, &str),
        admitted_name: &str,
        options: &DeleteOptions,
        mut listed: Listed,
    ) -> Result<Deleted, ApiError> {
        let dry_run = options::check_delete(options)? || context.dry_run;
        let key = self.key(namespace, name);
        // The log says so if it is another by now, and is asked then, unless nothing is written.
        let mut is_known = matches!(listed, Listed::Yes(_)) && !dry_run && options.preconditions.is_none();
        loop {
            let current = match std::mem::take(&mut is_known) {
                true => self.cache.get(&key),
                false => self.current_kept("delete", &key).await?,
            };
            let current = match current {
                None => return Err(self.not_found(name)),
                Some(CacheEntry::Object(current)) => current,
                Some(CacheEntry::Undecodable(found)) => {
                    match self.delete_undecodable(context, (namespace, name), options, &found).await? {
                        Outcome::Done(deleted) => return Ok(deleted),
                        Outcome::Lost => continue,
                    }
                }
            };
            self.check_preconditions(options, &current)?;
            self.strategy.admit_delete(context, &current.json()).await?;
            self.admit_removal(context, (namespace, admitted_name), &current, options, dry_run).await?;
            if let Listed::Yes(admitted) = &mut listed {
                drop(admitted.take());
            }
            let mut old = current.object();
            old.metadata_mut().remove("resourceVersion");
            let mut new = old.clone();
            set_finalizers(&mut new, options);
            let outcome = if finalizers(&new).is_empty() {
                if dry_run {
                    return Ok(Deleted::Gone(current));
                }
                if self.strategy.completes() {
                    self.strategy.complete_delete(context, &current.json()).await?;
                }
                match self.append_delete(context, &key, Expect::At(current.version)).await? {
                    Outcome::Done(version) => Outcome::Done(Deleted::Gone(Arc::new(current.at_version(version)))),
                    Outcome::Lost => Outcome::Lost,
                }
            } else {
                let is_first = mark_deleting(&mut new);
                if new == old {
                    return Ok(Deleted::Pending(current));
                }
                if is_first {
                    new = self.strategy.mark_deleting(context, &new)?;
                }
                let prepared = self.prepare(new)?;
                if dry_run {
                    return Ok(Deleted::Pending(Arc::new(prepared.stored(key, current.version))));
                }
                match self.append(context, &key, Expect::At(current.version), &prepared, "delete").await? {
                    Outcome::Done(stored) => Outcome::Done(Deleted::Pending(stored)),
                    Outcome::Lost => Outcome::Lost,
                }
            };
            match outcome {
                Outcome::Done(deleted) => return Ok(deleted),
                // Looked at anew: the preconditions may not hold any more.
                Outcome::Lost => {}
            }
        }
    }

    /// Deletes what a list selects, each object as [`delete`](Self::delete) does, and returns the
    /// list. Objects that go meanwhile are no error; what does not decode is in no list, and stays.
    ///
    /// # Errors
    ///
    /// As for [`list`](Self::list) and [`delete`](Self::delete). Some objects may be deleted then.
    pub async fn delete_collection(
        &self,
        context: &RequestContext,
        namespace: Option<&str>,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<List, ApiError> {
        options::check_delete(options)?;
        let deleted = self.selected(namespace, list).await?;
        let refused = self.remove_all(context, &deleted.items, options, AfterRefusal::Stop).await;
        refused.into_iter().next().map_or(Ok(deleted), Err)
    }

    /// Deletes all objects of a namespace, for a component of this server: what one of them is kept by keeps no other.
    /// Returns what went wrong, in the order of the objects.
    pub async fn delete_each(
        &self,
        context: &RequestContext,
        namespace: &str,
        options: &DeleteOptions,
    ) -> Result<Vec<ApiError>, ApiError> {
        let all = self.list(Some(namespace), &ListOptions::default()).await?;
        Ok(self.remove_all(context, &all.items, options, AfterRefusal::GoOn).await)
    }

    /// What a list selects. Without a limit it is listed in pages, as upstream does it, of which the first says what came
    /// after it; all are read before anything is deleted, which moves them out of what is remembered.
    async fn selected(&self, namespace: Option<&str>, list: &ListOptions) -> Result<List, ApiError> {
        let has_limit = list.limit.is_some_and(|limit| limit > 0);
        let mut page = ListOptions { limit: if has_limit { list.limit } else { Some(PAGE) }, ..list.clone() };
        let mut all = self.list(namespace, &page).await?;
        let mut next = all.continue_token.clone().filter(|_| !has_limit);
        while next.is_some() {
            page = ListOptions { continue_token: next, resource_version: None, resource_version_match: None, ..page };
            let more = self.list(namespace, &page).await?;
            all.items.extend(more.items);
            next = more.continue_token;
        }
        Ok(all)
    }

    /// Deletes objects that were just listed, in this order; what went wrong, in the same.
    async fn remove_all(
        &self,
        context: &RequestContext,
        items: &[Arc<Stored>],
        options: &DeleteOptions,
        after_refusal: AfterRefusal,
    ) -> Vec<ApiError> {
        let mut running = FuturesOrdered::new();
        let mut failed = Vec::new();
        let mut items = items.iter();
        loop {
            let goes_on = failed.is_empty() || after_refusal == AfterRefusal::GoOn;
            let next = if goes_on && running.len() < AT_ONCE { items.next() } else { None };
            let Some(item) = next else {
                match running.next().await {
                    Some(removed) => failed.extend(Result::err(removed)),
                    None => return failed,
                }
                continue;
            };
            let (admitted, is_admitted) = oneshot::channel();
            running.push_back(async move {
                let place = (item.namespace(), item.name());
                match self.remove(context, place, "", options, Listed::Yes(Some(admitted))).await {
                    Err(error) if error.code() == 404 || is_undecodable(&error) => Ok(()),
                    removed => removed.map(drop),
                }
            });
            if after_refusal == AfterRefusal::GoOn {
                continue;
            }
            // The next is not looked at before nothing is left of this but to have it kept; the others go on meanwhile.
            let mut is_admitted = pin!(is_admitted.fuse());
            while !is_admitted.is_terminated() {
                tokio::select! {
                    biased;
                    _ = &mut is_admitted => {}
                    removed = running.next() => failed.extend(removed.and_then(Result::err)),
                }
            }
        }
    }

    /// Refuses what [`delete_collection`](Self::delete_collection) would refuse of a list before it looks at anything.
    pub fn check_selection(&self, list: &ListOptions) -> Result<(), ApiError> {
        if let Some(view) = &self.view {
            return view.base()?.check_selection(list);
        }
        self.selection(None, list).map(drop)
    }

    /// Refuses what [`watch`](Self::watch) would refuse before it looks at anything.
    pub fn check_watch(&self, options: &WatchOptions) -> Result<(), ApiError> {
        if let Some(view) = &self.view {
            return view.base()?.check_watch(options);
        }
        self.watched(None, options).map(drop)
    }

    fn check_preconditions(&self, options: &DeleteOptions, current: &Stored) -> Result<(), ApiError> {
        let Some(preconditions) = &options.preconditions else { return Ok(()) };
        // Upstream names the Kind here, not the resource.
        let conflict =
            |detail: String| ApiError::conflict(&self.definition.group, &self.definition.kind, current.name(), detail);
        if let Some(uid) = preconditions.uid.as_deref().filter(|uid| *uid != current.uid()) {
            return Err(conflict(format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                 deleted and then recreated",
                current.uid()
            )));
        }
        let found = current.version.to_string();
        if let Some(version) = preconditions.resource_version.as_deref().filter(|version| *version != found) {
            return Err(conflict(format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record \
                 ({found}). The object might have been modified"
            )));
        }
        Ok(())
    }
}

/// Sets the garbage collector's finalizers as the options want them; without a wish they stay.
fn set_finalizers(object: &mut Object, options: &DeleteOptions) {
    let before: Vec<String> = finalizers(object).into_iter().map(str::to_owned).collect();
    let has = |name: &str| before.iter().any(|finalizer| finalizer == name);
    let (orphan, foreground) = match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(orphan), _) => (orphan, false),
        (None, Some(policy)) => (policy == ORPHAN, policy == FOREGROUND),
        (None, None) => (has(metadata::ORPHAN_DEPENDENTS), has(metadata::FOREGROUND_DELETION)),
    };
    if orphan == has(metadata::ORPHAN_DEPENDENTS) && foreground == has(metadata::FOREGROUND_DELETION) {
        return;
    }
    let mut after: Vec<&str> = before.iter().map(String::as_str).collect();
    after.retain(|name| ![metadata::ORPHAN_DEPENDENTS, metadata::FOREGROUND_DELETION].contains(name));
    after.extend(orphan.then_some(metadata::ORPHAN_DEPENDENTS));
    after.extend(foreground.then_some(metadata::FOREGROUND_DELETION));
    object.metadata_mut().insert("finalizers".to_owned(), after.into());
}

/// Whether it was not marked before.
fn mark_deleting(object: &mut Object) -> bool {
    let first = !has_deletion_timestamp(object);
    let metadata = object.metadata_mut();
    if first {
        if let Some(generation) = metadata.get("generation").and_then(serde_json::Value::as_i64) {
            metadata.insert("generation".to_owned(), (generation + 1).into());
        }
        metadata.insert("deletionTimestamp".to_owned(), metadata::now());
    }
    metadata.insert("deletionGracePeriodSeconds".to_owned(), 0.into());
    first
}
