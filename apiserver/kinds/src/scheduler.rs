//! `scheduler.kalypso.io`: the fleet, by the names of Kalypso.
//!
//! Objects come from Git or from clients. `owned` rejects writes of clients to an object that Git owns. Assignments and
//! their packages are computed from the other kinds ([`assignment`], `assignment_package`).

use crate::kind::Group;

pub mod assignment;
mod assignment_package;
mod base_repo;
mod cluster_type;
mod config_schema;
mod deployment_target;
pub mod environment;
pub mod fleets;
pub mod gitops_repo;
mod owned;
pub mod schedules;
mod scheduling_policy;
mod template;
mod workload;
mod workload_registration;

pub(crate) static GROUP: Group = Group {
    priority: 980,
    owner: Some(crate::rights::Role::PlatformEngineer),
    kinds: &[
        &environment::KIND,
        &base_repo::KIND,
        &workload_registration::KIND,
        &workload::KIND,
        &deployment_target::KIND,
        &cluster_type::KIND,
        &scheduling_policy::KIND,
        &config_schema::KIND,
        &template::KIND,
        &assignment::KIND,
        &assignment_package::KIND,
        &gitops_repo::KIND,
    ],
};
