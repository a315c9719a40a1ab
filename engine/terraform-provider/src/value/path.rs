//! Paths to parts of values, as diagnostics and plans name them.

use std::fmt;

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// An attribute of an object.
    Attribute(String),
    /// An element of a map.
    Key(String),
    /// An element of a list or a tuple, from zero.
    Index(i64),
}

/// The steps from a value to one of its parts. A path to an element of a set ends at the set.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(pub Vec<Step>);

impl Path {
    /// The path to an attribute of the whole value.
    pub fn attribute(name: impl Into<String>) -> Self {
        Self::default().name(name)
    }

    /// The path to an attribute of this part.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        self.step(Step::Attribute(name.into()))
    }

    /// The path to a map's element of this part.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        self.step(Step::Key(key.into()))
    }

    /// The path to a list's element of this part.
    #[must_use]
    pub fn index(self, index: i64) -> Self {
        self.step(Step::Index(index))
    }

    /// The path one step further.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }

    /// Whether it is the path to the whole value.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Path {
    /// The form of Terraform's language, such as `rule[0].labels["app"]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Attribute(name) => write!(f, "{}{name}", if index == 0 { "" } else { "." })?,
                Step::Key(key) => write!(f, "[{key:?}]")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}
