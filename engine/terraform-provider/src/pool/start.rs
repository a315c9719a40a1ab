//! The start of a configured process.

use std::sync::Arc;

use crate::package::digest;
use crate::process::StartOptions;
use crate::protocol::{CallError, Diagnostics, Provider, ProviderError, Schemas};
use crate::value::Value;

use super::{PoolError, PoolOptions, ProviderSpec};

/// Starts and configures a process.
pub(super) async fn start(
    options: &PoolOptions,
    spec: &ProviderSpec,
    known: Option<Arc<Schemas>>,
) -> Result<Provider, PoolError> {
    let executable = spec.executable.clone();
    let found = tokio::task::spawn_blocking(move || digest(&executable)).await;
    if !found.is_ok_and(|found| found.is_ok_and(|found| found == spec.digest)) {
        return Err(PoolError::Changed(spec.executable.clone()));
    }
    let start = StartOptions {
        executable: spec.executable.clone(),
        environment: spec.environment.clone(),
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
