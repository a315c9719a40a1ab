//! Runs a provider that ends with its parent: `terraform-provider-guard PARENT EXECUTABLE [ARGUMENT…]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let error = stoa_terraform_provider::process::guard::run(std::env::args_os().skip(1));
    // The client reads the errors of the provider, and so of this program.
    eprintln!("running a provider: {error}");
    ExitCode::FAILURE
}
