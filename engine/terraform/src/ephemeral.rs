//! Ephemeral resources: their values exist in memory, from the start of an apply to its end.
//!
//! Start at [`EphemeralResource::open`]. A plan opens nothing: it knows the values of none, so a preview needs no secret.
//! Each open one has a task that renews it, and is closed by the end of the run.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use stoa_engine::plan::ProviderPlan;
use stoa_engine::{Action, FieldPath};
use stoa_runtime::{Applied, ApplyRequest, RuntimeError};
use stoa_terraform_provider::pool::Lease;
use stoa_terraform_provider::protocol::{Diagnostics, RenewAnswer};
use stoa_terraform_provider::schema::Schema;
use stoa_terraform_provider::value::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::conversion::{configuration, plain};
use crate::errors::{accepted, misconfigured, redacted_for, rejected, unanswered, warnings};

/// How long before its end an ephemeral resource is renewed, if it lasts for long enough.
const BEFORE: Duration = Duration::from_secs(30);

/// How long a provider may take to close an ephemeral resource.
const CLOSE: Duration = Duration::from_secs(30);

/// A leased provider and a type of its ephemeral resources.
#[derive(Debug)]
pub(crate) struct EphemeralResource {
    lease: Lease,
    name: String,
}

impl EphemeralResource {
    /// An ephemeral resource of a type.
    ///
    /// # Errors
    ///
    /// When the provider has no such type.
    pub(crate) fn new(lease: Lease, name: &str) -> Result<Self, RuntimeError> {
        if lease.schemas().ephemeral_resources.contains_key(name) {
            return Ok(Self { lease, name: name.to_owned() });
        }
        let message = format!("the provider has no ephemeral resource {name:?}; check the type and the version");
        Err(RuntimeError::Invalid { message, field: Some("extensions.resourceType".to_owned()) })
    }

    fn schema(&self) -> &Schema {
        &self.lease.schemas().ephemeral_resources[&self.name]
    }

    /// The plan: nothing of it is known, and only its arguments are checked.
    pub(crate) async fn plan(&self, request: &ApplyRequest<'_>) -> Result<ProviderPlan, RuntimeError> {
        let no_unknown = BTreeSet::new();
        let unknown = request.unknown.unwrap_or(&no_unknown);
        let config = configuration(self.schema(), &request.desired.attributes, unknown);
        let config = config.map_err(|errors| misconfigured(&errors))?;
        let warned = self.validated(&config).await.map_err(|error| redacted_for(error, request))?;
        Ok(ProviderPlan {
            action: Action::Read,
            unknown: [FieldPath::default()].into(),
            config_unknown: unknown.clone(),
            warnings: warnings(&warned),
            ..ProviderPlan::default()
        })
    }

    /// Opens it, and has it renewed until it is closed.
    pub(crate) async fn open(self, request: &ApplyRequest<'_>) -> Result<(Applied, Open), RuntimeError> {
        let config = configuration(self.schema(), &request.desired.attributes, &BTreeSet::new());
        let config = config.map_err(|errors| misconfigured(&errors))?;
        let opened = async {
            self.validated(&config).await?;
            let opened = self.lease.open_ephemeral(&self.name, &config).await.map_err(|error| unanswered(&error))?;
            accepted(opened.diagnostics)?;
            if opened.result.is_null() || !opened.result.is_wholly_known() {
                let message = format!("the provider opened {} without a result and reported no error", self.name);
                return Err(rejected(message, None));
            }
            Ok((opened.result, opened.private, opened.renew_at))
        };
        let (result, private, renew_at) = opened.await.map_err(|error| redacted_for(error, request))?;
        let applied = Applied { live: plain(&result).attributes, ..Applied::default() };
        Ok((applied, Open::new(self.lease.without_turn(), self.name, private, renew_at)))
    }

    async fn validated(&self, config: &Value) -> Result<Diagnostics, RuntimeError> {
        accepted(self.lease.validate_ephemeral(&self.name, config).await.map_err(|error| unanswered(&error))?)
    }
}

/// An open ephemeral resource.
#[derive(Debug)]
pub(crate) struct Open {
    /// Sent or dropped when it is to be closed.
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Open {
    fn new(lease: Lease, name: String, private: Option<Bytes>, renew_at: Option<SystemTime>) -> Self {
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(renew_and_close(lease, name, private, renew_at, ended));
        Self { end, task }
    }

    /// Closes it. It is also closed when this is dropped, some time later.
    pub(crate) async fn close(self) {
        drop(self.end);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "an ephemeral resource was not closed");
        }
    }
}

/// Renews an ephemeral resource until its end, and closes it then.
async fn renew_and_close(
    lease: Lease,
    name: String,
    mut private: Option<Bytes>,
    mut renew_at: Option<SystemTime>,
    mut ended: oneshot::Receiver<()>,
) {
    // Reports may quote values, so the log has only that there are some.
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        tracing::warn!(provider_type = name, %error, "an ephemeral resource was not {what}");
    };
    loop {
        let renewal = async {
            match renew_at {
                Some(at) => tokio::time::sleep(until(at)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = &mut ended => break,
            () = renewal => {}
        }
        let renewed = tokio::select! {
            _ = &mut ended => break,
            renewed = lease.renew_ephemeral(&name, private.clone()) => renewed,
        };
        match renewed {
            Ok(RenewAnswer { diagnostics, .. }) if diagnostics.has_errors() => {
                failed("renewed", &"the provider reported errors");
                renew_at = None;
            }
            Ok(answer) => (private, renew_at) = (answer.private.or(private), answer.renew_at),
            Err(error) => {
                failed("renewed", &error);
                renew_at = None;
            }
        }
    }
    match tokio::time::timeout(CLOSE, lease.close_ephemeral(&name, private)).await {
        Ok(Ok(diagnostics)) if diagnostics.has_errors() => failed("closed", &"the provider reported errors"),
        Ok(Ok(_)) => {}
        Ok(Err(error)) => failed("closed", &error),
        Err(elapsed) => failed("closed", &elapsed),
    }
}

/// How long to wait before a renewal: half of the time at least, so that it is early.
fn until(at: SystemTime) -> Duration {
    let left = at.duration_since(SystemTime::now()).unwrap_or_default();
    left.checked_sub(BEFORE).unwrap_or_default().max(left / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewal_is_early() {
        let now = SystemTime::now();
        let seconds = |left: u64| until(now + Duration::from_secs(left)).as_secs_f64().round();
        assert_eq!([seconds(3600), seconds(40), seconds(2), until(now).as_secs_f64()], [3570.0, 20.0, 1.0, 0.0]);
        assert_eq!(until(now - Duration::from_secs(9)), Duration::ZERO);
    }
}
