//! Limits of a Spec: its size, the expansion of its references, and the depth of its values.
//!
//! References can nest: ten in a text, ten times over, expand to 10^10 bytes. Therefore a [`Budget`] is checked before
//! anything is copied. Readers of files have limits of their own.

use std::collections::HashMap;

use serde_json::Value;

use crate::path::{FieldPath, Segment};
use crate::spec::ResourceId;

/// The maximum depth of maps and lists, in a document and in resolved attributes: functions that walk them are recursive.
pub const DEEPEST: usize = 64;

/// The maximum size of a Spec as JSON, in bytes: that of a stack's folder, since YAML aliases expand.
pub const LARGEST_SPEC: usize = 64 << 20;

/// Why a Spec is not taken, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Spec is larger than {} MiB as JSON; split it into several stacks", LARGEST_SPEC >> 20)]
pub struct SpecTooLarge;

/// Checks the size of a Spec as JSON, in bytes.
pub fn check_spec_size(bytes: usize) -> Result<(), SpecTooLarge> {
    if bytes > LARGEST_SPEC { Err(SpecTooLarge) } else { Ok(()) }
}

/// The maximum size of all values of a Secret, in bytes (k8s.io/api/core/v1, `MaxSecretSize`).
pub const LARGEST_SECRET: usize = 1 << 20;

/// The limit of the expanded references of all resources.
const OF_SPEC: Size = Size { bytes: LARGEST_SPEC, values: 1_000_000 };
/// The limit of the expanded references of one resource.
const OF_RESOURCE: Size = Size { bytes: 16 << 20, values: 250_000 };

/// The size of expanded values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    /// Bytes of texts and keys.
    bytes: usize,
    /// Keys, scalars, maps and lists.
    values: usize,
}

impl Size {
    fn plus(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_add(other.bytes), values: self.values.saturating_add(other.values) }
    }

    fn less(self, other: Self) -> Self {
        Self { bytes: self.bytes.saturating_sub(other.bytes), values: self.values.saturating_sub(other.values) }
    }

    /// The limit that this is over, in words.
    fn over(self, most: Self) -> Option<String> {
        match (self.bytes > most.bytes, self.values > most.values) {
            (true, _) => Some(format!("{} MiB", most.bytes >> 20)),
            (false, true) => Some(format!("{} values", most.values)),
            (false, false) => None,
        }
    }
}

/// References expand to more than a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// The limit of all resources.
    #[error("the references of all resources expand to more than {0}")]
    Spec(String),
    /// The limit of one resource.
    #[error("the references of the resource expand to more than {0}")]
    Resource(String),
    /// The attributes would be nested too deep.
    #[error("with references replaced, it nests more than {DEEPEST} levels of maps and lists")]
    Depth,
}

/// Counts the expanded references of a Spec, by resource.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    /// The sum of all resources.
    all: Size,
    of: HashMap<ResourceId, Size>,
    /// The size of the current resource.
    current: Size,
    is_spent: bool,
}

impl Budget {
    /// Whether the Spec exceeds its limit.
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Starts to count a resource. A repeated resource replaces its earlier count.
    pub(crate) fn begin(&mut self, id: &ResourceId) {
        self.give_back(id);
        self.current = Size::default();
    }

    /// Keeps what was counted since it was begun.
    pub(crate) fn end(&mut self, id: &ResourceId) {
        self.of.insert(id.clone(), self.current);
    }

    /// Removes the count of a resource whose values are dropped.
    pub fn give_back(&mut self, id: &ResourceId) {
        self.all = self.all.less(self.of.remove(id).unwrap_or_default());
    }

    fn take(&mut self, bytes: usize, values: usize) -> Result<(), TooLarge> {
        let size = Size { bytes, values };
        self.current = self.current.plus(size);
        self.all = self.all.plus(size);
        if let Some(limit) = self.all.over(OF_SPEC) {
            self.is_spent = true;
            return Err(TooLarge::Spec(limit));
        }
        self.current.over(OF_RESOURCE).map_or(Ok(()), |limit| Err(TooLarge::Resource(limit)))
    }

    /// Counts a text that is put into another one.
    pub(crate) fn take_text(&mut self, text: &str) -> Result<(), TooLarge> {
        self.take(text.len(), 0)
    }

    /// Counts a stored path.
    pub(crate) fn take_path(&mut self, path: &FieldPath) -> Result<(), TooLarge> {
        let bytes = path.0.iter().map(|segment| match segment {
            Segment::Key(key) => key.len(),
            Segment::Index(_) => size_of::<usize>(),
            Segment::Item { key, value } => key.len() + value.len(),
        });
        self.take(bytes.sum(), 1)
    }

    /// Counts a value that is inserted at a depth of `around` maps and lists.
    pub(crate) fn take_value(&mut self, value: &Value, around: usize) -> Result<(), TooLarge> {
        if around >= DEEPEST && matches!(value, Value::Array(_) | Value::Object(_)) {
            return Err(TooLarge::Depth);
        }
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => self.take(0, 1),
            Value::String(text) => self.take(text.len(), 1),
            Value::Array(items) => {
                self.take(0, 1)?;
                items.iter().try_for_each(|item| self.take_value(item, around + 1))
            }
            Value::Object(map) => {
                self.take(0, 1)?;
                map.iter().try_for_each(|(key, value)| {
                    self.take(key.len(), 1)?;
                    self.take_value(value, around + 1)
                })
            }
        }
    }
}

#[cfg(test)]
mod tests;
