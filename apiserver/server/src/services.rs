//! The services of one server: all that controllers and handlers of subresources use.
//!
//! Start at [`AllServices`]. A function takes the part that it needs, and `From` selects that part. Elsewhere:
//! [`crate::behaviours`] lists the controllers, and [`crate::subresources`] has the handlers.

use std::collections::BTreeMap;

use anyhow::Context as _;
use http::Uri;
use stoa_kinds::hub::memory::Hub;
use stoa_runs::{Services, runner::RunnerCertificates};

use crate::{
    fleet::{FleetService, Schedulers},
    hub::HubService,
    packages::PackageService,
};

/// The services of one server. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct AllServices {
    pub(crate) base: Services,
    pub(crate) notifications: stoa_notifications::Services,
    pub(crate) packages: PackageService,
    pub(crate) fleets: FleetService,
    pub(crate) schedulers: Schedulers,
    pub(crate) hub: HubService,
}

impl AllServices {
    /// The services over those of Runs, which call the external schedulers at these addresses. `hub_backend` is the Backend of the hub's archive; none: the server's own folder.
    pub(crate) fn new(
        base: Services,
        (addresses, certificates): (BTreeMap<String, Uri>, RunnerCertificates),
        hub: Hub,
        hub_backend: Option<String>,
    ) -> anyhow::Result<Self> {
        let schedulers =
            Schedulers::new(addresses, certificates).context("the external schedulers cannot be called")?;
        let notifications = stoa_notifications::Services {
            lookup: base.lookup.clone(),
            log: base.log.clone(),
            cluster: base.cluster.clone(),
            recorder: base.recorder.clone(),
            clock: base.clock.clone(),
        };
        Ok(Self {
            notifications,
            packages: PackageService::new(base.clone()),
            fleets: FleetService::new(base.clone()),
            schedulers,
            hub: HubService::new(base.clone(), hub, hub_backend),
            base,
        })
    }

    /// The services of a test, without external schedulers.
    #[cfg(test)]
    pub(crate) fn of_test(base: Services) -> Self {
        let none = std::path::PathBuf::new();
        let certificates = RunnerCertificates { ca: none.clone(), certificate: none.clone(), key: none };
        Self::new(base, (BTreeMap::new(), certificates), Hub::default(), None).expect("there is no certificate to read")
    }
}

/// Lets a function that takes a part be called with all services.
macro_rules! part {
    ($field:ident: $service:ty) => {
        impl From<&AllServices> for $service {
            fn from(all: &AllServices) -> Self {
                all.$field.clone()
            }
        }
    };
}

part!(base: Services);
part!(packages: PackageService);
part!(fleets: FleetService);
part!(hub: HubService);

impl From<&AllServices> for (Services, Schedulers) {
    fn from(all: &AllServices) -> Self {
        (all.base.clone(), all.schedulers.clone())
    }
}
