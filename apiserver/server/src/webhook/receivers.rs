//! The objects that a delivery may be for: a Source, a Repository of packages, or an Environment of a fleet.

use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use stoa_controller::object::ObjectKey;
use stoa_kinds::scheduler::environment;
use stoa_machinery::ApiError;
use stoa_runs::Services;
use stoa_types::{Source, porchconfig::Repository, scheduler::Environment};

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
}

impl Hooked {
    /// The object that a path names.
    pub(super) fn of(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix("/webhooks/")?.split('/');
        let found = match (parts.next()?, parts.next()?, parts.next(), parts.next()) {
            (namespace, name, None, None) => Self::Source((namespace.to_owned(), name.to_owned())),
            (namespace, "repositories", Some(name), None) => Self::Repository((namespace.to_owned(), name.to_owned())),
            (namespace, "environments", Some(name), None) => Self::Environment((namespace.to_owned(), name.to_owned())),
            _ => return None,
        };
        let (namespace, name) = found.key();
        (!namespace.is_empty() && !name.is_empty()).then_some(found)
    }

    pub(super) fn key(&self) -> &ObjectKey {
        let (Self::Source(key) | Self::Repository(key) | Self::Environment(key)) = self;
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
        }
    }

    /// Notes the time of a delivery in the status, where the controller of the object sees it.
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
        }
    }
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
