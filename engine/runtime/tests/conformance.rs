//! The conformance suite on the fake, in both of its modes.

use std::sync::Arc;

use stoa_engine::Owner;
use stoa_runtime::Runtime;
use stoa_runtime::conformance::{self, Subject};
use stoa_runtime::fake::FakeCloud;

#[derive(Debug)]
struct Fake {
    cloud: FakeCloud,
    deferred: bool,
}

impl Subject for Fake {
    fn runtime_of(&self, owner: Owner) -> Arc<dyn Runtime> {
        let runtime = self.cloud.runtime().of(owner);
        Arc::new(if self.deferred { runtime.deferred() } else { runtime })
    }

    fn namespace(&self) -> &str {
        "default"
    }
}

#[tokio::test]
async fn the_fake_conforms() {
    conformance::all(&Fake { cloud: FakeCloud::new(), deferred: false }).await;
}

#[tokio::test]
async fn the_deferred_fake_conforms() {
    conformance::all(&Fake { cloud: FakeCloud::new(), deferred: true }).await;
}
