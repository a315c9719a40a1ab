//! The audit log: who did what, when, from where, and how it ended.
//!
//! Start at [`Auditor`]. A [`Policy`] says which requests are recorded and how much of each; a `Trail` is one
//! request on its way, from which an event goes to the log at each stage. Events are those of `audit.k8s.io/v1`, field
//! by field as `k8s.io/apiserver/pkg/audit` writes them.
//!
//! Submodules: `policy` reads and matches rules, `event` is what is written, `log` the file that it goes to.

mod event;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod log;
mod policy;
mod trail;

use std::{fmt, sync::Arc};

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

pub(crate) use self::trail::{Ending, Recorded, Trail, failed_authentication, source_ips};
pub use self::{
    log::{LogError, LogFile, LogMode, LogOptions},
    policy::{Policy, PolicyError},
};

/// Kinds whose bodies are never recorded, whatever the policy says: group and resource.
const WITHOUT_BODIES: [(&str, &str); 3] =
    [("", "secrets"), ("authentication.k8s.io", "tokenreviews"), ("", "serviceaccounts")];

/// Records requests as a policy wants it.
pub struct Auditor {
    policy: Policy,
    log: LogFile,
    events: IntCounter,
    errors: IntCounter,
    rejected: IntCounter,
    levels: IntCounterVec,
}

impl fmt::Debug for Auditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auditor").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl Auditor {
    /// Writes what `policy` wants to `log`; counts in `registry`.
    ///
    /// # Errors
    ///
    /// When the registry has metrics of the same names already.
    pub fn new(policy: Policy, log: LogFile, registry: &Registry) -> prometheus::Result<Arc<Self>> {
        let counter = |name: &str, help: &str| {
            let made = IntCounter::new(name, help)?;
            registry.register(Box::new(made.clone()))?;
            Ok::<_, prometheus::Error>(made)
        };
        let levels =
            Opts::new("apiserver_audit_level_total", "Counter of policy levels for audit events (1 per request).");
        let levels = IntCounterVec::new(levels, &["level"])?;
        registry.register(Box::new(levels.clone()))?;
        Ok(Arc::new(Self {
            policy,
            log,
            events: counter(
                "apiserver_audit_event_total",
                "Counter of audit events generated and sent to the audit backend.",
            )?,
            errors: counter(
                "apiserver_audit_error_total",
                "Counter of audit events that failed to be audited properly.",
            )?,
            rejected: counter(
                "apiserver_audit_requests_rejected_total",
                "Counter of apiserver requests rejected due to an error in audit logging backend.",
            )?,
            levels,
        }))
    }

    /// Sends an event to the log; whether it was taken.
    fn send(&self, event: &event::Event<'_>) -> bool {
        self.events.inc();
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        let taken = self.log.write(line);
        if !taken {
            self.errors.inc();
        }
        taken
    }
}

#[cfg(test)]
mod tests;
