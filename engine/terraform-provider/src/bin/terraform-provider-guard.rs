//! Runs a provider that ends with its parent: `terraform-provider-guard PARENT EXECUTABLE [ARGUMENT…]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let error = stoa_terraform_provider::process::guard::run(std::env::args_os().skip(1));
    tracing::error!(%error, "running a provider");
    ExitCode::FAILURE
}
