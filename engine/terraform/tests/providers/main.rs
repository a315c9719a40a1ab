//! The runtime with the engine on real providers, which `STOA_TEST_TERRAFORM_PROVIDERS` names: the paths of executables
//! with colons in between. `hack/test` builds them and sets it; without it, these tests are skipped.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod conformance;
mod data_sources;
mod differential;
mod ephemeral;
mod failures;
mod life;
mod support;
