//! `gitopsrepoes/bundle`: the folder of a cluster type as an OCI artifact in an archive, for clusters without a network.

use http::StatusCode;
use stoa_machinery::{
    ApiError,
    definition::{SubresourceCall, SubresourceResponse},
    status::FieldError,
};
use stoa_types::scheduler::GitOpsRepo;

use super::{answer, format::bad_parameter, non_empty};
use crate::fleet::FleetService;

/// The media type of the answer.
pub(super) const PRODUCES: &[&str] = &["application/x-tar"];
/// The parameter with the cluster type.
const CLUSTER_TYPE: &str = "clusterType";

/// The bundle of a cluster type.
pub(super) async fn bundle(fleets: FleetService, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
    let cluster_type = non_empty(&call.query, CLUSTER_TYPE).ok_or_else(|| {
        bad_parameter(&FieldError::required(CLUSTER_TYPE, "the name of a cluster type, whose folder is packed"))
    })?;
    let repo = fleets.services().lookup.api::<GitOpsRepo>()?.get(&call.namespace, &call.name).await?;
    let packed = fleets.bundle(&call.namespace, &repo, cluster_type).await?;
    answer(StatusCode::OK, PRODUCES[0], packed)
}
