//! An index of objects by what they belong to, such as Stacks by Project, as an `Indexer` of client-go.
//!
//! A watch keeps the index up to date, so nobody has to list all objects.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::BoxStream};
use parking_lot::Mutex;
use serde::{Deserialize, de::DeserializeOwned};
use stoa_machinery::{
    log::Key,
    registry::{Api, Stored, api::Change},
};

use super::queue;
use crate::object::{Kind, ObjectKey};

/// How long members that come and go are gathered before they are counted.
pub const GATHER: Duration = Duration::from_secs(1);

/// Objects by what they belong to, such as stacks by project. It is as new as what was last taken from the stream of
/// [`follow`](Self::follow).
#[derive(Debug)]
pub struct Index<G> {
    members: Arc<Mutex<Members<G>>>,
}

impl<G> Clone for Index<G> {
    fn clone(&self) -> Self {
        Self { members: self.members.clone() }
    }
}

impl<G> Default for Index<G> {
    fn default() -> Self {
        Self { members: Arc::new(Mutex::new(Members { of: HashMap::new(), by: HashMap::new(), is_whole: false })) }
    }
}

/// What happened.
pub struct Moved<G> {
    /// Where the objects are that it happened to.
    pub objects: Vec<Key>,
    /// The groups that have other members than before.
    pub groups: Vec<G>,
}

impl<G: Clone + Eq + Hash + Send + Sync + 'static> Index<G> {
    /// How many objects belong to it, once all have been seen.
    pub fn count(&self, group: &G) -> Option<usize> {
        let members = self.members.lock();
        members.is_whole.then(|| members.by.get(group).map_or(0, HashSet::len))
    }

    /// The groups that have members, of those that are asked for, once all have been seen.
    pub fn filter(&self, is_wanted: impl Fn(&G) -> bool) -> Option<Vec<G>> {
        let members = self.members.lock();
        let wanted = || members.by.keys().map(AsRef::as_ref).filter(|group: &&G| is_wanted(group));
        members.is_whole.then(|| wanted().cloned().collect())
    }

    /// Whether the object at a place belongs to any.
    pub fn has(&self, object: &Key) -> bool {
        self.members.lock().of.contains_key(object)
    }

    /// The objects that belong to it.
    pub fn members(&self, group: &G) -> Vec<ObjectKey> {
        self.members.lock().by.get(group).into_iter().flatten().map(queue::key_at).collect()
    }

    /// Follows the objects of a kind, each of which belongs to the groups that `of` finds.
    pub fn follow<K: Kind + Sync, S: Part, T: Part>(
        &self,
        objects: &Api<K>,
        of: impl Fn(&Member<S, T>) -> Vec<G> + Send + 'static,
    ) -> BoxStream<'static, Moved<G>> {
        let groups = self.clone();
        let take = move |change: Change<(Arc<Stored>, Member<S, T>)>| {
            let mut members = groups.members.lock();
            match change {
                Change::Restarted(all) => {
                    let there: HashMap<Key, Vec<G>> =
                        all.iter().map(|(stored, object)| (stored.key.clone(), of(object))).collect();
                    let gone: Vec<Key> = members.of.keys().filter(|key| !there.contains_key(key)).cloned().collect();
                    let mut moved: HashSet<G> = gone.iter().flat_map(|key| members.set(key, Vec::new())).collect();
                    let objects = there.keys().cloned().chain(gone).collect();
                    for (key, groups) in there {
                        moved.extend(members.set(&key, groups));
                    }
                    members.is_whole = true;
                    Moved { objects, groups: moved.into_iter().collect() }
                }
                Change::Applied((stored, object)) => {
                    Moved { groups: members.set(&stored.key, of(&object)), objects: vec![stored.key.clone()] }
                }
                Change::Deleted((stored, _)) => {
                    Moved { groups: members.set(&stored.key, Vec::new()), objects: vec![stored.key.clone()] }
                }
            }
        };
        objects.subscribe_stored(None).map(take).boxed()
    }
}

