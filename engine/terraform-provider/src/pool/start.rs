//! The start of a configured process.

use std::sync::Arc;
use std::time::Duration;

use crate::package::digest;
use crate::process::{StartOptions, TERRAFORM_PROVIDER};
use crate::protocol::{CallError, Diagnostics, Provider, ProviderError, Schemas};
use crate::value::Value;

use super::{PoolError, PoolOptions, ProviderSpec};

/// Starts and configures a process, within the time limit of a start.
pub(super) async fn start(
    options: &PoolOptions,
    spec: &ProviderSpec,
    known: Option<Arc<Schemas>>,
) -> Result<Provider, PoolError> {
    // The process alone has the same limit, whose error quotes its output.
    let limit = options.start_limit + Duration::from_millis(500);
    let configured = tokio::time::timeout(limit, configured(options, spec, known)).await;
    configured.unwrap_or(Err(PoolError::TimedOut(options.start_limit)))
}

async fn configured(
    options: &PoolOptions,
    spec: &ProviderSpec,
    known: Option<Arc<Schemas>>,
) -> Result<Provider, PoolError> {
    if !options.launcher.verifies() {
        let executable = spec.executable.clone();
        let found = tokio::task::spawn_blocking(move || digest(&executable)).await;
        if !found.is_ok_and(|found| found.is_ok_and(|found| found == spec.digest)) {
            return Err(PoolError::Changed(spec.executable.clone()));
        }
    }
    let start = StartOptions {
        plugin: TERRAFORM_PROVIDER,
        executable: spec.executable.clone(),
        digest: Some(spec.digest),
        environment: spec.environment.clone(),
        network: spec.network,
        temporary: options.temporary.clone(),
        time_limit: options.start_limit,
    };
    let failed = |error: ProviderError| PoolError::Start(Arc::new(error));
    let provider = Provider::start(&*options.launcher, &start, options.limits, known).await.map_err(failed)?;
    let configuration = Value::from_json(spec.configuration.clone());
    let configuration = provider.schemas().provider.configuration(configuration).map_err(PoolError::Configuration)?;
    let accepted = |answer: Result<Diagnostics, CallError>| match answer {
        Ok(diagnostics) if diagnostics.has_errors() => Err(PoolError::Rejected(diagnostics)),
        Ok(_) => Ok(()),
        Err(error) => Err(failed(error.into())),
    };
    accepted(provider.validate_provider(&configuration).await)?;
    accepted(provider.configure(&configuration).await)?;
    Ok(provider)
}
