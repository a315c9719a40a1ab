//! Template: texts that become the files of assignments.

use stoa_machinery::definition::{Cell, Column};
use stoa_types::scheduler::Template;

use super::owned::{self, Owned};
use crate::kind::Kind;

/// The kind Template.
pub(crate) static KIND: Kind = owned::kind::<Template>();

impl Owned for Template {
    const COLUMNS: &'static [Column] = &[
        Column::new("Type", Cell::Path(&["spec", "type"]), "The purpose: reconciler, namespace or config."),
        Column::new("Content", Cell::Path(&["spec", "contentType"]), "The type of the result: sh, else YAML."),
    ];
}
