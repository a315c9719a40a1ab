//! Providers for tests.

use std::path::PathBuf;
use std::sync::Arc;

use stoa_terraform_provider::change::{Object, apply, plan};
use stoa_terraform_provider::checks::Action;
use stoa_terraform_provider::process::{DirectLauncher, StartOptions};
use stoa_terraform_provider::protocol::{Diagnostics, Limits, Provider, RawState, ReadAnswer, ReadRequest, Schemas};
use stoa_terraform_provider::value::{Json, Value, state};

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
    configured(provider, "{}").await
}

/// A provider without a configuration.
pub(crate) async fn start_unconfigured(provider: &str) -> Option<Provider> {
    Some(start_with(&options(provider)?, None).await)
}

/// A provider with a configuration.
pub(crate) async fn configured(provider: &str, config: &str) -> Option<Provider> {
    let provider = start_with(&options(provider)?, None).await;
    let config = provider.schemas().provider.configuration(json(config)).unwrap();
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

/// Plans a change and makes all its steps, none of which fails.
pub(crate) async fn changed(
    provider: &Provider,
    resource: &str,
    prior: Option<Object>,
    config: &Value,
) -> (Action, Option<Object>) {
    let plan = plan(provider, resource, prior, config, None).await.unwrap();
    let mut object = plan.prior.clone();
    for step in plan.steps() {
        let applied = apply(provider, &plan, *step, config).await.unwrap();
        succeeded(&applied.diagnostics);
        assert!(applied.faults.errors.is_empty(), "{}", applied.faults);
        object = applied.object;
    }
    (plan.action, object)
}

/// The object after its state was stored, upgraded and read.
pub(crate) async fn refreshed(provider: &Provider, resource: &str, object: &Object) -> Option<Object> {
    let schema = &provider.schemas().resources[resource];
    let stored = state::to_json(&object.state, &schema.block.implied_type()).unwrap().to_string();
    let stored = Json::parse(stored.as_bytes()).unwrap();
    let raw = RawState { version: schema.version, json: &stored };
    let upgraded = provider.upgrade_state(resource, raw).await.unwrap();
    succeeded(&upgraded.diagnostics);
    assert_eq!(upgraded.state, object.state);
    let request = ReadRequest { state: &upgraded.state, private: &object.private, identity: object.identity.as_ref() };
    let read = provider.read_resource(resource, request).await.unwrap();
    succeeded(&read.diagnostics);
    let ReadAnswer { state, private, identity, .. } = read;
    (!state.is_null()).then_some(Object { state, private, identity, tainted: object.tainted })
}

/// An attribute as a text.
#[track_caller]
pub(crate) fn text<'a>(object: &'a Option<Object>, name: &str) -> &'a str {
    object.as_ref().expect("the object exists").state.get(name).and_then(Value::as_str).expect("it is a text")
}
