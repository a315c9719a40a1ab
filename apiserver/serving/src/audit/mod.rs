//! Audit: the events of requests, by a policy, in a log file.
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

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use prometheus::{IntCounter, IntCounterVec};
use stoa_meta::json;
use stoa_registry::metrics::Families;
use tokio::{sync::oneshot, time::timeout_at};

use self::log::Queueing;
pub(crate) use self::trail::{Begun, Ending, NotStored, Recorded, Trail, of_unknown_sender, source_ips};
pub use self::{
    log::{LogError, LogFile, LogMode, LogOptions},
    policy::{Policy, PolicyError},
};

/// Kinds whose bodies are never recorded, whatever the policy says: group and resource.
const WITHOUT_BODIES: [(&str, &str); 3] =
    [("", "secrets"), ("authentication.k8s.io", "tokenreviews"), ("", "serviceaccounts")];

/// What the log is called where errors are counted, as upstream's backend of files.
const PLUGIN: &str = "log";

/// Records requests as a policy wants it.
#[derive(Debug)]
pub struct Auditor {
    policy: Policy,
    log: LogFile,
    events: IntCounter,
    errors: IntCounterVec,
    rejected: IntCounter,
    levels: IntCounterVec,
}

impl Auditor {
    /// Writes what `policy` wants to `log`; counts in `families`. Fails when there are metrics of the same names
    /// already.
    pub fn new(policy: Policy, log: LogFile, families: &Families) -> prometheus::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            policy,
            log,
            events: families.counter(
                "apiserver_audit_event_total",
                "[ALPHA] Counter of audit events generated and sent to the audit backend.",
            )?,
            errors: families.counters(
                "apiserver_audit_error_total",
                "[ALPHA] Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by \
                     the error.",
                &["plugin"],
            )?,
            rejected: families.counter(
                "apiserver_audit_requests_rejected_total",
                "[ALPHA] Counter of apiserver requests rejected due to an error in audit logging backend.",
            )?,
            levels: families.counters(
                "apiserver_audit_level_total",
                "[ALPHA] Counter of policy levels for audit events (1 per request).",
                &["level"],
            )?,
        }))
    }

    fn send(&self, event: &event::Event<'_>) -> Written {
        self.events.inc();
        let mut line = json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        let (told, written) = oneshot::channel();
        let errors = self.errors.clone();
        let queueing = self.log.write(line, move |is_written| {
            if !is_written {
                errors.with_label_values(&[PLUGIN]).inc();
            }
            // Nobody may wait for it.
            let _ = told.send(is_written);
        });
        Written { queueing, written: self.log.waits.then_some(written) }
    }
}

/// What becomes of an event: whether it is written, or nobody is to wait for that. It is written all the same when this is
/// dropped, unless too many others of which that is so wait to be.
#[derive(Debug, Default)]
pub(crate) struct Written {
    queueing: Option<Queueing>,
    written: Option<oneshot::Receiver<bool>>,
}

impl Written {
    pub(crate) async fn until(self, due: Option<Instant>) {
        match due {
            Some(due) => {
                // It waits to be written either way.
                let _ = timeout_at(due.into(), self).await;
            }
            None => {
                self.await;
            }
        }
    }
}

impl Future for Written {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let this = self.get_mut();
        if let Some(queueing) = &mut this.queueing {
            ready!(Pin::new(queueing).poll(context));
            this.queueing = None;
        }
        match &mut this.written {
            None => Poll::Ready(true),
            // The thread that writes is gone when nobody says anything.
            Some(written) => Pin::new(written).poll(context).map(|written| written.unwrap_or(false)),
        }
    }
}

#[cfg(test)]
mod tests;
