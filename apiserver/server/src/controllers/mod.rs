//! Controllers: each brings the objects of one kind to their desired state.
//!
//! [`crate::behaviours`] starts those of the kinds. Each is a `run` that drives a work queue of `stoa-controller`. Several share
//! [`folders`], the folders of Sources, [`references`], the references that keep an object, and [`cooldown`], the cool-down of
//! objects that were processed just now.

pub(crate) mod backends;
pub(crate) mod compliance;
mod cooldown;
pub(crate) mod deployment_archive;
pub(crate) mod events;
pub(crate) mod fleet_issues;
pub(crate) mod fleets;
mod folders;
pub(crate) mod function_repositories;
pub(crate) mod garbage_collector;
mod members;
pub(crate) mod modules;
pub(crate) mod namespaces;
pub(crate) mod organizations;
pub(crate) mod package_discovery;
pub(crate) mod package_documents;
pub(crate) mod package_latest;
pub(crate) mod package_operations;
pub(crate) mod package_pushes;
pub(crate) mod package_renders;
pub(crate) mod package_repositories;
pub(crate) mod package_variant_sets;
pub(crate) mod package_variants;
pub(crate) mod projects;
pub(crate) mod promotions;
pub(crate) mod pull_requests;
mod references;
pub(crate) mod retention;
pub(crate) mod runs;
pub(crate) mod sources;
pub(crate) mod stacks;
pub(crate) mod triggers;
pub(crate) mod workflows;
pub(crate) mod workspaces;
