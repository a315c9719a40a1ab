//! Fuzzing of everything that reads bytes from outside.
//!
//! A [`Target`] is a function that takes any bytes and panics when something does not hold that should: beside the code
//! in `stoa_machinery::fuzzing`, `stoa_cel::fuzzing`, `stoa_apply::structural::fuzzing`,
//! `stoa_runtime_kubernetes::fuzzing`, `stoa_storage::fuzzing`, `stoa_terraform_provider::fuzzing`, `stoa_control_repo::fuzzing`,
//! `stoa_kcl::fuzzing`, `stoa_artifacts::fuzzing`, `stoa_signatures::fuzzing`, `stoa_sops::fuzzing`, `stoa_packages::fuzzing` and
//! `stoa_fleet::fuzzing`, and in
//! `engine` and `kinds` here. [`run`] replays the inputs
//! that are kept in `corpus/<target>` and changes them at random; `tests/fuzz.rs` does so for each target with every
//! `cargo test` for a bounded time, and `hack/fuzz` for as long as one likes. Programs have targets among their own tests:
//! `spec_files` of the function runner, `wasm_modules` of its function worker, `pushed_files` and `webhooks` of the API server, `kusion_releases` of `stoa-runs`.

#[cfg(feature = "targets")]
mod engine;
#[cfg(feature = "targets")]
mod kinds;
mod mutate;
pub mod run;

use std::path::PathBuf;

/// Something that reads bytes, and what holds for it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is also that of its folder of inputs.
    pub name: &'static str,
    /// Panics when something does not hold.
    pub check: fn(&[u8]),
}

impl Target {
    /// Where its inputs are kept.
    pub fn corpus(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name)
    }
}

/// All targets of libraries.
#[cfg(feature = "targets")]
pub fn targets() -> Vec<Target> {
    let own: &[stoa_machinery::fuzzing::Target] = &[
        ("specs", engine::specs),
        ("references", engine::references),
        ("schemas", engine::schemas),
        ("kinds", kinds::kinds),
    ];
    let all = stoa_machinery::fuzzing::TARGETS
        .iter()
        .chain(stoa_cel::fuzzing::TARGETS)
        .chain(stoa_apply::structural::fuzzing::TARGETS)
        .chain(stoa_runtime_kubernetes::fuzzing::TARGETS)
        .chain(stoa_storage::fuzzing::TARGETS)
        .chain(stoa_terraform_provider::fuzzing::TARGETS)
        .chain(stoa_control_repo::fuzzing::TARGETS)
        .chain(stoa_kcl::fuzzing::TARGETS)
        .chain(stoa_artifacts::fuzzing::TARGETS)
        .chain(stoa_signatures::fuzzing::TARGETS)
        .chain(stoa_sops::fuzzing::TARGETS)
        .chain(stoa_packages::fuzzing::TARGETS)
        .chain(stoa_fleet::fuzzing::TARGETS)
        .chain(own);
    all.map(|(name, check)| Target { name, check: *check }).collect()
}
