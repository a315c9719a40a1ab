//! How large a Spec may be, how much references may stand for, and how deep values may be.
//!
//! A reference has a few bytes, and what it leads to may be made of references, too: ten in a text, ten times over, stand for
//! 10^10 bytes. So a [`Budget`] is asked before anything is copied. What is written out has limits of its own, where it is read.

use std::collections::HashMap;

use serde_json::Value;

use crate::path::{FieldPath, Segment};
use crate::spec::ResourceId;

/// How deep maps and lists may be in each other, in a document and in the attributes that are made of it: whatever walks them
/// is recursive.
pub const DEEPEST: usize = 64;

/// How many bytes a Spec may have in JSON: as many as a stack's folder, since aliases of YAML make more of few.
pub const LARGEST_SPEC: usize = 64 << 20;

/// Why a Spec is not taken, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Spec has more than {} MiB in JSON; make several stacks of it", LARGEST_SPEC >> 20)]
pub struct SpecTooLarge;

/// Whether a Spec may have so many bytes in JSON.
///
/// # Errors
///
/// [`SpecTooLarge`] when it may not.
pub fn check_spec_size(bytes: usize) -> Result<(), SpecTooLarge> {
    if bytes > LARGEST_SPEC { Err(SpecTooLarge) } else { Ok(()) }
}

/// How many bytes a Secret holds at most, in all of its values (k8s.io/api/core/v1, `MaxSecretSize`).
pub(crate) const LARGEST_SECRET: usize = 1 << 20;

/// What the references of all resources may stand for: as much as a Spec.
const OF_SPEC: Size = Size { bytes: LARGEST_SPEC, values: 1_000_000 };
/// What those of one resource may.
const OF_RESOURCE: Size = Size { bytes: 16 << 20, values: 250_000 };

/// What values take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    /// Of texts and keys.
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

/// Why a reference stands for too much.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// Of all resources together.
    #[error("the references of all resources stand for more than {0}")]
    Spec(String),
    /// Of one resource.
    #[error("the references of the resource stand for more than {0}")]
    Resource(String),
    /// The attributes would be nested too deep.
    #[error("with its references replaced it has more than {DEEPEST} levels of maps and lists")]
    Depth,
}

/// What the references of a Spec stand for, resource by resource.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    /// All of them.
    all: Size,
    of: HashMap<ResourceId, Size>,
    /// Those of the resource whose turn it is.
    current: Size,
    is_spent: bool,
}

impl Budget {
    /// Whether the Spec is over its limit.
    pub fn is_spent(&self) -> bool {
        self.is_spent
    }

    /// Counts a resource from its beginning: whoever replaces its references again keeps only the latest.
    pub(crate) fn begin(&mut self, id: &ResourceId) {
        self.give_back(id);
        self.current = Size::default();
    }

    /// Keeps what was counted since it was begun.
    pub(crate) fn end(&mut self, id: &ResourceId) {
        self.of.insert(id.clone(), self.current);
    }

    /// Forgets a resource of which nothing is kept.
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

    /// Counts a path that is kept.
    pub(crate) fn take_path(&mut self, path: &FieldPath) -> Result<(), TooLarge> {
        let bytes = path.0.iter().map(|segment| match segment {
            Segment::Key(key) => key.len(),
            Segment::Index(_) => size_of::<usize>(),
            Segment::Item { key, value } => key.len() + value.len(),
        });
        self.take(bytes.sum(), 1)
    }

    /// Counts a value that is put where there are so many maps and lists around it.
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
