//! `stacks/state`: what is recorded of a stack in a workspace now, whether a release was made of it or a run failed or goes on.
//!
//! Of sensitive values there are digests, and nothing of the states of providers. Elsewhere: `release_documents` has what was
//! recorded when a release was made.

use std::borrow::Cow;

use bytes::Bytes;
use kube::ResourceExt as _;
use serde::Serialize;
use stoa_controller::memory_budget::{self, FIRST, Memory};
use stoa_engine::{ResourceId, record::Record};
use stoa_machinery::{
    ApiError, content,
    definition::{SubresourceCall, SubresourceResponse},
    status::FieldError,
};
use stoa_runs::{
    Services, StepError, documents,
    state::{Records, State},
};
use stoa_types::{Stack, Workspace};

use super::{document, failure, format::bad_parameter, non_empty, stored::DocumentScope, wants_json};

/// What is recorded.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Deployment<'s> {
    stack: &'s str,
    workspace: &'s str,
    /// The number of the last release; 0 before the first.
    last_release: i64,
    /// Whether something was changed since.
    changed: bool,
    /// The uid of the last run that recorded something; empty before the first.
    run: &'s str,
    /// By id: what is there, a call whose end is not known, and what came of the last one.
    resources: Vec<Cow<'s, Record>>,
}

/// Query parameters: `workspace`, which a stack with one need not name; `format` is `json` or `yaml`.
pub(super) async fn stack_state(services: Services, call: SubresourceCall) -> Result<SubresourceResponse, ApiError> {
    let as_json = wants_json(&call.headers, &call.query, "yaml")?;
    let services = &services;
    let stack = services.lookup.api::<Stack>()?.get(&call.namespace, &call.name).await?;
    let workspace = workspace(&stack, non_empty(&call.query, "workspace"))?;
    let uid = stack.uid().unwrap_or_default();
    let place = DocumentScope { namespace: call.namespace.clone(), stack_uid: uid };
    let Recorded { mut state, bodies, room } = Recorded::read(services, &place, &workspace, FIRST).await?;
    let show = move || {
        for (id, body) in bodies {
            state.set_body(&id, &body).map_err(failure)?;
        }
        shown(&state, &call.name, &workspace, as_json)
    };
    let (answer, room) = room.work(show).await;
    room.until_sent(answer?).await
}

/// What is recorded, as it was read: large bodies are not in the state yet.
struct Recorded {
    state: State,
    bodies: Vec<(ResourceId, Bytes)>,
    room: Memory,
}

impl Recorded {
    /// Reads it once there is room for it. How much it takes turns out on the way: it begins with room for `bytes`, reads no more than
    /// that, and where that does not do, begins anew with more. What it has it gives back before, since others might wait for it who
    /// do the same.
    async fn read(
        services: &Services,
        place: &DocumentScope,
        workspace: &str,
        mut bytes: usize,
    ) -> Result<Self, ApiError> {
        let backend = services.lookup.api::<Workspace>()?.get("", workspace).await?.spec.backend.name;
        let store = services.backends.store(&backend).await.map_err(failure)?;
        loop {
            let room = memory_budget::take(&place.namespace, bytes).await?;
            let records = Records::read_within(&*services.log, &place.stack_uid, workspace, bytes).await;
            let Some(records) = records.map_err(failure)? else {
                bytes = bytes.saturating_mul(4).max(FIRST);
                continue;
            };
            let mut needed = records.bytes();
            let (state, room) = room.work(move || records.decode(None)).await;
            let state = state.map_err(failure)?;
            let digests: Vec<(ResourceId, String)> =
                state.kept_bodies().map(|(id, digest)| (id.clone(), digest.to_owned())).collect();
            let asked = digests.iter().map(|(_, digest)| digest.clone()).collect();
            let size = documents::sizes(&store, &place.scope(), asked).await.map_err(failure)?;
            needed = needed.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
            if needed <= bytes {
                let (store, scope) = (store.clone(), place.scope());
                let read = async move {
                    let mut bodies = Vec::with_capacity(digests.len());
                    for (id, digest) in digests {
                        bodies.push((id, documents::get(&*store, &scope, &digest).await?));
                    }
                    Ok::<_, StepError>(bodies)
                };
                let (bodies, room) = room.read(read).await;
                return Ok(Self { state, bodies: bodies.map_err(failure)?, room });
            }
            bytes = needed;
        }
    }
}

