//! `stacks/terraformstate`: the resources of Terraform's providers as a `terraform.tfstate`, for users who leave Stoa.
//!
//! It has secrets in clear, as Terraform's own file does. No role of Stoa grants it.

use kube::ResourceExt as _;
use stoa_controller::memory_budget;
use stoa_engine::ResourceId;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
};
use stoa_runs::{
    Services,
    state::{Bodies, State},
    terraform_state,
};
use stoa_types::{Stack, Workspace};

use super::{document, failure, non_empty, stack_state::workspace, stored::DocumentScope};

/// The memory that an answer reserves, in bytes.
const ROOM: usize = 16 << 20;

/// Query parameter: `workspace`, which a stack with one need not name.
pub(super) async fn terraform_state(
    services: Services,
    call: SubresourceCall,
) -> Result<SubresourceResponse, ApiError> {
    let services = &services;
    let stack = services.lookup.api::<Stack>()?.get(&call.namespace, &call.name).await?;
    let workspace = workspace(&stack, non_empty(&call.query, "workspace"))?;
    let uid = stack.uid().unwrap_or_default();
    let place = DocumentScope { namespace: call.namespace.clone(), stack_uid: uid.clone() };
    let backend = services.lookup.api::<Workspace>()?.get("", &workspace).await?.spec.backend.name;
    let store = services.backends.store(&backend).await.map_err(failure)?;
    let room = memory_budget::take(&place.namespace, ROOM).await?;
    let state = State::load(&*services.log, &uid, &workspace, None).await.map_err(failure)?;
    let bodies = Bodies { store, scope: place.scope(), encryption: services.encryption.clone() };
    let state = state.with_bodies(bodies).await.map_err(failure)?;
    let serial = u64::try_from(state.head().last_release).unwrap_or_default();
    let records = state.in_clear().map_err(failure)?;
    let written = terraform_state::write(&records, serial, &uid).map_err(|ResourceId(id)| {
        ApiError::internal(format!("the recorded state of {id} has no form of Terraform; import the resource again"))
    })?;
    room.until_sent(document(written.as_bytes(), true)?).await
}
