//! Providers for tests.

use std::path::PathBuf;
use std::sync::Arc;

use stoa_terraform_provider::process::{DirectLauncher, StartOptions};
use stoa_terraform_provider::protocol::{Diagnostics, Limits, Provider, Schemas};
use stoa_terraform_provider::value::{Json, Value};

/// The executable of a provider, if there is one; otherwise the test is skipped.
pub(crate) fn executable(provider: &str) -> Option<PathBuf> {
    let name = format!("terraform-provider-{provider}-");
    let all = std::env::var_os("STOA_TEST_TERRAFORM_PROVIDERS").unwrap_or_default();
    let found = std::env::split_paths(&all)
        .find(|path| path.file_name().and_then(|it| it.to_str()).is_some_and(|it| it.starts_with(&name)));
    if found.is_none() {
        eprintln!("skipped: STOA_TEST_TERRAFORM_PROVIDERS names no provider {provider}");
    }
    found
}

pub(crate) fn options(provider: &str) -> Option<StartOptions> {
    Some(StartOptions::new(executable(provider)?))
}

pub(crate) async fn start_with(options: &StartOptions, known: Option<Arc<Schemas>>) -> Provider {
    Provider::start(&DirectLauncher, options, Limits::default(), known).await.unwrap()
}

/// A provider that is configured with nothing.
pub(crate) async fn start(provider: &str) -> Option<Provider> {
    let provider = start_with(&options(provider)?, None).await;
    let config = provider.schemas().provider.configuration(json("{}")).unwrap();
    succeeded(&provider.validate_provider(&config).await.unwrap());
    succeeded(&provider.configure(&config).await.unwrap());
    Some(provider)
}

#[track_caller]
pub(crate) fn succeeded(diagnostics: &Diagnostics) {
    assert!(!diagnostics.has_errors(), "{diagnostics}");
}

/// The configuration of a resource.
#[track_caller]
pub(crate) fn config(provider: &Provider, resource: &str, text: &str) -> Value {
    provider.schemas().resources[resource].configuration(json(text)).unwrap()
}

#[track_caller]
pub(crate) fn json(text: &str) -> Value {
    Value::from_json(Json::parse(text.as_bytes()).unwrap())
}
