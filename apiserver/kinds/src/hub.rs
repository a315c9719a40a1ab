//! `hub.kalypso.io`: which version of a workload is on which cluster, by the names of Kalypso's observability hub.
//!
//! Clusters send reports (`deployment_report`), which become transitions in the status of a [`reconciler`]. States and
//! queries are computed. Elsewhere: `stoa-apiserver` moves the transitions to the archive and answers queries.

use crate::kind::Group;

mod deployment_descriptor;
pub mod deployment_query;
mod deployment_report;
mod deployment_state;
pub mod descriptors;
pub mod memory;
pub mod reconciler;

pub(crate) static GROUP: Group = Group {
    priority: 970,
    owner: Some(crate::rights::Role::PlatformEngineer),
    kinds: &[
        &deployment_descriptor::KIND,
        &reconciler::KIND,
        &deployment_report::KIND,
        &deployment_state::KIND,
        &deployment_query::KIND,
    ],
};
