//! An entry of the watch cache: an object, or bytes in its place that do not decode.

use std::sync::Arc;

use bytes::Bytes;
use stoa_log::{Key, Version};

use super::Stored;

/// What is stored at a key.
#[derive(Clone, Debug)]
pub(crate) enum CacheEntry {
    Object(Arc<Stored>),
    /// What does not decode. It is in no list and no watch, and is kept since it takes its name and can be deleted.
    Undecodable(Arc<Undecodable>),
}

/// What is stored and is no object of its kind.
#[derive(Debug)]
pub(crate) struct Undecodable {
    pub(crate) key: Key,
    pub(crate) version: Version,
    pub(crate) value: Bytes,
}

impl CacheEntry {
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Object(stored) => &stored.key,
            Self::Undecodable(found) => &found.key,
        }
    }

    pub(crate) fn object(&self) -> Option<&Arc<Stored>> {
        match self {
            Self::Object(stored) => Some(stored),
            Self::Undecodable(_) => None,
        }
    }

    pub(crate) fn undecodable(&self) -> Option<&Arc<Undecodable>> {
        match self {
            Self::Object(_) => None,
            Self::Undecodable(found) => Some(found),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Object(stored) => stored.encoded().len(),
            Self::Undecodable(found) => found.value.len(),
        }
    }
}