/// What is recorded, as the client wants it.
fn shown(state: &State, stack: &str, workspace: &str, as_json: bool) -> Result<SubresourceResponse, ApiError> {
    let head = state.head();
    let deployment = Deployment {
        stack,
        workspace,
        last_release: head.last_release,
        changed: head.dirty,
        run: &head.run,
        resources: state.shown().collect(),
    };
    let json = serde_json::to_vec(&deployment).map_err(|error| ApiError::internal(error.to_string()))?;
    document(&json, as_json)
}

/// The workspace that is asked for.
///
/// # Errors
///
/// 400 for a name that is none, and for none where the stack has several workspaces.
pub(super) fn workspace(stack: &Stack, asked: Option<&str>) -> Result<String, ApiError> {
    if let Some(name) = asked.filter(|name| !name.is_empty()) {
        return match content::dns_subdomain(name).pop() {
            Some(wrong) => Err(bad_parameter(&FieldError::invalid("workspace", name, wrong))),
            None => Ok(name.to_owned()),
        };
    }
    match stack.spec.workspaces.as_slice() {
        [one] => Ok(one.clone()),
        several => {
            let message = format!("the stack has {} workspaces: {}", several.len(), several.join(", "));
            Err(bad_parameter(&FieldError::required("workspace", message)))
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use stoa_controller::testing::FaultyLog;
    use stoa_engine::{ProviderState, StateResource};
    use stoa_runs::{state::Bodies, testing::unreachable_runner};

    use super::*;
    use crate::testing::TestServer;

    #[tokio::test]
    async fn state_read_reserves_memory_for_large_bodies() {
        let log = FaultyLog::new(0);
        let world = TestServer::over(log.clone(), unreachable_runner(), |builder| builder).await;
        let services = &world.services;
        let place = DocumentScope { namespace: "shop".to_owned(), stack_uid: "uid".to_owned() };
        let store = services.backends.store("default").await.unwrap();
        let state = State::load(&*services.log, "uid", "dev", None).await.unwrap();
        let bodies = Bodies { store, scope: place.scope(), encryption: services.encryption.clone() };
        let mut state = state.with_bodies(bodies).await.unwrap();
        let id = ResourceId::from("v1:ConfigMap:shop:a");
        let resource = serde_json::json!({"id": id, "type": "Kubernetes",
            "attributes": {"kind": "ConfigMap", "data": {"a": "x".repeat(1 << 20)}}});
        let mut resource: StateResource = serde_json::from_value(resource).unwrap();
        resource.provider_state = Some(ProviderState::Open("of the provider".to_owned()));
        let record = Record { resource: Some(resource), ..Record::new(id.clone()) };
        state.record(&*services.log, vec![record.clone()]).await.unwrap();

        let Recorded { mut state, bodies, room } = Recorded::read(services, &place, "dev", 1).await.unwrap();
        assert!(room.is_taken(), "it began with none");
        assert_eq!(log.bounds(), [1, FIRST], "no more of the records is read than there is room for");
        let [(of, body)] = &bodies[..] else { panic!("{bodies:?}") };
        state.set_body(of, body).unwrap();
        let recorded = state.entry(&id).resource.unwrap();
        assert!(matches!(recorded.provider_state, Some(ProviderState::Sealed(_))));
        assert_eq!(recorded.attributes, record.resource.unwrap().attributes);
        let answer = shown(&state, "web", "dev", true).unwrap().into_body().collect().await.unwrap().to_bytes();
        assert!(answer.len() > 1 << 20 && !String::from_utf8_lossy(&answer).contains("providerState"));
    }

    #[test]
    fn workspace_is_named_where_there_are_several() {
        let of = |workspaces: &[&str]| {
            let spec = serde_json::from_value(serde_json::json!({"project": "shop", "workspaces": workspaces}));
            Stack::new("web", spec.unwrap())
        };
        assert_eq!(workspace(&of(&["dev"]), None).unwrap(), "dev");
        assert_eq!(workspace(&of(&["dev", "prod"]), Some("prod")).unwrap(), "prod");
        // What was deployed to one that the stack has left is still recorded.
        assert_eq!(workspace(&of(&["dev"]), Some("gone")).unwrap(), "gone");
        for (workspaces, asked, said) in [
            (&["dev", "prod"][..], None, "2 workspaces: dev, prod"),
            (&[], Some(""), "0 workspaces"),
            (&["dev"], Some("../x"), "workspace: Invalid value"),
        ] {
            let error = workspace(&of(workspaces), asked).unwrap_err();
            assert_eq!(error.code(), 400);
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
