//! Bits of an object's labels, by which most objects that lack a label are skipped.

use std::hash::{DefaultHasher, Hash, Hasher as _};

/// A Bloom filter of an object's labels: what is in it may be there, what is not is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelBits(u64);

impl LabelBits {
    /// Those of an object with these labels.
    pub fn of<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        Self(labels.fold(0, |bits, (key, value)| bits | Self::key(key).0 | Self::label(key, value).0))
    }

    /// Those that every object with this key has.
    pub(super) fn key(key: &str) -> Self {
        Self::hashed(key)
    }

    /// Those that every object with this label has.
    pub(super) fn label(key: &str, value: &str) -> Self {
        Self::hashed((key, value))
    }

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Two bits: with a few labels, one object in thirty is looked at for nothing.
    fn hashed(what: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let hash = hasher.finish();
        Self(1 << (hash & 63) | 1 << (hash >> 6 & 63))
    }
}
