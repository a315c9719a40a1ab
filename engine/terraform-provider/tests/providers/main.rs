//! The client against real providers, which `STOA_TEST_TERRAFORM_PROVIDERS` names: the paths of executables with colons
//! in between. `hack/test` builds them and sets it; without it, these tests are skipped.

mod hashicorp;
mod own;
mod pool;
mod process;
mod support;
