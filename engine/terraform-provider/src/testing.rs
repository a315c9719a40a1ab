//! Real providers for tests.

use std::path::PathBuf;

/// The executable of a provider, if `STOA_TEST_TERRAFORM_PROVIDERS` names one; otherwise the test is skipped. The variable has
/// the paths of executables, with colons in between.
pub fn executable(provider: &str) -> Option<PathBuf> {
    let prefix = format!("terraform-provider-{provider}-");
    let all = std::env::var_os("STOA_TEST_TERRAFORM_PROVIDERS").unwrap_or_default();
    let found = std::env::split_paths(&all)
        .find(|path| path.file_name().and_then(|it| it.to_str()).is_some_and(|it| it.starts_with(&prefix)));
    if found.is_none() {
        eprintln!("skipped: STOA_TEST_TERRAFORM_PROVIDERS names no provider {provider}");
    }
    found
}
