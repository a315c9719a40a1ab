//! The objects that a delivery may be for: a Source, a Repository of packages, an Environment of a fleet, or a Reconciler of the
//! hub.

use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use stoa_controller::object::ObjectKey;
use stoa_kinds::scheduler::environment;
use stoa_machinery::{ApiError, Object, RequestContext};
use stoa_runs::Services;
use stoa_types::{
    Source,
    hub::{DeploymentReport, DeploymentReportSpec, Reconciler, ReportedDeployment},
    porchconfig::Repository,
    scheduler::Environment,
};

/// The key of a Secret for a webhook.
const KEY: &str = "token";
/// The key of the Secret of an Environment, which has other credentials too.
const ENVIRONMENT_KEY: &str = "webhookToken";

/// An object with a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Hooked {
    /// A Source: `/webhooks/<namespace>/<source>`.
    Source(ObjectKey),
    /// A Repository: `/webhooks/<namespace>/repositories/<repository>`.
    Repository(ObjectKey),
    /// An Environment: `/webhooks/<namespace>/environments/<environment>`.
    Environment(ObjectKey),
    /// A Reconciler: `/webhooks/<namespace>/reconcilers/<reconciler>`. The delivery is an event of Flux.
    Reconciler(ObjectKey),
}

impl Hooked {
    /// The object that a path names.
    pub(super) fn of(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix("/webhooks/")?.split('/');
        let found = match (parts.next()?, parts.next()?, parts.next(), parts.next()) {
            (namespace, name, None, None) => Self::Source((namespace.to_owned(), name.to_owned())),
            (namespace, "repositories", Some(name), None) => Self::Repository((namespace.to_owned(), name.to_owned())),
            (namespace, "environments", Some(name), None) => Self::Environment((namespace.to_owned(), name.to_owned())),
            (namespace, "reconcilers", Some(name), None) => Self::Reconciler((namespace.to_owned(), name.to_owned())),
            _ => return None,
        };
        let (namespace, name) = found.key();
        (!namespace.is_empty() && !name.is_empty()).then_some(found)
    }

    pub(super) fn key(&self) -> &ObjectKey {
        let (Self::Source(key) | Self::Repository(key) | Self::Environment(key) | Self::Reconciler(key)) = self;
        key
    }

    /// The name of the Secret of its webhook and the key there, if it exists and has one.
    pub(super) fn secret(&self, services: &Services) -> Option<(String, &'static str)> {
        let lookup = &services.lookup;
        match self {
            Self::Source((namespace, name)) => {
                Some((lookup.cached::<Source>(namespace, name)?.spec.webhook?.secret_ref.name, KEY))
            }
            Self::Repository((namespace, name)) => {
                Some((lookup.cached::<Repository>(namespace, name)?.spec.webhook?.secret_ref.name, KEY))
            }
            Self::Environment((namespace, name)) => {
                lookup.cached::<Environment>(namespace, name)?;
                Some((environment::SECRET.to_owned(), ENVIRONMENT_KEY))
            }
            Self::Reconciler((namespace, name)) => {
                Some((lookup.cached::<Reconciler>(namespace, name)?.spec.webhook?.secret_ref.name, KEY))
            }
        }
    }

    /// Notes the time of a delivery in the status, where the controller of the object sees it. A Reconciler has no such time
    /// ([`record`]).
    pub(super) async fn note(&self, services: &Services) -> Result<(), ApiError> {
        let now = services.now();
        let (namespace, name) = self.key();
        let lookup = &services.lookup;
        match self {
            Self::Source(_) => {
                let note =
                    |object: &mut Source| next(&mut object.status.get_or_insert_default().last_webhook_time, now);
                lookup.api::<Source>()?.update_status_with(namespace, name, note).await.map(drop)
            }
            Self::Repository(_) => {
                let note =
                    |object: &mut Repository| next(&mut object.status.get_or_insert_default().last_webhook_time, now);
                lookup.api::<Repository>()?.update_status_with(namespace, name, note).await.map(drop)
            }
            Self::Environment(_) => {
                let note =
                    |object: &mut Environment| next(&mut object.status.get_or_insert_default().last_webhook_time, now);
                lookup.api::<Environment>()?.update_status_with(namespace, name, note).await.map(drop)
            }
            Self::Reconciler(_) => Ok(()),
        }
    }
}

/// Records a deployment as a report of its Reconciler does. It is durable afterwards.
///
/// # Errors
///
/// As for a DeploymentReport: 429 when its sender must send it again later.
pub(super) async fn record(
    services: &Services,
    namespace: &str,
    deployment: ReportedDeployment,
) -> Result<(), ApiError> {
    let store = services.lookup.api::<DeploymentReport>()?.store().clone();
    let handler = store.definition().ephemeral.clone().expect("reports are answered, not stored");
    let mut report = DeploymentReport::new("", DeploymentReportSpec { deployments: vec![deployment] });
    report.metadata.namespace = Some(namespace.to_owned());
    let report = Object::from_typed(&report).map_err(ApiError::internal)?;
    store.answer_ephemeral(&RequestContext::internal("webhook"), report, &*handler).await.map(drop)
}

/// Sets a time that is later than the one before, whatever the clock has: a delivery may come during a synchronization.
fn next(asked: &mut Option<MicroTime>, now: Timestamp) {
    let after = |time: Timestamp| time.checked_add(1.microsecond()).unwrap_or(time);
    let next = asked.as_ref().map_or(now, |MicroTime(last)| now.max(after(*last)));
    *asked = Some(MicroTime(next));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_names_an_object_with_a_webhook() {
        let key = |name: &str| ("shop".to_owned(), name.to_owned());
        for (path, expected) in [
            ("/webhooks/shop/config", Some(Hooked::Source(key("config")))),
            ("/webhooks/shop/repositories", Some(Hooked::Source(key("repositories")))),
            ("/webhooks/shop/repositories/blueprints", Some(Hooked::Repository(key("blueprints")))),
            ("/webhooks/shop/environments/dev", Some(Hooked::Environment(key("dev")))),
            ("/webhooks/shop/reconcilers/drone-web", Some(Hooked::Reconciler(key("drone-web")))),
            ("/webhooks/shop/other/blueprints", None),
            ("/webhooks/shop/repositories/", None),
            ("/webhooks/shop/repositories/blueprints/more", None),
            ("/webhooks//config", None),
            ("/webhooks/shop/", None),
            ("/webhooks/shop", None),
            ("/other/shop/config", None),
        ] {
            assert_eq!(Hooked::of(path), expected, "{path}");
        }
    }
}
