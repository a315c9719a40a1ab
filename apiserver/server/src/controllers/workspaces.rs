//! Workspace: counts the stacks that are deployed to it and looks for its Backend.

use std::time::Duration;

use futures_util::StreamExt as _;
use kube::ResourceExt as _;
use serde::{Deserialize, de::IgnoredAny};
use stoa_machinery::ApiError;
use stoa_types::{Backend, Stack, Workspace, config::Deployment};
use tokio_util::sync::CancellationToken;

use super::{
    groups::{GATHER, Groups, Member},
    queue::{self, ObjectKey, Trigger},
};
use crate::{
    kinds::{stack::live_among, workspace},
    runs::Services,
};

/// What of a stack says where it is live.
#[derive(Deserialize)]
struct Deployments {
    #[serde(default)]
    deployments: Vec<Deployment>,
}

pub(crate) async fn run(services: Services, end: CancellationToken) {
    let (Ok(workspaces), Ok(stacks), Ok(backends)) =
        (services.lookup.api::<Workspace>(), services.lookup.api::<Stack>(), services.lookup.api::<Backend>())
    else {
        return;
    };
    let lookup = services.lookup.clone();
    let by_workspace = Groups::default();
    let deployed = by_workspace.follow(&stacks, |s: &Member<IgnoredAny, Deployments>| {
        let deployments = s.status.iter().flat_map(|status| &status.deployments);
        live_among(deployments).map(|workspace| (String::new(), workspace.to_owned())).collect()
    });
    let triggers = vec![
        Trigger::on(&workspaces, |w| vec![queue::key_of(w)]),
        Trigger::new(deployed.map(|moved| moved.groups).boxed()).within(GATHER),
        Trigger::on(&backends, move |b: &Backend| {
            lookup.cached_keys::<Workspace>("", "spec.backend.name", &b.name_any())
        }),
    ];
    queue::drive(services.queues.of("workspaces"), triggers, end, |key| {
        look(services.clone(), by_workspace.clone(), key)
    })
    .await;
}

async fn look(
    services: Services,
    stacks: Groups<ObjectKey>,
    (_, name): ObjectKey,
) -> Result<Option<Duration>, ApiError> {
    let workspaces = services.lookup.api::<Workspace>()?;
    if workspaces.get_opt("", &name).await?.is_none() {
        return Ok(None);
    }
    let Some(stacks) = stacks.count(&(String::new(), name.clone())) else { return Ok(Some(GATHER)) };
    workspaces
        .update_status_with("", &name, |w: &mut Workspace| {
            w.status.get_or_insert_default().stacks = i64::try_from(stacks).unwrap_or(i64::MAX);
            workspace::observe(&services.lookup, w);
        })
        .await?;
    Ok(None)
}
