//! Working copies: files that are in no commit. A call renders and plans them, and records nothing.
//!
//! A template of a working copy has no review, so that it gets placeholders for the values of Secrets, as one of a pull request
//! does. Neither gets the keys of encrypted files, which stay encrypted.

use bytes::Bytes;
use kube::ResourceExt as _;
use stoa_engine::{Plan, secret_digest::DigestKeys};
use stoa_proto::{GenerateRequest, PlanRequest};
use stoa_types::{
    Run,
    delivery::{Operation, RunSource, RunSpec, RunStatus},
    reason,
};

use crate::{
    Services, StepError, documents, runner,
    state::State,
    steps::{hook_operation, unreadable},
    stored_secrets,
    target::Target,
    values::StackValues,
};

/// The name and the Spec digest of the Run of a working copy, which no store has.
const NOWHERE: &str = "working-copy";

/// The values for a working copy.
///
/// # Errors
///
/// Retry when there is no key for placeholders.
pub fn values(services: &Services, target: &Target, values: StackValues) -> Result<StackValues, StepError> {
    let keys = services.encryption.digest_keys(&target.scope(), &target.workspace.name_any());
    let (first, others) = keys.split_first().ok_or_else(|| StepError::Retry("there is no key".to_owned()))?;
    Ok(values.with_placeholders(&DigestKeys::new(first, others)))
}

/// The request that renders the archive of a working copy.
///
/// # Errors
///
/// As of [`Target::generate_request`].
pub async fn generate_request(
    services: &Services,
    target: &Target,
    archive: Bytes,
    values: &StackValues,
) -> Result<GenerateRequest, StepError> {
    let source = None;
    Ok(GenerateRequest { archive, source, ..target.generate_request_of(services, values).await? })
}

/// Compares the Spec of a working copy with what is recorded and live, as a Preview does.
///
/// # Errors
///
/// As of the steps of a Preview, and Failed for a Spec that names values of a secret store.
pub async fn plan(services: &Services, target: &Target, spec: Bytes) -> Result<Plan, StepError> {
    if stored_secrets::may_be_in(&spec) {
        let message = "the Spec names values of a secret store (ref://), which a working copy may not read; commit it, and \
                       start a Preview";
        return Err(StepError::failed(reason::PERMISSION_DENIED, message));
    }
    let (uid, workspace) = (target.stack.uid().unwrap_or_default(), target.workspace.name_any());
    let state = State::load(&*services.log, &uid, &workspace, None).await?.with_bodies(target.bodies(services)).await?;
    let run = run(target);
    let request = PlanRequest {
        target: Some(target.proto(services, &run).await?),
        spec,
        state: state.for_runner().await?,
        hooks: hook_operation(&run, &state).map(|operation| operation.to_string()).unwrap_or_default(),
        ..PlanRequest::default()
    };
    let response = services.runner.plan(request).await;
    let response = response.map_err(|status| runner::halt(&status, reason::PLAN_FAILED))?.into_inner();
    documents::plan(&response.plan).await.map_err(|error| unreadable(NOWHERE, &error))
}

/// A Preview that no store has.
fn run(target: &Target) -> Run {
    let spec = RunSpec::new(target.stack.name_any(), target.workspace.name_any(), Operation::Preview);
    let mut run = Run::new(NOWHERE, spec);
    let source = RunSource { spec_digest: Some(NOWHERE.to_owned()), ..RunSource::default() };
    run.status = Some(RunStatus { source: Some(source), ..RunStatus::default() });
    run
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Secret;
    use serde_json::json;
    use stoa_kinds::core_v1;
    use stoa_machinery::log::MemoryLog;
    use stoa_types::{SecretReference, Stack, platform::SopsDecryption};

    use super::*;
    use crate::testing::{TestServices, unreachable_runner};

    #[tokio::test]
    async fn files_without_a_review_get_no_age_key() {
        let log = Arc::new(MemoryLog::new());
        let world =
            TestServices::over(log, unreachable_runner(), core_v1::register, |_| |_, definition| definition).await;
        let secret =
            json!({"metadata": {"name": "sops-age", "namespace": "platform"}, "data": {"team.agekey": "YWdl"}});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        world.registry.api::<Secret>().create(&secret).await.unwrap();
        let stack = world.registry.api::<Stack>().get("shop", "web").await.unwrap();
        let mut target = Target::of_stack(&world.services, stack, "dev").await.unwrap();
        let age_key_secret_ref =
            SecretReference { namespace: Some("platform".to_owned()), name: "sops-age".to_owned() };
        target.workspace.spec.sops = Some(SopsDecryption { age_key_secret_ref });
        let reviewed = StackValues::default();
        let unreviewed = values(&world.services, &target, StackValues::default()).unwrap();
        for (values, expected) in [(reviewed, 1), (unreviewed, 0)] {
            let request = target.generate_request_of(&world.services, &values).await.unwrap();
            assert_eq!(request.workspace.unwrap().age_keys.len(), expected);
        }
    }
}
