//! The conformance suite on the fakes, and on the first one in both of its modes.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use stoa_engine::{Owner, Resource, ResourceType};
use stoa_runtime::Runtime;
use stoa_runtime::conformance::{self, Provided, Subject};
use stoa_runtime::fake::FakeCloud;
use stoa_runtime::fake_provider::{FakeProvider, RESOURCE_TYPE};

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

    fn namespace(&self) -> Option<&str> {
        Some("default")
    }
}

#[derive(Debug)]
struct Cloud(FakeProvider);

impl Subject for Cloud {
    fn runtime_of(&self, owner: Owner) -> Arc<dyn Runtime> {
        Arc::new(self.0.runtime(owner))
    }

    fn resource(&self, name: &str, value: &str) -> Resource {
        let map = |value: Value| value.as_object().cloned().unwrap_or_default();
        Resource {
            id: format!("stoa:fake:{RESOURCE_TYPE}:{name}").as_str().into(),
            kind: ResourceType::Terraform,
            attributes: map(json!({"name": name, "note": value})),
            depends_on: Vec::new(),
            extensions: map(json!({"provider": "stoa/fake", "resourceType": RESOURCE_TYPE})),
        }
    }

    fn value(&self, live: &Map<String, Value>) -> Value {
        live["note"].clone()
    }

    fn provided(&self) -> Option<Provided> {
        Some(Provided { value: "note", id: "id", fixed: "fixed", sensitive: "password" })
    }
}

#[tokio::test]
async fn the_fake_provider_conforms() {
    let cloud = Cloud(FakeProvider::new());
    conformance::all(&cloud).await;
    assert!(cloud.0.objects().is_empty(), "each check removes its objects");
    // The next version of the provider too.
    cloud.0.upgrade();
    conformance::all(&cloud).await;
}

#[tokio::test]
async fn the_fake_conforms() {
    conformance::all(&Fake { cloud: FakeCloud::new(), deferred: false }).await;
}

#[tokio::test]
async fn the_deferred_fake_conforms() {
    conformance::all(&Fake { cloud: FakeCloud::new(), deferred: true }).await;
}
