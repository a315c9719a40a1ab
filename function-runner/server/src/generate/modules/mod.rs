//! Modules of Kusion: programs that make resources of the accessories and workloads of applications.
//!
//! A generator in a worker finds the calls: start at [`Platform::call`]. The runner makes them in sandboxes ([`Modules::call_all`]), and
//! another worker adds the answers to the Spec ([`merge()`]), since a module is not trusted. No order of kinds is added: a resource of a
//! module depends on those that it names.
//!
//! A module is in the runner's folder, or registered with the digest of its artifact in a registry (`registered`).
//!
//! Elsewhere: `stoa_kusion_module` has the protocol, the folder of programs and the configurations.

mod calls;
mod merge;
mod patches;
mod programs;
mod registered;

pub(crate) use self::calls::Settings;
pub(super) use self::calls::{Application, Call, Part, Platform};
pub(super) use self::merge::merge;
pub(crate) use self::programs::{Modules, Options};
pub(super) use self::registered::{Registries, package_folders, packages};

#[cfg(test)]
mod tests;
