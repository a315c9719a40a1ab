//! ClusterType: a group of clusters that share a folder of the GitOps repository.

use stoa_machinery::definition::{Cell, Column};
use stoa_types::scheduler::ClusterType;

use super::owned::{self, Owned};
use crate::kind::Kind;

/// The kind ClusterType.
pub(crate) static KIND: Kind = owned::kind::<ClusterType>();

impl Owned for ClusterType {
    const COLUMNS: &'static [Column] = &[
        Column::new("Reconciler", Cell::Path(&["spec", "reconciler"]), "The Template of the reconciler."),
        Column::new("Namespace", Cell::Path(&["spec", "namespaceService"]), "The Template of the namespace."),
        Column::new("Config", Cell::Path(&["spec", "configType"]), "The Template of the configuration."),
    ];
}