/// What has to be known of a spec or status: this is read with every change of every object. [`IgnoredAny`] reads
/// nothing.
///
/// [`IgnoredAny`]: serde::de::IgnoredAny
pub trait Part: DeserializeOwned + Send + 'static {}

impl<P: DeserializeOwned + Send + 'static> Part for P {}

/// What is read of an object to see to which groups it belongs.
#[derive(Deserialize, PartialEq)]
pub struct Member<S, T> {
    metadata: MemberMetadata,
    /// The part of its spec.
    pub spec: S,
    /// The part of its status.
    pub status: Option<T>,
}

#[derive(Deserialize, PartialEq)]
struct MemberMetadata {
    #[serde(default)]
    namespace: String,
    name: String,
}

impl<S, T> Member<S, T> {
    /// Its namespace; empty for cluster-scoped kinds.
    pub fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    /// Its key.
    pub fn key(&self) -> ObjectKey {
        (self.metadata.namespace.clone(), self.metadata.name.clone())
    }
}

/// There may be a hundred thousand objects in few groups: their keys are those that the registry has in memory, and each
/// group is there once.
#[derive(Debug)]
struct Members<G> {
    of: HashMap<Key, Box<[Arc<G>]>>,
    by: HashMap<Arc<G>, HashSet<Key>>,
    /// Whether all there were at the beginning have been seen.
    is_whole: bool,
}

impl<G: Clone + Eq + Hash> Members<G> {
    /// Puts an object into these groups and into no other; returns those that it came to or left.
    fn set(&mut self, key: &Key, groups: Vec<G>) -> Vec<G> {
        let before = self.of.remove(key).unwrap_or_default();
        let mut moved = Vec::new();
        for group in before.iter().filter(|group| !groups.contains(group)) {
            if let Some(members) = self.by.get_mut(group) {
                members.remove(key);
                if members.is_empty() {
                    self.by.remove(group);
                }
            }
            moved.push(G::clone(group));
        }
        let groups: Box<[Arc<G>]> = groups.into_iter().map(|group| self.shared(group)).collect();
        for group in groups.iter().filter(|group| !before.contains(group)) {
            self.by.entry(Arc::clone(group)).or_default().insert(key.clone());
            moved.push(G::clone(group));
        }
        if !groups.is_empty() {
            self.of.insert(key.clone(), groups);
        }
        moved
    }

    /// A group in the memory that it has already, if it has members.
    fn shared(&self, group: G) -> Arc<G> {
        self.by.get_key_value(&group).map_or_else(|| Arc::new(group), |(known, _)| Arc::clone(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Key {
        Key::new(format!("/registry/config.stoa.dev/stacks/shop/{name}"))
    }

    #[test]
    fn groups_have_the_objects_that_say_so() {
        let groups = Index::default();
        assert_eq!((groups.count(&"a"), groups.filter(|_| true)), (None, None), "nobody knows yet");
        groups.members.lock().is_whole = true;
        let set = |name: &str, of: &[&'static str]| groups.members.lock().set(&place(name), of.to_vec());
        assert_eq!(set("web", &["a", "b"]), ["a", "b"]);
        assert_eq!(set("api", &["b"]), ["b"]);
        let counts = || ["a", "b", "c"].map(|group| groups.count(&group).unwrap());
        assert_eq!(counts(), [1, 2, 0]);
        assert!(set("api", &["b"]).is_empty(), "nothing moved");
        assert_eq!(set("web", &["b", "c"]), ["a", "c"]);
        assert_eq!(groups.members(&"c"), [("shop".to_owned(), "web".to_owned())]);
        assert_eq!(groups.filter(|group| *group > "b").unwrap(), ["c"]);
        let has = |name: &str| groups.has(&place(name));
        assert_eq!([has("web"), has("other")], [true, false]);
        assert_eq!(set("web", &[]), ["b", "c"]);
        assert_eq!(counts(), [0, 1, 0]);
        assert_eq!(set("api", &[]), ["b"]);
        assert!(groups.members.lock().by.is_empty() && groups.members.lock().of.is_empty());
    }
}
