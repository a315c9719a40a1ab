//! The changes of a resource since a version, for components of this server that keep what follows from its objects.
//!
//! Such a component lists all objects once, and then costs as much as there are changes. A watch would need a task of its own.

use std::{collections::BTreeMap, sync::Arc};

use stoa_log::{Key, Version};
use stoa_meta::status::ApiError;

use super::{Store, Stored};
use crate::cache::CacheEntry;

/// The changes of the objects of a resource between two versions.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The version to which they lead.
    pub version: Version,
    /// The objects that are new or changed, as they are at that version, in the order of their keys.
    pub changed: Vec<Arc<Stored>>,
    /// The last states of the objects that exist no more, in the order of their keys.
    pub deleted: Vec<Arc<Stored>>,
}

impl Store {
    /// Waits until the watch cache has all writes that were acknowledged before the call.
    ///
    /// # Errors
    ///
    /// 503 and 504 as for [`list`](Self::list).
    pub async fn reach_current(&self) -> Result<(), ApiError> {
        self.reach_for_computed("list", None).await.map(drop)
    }

    /// The version of the last change of an object of this resource, as the watch cache has it.
    pub fn last_change(&self) -> Version {
        self.cache.last_change()
    }

    /// The changes after the version of a list, as the watch cache has them. `None` where it does not know them any more; the
    /// caller then lists again.
    pub fn changes_after(&self, since: Version) -> Option<Changes> {
        // By key: the object now, and the one before the first change.
        let mut found = BTreeMap::<Key, (Option<CacheEntry>, Option<CacheEntry>)>::new();
        let mut version = since;
        let known = self.cache.events_after(since, usize::MAX, |event| {
            version = event.version;
            let Some(key) = event.new.as_ref().or(event.old.as_ref()).map(CacheEntry::key) else { return };
            match found.get_mut(key) {
                Some((now, _)) => now.clone_from(&event.new),
                None => drop(found.insert(key.clone(), (event.new.clone(), event.old.clone()))),
            }
        });
        known.ok()?;
        let (mut changed, mut deleted) = (Vec::new(), Vec::new());
        for (now, before) in found.into_values() {
            // What does not decode is in no list either.
            let object = |entry: Option<CacheEntry>| entry.and_then(|entry| entry.object().cloned());
            match (object(now), object(before)) {
                (Some(now), _) => changed.push(now),
                (None, Some(before)) => deleted.push(before),
                (None, None) => {}
            }
        }
        Some(Changes { version, changed, deleted })
    }

    /// The namespaces that have objects of this resource, sorted, as the watch cache has them.
    pub fn namespaces(&self) -> Vec<String> {
        let (objects, prefix) = (self.cache.current().objects, self.definition.key_prefix());
        let (mut found, mut from) = (Vec::new(), prefix.clone());
        while let Some((key, _)) = objects.range(Key::new(from)..).next() {
            let rest = key.as_str().strip_prefix(&prefix).and_then(|rest| rest.split_once('/'));
            let Some((namespace, _)) = rest else { break };
            // `0` is the character after `/`: all objects of the namespace are passed over.
            from = format!("{prefix}{namespace}0");
            found.push(namespace.to_owned());
        }
        found.sort();
        found
    }
}
