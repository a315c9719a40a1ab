//! What a provider reports about a call.

use std::fmt;

use crate::generated::tfplugin6 as proto;
use crate::value::Path;

use super::messages;

/// A report of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Whether the call failed.
    pub severity: Severity,
    /// One line.
    pub summary: String,
    /// More lines; often empty.
    pub detail: String,
    /// The attribute that it concerns. A path into a set ends at the set.
    pub path: Option<Path>,
}

/// The weight of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The call failed.
    Error,
    /// The call succeeded.
    Warning,
}

/// The reports of one call, in the order of the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// Whether the call failed.
    pub fn has_errors(&self) -> bool {
        self.errors().next().is_some()
    }

    /// The errors.
    pub fn errors(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter().filter(|it| it.severity == Severity::Error)
    }
}

impl From<Vec<proto::Diagnostic>> for Diagnostics {
    /// A report of unknown weight is an error.
    fn from(messages: Vec<proto::Diagnostic>) -> Self {
        let all = messages.into_iter().map(|message| Diagnostic {
            severity: match message.severity() {
                proto::diagnostic::Severity::Warning => Severity::Warning,
                _ => Severity::Error,
            },
            summary: message.summary,
            detail: message.detail,
            path: message.attribute.map(messages::path).filter(|path| !path.is_root()),
        });
        Self(all.collect())
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{path}: ")?;
        }
        f.write_str(&self.summary)?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

impl fmt::Display for Diagnostics {
    /// The errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors().enumerate() {
            write!(f, "{}{error}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
