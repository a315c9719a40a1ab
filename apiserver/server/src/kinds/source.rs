//! Source: where a repository is, and never how to get into it.

use std::time::Duration;

use async_trait::async_trait;
use kube::{CustomResourceExt as _, ResourceExt as _};
use stoa_machinery::{
    ApiError, RequestContext, ResourceDefinition,
    definition::{Cell, Column, SelectableField},
    status::FieldError,
    strategy::{Admission, Strategy},
};
use stoa_types::{
    Source,
    config::{ObservedVersion, SourceProvider},
};

use super::{check, lookup::Lookup, trigger};

pub(crate) fn definition() -> ResourceDefinition {
    ResourceDefinition::from_crd(&Source::crd())
        .columns(&[
            Column::new("Provider", Cell::Path(&["spec", "provider"]), "Which protocol the repository speaks."),
            Column::new("Remote", Cell::Path(&["spec", "remote"]), "The address of the repository."),
            Column::new("Ref", Cell::Path(&["spec", "ref"]), "What latest means."),
            Column::new(
                "Commit",
                Cell::Compute(|o| short(o.get_path(&["status", "observedCommit"]))),
                "The head at the last look.",
            ),
            Column::new(
                "Ready",
                Cell::Compute(|o| check::condition_status(o.get_path(&["status", "conditions"]), "Ready")),
                "Whether the repository can be read.",
            ),
            Column::age(),
        ])
        .selectable(&[SelectableField { name: "spec.remote", path: &["spec", "remote"] }])
}

/// The first characters of a commit, as people write it.
pub(crate) fn short(commit: Option<&serde_json::Value>) -> serde_json::Value {
    commit.and_then(|c| c.as_str()).map_or(serde_json::Value::Null, |c| c.chars().take(8).collect::<String>().into())
}

#[derive(Debug)]
pub(crate) struct SourceStrategy {
    pub(crate) lookup: Lookup,
}

/// The commits that were found in a source.
fn observed(source: &Source) -> (Option<&str>, &[ObservedVersion]) {
    let status = source.status.as_ref();
    let commit = status.and_then(|status| status.observed_commit.as_deref());
    (commit, status.map_or(&[], |status| &status.versions))
}

#[async_trait]
impl Strategy for SourceStrategy {
    type Object = Source;

    fn validate(&self, object: &Source) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let spec = &object.spec;
        check::subjects("spec.owners", &spec.owners, &mut errors);
        check::repository_address("spec.remote", &spec.remote, &mut errors);
        if spec.provider == SourceProvider::Oci {
            check::not_available("spec.provider", "reading from an OCI registry", &mut errors);
        }
        if let Some(secret) = &spec.secret_ref {
            check::secret_beside("spec.secretRef", secret, &mut errors);
        }
        if let Some(webhook) = &spec.webhook {
            check::secret_beside("spec.webhook.secretRef", &webhook.secret_ref, &mut errors);
        }
        check::duration(
            "spec.pollInterval",
            &spec.poll_interval,
            Duration::from_secs(1)..=Duration::from_secs(24 * 3600),
            &mut errors,
        );
        errors
    }

    async fn admit(&self, context: &RequestContext, change: Admission<'_, Source>) -> Result<(), ApiError> {
        let leads = |source: &Source| (source.spec.provider, source.spec.remote.clone(), source.spec.reference.clone());
        match change {
            Admission::Create(source) => trigger::require_of_source(&self.lookup, context, source).await,
            Admission::Update { new, old, subresource: "" } if leads(new) != leads(old) => {
                trigger::require_of_source(&self.lookup, context, new).await
            }
            Admission::Update { new, old, subresource: "status" } if observed(new) != observed(old) => {
                // What a trigger deploys follows them.
                let part = "status.observedCommit and status.versions are";
                check::part_written_by_server(context, "config.stoa.dev", "sources", &new.name_any(), part)
            }
            Admission::Update { .. } | Admission::Delete(_) => Ok(()),
        }
    }
}
