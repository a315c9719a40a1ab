//! The conformance suite on our own provider.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use stoa_engine::{Owner, Resource};
use stoa_runtime::Runtime;
use stoa_runtime::conformance::{self, Provided, Subject};

use crate::support::{Deployment, resource};

impl Subject for Deployment {
    fn runtime_of(&self, owner: Owner) -> Arc<dyn Runtime> {
        Arc::new(self.terraform(owner))
    }

    fn resource(&self, name: &str, value: &str) -> Resource {
        let attributes = json!({"name": name, "any": value, "secret": "conformance-secret"});
        serde_json::from_value(resource("frame_thing", name, attributes)).unwrap()
    }

    fn value(&self, live: &Map<String, Value>) -> Value {
        live.get("any").cloned().unwrap_or_default()
    }

    fn provided(&self) -> Option<Provided> {
        Some(Provided { value: "any", id: "id", fixed: "name", sensitive: "secret" })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_provider_conforms() {
    let Some(deployment) = Deployment::with(&["frame"]) else { return };
    conformance::all(&deployment).await;
}
