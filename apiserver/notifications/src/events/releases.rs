//! Events of Releases: creation.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use stoa_kinds::event_types::releases::CREATED;

use super::{Mark, Metadata, ObjectEvents, Parts, Scope, get_raw};

#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Release(Parts<Spec, Option<IgnoredAny>>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    stack: String,
    workspace: String,
    revision: i64,
    run: String,
    #[serde(default)]
    commit: String,
    #[serde(default, rename = "commitURL")]
    commit_url: String,
    plan_digest: String,
    spec_digest: String,
    state_digest: String,
    #[serde(default)]
    rollback_of: Option<i64>,
    #[serde(default)]
    tombstone: bool,
}

impl ObjectEvents for Release {
    type Kind = stoa_types::Release;

    fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    fn scope(&self) -> Scope {
        Scope::of_stack(&self.0.metadata, &self.0.spec.stack, vec![self.0.spec.workspace.clone()])
    }

    fn marks(&self) -> Vec<Mark> {
        vec![Mark::new(CREATED, self.0.metadata.creation_timestamp)]
    }

    fn data(&self) -> Value {
        let spec = &self.0.spec;
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
