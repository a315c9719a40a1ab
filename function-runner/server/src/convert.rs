//! Converts between the engine's types and the proto's.

use prost::bytes::Bytes;
use serde_json::Value;
use stoa_apply::Planned;
use stoa_engine::bounds::check_spec_size;
use stoa_engine::digest::canonical_json;
use stoa_engine::import::Selection;
use stoa_engine::problem::reason;
use stoa_engine::record::CallTarget;
use stoa_engine::spec::{FILE, LINE};
use stoa_engine::{
    Action, DigestKey, DigestKeys, HookOperation, OpenCall, ResourceId, ResourceType, Spec, State, StateResource,
};
use stoa_kubernetes_model::normalize::normalize;
use stoa_proto::{
    FoundResource, Intent, KubernetesObject, PlanResponse, PlannedResource, Problem, Proposal, StateEntry, Summary,
    Target,
};
use stoa_runtime::ProposalState;
use tonic::Code;

use crate::failure::Failure;

/// The engine's problem, without the file, which the engine does not know.
pub(crate) fn problem(problem: stoa_engine::Problem) -> Problem {
    Problem {
        reason: problem.reason,
        message: problem.message,
        resource_id: problem.resource_id.map(|id| id.0).unwrap_or_default(),
        field: problem.field,
        ..Problem::default()
    }
}

/// The engine's problem, with the file and line of its resource, if the generator recorded them.
pub(crate) fn problem_in(spec: &Spec, found: stoa_engine::Problem) -> Problem {
    let mut problem = problem(found);
    let resource = spec.resources.iter().find(|resource| resource.id.0 == problem.resource_id);
    let extension = |name: &str| resource.and_then(|resource| resource.extensions.get(name));
    problem.file = extension(FILE).and_then(Value::as_str).unwrap_or_default().to_owned();
    problem.line = extension(LINE).and_then(Value::as_u64).and_then(|line| line.try_into().ok()).unwrap_or_default();
    problem
}

/// The Spec of a request; empty bytes are the empty Spec. A Spec of an earlier version may have fields that only a server
/// writes.
pub(crate) fn spec(bytes: &[u8]) -> Result<Spec, Failure> {
    if bytes.is_empty() {
        return Ok(Spec::default());
    }
    check_spec_size(bytes.len())
        .map_err(|err| Failure::new(Code::InvalidArgument, reason::TOO_LARGE, err.to_string()))?;
    let mut spec =
        serde_json::from_slice(bytes).map_err(|err| Failure::request(format!("spec is not a valid Spec: {err}")))?;
    normalize(&mut spec);
    Ok(spec)
}

/// The keys of digests in the state. An API server of an earlier version sends none; it retries until it is upgraded.
pub(crate) fn digest_keys(target: &Target) -> Result<DigestKeys, Failure> {
    let key = |bytes: &Bytes| {
        DigestKey::try_from(bytes.as_ref())
            .map_err(|_| Failure::request("target.digest_keys has a key that is not 32 bytes long"))
    };
    let keys = target.digest_keys.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    match keys.split_first() {
        Some((first, others)) if !target.spec_digest.is_empty() => Ok(DigestKeys::new(first, others)),
        Some(_) | None => {
            let message =
                "target has no digest_keys or no spec_digest: the API server is older than this function-runner";
            Err(Failure::new(Code::Unavailable, reason::UNAVAILABLE, message))
        }
    }
}

