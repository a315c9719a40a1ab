//! Problems of objects and files, with their location.

use std::fmt;

/// The location of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The repository in words, such as `environment dev` or `BaseRepo main`.
    pub source: String,
    /// The path of the file in the folder that was read.
    pub file: String,
    /// The line, from 1; 0 when it is unknown.
    pub line: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        if !self.file.is_empty() {
            write!(f, ": {}", self.file)?;
        }
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        Ok(())
    }
}

/// The weight of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Something was left out on purpose.
    Note,
    /// The result may not be the one that the author meant.
    Warning,
    /// An object is not used.
    Error,
    /// Objects may be missing, since a file or a repository was not read. Nothing is deleted then.
    Unreadable,
}

/// A problem of an object or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The weight.
    pub severity: Severity,
    /// The location.
    pub origin: Origin,
    /// The problem and its remedy.
    pub message: String,
}

impl Problem {
    pub(crate) fn new(severity: Severity, origin: &Origin, message: impl Into<String>) -> Self {
        Self { severity, origin: origin.clone(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.message)
    }
}
