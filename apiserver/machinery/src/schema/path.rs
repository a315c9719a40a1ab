//! Where in an object something is, without allocating until it is said.

use std::fmt;

/// A path from the root to a value: a list that lives on the stack of the walk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'p> {
    Root,
    Key(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl<'p> Path<'p> {
    pub(super) fn key(&'p self, key: &'p str) -> Self {
        Path::Key(self, key)
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
            Self::Key(Path::Root, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
