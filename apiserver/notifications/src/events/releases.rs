//! Events of Releases: creation.

use serde_json::{Value, json};
use stoa_kinds::event_types::releases::CREATED;
use stoa_types::Release;

use super::{Mark, ObjectEvents, Scope, get_raw};

impl ObjectEvents for Release {
    fn scope(&self) -> Scope {
        Scope::of_stack(self, &self.spec.stack, vec![self.spec.workspace.clone()])
    }

    fn marks(&self) -> Vec<Mark> {
        vec![Mark::new(CREATED, self.metadata.creation_timestamp.as_ref())]
    }

    fn data(&self) -> Value {
        let spec = &self.spec;
        json!({
            "workspace": spec.workspace,
            "revision": spec.revision,
            "run": spec.run,
            "commit": spec.commit,
            "planDigest": spec.plan_digest,
            "specDigest": spec.spec_digest,
            "stateDigest": spec.state_digest,
            "rollbackOf": spec.rollback_of,
            "tombstone": spec.tombstone,
            "page": spec.commit_url,
        })
    }

    fn command(&self, path: &str) -> String {
        get_raw(&format!("{path}/diff?format=text"))
    }
}
