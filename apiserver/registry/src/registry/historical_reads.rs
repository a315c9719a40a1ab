//! Reads at versions that are older than the watch cache, from a history outside the log.
//!
//! Only reads that ask for exactly a version get here. What they show is what the keeper kept, which may be less than
//! there was; a list goes on with its version through all of its pages, however long that takes.

use std::{error::Error, fmt::Debug, sync::Arc};

use async_trait::async_trait;
use stoa_log::{Entry, Key, Version};
use stoa_meta::{definition::ResourceDefinition, status::ApiError};

use super::{List, Store, Stored, read::Selection, token::Continue};
use crate::cache::Listed;

/// How many objects are read at a time.
const CHUNK: usize = 500;
/// How many objects a page has that was asked for without a limit, so that no read takes memory without bounds.
const PAGE: usize = 10_000;

/// Keeps what objects were, for longer than the log does.
#[async_trait]
pub trait History: Debug + Send + Sync + 'static {
    /// Whether it keeps the objects of a resource.
    fn keeps(&self, definition: &ResourceDefinition) -> bool;

    /// The objects as of a version, in the order of their keys: values as the log has them, each with the version of its
    /// last change. `None` when the history begins later, or lacks that version.
    /// Fails with [`HistoryError::Behind`] when it does not reach as far yet.
    async fn read(&self, past: Past) -> Result<Option<Vec<Entry>>, HistoryError>;
}

/// Which objects of the past are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// As of when.
    pub version: Version,
    /// How their keys begin.
    pub prefix: String,
    /// The key that they come after.
    pub after: Option<Key>,
    /// How many. More may come from where that is easier; fewer are all that there are.
    pub wanted: usize,
}

/// Why a [`History`] cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// It does not reach as far yet; it will.
    #[error("the history reaches version {upto}")]
    Behind {
        /// The newest version that can be read.
        upto: Version,
    },
    /// It is out of reach or damaged.
    #[error("the history cannot be read")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

/// 410 for a version that nobody has.
pub(super) fn too_old() -> ApiError {
    ApiError::expired("The resourceVersion for the provided list is too old.")
}

impl Store {
    /// Whether any version of its objects can be read, however old.
    pub fn has_history(&self) -> bool {
        self.history.is_some()
    }

    /// Reads one object as it was at a version.
    ///
    /// # Errors
    ///
    /// 404 when it did not exist then; 500 when what was stored then does not decode; 410 when that is before all
    /// history; 504 as for [`get`](Self::get), and while the history does not reach as far.
    pub async fn get_at(&self, namespace: &str, name: &str, version: Version) -> Result<Arc<Stored>, ApiError> {
        self.freshen_to("get", version).await?;
        let key = self.key(namespace, name);
        if let Ok(view) = self.cache.at(version) {
            return self.readable(view.objects.get(&key).cloned())?.ok_or_else(|| self.not_found(name));
        }
        let past = Past { version, prefix: key.as_str().to_owned(), after: None, wanted: 1 };
        let found = self.read_past(past).await?.into_iter().find(|entry| entry.key == key);
        self.past_object(found.ok_or_else(|| self.not_found(name))?)
    }

    /// A page of a list as of a version that the cache no longer has.
    pub(super) async fn past_page(
        &self,
        version: Version,
        selection: &Selection,
        limit: Option<u64>,
        after: Option<&str>,
    ) -> Result<List, ApiError> {
        let max = limit.map_or(PAGE, |limit| usize::try_from(limit).unwrap_or(usize::MAX)).min(PAGE);
        let mut after = after.map(|after| Key::new(format!("{}{after}", selection.prefix)));
        let (mut items, mut more) = (Vec::<Arc<Stored>>::new(), false);
        let (mut fetched, mut evaluated) = (0, 0);
        while !more {
            let past = Past { version, prefix: selection.prefix.clone(), after: after.take(), wanted: CHUNK };
            let entries = self.read_past(past).await?;
            let is_last = entries.len() < CHUNK;
            fetched += entries.len();
            after = entries.last().map(|entry| entry.key.clone());
            // As from the cache, what does not decode is in no list.
            for object in entries.into_iter().filter_map(|entry| self.past_object(entry).ok()) {
                evaluated += 1;
                if !selection.matches(&object) {
                    continue;
                }
                if items.len() == max {
                    more = true;
                    break;
                }
                items.push(object);
            }
            if is_last {
                break;
            }
        }
        self.cache.counts().stored_listed(Listed { fetched, evaluated, returned: items.len() });
        let after = items.last().filter(|_| more).map(|last| last.key.as_str()[selection.prefix.len()..].to_owned());
        let next = after.map(|after| Continue { version: Some(version), after, remaining: None, exact: true });
        Ok(List { version, items, continue_token: next.map(|next| next.encode()), remaining_item_count: None })
    }

    async fn read_past(&self, past: Past) -> Result<Vec<Entry>, ApiError> {
        let Some(history) = &self.history else { return Err(too_old()) };
        let version = past.version;
        match history.read(past).await {
            Ok(entries) => entries.ok_or_else(too_old),
            Err(HistoryError::Behind { upto }) => Err(ApiError::timeout(
                format_args!("version {version} is not in the history yet, which reaches version {upto}"),
                1,
            )),
            Err(error) => {
                tracing::error!(error = &error as &dyn Error, resource = self.definition.plural, "the past is lost");
                Err(ApiError::internal("the history failed"))
            }
        }
    }

    fn past_object(&self, entry: Entry) -> Result<Arc<Stored>, ApiError> {
        match self.decoded(&entry.value) {
            Ok(prepared) => Ok(Arc::new(prepared.stored(entry.key, entry.version).of_the_past())),
            Err(_) => {
                self.cache.counts().decode_errors.inc();
                Err(self.undecodable(&entry.key, entry.version))
            }
        }
    }
}
