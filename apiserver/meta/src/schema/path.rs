//! The path of a field, which is not allocated until an error shows it.

use std::fmt;

/// A path from the root to a value: a list that lives on the stack of the walk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'p> {
    Root,
    Key(&'p Path<'p>, &'p str),
    /// The key of a map, which is no field.
    Element(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl<'p> Path<'p> {
    pub(super) fn key(&'p self, key: &'p str) -> Self {
        Path::Key(self, key)
    }

    pub(super) fn element(&'p self, key: &'p str) -> Self {
        Path::Element(self, key)
    }

    /// The fields on the way: no positions and no keys of maps.
    pub(super) fn fields(&self) -> Vec<&'p str> {
        match self {
            Self::Root => Vec::new(),
            Self::Key(parent, key) => {
                let mut fields = parent.fields();
                fields.push(key);
                fields
            }
            Self::Element(parent, _) | Self::Index(parent, _) => parent.fields(),
        }
    }

    pub(super) fn index(&'p self, index: usize) -> Self {
        Path::Index(self, index)
    }
}

/// Such as `spec.items[0].x`.
impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Path::Root, key) | Self::Element(Path::Root, key) => f.write_str(key),
            Self::Key(parent, key) | Self::Element(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