/// The recorded state of a request. An entry with an intent is a call whose result is unknown.
pub(crate) fn state(entries: &[StateEntry]) -> Result<State, Failure> {
    let mut state = State::default();
    for entry in entries {
        if let Some(Intent { action, run, place, retry }) = &entry.intent {
            let action = Action::ALL
                .into_iter()
                .find(|known| known.to_string() == *action)
                .ok_or_else(|| Failure::request(format!("state of {} has the unknown intent {action:?}", entry.id)))?;
            let stoa_proto::Place { clusters, import_id, r#type } = place.clone().unwrap_or_default();
            let kind = ResourceType::ALL.into_iter().find(|kind| kind.to_string() == r#type).unwrap_or_default();
            state.open.push(OpenCall {
                id: ResourceId(entry.id.clone()),
                action,
                run: run.clone(),
                place: CallTarget { clusters, import_id, kind },
                retry: *retry,
            });
        }
        if entry.resource.is_empty() {
            continue;
        }
        let mut resource: StateResource = serde_json::from_slice(&entry.resource)
            .map_err(|err| Failure::request(format!("state of {} is not a valid StateResource: {err}", entry.id)))?;
        if resource.id.0 != entry.id {
            return Err(Failure::request(format!("state of {} contains resource {}", entry.id, resource.id)));
        }
        (resource.finished, resource.verified) = (entry.finished, entry.verified);
        state.resources.push(resource);
    }
    Ok(state)
}

/// The selection of an import; none if there are no bytes. Its states may contain secrets, which an error could quote.
pub(crate) fn selection(bytes: &[u8]) -> Result<Option<Selection>, Failure> {
    let selection = (!bytes.is_empty()).then(|| serde_json::from_slice(bytes)).transpose();
    selection.map_err(|_| Failure::request("import is not a valid Selection".to_owned()))
}

/// The operation whose hooks are planned; none where a caller names none.
pub(crate) fn hook_operation(name: &str) -> Result<Option<HookOperation>, Failure> {
    let known = HookOperation::ALL.into_iter().find(|operation| operation.to_string() == name);
    match known {
        None if !name.is_empty() => Err(Failure::request(format!("hooks has the unknown operation {name:?}"))),
        known => Ok(known),
    }
}

/// The runtime of an object, for the record.
pub(crate) fn kubernetes_object(object: stoa_runtime::KubernetesObject) -> KubernetesObject {
    KubernetesObject {
        cluster: object.cluster,
        group: object.group,
        version: object.version,
        kind: object.kind,
        namespace: object.namespace,
        name: object.name,
        uid: object.uid,
    }
}

/// A plan, in all of its forms.
pub(crate) fn proposal(proposal: stoa_runtime::Proposal) -> Proposal {
    let (state, by) = match proposal.state {
        ProposalState::Open => ("Open", String::new()),
        ProposalState::Closed => ("Closed", String::new()),
        ProposalState::Superseded(by) => ("Superseded", by),
    };
    let stoa_runtime::Proposal { number, url, branch, commit, blocked, .. } = proposal;
    let (state, blocked) = (state.to_owned(), blocked.unwrap_or_default());
    Proposal { number, url, branch, commit, state, by, blocked, ..Proposal::default() }
}

pub(crate) fn plan(planned: Planned) -> PlanResponse {
    let Planned { plan, digest, summary, table, notes, ours } = planned;
    let resources = plan.actions.iter().map(|action| PlannedResource {
        id: action.id.0.clone(),
        action: action.action.to_string(),
        drift: action.drift,
        depends_on: action.depends_on.iter().map(|id| id.0.clone()).collect(),
    });
    PlanResponse {
        plan: canonical_json(&plan).into(),
        digest,
        summary: Some(Summary {
            create: summary.create,
            update: summary.update,
            delete: summary.delete,
            replace: summary.replace,
            adopt: summary.adopt,
            forget: summary.forget,
            unchanged: summary.unchanged,
            unverified: summary.unverified,
            import: summary.import,
        }),
        table,
        resources: resources.collect(),
        warnings: notes,
        found: ours.into_iter().map(found).collect(),
    }
}

fn found((id, object): (ResourceId, Option<stoa_runtime::KubernetesObject>)) -> FoundResource {
    FoundResource { id: id.0, kubernetes: object.map(kubernetes_object) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stoa_engine::bounds::LARGEST_SPEC;

    use super::*;

    fn entry(id: &str, resource: &str, intent: &str) -> StateEntry {
        StateEntry {
            id: id.to_owned(),
            resource: resource.as_bytes().to_vec().into(),
            intent: (!intent.is_empty()).then(|| Intent {
                action: intent.to_owned(),
                run: "r".to_owned(),
                retry: true,
                ..Intent::default()
            }),
            ..StateEntry::default()
        }
    }

    #[test]
    fn caller_without_keys_is_told_to_retry() {
        let target = |keys: &[usize], spec_digest: &str| Target {
            digest_keys: keys.iter().map(|length| vec![7; *length].into()).collect(),
            spec_digest: spec_digest.to_owned(),
            ..Target::default()
        };
        digest_keys(&target(&[32, 32], "sha256:x")).unwrap();
        for old in [target(&[], "sha256:x"), target(&[32], "")] {
            assert_eq!(digest_keys(&old).unwrap_err().code(), Code::Unavailable);
        }
        assert_eq!(digest_keys(&target(&[32, 31], "sha256:x")).unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn oversized_spec_is_rejected_before_parsing() {
        let failure = spec(&vec![b' '; LARGEST_SPEC + 1]).unwrap_err();
        assert_eq!((failure.code(), &*failure.problems()[0].reason), (Code::InvalidArgument, reason::TOO_LARGE));
    }

    #[test]
    fn state_has_records_and_open_calls() {
        let recorded = json!({"id": "v1:Namespace:a", "type": "Kubernetes", "attributes": {}}).to_string();
        let mut entries = [entry("v1:Namespace:a", &recorded, ""), entry("v1:Namespace:b", "", "Create")];
        let before = state(&entries).unwrap();
        assert_eq!(before.open[0].place, CallTarget::default(), "an earlier version did not say");
        let place = stoa_proto::Place {
            clusters: vec!["east".to_owned()],
            import_id: "b".to_owned(),
            r#type: "Terraform".to_owned(),
        };
        entries[1].intent.as_mut().unwrap().place = Some(place);
        let state = state(&entries).unwrap();
        assert_eq!(state.resources.iter().map(|resource| &*resource.id.0).collect::<Vec<_>>(), ["v1:Namespace:a"]);
        let open = OpenCall {
            id: "v1:Namespace:b".into(),
            action: Action::Create,
            run: "r".to_owned(),
            place: CallTarget {
                clusters: vec!["east".to_owned()],
                import_id: "b".to_owned(),
                kind: ResourceType::Terraform,
            },
            retry: true,
        };
        assert_eq!(state.open, [open]);
    }

    #[test]
    fn entry_says_whether_its_job_has_finished() {
        let recorded = json!({"id": "v1:Namespace:a", "type": "Kubernetes", "attributes": {}}).to_string();
        for (finished, verified) in [(false, false), (true, false), (false, true)] {
            let entry = StateEntry { finished, verified, ..entry("v1:Namespace:a", &recorded, "") };
            let found = &state(&[entry]).unwrap().resources[0];
            assert_eq!((found.finished, found.verified), (finished, verified));
        }
    }

    #[test]
    fn mismatched_state_is_rejected() {
        let good = json!({"id": "v1:Namespace:a", "type": "Kubernetes", "attributes": {}}).to_string();
        state(&[entry("v1:Namespace:a", &good, "")]).unwrap();
        state(&[entry("v1:Namespace:b", &good, "")]).unwrap_err();
        state(&[entry("v1:Namespace:a", "{}", "")]).unwrap_err();
        state(&[entry("v1:Namespace:a", &good, "Explode")]).unwrap_err();
    }
}
