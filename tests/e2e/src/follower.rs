//! What a watcher of kube-rs says, kept for a test to look at.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::{Stream, StreamExt as _};
use kube::runtime::watcher::{Error, Event};
use kube::{Resource, ResourceExt as _};
use tokio::task::JoinHandle;

/// The version at which each object was last seen, by name.
pub type Versions = BTreeMap<String, String>;

/// What a watcher has said so far.
#[derive(Debug, Default)]
pub struct FollowerReport {
    /// What is there now.
    pub there: Versions,
    /// Lists so far, complete ones.
    pub lists: usize,
    /// What went wrong, in its eyes.
    pub errors: Vec<Error>,
    /// What it may not say.
    pub faults: Vec<String>,
}

/// A watcher that is listened to until this is dropped.
#[derive(Debug)]
pub struct Follower {
    /// What messages call it.
    pub name: &'static str,
    told: Arc<Mutex<FollowerReport>>,
    task: JoinHandle<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    /// Listens to a watcher.
    pub fn new<K>(name: &'static str, events: impl Stream<Item = Result<Event<K>, Error>> + Send + 'static) -> Self
    where
        K: Resource + Debug + Send + 'static,
    {
        let told = Arc::<Mutex<FollowerReport>>::default();
        let shared = told.clone();
        let task = tokio::spawn(async move {
            let mut events = pin!(events);
            let mut list = Versions::new();
            while let Some(event) = events.next().await {
                let mut told = shared.lock().expect("nobody panics with it");
                told.hear(event, &mut list);
            }
        });
        Self { name, told, task }
    }

    /// Looks at what it has said.
    pub fn look<T>(&self, at: impl FnOnce(&FollowerReport) -> T) -> T {
        at(&self.told.lock().expect("nobody panics with it"))
    }
}

impl FollowerReport {
    fn hear<K: Resource>(&mut self, event: Result<Event<K>, Error>, list: &mut Versions) {
        let entry = |object: &K| (object.name_any(), object.resource_version().unwrap_or_default());
        match event {
            Err(error) => self.errors.push(error),
            Ok(Event::Init) => list.clear(),
            Ok(Event::InitApply(object)) => list.extend([entry(&object)]),
            Ok(Event::InitDone) => {
                self.there = std::mem::take(list);
                self.lists += 1;
            }
            Ok(Event::Apply(object)) => {
                let (name, version) = entry(&object);
                let before = self.there.insert(name.clone(), version.clone());
                let number = |version: &str| version.parse::<u64>().unwrap_or_default();
                if before.as_deref().is_some_and(|before| number(before) >= number(&version)) {
                    self.faults.push(format!("{name} went from {before:?} to {version}"));
                }
            }
            Ok(Event::Delete(object)) => {
                if self.there.remove(&object.name_any()).is_none() {
                    self.faults.push(format!("{} was deleted, which was not there", object.name_any()));
                }
            }
        }
    }
}
